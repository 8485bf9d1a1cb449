//! The memory of the front for header sections of responses that clients of HTTP/2 do not read.

use std::cell::Cell;

use maitred_tests::Target;
use maitred_tests::http::{Connection as Http1, Request};
use maitred_tests::http2::{
    Connection, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, RST_STREAM, frame, get,
};
use maitred_tests::server::{Server, Setup, document_root};
use tempfile::TempDir;

/// Connections whose clients do not read.
const CLIENTS: usize = 10;
/// Requests of each.
const STREAMS: u32 = 100;
/// Most memory for all of them, in bytes: 24 MiB for what they have not read, and for each client
/// its requests, its streams and the buffers of its connection.
const MOST: u64 = 64 << 20;

fn site() -> TempDir {
    document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("long.php", "<?php header('X-Long: ' . str_repeat('a', 250_000));"),
        ("many.php", "<?php for ($i = 0; $i < 2000; $i++) { header(\"X-$i: a\", false); }"),
        ("body.php", "<?php header('X-Long: ' . str_repeat('a', 250_000)); echo 'x';"),
    ])
}

fn assert_bounded(server: &Server, before: u64) {
    let most = server.front_peak();
    println!("{} MiB became {} MiB", before >> 20, most >> 20);
    assert!(most <= before + MOST, "{} MiB became {}", before >> 20, most >> 20);
}

/// A response comes after a worker has become free, so after all output was taken.
fn wait_for_workers(server: &Server) {
    for _ in 0..4 {
        let response = Http1::open(server.address()).ask(&Request::get("/hello.php"));
        assert_eq!(response.expect("a response").text(), "hello");
    }
}

/// Sends all requests of a client.
fn ask(client: &mut Connection, path: &str) {
    let asked = |number| frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * number, &get(path));
    client.send(&(0..STREAMS).flat_map(asked).collect::<Vec<_>>()).expect("they are taken");
}

#[test]
fn header_sections_that_clients_do_not_read_are_bounded_together() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    wait_for_workers(&server);
    let before = server.front_peak();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = Connection::open(server.address(), &[]);
        ask(&mut client, ["/long.php", "/many.php"][number % 2]);
        wait_for_workers(&server);
        clients.push(client);
    }
    assert_bounded(&server, before);
    server.expect_log(0, "the headers of responses that its connection has not read would exceed");
    // Another client, which reads, gets them.
    let mut other = Connection::open(server.address(), &[]);
    other.ask(1, "/body.php");
    assert_eq!(other.text(1), "x");
    drop(clients);
    server.stop();
}

#[test]
fn header_sections_are_given_back_before_their_bodies_are_read() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    wait_for_workers(&server);
    let before = server.front_peak();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
        ask(&mut client, "/body.php");
        let heads = Cell::new(0);
        client.wait_for("all heads", |frame| {
            heads.set(heads.get() + u32::from(matches!(frame.kind, HEADERS | RST_STREAM)));
            heads.get() == STREAMS
        });
        clients.push(client);
    }
    assert_bounded(&server, before);
    drop(clients);
    server.stop();
}
