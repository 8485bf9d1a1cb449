//! What a worker script begins between two requests, and what the next one finds of it: nothing.

use std::fs;
use std::path::Path;

use maitred_tests::booted::{self, PATIENCE};
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::server::{Server, Setup, give_to_web_user, write_file};
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// What a request names in `then` is done after its answer; `begun` is there when that has been
/// done.
const WORKER: &str = r#"<?php
function session() { session_start(); $_SESSION['late'] = 'of ' . $_GET['who']; }
function buffer() {
    ob_start(function ($text) { file_put_contents(__DIR__ . '/called', 'x', FILE_APPEND);
    return "buffered $text"; });
}
function limits() { set_time_limit(0); ini_set('memory_limit', '-1'); }
function fields() { header('X-Absent: 1'); header_register_callback(fn ()
    => header('X-Absent: 2')); setcookie('a', 'b'); }
function rewriting() { output_add_rewrite_var('id', 'leaked'); }
function input() { file_get_contents('php://input'); $GLOBALS['kept'] = fopen('php://input', 'r'); }
final class Failing extends php_user_filter {
    public function onClose(): void { throw new RuntimeException('thrown by the filter'); }
}
function filter() {
    stream_filter_register('failing', Failing::class);
    $GLOBALS['kept'] = fopen('php://input', 'r');
    stream_filter_append($GLOBALS['kept'], 'failing');
}
final class Throws extends SessionHandler {
    public function write(string $id, string $data): bool {
        throw new RuntimeException('thrown by the store'); }
}
function store() { session_set_save_handler(new Throws(), false); session_start();
$_SESSION['n'] = 1; }
$handle = function () {
    $GLOBALS['then'] = $_GET['then'] ?? '';
    if (isset($_GET['limits'])) {
        echo ini_get('memory_limit'), ' ', ini_get('max_execution_time'); return; }
    while (isset($_GET['spins'])) { }
    $seen = isset($_SESSION) ? json_encode($_SESSION) : 'none';
    if (isset($_GET['session'])) { session_start(); $seen .= ' ' . ($_SESSION['late'] ?? 'new'); }
    echo $seen, '<form action="/page"></form>', getmypid(), ' ', count(get_resources('stream'));
};
while (frankenphp_handle_request($handle)) {
    if ($then) { $then(); touch(__DIR__ . '/begun'); }
}
"#;

fn worker() -> (TempDir, Setup) {
    booted::worker(&[("index.php", WORKER)])
}

/// Asks, and waits until what comes after the answer has been done.
fn ask_and_then(server: &Server, root: &Path, request: &Request) -> Response {
    let answer = http::ask(server.address(), request);
    let begun = root.join("begun");
    wait::until_within("the script to go on after its answer", PATIENCE, || {
        std::fs::remove_file(&begun).ok()
    });
    answer
}

fn seen(response: &Response) -> String {
    assert_eq!(response.status, 200, "{}", response.text());
    let text = response.text();
    let (seen, _) = text.split_once('<').expect("it is the page");
    seen.to_owned()
}

#[test]
fn a_session_that_is_begun_after_an_answer_is_written_and_nobody_waits_for_it_or_sees_it() {
    let sessions = tempfile::tempdir().unwrap();
    give_to_web_user(sessions.path());
    let path = format!("php_value = {{ session.save_path = {:?} }}", sessions.path());
    let (root, setup) = worker();
    let server = setup.workers(2).pool(&path).start();
    let first = http::get(server.address(), "/?session");
    assert_eq!(seen(&first), "none new");
    let cookie = first.header("Set-Cookie").unwrap().split(';').next();
    let cookie = cookie.unwrap().to_owned();
    let again = |target: &str| Request::get(target).header("Cookie", &cookie);
    for who in ["one", "two", "three"] {
        let later = again(&format!("/?then=session&who={who}"));
        assert_eq!(seen(&ask_and_then(&server, root.path(), &later)), "none", "{who}");
        for _ in 0..3 {
            assert_eq!(seen(&http::get(server.address(), "/")), "none", "another visitor");
        }
        // Whichever worker answers: the wait for the file ends when no worker holds it.
        for _ in 0..3 {
            let answer = http::ask(server.address(), &again("/?session"));
            assert_eq!(seen(&answer), format!("none of {who}"));
        }
    }
    server.stop();
}

#[test]
fn what_is_thrown_as_such_a_session_is_written_ends_the_script_and_is_told() {
    let (root, setup) = worker();
    let server = setup.start();
    let last = ask_and_then(&server, root.path(), &Request::get("/?then=store"));
    assert_eq!(seen(&last), "none");
    server.expect_log(0, "thrown by the store");
    assert_eq!(seen(&http::get(server.address(), "/")), "none", "another serves");
    server.stop();
}

#[test]
fn a_buffer_that_is_begun_after_an_answer_ends_before_anybody_asks() {
    let (root, setup) = worker();
    let server = setup.start();
    let called = root.path().join("called");
    for _ in 0..2 {
        ask_and_then(&server, root.path(), &Request::get("/?then=buffer"));
        wait::until_within("the buffer to end", PATIENCE, || std::fs::remove_file(&called).ok());
        let next = http::get(server.address(), "/");
        assert!(next.text().starts_with("none<form"), "{}", next.text());
        assert!(!called.exists(), "it is called once");
    }
    server.stop();
}

#[test]
fn header_fields_and_rewriting_that_are_begun_after_an_answer_are_in_no_other() {
    let (root, setup) = worker();
    let server = setup.start();
    for then in ["fields", "rewriting"] {
        let last = Request::get(&format!("/?then={then}"));
        ask_and_then(&server, root.path(), &last);
        let next = http::get(server.address(), "/");
        assert_eq!((next.header("X-Absent"), next.header("Set-Cookie")), (None, None));
        assert!(next.text().contains("<form action=\"/page\"></form>"), "{}", next.text());
    }
    server.stop();
}

#[test]
fn a_limit_that_is_changed_after_a_response_is_not_that_of_later_requests() {
    let (root, setup) = worker();
    let limits = "php_value = { memory_limit = \"32M\", max_execution_time = \"1\" }";
    let server = setup.pool(limits).start();
    for _ in 0..2 {
        assert_eq!(http::get(server.address(), "/?limits").text(), "32M 1");
        ask_and_then(&server, root.path(), &Request::get("/?then=limits"));
    }
    assert_eq!(http::get(server.address(), "/?limits").text(), "32M 1");
    assert_eq!(http::get(server.address(), "/?spins").status, 500);
    server.stop();
}

#[test]
fn a_body_that_is_asked_for_after_an_answer_leaves_nothing_behind() {
    let (root, setup) = worker();
    let server = setup.start();
    let text = |response: Response| response.text();
    let first = text(ask_and_then(&server, root.path(), &Request::get("/?then=input")));
    for _ in 0..4 {
        let next = ask_and_then(&server, root.path(), &Request::get("/?then=input"));
        assert_eq!(text(next), first, "as many streams of the same process");
    }
    server.stop();
}

#[test]
fn a_filter_on_a_body_that_is_asked_for_after_an_answer_fails_before_anybody_asks() {
    let (root, setup) = worker();
    let server = setup.start();
    let first = ask_and_then(&server, root.path(), &Request::get("/?then=filter"));
    let next = http::get(server.address(), "/");
    assert_eq!(seen(&next), "none");
    assert_ne!(next.text(), first.text(), "of another process");
    server.stop();
}

/// Hangs once before its next request, after requests that it has taken promptly: it looks idle.
const HANGING: &str = r#"<?php
$handle = function () { usleep(5_000); echo getmypid(); };
while (frankenphp_handle_request($handle)) {
    if (!@unlink(__DIR__ . '/hang')) { continue; }
    file_put_contents(__DIR__ . '/hanging', getmypid());
    for ($n = 0; $n < 300 && !@unlink(__DIR__ . '/wake'); $n++) { usleep(100_000); }
    touch(__DIR__ . '/awake');
}
"#;

/// A worker script whose requests register functions for its end.
const REGISTERING: &str = r#"<?php
function note(string $who): void
{
    file_put_contents(__DIR__ . '/ran', "$who ", FILE_APPEND);
    echo "by $who ";
    @header("X-By-$who: 1");
    @http_response_code(418);
}
final class Stores extends SessionHandler { }
final class Writes {
    public function __construct(private string $who) {}
    public function __destruct() { echo "destructor of {$this->who} "; }
}
register_shutdown_function(fn () => print('by the boot '));
$handle = function () {
    $who = $_GET['who'];
    if (isset($_GET['stores'])) {
        session_set_save_handler(new Stores(), $_GET['stores'] === 'registers');
    }
    if (isset($_GET['registers'])) {
        $GLOBALS['kept'][] = new Writes($who);
        register_shutdown_function(fn () => note($who));
    }
    echo "response ";
    match ($_GET['then'] ?? '') {
        'exit' => exit,
        'memory' => str_repeat('x', 1 << 30),
        default => null,
    };
};
while (frankenphp_handle_request($handle)) { }
"#;

#[test]
fn functions_of_earlier_requests_write_to_no_response_of_a_request_that_ends_the_script() {
    for then in ["exit", "memory"] {
        let (root, setup) = booted::worker(&[("index.php", REGISTERING)]);
        give_to_web_user(root.path());
        let server = setup.workers(1).start();
        let ask = |query: &str| http::ask(server.address(), &Request::get(&format!("/?{query}")));
        for who in ["Alice", "Carol"] {
            assert_eq!(ask(&format!("who={who}&registers")).text(), "response ");
        }
        let response = ask(&format!("who=Bob&registers&then={then}"));
        let text = response.text();
        assert!(text.contains("by the boot by Bob"), "{then}: {text}");
        // After a fatal error nothing holds what is printed first, and headers come too late.
        let header = (then == "exit").then_some("1");
        assert_eq!(response.header("X-By-Bob"), header, "{then}");
        for who in ["Alice", "Carol"] {
            assert!(!text.contains(who), "{then}: {text}");
            assert_eq!(response.header(&format!("X-By-{who}")), None, "{then}");
        }
        let ran = || fs::read_to_string(root.path().join("ran")).unwrap_or_default();
        wait::until_true("the functions of all", || ran() == "Bob Alice Carol ");
        // One that registers nothing ends the script as well.
        ask("who=Dave&registers");
        let response = ask(&format!("who=Eve&then={then}"));
        assert_eq!(response.status, if then == "exit" { 200 } else { 500 });
        assert!(!response.text().contains("Dave"), "{then}: {}", response.text());
        server.stop();
    }
}

#[test]
fn a_handler_of_sessions_that_is_replaced_leaves_no_function_that_is_called_at_the_end() {
    let (root, setup) = booted::worker(&[("index.php", REGISTERING)]);
    give_to_web_user(root.path());
    let server = setup.workers(1).start();
    let ask = |query: &str| http::ask(server.address(), &Request::get(&format!("/?{query}")));
    ask("who=Alice&stores=registers&registers");
    ask("who=Carol&registers");
    let text = ask("who=Bob&registers&stores=replaces&then=exit").text();
    assert!(text.contains("by Bob") && !text.contains("Alice"), "{text}");
    let ran = || fs::read_to_string(root.path().join("ran")).unwrap_or_default();
    wait::until_true("the functions of all", || ran() == "Bob Alice Carol ");
    assert!(ask("who=Dave").status == 200 && !server.log_text().contains("SIG"));
    // Destructors of earlier requests do not write either, without any such function.
    let response = ask("who=Eve&then=exit").text();
    assert!(response.contains("response") && !response.contains("Dave"), "{response}");
    server.stop();
}

/// A worker script whose requests leave a function and an object for its end. Each notes whose
/// variables it finds.
const NOTING: &str = r#"<?php
function note(string $of): void
{
    $found = $_GET['who'] ?? $_REQUEST['who'] ?? $_COOKIE['who'] ?? $_SERVER['HTTP_COOKIE'] ?? '-';
    file_put_contents(__DIR__ . '/ran', "$of: $found\n", FILE_APPEND);
}
final class Noting {
    public static array $all = [];
    public function __construct(private string $of) { self::$all[] = $this; }
    public function __destruct() { note("object of $this->of"); }
}
$handle = function () {
    $who = $_GET['who'];
    new Noting($who);
    register_shutdown_function(fn () => note("function of $who"));
    if ($_GET['then'] === 'buffer') { ob_start(fn () => exit); }
    match ($_GET['then']) {
        'exit', 'buffer' => exit,
        'memory' => str_repeat('x', 1 << 30),
        default => null,
    };
};
while (frankenphp_handle_request($handle)) { }
"#;

#[test]
fn code_of_earlier_requests_finds_no_variables_of_a_request_that_ends_the_script() {
    let all =
        ["function of Bob: Bob", "function of Alice: -", "object of Alice: -", "object of Bob: -"];
    // A response that cannot be completed is the last that the script does.
    for (then, expected) in [("exit", &all[..]), ("memory", &all[..2]), ("buffer", &all[..1])] {
        let (root, setup) = booted::worker(&[("index.php", NOTING)]);
        let server = setup.start();
        let ask = |who: &str, then: &str| {
            let request = Request::get(&format!("/?who={who}&then={then}"));
            http::ask(server.address(), &request.header("Cookie", &format!("who={who}"))).status
        };
        assert_eq!(ask("Alice", "return"), 200);
        assert_eq!(ask("Bob", then), if then == "memory" { 500 } else { 200 });
        // Of another worker.
        assert_eq!(ask("Carol", "return"), 200);
        server.stop();
        let ran = fs::read_to_string(root.path().join("ran")).unwrap();
        let mut seen: Vec<_> = ran.lines().filter(|line| !line.contains("Carol")).collect();
        // PHP decides on the order of objects.
        seen.sort_by_key(|line| expected.iter().position(|known| known == line));
        assert_eq!(seen, expected, "{then}");
    }
}

/// A worker script whose requests leave a function that goes on until a file is there, for a
/// minute at most.
const LINGERING: &str = r#"<?php
$handle = function () {
    if (isset($_GET['exits'])) { exit('response'); }
    register_shutdown_function(function () {
        for ($n = 0; $n < 600 && !file_exists(__DIR__ . '/go'); $n++) { usleep(100_000); }
        touch(__DIR__ . '/gone');
    });
};
while (frankenphp_handle_request($handle)) { }
"#;

#[test]
fn a_response_that_ends_the_script_waits_for_no_code_of_earlier_requests() {
    for limit in ["", "request_terminate_timeout = \"5s\""] {
        let (root, setup) = booted::worker(&[("index.php", LINGERING)]);
        let server = setup.pool(limit).start();
        for _ in 0..2 {
            assert_eq!(http::get(server.address(), "/").status, 200);
        }
        let response = http::get(server.address(), "/?exits");
        assert_eq!((response.status, &*response.text()), (200, "response"), "{limit}");
        assert!(!root.path().join("gone").exists(), "{limit}");
        write_file(root.path(), "go", b"");
        wait::until_true("the functions to end", || root.path().join("gone").exists());
        server.stop();
    }
}

/// Two quick requests, and one after which its worker hangs, for 30 s at most. Returns that worker.
fn hang(server: &Server, root: &Path) -> String {
    let mut connection = Connection::open(server.address());
    let mut ask = || connection.ask(&Request::get("/")).expect("a response").text();
    ask();
    ask();
    write_file(root, "hang", b"");
    ask();
    // A worker that is late after one of the first requests may be the one.
    let hanging = root.join("hanging");
    let pid = wait::until_within("the script to hang", PATIENCE, || {
        fs::read_to_string(&hanging).ok().filter(|pid| !pid.is_empty())
    });
    fs::remove_file(hanging).expect("it can be removed");
    pid
}

#[test]
fn a_worker_that_hangs_before_its_next_request_delays_no_more_than_one() {
    let (root, setup) = booted::worker(&[("index.php", HANGING)]);
    let server = setup.workers(2).start();
    let hanging = hang(&server, root.path());
    let mut clients = [(); 2].map(|()| Connection::open(server.address()));
    // If the other worker were tried for half a second each time, it would be awake long before.
    for _ in 0..100 {
        for client in &mut clients {
            client.send(&Request::get("/").to_bytes()).unwrap();
        }
        for client in &mut clients {
            let next = client.read_response(false).unwrap();
            assert_eq!(next.status, 200);
            assert_ne!(next.text(), hanging);
        }
    }
    assert!(!root.path().join("awake").exists());
    drop(clients);
    server.stop();
}

#[test]
fn a_worker_that_hangs_before_its_next_request_is_replaced() {
    let (root, setup) = booted::worker(&[("index.php", HANGING)]);
    let server = setup
        .pool("request_terminate_timeout = \"1s\"")
        .pool("request_queue_timeout = \"5s\"")
        .start();
    // A worker without a processor for a moment is not prompt: its request runs on, visibly.
    let is_replaced = (0..5).any(|_| {
        let hanging = hang(&server, root.path());
        let next = http::get(server.address(), "/");
        write_file(root.path(), "wake", b"");
        wait::until_within("a worker to serve", PATIENCE, || {
            (http::get(server.address(), "/").status == 200).then_some(())
        });
        next.status == 200 && next.text() != hanging
    });
    assert!(is_replaced, "{}", server.log_text());
    server.expect_log(0, "its worker is ended: it has taken no request for");
    server.stop();
}
