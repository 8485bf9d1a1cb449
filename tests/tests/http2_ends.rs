//! The regular ends of HTTP/2 connections: those that are one too many, and those that
//! another program takes over from. How idle ones do is in slow_clients.rs.

use std::io::Read;

use maitred_tests::http::{self, Connection as Http1};
use maitred_tests::http2::{Connection, DATA, GOAWAY};
use maitred_tests::outside::succeeded;
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::tls::{Secure, served_with};
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// Open files of the server in the test about them, and the connections that fit: 512 are kept
/// back.
const OPEN_FILES: usize = 600;
const FITTING: usize = OPEN_FILES - 512;

/// No error (RFC 9113 §7).
const NO_ERROR: u32 = 0;

fn site() -> TempDir {
    document_root(&[
        ("hello.txt", "hello, file"),
        ("hello.php", "<?php echo 'hello';"),
        (
            "wait.php",
            "<?php echo 'waiting'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
             echo ' over';",
        ),
    ])
}

#[test]
fn where_connections_run_short_an_idle_one_is_told_to_go_and_makes_room() {
    let root = site();
    let limit = format!("--nofile={OPEN_FILES}:{OPEN_FILES}");
    let server = Setup::new(root.path()).under(&["prlimit", &limit]).start();
    let mut idle = Connection::open(server.address(), &[]);
    idle.ask(1, "/hello.txt");
    assert_eq!(idle.text(1), "hello, file");
    let mut busy = Connection::open(server.address(), &[]);
    busy.ask(1, "/wait.php");
    busy.wait_for("the beginning of a response", |frame| frame.kind == DATA);
    // A part of a request is none that is idle.
    let others: Vec<_> = (1..FITTING)
        .map(|_| {
            let mut other = Http1::open(server.address());
            let sent = other.send(b"GET /hello.txt HTTP/1.1\r\n");
            sent.expect("the server takes half a head");
            other
        })
        .collect();
    let goes = idle.wait_for("word that it goes", |frame| frame.kind == GOAWAY);
    assert_eq!(goes.and_then(|frame| frame.error_code()), Some(NO_ERROR));
    assert_eq!(idle.wait_for("the end", |_| false), None, "the connection is closed");
    std::fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!(busy.text(1), "waiting over");
    drop(others);
}

#[test]
fn a_client_that_agrees_on_http2_and_sends_nothing_makes_room_for_others() {
    let limit = format!("--nofile={OPEN_FILES}:{OPEN_FILES}");
    let served = served_with(&[], |setup| setup.under(&["prlimit", &limit]));
    let silent: Vec<Secure> = (0..FITTING)
        .map(|_| {
            let mut client = Secure::connect(served.address, "h2", b"");
            // The settings of the server: it waits for those of the client.
            client.output().read_exact(&mut [0]).expect("the server speaks first");
            client
        })
        .collect();
    let words = ["https://localhost/hello.txt", "--max-time", "50"];
    assert_eq!(succeeded(&served.curl(&words)), "Hello, world!");
    drop(silent);
    served.server.stop();
}

#[test]
fn an_upgrade_lets_open_streams_end_and_tells_their_connection_to_go() {
    let root = site();
    let server = Server::start(root.path());
    let mut client = Connection::open(server.address(), &[]);
    for stream in [1, 3] {
        client.ask(stream, "/wait.php");
        client.wait_for("the beginning of an answer", |frame| {
            frame.kind == DATA && frame.stream == stream
        });
    }
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    let goes = client.wait_for("word that it goes", |frame| frame.kind == GOAWAY);
    assert_eq!(goes.and_then(|frame| frame.error_code()), Some(NO_ERROR));
    server.expect_log(mark, "upgraded to maitred");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    std::fs::write(root.path().join("go"), "").expect("a file can be written");
    for stream in [1, 3] {
        assert_eq!(client.text(stream), "waiting over");
    }
    let end = client.wait_for("the end", |_| false);
    assert_eq!(end, None, "the connection is closed");
    wait::until_true("one front", || {
        let all = server.processes();
        let fronts = all.iter().filter(|one| one.title.starts_with("maitred: front"));
        fronts.count() == 1
    });
}
