//! Applications that are booted once, under many requests: no request sees anything of another that
//! it must not see, and no process grows that stays. `MAITRED_BOOTED_REQUESTS` says how many.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::changes::CHANGES_ALL;
use maitred_tests::http;
use maitred_tests::processes::Process;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use serde_json::Value;

/// How long something may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clients that ask at the same time.
const CLIENTS: u64 = 2;

/// What allocators and tables of processes may take more after many requests than after some, in
/// kilobytes.
const SLACK_KB: u64 = 3 * 1024;

/// Descriptors that may be open for a moment.
const SLACK_OPEN: usize = 8;

fn requests() -> u64 {
    let given = std::env::var("MAITRED_BOOTED_REQUESTS").ok();
    given.and_then(|count| count.parse().ok()).unwrap_or(240)
}

/// The use of a process: its memory in kilobytes, shared pages included, and its descriptors.
fn held(process: &Process) -> (u64, usize) {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", process.pid)).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.pid)).map_or(0, Iterator::count);
    (kilobytes.expect("the kernel tells"), open)
}

/// Asks so often, and hands every answer to `check`.
fn ask(server: &Server, count: u64, check: &(dyn Fn(Value) + Sync)) {
    let address = server.address();
    std::thread::scope(|threads| {
        for client in 0..CLIENTS {
            threads.spawn(move || {
                for n in 0..count / CLIENTS {
                    let answer = http::get(address, &format!("/page?client={client}&n={n}"));
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    check(answer.json());
                }
            });
        }
    });
}

/// Asks, and insists that who stays does not grow.
fn endure(setup: Setup, workers: usize, check: &(dyn Fn(Value) + Sync)) {
    let server = setup.start();
    ask(&server, requests() / 4, check);
    server.wait_for_full_strength(workers, PATIENCE);
    let stay = [
        server.supervisor(),
        server.zygote().expect("a zygote runs"),
        server.front().expect("a front runs"),
    ];
    let before = stay.each_ref().map(held);
    ask(&server, requests(), check);
    server.wait_for_full_strength(workers, PATIENCE);
    for (process, before) in stay.iter().zip(before) {
        let after = held(process);
        println!("{}: {before:?} to {after:?} (kB, open)", process.title);
        let grown = after.0 > before.0 + SLACK_KB || after.1 > before.1 + SLACK_OPEN;
        assert!(!grown, "{}: {before:?} to {after:?}", process.title);
    }
    server.stop();
}

fn booted(root: &Path, mode: &str, script: &str) -> Setup {
    give_to_web_user(root);
    let script = root.join(script);
    Setup::new(root)
        .pool(&format!("mode = {mode:?}"))
        .pool(&format!("script = {script:?}"))
        .site("front_controller = \"/index.php\"")
}

/// An application each of whose requests changes all there is.
fn changing() -> tempfile::TempDir {
    let script = format!("<?php $kept = 'booted'; maitred_snapshot(); {CHANGES_ALL}");
    document_root(&[
        ("index.php", &script),
        ("later.php", "<?php class Later { public $context; }"),
    ])
}

/// Asks copies of an application, which all see the same of what they change.
fn endure_changes(how: &str) {
    let root = changing();
    let setup = booted(root.path(), "snapshot", "index.php")
        .pool(&format!("php_admin_value.sys_temp_dir = {:?}", root.path()))
        .pool(how);
    let first = OnceLock::new();
    endure(setup.workers(2), 4, &|mut answer| {
        let seen = answer["before"].as_object_mut().expect("an object");
        // Two requests run at once.
        seen.remove("files");
        assert_eq!(seen["global"], "booted");
        assert_eq!(seen, first.get_or_init(|| seen.clone()));
    });
    let all = std::fs::read_dir(root.path()).expect("the folder is there").flatten();
    let mut names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(names.find(|name| name.starts_with("snapshot-")), None);
}

#[test]
fn copies_that_end_leave_nothing() {
    endure_changes("requests_per_child = 1");
}

#[test]
fn copies_that_go_back_leave_nothing() {
    endure_changes("rewinds_per_child = 1000");
}

const WORKER: &str = r#"<?php
$times = 0;
$handle = function () use (&$times) {
    $seen = [$_GET['n'] ?? null, count($_GET), $_POST, $_COOKIE, $_FILES, headers_list(),
        http_response_code(),
        ob_get_level(), isset($_SERVER['LATER']), session_status(), error_get_last()];
    $_GET['later'] = $_POST['later'] = $_COOKIE['later'] = $_SERVER['LATER'] = str_repeat('x',
        10000);
    header('X-Later: 1'); header('Set-Cookie: a=b'); ob_start(); ob_start();
    $open = tmpfile(); fwrite($open, str_repeat('x', 100000));
    echo json_encode(['seen' => $seen, 'times' => ++$times, 'memory' => memory_get_usage()]);
};
while (frankenphp_handle_request($handle)) { gc_collect_cycles(); }
"#;

#[test]
fn workers_reset_what_is_a_requests_and_grow_by_nothing() {
    let root = document_root(&[("index.php", WORKER)]);
    let setup = booted(root.path(), "worker", "index.php");
    let first = OnceLock::new();
    endure(setup.workers(2), 2, &|mut answer| {
        let seen = answer["seen"].as_array_mut().unwrap();
        assert!(seen.remove(0).is_string(), "{seen:?}");
        assert_eq!(seen, first.get_or_init(|| seen.clone()));
        assert_eq!((&seen[0], &seen[1]), (&2.into(), &Value::Array(Vec::new())));
        assert!(answer["memory"].as_u64() < Some(4 << 20), "{answer}");
    });
}
