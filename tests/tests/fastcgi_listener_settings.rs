//! Settings of a pool's FastCGI listener in maitred's own file. What they do in php-fpm's is
//! compared with php-fpm itself (`fpm_directives.rs`).

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use maitred_tests::fastcgi::{Wire, params, request};
use maitred_tests::server::{
    Server, Setup, WEB_USER, document_root, is_root, public_folder, user_ids,
};
use maitred_tests::{ports, wait};
use tempfile::TempDir;

fn site() -> TempDir {
    document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("quiet.php", "<?php echo 'quiet';"),
        ("page.inc", "<?php echo 'included';"),
        ("page.php7", "<?php echo 'seven';"),
    ])
}

/// A pool with a listener at a Unix socket in `folder`, and further lines for it.
fn setup(root: &TempDir, folder: &TempDir, lines: &[&str]) -> (Setup, PathBuf) {
    let socket = folder.path().join("www.sock");
    let setup = Setup::new(root.path()).pool(&format!("listen = {socket:?}"));
    let setup = lines.iter().fold(setup, |setup, line| setup.pool(line));
    (setup, socket)
}

/// What `command` says of the socket.
fn told(command: &[&str], socket: &Path) -> String {
    let output = Command::new(command[0]).args(&command[1..]).arg(socket).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How many connections may wait for a Unix socket that is listened on.
fn backlog(socket: &Path) -> String {
    let line = told(&["ss", "-lxnH", "src"], socket);
    let column = line.split_whitespace().nth(3);
    column.unwrap_or_else(|| panic!("{line:?}")).to_owned()
}

#[test]
fn the_socket_has_the_owner_the_group_the_mode_and_the_backlog_that_are_set() {
    let (root, folder) = (site(), public_folder());
    let mut lines = vec!["listen_mode = \"0640\"", "listen_backlog = 7"];
    if is_root() {
        lines.extend(["listen_owner = \"nobody\"", "listen_group = \"www-data\""]);
    }
    let (setup, socket) = setup(&root, &folder, &lines);
    let server = setup.start();
    let found = fs::metadata(&socket).expect("the socket is there");
    assert_eq!(found.mode() & 0o777, 0o640);
    assert_eq!(backlog(&socket), "7");
    if is_root() {
        let wanted = (user_ids("nobody").0, user_ids(WEB_USER).1);
        assert_eq!((found.uid(), found.gid()), wanted);
    } else {
        eprintln!("skipped: owner and group need root");
    }
    server.stop();
}

#[test]
fn users_and_groups_of_a_list_may_connect() {
    if !is_root() {
        eprintln!("skipped: only root may give a socket to others");
        return;
    }
    let (root, folder) = (site(), public_folder());
    let lines =
        ["listen_acl_users = [\"www-data\", \"nobody\"]", "listen_acl_groups = \"nogroup\""];
    let (setup, socket) = setup(&root, &folder, &lines);
    let server = setup.start();
    let said = told(&["getfacl", "-pnc"], &socket);
    let other = user_ids("nobody");
    for wanted in [
        format!("user:{}:rw-", user_ids(WEB_USER).0),
        format!("user:{}:rw-", other.0),
        format!("group:{}:rw-", other.1),
        "other::---".to_owned(),
    ] {
        assert!(said.lines().any(|line| line == wanted), "{wanted}:\n{said}");
    }
    server.stop();
}

#[test]
fn a_target_of_the_web_server_adds_no_line_to_the_log_when_its_body_cannot_be_stored() {
    let (root, folder) = (site(), public_folder());
    let (setup, socket) = setup(&root, &folder, &[]);
    let server = setup.start();
    fs::remove_dir(server.spool()).expect("the folder is empty");
    let body = vec![b'x'; 4 << 20];
    let length = body.len().to_string();
    let mut all = params(
        root.path(),
        "/hello.php",
        &[("REQUEST_METHOD", "POST"), ("CONTENT_LENGTH", &length)],
    );
    let target = all.iter_mut().find(|(name, _)| name == "REQUEST_URI");
    target.expect("a target").1.push_str("\nforged \x1b[2J");
    let mut wire = Wire::connect(&socket);
    // The server reads no more than it needs to refuse the body.
    let _ = wire.try_send(&request(1, true, &all, &body));
    let line = server.expect_log(0, "forged");
    assert!(line.contains("POST /hello.php") && line.contains("cannot be stored"), "{line:?}");
    assert!(!line.contains('\x1b'), "{line:?}");
    server.stop();
}

/// What a listener at this address answers; nothing if it does not talk with us.
fn ask_over_tcp(address: SocketAddr, root: &Path) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the listener is listened at");
    let limit = stream.set_read_timeout(Some(wait::DEADLINE));
    limit.expect("a time-out can be set");
    let _ = stream.write_all(&request(1, false, &params(root, "/hello.php", &[]), b""));
    let _ = stream.shutdown(Shutdown::Write);
    let mut said = Vec::new();
    // Who is turned away while it speaks sees a reset.
    let _ = stream.read_to_end(&mut said);
    said
}

#[test]
fn addresses_that_are_not_in_the_list_are_turned_away() {
    let root = site();
    let address = ports::free_address();
    let setup = |clients: &str| {
        Setup::new(root.path())
            .pool(&format!("listen = \"{address}\""))
            .pool(&format!("listen_allowed_clients = {clients}"))
    };
    let server = setup("\"127.0.0.2\"").start();
    assert_eq!(ask_over_tcp(address, root.path()), b"");
    server.expect_log(0, "IP address '127.0.0.1' has been dropped");
    server.configure(&setup("[\"127.0.0.2\", \"127.0.0.1\"]"));
    assert!(server.reload().contains("reloaded"));
    let said = ask_over_tcp(address, root.path());
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("\r\n\r\nhello"), "{said}");
    server.stop();
}

#[test]
fn only_names_with_the_endings_of_the_list_are_run() {
    let root = site();
    let folder = public_folder();
    let seen = |server: &Server, socket: &Path| {
        let names = ["/hello.php", "/page.php7", "/page.inc"];
        let answers = names.map(|name| {
            let answer = Wire::connect(socket).ask(1, &params(root.path(), name, &[]), b"");
            answer.body().trim_end().to_owned()
        });
        assert!(server.front().is_some());
        answers
    };
    let (plain, socket) = setup(&root, &folder, &[]);
    let server = plain.start();
    let refused = "Access denied.";
    assert_eq!(seen(&server, &socket), ["hello", refused, refused]);
    for (list, expected) in [
        ("[\".php7\", \".inc\"]", [refused, "seven", "included"]),
        ("\"\"", ["hello", "seven", "included"]),
    ] {
        let line = format!("limit_extensions = {list}");
        server.configure(&setup(&root, &folder, &[&line]).0);
        assert!(server.reload().contains("reloaded"));
        assert_eq!(seen(&server, &socket), expected, "{list}");
    }
    server.stop();
}

#[test]
fn the_listeners_log_has_its_requests_in_the_form_that_is_set_but_for_those_that_are_not_wanted() {
    let (root, folder) = (site(), public_folder());
    let log = folder.path().join("listener.log");
    let lines = [
        &format!("access_log = {log:?}"),
        "access_format = \"%m %r%Q%q %s\"",
        "access_suppress_path = [\"/quiet.php\"]",
    ];
    let (setup, socket) = setup(&root, &folder, &lines);
    let server = setup.start();
    for target in ["/hello.php?a=1", "/quiet.php", "/quiet.php?a", "/page.inc"] {
        let _ = Wire::connect(&socket).ask(1, &params(root.path(), target, &[]), b"");
    }
    let expected = "GET /hello.php?a=1 200\nGET /quiet.php?a 200\n\
                    GET /page.inc 403\n";
    wait::until_true("the lines of the listener's log", || {
        fs::read_to_string(&log).is_ok_and(|text| text.lines().count() >= 3)
    });
    let text = fs::read_to_string(&log).expect("the log can be read");
    assert_eq!(text, expected);
    server.stop();
}
