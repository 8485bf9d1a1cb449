//! Log files that are renamed, opened again by SIGUSR1, out of reach, or full.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::installed::installed;
use maitred_tests::load::Load;
use maitred_tests::lowered::Lowered;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root, is_root};
use maitred_tests::wait;
use tempfile::TempDir;

/// Rotations of the test under load, and answers between two of them.
const ROTATIONS: usize = 5;
const ANSWERS_BETWEEN: u64 = 200;

const CONNECTIONS: usize = 4;

/// How late an upgrade that is over is logged at most. A front that is stopped for ten seconds
/// counts as hung.
const SAID_WITHIN: Duration = Duration::from_secs(2);

/// The page logs one request in this number, since a pool has a limit of lines a second.
const LOGGED_OF: u64 = 20;

/// A site whose one page logs, of some requests, what they ask for.
fn site() -> TempDir {
    let page = &format!(
        "<?php
        if (explode('-', $_GET['id'])[1] % {LOGGED_OF} === 0) {{
            error_log('asked for ' . $_GET['id']); }}
        echo $_GET['id'];"
    );
    document_root(&[("echo.php", page), ("hello.php", "<?php echo 'hello';")])
}

/// A server whose two logs lie in a folder that only their owner may enter: only the started
/// process can open them again.
fn start(root: &Path, logs: &Path) -> Server {
    let (access, error) = (logs.join("access.log"), logs.join("error.log"));
    Setup::new(root)
        .top(&format!("access_log = {access:?}"))
        .top(&format!("error_log = {error:?}"))
        .start()
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The files of a folder whose names begin with `start`.
fn logs(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    named.map(|entry| entry.path()).collect()
}

#[test]
fn logs_are_rotated_under_load_and_no_line_is_lost() {
    let (root, folder) = (site(), tempfile::tempdir().expect("a folder"));
    let server = start(root.path(), folder.path());
    let load = Load::start(server.address(), CONNECTIONS);
    for number in 1..=ROTATIONS {
        load.wait_for_ok(ANSWERS_BETWEEN);
        for name in ["access.log", "error.log"] {
            let renamed = folder.path().join(format!("{name}.{number}"));
            fs::rename(folder.path().join(name), renamed).expect("a log is there");
        }
        server.signal(Signal::USR1);
        for name in ["access.log", "error.log"] {
            let fresh = folder.path().join(name);
            wait::until_true("lines in the new file", || lines(&fresh).len() > 1);
            let old = folder.path().join(format!("{name}.{number}"));
            wait::until_true("the old file to be left", || !server.holds(&old));
        }
    }
    let tally = load.stop();
    server.stop();
    assert_eq!(tally.failed(), 0, "{tally:?}");
    let access = logs(folder.path(), "access.log");
    assert_eq!(access.len(), ROTATIONS + 1);
    let written: Vec<String> = access.iter().flat_map(|file| lines(file)).collect();
    let whole = |line: &&String| line.starts_with("127.0.0.1 ") && line.contains(" 200 ");
    assert_eq!(written.iter().filter(whole).count() as u64, tally.ok());
    assert_eq!(written.len() as u64, tally.ok(), "and no other line");
    let errors = logs(folder.path(), "error.log");
    let errors = errors.iter().flat_map(|file| lines(file));
    let asked = errors.filter(|line| line.contains("asked for "));
    let logged = written.iter().filter(|line| {
        let id = line.split_once("?id=").map(|(_, rest)| rest);
        let number = id.and_then(|id| id.split(['-', ' ']).nth(1)?.parse::<u64>().ok());
        number.expect("a number").is_multiple_of(LOGGED_OF)
    });
    let logged = logged.count();
    assert!(logged > ROTATIONS);
    assert_eq!(asked.count(), logged);
}

#[test]
fn a_log_that_cannot_be_opened_again_goes_on_as_it_was() {
    let (root, folder) = (site(), tempfile::tempdir().expect("a folder"));
    let (here, away) = (folder.path().join("logs"), folder.path().join("away"));
    fs::create_dir(&here).expect("a folder");
    let server = start(root.path(), &here);
    fs::rename(&here, &away).expect("a folder can be renamed");
    server.signal(Signal::USR1);
    let errors = away.join("error.log");
    for log in ["the error log", "the access log"] {
        wait::until_true("the failure to be said", || {
            let said =
                |line: &String| line.contains(log) && line.contains("cannot be opened again");
            lines(&errors).iter().any(said)
        });
    }
    http::get(server.address(), "/hello.php");
    wait::until_true("the line in the old file", || !lines(&away.join("access.log")).is_empty());
    fs::rename(&away, &here).expect("and back");
    fs::remove_file(here.join("access.log")).expect("a log can be removed");
    server.signal(Signal::USR1);
    // The front uses it a moment after it is there.
    let removed = here.join("access.log (deleted)");
    wait::until_true("a new file to be used", || {
        here.join("access.log").exists() && !server.holds(&removed)
    });
    http::get(server.address(), "/hello.php");
    wait::until_true("the line in it", || lines(&here.join("access.log")).len() == 1);
    server.stop();
}

#[test]
fn a_front_that_is_started_anew_writes_to_the_log_that_was_opened_last() {
    let (root, folder) = (site(), tempfile::tempdir().expect("a folder"));
    let server = start(root.path(), folder.path());
    let file = folder.path().join("access.log");
    fs::rename(&file, folder.path().join("access.log.1")).expect("a log is there");
    server.signal(Signal::USR1);
    wait::until_true("the new file", || file.exists());
    let front = server.front().expect("a front");
    front.signal(Signal::KILL);
    wait::until_true("the front to die", || !front.is_running());
    http::get(server.address(), "/hello.php");
    wait::until_true("the line", || lines(&file).len() == 1);
    server.stop();
}

/// Upgrades the server, and stops its second front as soon as that exists. The upgrade may be over
/// before: then the next one is tried.
fn upgrade_to_a_stopped_front(server: &Server) -> Process {
    for _ in 0..10 {
        let (mark, old) = (server.log().mark(), server.front().expect("a front"));
        let is_new = |process: &Process| {
            process.title.starts_with("maitred: front") && process.pid != old.pid
        };
        server.signal(Signal::USR2);
        let new = wait::until("a second front", || server.processes().into_iter().find(is_new));
        new.signal(Signal::STOP);
        let is_over = |line: &str| line.contains("upgraded to maitred");
        if server.log().find_since(mark, SAID_WITHIN, is_over).is_none() {
            return new;
        }
        new.signal(Signal::CONT);
        wait::until_true("the old front to leave", || !old.is_running());
    }
    panic!("each upgrade was over before its front could be stopped");
}

#[test]
fn a_front_that_is_being_replaced_writes_to_the_log_that_was_opened_last() {
    let (root, folder) = (site(), tempfile::tempdir().expect("a folder"));
    let log = folder.path().join("access.log");
    let programs = installed();
    let server = Setup::new(root.path())
        .program(&programs.path().join("maitred"))
        .top(&format!("access_log = {log:?}"))
        .start();
    let mark = server.log().mark();
    let new = upgrade_to_a_stopped_front(&server);
    fs::rename(&log, folder.path().join("access.log.1")).expect("a log is there");
    server.signal(Signal::USR1);
    wait::until_true("a line of the old front", || {
        http::get(server.address(), "/hello.php");
        !lines(&log).is_empty()
    });
    new.signal(Signal::CONT);
    server.expect_log(mark, "upgraded to maitred");
    server.stop();
}

#[test]
fn a_full_disk_under_both_logs_neither_stops_nor_ends_the_server() {
    if !is_root() {
        eprintln!("skipped: /dev/full is written to by root here");
        return;
    }
    let root = site();
    let server = Setup::new(root.path())
        .top("access_log = \"/dev/full\"")
        .top("error_log = \"/dev/full\"")
        .start();
    let load = Load::start(server.address(), CONNECTIONS);
    load.wait_for_ok(ANSWERS_BETWEEN);
    server.signal(Signal::USR1);
    load.wait_for_ok(ANSWERS_BETWEEN);
    let tally = load.stop();
    assert_eq!(tally.failed(), 0, "{tally:?}");
    server.stop();
}

#[test]
fn a_log_that_may_not_grow_any_more_ends_no_process_and_goes_on_when_it_may() {
    let (root, folder) = (site(), tempfile::tempdir().expect("a folder"));
    let server = start(root.path(), folder.path());
    let tells = |what: &str| {
        let lines = lines(&folder.path().join("error.log"));
        lines.iter().any(|line| line.contains(what))
    };
    let zygote = server.zygote().expect("a zygote");
    let lowered = Lowered::new(server.supervisor(), "root", "Max file size", "--fsize", 1);
    zygote.signal(Signal::KILL);
    wait::until_true("another zygote", || server.zygote().is_some_and(|now| now.pid != zygote.pid));
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    drop(lowered);
    server.workers().remove(0).signal(Signal::KILL);
    wait::until_true("the next line", || tells("was ended by signal 9"));
    assert!(!tells("the zygote of pool"), "its line found no room");
    server.stop();
}

#[test]
fn lines_that_are_lost_are_counted_and_told_of_once() {
    let root = site();
    let server = Setup::new(root.path()).top("access_log = \"/dev/full\"").start();
    for _ in 0..20 {
        http::get(server.address(), "/hello.php");
    }
    server.expect_log(0, "the access log cannot be written: ");
    server.expect_log(0, "the access log was not written for");
    server.expect_log(0, "up to 20 lines are lost");
    assert_eq!(server.log_text().matches("cannot be written").count(), 1);
    server.stop();
}
