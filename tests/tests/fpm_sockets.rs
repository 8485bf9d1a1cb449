//! Listening sockets: those that others have opened for us, and those of FastCGI doors.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::ports;
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::wait;
use tempfile::TempDir;

fn site() -> TempDir {
    document_root(&[("hello.php", "<?php echo 'hello';")])
}

/// Connects as soon as somebody listens and says nothing: what wakes a service that a socket is kept
/// for. The connection lives until the answer is joined.
fn wake(address: SocketAddr) -> JoinHandle<TcpStream> {
    thread::spawn(move || {
        wait::until("somebody to listen", || {
            TcpStream::connect(address).ok().map(|mut stream| {
                stream
                    .write_all(
                        b"GET /hello.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                    )
                    .expect("a request can be sent");
                stream
            })
        })
    })
}

/// A server that `systemd-socket-activate` starts with the socket of `address`, with further words
/// before the program.
fn activated(root: &TempDir, address: SocketAddr, listen: &str, words: &[&str]) -> Server {
    let mut under = vec!["systemd-socket-activate", "--listen", listen];
    under.extend(words);
    let client = wake(address);
    let setup = Setup::new(root.path()).at(address).under(&under);
    let server = setup.start();
    let mut answer = String::new();
    let mut stream = client.join().expect("somebody listened");
    std::io::Read::read_to_string(&mut stream, &mut answer).expect("the first client is answered");
    assert!(answer.ends_with("hello"), "{answer}");
    server
}

#[test]
fn a_socket_of_systemd_is_used_and_the_client_that_woke_the_service_is_answered() {
    let root = site();
    let address = ports::free_address();
    let server = activated(&root, address, &address.to_string(), &[]);
    let said = format!("using inherited socket fd=3, \"{address}\"");
    assert!(server.log_text().contains(&said), "{said}");
    assert_eq!(http::get(address, "/hello.php").text(), "hello");
    // The variables are for us alone.
    for process in server.processes() {
        let path = format!("/proc/{}/environ", process.pid);
        let environment = std::fs::read(path).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment);
        assert!(!environment.contains("LISTEN_FDS") || process.title.contains("supervisor"));
    }
    server.stop();
}

#[test]
fn sockets_that_fpm_sockets_names_are_used() {
    let root = site();
    let address = ports::free_address();
    let named = format!("FPM_SOCKETS=/nowhere/php.sock=77,{address}=3");
    let words = ["env", "-u", "LISTEN_FDS", &named];
    let server = activated(&root, address, &address.to_string(), &words);
    let said = format!("using inherited socket fd=3, \"{address}\"");
    assert!(server.log_text().contains(&said), "{said}");
    assert!(
        server
            .log_text()
            .contains("names descriptor 77 for /nowhere/php.sock")
    );
    server.stop();
}

#[test]
fn an_inherited_socket_outlives_an_upgrade() {
    let root = site();
    let address = ports::free_address();
    let server = activated(&root, address, &address.to_string(), &[]);
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    let over = |line: &str| line.contains("upgraded to") || line.contains("upgrade is refused");
    let line = server.log().find_since(mark, wait::DEADLINE, over);
    assert!(line.is_some_and(|line| line.contains("upgraded to")));
    assert_eq!(http::get(address, "/hello.php").text(), "hello");
    server.stop();
}
