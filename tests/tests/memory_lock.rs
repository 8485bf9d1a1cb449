//! The private memory of processes is counted by a process of its own, since a tenant can hold the
//! lock that this needs: the supervisor goes on, whatever that process waits for. Commands of root
//! that look at processes wait a moment for it.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::{command, status, text};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::stuck_files::StuckFiles;
use maitred_tests::tuned::Going;
use maitred_tests::{Target, maitred_program, wait};
use rustix::process::{Pid, kill_process};
use serde_json::Value;

/// Replaces a changed page of a file, whose write the kernel waits for with the lock of the
/// process's memory.
const HOLDS: &str = "<?php
$c = FFI::cdef('int open(const char *, int); int munmap(void *, size_t);
    void *mmap(void *, size_t, int, int, int, long);', 'libc.so.6');
$at = $c->mmap(null, 4096, 3, 0x01, $c->open($_GET['file'], 2), 0);
FFI::memset($at, 120, 4096);
$c->mmap($at, 4096, 3, 0x32, -1, 0);
echo 'released';";

const FFI: &str = "php_admin_value = { \"ffi.enable\" = \"1\", extension = \"ffi\" }";

/// The process that counts.
fn reader(server: &Server) -> Option<Process> {
    let all = server.processes().into_iter();
    let mut readers = all.filter(|process| process.title.trim_end() == "maitred: memory");
    readers.next()
}

/// The worker of the pool of a host.
fn worker(server: &Server, host: &str) -> String {
    let request = Request::new("GET", "/pid.php").header("Host", host);
    http::ask(server.address(), &request).text()
}

/// Kills the only worker of the pool of a host, and waits for the response of another one. It lists
/// no processes: the titles of processes are read with the lock of their memory as well.
fn replace_worker(server: &Server, host: &str) {
    let before = worker(server, host);
    let pid = Pid::from_raw(before.parse().expect("a process id")).expect("a process id");
    kill_process(pid, Signal::KILL).expect("the worker runs");
    assert_ne!(worker(server, host), before);
}

/// The memory of a pool's processes.
fn memory(server: &Server, pool: &str) -> Value {
    let all = status(server);
    let pools = all["pools"].as_array().expect("pools are listed");
    let pool = pools.iter().find(|one| one["name"] == pool).expect("there is such a pool");
    pool["memory"].clone()
}

/// How a pool is measured whose pages were not counted in time.
const LATE: &str = "rss_minus_shared_late";

#[test]
fn a_worker_that_holds_the_lock_of_its_memory_delays_no_other_and_its_pool_is_measured_roughly() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let root = document_root(&[("holds.php", HOLDS), ("pid.php", "<?php echo getmypid();")]);
    let other = format!(
        "[pools.other]\npm = \"static\"\nmax_children = 1\n[[sites]]\nhosts = [\"other\"]\n\
         pool = \"other\"\nroot = {:?}",
        root.path()
    );
    let server = Setup::new(root.path()).workers(1).pool(FFI).site(&other).start();
    // They are dropped before the server, which waits for its processes.
    let files = files;
    let is_measured = |pool: &str, method| memory(&server, pool)["measured"] == method;
    wait::until_true("private pages to be counted", || is_measured("www", "private"));
    let mark = server.log().mark();
    let mut held = Connection::open(server.address());
    let target = format!("/holds.php?file={}", files.file().display());
    held.send(&Request::get(&target).to_bytes()).expect("the server takes a request");
    files.wait_for_process();
    replace_worker(&server, "other");
    wait::until_true("the pool to be measured otherwise", || is_measured("www", LATE));
    server.expect_log(mark, "pool www: the private pages of its processes could not be counted");
    wait::until_true("the other to be counted", || is_measured("other", "private"));
    let details = text(&command(&server, &["status", "www"]).stdout);
    assert!(details.contains("not counted in time"), "{details}");
    replace_worker(&server, "other");
    files.release();
    assert_eq!(held.read_response(false).expect("a response").text(), "released");
    server.stop();
}

#[test]
fn a_process_that_counts_and_is_stopped_or_killed_is_replaced_and_the_supervisor_goes_on() {
    let root = document_root(&[("pid.php", "<?php echo getmypid();")]);
    let server = Setup::new(root.path()).workers(1).start();
    let is_measured = |method| memory(&server, "www")["measured"] == method;
    assert!(reader(&server).is_none(), "nothing was to be counted yet");
    wait::until_true("private pages to be counted", || is_measured("private"));
    let another = |before: &Process| {
        wait::until("another one that counts", || {
            status(&server);
            reader(&server).filter(|reader| reader != before && is_measured("private"))
        })
    };
    let first = reader(&server).expect("it has counted");
    server.signal(Signal::USR2);
    server.expect_log(0, "upgraded to maitred");
    let killed = another(&first);
    assert!(!first.is_running(), "a new program starts its own");
    killed.signal(Signal::KILL);
    server.expect_log(0, "the process that counts memory was ended by signal 9");
    let stopped = another(&killed);
    let mark = server.log().mark();
    stopped.signal(Signal::STOP);
    wait::until_true("it to be killed", || {
        replace_worker(&server, "localhost");
        status(&server);
        !stopped.is_running()
    });
    server.expect_log(mark, "pool www: the private pages of its processes could not be counted");
    assert!(is_measured(LATE));
    server.stop();
}

#[test]
fn the_process_that_counts_memory_ends_after_half_a_minute_without_work() {
    let root = document_root(&[("pid.php", "<?php echo getmypid();")]);
    let server = Setup::new(root.path()).workers(1).start();
    let mark = server.log().mark();
    let is_measured = || memory(&server, "www")["measured"] == "private";
    wait::until_true("private pages to be counted", is_measured);
    let counts = reader(&server).expect("it has counted");
    let ended = || (!counts.is_running()).then_some(());
    wait::until_within("the process to end", Duration::from_secs(120), ended);
    wait::until_true("private pages to be counted again", is_measured);
    let said = server.log().since(mark);
    assert!(!said.iter().any(|line| line.contains("counts memory")), "{said:?}");
    server.stop();
}

#[test]
fn commands_of_root_end_while_a_worker_holds_the_lock_of_its_memory() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let root = document_root(&[("holds.php", HOLDS), ("pid.php", "<?php echo getmypid();")]);
    let server = Setup::new(root.path()).workers(2).pool(FFI).start();
    // They are dropped before the server, which waits for its processes.
    let files = files;
    let before = fs::read(server.configuration()).expect("a file");
    let mut held = Connection::open(server.address());
    let target = format!("/holds.php?file={}", files.file().display());
    held.send(&Request::get(&target).to_bytes()).expect("the server takes a request");
    files.wait_for_process();
    let config = server.configuration().display().to_string();
    let doctor = run(&["doctor", "--json", "--config", &config]);
    assert!(text(&doctor.stdout).contains("\"D1\""), "{doctor:?}");
    let undo = run(&["tune", "--undo", "--config", &config]);
    assert!(text(&undo.stderr).contains("there is nothing to undo"), "{undo:?}");
    let url = format!("{}/pid.php", server.base_url());
    let mut going = Going::start(maitred(&["tune", &url, "--config", &config, "--despite-noise"]));
    going.until("about");
    going.signal(Signal::INT);
    let (told, code) = going.end();
    assert_eq!(code, Some(130), "{told}");
    assert_eq!(fs::read(server.configuration()).expect("a file"), before);
    files.release();
    assert_eq!(held.read_response(false).expect("a response").text(), "released");
    server.stop();
}

/// A command that is killed if it does not end by itself.
fn maitred(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", &wait::DEADLINE.as_secs().to_string()]);
    command.arg(maitred_program()).args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
fn run(arguments: &[&str]) -> Output {
    maitred(arguments).output().expect("the program can be started")
}
