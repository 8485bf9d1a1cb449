//! A server seen from outside: its commands, and a site whose scripts keep workers busy.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::http::{Connection, Request};
use crate::server::{Server, document_root, give_to_web_user};
use crate::{Target, maitred_program, wait};

/// A script that says something and waits for a file `go` beside it: see [`occupy`] and [`let_go`].
pub const WAIT_PAGE: (&str, &str) = (
    "wait.php",
    "<?php echo 'waiting'; while (ob_get_level()) { ob_end_flush(); } flush();
     while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }",
);

/// A document root with `hello.php`, with `nap.php`, which is too long for others to be lined up
/// behind it in its worker, and with scripts that fail, crash, and wait for a file `go`.
pub fn site() -> TempDir {
    let root = document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("nap.php", "<?php usleep(20000); echo 'rested';"),
        ("fatal.php", "<?php ini_set('memory_limit', '8M'); str_repeat('x', 1 << 26);"),
        ("crash.php", "<?php posix_kill(getmypid(), SIGSEGV);"),
        WAIT_PAGE,
    ]);
    give_to_web_user(root.path());
    root
}

/// Runs a command of maitred for a server.
///
/// # Panics
/// When it cannot be started.
pub fn command(server: &Server, arguments: &[&str]) -> Output {
    Command::new(maitred_program())
        .args(arguments)
        .arg("--admin-socket")
        .arg(server.admin_socket())
        .output()
        .expect("the program can be started")
}

/// Runs a command of maitred as it is.
///
/// # Panics
/// When it cannot be started.
pub fn maitred(arguments: &[&str]) -> Output {
    let run = Command::new(maitred_program()).args(arguments).output();
    run.expect("the program can be started")
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command has printed that has to succeed.
///
/// # Panics
/// It has failed.
#[track_caller]
pub fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// What `maitred status --json` prints.
///
/// # Panics
/// When it fails.
pub fn status(server: &Server) -> Value {
    let output = command(server, &["status", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("status is JSON")
}

/// What it tells of the page cache: the front is given little time to say it, and more than once.
///
/// # Panics
/// When it never does.
pub fn page_cache(server: &Server) -> Value {
    wait::until("the front to tell of the page cache", || {
        let told = status(server)["page_cache"].clone();
        told.is_object().then_some(told)
    })
}

/// The same of the only pool.
pub fn pool(server: &Server) -> Value {
    status(server)["pools"][0].clone()
}

/// Sends a request over a connection of its own.
///
/// # Panics
/// When the server does not take it.
pub fn send(server: &Server, request: &Request) -> Connection {
    let mut connection = Connection::open(server.address());
    let bytes = request.to_bytes();
    connection.send(&bytes).expect("the server takes a request");
    connection
}

/// Runs [`WAIT_PAGE`] until [`let_go`]; its answer has begun, so its worker is busy.
///
/// # Panics
/// When it does not begin.
pub fn occupy(server: &Server) -> Connection {
    let busy = occupy_many(server, 1).pop();
    busy.expect("one was asked for")
}

/// The same this number of times, all at once.
///
/// # Panics
/// When one does not begin.
pub fn occupy_many(server: &Server, count: usize) -> Vec<Connection> {
    let request = Request::get("/wait.php?for=go");
    let mut busy: Vec<_> = (0..count).map(|_| send(server, &request)).collect();
    for connection in &mut busy {
        let head = connection.read_head().expect("an answer begins");
        assert_eq!(head.status, 200, "a worker is busy: {head:?}");
    }
    busy
}

/// Ends the scripts that wait.
///
/// # Panics
/// When the file cannot be written.
pub fn let_go(root: impl AsRef<Path>) {
    std::fs::write(root.as_ref().join("go"), "").expect("a file can be written");
}
