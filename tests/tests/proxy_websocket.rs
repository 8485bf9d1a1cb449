//! WebSockets through the server: bytes both ways for as long as either side wants, and no longer.

use std::process::Command;
use std::time::{Duration, Instant};

use maitred_tests::http::{self, Request};
use maitred_tests::node::{self, Node};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::tls::Authority;
use maitred_tests::websocket::{ACCEPT, Socket, handshake};
use maitred_tests::{Target, ports, wait};
use tempfile::TempDir;

fn site() -> TempDir {
    document_root(&[("index.php", "<?php echo 'php';")])
}

fn setup(root: &TempDir, node: &Node, fields: &str) -> Setup {
    let url = node.url();
    let rule = format!("proxy = {{ path = \"/app/*\", to = \"{url}\"{fields} }}");
    Setup::new(root.path()).site(&rule)
}

fn serve(root: &TempDir, node: &Node, fields: &str) -> Server {
    setup(root, node, fields).start()
}

fn client(arguments: &[&str]) -> String {
    let mut client: Command = node::command("client.js");
    let output = client.args(arguments).output().expect("node is installed");
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}

/// Established connections of a process.
fn sockets(process: &Process) -> usize {
    let folder = format!("/proc/{}/fd", process.pid);
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

#[test]
fn messages_go_both_ways_and_its_end_is_told() {
    let (root, node) = (site(), Node::start());
    let server = serve(&root, &node, "");
    let url = format!("ws://{}/app/ws", server.address());
    assert_eq!(client(&[&url]), "3 messages, 1000 done\n");
    let refused = format!("ws://{}/app/refused", server.address());
    assert_eq!(client(&[&refused]), "Unexpected server response: 401\n0 messages, 1006 \n");
    let elsewhere = format!("ws://{}/chat", server.address());
    assert_eq!(client(&[&elsewhere]), "Unexpected server response: 501\n0 messages, 1006 \n");
}

#[test]
fn over_tls_it_is_the_same() {
    let (root, node) = (site(), Node::start());
    let authority = Authority::new("authority");
    let certificate = authority.issue("localhost", &["localhost"]);
    let address = ports::free_address();
    let line = format!("certificates = {}", certificate.toml());
    let server = setup(&root, &node, "").tls(address, &[line]).start();
    let url = format!("wss://localhost:{}/app/ws", address.port());
    let ca = authority.ca();
    assert_eq!(client(&[&url, ca.to_str().unwrap()]), "3 messages, 1000 done\n");
    server.stop();
}

#[test]
fn what_comes_with_the_handshake_is_not_lost_on_either_side() {
    let (root, node) = (site(), Node::start());
    let server = serve(&root, &node, "");
    let (answer, mut socket) = Socket::open(server.address(), "/app/raw");
    assert_eq!(answer.status, 101);
    assert_eq!(answer.header("Sec-WebSocket-Accept"), Some(ACCEPT));
    assert_eq!(answer.header("Upgrade"), Some("websocket"));
    assert_eq!(answer.header("Connection"), Some("Upgrade"));
    assert_eq!(answer.header("Content-Length"), None);
    assert_eq!(socket.read(6), "hello ");
    socket.send(b"back");
    assert_eq!(socket.read(4), "back");
    // The client's first bytes come in the same packet as its handshake.
    let mut bytes = handshake("/app/raw").to_bytes();
    bytes.extend(b"early");
    let mut early = http::Connection::open(server.address());
    early.send(&bytes).unwrap();
    assert_eq!(early.read_head().unwrap().status, 101);
    early.finish_sending();
    assert_eq!(early.read_to_end(), b"hello earlygoodbye");
}

#[test]
fn a_side_that_is_done_sending_still_hears_the_other() {
    let (root, node) = (site(), Node::start());
    let server = serve(&root, &node, "");
    let (_, mut socket) = Socket::open(server.address(), "/app/raw");
    socket.send(b"last words");
    socket.finish_sending();
    assert_eq!(socket.read_to_end().unwrap(), "hello last wordsgoodbye");
    wait::until_true("nothing to be left of it", || {
        let front = server.front().expect("a front runs");
        let (_, mut other) = Socket::open(server.address(), "/app/raw");
        let open = sockets(&front);
        other.finish_sending();
        other.read_to_end().is_ok() && sockets(&front) < open
    });
}

#[test]
fn one_that_is_quiet_for_too_long_is_ended_and_a_word_keeps_it() {
    let (root, node) = (site(), Node::start());
    let server = serve(&root, &node, ", read_timeout = \"4s\"");
    let (_, mut socket) = Socket::open(server.address(), "/app/ws");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        assert_eq!(socket.exchange("ping"), "ping");
        wait::poll(Duration::from_millis(500), || None::<()>);
    }
    assert_eq!(socket.read_to_end().unwrap(), "", "the end comes by itself");
}

#[test]
fn a_reload_keeps_it_and_so_does_an_upgrade() {
    let (root, node) = (site(), Node::start());
    let server = serve(&root, &node, "");
    let (_, mut socket) = Socket::open(server.address(), "/app/ws");
    assert_eq!(socket.exchange("one"), "one");
    server.configure(&Setup::new(root.path()).site("max_body_size = \"1M\""));
    assert!(server.reload().contains("reloaded: "));
    assert_eq!(socket.exchange("two"), "two");
    let answer = http::ask(server.address(), &handshake("/app/ws"));
    assert_eq!(answer.status, 501, "new ones find no server any more");
    let old = server.front().expect("a front runs");
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to");
    assert_eq!(socket.exchange("three"), "three");
    assert!(old.is_running());
    assert_eq!(http::get(server.address(), "/").text(), "php");
    drop(socket);
    wait::until_true("the old front to end with its last connection", || !old.is_running());
}

#[test]
fn a_stop_ends_it_soon() {
    let (root, node) = (site(), Node::start());
    let server = serve(&root, &node, ", read_timeout = \"1h\"");
    let (_, mut socket) = Socket::open(server.address(), "/app/ws");
    assert_eq!(socket.exchange("one"), "one");
    let (_, mut raw) = Socket::open(server.address(), "/app/raw");
    assert_eq!(raw.read(6), "hello ");
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < wait::DEADLINE, "{:?}", begun.elapsed());
    assert!(socket.read_to_end().is_ok());
    assert!(raw.read_to_end().is_ok());
}

#[test]
fn the_log_has_a_line_with_what_went_over_it() {
    let (root, node) = (site(), Node::start());
    let folder = maitred_tests::server::public_folder();
    let log = folder.path().join("access.log");
    let setup = setup(&root, &node, "").top(&format!("access_log = {log:?}"));
    let server = setup.start();
    let (_, mut socket) = Socket::open(server.address(), "/app/raw");
    socket.send(&[b'x'; 1000]);
    socket.finish_sending();
    assert_eq!(socket.read_to_end().unwrap().len(), 6 + 1000 + 7);
    let text = wait::until("a line", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("/app/raw").then_some(text)
    });
    assert!(text.contains("\"GET /app/raw HTTP/1.1\" 101 1013 "), "{text}");
    let ordinary = http::ask(server.address(), &Request::get("/app/status?is=200"));
    assert_eq!(ordinary.status, 200);
}
