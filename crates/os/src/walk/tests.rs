use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::process::Command;

use tempfile::TempDir;

use super::*;

const A: u32 = 5001;
const B: u32 = 5002;
const READ: Rule = Rule::Read { own: 5000 };

/// A folder of A's with `own` and `own/deep`, and one of B's with `shared`.
fn tenants() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, owner) in [("a", A), ("a/own", A), ("a/own/deep", A), ("b", B), ("b/shared", B)] {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        lchown(&path, Some(owner), Some(owner)).unwrap();
    }
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    folder
}

fn link(folder: &TempDir, name: &str, target: impl AsRef<Path>, owner: u32) {
    let path = folder.path().join(name);
    symlink(target, &path).unwrap();
    lchown(&path, Some(owner), Some(owner)).unwrap();
}

fn inode(folder: &TempDir, name: &str) -> u64 {
    fs::metadata(folder.path().join(name)).unwrap().ino()
}

fn reached(folder: &TempDir, name: &str) -> Result<u64, Stopped> {
    look(&folder.path().join(name), READ).map(|place| place.facts.id.1)
}

#[test]
fn a_tenants_link_leads_to_the_tenants_own_and_to_nothing_else() {
    if !users::is_root() {
        return eprintln!("skipped: only root can give files to others");
    }
    let folder = tenants();
    let target = folder.path().join("b/shared");
    link(&folder, "a/current", "own/deep", A);
    link(&folder, "a/absolute", folder.path().join("a/own"), A);
    link(&folder, "a/chain", "current", A);
    link(&folder, "a/up", "own/../own/deep/..", A);
    for (name, leads_to) in [
        ("a/current", "a/own/deep"),
        ("a/absolute/deep", "a/own/deep"),
        ("a/chain", "a/own/deep"),
        ("a/up", "a/own"),
        ("a/current/../../own", "a/own"),
    ] {
        assert_eq!(reached(&folder, name).unwrap(), inode(&folder, leads_to), "{name}");
    }
    link(&folder, "a/to-b", &target, A);
    link(&folder, "a/relative", "../b/shared", A);
    link(&folder, "a/by-chain", "to-b", A);
    link(&folder, "a/to-all", folder.path(), A);
    link(&folder, "a/to-root", "/", A);
    for name in
        ["a/to-b", "a/relative", "a/by-chain", "a/to-all/b/shared", "a/to-root", "a/to-root/etc"]
    {
        let stopped = reached(&folder, name).unwrap_err();
        assert!(stopped.is_foreign(), "{name}: {stopped}");
    }
}

#[test]
fn what_is_said_of_a_refused_link_names_it_and_both_owners() {
    if !users::is_root() {
        return eprintln!("skipped: only root can give files to others");
    }
    let folder = tenants();
    link(&folder, "a/public", folder.path().join("b/shared"), A);
    let said = reached(&folder, "a/public").unwrap_err().to_string();
    let (link, target) = (folder.path().join("a/public"), folder.path().join("b/shared"));
    let (a, b) = (users::name_of(A), users::name_of(B));
    let expected = format!(
        "the symbolic link {} is of user `{a}` and leads to {}, which is of user `{b}`; ",
        link.display(),
        target.display()
    );
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn dots_behind_a_tenants_link_do_not_lead_to_a_neighbour() {
    if !users::is_root() {
        return eprintln!("skipped: only root can give files to others");
    }
    let folder = tenants();
    let within = folder.path().join("b/shared/of-a");
    fs::create_dir(&within).unwrap();
    lchown(&within, Some(A), Some(A)).unwrap();
    link(&folder, "a/in", &within, A);
    assert!(reached(&folder, "a/in").is_ok());
    assert!(reached(&folder, "a/in/..").unwrap_err().is_foreign());
    link(&folder, "a/out", "in/../../../b", A);
    assert!(reached(&folder, "a/out").unwrap_err().is_foreign());
}

#[test]
fn roots_links_lead_anywhere_and_endless_ones_nowhere() {
    if !users::is_root() {
        return eprintln!("skipped: only root can give files to others");
    }
    let folder = tenants();
    link(&folder, "of-root", folder.path().join("b/shared"), 0);
    link(&folder, "endless", "endless", 0);
    link(&folder, "a/by-root", "own/deep", 0);
    assert_eq!(reached(&folder, "of-root").unwrap(), inode(&folder, "b/shared"));
    assert_eq!(reached(&folder, "a/by-root").unwrap(), inode(&folder, "a/own/deep"));
    let stopped = reached(&folder, "endless").unwrap_err();
    assert_eq!(io::Error::from(stopped).raw_os_error(), Some(Errno::LOOP.raw_os_error()));
}

#[test]
fn a_name_that_is_not_there_is_the_end_and_a_folder_that_is_not_there_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let reached = to(&folder.path().join("new.log"), Rule::Change).unwrap();
    assert!(reached.entry.is_none());
    assert_eq!(reached.name, "new.log");
    assert!(to(&folder.path().join("missing/new.log"), Rule::Change).is_err());
    let itself = to(&folder.path().join("x/..").join(".."), Rule::Change);
    assert!(itself.is_err(), "x is not there");
    let top = to(Path::new("/.."), Rule::Change).unwrap();
    assert_eq!(top.real_name(), Path::new("/"));
}

#[test]
fn a_link_to_an_open_file_is_followed_on_roots_word() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let own = format!("/proc/self/fd/{}", file.as_file().as_raw_fd());
    let place = look(Path::new(&own), Rule::Any).unwrap();
    assert_eq!(place.facts.id.1, file.as_file().metadata().unwrap().ino());
    assert!(look(Path::new("/dev/stdin"), Rule::Any).is_ok());
}

#[test]
fn a_folder_with_a_list_for_others_is_not_roots_alone() {
    if !users::is_root() {
        return eprintln!("skipped: only root's folders are root's alone");
    }
    for entry in ["u:5001:rwx", "d:u:5001:rwx", "g:5001:rwx"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.log");
        assert!(to(&path, Rule::Change).unwrap().changed_by_others().is_none());
        let set = Command::new("setfacl").args(["-m", entry]).arg(folder.path()).status();
        assert!(set.expect("the tests need setfacl (Debian's package acl)").success());
        let reached = to(&path, Rule::Change).unwrap();
        let step = reached.changed_by_others().expect("another user may write");
        assert_eq!(step.name, folder.path(), "{entry}");
    }
}

/// A file system that is mounted until the end of a test.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-R", "-l"]).arg(&self.0).status();
    }
}

#[test]
fn a_tenants_link_to_a_folder_that_is_mounted_when_it_is_used_does_not_have_root_mount_it() {
    if !users::is_root() {
        return eprintln!("skipped: only root can mount");
    }
    let folder = tenants();
    let debug = folder.path().join("debug");
    fs::create_dir(&debug).unwrap();
    let mut mount = Command::new("mount");
    let mounted = mount.args(["-t", "debugfs", "none"]).arg(&debug).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no debugfs can be mounted here");
    }
    let _mounted = Mounted(debug.clone());
    // Opening the folder itself would mount it.
    let mut entries = fs::read_dir(&debug).unwrap().flatten();
    if !entries.any(|entry| entry.file_name() == "tracing") {
        return eprintln!("skipped: nothing in debugfs is mounted when it is used");
    }
    let tracing = debug.join("tracing");
    link(&folder, "a/tracing", &tracing, A);
    let is_mounted = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(&*tracing.to_string_lossy())
    };
    for name in ["a/tracing", "a/tracing/events"] {
        look(&folder.path().join(name), Rule::Change).unwrap_err();
        assert!(!is_mounted(), "{name}");
    }
    look(&tracing, Rule::Change).unwrap();
    assert!(is_mounted(), "root's own way mounts it");
}

#[test]
fn only_regular_files_are_opened_to_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "text").unwrap();
    symlink("file", at("link")).unwrap();
    open_to_read(&at("link"), Rule::of_reader()).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for other in [at("fifo"), at("socket"), "/dev/zero".into()] {
        let why = open_to_read(&other, Rule::of_reader()).unwrap_err();
        assert_eq!(why.to_string(), "it is no regular file");
    }
    let why = open_to_read(folder.path(), Rule::of_reader()).unwrap_err();
    assert_eq!(Errno::from_io_error(&why), Some(Errno::ISDIR));
}
