//! What the front holds in memory for clients that do not take their answers, of all of them
//! together.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use maitred_tests::Target;
use maitred_tests::http::{Connection, Request};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::wait;

/// Clients that do not read.
const CLIENTS: usize = 200;
/// Most that their answers may take, in bytes: 64 MiB together, 64 KiB of each, and what the heap
/// has beside.
const MOST: u64 = 140 << 20;

/// A page that no socket's buffers hold.
const LARGE: &str = "<?php for ($i = 0; $i < 40; $i++) { echo str_repeat('x', 100_000); flush(); }";

/// The most memory that the front has had, in bytes.
fn height(server: &Server) -> u64 {
    let front = server.front().expect("the front runs");
    let path = format!("/proc/{}/status", front.pid);
    let text = fs::read_to_string(path).expect("its status can be read");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") * 1024
}

/// Asks for the page, and does not read it.
fn deaf(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("the server accepts");
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("a size can be set");
    let asked = stream.write_all(&Request::get("/large.php").to_bytes());
    asked.expect("the server takes a request");
    stream
}

#[test]
fn answers_that_nobody_takes_are_bounded_together() {
    let root = document_root(&[("large.php", LARGE), ("hello.php", "<?php echo 'hello';")]);
    let server = Setup::new(root.path()).workers(2).start();
    let before = height(&server);
    let clients: Vec<_> = (0..CLIENTS).map(|_| deaf(&server)).collect();
    for client in &clients {
        client.set_read_timeout(Some(wait::DEADLINE)).expect("a time-out can be set");
        client.peek(&mut [0]).expect("an answer begins");
    }
    // An answer comes after a worker has become free, so after all that scripts have said was
    // taken.
    for _ in 0..4 {
        let answer = Connection::open(server.address()).ask(&Request::get("/hello.php"));
        assert_eq!(answer.expect("an answer comes").text(), "hello");
    }
    let after = height(&server);
    println!("{} MiB became {} MiB", before >> 20, after >> 20);
    assert!(after <= before + MOST, "{} MiB became {}", before >> 20, after >> 20);
    drop(clients);
    server.stop();
}
