//! `mode = "worker"`: a script is booted once in each worker and asks for requests.

use std::path::Path;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, write_file};
use maitred_tests::wait;
use tempfile::TempDir;

/// Longest that anything may take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The application: `index.php` is what requests ask for, and never runs.
const WORKER: &str = r#"<?php
echo 'printed at boot';
$GLOBALS['boot'] = ['pid' => getmypid(), 'server' => $_SERVER, 'env' => $_ENV, 'count' => 0];
final class Kept { public static array $seen = []; }
register_shutdown_function(function () { file_put_contents(__DIR__ . '/ends', "shutdown\n",
    FILE_APPEND); });
final class Farewell {
    public function __destruct() { file_put_contents(__DIR__ . '/ends', "destructor\n",
        FILE_APPEND); }
}
$farewell = new Farewell();
$handle = function () {
    $GLOBALS['boot']['count']++;
    $path = strtok($_SERVER['REQUEST_URI'], '?');
    require __DIR__ . '/handlers' . $path . '.php';
};
while (frankenphp_handle_request($handle)) {
    echo 'output between two requests is lost';
    header('X-Absent: 1');
    if (file_exists(__DIR__ . '/linger')) { usleep(200_000); }
}
file_put_contents(__DIR__ . '/ends', "loop\n", FILE_APPEND);
"#;

fn application(handlers: &[(&str, &str)]) -> TempDir {
    let root = document_root(&[("index.php", "<?php echo 'not run';"), ("worker.php", WORKER)]);
    for (name, source) in handlers {
        write_file(root.path(), &format!("handlers/{name}.php"), source.as_bytes());
    }
    // It writes down how it ends.
    give_to_web_user(root.path());
    root
}

fn setup(root: &Path) -> Setup {
    let script = root.join("worker.php");
    Setup::new(root)
        .workers(1)
        .pool("mode = \"worker\"")
        .pool(&format!("script = {:?}", script.display().to_string()))
}

fn ask(server: &Server, target: &str) -> Response {
    http::get(server.address(), target)
}

fn ends(root: &Path) -> String {
    std::fs::read_to_string(root.join("ends")).unwrap_or_default()
}

const STATE: &str = r#"<?php
$again = static function () { static $times = 0; return ++$times; };
header('Content-Type: application/json');
Kept::$seen[] = $_GET['name'] ?? '';
echo json_encode([
    'pid' => getmypid(), 'booted' => $GLOBALS['boot']['pid'], 'count' => $GLOBALS['boot']['count'],
    'seen' => Kept::$seen, 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE, 'files'
        => $_FILES,
    'request' => $_REQUEST, 'body' => file_get_contents('php://input'),
    'worker' => $_SERVER['FRANKENPHP_WORKER'] ?? null, 'file' => $_SERVER['SCRIPT_FILENAME'],
    'self' => $_SERVER['PHP_SELF'], 'uri' => $_SERVER['REQUEST_URI'], 'method'
        => $_SERVER['REQUEST_METHOD'],
    'header' => $_SERVER['HTTP_X_ONE'] ?? null, 'auth' => $_SERVER['PHP_AUTH_USER'] ?? null,
    'age' => microtime(true) - $_SERVER['REQUEST_TIME_FLOAT'],
    'filtered' => filter_input(INPUT_GET, 'name'),
    'boot_file' => $GLOBALS['boot']['server']['SCRIPT_FILENAME'],
    'boot_worker' => $GLOBALS['boot']['server']['FRANKENPHP_WORKER'] ?? null,
    'env' => getenv('PLACE'), 'server_env' => $_SERVER['PLACE'] ?? null,
    'abort' => ignore_user_abort(), 'sapi' => PHP_SAPI,
    'headers' => array_change_key_case(getallheaders())
        === array_change_key_case(frankenphp_request_headers()),
    'sent' => frankenphp_response_headers(), 'buffers' => ob_get_level(),
]);
"#;

#[test]
fn one_boot_serves_many_requests_each_with_its_own_variables() {
    let root = application(&[("state", STATE)]);
    let server = setup(root.path()).pool("env = { PLACE = \"here\" }").start();
    let mut connection = Connection::open(server.address());
    let first = Request::get("/state?name=one")
        .header("X-One", "1")
        .header("Cookie", "a=b")
        .header("Authorization", "Basic am9lOnNlY3JldA==");
    let first = connection.ask(&first).unwrap().json();
    assert_eq!(first["count"], 1);
    assert_eq!(first["pid"], first["booted"]);
    assert_eq!(first["get"]["name"], "one");
    assert_eq!(first["filtered"], "one");
    assert_eq!(first["cookie"]["a"], "b");
    assert_eq!(first["header"], "1");
    assert_eq!(first["auth"], "joe");
    assert_eq!(first["worker"], "1");
    assert_eq!(first["boot_worker"], "1");
    assert_eq!(first["file"], root.path().join("index.php").to_str().unwrap());
    assert_eq!(first["boot_file"], root.path().join("worker.php").to_str().unwrap());
    assert_eq!(first["env"], "here");
    assert_eq!(first["server_env"], "here");
    assert_eq!(first["abort"], 1);
    assert_eq!(first["sapi"], "fpm-fcgi");
    assert_eq!(first["headers"], true);
    assert_eq!(first["sent"]["Content-Type"], "application/json");
    assert!(first["sent"].get("X-Absent").is_none());

    let form = "application/x-www-form-urlencoded";
    let posted = Request::post("/state?name=two", form, b"c=d&e=f");
    let posted = connection.ask(&posted).unwrap().json();
    assert_eq!(posted["count"], 2);
    assert_eq!(posted["pid"], first["pid"]);
    assert_eq!(posted["post"]["c"], "d");
    assert_eq!(posted["body"], "c=d&e=f");
    assert_eq!(posted["request"]["name"], "two");
    assert_eq!(posted["request"]["e"], "f");
    assert_eq!(posted["cookie"].as_array().map(Vec::len), Some(0), "{posted}");
    assert!(posted["header"].is_null() && posted["auth"].is_null(), "{posted}");
    assert_eq!(posted["seen"], serde_json::json!(["one", "two"]), "what is static is kept");

    let upload = "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"n\"\r\n\r\n\
                  bytes\r\n--x--\r\n";
    let upload = Request::post("/state", "multipart/form-data; boundary=x", upload.as_bytes());
    let upload = connection.ask(&upload).unwrap().json();
    assert_eq!(upload["files"]["f"]["size"], 5);
    assert!(!Path::new(upload["files"]["f"]["tmp_name"].as_str().unwrap()).exists());

    let last = connection.ask(&Request::get("/state")).unwrap();
    let last = last.json();
    for empty in ["get", "post", "cookie", "files", "request"] {
        assert_eq!(last[empty].as_array().map(Vec::len), Some(0), "{empty}: {last}");
    }
    assert_eq!(last["body"], "");
    assert!(last["filtered"].is_null());
    assert!(last["age"].as_f64().unwrap() < LONG.as_secs_f64());
    assert_eq!(last["count"], 4);
    let worker = server.workers();
    worker.first().expect("a worker runs").signal(Signal::TERM);
    wait::until_within("the script to come to its end", LONG, || {
        (ends(root.path()) == "loop\nshutdown\ndestructor\n").then_some(())
    });
    let next = connection.ask(&Request::get("/state")).unwrap();
    assert_eq!(next.json()["count"], 1, "another worker has booted");
    drop(connection);
    server.stop();
}

const SESSION: &str = r#"<?php
session_start();
$_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
echo $_SESSION['n'];
"#;

const PEEK: &str = "<?php echo isset($_SESSION) ? 'seen' : 'none', session_status(), session_id(), \
                    defined('SID') ? SID : '';";

#[test]
fn a_session_is_seen_by_nobody_else() {
    let root = application(&[("session", SESSION), ("peek", PEEK)]);
    let sessions = tempfile::tempdir().unwrap();
    let path = sessions.path();
    let ini =
        format!("php_value = {{ session.save_path = {path:?}, session.use_only_cookies = \"0\" }}");
    give_to_web_user(path);
    let server = setup(root.path()).pool(&ini).start();
    let first = ask(&server, "/session");
    assert_eq!(first.text(), "1");
    let cookie = first.header("Set-Cookie").unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(ask(&server, "/peek").text(), "none1");
    assert_eq!(ask(&server, "/session").text(), "1", "another visitor");
    let again = Request::get("/session").header("Cookie", &cookie);
    assert_eq!(http::ask(server.address(), &again).text(), "2");
    server.stop();
}

#[test]
fn exit_answers_with_what_it_left_and_errors_are_a_500() {
    let root = application(&[
        ("state", STATE),
        ("exit", "<?php http_response_code(404); echo 'left'; exit(3);"),
        ("fatal", "<?php echo str_repeat('x', 1 << 30);"),
        ("throw", "<?php throw new RuntimeException('thrown by the handler');"),
        (
            "nested",
            "<?php try { frankenphp_handle_request(fn () => 1); } \
          catch (RuntimeException $e) { echo $e->getMessage(); }",
        ),
        ("segfault", "<?php posix_kill(getmypid(), 11);"),
        ("slow", "<?php set_time_limit(1); while (true) { }"),
    ]);
    let server = setup(root.path())
        .pool("php_admin_value = { memory_limit = \"32M\", display_errors = false }")
        .start();
    let pid = |server: &Server| ask(server, "/state").json()["pid"].as_i64().unwrap();
    let before = pid(&server);
    let thrown = ask(&server, "/throw");
    assert_eq!(thrown.status, 500);
    assert_eq!(pid(&server), before, "an exception ends no worker");
    server.expect_log(0, "thrown by the handler");
    assert!(ask(&server, "/nested").text().contains("while a request is handled"));
    let left = ask(&server, "/exit");
    assert_eq!((left.status, left.text().as_str()), (404, "left"));
    let after_exit = pid(&server);
    assert_ne!(after_exit, before, "exit ends the worker");
    assert_eq!(ask(&server, "/fatal").status, 500);
    let after_fatal = pid(&server);
    assert_ne!(after_fatal, after_exit, "a fatal error ends the worker");
    assert_eq!(ask(&server, "/slow").status, 500);
    assert_eq!(ask(&server, "/segfault").status, 502);
    assert_ne!(pid(&server), after_fatal);
    server.stop();
}

#[test]
fn what_a_script_does_between_two_requests_keeps_no_client_waiting() {
    let root = application(&[("state", STATE)]);
    let server = setup(root.path()).start();
    write_file(root.path(), "linger", b"");
    let mut connection = Connection::open(server.address());
    for count in 1..=3 {
        let answer = connection.ask(&Request::get("/state")).unwrap().json();
        assert_eq!(answer["count"], count);
    }
    drop(connection);
    server.stop();
}

#[test]
fn a_worker_that_has_served_enough_is_replaced_by_one_that_has_booted() {
    let root = application(&[("state", STATE)]);
    let server = setup(root.path()).pool("max_requests = 5").start();
    let mut connection = Connection::open(server.address());
    let mut pids = std::collections::BTreeSet::new();
    for _ in 0..23 {
        let answer = connection.ask(&Request::get("/state")).unwrap();
        assert_eq!(answer.status, 200);
        let answer = answer.json();
        assert!(answer["count"].as_i64().unwrap() <= 5);
        pids.insert(answer["pid"].as_i64().unwrap());
    }
    assert!(pids.len() >= 5, "{pids:?}");
    drop(connection);
    server.stop();
}

#[test]
fn a_script_that_does_not_boot_is_told_and_tried_again_until_it_does() {
    let root = application(&[("state", STATE)]);
    let worker = root.path().join("worker.php");
    write_file(root.path(), "worker.php", b"<?php echo 'no database'; throw new Exception('why');");
    let server = setup(root.path()).pool("request_queue_timeout = \"200ms\"").start();
    server.expect_log(0, "it printed: no database");
    server.expect_log(0, "before its script had booted");
    assert_eq!(ask(&server, "/state").status, 503);
    std::fs::write(&worker, WORKER).unwrap();
    wait::until_within("the script to boot", LONG, || {
        (ask(&server, "/state").status == 200).then_some(())
    });
    server.stop();
}

#[test]
fn a_look_that_fails_between_two_requests_ends_the_script_and_is_told() {
    let root = application(&[("state", STATE)]);
    write_file(
        root.path(),
        "worker.php",
        b"<?php namespace maitred\\leaks;
        function look() { throw new \\Exception('nothing can be seen'); }
        while (\\frankenphp_handle_request(fn () => print 'served')) { }",
    );
    let server = setup(root.path()).pool("request_queue_timeout = \"200ms\"").start();
    server.expect_log(0, "nothing can be seen");
    server.expect_log(0, "before its script had booted");
    assert_eq!(ask(&server, "/state").status, 503);
    server.stop();
}

#[test]
fn a_reload_waits_for_the_boot_and_one_that_fails_keeps_the_application_that_works() {
    let root = application(&[("state", STATE)]);
    let server = setup(root.path()).start();
    let pid = |server: &Server| ask(server, "/state").json()["pid"].as_i64().unwrap();
    let before = pid(&server);
    write_file(root.path(), "worker.php", b"<?php exit('not today');");
    server.configure(&setup(root.path()).pool("env = { GENERATION = \"1\" }"));
    let mark = server.log().mark();
    server.signal(Signal::HUP);
    server.expect_log(mark, "its script does not boot");
    assert_eq!(pid(&server), before);
    let slow = WORKER.replace("<?php\n", "<?php usleep(500_000);\n");
    write_file(root.path(), "worker.php", slow.as_bytes());
    server.configure(&setup(root.path()).pool("env = { GENERATION = \"2\" }"));
    let mark = server.log().mark();
    server.signal(Signal::HUP);
    let mut last = before;
    let mut connection = Connection::open(server.address());
    wait::until_within("the new application to answer", LONG, || {
        let answer = connection.ask(&Request::get("/state")).unwrap();
        assert_eq!(answer.status, 200);
        last = answer.json()["pid"].as_i64().unwrap();
        (last != before).then_some(())
    });
    server.expect_log(mark, "reloaded");
    drop(connection);
    server.stop();
}

#[test]
fn a_boot_that_takes_too_long_is_ended() {
    let root = application(&[("state", STATE)]);
    write_file(root.path(), "worker.php", b"<?php while (true) { usleep(1000); }");
    let server = setup(root.path())
        .pool("boot_timeout = \"300ms\"")
        .pool("request_queue_timeout = \"100ms\"")
        .start();
    server.expect_log(0, "its script has not booted in 0.3 s");
    assert_eq!(ask(&server, "/state").status, 503);
    server.stop();
}

#[test]
fn opcache_is_not_emptied_under_workers_and_the_script_is_told_what_to_do() {
    let root = application(&[(
        "reset",
        "<?php $reset = opcache_reset(); echo json_encode([$reset, error_get_last()['message']]);",
    )]);
    let server = setup(root.path()).start();
    let answer = ask(&server, "/reset").json();
    assert_eq!(answer[0], false);
    assert!(answer[1].as_str().unwrap().contains("maitred reload"), "{answer}");
    server.stop();
}

#[test]
fn limits_the_slow_log_and_the_status_page_work_as_in_a_classic_pool() {
    let root = application(&[
        ("state", STATE),
        ("sleep", "<?php function naps() { sleep(60); } naps();"),
        ("doze", "<?php function dozes() { usleep(1_000_000); } dozes(); echo 'awake';"),
        ("hoard", "<?php $GLOBALS['kept'][] = str_repeat('x', 8 << 20); echo getmypid();"),
    ]);
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("slow.log");
    let server = setup(root.path())
        .pool("request_terminate_timeout = \"6s\"")
        .pool("request_slowlog_timeout = \"300ms\"")
        .pool(&format!("slowlog = {log:?}"))
        .pool("status_path = \"/status\"")
        .pool("max_private_memory = \"64M\"")
        // Room for the requests between two looks at the exact figure.
        .pool("php_admin_value.memory_limit = \"512M\"")
        .start();
    assert_eq!(ask(&server, "/doze").text(), "awake");
    let stack = wait::until_within("the slow log", LONG, || {
        std::fs::read_to_string(&log).ok().filter(|text| text.contains("dozes()"))
    });
    assert!(stack.contains("frankenphp_handle_request()"), "{stack}");
    assert!(stack.contains("index.php"), "the script that was asked for: {stack}");
    assert_eq!(ask(&server, "/sleep").status, 504);
    wait::until_within("another worker", LONG, || {
        (ask(&server, "/state").status == 200).then_some(())
    });
    let status = ask(&server, "/status?json&full").json();
    assert_eq!(status["processes"][0]["request uri"], "/state");
    let first = ask(&server, "/hoard").text();
    wait::until_within("the hoarder to be replaced", LONG, || {
        let answer = ask(&server, "/hoard");
        assert_eq!(answer.status, 200);
        (answer.text() != first).then_some(())
    });
    server.stop();
}

#[test]
fn what_is_coded_for_one_client_is_not_for_the_next() {
    let root =
        application(&[("coded", "<?php ob_start('ob_gzhandler'); echo str_repeat('plain ', 99);")]);
    let server = setup(root.path()).start();
    let gzip = Request::get("/coded").header("Accept-Encoding", "gzip");
    let coded = http::ask(server.address(), &gzip);
    assert_eq!(coded.header("Content-Encoding"), Some("gzip"));
    let plain = ask(&server, "/coded");
    assert_eq!(plain.header("Content-Encoding"), None);
    assert!(plain.text().starts_with("plain plain"));
    server.stop();
}

#[test]
fn classic_paths_start_from_nothing_in_another_pool() {
    let root = application(&[("state", STATE)]);
    let classic =
        "<?php echo 'classic ', isset($_SERVER['FRANKENPHP_WORKER']) ? 'worker' : 'fresh';";
    write_file(root.path(), "xmlrpc.php", classic.as_bytes());
    write_file(root.path(), "wp-admin/index.php", classic.as_bytes());
    let server = setup(root.path())
        .pool("[pools.classic]")
        .pool("pm = \"static\"\nmax_children = 1")
        .site("classic_paths = [\"/xmlrpc.php\", \"/wp-admin/\"]")
        .site("classic_pool = \"classic\"")
        .start();
    for path in ["/xmlrpc.php", "/wp-admin/", "/wp-admin/index.php"] {
        assert_eq!(ask(&server, path).text(), "classic fresh", "{path}");
    }
    assert_eq!(ask(&server, "/state").json()["count"], 1);
    let asks = "<?php var_dump(function_exists('frankenphp_handle_request'));";
    write_file(root.path(), "wp-admin/index.php", asks.as_bytes());
    wait::until_within("the file to be looked at again", LONG, || {
        let said = ask(&server, "/wp-admin/").text();
        said.contains("bool(false)").then_some(())
    });
    server.stop();
}

#[test]
fn what_the_boot_has_changed_stays_and_what_a_child_does_is_not_its_parents() {
    let root = application(&[
        (
            "changed",
            "<?php echo ini_get('precision'), ' ', decoct(umask()), ' ', error_reporting();",
        ),
        (
            "fork",
            "<?php echo 'parent'; if (pcntl_fork() === 0) { echo 'child'; return; } \
             pcntl_wait($status);",
        ),
        ("state", STATE),
    ]);
    let boot = WORKER
        .replace("<?php\n", "<?php ini_set('precision', 5); umask(0027); error_reporting(1);\n");
    write_file(root.path(), "worker.php", boot.as_bytes());
    let server = setup(root.path()).start();
    for _ in 0..3 {
        assert_eq!(ask(&server, "/changed").text(), "5 27 1");
    }
    assert_eq!(ask(&server, "/fork").text(), "parent");
    assert_eq!(ask(&server, "/state").json()["count"], 5);
    server.stop();
}

#[test]
fn what_a_request_says_of_chance_and_of_its_time_is_not_the_next_ones() {
    let draws = "mt_rand(), ' ', rand(), ' ', lcg_value()";
    let root = application(&[
        (
            "seeds",
            &format!(
                "<?php mt_srand(7); set_time_limit(0); echo ini_get('max_execution_time'), ' ', \
                 {draws};"
            ),
        ),
        ("draws", &format!("<?php echo ini_get('max_execution_time'), ' ', {draws};")),
        ("spins", "<?php for ($at = microtime(true); microtime(true) - $at < 60;) { }"),
    ]);
    let server = setup(root.path()).pool("php_value = { max_execution_time = \"2\" }").start();
    let words = |target: &str| -> Vec<String> {
        let text = ask(&server, target).text();
        text.split(' ').map(str::to_owned).collect()
    };
    let (first, seen) = (words("/seeds"), words("/draws"));
    let (second, next) = (words("/seeds"), words("/draws"));
    assert_eq!((first[0].as_str(), seen[0].as_str()), ("0", "2"));
    assert_eq!(first[1], second[1], "the seed is the script's own");
    for at in 1..4 {
        assert_ne!(seen[at], next[at], "draw {at}");
    }
    words("/seeds");
    assert_eq!(ask(&server, "/spins").status, 500, "the limit is armed");
    server.stop();
}
