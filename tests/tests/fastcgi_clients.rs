//! Who may come to a FastCGI listener, how many, and what becomes of the connections they keep when
//! the server stops, changes, or is replaced.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use maitred_tests::Target;
use maitred_tests::fastcgi::{Wire, params, request};
use maitred_tests::fpm::{Daemon, Listener, Params, Place, Which, usual};
use maitred_tests::http;
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, is_root, set_mode};
use maitred_tests::wait;
use tempfile::TempDir;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Open files that the server gets in the tests about them, and the connections that fit: 512 are
/// kept back for other uses.
const OPEN_FILES: usize = 600;
const FITTING: usize = OPEN_FILES - 512;

/// Connections in the middle of a request in one of those tests.
const AMID: usize = 5;

fn site() -> TempDir {
    let root = document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("hello.txt", "hello, file"),
        (
            "wait.php",
            "<?php touch(__DIR__ . '/state/begun');
             while (!file_exists(__DIR__ . '/state/go')) { clearstatcache(); usleep(2000); }
             echo 'over';",
        ),
        ("index.php", "<?php echo 'index ', $_SERVER['PATH_INFO'] ?? 'none';"),
    ]);
    let state = root.path().join("state");
    fs::create_dir(&state).expect("a folder can be made");
    set_mode(&state, 0o777);
    root
}

fn hello(root: &TempDir) -> Vec<(String, String)> {
    params(root.path(), "/hello.php", &[])
}

/// A connection that has had an answer, and is kept.
fn kept(socket: &Path, root: &TempDir) -> Wire {
    let mut wire = Wire::connect(socket);
    assert_eq!(wire.ask(1, &hello(root), b"").body(), "hello");
    wire
}

/// A request whose script has begun, and runs until [`let_go`].
fn running(socket: &Path, root: &TempDir) -> Wire {
    let mut wire = Wire::connect(socket);
    let all = params(root.path(), "/wait.php", &[("REQUEST_METHOD", "POST")]);
    wire.send(&request(1, true, &all, b""));
    let begun = root.path().join("state/begun");
    wait::until_true("the script to begin", || begun.exists());
    wire
}

fn let_go(root: &TempDir) {
    fs::write(root.path().join("state/go"), "").expect("a file can be written");
}

/// A server of ours with a listener beside its sites, and the listener's socket.
fn with_listener(setup: Setup, folder: &TempDir) -> (Server, PathBuf) {
    let socket = folder.path().join("www.sock");
    let server = setup.pool(&format!("listen = {socket:?}")).start();
    (server, socket)
}

/// Whether a client that comes from `from` to a listener for these clients gets an answer.
fn is_answered(daemon: &Daemon, root: &TempDir, from: IpAddr) -> bool {
    let Listener::Tcp(address) = daemon.place().listener("@PORT1@") else {
        panic!("a port is an address");
    };
    let listener = Listener::Tcp(SocketAddr::new(from, address.port()));
    let params = Params::get(&root.path().display().to_string(), "/hello.php");
    let mut client = listener.connect();
    // It may be closed before all of it has been sent.
    let _ = client.begin(&params, b"", false);
    client.answer().is_ok_and(|answer| answer.body() == "hello")
}

#[test]
fn only_allowed_clients_are_answered_whichever_family_they_come_over() {
    let root = site();
    let cases = [("127.0.0.1", V4, V6), ("::1", V6, V4), ("192.0.2.1,::ffff:127.0.0.1", V4, V6)];
    for which in Which::BOTH {
        for (allowed, friend, stranger) in cases {
            let lines = format!("listen = [::]:@PORT1@\nlisten.allowed_clients = {allowed}\n");
            let mut daemon = Daemon::start(which, &usual(&lines));
            let what = format!("{which:?}: {friend} where {allowed} is allowed");
            assert!(is_answered(&daemon, &root, friend), "{what}");
            assert!(!is_answered(&daemon, &root, stranger), "{what}");
            if which == Which::Maitred {
                let words = format!("IP address '{stranger}' has been dropped.");
                let line = daemon.expect_log(0, &words);
                assert!(line.contains("ERROR: Connection disallowed: "), "{line}");
            }
            daemon.stop();
        }
    }
}

#[test]
fn a_client_that_may_not_connect_any_more_is_not_answered_on_the_connection_it_kept() {
    let root = site();
    let place = Place::default();
    let lines = "listen = @PORT1@\nlisten.allowed_clients = 127.0.0.1\n";
    let mut daemon = Daemon::start_with(Which::Maitred, &usual(lines), place, &[]);
    let params = Params::get(&root.path().display().to_string(), "/hello.php");
    let mut client = daemon.place().listener("@PORT1@").connect();
    client.begin(&params, b"", true).expect("it may connect");
    assert_eq!(client.answer().expect("an answer").body(), "hello");
    let file = daemon.place().file("php-fpm.conf");
    let text = fs::read_to_string(&file).expect("the configuration can be read");
    let text = text.replace("= 127.0.0.1", "= 192.0.2.1");
    fs::write(&file, text).expect("the configuration can be written");
    let mark = daemon.log().mark();
    daemon.signal(Signal::USR2);
    daemon.expect_log(mark, "ready to handle connections");
    let _ = client.begin(&params, b"", true);
    assert!(client.is_closed());
    daemon.stop();
}

#[test]
fn connections_that_web_servers_keep_make_room_for_clients_that_ask() {
    let (root, folder) = (site(), maitred_tests::server::public_folder());
    let limit = format!("--nofile={OPEN_FILES}:{OPEN_FILES}");
    let setup = Setup::new(root.path()).under(&["prlimit", &limit]);
    let (server, socket) = with_listener(setup, &folder);
    // Beyond nine tenths of what fits, none is kept after its answer.
    let mut idle: Vec<Wire> = (0..FITTING * 8 / 10).map(|_| kept(&socket, &root)).collect();
    let mut asking: Vec<TcpStream> = (0..FITTING)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).expect("the kernel takes it");
            let sent = stream.write_all(b"GET /hello.txt HTTP/1.1\r\n");
            sent.expect("and its bytes");
            stream
        })
        .collect();
    server.expect_log(0, "connections are open");
    // All that were idle have gone, and every client finds room.
    for wire in &mut idle {
        wire.expect_closed();
    }
    for stream in &mut asking {
        let sent = stream.write_all(b"Host: localhost\r\nConnection: close\r\n\r\n");
        sent.expect("who asks is not sent away");
        let mut answer = String::new();
        std::io::Read::read_to_string(stream, &mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    drop((idle, asking));
    kept(&socket, &root);
    server.stop();
}

#[test]
fn a_web_server_amid_a_request_keeps_its_connection_when_others_need_room() {
    let (root, folder) = (site(), maitred_tests::server::public_folder());
    let limit = format!("--nofile={OPEN_FILES}:{OPEN_FILES}");
    let setup = Setup::new(root.path()).under(&["prlimit", &limit]);
    let (server, socket) = with_listener(setup, &folder);
    let mut amid: Vec<Wire> = (0..AMID).map(|_| kept(&socket, &root)).collect();
    let whole = request(1, false, &hello(&root), b"");
    let (first, rest) = whole.split_at(whole.len() / 2);
    amid.iter_mut().for_each(|wire| wire.send(first));
    // Who comes after them has been let in after their words were read.
    let mut idle: Vec<Wire> = (0..AMID).map(|_| kept(&socket, &root)).collect();
    let asking: Vec<TcpStream> = (0..FITTING)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).expect("the kernel takes it");
            let sent = stream.write_all(b"GET /hello.txt HTTP/1.1\r\n");
            sent.expect("and its bytes");
            stream
        })
        .collect();
    server.expect_log(0, "connections are open");
    idle.iter_mut().for_each(Wire::expect_closed);
    for wire in &mut amid {
        wire.send(rest);
        let answered = wire.answer(1).expect("it was amid a request");
        assert_eq!(answered.body(), "hello");
    }
    drop(asking);
    server.stop();
}

#[test]
fn a_stop_closes_kept_connections_and_answers_what_runs() {
    let root = site();
    let lines = "pm.max_children = 2\n";
    let daemon = Daemon::start(Which::Maitred, &usual(lines));
    let socket = daemon.place().file("www.sock");
    let mut idle = kept(&socket, &root);
    let mut busy = running(&socket, &root);
    daemon.signal(Signal::QUIT);
    idle.expect_closed();
    let_go(&root);
    assert_eq!(busy.answer(1).expect("it was awaited").body(), "over");
    busy.expect_closed();
    let status = daemon.stop_with(Signal::QUIT);
    assert!(status.success(), "{status}");
}

#[test]
fn a_kept_connection_to_a_listener_that_a_reload_takes_away_is_closed() {
    let root = site();
    let mut second =
        "[second]\nlisten = @FOLDER@/second.sock\npm = static\npm.max_children = 1\n".to_owned();
    if is_root() {
        second += "user = www-data\n";
    }
    let mut daemon = Daemon::start(Which::Maitred, &usual(&second));
    let socket = daemon.place().file("second.sock");
    let mut wire = kept(&socket, &root);
    let file = daemon.place().file("php-fpm.conf");
    let without = daemon.place().fill_in(&usual(""));
    fs::write(file, without).expect("the configuration can be written");
    let mark = daemon.log().mark();
    daemon.signal(Signal::USR2);
    daemon.expect_log(mark, "ready to handle connections");
    let _ = wire.try_send(&request(1, true, &hello(&root), b""));
    wire.expect_closed();
    kept(&daemon.place().file("www.sock"), &root);
    daemon.stop();
}

#[test]
fn an_upgrade_leaves_a_listener_open_closes_what_is_kept_and_cuts_no_answer() {
    let (root, folder) = (site(), maitred_tests::server::public_folder());
    let (server, socket) = with_listener(Setup::new(root.path()), &folder);
    let mut idle = kept(&socket, &root);
    let mut busy = running(&socket, &root);
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    let over = |line: &str| line.contains("upgraded to") || line.contains("upgrade is refused");
    let line = server.log().find_since(mark, wait::DEADLINE, over);
    assert!(line.is_some_and(|line| line.contains("upgraded to")));
    kept(&socket, &root);
    idle.expect_closed();
    let_go(&root);
    assert_eq!(busy.answer(1).expect("it was awaited").body(), "over");
    busy.expect_closed();
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    server.stop();
}

#[test]
fn without_fix_pathinfo_the_path_info_says_what_is_asked_of_status_and_ping() {
    let root = site();
    let folder = root.path().display().to_string();
    let ask = |daemon: &Daemon, target: &str, path_info: Option<&str>| {
        let mut params = Params::get(&folder, target);
        if let Some(path_info) = path_info {
            params.set("PATH_INFO", path_info);
        }
        let answer = daemon.listener().ask(&params, b"").expect("an answer");
        answer.body()
    };
    for which in Which::BOTH {
        for fixes in [true, false] {
            let flag = format!("cgi.fix_pathinfo={}", i32::from(fixes));
            let lines = usual("ping.path = /ping\n");
            let daemon = Daemon::start_with(which, &lines, Place::default(), &["-d", &flag]);
            let is_ping = |target, path_info| ask(&daemon, target, path_info) == "pong";
            let what = format!("{which:?} with {flag}");
            assert!(is_ping("/ping", None), "{what}");
            assert_eq!(is_ping("/ping", Some("")), fixes, "{what}");
            assert_eq!(is_ping("/index.php", Some("/ping")), !fixes, "{what}");
            daemon.stop();
        }
    }
}
