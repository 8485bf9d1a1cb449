//! Requests that a copy leaves to the classic pool, whose clients do not wait for the response.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use maitred_tests::booted::{application, snapshot};
use maitred_tests::http::{Connection, Request};
use maitred_tests::server::Setup;
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// Requests without a response that is read: their early hints are more than sockets have room for.
const REQUESTS: usize = 60;

/// A site whose copies leave all requests to `page.php` in the classic pool.
fn site(page: &str) -> (TempDir, Setup) {
    let root = application("", "header('X-Accel-Redirect: @classic');");
    fs::write(root.path().join("page.php"), format!("<?php {page}")).unwrap();
    let setup = snapshot(root.path())
        .workers(1)
        .pool("[pools.classic]\npm = \"static\"\nmax_children = 1")
        .site("classic_paths = [\"/nowhere/\"]\nclassic_pool = \"classic\"");
    (root, setup)
}

fn length(file: &Path) -> usize {
    fs::read(file).map_or(0, |bytes| bytes.len())
}

#[test]
fn a_file_that_a_script_names_does_not_follow_a_part_of_its_early_hints() {
    let (root, setup) = site(
        "for ($i = 0; $i < 8; $i++) {
             header('Link: </' . str_repeat('x', 15000) . '>'); headers_send(103);
         }
         file_put_contents(__DIR__ . '/calls', '1', FILE_APPEND);
         header('X-Accel-Redirect: /none');",
    );
    let server = setup.start();
    let mut client = Connection::open(server.address());
    let last = Request::get("/page.php").header("Connection", "close").to_bytes();
    let requests = [Request::get("/page.php").to_bytes().repeat(REQUESTS - 1), last].concat();
    client.send(&requests).unwrap();
    let calls = root.path().join("calls");
    wait::until_true("no more requests to be served", || {
        let before = length(&calls);
        std::thread::sleep(Duration::from_secs(1));
        before > 0 && before == length(&calls)
    });
    let all = client.read_to_end();
    let all = String::from_utf8_lossy(&all);
    let hints: Vec<&str> = all.split("HTTP/1.1 103 Early Hints\r\nLink: </").skip(1).collect();
    let (_, whole) = hints.split_last().expect("there are hints");
    for hint in whole {
        let end = hint.trim_start_matches('x');
        assert!(end.starts_with(">\r\n\r\n"), "a part of hints, then {end:?}");
    }
    server.stop();
}

#[test]
fn a_client_that_leaves_the_classic_pool_waiting_has_the_status_499_in_the_log() {
    let (root, setup) = site(
        "touch(__DIR__ . '/begun');
         while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }",
    );
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let server = setup.top(&format!("access_log = {log:?}")).start();
    let mut client = Connection::open(server.address());
    client.send(&Request::get("/page.php").to_bytes()).unwrap();
    wait::until_true("the script to run", || root.path().join("begun").exists());
    drop(client);
    wait::until_true("the request to be logged", || length(&log) > 0);
    fs::write(root.path().join("go"), "").unwrap();
    let line = fs::read_to_string(&log).unwrap();
    assert!(line.contains("\"GET /page.php HTTP/1.1\" 499 "), "{line}");
    server.stop();
}
