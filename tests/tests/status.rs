//! The status page and the ping: beside php-fpm's own, and while no worker has time for them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::{self, occupy};
use maitred_tests::peer::{Peer, PeerSetup};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::{Target, maitred_program, wait};
use serde_json::Value;
use tempfile::TempDir;

/// The formats by their queries.
const FORMATS: [&str; 5] = ["", "html", "xml", "json", "openmetrics"];

/// The scripts named as the two pages are there because nginx asks php-fpm only for files.
fn site() -> TempDir {
    let root = document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("status.php", "<?php echo 'the file';"),
        ("ping.php", "<?php echo 'the file';"),
        (
            "wait.php",
            "<?php echo 'waiting'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }",
        ),
    ]);
    give_to_web_user(root.path());
    root
}

fn setup(root: &Path) -> Setup {
    Setup::new(root)
        .pool("status_path = \"/status\"")
        .pool("ping_path = \"/ping\"")
        .site("front_controller = \"\"")
}

fn status(server: &Server) -> Value {
    http::get(server.address(), "/status?json&full").json()
}

#[test]
fn status_and_ping_are_answered_while_every_worker_is_busy() {
    let root = site();
    let server = setup(root.path()).workers(1).start();
    let _busy = occupy(&server);
    let mut waiting = Connection::open(server.address());
    let request = Request::get("/hello.php").to_bytes();
    waiting.send(&request).expect("the server takes a request");
    wait::until_true("a request to wait", || status(&server)["listen queue"] == 1);
    let busy = status(&server);
    assert_eq!(busy["active processes"], 1, "{busy}");
    assert_eq!(busy["idle processes"], 0, "{busy}");
    assert_eq!(busy["max listen queue"], 1, "{busy}");
    let worker = &busy["processes"][0];
    assert_eq!(worker["state"], "Running", "{busy}");
    assert_eq!(worker["request uri"], "/wait.php?for=go", "{busy}");
    assert_eq!(http::get(server.address(), "/ping").text(), "pong");
    for format in FORMATS {
        let page = http::get(server.address(), &format!("/status?{format}&full"));
        assert_eq!(page.status, 200, "{format}");
    }
    std::fs::write(root.path().join("go"), "").expect("a file can be written");
    let answer = waiting.read_response(false).expect("an answer");
    assert_eq!(answer.text(), "hello");
    wait::until_true("the worker to be idle", || status(&server)["idle processes"] == 1);
    let idle = status(&server);
    assert_eq!(idle["accepted conn"], 2, "{idle}");
    assert_eq!(idle["processes"][0]["request uri"], "/hello.php", "{idle}");
}

#[test]
fn a_running_request_whose_client_has_left_says_so_and_its_end_is_logged_once() {
    let root = site();
    let server = setup(root.path()).workers(1).pool("request_terminate_timeout = \"4s\"").start();
    let busy = occupy(&server);
    let running = || outside::pool(&server)["running"][0].clone();
    assert_eq!(running()["client_left"], false);
    drop(busy);
    wait::until_true("the client to have left", || running()["client_left"] == true);
    let line = server.expect_log(0, "its worker is ended: its script ran longer than");
    assert!(line.contains("WARN pool www seat 0") && line.contains("wait.php"), "{line}");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let lines = server.log().since(0);
    assert_eq!(lines.iter().filter(|line| line.contains("wait.php")).count(), 1, "{lines:#?}");
    server.stop();
}

#[test]
fn the_memory_peak_of_a_pool_outlasts_a_reload() {
    let root = site();
    let hungry = "<?php $much = str_repeat('a', 20 << 20); echo strlen($much);";
    std::fs::write(root.path().join("hungry.php"), hungry).expect("a script is written");
    let server = setup(root.path()).workers(1).start();
    if status(&server).get("memory peak").is_none() {
        server.stop();
        return eprintln!("skipped: php-fpm of this PHP shows no memory peak");
    }
    assert_eq!(http::get(server.address(), "/hungry.php").text(), (20 << 20).to_string());
    let peak = |status: &Value| status["memory peak"].as_u64().unwrap_or_default();
    let before = wait::until("the end of the script", || {
        Some(peak(&status(&server))).filter(|peak| *peak >= 20 << 20)
    });
    assert!(before < 64 << 20, "{before}");
    let old = status(&server)["processes"][0]["pid"].clone();
    let output = Command::new(maitred_program())
        .args(["reload", "www", "--admin-socket"])
        .arg(server.admin_socket())
        .output()
        .expect("maitred can be run");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    wait::until_true("a new worker", || status(&server)["processes"][0]["pid"] != old);
    assert_eq!(peak(&status(&server)), before);
    server.stop();
}

#[test]
fn the_times_of_day_are_those_of_the_machine() {
    let root = site();
    // Nine hours before UTC, in the form of tzset(3).
    let server = setup(root.path()).under(&["env", "TZ=JST-9"]).start();
    let page = http::get(server.address(), "/status?full").text();
    let starts = page.lines().filter(|line| line.starts_with("start time:"));
    let starts: Vec<&str> = starts.collect();
    assert!(starts.len() > 1, "the pool and its workers: {page}");
    assert!(starts.iter().all(|line| line.ends_with(" +0900")), "{page}");
}

#[test]
fn the_workers_shown_are_those_that_run() {
    let root = site();
    let server = setup(root.path()).workers(3).start();
    let running = || -> BTreeSet<i64> {
        let workers = server.workers();
        workers.iter().map(|worker| worker.pid.into()).collect()
    };
    let shown = || -> BTreeSet<i64> {
        let status = status(&server);
        let workers = status["processes"].as_array().expect("a list of workers");
        workers.iter().filter_map(|worker| worker["pid"].as_i64()).collect()
    };
    wait::until_true("all workers to be shown", || shown() == running());
    let victim = server.workers().pop().expect("a worker runs");
    victim.signal(Signal::KILL);
    wait::until_true("another worker in its place", || {
        let shown = shown();
        shown.len() == 3 && !shown.contains(&victim.pid.into())
    });
    assert_eq!(shown(), running());
}

#[test]
fn only_the_exact_path_is_the_status_page() {
    let root = site();
    let server = setup(root.path()).start();
    for other in ["/status/", "/status/x", "/Status", "//status", "/%73tatus", "/ping/", "/pin"] {
        let answer = http::get(server.address(), other);
        assert_eq!(answer.status, 404, "{other}: {}", answer.text());
    }
    assert_eq!(http::get(server.address(), "/status").status, 200);
}

#[test]
fn nothing_is_shown_unless_the_sites_own_pool_says_so() {
    let root = site();
    let silent = Setup::new(root.path()).site("front_controller = \"\"");
    let foreign = setup(root.path()).upstream("unix:/nowhere.sock");
    for server in [silent.start(), foreign.start()] {
        for path in ["/status", "/status?json", "/ping"] {
            assert_eq!(http::get(server.address(), path).status, 404, "{path}");
        }
    }
}

#[test]
fn the_answer_to_head_has_no_body_and_post_is_answered_as_get() {
    let root = site();
    let server = setup(root.path()).pool("ping_response = \"<here>\"").start();
    let mut connection = Connection::open(server.address());
    for path in ["/status?json", "/ping"] {
        let got = connection.ask(&Request::get(path)).expect("an answer");
        let head = connection.ask(&Request::new("HEAD", path).header("Host", "localhost"));
        let head = head.expect("an answer");
        assert_eq!(head.status, 200);
        assert!(head.body.is_empty(), "{}", head.text());
        assert_eq!(head.header("Content-Type"), got.header("Content-Type"));
        let post = Request::post(path, "text/plain", b"GET /x HTTP/1.1\r\n\r\n");
        let posted = connection.ask(&post).expect("an answer");
        assert_eq!(posted.body[..6], got.body[..6], "{}", posted.text());
    }
    let ping = connection.ask(&Request::get("/ping")).expect("an answer");
    assert_eq!(ping.text(), "<here>");
}

/// maitred and php-fpm with the same paths, two workers each, one of which has served something.
fn both(root: &Path) -> (Server, Peer) {
    let server = Setup::new(root)
        .pool("status_path = \"/status.php\"")
        .pool("ping_path = \"/ping.php\"")
        .start();
    let peer = PeerSetup::new(root)
        .pool("pm.status_path = /status.php")
        .pool("ping.path = /ping.php")
        .start();
    for address in [server.address(), peer.address()] {
        assert_eq!(http::get(address, "/hello.php").text(), "hello");
    }
    wait::until_true("both workers to be shown", || {
        let status = http::get(server.address(), "/status.php?json&full").json();
        status["processes"].as_array().map(Vec::len) == Some(2)
    });
    (server, peer)
}

/// What is left of a page without its values.
fn frame(format: &str, page: &str) -> Vec<String> {
    match format {
        "json" => json_names(page),
        "html" | "xml" => markup(page),
        "openmetrics" => metric_lines(page),
        _ => page.lines().map(text_name).collect(),
    }
}

/// The name, with the blanks after it, which are a part of the layout.
fn text_name(line: &str) -> String {
    let value = line.get(22..).unwrap_or_default();
    match line.strip_suffix(value) {
        Some(name) if line.contains(':') => name.to_owned(),
        _ => line.to_owned(),
    }
}

fn json_names(page: &str) -> Vec<String> {
    let quoted: Vec<&str> = page.split('"').collect();
    let names = quoted.windows(2).filter(|pair| pair[1].starts_with(':'));
    names.map(|pair| pair[0].to_owned()).collect()
}

/// The tags, and the text of those that hold names.
fn markup(page: &str) -> Vec<String> {
    let pieces = page.split_inclusive('>').map(|piece| {
        let start = piece.find('<').unwrap_or(piece.len());
        let (text, tag) = piece.split_at(start);
        if matches!(tag.trim(), "</th>" | "</title>") || text.trim().is_empty() {
            piece.to_owned()
        } else {
            tag.to_owned()
        }
    });
    pieces.collect()
}

/// The lines without the values, in no order: HELP and TYPE may be written either way around.
fn metric_lines(page: &str) -> Vec<String> {
    let line = |line: &str| match line.rsplit_once(' ') {
        Some((name, _)) if !line.starts_with('#') => name.to_owned(),
        _ => line.to_owned(),
    };
    let mut lines: Vec<String> = page.lines().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn every_page_is_php_fpms_but_for_the_values() {
    let root = site();
    let (server, peer) = both(root.path());
    for format in FORMATS {
        for full in ["", "&full"] {
            let target = format!("/status.php?{format}{full}");
            let ours = http::get(server.address(), &target);
            let theirs = http::get(peer.address(), &target);
            let (ours_frame, theirs_frame) =
                (frame(format, &ours.text()), frame(format, &theirs.text()));
            assert!(theirs_frame.len() > 13, "{target}: {}", theirs.text());
            assert_eq!(ours_frame, theirs_frame, "{target}");
            assert_eq!(ours.status, theirs.status, "{target}");
            for name in ["Content-Type", "Expires", "Cache-Control"] {
                assert_eq!(ours.header(name), theirs.header(name), "{target}: {name}");
            }
        }
    }
}

#[test]
fn the_ping_is_php_fpms() {
    let root = site();
    let (server, peer) = both(root.path());
    for method in ["GET", "HEAD", "POST"] {
        let request = Request::new(method, "/ping.php").header("Host", "localhost");
        let ours = http::ask(server.address(), &request);
        let theirs = http::ask(peer.address(), &request);
        assert_eq!(ours.status, theirs.status, "{method}");
        assert_eq!(ours.text(), theirs.text(), "{method}");
        for name in ["Content-Type", "Expires", "Cache-Control"] {
            assert_eq!(ours.header(name), theirs.header(name), "{method}: {name}");
        }
    }
}

/// A value's type, and what is in it.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| (name.clone(), shape(value));
            Value::Object(members.iter().map(member).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(shape).collect()),
        Value::String(_) => "string".into(),
        Value::Number(number) if number.is_f64() => "decimal".into(),
        Value::Number(_) => "number".into(),
        other => other.clone(),
    }
}

#[test]
fn json_has_php_fpms_types() {
    let root = site();
    let (server, peer) = both(root.path());
    let theirs = http::get(peer.address(), "/status.php?json&full").json();
    let ours = http::get(server.address(), "/status.php?json&full").json();
    assert_eq!(shape(&ours), shape(&theirs));
}

#[test]
fn xml_is_well_formed_whatever_a_client_asks_for() {
    let root = site();
    let server = setup(root.path()).start();
    let asked = http::get(server.address(), "/hello.php?a=1&b=%00<x>&amp;'");
    assert_eq!(asked.status, 200, "{}", asked.text());
    let page = http::get(server.address(), "/status?xml&full").text();
    let mut open = Vec::new();
    for piece in page.split('<').skip(2) {
        let (tag, text) = piece.split_once('>').expect("a tag ends");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{page}"),
            None => open.push(tag),
        }
        for after in text.split('&').skip(1) {
            let known = ["amp;", "lt;", "gt;", "quot;"];
            assert!(known.iter().any(|name| after.starts_with(name)), "{page}");
        }
    }
    assert!(open.is_empty(), "{page}");
    assert!(page.contains("/hello.php?a=1&amp;b=%00&lt;x&gt;&amp;amp;'<"), "{page}");
}
