//! Logs of the server and of sites in folders that a tenant may write to: root opens nothing there
//! that the tenant could have put there, when it starts and when it opens logs again.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use maitred_tests::processes::Signal;
use maitred_tests::server::{
    Server, Setup, document_root, is_root, public_folder, set_mode, user_ids,
};
use maitred_tests::{Target, http, maitred_program, wait};
use tempfile::TempDir;

/// The tenant.
const TENANT: &str = "nobody";

/// A folder with a tenant's `logs` and root's `roots`, which only root can look into.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let folder = public_folder();
        let machine = Machine { folder };
        for (name, mode) in [("logs", 0o755), ("roots", 0o700)] {
            fs::create_dir(machine.path(name)).expect("a folder can be made");
            set_mode(&machine.path(name), mode);
        }
        machine.give("logs");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn give(&self, name: &str) {
        let (uid, gid) = user_ids(TENANT);
        lchown(self.path(name), Some(uid), Some(gid)).expect("root can give files away");
    }

    /// The tenant puts a link to a file of root's folder in the place of a log.
    fn link_to_root(&self, name: &str, target: &str) {
        let _ = fs::remove_file(self.path(name));
        symlink(self.path("roots").join(target), self.path(name)).expect("a link can be made");
        self.give(name);
    }

    fn assert_root_has_nothing_new(&self) {
        let there = fs::read_dir(self.path("roots")).expect("root's folder is there");
        let names: Vec<_> = there.flatten().map(|entry| entry.file_name()).collect();
        assert!(names.is_empty(), "root has followed a link: {names:?}");
    }
}

fn site() -> TempDir {
    document_root(&[("index.html", "hello")])
}

fn lines(log: &Path) -> usize {
    fs::read_to_string(log).map_or(0, |text| text.lines().count())
}

/// The front takes a log that is opened again a moment after the supervisor says so.
fn expect_line(server: &Server, log: &Path) {
    let before = lines(log);
    wait::until("a line in the log", || {
        http::get(server.address(), "/");
        (lines(log) > before).then_some(())
    });
}

#[test]
fn a_sites_log_that_its_tenant_makes_a_link_is_not_opened_again_and_goes_on_where_it_was() {
    if !is_root() {
        return eprintln!("skipped: only root opens logs in folders of others");
    }
    let (machine, root) = (Machine::new(), site());
    let log = machine.path("logs/access.log");
    let server = Setup::new(root.path()).site(&format!("access_log = {log:?}")).start();
    expect_line(&server, &log);
    let made = fs::metadata(&log).expect("the log is there");
    assert_eq!(made.uid(), user_ids(TENANT).0, "it is the tenant's");
    fs::rename(&log, machine.path("logs/access.log.1")).expect("a log can be renamed");
    machine.link_to_root("logs/access.log", "ld.so.preload");
    let mark = server.log().mark();
    server.signal(Signal::USR1);
    server.expect_log(mark, "cannot be opened again");
    http::get(server.address(), "/");
    machine.assert_root_has_nothing_new();
    expect_line(&server, &machine.path("logs/access.log.1"));
    fs::remove_file(&log).expect("the link can be removed");
    let mark = server.log().mark();
    server.signal(Signal::USR1);
    server.expect_log(mark, "was opened again");
    expect_line(&server, &log);
}

#[test]
fn the_servers_own_logs_are_not_opened_through_a_tenants_link_either() {
    if !is_root() {
        return eprintln!("skipped: only root opens logs in folders of others");
    }
    let (machine, root) = (Machine::new(), site());
    let (access, error) = (machine.path("logs/access.log"), machine.path("logs/error.log"));
    let server = Setup::new(root.path())
        .top(&format!("access_log = {access:?}"))
        .top(&format!("error_log = {error:?}"))
        .start();
    let moved = machine.path("logs/error.log.1");
    fs::rename(&error, &moved).expect("a log can be renamed");
    machine.link_to_root("logs/access.log", "access");
    machine.link_to_root("logs/error.log", "error");
    server.signal(Signal::USR1);
    wait::until("both logs to be refused", || {
        let said = fs::read_to_string(&moved).unwrap_or_default();
        (said.matches("cannot be opened again").count() == 2).then_some(())
    });
    http::get(server.address(), "/");
    machine.assert_root_has_nothing_new();
}

#[test]
fn a_hard_link_and_a_link_to_the_folder_lead_root_nowhere() {
    if !is_root() {
        return eprintln!("skipped: only root opens logs in folders of others");
    }
    let (machine, root) = (Machine::new(), site());
    let log = machine.path("logs/access.log");
    let server = Setup::new(root.path()).site(&format!("access_log = {log:?}")).start();
    let secret = machine.path("secret");
    fs::write(&secret, "").expect("a file can be written");
    fs::remove_file(&log).expect("the log can be removed");
    fs::hard_link(&secret, &log).expect("a file can have two names");
    let mark = server.log().mark();
    server.signal(Signal::USR1);
    server.expect_log(mark, "hard link");
    http::get(server.address(), "/");
    fs::rename(machine.path("logs"), machine.path("old")).expect("a folder can be renamed");
    symlink(machine.path("roots"), machine.path("logs")).expect("a link can be made");
    machine.give("logs");
    let mark = server.log().mark();
    server.signal(Signal::USR1);
    server.expect_log(mark, "cannot be opened again");
    machine.assert_root_has_nothing_new();
    assert_eq!(lines(&secret), 0, "a line is in another's file");
}

#[test]
fn a_folder_whose_access_control_list_lets_a_tenant_write_is_not_roots_alone() {
    if !is_root() {
        return eprintln!("skipped: only root opens logs in folders of others");
    }
    let (machine, root) = (Machine::new(), site());
    let listed = machine.path("listed");
    fs::create_dir(&listed).expect("a folder can be made");
    set_mode(&listed, 0o755);
    let entry = format!("u:{TENANT}:rwx");
    let set = Command::new("setfacl").args(["-m", &entry]).arg(&listed).status();
    assert!(set.expect("the tests need setfacl (package acl)").success());
    let log = listed.join("slow.log");
    machine.link_to_root("listed/slow.log", "created");
    let server = Setup::new(root.path())
        .pool(&format!("user = {TENANT:?}"))
        .pool(&format!("slowlog = {log:?}"))
        .pool("request_slowlog_timeout = \"100ms\"")
        .start();
    server.expect_log(0, "cannot be written");
    machine.assert_root_has_nothing_new();
}

#[test]
fn check_warns_of_a_log_in_a_folder_that_others_may_write_to() {
    if !is_root() {
        return eprintln!("skipped: only root opens logs in folders of others");
    }
    let (machine, root) = (Machine::new(), site());
    let log = machine.path("logs/access.log");
    let server = Setup::new(root.path()).site(&format!("access_log = {log:?}")).start();
    let output = Command::new(maitred_program())
        .arg("check")
        .arg("--config")
        .arg(server.configuration())
        .output()
        .expect("maitred can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    let folder = machine.path("logs").display().to_string();
    let warns = said.contains("warning: access_log: ") && said.contains(&folder);
    assert!(output.status.success() && warns, "{said}");
}

#[test]
fn the_test_of_a_php_fpm_configuration_opens_no_log_through_a_tenants_link() {
    if !is_root() {
        return eprintln!("skipped: only root opens logs in folders of others");
    }
    let machine = Machine::new();
    machine.link_to_root("logs/fpm.log", "by-test");
    let file = machine.path("php-fpm.conf");
    let (log, socket) = (machine.path("logs/fpm.log"), machine.path("www.sock"));
    let text = format!(
        "[global]\nerror_log = {}\n[www]\nuser = {TENANT}\nlisten = {}\npm = static\n\
         pm.max_children = 1\n",
        log.display(),
        socket.display()
    );
    fs::write(&file, text).expect("a configuration can be written");
    let output = Command::new(maitred_program())
        .args(["fpm", "-t", "-y"])
        .arg(&file)
        .output()
        .expect("maitred can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    machine.assert_root_has_nothing_new();
    assert!(said.contains("failed to open error_log"), "{said}");
    assert!(!output.status.success(), "{said}");
}

#[test]
fn roots_link_in_a_folder_of_the_syslog_group_leads_to_the_logs_of_a_site_and_is_not_warned_of() {
    if !is_root() {
        return eprintln!("skipped: only root opens logs in folders of others");
    }
    // `adm` of Debian.
    const ADM: u32 = 4;
    let (machine, root) = (Machine::new(), site());
    let logs = machine.path("var-log");
    fs::create_dir(&logs).expect("a folder can be made");
    set_mode(&logs, 0o775);
    lchown(&logs, None, Some(ADM)).expect("root can give files away");
    symlink(machine.path("logs"), logs.join("site")).expect("a link can be made");
    let log = logs.join("site/access.log");
    let server = Setup::new(root.path())
        .top(&format!("access_log = {log:?}"))
        .top(&format!("error_log = {:?}", logs.join("error.log")))
        .start();
    expect_line(&server, &machine.path("logs/access.log"));
    let output = Command::new(maitred_program())
        .arg("check")
        .arg("--config")
        .arg(server.configuration())
        .output()
        .expect("maitred can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("warning: error_log"), "{said}");
    server.stop();
}
