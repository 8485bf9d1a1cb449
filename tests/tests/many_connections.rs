//! How many connections one address may have: a default for clients of the Internet, none for
//! proxies.

use maitred_tests::Target;
use maitred_tests::http::{Connection, Request};
use maitred_tests::server::{Server, Setup, document_root};

/// The default of `max_connections_per_address`.
const USUAL: usize = 256;

/// A server behind a proxy that speaks the PROXY protocol, with these lines beside.
fn behind_a_proxy(root: &std::path::Path, lines: &[&str]) -> Setup {
    let setup = Setup::new(root)
        .top("trusted_proxies = [\"127.0.0.1\", \"198.51.100.0/24\"]")
        .top("proxy_protocol = true");
    lines.iter().fold(setup, |setup, line| setup.top(line))
}

/// A connection of the client at this address.
fn of(server: &Server, client: &str) -> Connection {
    let mut connection = Connection::open(server.address());
    let header = format!("PROXY TCP4 {client} 10.0.0.1 4711 80\r\n");
    connection.send(header.as_bytes()).expect("it is taken");
    connection
}

/// Whether a request is answered over a connection.
fn is_served(connection: &mut Connection) -> bool {
    let request = Request::get("/hello.txt").to_bytes();
    let sent = connection.send(&request);
    sent.is_ok() && connection.read_response(false).is_ok_and(|answer| answer.text() == "hello")
}

#[test]
fn one_address_has_no_more_connections_than_the_default_says() {
    let root = document_root(&[("hello.txt", "hello")]);
    let server = behind_a_proxy(root.path(), &[]).start();
    let mut open: Vec<_> = (0..USUAL).map(|_| of(&server, "192.0.2.1")).collect();
    assert!(open.iter_mut().all(is_served));
    assert!(!is_served(&mut of(&server, "192.0.2.1")), "one too many");
    server.expect_log(0, "a connection from 192.0.2.1 is closed: 256 of this address are open");
    assert!(is_served(&mut of(&server, "192.0.2.2")), "another address");
    // One that ends makes room; the server sees it a moment later.
    drop(open.pop());
    maitred_tests::wait::until_true("room for another connection", || {
        is_served(&mut of(&server, "192.0.2.1"))
    });
    server.stop();
}

#[test]
fn proxies_and_private_networks_have_as_many_connections_as_they_like() {
    let root = document_root(&[("hello.txt", "hello")]);
    let lines = ["max_connections_per_address = 2"];
    let server = behind_a_proxy(root.path(), &lines).start();
    for client in ["127.0.0.1", "172.17.0.1", "198.51.100.7"] {
        let mut open: Vec<_> = (0..8).map(|_| of(&server, client)).collect();
        assert!(open.iter_mut().all(is_served), "{client}");
    }
    let mut open: Vec<_> = (0..2).map(|_| of(&server, "192.0.2.1")).collect();
    assert!(open.iter_mut().all(is_served));
    assert!(!is_served(&mut of(&server, "192.0.2.1")), "one too many");
    server.stop();
}

#[test]
fn a_reload_changes_how_many_connections_an_address_may_have() {
    let root = document_root(&[("hello.txt", "hello")]);
    let setup = |most| behind_a_proxy(root.path(), &[most]);
    let server = setup("max_connections_per_address = 1").start();
    let mut first = of(&server, "192.0.2.1");
    assert!(is_served(&mut first));
    assert!(!is_served(&mut of(&server, "192.0.2.1")));
    server.configure(&setup("max_connections_per_address = 0"));
    server.reload();
    let mut open: Vec<_> = (0..8).map(|_| of(&server, "192.0.2.1")).collect();
    assert!(open.iter_mut().all(is_served));
    assert!(is_served(&mut first), "those that were open stay");
    server.stop();
}
