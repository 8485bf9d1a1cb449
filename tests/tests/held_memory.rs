//! The memory of the front for all clients that do not read their responses.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use maitred_tests::Target;
use maitred_tests::http::{Connection, Request};
use maitred_tests::http2;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::wait;

/// Clients that do not read.
const CLIENTS: usize = 400;
/// Most memory for their responses in bytes: 24 MiB together, and for each client 8 KiB, its
/// connection and its stream.
const MOST: u64 = 64 << 20;
/// Most of it that stays when they have left, in bytes.
const MOST_AFTER: u64 = 20 << 20;

/// The setting of the window of a stream (RFC 9113 §6.5.2), and a window for the whole response.
const WINDOW: (u16, u32) = (4, 1 << 30);

/// A page that no socket's buffers hold.
const LARGE: &str = "<?php for ($i = 0; $i < 40; $i++) { echo str_repeat('x', 100_000); flush(); }";

/// A value in bytes of the front's `/proc/PID/status`.
fn memory(server: &Server, name: &str) -> u64 {
    let front = server.front().expect("the front runs");
    let path = format!("/proc/{}/status", front.pid);
    let text = fs::read_to_string(path).expect("its status can be read");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") * 1024
}

/// Sends the request, and does not read the response.
fn send_only(server: &Server, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("the server accepts");
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("a size can be set");
    stream.write_all(request).expect("the server takes a request");
    stream
}

/// The bytes that start HTTP/2 with a large window, and request the page.
fn http2_request() -> Vec<u8> {
    let setting = [&WINDOW.0.to_be_bytes()[..], &WINDOW.1.to_be_bytes()].concat();
    let window = http2::frame(http2::WINDOW_UPDATE, 0, 0, &WINDOW.1.to_be_bytes());
    let head = http2::get("/large.php");
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
    let server = Setup::new(root.path()).workers(2).start();
    let before = memory(&server, "VmRSS:");
    for request in [Request::get("/large.php").to_bytes(), http2_request()] {
        let clients: Vec<_> = (0..CLIENTS).map(|_| send_only(&server, &request)).collect();
        for client in &clients {
            client.set_read_timeout(Some(wait::DEADLINE)).expect("a timeout can be set");
            client.peek(&mut [0]).expect("a response begins");
        }
        // A response comes after a worker has become free, so after all output was taken.
        for _ in 0..4 {
            let response = Connection::open(server.address()).ask(&Request::get("/hello.php"));
            assert_eq!(response.expect("a response").text(), "hello");
        }
        let most = memory(&server, "VmHWM:");
        println!("{} MiB became {} MiB", before >> 20, most >> 20);
        assert!(most <= before + MOST, "{} MiB became {}", before >> 20, most >> 20);
        drop(clients);
        wait::until_true("the memory to be given back", || {
            memory(&server, "VmRSS:") <= before + MOST_AFTER
        });
    }
    server.stop();
}
