//! Files that root opens, creates and removes by configured names, where others may write to a
//! folder on the path: logs, sockets, pid files. Nothing that they can change there is trusted.
//! Names are resolved by descriptors ([`crate::walk`]), a file that others could have put there is
//! checked before it is opened, and files in a user's folder are created with that user's rights.
//!
//! A process that is not root can do no more than its user, and opens names as they are.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::users::{self, Identity};
use crate::walk::{self, Facts, Reached, Rule};

/// Attempts to resolve a path that changes meanwhile.
const MAX_TRIES: u32 = 3;

const OTHERS_WRITE: u32 = 0o002;

/// Flags for a log: neither the open nor a write waits for a reader.
const APPEND: OFlags = OFlags::WRONLY
    .union(OFlags::APPEND)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Flags that create a file and never open an existing one.
const CREATE: OFlags =
    OFlags::CREATE.union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The rule for this process: root trusts nothing that others can change.
pub fn rule() -> Rule {
    if users::is_root() { Rule::Change } else { Rule::Any }
}

/// Opens a file to append to it, and creates it with permission bits `mode` if necessary.
///
/// # Errors
/// Errors of `open(2)`; for root also when others could have put the file there.
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    if !users::is_root() {
        return append_as_it_is(path, mode);
    }
    retried(|| append_to(&walk::to(path, Rule::Change)?, mode))
}

/// Whether [`append`] may wait for users other than root, who can hold the lock of a folder on the
/// path. A process that is not root has no other users to guard against.
///
/// # Errors
/// Errors of a name on the path, in a folder that only root can change.
pub fn waits_for_others(path: &Path) -> io::Result<bool> {
    if !users::is_root() {
        return Ok(false);
    }
    let Some(reached) = walk::to_while(path, Rule::Change, walk::only_root_changes)? else {
        return Ok(true);
    };
    Ok(reached.entry.is_none() && walk::others_list(&reached.folder.facts))
}

/// As [`append`], with the rights of this process and wherever the name leads.
fn append_as_it_is(path: &Path, mode: u32) -> io::Result<File> {
    let flags = APPEND | OFlags::CREATE;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?.into())
}

/// As [`append`], for root with the rights of the user whose name and links these are
/// ([`users::with_rights_of`]). What root itself has open is nothing that they lead to: a link such
/// as `/proc/self/fd/7` reaches files that have no name, and whose mode protects nothing, since it
/// was not meant to (`RESOLVE_NO_MAGICLINKS`, openat2(2)).
///
/// # Errors
/// Errors of `open(2)`, such as `ELOOP` for such a link.
pub fn append_with_their_rights(path: &Path, mode: u32) -> io::Result<File> {
    let (flags, mode) = (APPEND | OFlags::CREATE, Mode::from_raw_mode(mode));
    let opened = match rustix::fs::openat2(CWD, path, flags, mode, ResolveFlags::NO_MAGICLINKS) {
        // Container runtimes older than openat2 refuse it: the last name is no link then.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(path, flags | OFlags::NOFOLLOW, mode),
        opened => opened,
    };
    Ok(opened?.into())
}

/// As [`append_with_their_rights`], and refuses what is no regular file: the lock of a FIFO is
/// theirs to hold whenever a process opens, writes or closes it.
///
/// # Errors
/// As [`append_with_their_rights`].
pub fn append_to_file_with_their_rights(path: &Path, mode: u32) -> io::Result<File> {
    let look = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::openat2(CWD, path, look, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    if let Ok(found) = found {
        expect_regular(&found)?;
    }
    let file = append_with_their_rights(path, mode)?;
    expect_regular(&file)?;
    Ok(file)
}

fn expect_regular(file: impl AsFd) -> io::Result<()> {
    match FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is no regular file")),
    }
}

/// Creates a file with permission bits `mode` in place of an existing one, which is removed, so
/// that a link has no effect.
///
/// # Errors
/// Errors of `open(2)` and `unlink(2)`; for root also when a link of another user leads there.
pub fn replace(path: &Path, mode: u32) -> io::Result<File> {
    retried(|| {
        let place = Named::at(path)?;
        place.remove()?;
        let flags = CREATE | OFlags::WRONLY;
        let create = || {
            let mode = Mode::from_raw_mode(mode);
            rustix::fs::openat(&place.folder.fd, &place.name, flags, mode)
        };
        let file = place.with_rights(create)??;
        if place.creator().is_some() {
            // systemd trusts only a pid file of root.
            rustix::fs::fchown(&file, Some(Uid::ROOT), Some(Gid::ROOT))?;
        }
        Ok(file.into())
    })
}

/// A name in a folder, which is held open. A link of that name is not followed.
#[derive(Debug)]
pub struct Named {
    folder: walk::OpenedPath,
    name: OsString,
    /// Others than root may write to a folder on the path.
    is_shared: bool,
}

impl Named {
    /// The name at the end of `path`.
    ///
    /// # Errors
    /// When its folder cannot be reached, or a link of another user leads there.
    pub fn at(path: &Path) -> io::Result<Named> {
        let none = || io::Error::from(io::ErrorKind::InvalidInput);
        let name = path.file_name().ok_or_else(none)?.to_owned();
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let reached = walk::to(folder.unwrap_or(Path::new(".")), rule())?;
        let by_others = reached.changed_by_others().is_some();
        let folder = reached.entry.ok_or(Errno::NOENT)?;
        if folder.facts.kind() != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let is_shared = by_others || !walk::only_root_changes(&folder.facts, None);
        Ok(Named { is_shared: is_shared && users::is_root(), folder, name })
    }

    /// The current file of this name, not followed if it is a link; `None`: there is none.
    ///
    /// # Errors
    /// Errors of `open(2)`.
    pub fn look(&self) -> io::Result<Option<walk::OpenedPath>> {
        walk::look_in(&self.folder, &self.name)
    }

    /// Removes the file of this name, if any.
    ///
    /// # Errors
    /// Errors of `unlink(2)`.
    pub fn remove(&self) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.folder.fd, &self.name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Opens the folder itself, to lock or to sync it.
    ///
    /// # Errors
    /// Errors of `open(2)`.
    pub fn open_folder(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.folder.fd, ".", flags, Mode::empty())?.into())
    }

    /// The name in the folder that was found, wherever that was moved since.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// The owner of the folder, with whose rights files are created in it; `None`: with the rights
    /// of this process.
    pub fn creator(&self) -> Option<Identity> {
        creator(&self.folder.facts)
    }

    /// Whether this is root, and others may write to a folder on the path.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Creates something with the rights for this folder.
    ///
    /// # Errors
    /// When these rights cannot be taken.
    pub fn with_rights<T>(&self, create: impl FnOnce() -> T) -> io::Result<T> {
        with_rights(self.creator(), create)
    }
}

fn retried<T>(act: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 1;
    loop {
        match act() {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists && tries < MAX_TRIES => {}
            done => return done,
        }
        tries += 1;
    }
}

fn append_to(reached: &Reached, mode: u32) -> io::Result<File> {
    let (folder, name) = (&reached.folder, &reached.name);
    let create = Mode::from_raw_mode(mode);
    if reached.changed_by_others().is_none() {
        let open = |flags| rustix::fs::openat(&folder.fd, name, flags, create);
        // The lock of the folder, which those hold who list it, is needed only for a new file.
        let existing = reached.entry.as_ref().map(|_| open(APPEND));
        let opened = match existing {
            None | Some(Err(Errno::NOENT)) => open(APPEND | OFlags::CREATE),
            Some(opened) => opened,
        };
        return Ok(opened?.into());
    }
    let Some(entry) = &reached.entry else {
        let open = || rustix::fs::openat(&folder.fd, name, APPEND | CREATE, create);
        return Ok(with_rights(creator(&folder.facts), open)??.into());
    };
    if let Err(why) = judge(&folder.facts, &entry.facts) {
        let said = format!("{} {why}", walk::printable(&reached.real_name()));
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
    }
    Ok(rustix::fs::open(entry.path(), APPEND, Mode::empty())?.into())
}

/// Whether root may append to a file that others could have put into `folder`.
fn judge(folder: &Facts, file: &Facts) -> Result<(), String> {
    const WHERE: &str = "lies where others than root may write";
    if file.kind() != FileType::RegularFile {
        return Err(format!("is no regular file, and {WHERE}"));
    }
    if file.names != 1 {
        return Err(format!(
            "has another name as well (a hard link), and {WHERE}: it may be any file"
        ));
    }
    let may_be_anybodys = folder.mode & OTHERS_WRITE != 0;
    if may_be_anybodys && file.uid != 0 && file.uid != folder.uid {
        let owner = users::name_of(file.uid);
        return Err(format!("is of user `{owner}`, and {WHERE}: remove it"));
    }
    Ok(())
}

fn creator(folder: &Facts) -> Option<Identity> {
    if users::is_root() && folder.uid != 0 {
        users::look_up(&folder.uid.to_string(), None).ok()
    } else {
        None
    }
}

fn with_rights<T>(creator: Option<Identity>, create: impl FnOnce() -> T) -> io::Result<T> {
    match creator {
        Some(creator) => users::with_rights_of(&creator, create),
        None => Ok(create()),
    }
}

/// The folder on the path to a log that others than root may change, if any: a sentence for the
/// administrator.
pub fn warning_of(path: &Path) -> Option<String> {
    let name = path.display();
    match walk::to(path, Rule::Change) {
        Err(stopped) if stopped.is_foreign() => {
            Some(format!("{name} is not opened by root: {stopped}"))
        }
        Err(_) => None,
        Ok(reached) => {
            let step = reached.changed_by_others()?;
            let (folder, owner) = (step.name.display(), users::name_of(step.folder.uid));
            let who = match step.folder.uid {
                0 => "others than root may write to it".to_owned(),
                _ => format!("user `{owner}` owns it"),
            };
            Some(format!(
                "{name} lies beneath {folder}, and {who}: who can write there can read, change and \
                 remove what is logged, and have it refused; use a folder that is root's alone"
            ))
        }
    }
}

#[cfg(test)]
#[path = "guarded_tests.rs"]
mod tests;
