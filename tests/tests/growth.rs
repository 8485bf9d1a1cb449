//! Pools that grow when a request finds no idle worker, and shrink when there is nothing to do.

use std::path::Path;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::load::{ECHO_PAGE, Load};
use maitred_tests::outside::{WAIT_PAGE, let_go, occupy, occupy_many, send};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::wait;
use tempfile::TempDir;

/// Requests that come at once, and workers that an ondemand pool may have for them.
const BURST: usize = 32;
const ROOM: u32 = 64;

/// Requests after which a pool of hello-worlds counts as one of short scripts.
const LESSONS: usize = 300;

/// Connections of a load, and answers it must get before and after a fault.
const CONNECTIONS: usize = 4;
const ENOUGH: u64 = 200;

fn site() -> TempDir {
    document_root(&[
        ECHO_PAGE,
        ("hello.php", "<?php echo 'hello';"),
        WAIT_PAGE,
        (
            "status.php",
            "<?php $status = fpm_get_status();
             echo json_encode([$status['process-manager'], count($status['procs'])]);",
        ),
        ("stubborn.php", "<?php pcntl_async_signals(true); pcntl_signal(SIGTERM, fn () => null);"),
    ])
}

fn ondemand(root: &Path, workers: u32) -> Setup {
    Setup::new(root)
        .pm("ondemand")
        .top("spare_zygotes = 0")
        .workers(workers)
        .pool("process_idle_timeout = \"1s\"")
}

fn dynamic(root: &Path, workers: u32) -> Setup {
    Setup::new(root)
        .pm("dynamic")
        .workers(workers)
        .pool("min_spare_servers = 2")
        .pool("max_spare_servers = 3")
        .pool("start_servers = 2")
}

/// Requests that wait for a file to appear.
fn send_waiting(server: &Server, count: usize) -> Vec<Connection> {
    let request = Request::get("/wait.php");
    (0..count).map(|_| send(server, &request)).collect()
}

fn hello(server: &Server) {
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
}

fn wait_for_workers(server: &Server, count: usize) {
    wait::until_true(&format!("{count} workers"), || server.workers().len() == count);
}

fn wait_for_nobody(server: &Server) {
    wait::until_true("the last worker and the zygote to leave", || {
        server.workers().is_empty() && server.zygote().is_none()
    });
}

fn assert_no_complaint(server: &Server) {
    let log = server.log_text();
    // On a busy machine workers may be long in coming.
    let is_complaint = |line: &&str| {
        let is_of_queue = line.contains(": requests are not moving: ")
            || line.contains(": requests were not moving ");
        (line.contains("ERROR") || line.contains("WARN")) && !is_of_queue
    };
    assert_eq!(log.lines().find(is_complaint), None, "{log}");
}

#[test]
fn an_ondemand_pool_answers_from_nothing_and_shrinks_to_nothing_again_and_again() {
    let root = site();
    let server = ondemand(root.path(), 4).start();
    assert!(server.workers().is_empty() && server.zygote().is_none());
    for _ in 0..2 {
        hello(&server);
        assert_eq!(server.workers().len(), 1);
        assert!(server.zygote().is_some());
        wait_for_nobody(&server);
    }
    assert_no_complaint(&server);
    server.stop();
}

#[test]
fn every_request_of_a_burst_on_an_empty_pool_gets_a_worker_of_its_own() {
    let root = site();
    let server = ondemand(root.path(), ROOM).start();
    let busy = occupy_many(&server, BURST);
    // All of them run at a time; one more may have been asked for while some were long in coming.
    let workers = server.workers().len();
    assert!((BURST..=BURST + 4).contains(&workers), "{workers}");
    let_go(root.path());
    for mut connection in busy {
        assert_eq!(connection.read_chunk().expect("a chunk"), b"waiting");
        assert!(connection.read_chunk().expect("the last chunk").is_empty());
    }
    assert_no_complaint(&server);
    server.stop();
}

#[test]
fn a_dynamic_pool_keeps_its_spare_workers_and_no_more() {
    let root = site();
    let server = dynamic(root.path(), 6).start();
    assert_eq!(server.workers().len(), 2);
    let mut busy = occupy_many(&server, 1);
    wait_for_workers(&server, 3);
    busy.extend(occupy_many(&server, 2));
    wait_for_workers(&server, 5);
    busy.extend(occupy_many(&server, 2));
    wait_for_workers(&server, 6);
    let_go(root.path());
    wait_for_workers(&server, 3);
    assert_no_complaint(&server);
    hello(&server);
    server.stop();
}

#[test]
fn a_limit_that_is_reached_is_said_once_and_its_requests_wait() {
    let root = site();
    let server = ondemand(root.path(), 2).start();
    let _busy = occupy_many(&server, 2);
    let mut waiting = send_waiting(&server, 5);
    let limit = "pool www: all max_children = 2 workers are busy";
    server.expect_log(0, limit);
    let_go(root.path());
    for connection in &mut waiting {
        let answer = connection.read_response(false).expect("an answer");
        assert_eq!(answer.text(), "waiting");
    }
    assert_eq!(server.log_text().matches(limit).count(), 1);
    wait_for_nobody(&server);
    server.stop();
}

#[test]
fn a_request_behind_a_long_script_has_a_worker_started_for_it() {
    for pm in ["ondemand", "auto"] {
        let root = site();
        let server = match pm {
            "auto" => Setup::new(root.path()).pm(pm).workers(4).start(),
            _ => ondemand(root.path(), 4).start(),
        };
        let mut connection = Connection::open(server.address());
        for _ in 0..LESSONS {
            let answer = connection.ask(&Request::get("/hello.php"));
            assert_eq!(answer.expect("an answer").text(), "hello");
        }
        let _busy = occupy(&server);
        hello(&server);
        let_go(root.path());
    }
}

#[test]
fn the_status_names_the_process_manager_and_counts_no_worker_that_has_left() {
    let root = site();
    let server = dynamic(root.path(), 6).start();
    let busy = occupy_many(&server, 4);
    wait_for_workers(&server, 6);
    let_go(root.path());
    drop(busy);
    wait_for_workers(&server, 3);
    let status = || http::get(server.address(), "/status.php").json();
    wait::until_true("the status to count three workers", || {
        status() == serde_json::json!(["dynamic", 3])
    });
    server.stop();
}

#[test]
fn a_worker_whose_script_made_it_deaf_to_the_request_to_leave_leaves_all_the_same() {
    let root = site();
    let server = ondemand(root.path(), 2).start();
    assert_eq!(http::get(server.address(), "/stubborn.php").status, 200);
    wait_for_nobody(&server);
    assert_no_complaint(&server);
    server.stop();
}

#[test]
fn an_ondemand_pool_whose_php_cannot_start_says_why_and_harms_nobody_else() {
    let root = site();
    maitred_tests::server::write_file(root.path(), "plain.txt", b"plain");
    let server = ondemand(root.path(), 2)
        .pool("rlimit_files = 1073741824")
        .pool("request_queue_timeout = \"1s\"")
        .start();
    assert_eq!(http::get(server.address(), "/hello.php").status, 503);
    server.expect_log(0, "`rlimit_files` cannot be 1073741824");
    assert_eq!(http::get(server.address(), "/plain.txt").text(), "plain");
    wait::until_true("the zygote not to be tried any more", || server.zygote().is_none());
    server.stop();
}

/// Runs a load on a server, does harm in the middle, and sees it served again.
fn under_load(server: &Server, harm: impl Fn(&Server) -> Vec<Process>) -> u64 {
    let load = Load::start(server.address(), CONNECTIONS);
    load.wait_for_ok(ENOUGH);
    let victims = harm(server);
    assert!(!victims.is_empty(), "there was a process to kill");
    for victim in &victims {
        victim.signal(Signal::KILL);
    }
    wait::until_true("the victims to die", || !victims.iter().any(Process::is_running));
    load.wait_for_ok(ENOUGH);
    let tally = load.stop();
    assert_eq!(tally.mixed_up + tally.unconnected, 0, "{tally:?}");
    tally.failed()
}

#[test]
fn whoever_is_killed_an_ondemand_pool_serves_on_and_shrinks_to_nothing() {
    let root = site();
    let server = ondemand(root.path(), CONNECTIONS as u32).start();
    let failed = under_load(&server, Server::workers);
    assert!(failed <= CONNECTIONS as u64, "{failed}");
    let zygote = |server: &Server| server.zygote().into_iter().collect();
    assert_eq!(under_load(&server, zygote), 0);
    let front = |server: &Server| server.front().into_iter().collect();
    assert!(under_load(&server, front) <= CONNECTIONS as u64);
    wait_for_nobody(&server);
    hello(&server);
    server.stop();
}

#[test]
fn whoever_is_killed_a_dynamic_pool_has_its_spare_workers_again() {
    let root = site();
    let server = dynamic(root.path(), 6).start();
    let failed = under_load(&server, Server::workers);
    assert!(failed <= CONNECTIONS as u64, "{failed}");
    let zygote = |server: &Server| server.zygote().into_iter().collect();
    assert_eq!(under_load(&server, zygote), 0);
    let front = |server: &Server| server.front().into_iter().collect();
    assert!(under_load(&server, front) <= CONNECTIONS as u64);
    wait::until_true("two or three workers and a zygote", || {
        (2..=3).contains(&server.workers().len()) && server.zygote().is_some()
    });
    server.stop();
}

#[test]
fn a_zygote_killed_while_nobody_needs_it_is_not_missed() {
    let root = site();
    let server = Setup::new(root.path())
        .pm("ondemand")
        .top("spare_zygotes = 0")
        .pool("process_idle_timeout = \"1h\"")
        .start();
    hello(&server);
    let zygote = server.zygote().expect("a zygote runs");
    zygote.signal(Signal::KILL);
    wait::until_true("the zygote to die", || !zygote.is_running());
    hello(&server);
    let worker = server.workers().pop().expect("a worker runs");
    worker.signal(Signal::KILL);
    wait::until_true("the worker to die", || !worker.is_running());
    hello(&server);
    assert!(server.zygote().is_some_and(|now| now != zygote));
    server.stop();
}
