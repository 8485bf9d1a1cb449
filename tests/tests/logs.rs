//! What is written down: the access log in both formats, and what PHP says.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::wait;
use tempfile::TempDir;

fn site() -> TempDir {
    document_root(&[
        ("hello.txt", "hello, file"),
        (
            "prints.php",
            "<?php $f = fopen('php://stderr', 'r+'); fwrite($f, \"a word\\nanother\\n\");
             echo var_export(ftruncate($f, 0), true);",
        ),
        ("slow.php", "<?php usleep(50000); echo 'slow';"),
        ("complains.php", "<?php error_log('the roof leaks'); echo $undefined;"),
    ])
}

struct Logged {
    server: Server,
    file: PathBuf,
    _folders: (TempDir, TempDir),
}

fn logged(format: &str) -> Logged {
    let (root, folder) = (site(), public_folder());
    give_to_web_user(folder.path());
    let file = folder.path().join("access.log");
    let server = Setup::new(root.path())
        .top(&format!("access_log = {file:?}"))
        .top(&format!("access_log_format = {format:?}"))
        .start();
    Logged { server, file, _folders: (root, folder) }
}

fn lines(file: &Path, count: usize) -> Vec<String> {
    wait::until("the lines to be written", || {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

#[test]
fn the_combined_log_ends_with_the_time_in_the_queue_and_in_the_script_and_the_request_s_id() {
    let logged = logged("combined");
    let request = Request::get("/slow.php?a=\"b\"").header("User-Agent", "te\"st");
    let begun = Instant::now();
    http::ask(logged.server.address(), &request);
    let took = begun.elapsed().as_secs_f64();
    http::get(logged.server.address(), "/hello.txt");
    let lines = lines(&logged.file, 2);
    assert!(lines[0].starts_with("127.0.0.1 - - ["), "{}", lines[0]);
    assert!(lines[0].contains("\"GET /slow.php?a=\\\"b\\\" HTTP/1.1\" 200 4 "), "{}", lines[0]);
    assert!(lines[0].contains("\"te\\\"st\""), "{}", lines[0]);
    let fields: Vec<&str> = lines[0].rsplit(' ').take(3).collect();
    assert_eq!(fields[0].len(), 32, "an id: {}", lines[0]);
    let (script, queue): (f64, f64) =
        (fields[1].parse().expect("seconds"), fields[2].parse().expect("seconds"));
    assert!(script >= 0.05, "the script slept for 50 ms: {script}");
    assert!(
        queue >= 0.0 && queue + script <= took,
        "it waited for {queue} and ran for {script} of {took}"
    );
    assert!(lines[1].contains(" - - "), "a file has neither: {}", lines[1]);
}

#[test]
fn the_json_log_is_one_object_a_line() {
    let logged = logged("json");
    http::get(logged.server.address(), "/slow.php");
    let lines = lines(&logged.file, 1);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_eq!(line["method"], "GET");
    assert_eq!(line["target"], "/slow.php");
    assert_eq!(line["status"], 200);
    assert_eq!(line["bytes"], 4);
    assert!(line["script_time"].as_f64().expect("seconds") >= 0.05);
    assert!(line["queue_time"].as_f64().expect("seconds") >= 0.0);
    assert!(line["request_time"].as_f64().expect("seconds") >= 0.05);
}

#[test]
fn what_php_says_is_logged_with_pool_and_script() {
    let root = site();
    let server = Setup::new(root.path()).start();
    let mark = server.log().mark();
    http::get(server.address(), "/complains.php");
    let line = server.expect_log(mark, "the roof leaks");
    assert!(line.contains("pool www") && line.contains("complains.php"), "{line}");
    server.expect_log(mark, "Undefined variable $undefined");
}

#[test]
fn what_a_script_prints_on_standard_error_is_logged_with_its_pool_and_is_not_our_log() {
    let (root, folder) = (site(), public_folder());
    let log = folder.path().join("error.log");
    let server = Setup::new(root.path()).top(&format!("error_log = {log:?}")).start();
    let before = fs::read_to_string(&log).expect("a log");
    assert_eq!(http::get(server.address(), "/prints.php").text(), "false");
    let text = wait::until("the words to be logged", || {
        let text = fs::read_to_string(&log).expect("a log");
        text.contains("pool www: another").then_some(text)
    });
    assert!(text.starts_with(&before) && text.contains("pool www: a word"), "{text}");
}

#[test]
fn what_is_no_request_has_its_line_too() {
    let logged = logged("combined");
    let mut connection = Connection::open(logged.server.address());
    connection.send(b"GARBAGE\r\n\r\n").expect("bytes are taken");
    assert_eq!(connection.read_response(false).expect("an answer").status, 400);
    let lines = lines(&logged.file, 1);
    assert!(lines[0].contains("\"-\" 400 "), "{}", lines[0]);
}

#[test]
fn the_bytes_are_those_that_were_sent() {
    let logged = logged("json");
    fs::write(logged._folders.0.path().join("large.bin"), vec![b'x'; 64 << 20])
        .expect("a large file");
    let mut connection = Connection::open(logged.server.address());
    connection.send(&Request::get("/large.bin").to_bytes()).expect("a request is taken");
    connection.read_head().expect("the answer begins");
    drop(connection);
    let line = &lines(&logged.file, 1)[0];
    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert!(line["bytes"].as_u64().expect("a number") < 64 << 20, "{line}");
}
