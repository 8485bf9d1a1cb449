//! Whom the way along a path has to be believed of: root opens no file, and takes on no user, by the
//! word of a tenant who puts links into his folders.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use maitred_os::users::{self, Identity};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// Most links on the way (`MAXSYMLINKS` of the kernel).
const MAX_LINKS: usize = 40;

/// Where this process finds what it has open, by number.
const OWN_DESCRIPTORS: &str = "/proc/self/fd";

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Whether none but root can have put a link on the way to `path`: every folder on it is root's, and
/// neither `user` nor everybody may change what is in it.
pub fn leads_where_root_says(path: &Path, user: &Identity) -> bool {
    walk(path, |folder, next| is_roots(folder, next, user)).is_some()
}

/// The owner of the folder `path`. One who does not own a folder cannot make it pass for his own, nor
/// his own for it: every link on the way is root's or the owner's, and nothing is changed meanwhile.
///
/// # Errors
/// When it is not there, or a link of somebody else leads to it.
pub fn owner_of(path: &Path) -> io::Result<Identity> {
    let mut links = Vec::new();
    let look = |_: &Path, next: &Path| match fs::symlink_metadata(next) {
        Ok(meta) => {
            links.extend(meta.is_symlink().then_some(meta.uid()));
            true
        }
        Err(_) => false,
    };
    let real = walk(path, look).ok_or(io::ErrorKind::NotFound)?;
    let owner = owner_of_what_is_no_link(&real)?;
    match links.iter().all(|uid| *uid == 0 || *uid == owner.uid) {
        true => Ok(owner),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// The owner of what was reached without a link, which it may have been replaced by since.
fn owner_of_what_is_no_link(real: &Path) -> io::Result<Identity> {
    let (flags, mode) = (OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    match openat2(CWD, real, flags, mode, ResolveFlags::NO_SYMLINKS) {
        Ok(opened) => {
            users::owner_of(&Path::new(OWN_DESCRIPTORS).join(opened.as_raw_fd().to_string()))
        }
        // Container runtimes older than it refuse it.
        Err(Errno::NOSYS | Errno::PERM) => users::owner_of(real),
        Err(why) => Err(why.into()),
    }
}

/// Follows `path` to where it leads, as long as `goes_on` says so of a folder and what is next in it.
fn walk(path: &Path, mut goes_on: impl FnMut(&Path, &Path) -> bool) -> Option<PathBuf> {
    let mut ahead: VecDeque<OsString> = names(path);
    let (mut folder, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            folder.pop();
            continue;
        }
        let next = folder.join(&name);
        if !goes_on(&folder, &next) {
            return None;
        }
        let Ok(target) = fs::read_link(&next) else {
            folder = next;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return None;
        }
        if target.is_absolute() {
            folder = PathBuf::from("/");
        }
        for name in names(&target).into_iter().rev() {
            ahead.push_front(name);
        }
    }
    Some(folder)
}

fn names(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

/// Whether what is named `next` in `folder` is there because root says so. What is root's in a folder
/// like `/tmp` cannot be replaced by others (inode(7), "sticky").
fn is_roots(folder: &Path, next: &Path, user: &Identity) -> bool {
    let Ok(meta) = fs::symlink_metadata(folder) else {
        return false;
    };
    if meta.uid() != 0 {
        return false;
    }
    let group_writes = meta.mode() & GROUP_WRITES != 0 && users::is_member(user, meta.gid());
    if meta.mode() & OTHERS_WRITE == 0 && !group_writes {
        return true;
    }
    let next = fs::symlink_metadata(next);
    meta.mode() & STICKY != 0 && next.is_ok_and(|next| next.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{lchown, symlink};

    fn somebody() -> Identity {
        users::look_up("nobody", None).unwrap()
    }

    #[test]
    fn a_way_through_a_folder_that_others_may_change_is_not_trusted_wherever_it_leads() {
        let trusted = |path: &Path| leads_where_root_says(path, &somebody());
        assert!(trusted(Path::new("/etc/slow.log")));
        assert!(trusted(Path::new("/etc/../etc/slow.log")));
        assert!(!trusted(Path::new("/tmp/nothing-of-this-name.log")));
        assert!(!trusted(Path::new("/etc/nothing-of-this-name/slow.log")));
        let folder = tempfile::tempdir().unwrap();
        let (own, link) = (folder.path().join("own"), folder.path().join("logs"));
        fs::create_dir(&own).unwrap();
        symlink(&own, &link).unwrap();
        let is_root = users::is_root();
        assert_eq!(trusted(&link.join("slow.log")), is_root);
        if is_root {
            lchown(&own, Some(somebody().uid), None).unwrap();
            assert!(!trusted(&own.join("slow.log")) && !trusted(&link.join("slow.log")));
        }
    }

    #[test]
    fn nobody_makes_a_folder_of_somebody_else_pass_for_his_own() {
        let folder = tempfile::tempdir().unwrap();
        let (theirs, link) = (folder.path().join("theirs"), folder.path().join("link"));
        fs::create_dir(&theirs).unwrap();
        symlink(&theirs, &link).unwrap();
        assert_eq!(owner_of(&link).unwrap(), users::owner_of(&theirs).unwrap());
        assert!(owner_of(&folder.path().join("nothing")).is_err());
        if users::is_root() {
            lchown(&theirs, Some(somebody().uid), None).unwrap();
            assert_eq!(owner_of(&link).unwrap().uid, somebody().uid);
            lchown(&link, Some(1), None).unwrap();
            let refused = owner_of(&link).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
