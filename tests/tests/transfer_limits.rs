//! Connections to upstream servers and large files have a part of the descriptors, however many
//! streams a client has over HTTP/2.

use std::io::Read;
use std::net::SocketAddr;

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::http2::{Connection, INITIAL_WINDOW_SIZE, SETTINGS};
use maitred_tests::odd::Odd;
use maitred_tests::ports::free_address;
use maitred_tests::server::{Server, Setup, document_root, write_file};
use maitred_tests::wait;
use tempfile::TempDir;

/// Streams of a connection, and connections: more than the server may have open files.
const STREAMS: u32 = 100;
const CONNECTIONS: u32 = 7;

/// Bytes of a file that is too large to be held in memory.
const LARGE_BYTES: usize = 70 * 1024;

fn site() -> TempDir {
    document_root(&[("hello.txt", "hello, file"), ("hello.php", "<?php echo 'hello';")])
}

fn serve(root: &TempDir, change: impl Fn(Setup) -> Setup) -> (Server, SocketAddr) {
    let admin = free_address();
    let setup = Setup::new(root.path())
        .under(&["prlimit", "--nofile=600:600"])
        .top(&format!("admin = \"{admin}\""))
        .site("front_controller = \"\"");
    (change(setup).start(), admin)
}

/// A server that takes a request, and says nothing until the front closes the connection.
fn silent() -> Odd {
    Odd::start(|mut stream| while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {})
}

/// Asks for many paths on many streams, and takes no byte of a response's body.
fn ask_for(server: &Server, path: impl Fn(u32) -> String) -> Vec<Connection> {
    let connections = (0..CONNECTIONS).map(|connection| {
        let mut client = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
        client.wait_for("the server's settings", |frame| frame.kind == SETTINGS);
        for number in 0..STREAMS {
            client.ask(2 * number + 1, &path(connection * STREAMS + number));
        }
        client
    });
    connections.collect()
}

fn assert_others_are_served(server: &Server, admin: SocketAddr) {
    assert_eq!(http::get(server.address(), "/hello.txt").text(), "hello, file");
    assert_eq!(http::get(admin, "/ready").status, 200);
}

fn assert_full(server: &Server, path: &str) {
    let full = http::get(server.address(), path);
    assert_eq!((full.status, full.header("Retry-After").is_some()), (503, true));
}

#[test]
fn streams_that_wait_for_an_upstream_server_leave_descriptors_to_others() {
    let (root, upstream) = (site(), silent());
    let to = upstream.address();
    let proxy = format!("proxy = [{{ path = \"/app/*\", to = \"http://{to}\" }}]");
    let (server, admin) = serve(&root, |setup| setup.site(&proxy));
    let clients = ask_for(&server, |number| format!("/app/{number}"));
    server.expect_log(0, "raise the limit of open files");
    assert_others_are_served(&server, admin);
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    assert_full(&server, "/app/next");
    drop(clients);
    server.stop();
}

#[test]
fn streams_that_wait_for_a_fastcgi_server_leave_descriptors_to_others() {
    let (root, upstream) = (site(), silent());
    let (server, admin) = serve(&root, |setup| setup.upstream(&upstream.address().to_string()));
    let clients = ask_for(&server, |number| format!("/hello.php?{number}"));
    server.expect_log(0, "Too many connections to the upstream server are open.");
    assert_others_are_served(&server, admin);
    assert_full(&server, "/hello.php");
    drop(clients);
    server.stop();
}

#[test]
fn large_files_that_clients_do_not_read_leave_descriptors_to_others() {
    let root = site();
    for number in 0..=CONNECTIONS * STREAMS {
        write_file(root.path(), &format!("{number}.bin"), &[b'x'; LARGE_BYTES]);
    }
    let (server, admin) = serve(&root, |setup| setup);
    let clients = ask_for(&server, |number| format!("/{number}.bin"));
    server.expect_log(0, "raise the limit on open files");
    assert_others_are_served(&server, admin);
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let next = format!("/{}.bin", CONNECTIONS * STREAMS);
    assert_full(&server, &next);
    drop(clients);
    wait::until_true("descriptors to be free", || http::get(server.address(), &next).status == 200);
    server.stop();
}
