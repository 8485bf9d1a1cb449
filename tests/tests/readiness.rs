//! Whether a node is ready for a load balancer: `/ready`, `/startup` and `/live` of the admin
//! listener, and `maitred wait --ready`.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use maitred_tests::http::{self, Response};
use maitred_tests::outside::{command, let_go, occupy, site, text};
use maitred_tests::ports::free_address;
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, public_folder};
use maitred_tests::{Target, booted, maitred_program, wait};
use serde_json::Value;

fn setup(root: &Path, admin: SocketAddr) -> Setup {
    Setup::new(root).top(&format!("admin = \"{admin}\"")).workers(1)
}

/// The status and the reason of a page.
fn page(admin: SocketAddr, path: &str) -> (u16, Value) {
    let response: Response = http::get(admin, path);
    (response.status, response.json())
}

fn wait_for_reason(admin: SocketAddr, reason: &str) {
    wait::until_true(reason, || {
        let (status, body) = page(admin, "/ready");
        assert_eq!(status == 200, body["ready"] == true, "{body}");
        body["reason"] == reason && status == 503
    });
}

fn wait_until_ready(admin: SocketAddr) {
    wait::until_true("the node to be ready", || page(admin, "/ready").0 == 200);
}

#[test]
fn a_node_is_ready_once_it_serves_and_not_while_it_stops() {
    let root = site();
    let admin = free_address();
    let mut server = setup(root.path(), admin).top("stop_delay = \"1h\"").start();
    assert!(command(&server, &["wait", "--ready", "--timeout", "10"]).status.success());
    let (status, body) = page(admin, "/ready");
    assert_eq!((status, &body["pools"]["www"]), (200, &"serving".into()), "{body}");
    assert_eq!(
        page(admin, "/startup"),
        (200, serde_json::json!({"started": true, "reason": null}))
    );
    assert_eq!(page(admin, "/live"), (200, serde_json::json!({"live": true})));
    server.processes();
    server.signal(Signal::TERM);
    wait_for_reason(admin, "the server stops");
    assert_eq!(page(admin, "/live").0, 200);
    let waited = command(&server, &["wait", "--ready", "--timeout", "0"]);
    assert_eq!(waited.status.code(), Some(1));
    let said = text(&waited.stderr);
    assert!(said.contains("not ready after 0 s: the server stops"), "{said}");
    server.signal(Signal::INT);
    wait::until_true("the server to end", || {
        server.signal(Signal::INT);
        !server.supervisor().is_running()
    });
    assert!(server.wait_for_end().success());
    server.assert_nothing_left();
}

#[test]
fn a_node_whose_only_pool_lost_its_workers_is_not_ready_until_one_has_booted() {
    let admin = free_address();
    let boot = "<?php
        if (file_exists(__DIR__ . '/broken')) { exit(1); }
        while (frankenphp_handle_request(function () { echo 'hello'; })) {}";
    let (root, setup) = booted::worker(&[("index.php", boot)]);
    let server = setup.top(&format!("admin = \"{admin}\"")).start();
    wait_until_ready(admin);
    fs::write(root.path().join("broken"), "").expect("a file can be written");
    server.workers()[0].signal(Signal::KILL);
    wait_for_reason(admin, "no pool has a worker");
    assert_eq!((page(admin, "/live").0, page(admin, "/startup").0), (200, 200));
    fs::remove_file(root.path().join("broken")).expect("the file can be removed");
    wait_until_ready(admin);
    assert_eq!(http::get(server.address(), "/").text(), "hello");
}

#[test]
fn a_pool_that_sheds_load_makes_the_node_unready_where_that_is_configured() {
    let root = site();
    let admin = free_address();
    let server =
        setup(root.path(), admin).top("ready_sheds = true").pool("request_queue_length = 0");
    let server = server.start();
    wait_until_ready(admin);
    let busy = occupy(&server);
    assert_eq!(http::get(server.address(), "/hello.php").status, 503);
    wait_for_reason(admin, "pool www sheds load");
    let_go(&root);
    drop(busy);
    wait_until_ready(admin);
    server.configure(&setup(root.path(), admin).pool("request_queue_length = 0"));
    server.reload();
    fs::remove_file(root.path().join("go")).ok();
    let _busy = occupy(&server);
    assert_eq!(http::get(server.address(), "/hello.php").status, 503);
    assert_eq!(page(admin, "/ready").0, 200);
    let_go(&root);
}

#[test]
fn a_unix_socket_has_the_same_pages_and_wait_gives_up_without_a_server() {
    let root = site();
    let folder = public_folder();
    let socket = folder.path().join("http.sock");
    let server = Setup::new(root.path()).top(&format!("admin = \"unix:{}\"", socket.display()));
    let server: Server = server.start();
    let mut stream = UnixStream::connect(&socket).expect("the socket accepts");
    let request = b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("the server takes a request");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(response.contains("{\"ready\":true,"), "{response}");
    server.stop();
    let socket = folder.path().join("none.sock");
    let mut wait = Command::new(maitred_program());
    wait.args(["wait", "--ready", "--timeout", "0", "--admin-socket"]).arg(&socket);
    let waited = wait.output().expect("maitred can be started");
    assert_eq!(waited.status.code(), Some(1));
    assert!(text(&waited.stderr).contains("none.sock"), "{}", text(&waited.stderr));
    let usage = Command::new(maitred_program()).arg("wait").output().expect("maitred runs");
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn connections_that_take_all_places_of_the_admin_listener_make_room_for_the_next() {
    let (root, admin) = (site(), free_address());
    let server = setup(root.path(), admin).start();
    wait_until_ready(admin);
    let open = || std::net::TcpStream::connect(admin).expect("the listener accepts");
    let silent: Vec<_> = (0..64).map(|_| open()).collect();
    assert_eq!(page(admin, "/ready").0, 200);
    let halves: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = open();
            stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n").expect("it is sent");
            stream
        })
        .collect();
    assert_eq!(page(admin, "/ready").0, 200);
    // These get more responses than a socket takes, and read none.
    let deaf: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = open();
            rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096)
                .expect("a size can be set");
            let asks = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
            // The connection may be closed for one of the next.
            let _ = stream.write_all(asks.as_bytes());
            stream
        })
        .collect();
    assert_eq!(page(admin, "/ready").0, 200);
    drop((silent, halves, deaf));
    server.stop();
}
