//! OPcache empties its memory only while no worker uses it, although requests do not lock its file.

use std::fs;
use std::path::Path;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::load::Load;
use maitred_tests::outside::{let_go, send};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, write_file};
use maitred_tests::{traced, wait};
use serde_json::Value;
use tempfile::TempDir;

/// Requests that find a restart held up, each of which would restart.
const TRIES: usize = 20;

/// Restarts under load.
const RESTARTS: u64 = 5;

/// Responses of the load between two restarts.
const BETWEEN_RESTARTS: u64 = 100;

/// Requests whose system calls are counted.
const TRACED: usize = 50;

/// Scripts that the page under load includes.
const PARTS: usize = 20;

/// Has OPcache restarted, and prints its state.
const STATE: &str = r#"<?php
if (isset($_GET['reset'])) { opcache_reset(); }
$state = opcache_get_status(false);
echo json_encode(['pending' => $state['restart_pending'],
    'restarts' => $state['opcache_statistics']['manual_restarts']]);
"#;

/// Prints its process id, and waits for a file `go`. Before that, a child has ended as scripts do.
const LONG: &str = r#"<?php
if (isset($_GET['fork'])) {
    if (pcntl_fork() === 0) { exit; }
    pcntl_wait($status);
}
echo getmypid(), "\n"; while (ob_get_level()) { ob_end_flush(); } flush();
while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
echo 'whole';
"#;

/// Returns `id` by way of a script that OPcache has.
const ECHO: &str = r#"<?php
$part = require __DIR__ . '/parts/' . crc32($_GET['id']) % 20 . '.php';
echo (new $part['class'])->say($_GET['id'], $part);
"#;

fn site() -> TempDir {
    let root = document_root(&[
        ("state.php", STATE),
        ("long.php", LONG),
        ("echo.php", ECHO),
        ("hello.php", "<?php echo 'hello';"),
    ]);
    for number in 0..PARTS {
        let part = format!(
            "<?php class Part{number} {{ const WORDS = ['first{number}', 'second{number}'];
             function say($id, $part) {{
                usleep(500);
                return $part['words'] === self::WORDS && $part['number'] === {number}
                    ? $id : 'another part'; }} }}
             return ['class' => 'Part{number}', 'number' => {number},
                'words' => ['first{number}', 'second{number}']];"
        );
        write_file(root.path(), &format!("parts/{number}.php"), part.as_bytes());
    }
    give_to_web_user(root.path());
    root
}

fn setup(root: &Path, workers: u32) -> Setup {
    Setup::new(root).workers(workers).pool("php_admin_value.\"opcache.file_update_protection\" = 0")
}

fn state(server: &Server, query: &str) -> Value {
    http::get(server.address(), &format!("/state.php{query}")).json()
}

/// A request that goes on until [`let_go`], and its worker.
fn begin(server: &Server, root: &Path, query: &str) -> (Connection, Process) {
    let _ = fs::remove_file(root.join("go"));
    let mut connection = send(server, &Request::get(&format!("/long.php{query}")));
    let head = connection.read_head().expect("a response begins");
    assert_eq!(head.status, 200);
    let chunk = connection.read_chunk().expect("a process id");
    let pid = String::from_utf8_lossy(&chunk).trim().parse().expect("a number");
    (connection, Process::read(pid).expect("a worker"))
}

/// The locks of files that a process has (proc_locks(5)).
fn file_locks(process: &Process) -> Vec<String> {
    let locks = fs::read_to_string("/proc/locks").expect("/proc/locks can be read");
    let pid = process.pid.to_string();
    let of_process = |line: &&str| line.split_whitespace().nth(4) == Some(&pid);
    locks.lines().filter(of_process).map(str::to_owned).collect()
}

fn request_restart(server: &Server) {
    wait::until_true("a restart to be pending", || state(server, "?reset")["pending"] == true);
}

fn expect_held_up(server: &Server, restarts: u64) {
    for _ in 0..TRIES {
        let state = state(server, "");
        assert!(state["pending"] == true && state["restarts"] == restarts, "{state}");
    }
}

fn expect_restarts(server: &Server, restarts: u64) {
    wait::until_true("a restart", || {
        let state = state(server, "");
        state["pending"] == false && state["restarts"] == restarts
    });
}

#[test]
fn opcache_restarts_when_the_last_request_that_uses_it_has_ended_or_its_worker_has_died() {
    let root = site();
    let server = setup(root.path(), 3).start();
    state(&server, "");
    for query in ["", "?fork"] {
        let before = state(&server, "")["restarts"].as_u64().expect("a number");
        let (mut connection, worker) = begin(&server, root.path(), query);
        assert_eq!(file_locks(&worker), [""; 0], "its use of OPcache is in memory");
        request_restart(&server);
        expect_held_up(&server, before);
        let_go(root.path());
        assert_eq!(connection.read_chunk().expect("the rest"), b"whole");
        expect_restarts(&server, before + 1);
    }
    let (_connection, worker) = begin(&server, root.path(), "");
    request_restart(&server);
    expect_held_up(&server, 2);
    worker.signal(Signal::KILL);
    expect_restarts(&server, 3);
    server.wait_for_full_strength(3, wait::DEADLINE);
    // The new worker of that seat holds restarts up like the one before it.
    let all: Vec<_> = (0..3).map(|_| begin(&server, root.path(), "").1).collect();
    for worker in &all {
        assert_eq!(file_locks(worker), [""; 0]);
    }
    let_go(root.path());
    server.stop();
}

#[test]
fn opcache_ends_the_worker_that_holds_its_restart_up_for_too_long() {
    let root = site();
    let server =
        setup(root.path(), 2).pool("php_admin_value.\"opcache.force_restart_timeout\" = 1").start();
    let (_connection, worker) = begin(&server, root.path(), "");
    request_restart(&server);
    expect_restarts(&server, 1);
    assert!(!worker.is_running());
    server.wait_for_full_strength(2, wait::DEADLINE);
    server.stop();
}

#[test]
fn opcache_restarts_under_load_and_no_response_is_wrong() {
    let root = site();
    let server = setup(root.path(), 4).start();
    let workers = server.workers();
    let load = Load::start(server.address(), 6);
    for restarts in 1..=RESTARTS {
        load.wait_for_ok(BETWEEN_RESTARTS);
        request_restart(&server);
        expect_restarts(&server, restarts);
    }
    load.wait_for_ok(BETWEEN_RESTARTS);
    let tally = load.stop();
    assert!(tally.failed() == 0 && tally.mixed_up == 0, "{tally:?}");
    assert_eq!(server.workers(), workers, "none has crashed");
    server.stop();
}

#[test]
fn a_request_whose_scripts_opcache_has_locks_no_file() {
    let root = site();
    let server = setup(root.path(), 1).start();
    let mut connection = Connection::open(server.address());
    let mut ask = || connection.ask(&Request::get("/hello.php")).expect("a response").text();
    assert_eq!(ask(), "hello");
    let calls = root.path().join("calls");
    let output = format!("--output={}", calls.display());
    let worker = server.workers().pop().expect("a worker");
    let options = [output.as_str(), "--trace=fcntl,write"];
    let Some(mut trace) = traced::attach(&worker, &options) else {
        return eprintln!("skipped: strace is not permitted here");
    };
    for _ in 0..TRACED {
        assert_eq!(ask(), "hello");
    }
    trace.stop();
    let calls = fs::read_to_string(calls).expect("what strace saw");
    assert!(calls.contains("write("), "{calls}");
    assert!(!calls.contains("fcntl("), "{calls}");
    server.stop();
}
