//! What requests of a worker script may use at most: a limit that one changes is its own.

use maitred_tests::Target;
use maitred_tests::server::Server;
use maitred_tests::{booted, http};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What requests ask for, in MB: to have at once, with which limit, what of it is kept, and what of
/// that the script lets go of before it asks for the next request.
const WORKER: &str = "<?php
    $kept = '';
    $handle = function () use (&$kept) {
        $before = ini_get('memory_limit');
        if (isset($_GET['limit'])) { ini_set('memory_limit', $_GET['limit']); }
        $all = str_repeat('x', ($_GET['have'] ?? 0) << 20);
        if (isset($_GET['keep'])) { $kept = $all; }
        echo json_encode([getmypid(), $before, strlen($all) >> 20, strlen($kept) >> 20]);
    };
    while (frankenphp_handle_request($handle)) {
        if (isset($_GET['drop'])) { $kept = ''; }
    }";

fn start() -> (TempDir, Server) {
    let (root, setup) = booted::worker(&[("index.php", WORKER)]);
    let server = setup.pool("php_value = { memory_limit = \"32M\" }").start();
    (root, server)
}

fn ask(server: &Server, target: &str) -> Value {
    let answer = http::get(server.address(), target);
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    answer.json()
}

#[test]
fn a_request_that_raises_its_memory_limit_raises_nobody_elses() {
    let (_root, server) = start();
    let first = ask(&server, "/?limit=256M&have=100");
    let pid = first[0].clone();
    assert_eq!(first, json!([pid, "32M", 100, 0]));
    assert_eq!(
        ask(&server, "/?have=10"),
        json!([pid, "32M", 10, 0]),
        "the next has that of before, in the same worker"
    );
    let mark = server.log().mark();
    let answer = http::get(server.address(), "/?have=100");
    assert_eq!(answer.status, 500, "{}", answer.text());
    server.expect_log(mark, "Allowed memory size of 33554432 bytes exhausted");
    server.stop();
}

#[test]
fn what_is_kept_beyond_the_limit_of_the_next_request_ends_the_worker_unless_it_is_let_go_of() {
    let (_root, server) = start();
    let first = ask(&server, "/?limit=256M&have=100&keep&drop");
    let pid = first[0].clone();
    assert_eq!(first, json!([pid, "32M", 100, 100]));
    assert_eq!(ask(&server, "/?have=10"), json!([pid, "32M", 10, 0]));

    let mark = server.log().mark();
    let kept = ask(&server, "/?limit=256M&have=100&keep");
    assert_eq!(kept, json!([pid, "32M", 100, 100]));
    server.expect_log(mark, "and memory_limit is 33554432: this worker ends");
    let next = ask(&server, "/");
    assert_eq!(next, json!([next[0], "32M", 0, 0]));
    assert_ne!(next[0], pid, "another worker has booted");
    server.stop();
}
