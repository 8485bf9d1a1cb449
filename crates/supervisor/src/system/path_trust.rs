//! Path trust: as root we open no file and adopt no user through a symlink that a tenant controls.

use std::io;
use std::path::Path;

use maitred_os::folder_lookups::look_up;
use maitred_os::users::{self, Identity};
use maitred_os::walk::{self, Facts, Rule};
use rustix::fs::FileType;

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Whether only root can have put a link on the path: every folder on it is owned by root, and
/// writable neither by `user` nor by everyone; a folder at its end as well. A folder with an access
/// control list is not trusted, whichever user the list names. Nothing is looked up in a folder of
/// a tenant, whose lock may be held.
pub fn leads_where_root_says(path: &Path, user: &Identity) -> bool {
    let is_roots = |folder: &Facts, entry: Option<&Facts>| is_roots(folder, entry, user);
    let Ok(Some(reached)) = walk::to_while(path, Rule::Change, is_roots) else {
        return false;
    };
    let end = reached.entry.map(|end| end.facts);
    let folder = end.filter(|end| end.kind() == FileType::Directory);
    folder.is_none_or(|folder| is_roots(&folder, None))
}

/// The owner of the folder `path`. Every link on the path must belong to root or the owner, so that
/// no user can pass another's folder for his own, or his own for another's.
///
/// # Errors
/// When it does not exist, or a link of another user leads to it.
pub fn owner_of(path: &Path) -> io::Result<Identity> {
    let reached = look_up(path, || Ok(walk::to(path, Rule::Any)?))?;
    let place = reached.entry.ok_or(io::ErrorKind::NotFound)?;
    let entries = reached.steps.iter().filter_map(|step| step.entry);
    let mut links = entries.filter(|entry| entry.kind() == FileType::Symlink);
    match links.all(|link| link.uid == 0 || link.uid == place.facts.uid) {
        true => look_up(path, || users::owner_of(&place.path())),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a symbolic link of another user leads there",
        )),
    }
}

/// Whether only root controls a step of the path. A file of root in a folder like `/tmp` cannot be
/// replaced by others (inode(7), "sticky").
fn is_roots(folder: &Facts, entry: Option<&Facts>, user: &Identity) -> bool {
    if folder.uid != 0 {
        return false;
    }
    let group_writes = folder.mode & GROUP_WRITES != 0 && users::is_member(user, folder.gid);
    if folder.mode & OTHERS_WRITE == 0 && !group_writes && !folder.has_list {
        return true;
    }
    folder.mode & STICKY != 0 && entry.is_some_and(|entry| entry.uid == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    fn tenant() -> Identity {
        users::look_up("nobody", None).unwrap()
    }

    #[test]
    fn a_way_through_a_folder_that_others_may_change_is_not_trusted_wherever_it_leads() {
        let trusted = |path: &Path| leads_where_root_says(path, &tenant());
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
            lchown(&own, Some(tenant().uid), None).unwrap();
            assert!(!trusted(&own.join("slow.log")) && !trusted(&link.join("slow.log")));
        }
    }

    #[test]
    fn a_folder_at_the_end_is_trusted_only_if_it_is_roots() {
        if !users::is_root() {
            return eprintln!("skipped: only root's folders are root's alone");
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(leads_where_root_says(folder.path(), &tenant()));
        lchown(folder.path(), Some(tenant().uid), None).unwrap();
        assert!(!leads_where_root_says(folder.path(), &tenant()));
        assert!(!leads_where_root_says(Path::new("/tmp"), &tenant()));
    }

    #[test]
    fn a_folder_whose_list_lets_somebody_write_is_not_trusted() {
        if !users::is_root() {
            return eprintln!("skipped: only root's folders are root's alone");
        }
        for entry in ["u:nobody:rwx", "d:u:nobody:rwx"] {
            let folder = tempfile::tempdir().unwrap();
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let log = folder.path().join("slow.log");
            assert!(leads_where_root_says(&log, &tenant()));
            let set = std::process::Command::new("setfacl")
                .args(["-m".as_ref(), entry.as_ref(), folder.path()])
                .status();
            assert!(set.unwrap().success(), "the tests need setfacl (package acl)");
            assert!(!leads_where_root_says(&log, &tenant()), "{entry}");
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
            lchown(&theirs, Some(tenant().uid), None).unwrap();
            assert_eq!(owner_of(&link).unwrap().uid, tenant().uid);
            lchown(&link, Some(1), None).unwrap();
            let refused = owner_of(&link).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
