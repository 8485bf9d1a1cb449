//! The restrictions of the processes that talk with strangers, for the case that one is taken over:
//! the front and the process that gets certificates, tested from inside by injected system calls.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use maitred_tests::acme::{ISSUED, Site};
use maitred_tests::http::{self, Request};
use maitred_tests::injected::{Syscall, inject};
use maitred_tests::pebble::{Habits, Pebble};
use maitred_tests::processes::Process;
use maitred_tests::server::{Server, Setup, document_root, is_root, set_mode, write_file};
use maitred_tests::{Target, wait};

/// `EPERM`, `EACCES` and `ENOSYS` (errno(3)).
const NOT_PERMITTED: i64 = 1;
const DENIED: i64 = 13;
const NO_SUCH_CALL: i64 = 38;

/// Numbers of system calls on x86-64.
const SOCKET: u64 = 41;
const CLONE: u64 = 56;
const EXECVE: u64 = 59;
const KILL: u64 = 62;
const CREAT: u64 = 85;
const PTRACE: u64 = 101;
const CHROOT: u64 = 161;
const OPENAT: u64 = 257;
const UNSHARE: u64 = 272;

/// The working directory (openat(2)).
const AT_FDCWD: u64 = (-100_i64).cast_unsigned();

/// The flags with which the C library's fork calls clone(2).
const FLAGS_OF_FORK: u64 = 0x0120_0011;

/// The value of a field of `/proc/PID/task/TID/status`, of every thread of a process.
fn of_threads(process: &Process, field: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.pid)).unwrap();
    let value = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        Some(line.unwrap().trim_start_matches(':').trim().to_owned())
    };
    tasks.flatten().filter_map(value).collect()
}

/// That no thread of a process can gain rights, and that each goes through a filter.
fn expect_restricted(process: &Process) {
    for (field, expected) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
        let values = of_threads(process, field);
        assert!(values.iter().all(|value| value == expected), "{field}: {values:?}");
    }
    for field in ["CapBnd", "CapPrm", "CapEff", "CapInh", "CapAmb"] {
        let values = of_threads(process, field);
        let is_none = |set: &String| u64::from_str_radix(set, 16) == Ok(0);
        assert!(!is_root() || values.iter().all(is_none), "{field}: {values:?}");
    }
}

fn front(server: &Server) -> Process {
    server.front().expect("there is a front")
}

#[test]
fn no_thread_of_the_front_can_gain_rights_or_make_other_calls_than_it_needs() {
    let root = document_root(&[("a.txt", "a file"), ("hello.php", "<?php echo 'hello';")]);
    let server = Setup::new(root.path()).top("front_threads = 3").start();
    assert_eq!(http::get(server.address(), "/a.txt").text(), "a file");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let front = front(&server);
    assert!(of_threads(&front, "Seccomp").len() >= 3);
    expect_restricted(&front);
    server.stop();
}

#[test]
fn a_front_that_is_taken_over_starts_no_program_and_reaches_no_other_process_or_file() {
    if !is_root() {
        return eprintln!("skipped: only root may debug the front");
    }
    let root = document_root(&[("a.txt", "a file")]);
    write_file(Path::new("/var/tmp"), "maitred-test-of-the-sandbox", b"readable for all");
    let server = Setup::new(root.path()).start();
    let supervisor = server.supervisor().pid;
    let path = |name: &str| root.path().join(name).to_str().expect("UTF-8").to_owned();
    let supervisor = u64::from(supervisor.cast_unsigned());
    let open = |path: &str, flags: u64| {
        Syscall::new(OPENAT, [AT_FDCWD.into(), path.into(), flags.into(), 0o600.into()])
    };
    let calls = [
        (open(&path("a.txt"), 0), None),
        (Syscall::new(PTRACE, [16.into(), supervisor.into()]), Some(NOT_PERMITTED)),
        (Syscall::new(KILL, [supervisor.into(), 0.into()]), Some(NOT_PERMITTED)),
        (Syscall::new(UNSHARE, [0x1000_0000.into()]), Some(NOT_PERMITTED)),
        (Syscall::new(CHROOT, ["/".into()]), Some(NOT_PERMITTED)),
        (Syscall::new(SOCKET, [17.into(), 3.into(), 0.into()]), Some(NO_SUCH_CALL)),
        (open("/var/tmp/maitred-test-of-the-sandbox", 0), Some(DENIED)),
        (Syscall::new(CREAT, [path("new").as_str().into(), 0o600.into()]), Some(NOT_PERMITTED)),
        (open(&path("new"), 0o101), Some(DENIED)),
        (Syscall::new(CLONE, [FLAGS_OF_FORK.into()]), Some(NO_SUCH_CALL)),
        (Syscall::new(EXECVE, ["/bin/true".into(), 0.into(), 0.into()]), Some(NOT_PERMITTED)),
    ];
    let (calls, expected): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    let results = inject(&front(&server), &calls);
    for (call, (result, expected)) in calls.iter().zip(results.into_iter().zip(expected)) {
        match expected {
            None => assert!(result >= 0, "{call:?}: {result}"),
            Some(expected) => assert_eq!(result, -expected, "{call:?}"),
        }
    }
    assert_eq!(http::get(server.address(), "/a.txt").text(), "a file");
    fs::remove_file("/var/tmp/maitred-test-of-the-sandbox").unwrap();
    server.stop();
}

#[test]
fn the_sandbox_can_be_switched_off() {
    let root = document_root(&[("a.txt", "a file")]);
    let server = Setup::new(root.path()).top("front_sandbox = false").start();
    assert_eq!(http::get(server.address(), "/a.txt").text(), "a file");
    let seccomp = of_threads(&front(&server), "Seccomp");
    let ours = of_threads(&server.supervisor(), "Seccomp");
    assert!(seccomp.iter().all(|value| *value == ours[0]), "{seccomp:?}");
    server.stop();
}

#[test]
fn a_reload_adds_sites_beside_those_of_the_start_and_warns_of_one_that_the_front_cannot_open() {
    let (first, second) =
        (document_root(&[("a.txt", "first")]), document_root(&[("a.txt", "second")]));
    let setup = Setup::new(first.path()).hosts(&["first.test"]);
    let server = setup.clone().start();
    let site = |root: &Path, host: &str| {
        format!("\n[[sites]]\nroot = {root:?}\nhosts = [\"{host}\"]\npool = \"www\"")
    };
    server.configure(&setup.clone().site(&site(second.path(), "second.test")));
    assert!(server.reload().contains("reloaded"));
    let request = Request::new("GET", "/a.txt").header("Host", "second.test");
    assert_eq!(http::ask(server.address(), &request).text(), "second");
    // A part of the machine that no site has lain in.
    let elsewhere = tempfile::tempdir_in("/var/tmp").unwrap();
    let mark = server.log().mark();
    server.configure(&setup.site(&site(elsewhere.path(), "third.test")));
    server.reload();
    if server.log_text().contains("Landlock does not restrict") {
        eprintln!("skipped in part: this kernel has no Landlock");
    } else {
        server.expect_log(mark, "is outside the folders that the sandbox of the front allows");
    }
    server.stop();
}

#[test]
fn a_part_of_the_machine_that_is_another_folder_than_at_the_start_is_logged_as_such() {
    if !is_root() {
        return eprintln!("skipped: only root makes folders of `/`");
    }
    let (part, before) = (tempfile::tempdir_in("/"), tempfile::tempdir_in("/"));
    let (part, before) = (part.unwrap(), before.unwrap());
    let site = part.path().join("site");
    let make = || {
        fs::create_dir_all(&site).unwrap();
        write_file(&site, "a.txt", b"a file");
        set_mode(part.path(), 0o755);
    };
    make();
    let setup = Setup::new(&site);
    let server = setup.clone().start();
    assert_eq!(http::get(server.address(), "/a.txt").text(), "a file");
    let mark = server.log().mark();
    fs::rename(part.path(), before.path().join("old")).unwrap();
    make();
    let said = "is another file system or folder than when the front was restricted";
    if server.log_text().contains("Landlock does not restrict") {
        return eprintln!("skipped: this kernel has no Landlock");
    }
    wait::until("files are closed", || {
        (http::get(server.address(), "/a.txt").status == 403).then_some(())
    });
    server.expect_log(mark, &format!("{} {said}", part.path().display()));
    let mark = server.log().mark();
    server.configure(&setup.top("max_connections_per_address = 999"));
    server.reload();
    server.expect_log(mark, &format!("is inaccessible to the front: {}", part.path().display()));
    server.stop();
}

#[test]
fn the_process_that_gets_certificates_is_restricted_as_the_front_is() {
    let habits = Habits { hesitates_seconds: 3, ..Habits::default() };
    let (pebble, site) = (Pebble::with(habits), Site::default());
    let server = site.setup(&pebble, &["shop.test"], "").start();
    let find = || {
        let all = server.processes();
        all.into_iter().find(|process| process.title.contains("maitred: acme"))
    };
    let acme = wait::until("the process that gets certificates restricts itself", || {
        let acme = find()?;
        let is_filtered = of_threads(&acme, "Seccomp").iter().all(|value| value == "2");
        is_filtered.then_some(acme)
    });
    expect_restricted(&acme);
    server.expect_log(0, ISSUED);
    server.stop();
}
