//! `mode = "snapshot"`: an application is booted once, and every request is served by a copy of that.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::http::{self, Request};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use serde_json::Value;
use tempfile::TempDir;

/// How long something may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A document root whose `index.php` boots with `boot`, and serves with `serve`.
fn application(boot: &str, serve: &str) -> TempDir {
    let script = format!(
        "<?php\n{boot}\nif (function_exists('maitred_snapshot')) {{ maitred_snapshot(); }}\n{serve}\n"
    );
    let root = document_root(&[("index.php", &script)]);
    give_to_web_user(root.path());
    root
}

fn snapshot(root: &Path) -> Setup {
    let script = root.join("index.php");
    Setup::new(root)
        .pool("mode = \"snapshot\"")
        .pool(&format!("script = {script:?}"))
        .site("front_controller = \"/index.php\"")
}

fn ask(server: &Server, request: &Request) -> Value {
    let answer = http::ask(server.address(), request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn get(server: &Server, target: &str) -> Value {
    ask(server, &Request::get(target))
}

#[test]
fn an_application_is_booted_once_and_each_request_gets_a_process_of_its_own() {
    let root = application(
        "file_put_contents(__DIR__ . '/boots', 'x', FILE_APPEND);
         $booted_in = getmypid();
         class Counter { public static int $value = 0; }
         function count_up() { static $n = 0; return ++$n; }
         $count = 0;",
        "echo json_encode(['boot' => $booted_in, 'pid' => getmypid(), 'global' => ++$count,
             'static' => count_up(), 'property' => ++Counter::$value, 'path' => $_SERVER['REQUEST_URI']]);",
    );
    let server = snapshot(root.path()).workers(3).start();
    let mut processes = HashSet::new();
    for n in 0..20 {
        let path = format!("/page/{n}?a=b");
        let seen = get(&server, &path);
        assert_eq!(seen["path"], path);
        for count in ["global", "static", "property"] {
            assert_eq!(seen[count], 1, "{seen}");
        }
        assert_ne!(seen["pid"], seen["boot"]);
        assert!(processes.insert(seen["pid"].as_i64()), "{seen}");
    }
    assert_eq!(fs::read(root.path().join("boots")).unwrap(), b"x");
    server.wait_for_full_strength(5, PATIENCE);
    server.stop();
}

/// All that a script can change and see, before it changes it and sees it again.
const CHANGES_ALL: &str = r#"
function state(): array {
    return [
        'global' => $GLOBALS['kept'] ?? null,
        'static' => (function () { static $n = 0; return $n; })(),
        'constants' => defined('LATER'),
        'ini' => ini_get('precision') . ini_get('date.timezone') . ini_get('memory_limit'),
        'error_reporting' => error_reporting(),
        'error_handler' => get_debug_type(set_error_handler(null)),
        'levels' => ob_get_level(),
        'locale' => setlocale(LC_ALL, 0),
        'cwd' => getcwd(),
        'umask' => umask(),
        'env' => getenv('LATER'),
        'included' => get_included_files(),
        'classes' => class_exists('Later', false),
        'autoload' => count(spl_autoload_functions()),
        'wrappers' => in_array('later', stream_get_wrappers()),
        'session' => session_status() . session_id(),
        'headers' => headers_list(),
        'error' => error_get_last(),
        'files' => glob(sys_get_temp_dir() . '/snapshot-*'),
        'open' => count(scandir('/proc/self/fd')),
        'status' => http_response_code(),
        'abort' => ignore_user_abort(),
        'limit' => ini_get('max_execution_time'),
        'regex' => preg_last_error(),
        'zone' => date_default_timezone_get(),
        'encoding' => mb_internal_encoding(),
        'gc' => gc_enabled(),
        'assert' => ini_get('zend.assertions'),
        'libxml' => libxml_use_internal_errors(),
        'tok' => strtok("\n"),
    ];
}
$before = state();
$kept = 'mine';
const LATER = 1;
ini_set('precision', '5'); ini_set('memory_limit', '99M'); ini_set('date.timezone', 'Asia/Tokyo');
error_reporting(0); set_error_handler(fn() => true); set_exception_handler(fn() => null);
setlocale(LC_ALL, 'C.UTF-8'); chdir('/'); umask(0); putenv('LATER=1');
$open = tmpfile(); $temporary = tempnam(sys_get_temp_dir(), 'snapshot-');
register_shutdown_function(function () use ($temporary) { unlink($temporary); });
require $_SERVER['DOCUMENT_ROOT'] . '/later.php';
spl_autoload_register(fn() => null); stream_wrapper_register('later', 'Later');
header('X-Later: 1'); http_response_code(201); header('Set-Cookie: a=b');
ignore_user_abort(true); set_time_limit(3); @preg_match('/(/', ''); @trigger_error('mine');
date_default_timezone_set('Europe/Paris'); mb_internal_encoding('ISO-8859-1'); gc_disable();
libxml_use_internal_errors(true); strtok("a\nb", "\n");
$_SERVER['LATER'] = $_GET['later'] = $_POST['later'] = $_COOKIE['later'] = $_ENV['LATER'] = 1;
ob_start(); http_response_code(200);
echo json_encode(['before' => $before, 'later' => isset($_GET['b'])]);
"#;

#[test]
fn no_request_sees_anything_of_another() {
    let root = application("$kept = 'booted'; $first = 1;", CHANGES_ALL);
    fs::write(
        root.path().join("later.php"),
        "<?php class Later { public $context; }",
    )
    .unwrap();
    let server = snapshot(root.path()).workers(2).start();
    let first = get(&server, "/");
    assert_eq!(first["before"]["global"], "booted");
    for _ in 0..6 {
        assert_eq!(get(&server, "/"), first);
    }
    server.stop();
}

#[test]
fn what_belongs_to_a_request_is_that_of_the_copy() {
    let root = application(
        "$booted = [$_SERVER['REQUEST_TIME_FLOAT'], $_GET, $_POST, $_COOKIE, $_REQUEST, $_ENV, $_FILES];
         mt_srand(7); $drawn = [mt_rand(), lcg_value(), rand(), uniqid('', true)];
         function uri() { return $_SERVER['REQUEST_URI']; }
         uri(); header('X-Boot: kept'); echo 'printed at boot'; str_repeat('x', 30 << 20);",
        "usleep(1000);
         echo json_encode(['uri' => uri(), 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE,
             'request' => $_REQUEST, 'method' => $_SERVER['REQUEST_METHOD'],
             'body' => file_get_contents('php://input'),
             'files' => array_map(fn($file) => file_get_contents($file['tmp_name']), $_FILES),
             'headers' => getallheaders()['X-Mine'] ?? null,
             'age' => microtime(true) - $_SERVER['REQUEST_TIME_FLOAT'],
             'peak' => memory_get_peak_usage(), 'query' => $_SERVER['QUERY_STRING'],
             'user' => $_SERVER['PHP_AUTH_USER'] ?? null,
             'drawn' => [mt_rand(), lcg_value(), rand(), uniqid('', true), random_int(0, PHP_INT_MAX)]]);",
    );
    let server = snapshot(root.path()).workers(2).start();
    let form = "application/x-www-form-urlencoded";
    let request = Request::post("/a/b?x=1", form, b"y=2")
        .header("Cookie", "z=3")
        .header("X-Mine", "yes")
        .header("Authorization", "Basic bWU6cGFzcw==");
    let answer = http::ask(server.address(), &request);
    assert_eq!(answer.header("X-Boot"), Some("kept"), "{}", answer.text());
    let seen = answer.json();
    assert_eq!(seen["uri"], "/a/b?x=1");
    assert_eq!(seen["method"], "POST");
    assert_eq!(seen["get"], serde_json::json!({"x": "1"}));
    assert_eq!(seen["post"], serde_json::json!({"y": "2"}));
    assert_eq!(seen["cookie"], serde_json::json!({"z": "3"}));
    assert_eq!(seen["request"], serde_json::json!({"x": "1", "y": "2"}));
    assert_eq!(seen["body"], "y=2");
    assert_eq!(seen["query"], "x=1");
    assert_eq!(seen["headers"], "yes");
    assert_eq!(seen["user"], "me");
    assert!(seen["peak"].as_u64().unwrap() < 20 << 20, "{seen}");
    let age = seen["age"].as_f64().unwrap();
    assert!((0.0..60.0).contains(&age), "{seen}");
    let parts = b"--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.txt\"\r\n\
        Content-Type: text/plain\r\n\r\nuploaded\r\n--B--\r\n";
    let upload = Request::post("/up", "multipart/form-data; boundary=B", parts);
    assert_eq!(ask(&server, &upload)["files"]["f"], "uploaded");
    let mut drawn = HashSet::new();
    for _ in 0..6 {
        let seen = get(&server, "/");
        for number in seen["drawn"].as_array().unwrap() {
            assert!(drawn.insert(number.to_string()), "{seen}");
        }
    }
    server.stop();
}
