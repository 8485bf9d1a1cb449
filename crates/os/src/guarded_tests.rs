use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use tempfile::TempDir;

use super::*;

const TENANT: u32 = 5001;
const MODE: u32 = 0o640;

/// A tenant's folder beside one of root's that the tenant cannot read.
fn folders() -> (TempDir, PathBuf, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (logs, roots) = (home.path().join("logs"), home.path().join("roots"));
    for (folder, mode) in [(&logs, 0o755), (&roots, 0o700)] {
        fs::create_dir(folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    }
    chown(&logs, Some(TENANT), Some(TENANT)).unwrap();
    (home, logs, roots)
}

fn link(target: &Path, link: &Path) {
    symlink(target, link).unwrap();
    std::os::unix::fs::lchown(link, Some(TENANT), Some(TENANT)).unwrap();
}

#[test]
fn root_appends_to_nothing_that_a_tenants_link_leads_to() {
    if !users::is_root() {
        return eprintln!("skipped: only root can give files to others");
    }
    let (_home, logs, roots) = folders();
    let log = logs.join("access.log");
    link(&roots.join("created"), &log);
    append(&log, MODE).unwrap_err();
    assert!(!roots.join("created").exists());
    fs::write(roots.join("there"), "roots").unwrap();
    link(&roots.join("there"), &logs.join("b.log"));
    append(&logs.join("b.log"), MODE).unwrap_err();
    let moved = logs.join("folder");
    link(&roots, &moved);
    append(&moved.join("c.log"), MODE).unwrap_err();
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 1);
}

#[test]
fn hard_links_and_what_is_no_file_are_refused_where_others_may_write() {
    if !users::is_root() {
        return eprintln!("skipped: only root can give files to others");
    }
    let (_home, logs, roots) = folders();
    fs::write(roots.join("passwd"), "roots").unwrap();
    fs::hard_link(roots.join("passwd"), logs.join("access.log")).unwrap();
    let refused = append(&logs.join("access.log"), MODE).unwrap_err();
    assert!(refused.to_string().contains("hard link"), "{refused}");
    let fifo = logs.join("fifo");
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
    let refused = append(&fifo, MODE).unwrap_err();
    assert!(refused.to_string().contains("no regular file"), "{refused}");
}

#[test]
fn a_log_in_a_tenants_folder_is_created_as_the_tenants_and_one_of_roots_goes_on() {
    if !users::is_root() {
        return eprintln!("skipped: only root can give files to others");
    }
    let (_home, logs, _roots) = folders();
    let log = logs.join("access.log");
    append(&log, MODE).unwrap().write_all(b"one\n").unwrap();
    let found = fs::metadata(&log).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (TENANT, MODE));
    append(&log, MODE).unwrap().write_all(b"two\n").unwrap();
    assert_eq!(fs::read(&log).unwrap(), b"one\ntwo\n");
    let older = logs.join("older.log");
    fs::write(&older, "").unwrap();
    append(&older, MODE).unwrap();
}

#[test]
fn a_tenants_link_to_a_file_of_the_tenants_is_followed() {
    if !users::is_root() {
        return eprintln!("skipped: only root can give files to others");
    }
    let (_home, logs, _roots) = folders();
    link(Path::new("today.log"), &logs.join("access.log"));
    append(&logs.join("access.log"), MODE).unwrap();
    assert_eq!(fs::metadata(logs.join("today.log")).unwrap().uid(), TENANT);
}

#[test]
fn where_root_alone_writes_its_links_and_devices_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    symlink("/dev/null", &log).unwrap();
    append(&log, MODE).unwrap().write_all(b"x").unwrap();
}

#[test]
fn what_is_replaced_is_removed_and_never_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (pid, precious) = (folder.path().join("pid"), folder.path().join("precious"));
    fs::write(&precious, "kept").unwrap();
    symlink(&precious, &pid).unwrap();
    replace(&pid, 0o644).unwrap().write_all(b"1").unwrap();
    assert_eq!(fs::read(&precious).unwrap(), b"kept");
    assert_eq!(fs::read(&pid).unwrap(), b"1");
}

#[test]
fn a_folder_of_a_tenants_is_warned_of() {
    if !users::is_root() {
        return eprintln!("skipped: only root can give files to others");
    }
    let (_home, logs, roots) = folders();
    let said = warning_of(&logs.join("access.log")).unwrap();
    assert!(said.contains(&logs.display().to_string()), "{said}");
    assert_eq!(warning_of(&roots.join("access.log")), None);
}

/// Sets the groups that count for this process, so it is one test.
#[test]
fn a_folder_of_a_group_without_a_pools_user_is_roots_and_one_of_a_pools_group_is_not() {
    if !users::is_root() {
        return eprintln!("skipped: only root can give files to others");
    }
    let syslog = users::group_named("adm").unwrap();
    let pool = users::look_up(&TENANT.to_string(), None).unwrap();
    walk::distrust_groups_of(&[pool]);
    let (home, logs, roots) = folders();
    fs::write(roots.join("file"), "roots").unwrap();
    for (group, is_roots) in [(syslog, true), (TENANT, false)] {
        let folder = home.path().join(group.to_string());
        fs::create_dir(&folder).unwrap();
        chown(&folder, None, Some(group)).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o775)).unwrap();
        let log = folder.join("access.log");
        // Like the system's own folder for them, and unlike one of temporary files.
        let of_folder = |warning: String| warning.contains(&group.to_string());
        let warned = warning_of(&log).is_some_and(of_folder);
        assert_eq!(warned, !is_roots, "{group}");
        fs::hard_link(roots.join("file"), &log).unwrap();
        assert_eq!(append(&log, MODE).is_ok(), is_roots, "{group}");
        symlink(&logs, folder.join("site")).unwrap();
        let led = append(&folder.join("site/error.log"), MODE);
        assert_eq!(led.is_ok(), is_roots, "{group}");
    }
}
