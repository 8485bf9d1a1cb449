//! Listening sockets: those that others have opened for us, and those of FastCGI listeners.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::thread::{self, JoinHandle};

use maitred_tests::Target;
use maitred_tests::fpm::{Daemon, Params, Place, Which, usual};
use maitred_tests::http;
use maitred_tests::ports;
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, is_root};
use maitred_tests::wait;
use tempfile::TempDir;

fn site() -> TempDir {
    document_root(&[("hello.php", "<?php echo 'hello';")])
}

/// Connects as soon as there is a listener and sends nothing: what wakes a service that a socket is
/// kept for. The connection lives until the answer is joined.
fn wake(address: SocketAddr) -> JoinHandle<TcpStream> {
    thread::spawn(move || {
        wait::until("a listener", || {
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
    let mut stream = client.join().expect("there was a listener");
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
    assert!(server.log_text().contains("names descriptor 77 for /nowhere/php.sock"));
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

/// What a daemon that does not start says, and its exit code.
fn refused(which: Which, place: &Place, lines: &str) -> (Option<i32>, String) {
    let file = place.file("refused.conf");
    std::fs::write(&file, place.fill_in(&usual(lines))).expect("a file can be written");
    let mut command = which.command();
    let output = command
        .args(["--nodaemonize", "--force-stderr", "--fpm-config"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .expect("it can be run");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

/// php-fpm's exit code for a configuration that it cannot use.
const EXIT_CONFIG: Option<i32> = Some(78);

#[test]
fn a_socket_that_another_server_listens_on_is_left_alone() {
    for holder in Which::BOTH {
        let daemon = Daemon::start(holder, &usual(""));
        let (code, said) = refused(Which::Maitred, daemon.place(), "");
        assert_eq!(code, EXIT_CONFIG, "{said}");
        let path = daemon.place().file("www.sock");
        let expected =
            format!("ERROR: Another FPM instance seems to already listen on {}\n", path.display());
        assert!(said.contains(&expected), "{said}");
        let who = format!("(process {}) listens there; stop it", daemon.pid());
        assert!(said.contains(&who), "{said}");
        let root = site();
        let params = Params::get(&root.path().display().to_string(), "/hello.php");
        assert!(daemon.listener().ask(&params, b"").is_ok());
        daemon.stop();
    }
}

#[test]
fn a_reload_keeps_a_socket_that_its_owner_has_linked_or_moved() {
    for which in Which::BOTH {
        let mut daemon = Daemon::start(which, &usual(""));
        let (path, moved) = (daemon.place().file("www.sock"), daemon.place().file("moved.sock"));
        let mut reload = || {
            let mark = daemon.log().mark();
            daemon.signal(Signal::USR2);
            daemon.expect_log(mark, "ready to handle connections");
        };
        fs::hard_link(&path, &moved).expect("a link can be made");
        reload();
        fs::remove_file(&path).expect("it can be removed");
        let other = UnixListener::bind(&path).expect("another socket can be made");
        reload();
        let root = site();
        let params = Params::get(&root.path().display().to_string(), "/hello.php");
        let answer = daemon.place().listener("moved.sock").ask(&params, b"");
        assert_eq!(answer.expect("an answer").body(), "hello", "{which:?}");
        drop(other);
        for file in [path, moved] {
            fs::remove_file(file).expect("it can be removed");
        }
        daemon.stop();
    }
}

#[test]
fn an_address_that_is_taken_is_refused_in_php_fpm_s_words() {
    let lines = "listen = 127.0.0.1:@PORT1@\n";
    let daemon = Daemon::start(Which::PhpFpm, &usual(lines));
    let words = |which| {
        let (code, said) = refused(which, daemon.place(), lines);
        assert_eq!(code, EXIT_CONFIG, "{said}");
        let said = said.lines().find(|line| line.contains("unable to bind"));
        let said = said.map(|line| line[line.find("ERROR").unwrap_or(0)..].to_owned());
        said.expect("it is said why")
    };
    assert_eq!(words(Which::PhpFpm), words(Which::Maitred));
    daemon.stop();
}

#[test]
fn a_missing_folder_of_a_socket_is_named() {
    let place = Place::default();
    let (code, said) = refused(Which::Maitred, &place, "listen = @FOLDER@/missing/x.sock\n");
    assert_eq!(code, EXIT_CONFIG, "{said}");
    assert!(said.contains("No such file or directory (2)"), "{said}");
    assert!(said.contains("create the folder"), "{said}");
}

#[test]
fn a_port_alone_takes_clients_of_ipv4_and_ipv6() {
    let daemon = Daemon::start(Which::Maitred, &usual("listen = @PORT1@\n"));
    let port = daemon.place().fill_in("@PORT1@").parse().expect("a port");
    for host in ["127.0.0.1", "::1"] {
        let address = (host, port);
        assert!(TcpStream::connect(address).is_ok(), "{host}");
    }
    daemon.stop();
}

#[test]
fn a_port_alone_that_is_taken_is_tried_on_ipv4_and_named_as_it_is_written() {
    let daemon = Daemon::start(Which::PhpFpm, &usual("listen = @PORT1@\n"));
    let (_, said) = refused(Which::Maitred, daemon.place(), "listen = @PORT1@\n");
    let port = daemon.place().fill_in("@PORT1@");
    let expected = [
        "NOTICE: Failed implicitly binding to ::, retrying with 0.0.0.0".to_owned(),
        format!(
            "ERROR: unable to bind listening socket for address '{port}': \
             Address already in use (98)"
        ),
        "ERROR: FPM initialization failed".to_owned(),
    ];
    let mut lines = said.lines();
    for expected in expected {
        let line = lines.next().unwrap_or_default();
        assert!(line.ends_with(&expected), "{said}");
    }
    daemon.stop();
}

#[test]
fn a_socket_that_nobody_listens_on_is_replaced() {
    let place = Place::default();
    let path = place.file("www.sock");
    // What a killed server leaves: the file, without a listener.
    drop(UnixListener::bind(&path).expect("a socket can be made"));
    let daemon = Daemon::start_with(Which::Maitred, &usual(""), place, &[]);
    assert!(UnixStream::connect(&path).is_ok());
    daemon.stop();
}

#[test]
fn a_reload_keeps_sockets_changes_who_may_connect_and_removes_what_no_pool_has() {
    let second = "[second]\nlisten = @FOLDER@/second.sock\npm = static\npm.max_children = 1\n";
    let second = match is_root() {
        true => format!("{second}user = www-data\n"),
        false => second.to_owned(),
    };
    let mut daemon = Daemon::start(Which::Maitred, &usual(&second));
    let (www, gone) = (daemon.place().file("www.sock"), daemon.place().file("second.sock"));
    let inode = std::fs::metadata(&www).expect("it is there").ino();
    let changed = daemon.place().fill_in(&usual("listen.mode = 0600\n"));
    std::fs::write(daemon.place().file("php-fpm.conf"), changed).expect("it can be written");
    let mark = daemon.log().mark();
    daemon.signal(Signal::USR2);
    let said = format!("using inherited socket fd=\u{0}, \"{}\"", www.display());
    let (before, after) = said.split_once('\u{0}').unwrap_or_default();
    let line = daemon.expect_log(mark, after);
    assert!(line.contains(before), "{line}");
    daemon.expect_log(mark, "ready to handle connections");
    let now = std::fs::metadata(&www).expect("it is there");
    assert_eq!(now.ino(), inode);
    assert_eq!(now.mode() & 0o777, 0o600);
    assert!(!gone.exists());
    daemon.stop();
}

#[test]
fn a_backlog_that_the_kernel_does_not_allow_is_warned_of_with_what_it_allows() {
    let mut daemon = Daemon::start(Which::Maitred, &usual("listen.backlog = 1000000\n"));
    let longest = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("it is there");
    let line = daemon.expect_log(0, "listen.backlog = 1000000");
    assert!(line.contains(&format!("{} connections", longest.trim())), "{line}");
    daemon.stop();
}
