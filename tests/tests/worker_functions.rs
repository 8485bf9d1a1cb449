//! FrankenPHP's functions in a worker script, beside `frankenphp_handle_request()`, and in which
//! modes there are any.

use std::fs;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::server::{Server, Setup, document_root, write_file};
use maitred_tests::{booted, wait};
use tempfile::TempDir;

/// `/finish` answers and goes on until there is a file `go`; what it does then is written to
/// `told`.
const WORKER: &str = r#"<?php
function finish() {
    header('X-Finished: 1');
    echo 'early';
    $finished = frankenphp_finish_request();
    for ($i = 0; $i < 5000 && !file_exists(__DIR__ . '/go'); $i++) { clearstatcache();
    usleep(2000); }
    echo 'late';
    file_put_contents(__DIR__ . '/told', json_encode([$finished, frankenphp_finish_request()]));
}
function hint() {
    header('Link: </style.css>; rel=preload; as=style');
    echo json_encode([headers_send(103), headers_sent()]);
}
function logs() {
    frankenphp_log('logged by the script', FRANKENPHP_LOG_LEVEL_WARN, ['who' => 'a visitor', 'path'
        => '/a']);
    frankenphp_log('without more');
    echo 'logged';
}
$handle = function () { $name = ltrim($_SERVER['REQUEST_URI'], '/');
$name === '' ? print('free') : $name(); };
while (frankenphp_handle_request($handle)) { }
"#;

fn start() -> (TempDir, Server) {
    let (root, setup) = booted::worker(&[("index.php", WORKER)]);
    (root, setup.start())
}

#[test]
fn a_finished_answer_leaves_and_what_is_said_after_it_reaches_nobody() {
    let (root, server) = start();
    let told = root.path().join("told");
    for _ in 0..2 {
        let mut connection = Connection::open(server.address());
        let answer = connection.ask(&Request::get("/finish")).unwrap();
        assert_eq!((answer.status, answer.text()), (200, "early".into()));
        assert!(!told.exists(), "the script still waits");
        fs::write(root.path().join("go"), "").unwrap();
        wait::until_true("the script to go on", || {
            fs::read_to_string(&told).is_ok_and(|text| text == "[true,false]")
        });
        let next = connection.ask(&Request::get("/")).unwrap();
        assert_eq!((next.header("X-Finished"), next.text()), (None, "free".into()));
        fs::remove_file(&told).unwrap();
        fs::remove_file(root.path().join("go")).unwrap();
    }
    server.stop();
}

#[test]
fn hints_leave_before_the_answer_and_are_not_those_of_the_next() {
    let (_root, server) = start();
    let mut connection = Connection::open(server.address());
    for _ in 0..2 {
        connection.send(&Request::get("/hint").to_bytes()).unwrap();
        let hints = connection.read_until(b"\r\n\r\n").unwrap();
        assert_eq!(
            String::from_utf8_lossy(&hints),
            "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style"
        );
        let answer = connection.read_response(false).unwrap();
        assert_eq!((answer.status, answer.text()), (200, "[1,false]".into()));
        let next = connection.ask(&Request::get("/")).unwrap();
        assert_eq!((next.header("Link"), next.text()), (None, "free".into()));
    }
    drop(connection);
    server.stop();
}

#[test]
fn what_the_script_logs_is_in_the_log_with_its_context() {
    let (_root, server) = start();
    assert_eq!(http::get(server.address(), "/logs").text(), "logged");
    server.expect_log(0, r#"logged by the script {"who":"a visitor","path":"/a"}"#);
    server.expect_log(0, "without more");
    server.stop();
}

/// Every function that stands for a mode, the one constant that does, and one that all modes have.
const ASKS: &str = "<?php
$names = ['frankenphp_handle_request', 'frankenphp_finish_request', 'frankenphp_request_headers',
    'frankenphp_response_headers', 'frankenphp_log', 'maitred_snapshot'];
$there = array_filter($names, 'function_exists');
if (defined('FRANKENPHP_LOG_LEVEL_INFO')) { $there[] = 'levels'; }
if (function_exists('apache_response_headers')) { $there[] = 'headers'; }
$all = ['getallheaders', 'headers_send', 'fastcgi_finish_request'];
echo count(array_filter($all, 'function_exists')), ':', implode(' ', $there);";

const OF_WORKERS: &str = "frankenphp_handle_request frankenphp_finish_request \
    frankenphp_request_headers frankenphp_response_headers frankenphp_log";

#[test]
fn an_application_that_asks_for_worker_mode_finds_none_in_a_classic_pool() {
    let root = document_root(&[(
        "index.php",
        "<?php if (function_exists('frankenphp_handle_request')) {
            while (frankenphp_handle_request(fn () => print 'worker')) { }
        } else { echo 'classic'; }",
    )]);
    write_file(root.path(), "asks.php", ASKS.as_bytes());
    let server = Setup::new(root.path()).start();
    assert_eq!(http::get(server.address(), "/").text(), "classic");
    assert_eq!(http::get(server.address(), "/asks.php").text(), "3:");
    server.stop();
}

#[test]
fn each_mode_has_the_functions_that_do_something_in_it() {
    let handle = format!("{ASKS} }};\nwhile (frankenphp_handle_request($handle)) {{ }}",);
    let script = handle.replacen("<?php", "<?php $handle = function () {", 1);
    let (root, setup) = booted::worker(&[("index.php", &script)]);
    let server = setup.start();
    let said = http::get(server.address(), "/").text();
    assert_eq!(said, format!("3:{OF_WORKERS} levels headers"));
    server.stop();
    drop(root);

    let root = booted::application("", ASKS.trim_start_matches("<?php"));
    let server = booted::snapshot(root.path()).start();
    let said = http::get(server.address(), "/").text();
    assert_eq!(said, format!("3:{OF_WORKERS} maitred_snapshot levels headers"));
    server.stop();
}

const NAMED: &str = "echo PHP_SAPI, ' ', php_sapi_name(), ' ', \
    opcache_get_status(false)['opcache_enabled'] ? 'cached' : 'compiled';";

#[test]
fn scripts_that_are_booted_see_the_name_of_the_server_api_that_their_pool_sets() {
    let handle = format!(
        "<?php $handle = function () {{ {NAMED} }};
        while (frankenphp_handle_request($handle)) {{ }}"
    );
    for name in ["frankenphp", "cli-server"] {
        let (root, setup) = booted::worker(&[("index.php", &handle)]);
        let server = setup.pool(&format!("sapi_name = {name:?}")).start();
        assert_eq!(http::get(server.address(), "/").text(), format!("{name} {name} cached"));
        server.stop();
        drop(root);
    }
    let root = booted::application("", NAMED);
    let server = booted::snapshot(root.path()).pool("sapi_name = \"frankenphp\"").start();
    assert_eq!(http::get(server.address(), "/").text(), "frankenphp frankenphp cached");
    server.stop();
    let server = Setup::new(root.path()).pool("sapi_name = \"frankenphp\"").start();
    assert_eq!(http::get(server.address(), "/").text(), "fpm-fcgi fpm-fcgi cached");
    server.stop();
}
