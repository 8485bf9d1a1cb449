//! Requests that wait: in the queue, or in a slot behind a script that turned out long. Each server
//! is first taught that its scripts are short, so that requests are put behind others at all.

use std::net::SocketAddr;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::{WAIT_PAGE, let_go, occupy, send};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::wait;
use tempfile::TempDir;

/// Requests after which a pool of hello-worlds counts as one of short scripts.
const LESSONS: usize = 300;

const UPLOAD_BYTES: usize = 300_000;

fn site() -> TempDir {
    let root = document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("sleep.php", "<?php usleep((int) $_GET['ms'] * 1000); echo 'slept';"),
        WAIT_PAGE,
        ("length.php", "<?php echo strlen(file_get_contents('php://input'));"),
        ("mark.php", "<?php error_log('the left request was executed');"),
        ("detach.php", "<?php usleep(5000); fastcgi_finish_request(); usleep(random_int(0, 200));"),
        (
            "stubborn.php",
            "<?php ignore_user_abort(true);
             for ($i = 0; $i < 40; $i++) { echo str_repeat('x', 65536); usleep(20000); }
             file_put_contents(__DIR__ . '/finished', 'yes');",
        ),
        (
            "forks.php",
            "<?php $child = pcntl_fork();
             if ($child === 0) { echo 'from the child'; exit; }
             pcntl_waitpid($child, $status); echo 'from the parent';",
        ),
        ("folder/index.php", "<?php echo 'folder';"),
        (
            "until.php",
            "<?php echo 'waiting'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/' . $_GET['file'])) { clearstatcache(); usleep(2000);
             }",
        ),
        (
            "note.php",
            "<?php file_put_contents(__DIR__ . '/notes', $_GET['name'], FILE_APPEND); \
             echo 'noted';",
        ),
    ]);
    give_to_web_user(root.path());
    root
}

fn teach(address: SocketAddr) {
    let mut connection = Connection::open(address);
    for _ in 0..LESSONS {
        let answer = connection.ask(&Request::get("/hello.php")).expect("an answer");
        assert_eq!(answer.text(), "hello");
    }
}

fn taught(setup: Setup) -> Server {
    let server = setup.start();
    teach(server.address());
    server
}

#[test]
fn an_upload_that_is_moved_to_another_worker_arrives_whole() {
    let root = site();
    let server = taught(Setup::new(root.path()).workers(2));
    let body = vec![b'x'; UPLOAD_BYTES];
    for _ in 0..5 {
        let mut slow = send(&server, &Request::get("/sleep.php?ms=300"));
        let upload = Request::post("/length.php", "application/octet-stream", &body);
        assert_eq!(http::ask(server.address(), &upload).text(), UPLOAD_BYTES.to_string());
        assert_eq!(slow.read_response(false).expect("an answer").text(), "slept");
        teach(server.address());
    }
}

#[test]
fn a_request_behind_a_long_script_is_fetched_by_an_idle_worker() {
    let root = site();
    let server = taught(Setup::new(root.path()).workers(2));
    let _busy = occupy(&server);
    for _ in 0..20 {
        assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    }
    let_go(root.path());
}

/// How many requests have found every worker busy, and how many have had one.
fn counts(server: &Server) -> (u64, u64) {
    let told = http::get(server.address(), "/status?json").json();
    let count = |name: &str| told[name].as_u64().expect("a number");
    (count("max children reached"), count("accepted conn"))
}

fn wait_for_waiting(server: &Server, count: u64) {
    wait::until_true(&format!("{count} to wait in the queue"), || counts(server).0 == count);
}

#[test]
fn who_waits_behind_a_long_script_is_not_passed_by_those_that_come_later() {
    let root = site();
    let setup = Setup::new(root.path()).pool("status_path = \"/status\"");
    let server = taught(setup.workers(2));
    let before = counts(&server).1;
    let mut long = ["a", "b"].map(|file| {
        let request = Request::get(&format!("/until.php?file={file}"));
        let mut long = send(&server, &request);
        assert_eq!(long.read_head().expect("an answer begins").status, 200);
        long
    });
    // These two are put behind the scripts, and come back into the queue; the third joins it.
    let note = |name: &str| send(&server, &Request::get(&format!("/note.php?name={name}")));
    let mut notes = vec![note("x")];
    wait_for_waiting(&server, 1);
    notes.push(note("y"));
    wait_for_waiting(&server, 2);
    notes.push(note("z"));
    wait_for_waiting(&server, 3);
    std::fs::write(root.path().join("b"), "").expect("a file can be written");
    for note in &mut notes {
        let answer = note.read_response(false).expect("an answer");
        assert_eq!(answer.text(), "noted");
    }
    let noted = std::fs::read_to_string(root.path().join("notes")).expect("notes");
    assert!(["xyz", "yxz"].contains(&noted.as_str()), "{noted}");
    assert_eq!(counts(&server).1, before + 5, "each counts once");
    std::fs::write(root.path().join("a"), "").expect("a file can be written");
    long[0].read_chunk().expect("the script ends");
    server.stop();
}

#[test]
fn a_client_that_leaves_while_its_request_is_behind_another_is_not_served() {
    let root = site();
    let server = taught(Setup::new(root.path()).workers(1).top("front_threads = 1"));
    let mut leavers: Vec<Connection> = (0..5)
        .map(|_| {
            let mut leaver = send(&server, &Request::get("/hello.php"));
            leaver.read_response(false).expect("an answer");
            leaver
        })
        .collect();
    let _busy = occupy(&server);
    for leaver in &mut leavers {
        let request = Request::get("/mark.php").to_bytes();
        leaver.send(&request).expect("the server takes a request");
    }
    drop(leavers);
    // One thread sees its clients' news in order: when it answers this, it has seen them leave.
    assert_eq!(http::get(server.address(), "/folder").status, 301);
    let mut patient = send(&server, &Request::get("/hello.php"));
    let_go(root.path());
    assert_eq!(patient.read_response(false).expect("an answer").text(), "hello");
    let log = server.log_text();
    assert!(!log.contains("the left request was executed"), "{log}");
}

#[test]
fn time_spent_behind_another_script_is_not_the_scripts_own() {
    let root = site();
    let setup = Setup::new(root.path()).workers(1).pool("request_terminate_timeout = \"6s\"");
    let server = taught(setup);
    let mut first = send(&server, &Request::get("/sleep.php?ms=4000"));
    let mut second = send(&server, &Request::get("/sleep.php?ms=4000"));
    for answer in [&mut first, &mut second] {
        assert_eq!(answer.read_response(false).expect("an answer").text(), "slept");
    }
}

#[test]
fn the_queue_time_out_holds_behind_a_long_script_too() {
    let root = site();
    let setup = Setup::new(root.path()).workers(1).pool("request_queue_timeout = \"500ms\"");
    let server = taught(setup);
    let busy = occupy(&server);
    let refused = http::get(server.address(), "/hello.php");
    assert_eq!(refused.status, 503);
    assert!(refused.header("Retry-After").is_some());
    let_go(root.path());
    drop(busy);
    wait::until_true("hello.php to be answered again", || {
        http::get(server.address(), "/hello.php").status == 200
    });
}

#[test]
fn nobody_sleeps_through_an_answer_while_scripts_outlive_theirs() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).top("front_threads = 1").start();
    for _ in 0..60 {
        let mut slow = send(&server, &Request::get("/sleep.php?ms=30"));
        assert_eq!(http::get(server.address(), "/detach.php").status, 200);
        assert_eq!(slow.read_response(false).expect("an answer").text(), "slept");
    }
}

#[test]
fn a_script_that_ignores_aborts_outlives_the_front_that_asked_for_it() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    let mut reader = send(&server, &Request::get("/stubborn.php"));
    reader.read_head().expect("the answer begins");
    let front = server.front().expect("a front");
    front.signal(maitred_tests::processes::Signal::KILL);
    wait::until_true("the script to finish", || root.path().join("finished").exists());
    let log = server.log_text();
    assert!(!log.contains("broke the rules"), "{log}");
    wait::until_true("hello.php to be answered", || {
        http::try_ask(server.address(), &Request::get("/hello.php"))
            .is_ok_and(|answer| answer.status == 200)
    });
}

#[test]
fn what_a_forked_child_of_a_script_says_is_not_in_the_answer() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    for _ in 0..5 {
        assert_eq!(http::get(server.address(), "/forks.php").text(), "from the parent");
    }
    server.wait_for_full_strength(1, wait::DEADLINE);
}

#[test]
fn a_body_after_a_redirect_is_not_read_as_a_request() {
    let root = site();
    let server = Setup::new(root.path()).start();
    let smuggled = Request::get("/hello.php").to_bytes();
    let mut connection = Connection::open(server.address());
    let head = format!(
        "POST /folder HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        smuggled.len()
    );
    connection.send(head.as_bytes()).expect("the server takes a head");
    assert_eq!(connection.read_response(false).expect("an answer").status, 301);
    // The server may have hung up already, and is right to.
    let _ = connection.send(&smuggled);
    let rest = connection.read_to_end();
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}
