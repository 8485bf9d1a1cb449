//! A server that is to stop serves its clients for `stop_delay`, and has them close their
//! connections.

use std::cell::{Cell, RefCell};
use std::fs;
use std::time::{Duration, Instant};

use maitred_tests::Target;
use maitred_tests::http::{Connection, Request};
use maitred_tests::http2::{Connection as Http2, DATA, GOAWAY};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::wait;
use tempfile::TempDir;

/// No error (RFC 9113 §7).
const NO_ERROR: u32 = 0;

fn site() -> TempDir {
    document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        (
            "wait.php",
            "<?php echo 'first'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
             echo 'second';",
        ),
    ])
}

/// A server whose delay outlasts every test that ends it.
fn delayed(root: &TempDir) -> Server {
    Setup::new(root.path()).top("stop_delay = \"1h\"").start()
}

/// Waits until the server has begun to stop: responses say that the connection is closed.
fn wait_for_delay(server: &Server) {
    wait::until_true("a response that closes its connection", || {
        let mut client = Connection::open(server.address());
        let response = client.ask(&Request::get("/hello.php")).expect("a response");
        assert_eq!(response.text(), "hello", "clients are served");
        response.header("connection") == Some("close")
    });
}

#[test]
fn a_server_that_stops_later_serves_php_and_has_clients_close_their_connections() {
    let root = site();
    let mut server = delayed(&root);
    let mut kept = Connection::open(server.address());
    let mut idle = Connection::open(server.address());
    for client in [&mut kept, &mut idle] {
        let response = client.ask(&Request::get("/hello.php")).expect("a response");
        assert_eq!(response.header("connection"), None);
    }
    server.processes();
    server.signal(Signal::TERM);
    server.expect_log(0, "clients are served for stop_delay = 3600 s more");
    wait_for_delay(&server);
    let last = kept.ask(&Request::get("/hello.php")).expect("a connection that was idle serves");
    assert_eq!((last.text().as_str(), last.header("connection")), ("hello", Some("close")));
    assert!(kept.is_closed_by_server());
    // Workers that end are replaced, and so is the front.
    server.workers()[0].signal(Signal::KILL);
    wait_for_delay(&server);
    server.front().expect("a front").signal(Signal::KILL);
    server.expect_log(0, "front 2 accepts clients");
    wait_for_delay(&server);
    let mut running = Connection::open(server.address());
    running.send(&Request::get("/wait.php").to_bytes()).expect("a request is taken");
    running.read_head().expect("the head comes at once");
    server.signal(Signal::TERM);
    wait::until_true("the server to take no more connections", || {
        Connection::try_open(server.address()).is_err()
    });
    fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!(running.read_chunk().expect("a chunk"), b"first");
    assert_eq!(running.read_chunk().expect("the rest"), b"second");
    assert!(server.wait_for_end().success());
    server.assert_nothing_left();
}

#[test]
fn http2_clients_get_goaway_and_new_ones_one_more_request() {
    let root = site();
    let server = delayed(&root);
    let mut old = Http2::open(server.address(), &[]);
    old.ask(1, "/wait.php");
    old.wait_for("the beginning of a response", |frame| frame.kind == DATA);
    let mut silent = Http2::open(server.address(), &[]);
    server.signal(Signal::TERM);
    let goes = old.wait_for("word that it goes", |frame| frame.kind == GOAWAY);
    assert_eq!(goes.and_then(|frame| frame.error_code()), Some(NO_ERROR));
    for client in [&mut silent, &mut Http2::open(server.address(), &[])] {
        client.ask(1, "/hello.php");
        // The two come in any order.
        let (text, goes) = (RefCell::new(Vec::new()), Cell::new(None));
        let end = client.wait_for("the end", |frame| {
            match frame.kind {
                DATA => text.borrow_mut().extend(frame.payload.iter().copied()),
                GOAWAY => goes.set(frame.error_code()),
                _ => {}
            }
            false
        });
        assert_eq!(end, None, "the connection is closed");
        assert_eq!((text.into_inner(), goes.get()), (b"hello".to_vec(), Some(NO_ERROR)));
    }
    fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!(old.text(1), "firstsecond");
}

#[test]
fn the_delay_ends_by_itself_and_by_a_second_signal_or_command() {
    let root = site();
    let delay = Duration::from_secs(1);
    let mut server = Setup::new(root.path()).top("stop_delay = 1").start();
    server.processes();
    let asked = Instant::now();
    server.signal(Signal::QUIT);
    assert!(server.wait_for_end().success());
    assert!(asked.elapsed() >= delay);
    server.assert_nothing_left();

    let mut server = delayed(&root);
    server.processes();
    server.signal(Signal::TERM);
    wait_for_delay(&server);
    // Signals of one breath are one.
    let supervisor = server.supervisor();
    wait::until_true("the server to end", || {
        supervisor.signal(Signal::INT);
        !supervisor.is_running()
    });
    assert!(server.wait_for_end().success());
    server.assert_nothing_left();
}

#[test]
fn a_person_at_a_terminal_waits_for_no_delay() {
    let root = site();
    let mut server = delayed(&root);
    server.processes();
    server.signal(Signal::INT);
    assert!(server.wait_for_end().success());
    server.assert_nothing_left();
}
