//! What the processes that talk with strangers can still do once somebody else decides what they
//! do: the front and the process that gets certificates, asked from inside by a debugger.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use maitred_tests::acme::{ISSUED, Site};
use maitred_tests::http::{self, Request};
use maitred_tests::pebble::{Habits, Pebble};
use maitred_tests::processes::Process;
use maitred_tests::server::{Server, Setup, document_root, is_root, set_mode, write_file};
use maitred_tests::{Target, wait};

/// How long the debugger may take.
const PATIENCE_SECONDS: u32 = 40;

/// `EPERM`, `EACCES` and `ENOSYS` (errno(3)).
const NOT_PERMITTED: i32 = 1;
const DENIED: i32 = 13;
const NO_SUCH_CALL: i32 = 38;

/// The number of socket(2): a name that functions of the server have, too.
const SOCKET: i32 = if cfg!(target_arch = "x86_64") {
    41
} else {
    198
};

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
        assert!(
            values.iter().all(|value| value == expected),
            "{field}: {values:?}"
        );
    }
    for field in ["CapBnd", "CapPrm", "CapEff", "CapInh", "CapAmb"] {
        let values = of_threads(process, field);
        let is_none = |set: &String| u64::from_str_radix(set, 16) == Ok(0);
        assert!(
            !is_root() || values.iter().all(is_none),
            "{field}: {values:?}"
        );
    }
}

/// Has a process call functions of the C library; what each has returned, and `errno`.
fn inside(process: &Process, calls: &[String]) -> Vec<(i32, i32)> {
    // A program that has taken the process's place would keep the debugger for good.
    let mut gdb = Command::new("timeout");
    gdb.args(["--signal=KILL", &PATIENCE_SECONDS.to_string(), "gdb"]);
    gdb.args(["-nx", "-batch", "-p", &process.pid.to_string()]);
    for setting in ["pagination off", "unwindonsignal on"] {
        gdb.args(["-ex", &format!("set {setting}")]);
    }
    for call in calls {
        gdb.args(["-ex", &format!("print (int){call}")]);
        gdb.args(["-ex", "print *(int*)__errno_location()"]);
    }
    let output = gdb.output().expect("gdb runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers = said.lines().filter_map(|line| {
        let (name, value) = line.split_once(" = ")?;
        name.starts_with('$').then(|| value.parse::<i32>().ok())?
    });
    let numbers: Vec<i32> = numbers.collect();
    assert_eq!(numbers.len(), 2 * calls.len(), "{output:?}");
    numbers.chunks(2).map(|both| (both[0], both[1])).collect()
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
    write_file(
        Path::new("/var/tmp"),
        "maitred-test-of-the-sandbox",
        b"readable for all",
    );
    let server = Setup::new(root.path()).start();
    let supervisor = server.supervisor().pid;
    let file = root.path().join("a.txt");
    let calls = [
        (format!("open64({file:?}, 0)"), None),
        (
            format!("ptrace(16, {supervisor}, 0, 0)"),
            Some(NOT_PERMITTED),
        ),
        (format!("kill({supervisor}, 0)"), Some(NOT_PERMITTED)),
        ("unshare(0x10000000)".to_owned(), Some(NOT_PERMITTED)),
        ("chroot(\"/\")".to_owned(), Some(NOT_PERMITTED)),
        (format!("syscall({SOCKET}, 17, 3, 0)"), Some(NO_SUCH_CALL)),
        (
            "open64(\"/var/tmp/maitred-test-of-the-sandbox\", 0)".to_owned(),
            Some(DENIED),
        ),
        (
            format!("creat({:?}, 0600)", root.path().join("new")),
            Some(NOT_PERMITTED),
        ),
        (
            format!("open64({:?}, 0101, 0600)", root.path().join("new")),
            Some(DENIED),
        ),
        ("fork()".to_owned(), Some(NO_SUCH_CALL)),
        (
            "execve(\"/bin/true\", 0, 0)".to_owned(),
            Some(NOT_PERMITTED),
        ),
    ];
    let (texts, expected): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    for (text, ((returned, errno), expected)) in texts
        .iter()
        .zip(inside(&front(&server), &texts).into_iter().zip(expected))
    {
        match expected {
            None => assert!(returned >= 0, "{text}: {returned}, error {errno}"),
            Some(expected) => assert_eq!((returned, errno), (-1, expected), "{text}"),
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
    let (first, second) = (
        document_root(&[("a.txt", "first")]),
        document_root(&[("a.txt", "second")]),
    );
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
        server.expect_log(
            mark,
            "is outside the folders that the sandbox of the front allows",
        );
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
    server.expect_log(
        mark,
        &format!("is inaccessible to the front: {}", part.path().display()),
    );
    server.stop();
}

#[test]
fn the_process_that_gets_certificates_is_restricted_as_the_front_is() {
    let habits = Habits {
        hesitates_seconds: 3,
        ..Habits::default()
    };
    let (pebble, site) = (Pebble::with(habits), Site::default());
    let server = site.setup(&pebble, &["shop.test"], "").start();
    let find = || {
        let all = server.processes();
        all.into_iter()
            .find(|process| process.title.contains("maitred: acme"))
    };
    let acme = wait::until(
        "the process that gets certificates restricts itself",
        || {
            let acme = find()?;
            let is_filtered = of_threads(&acme, "Seccomp")
                .iter()
                .all(|value| value == "2");
            is_filtered.then_some(acme)
        },
    );
    expect_restricted(&acme);
    server.expect_log(0, ISSUED);
    server.stop();
}
