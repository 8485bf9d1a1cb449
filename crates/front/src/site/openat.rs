//! Opens paths below a document root.
//!
//! The kernel resolves them (`openat2`). Only a symbolic link that leads out of the root is
//! followed step by step, to check its owner: deployments link `storage -> ../storage/app/public`,
//! and a tenant must not link to a neighbour.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use maitred_os::walk::{self as checked_walk, Rule};
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

use crate::site::document_root::Root;
use crate::site::refused_links;

pub use crate::runtime::cached_names::LOOK;

/// Flags to read a file. `NONBLOCK` and `NOCTTY` matter if the name has become a FIFO or a terminal
/// since the check.
pub const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Attempts to open a path with `..` while others rename something in that moment.
const ATTEMPTS: usize = 16;

/// The status of a path that was looked up.
#[derive(Clone, Copy)]
pub struct Seen {
    /// Its status.
    pub stat: Stat,
    /// As [`Opened::through_link`].
    pub through_link: bool,
}

impl Seen {
    fn of(opened: &Opened) -> Seen {
        Seen { stat: opened.stat, through_link: opened.through_link }
    }

    /// Its file type: regular file, directory, …
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

/// An opened path.
pub struct Opened {
    /// The descriptor.
    pub fd: OwnedFd,
    /// Its status, taken from the descriptor.
    pub stat: Stat,
    /// Whether a symbolic link was followed, so that the name in the path may not be the file's
    /// own.
    pub through_link: bool,
}

impl Opened {
    fn new(fd: OwnedFd, through_link: bool) -> Result<Opened> {
        let stat = fs::fstat(&fd)?;
        Ok(Opened { fd, stat, through_link })
    }

    /// The same file, opened again: with a position of its own.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub fn again(&self) -> Result<Opened> {
        Opened::new(fs::open(proc_name(&self.fd), READ, Mode::empty())?, self.through_link)
    }

    /// Its file type: regular file, directory, …
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// The file's own absolute path, if `/proc` reports it.
    ///
    /// # Errors
    ///
    /// When `readlink` of `/proc/self/fd` fails.
    pub fn real_name(&self) -> Result<Vec<u8>> {
        Ok(fs::readlink(proc_name(&self.fd), Vec::new())?.into_bytes())
    }
}

/// A name of an open file that leads to it without a lookup in its directory.
pub fn proc_name(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Looks at `path`, as [`open`] opens it: no read permission is needed.
///
/// # Errors
/// As [`open`].
pub fn look(root: &Root, path: &[u8]) -> Result<Seen> {
    open_with(root, path, LOOK).map(|opened| Seen::of(&opened))
}

/// As [`look`], as far as the kernel has cached the path, and as far as no link leads out of the
/// root.
///
/// # Errors
/// As [`open_cached`].
pub fn look_cached(root: BorrowedFd<'_>, path: &[u8]) -> Result<Seen> {
    resolve(root, relative(path), LOOK, ResolveFlags::CACHED).map(|opened| Seen::of(&opened))
}

/// Opens `path` (absolute in the site: `/a/b`, no dot segments) below `root`. Symbolic links that
/// stay in the root are followed; those that leave it, only if the link and its target have the
/// same owner (nginx calls this `disable_symlinks if_not_owner`) or the link is root's, and if each
/// link on the way leads where its owner's may ([`maitred_os::walk`]).
///
/// # Errors
///
/// `XDEV` for a link that must not be followed, otherwise the kernel's error.
pub fn open(root: &Root, path: &[u8]) -> Result<Opened> {
    open_with(root, path, READ)
}

/// As [`open`], with these flags.
///
/// # Errors
/// As [`open`].
pub fn open_with(root: &Root, path: &[u8], flags: OFlags) -> Result<Opened> {
    let relative = relative(path);
    let has_parents = relative.split(|byte| *byte == b'/').any(|segment| segment == b"..");
    let folder = root.fd.as_fd();
    let mut opened = resolve(folder, relative, flags, ResolveFlags::empty());
    let mut attempts = 1;
    while has_parents && attempts < ATTEMPTS && matches!(opened, Err(Errno::AGAIN)) {
        opened = resolve(folder, relative, flags, ResolveFlags::empty());
        attempts += 1;
    }
    match opened {
        // The walk refuses them, and whether the path exists is not known.
        Err(Errno::AGAIN) if has_parents => Err(Errno::AGAIN),
        // AGAIN: after a concurrent rename the kernel cannot be sure that `..` in a link stays
        // inside. Container runtimes older than openat2 refuse it; the walk needs only openat.
        Err(Errno::XDEV | Errno::AGAIN | Errno::NOSYS | Errno::PERM) => walk(root, relative, flags),
        opened => opened,
    }
}

/// As [`open`], as far as the kernel has cached the path, and as far as no link leads out of the
/// root.
///
/// # Errors
/// `AGAIN` for a path that is not cached, `XDEV` for a link out of the root, otherwise as [`open`].
pub fn open_cached(root: BorrowedFd<'_>, path: &[u8]) -> Result<Opened> {
    resolve(root, relative(path), READ, ResolveFlags::CACHED)
}

fn resolve(
    root: BorrowedFd<'_>,
    relative: &[u8],
    flags: OFlags,
    cached: ResolveFlags,
) -> Result<Opened> {
    let plain = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | cached;
    match fs::openat2(root, relative, flags, Mode::empty(), plain) {
        Ok(fd) => Opened::new(fd, false),
        Err(Errno::LOOP) => Opened::new(open_inside(root, relative, flags, cached)?, true),
        Err(error) => Err(error),
    }
}

fn open_inside(
    root: BorrowedFd<'_>,
    relative: &[u8],
    flags: OFlags,
    cached: ResolveFlags,
) -> Result<OwnedFd> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | cached;
    fs::openat2(root, relative, flags, Mode::empty(), inside)
}

/// Follows `relative` segment by segment, checking the owner of every link and of what it leads to.
pub(crate) fn walk(root: &Root, relative: &[u8], flags: OFlags) -> Result<Opened> {
    let mut held: Option<OwnedFd> = None;
    let mut through_link = false;
    let mut start = 0;
    for end in memchr::memchr_iter(b'/', relative).chain([relative.len()]) {
        let segment = &relative[start..end];
        start = end + 1;
        // The kernel has resolved those that stay inside; conditions of `.htaccess` have others.
        if segment == b".." {
            return Err(Errno::XDEV);
        }
        let wanted = if end == relative.len() { flags } else { LOOK };
        let directory = held.as_ref().unwrap_or(&root.fd).as_fd();
        let next = open_unlinked(directory, segment, LOOK)?;
        let next = if is_link(&next)? {
            through_link = true;
            let link = SymbolicLink { directory, segment, so_far: &relative[..end], fd: &next };
            follow(root, &link, wanted)?
        } else if wanted == LOOK {
            next
        } else {
            open_unlinked(directory, segment, wanted)?
        };
        held = Some(next);
    }
    Opened::new(held.ok_or(Errno::NOENT)?, through_link)
}

/// A symbolic link within a path.
struct SymbolicLink<'a> {
    directory: BorrowedFd<'a>,
    /// Its name in `directory`.
    segment: &'a [u8],
    /// Its path from the root.
    so_far: &'a [u8],
    fd: &'a OwnedFd,
}

/// Opens the target of a link. The target's owner is read from its descriptor, after it is opened,
/// so that a change of the link meanwhile has no effect.
fn follow(root: &Root, link: &SymbolicLink<'_>, flags: OFlags) -> Result<OwnedFd> {
    let SymbolicLink { directory, segment, so_far, fd } = link;
    let plain = ResolveFlags::NO_MAGICLINKS;
    let target = match fs::openat2(directory, *segment, flags, Mode::empty(), plain) {
        Err(Errno::NOSYS | Errno::PERM) => fs::openat(directory, *segment, flags, Mode::empty())?,
        opened => opened?,
    };
    let owner = fs::fstat(fd)?.st_uid;
    let may_leave = owner == 0 || owner == fs::fstat(&target)?.st_uid;
    let path = refused_links::path_in(*directory, segment);
    // The kernel has followed every link on the way, of any owner. The walk checks each.
    if may_leave
        && let Ok(path) = &path
        && let Ok(place) = checked_walk::look(path, Rule::of_reader())
    {
        return fs::open(place.path(), flags, Mode::empty());
    }
    // Another owner's file is still this site's file if it is in this root.
    open_inside(root.fd.as_fd(), so_far, flags, ResolveFlags::empty()).map_err(|_| {
        if let Ok(path) = &path {
            refused_links::log(&root.path, path);
        }
        Errno::XDEV
    })
}

fn open_unlinked(directory: BorrowedFd<'_>, segment: &[u8], flags: OFlags) -> Result<OwnedFd> {
    fs::openat(directory, segment, flags | OFlags::NOFOLLOW, Mode::empty())
}

fn is_link(fd: &OwnedFd) -> Result<bool> {
    Ok(FileType::from_raw_mode(fs::fstat(fd)?.st_mode) == FileType::Symlink)
}

/// `/a/b` and `/a/b/` → `a/b`, `/` → `.`: the caller handles the trailing slash.
fn relative(path: &[u8]) -> &[u8] {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if path.is_empty() { b"." } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_dot_segments_does_not_leave_the_root() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("root/in")).unwrap();
        std::fs::write(folder.path().join("secret"), "x").unwrap();
        std::fs::write(folder.path().join("root/own"), "x").unwrap();
        let root = Root::open(&folder.path().join("root"), b"", 0).unwrap();
        for path in ["/../secret", "/in/../../secret", "/../root/own", "/.."] {
            assert_eq!(look(&root, path.as_bytes()).err(), Some(Errno::XDEV), "{path}");
            let walked = walk(&root, relative(path.as_bytes()), LOOK);
            assert_eq!(walked.err(), Some(Errno::XDEV), "{path}");
        }
        assert!(look(&root, b"/in/../own").is_ok());
        assert!(look(&root, b"/").is_ok());
    }
}
