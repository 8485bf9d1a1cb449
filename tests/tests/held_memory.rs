//! The memory of the front for all clients that do not read their responses.

use std::io::{Read, Write};
use std::net::TcpStream;

use maitred_tests::Target;
use maitred_tests::http::{Connection, Request};
use maitred_tests::http2;
use maitred_tests::odd::Odd;
use maitred_tests::proxied;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::wait;

/// Clients that do not read.
const CLIENTS: usize = 400;
/// Most memory for their responses in bytes: 24 MiB together, and for each client 8 KiB, its
/// connection and its stream.
const MOST: u64 = 64 << 20;
/// Most memory for responses of upstream servers in bytes: each has pieces in the connection to its
/// server as well.
const MOST_OF_UPSTREAM: u64 = 96 << 20;
/// Most of it that stays when they have left, in bytes.
const MOST_AFTER: u64 = 20 << 20;

/// The setting of the window of a stream (RFC 9113 §6.5.2), and a window for the whole response.
const WINDOW: (u16, u32) = (4, 1 << 30);

/// A page that no socket's buffers hold.
const LARGE: &str = "<?php for ($i = 0; $i < 40; $i++) { echo str_repeat('x', 100_000); flush(); }";

/// Sends the request, and does not read the response. The socket buffers this many bytes.
fn send_only(server: &Server, request: &[u8], buffer: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("the server accepts");
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, buffer).expect("a size can be set");
    stream.write_all(request).expect("the server takes a request");
    stream
}

/// The bytes that start HTTP/2 with a large window, and request the page.
fn http2_request(path: &str) -> Vec<u8> {
    let setting = [&WINDOW.0.to_be_bytes()[..], &WINDOW.1.to_be_bytes()].concat();
    let window = http2::frame(http2::WINDOW_UPDATE, 0, 0, &WINDOW.1.to_be_bytes());
    let head = http2::get(path);
    let flags = http2::END_STREAM | http2::END_HEADERS;
    [
        http2::PREFACE,
        &http2::frame(http2::SETTINGS, 0, 0, &setting),
        &window,
        &http2::frame(http2::HEADERS, flags, 1, &head),
    ]
    .concat()
}

#[test]
fn responses_that_clients_do_not_read_share_a_limit_and_their_memory_is_given_back() {
    let root = document_root(&[("large.php", LARGE), ("hello.php", "<?php echo 'hello';")]);
    let patient = "request_queue_timeout = \"60s\"";
    let server = Setup::new(root.path()).workers(2).pool(patient).start();
    let front = server.front().expect("the front runs");
    let before = front.memory("VmRSS");
    for request in [Request::get("/large.php").to_bytes(), http2_request("/large.php")] {
        let clients: Vec<_> = (0..CLIENTS).map(|_| send_only(&server, &request, 4096)).collect();
        for client in &clients {
            client.set_read_timeout(Some(wait::DEADLINE)).expect("a timeout can be set");
            client.peek(&mut [0]).expect("a response begins");
        }
        // A response comes after a worker has become free, so after all output was taken.
        for _ in 0..4 {
            let response = Connection::open(server.address()).ask(&Request::get("/hello.php"));
            assert_eq!(response.expect("a response").text(), "hello");
        }
        let most = front.memory("VmHWM");
        println!("{} MiB became {} MiB", before >> 20, most >> 20);
        assert!(most <= before + MOST, "{} MiB became {}", before >> 20, most >> 20);
        drop(clients);
        wait::until_true("the memory to be given back", || {
            front.memory("VmRSS") <= before + MOST_AFTER
        });
    }
    server.stop();
}

#[test]
fn early_hints_that_clients_do_not_read_are_not_held() {
    const CLIENTS: usize = 40;
    /// Most memory for all of them, in bytes: for each, the buffers of two connections.
    const MOST: u64 = 20 << 20;
    let hints = format!("HTTP/1.1 103 Early Hints\r\nLink: </{}>\r\n\r\n", "x".repeat(100_000));
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    let response = hints.repeat(8) + head;
    let upstream = Odd::start(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(response.as_bytes());
        // Until the front closes the connection.
        let _ = stream.read(&mut [0; 4096]);
    });
    let root = proxied::site();
    let server = proxied::proxied(&root, &format!("http://{}", upstream.address()), "");
    let front = server.front().expect("the front runs");
    let before = front.memory("VmRSS");
    let request = Request::get("/app/").to_bytes();
    let clients: Vec<_> = (0..CLIENTS).map(|_| send_only(&server, &request, 4096)).collect();
    for client in &clients {
        client.set_read_timeout(Some(wait::DEADLINE)).expect("a timeout can be set");
        client.peek(&mut [0]).expect("a response begins");
    }
    let response = Connection::open(server.address()).ask(&Request::get("/"));
    assert_eq!(response.expect("a response").text(), "php");
    let most = front.memory("VmHWM");
    println!("{} MiB became {} MiB", before >> 20, most >> 20);
    assert!(most <= before + MOST, "{} MiB became {}", before >> 20, most >> 20);
    drop(clients);
    server.stop();
}

#[test]
fn header_sections_of_upstream_servers_are_given_back_before_their_bodies_are_read() {
    const STREAMS: u32 = 100;
    /// Most memory for all of them, in bytes: less than their header sections.
    const MOST: u64 = 24 << 20;
    let long = "x".repeat(100_000);
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n";
    let response = format!("{head}X-Long: {long}\r\n\r\nx");
    let upstream = Odd::start(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(response.as_bytes());
    });
    let root = proxied::site();
    let server = proxied::proxied(&root, &format!("http://{}", upstream.address()), "");
    let front = server.front().expect("the front runs");
    let before = front.memory("VmRSS");
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let settings = [(http2::INITIAL_WINDOW_SIZE, 0)];
            let mut client = http2::Connection::open(server.address(), &settings);
            for stream in (1..2 * STREAMS).step_by(2) {
                client.ask(stream, "/app/");
                let is_head = |frame: &http2::Frame| frame.kind == http2::HEADERS;
                client.wait_for("a header section", is_head);
            }
            client
        })
        .collect();
    let now = front.memory("VmRSS");
    println!("{} MiB became {} MiB", before >> 20, now >> 20);
    assert!(now <= before + MOST, "{} MiB became {}", before >> 20, now >> 20);
    drop(clients);
    server.stop();
}

#[test]
fn responses_of_upstream_servers_that_clients_stop_to_read_share_a_limit() {
    /// Bytes that a client reads before it stops: pieces of a fast response grow meanwhile.
    const READ: usize = 500_000;
    let upstream = Odd::start(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
        let piece = vec![b'x'; 1 << 20];
        while stream.write_all(&piece).is_ok() {}
    });
    let root = proxied::site();
    let url = format!("http://{}", upstream.address());
    let server = proxied::proxied(&root, &url, "");
    let front = server.front().expect("the front runs");
    let before = front.memory("VmRSS");
    for request in [Request::get("/app/").to_bytes(), http2_request("/app/")] {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut client = send_only(&server, &request, READ / 4);
                client.set_read_timeout(Some(wait::DEADLINE)).expect("a timeout can be set");
                client.read_exact(&mut vec![0; READ]).expect("a part of the response");
                client
            })
            .collect();
        let response = Connection::open(server.address()).ask(&Request::get("/"));
        assert_eq!(response.expect("a response").text(), "php");
        let most = front.memory("VmHWM");
        println!("{} MiB became {} MiB", before >> 20, most >> 20);
        assert!(most <= before + MOST_OF_UPSTREAM, "{} MiB became {}", before >> 20, most >> 20);
        drop(clients);
    }
    server.stop();
}
