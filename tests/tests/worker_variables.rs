//! The variables that PHP makes of a request, in a script that handles one after the other.

use maitred_tests::http::{self, Request};
use maitred_tests::server::give_to_web_user;
use maitred_tests::{Target, booted};

#[test]
fn what_uses_the_servers_variables_finds_those_of_its_request_however_late_it_is_loaded() {
    // Nothing of the script names them.
    let worker = "<?php
        $n = 0;
        $handle = function () use (&$n) {
            $n++;
            echo $n < 3 ? 'none ' . (int) isset($GLOBALS['_SERVER']) : require __DIR__ .
                '/late.php';
        };
        while (frankenphp_handle_request($handle)) {}";
    let late = "<?php return $_SERVER['REQUEST_URI'] . ' ' . ($_REQUEST['name'] ?? '') . ' '
        . filter_input(INPUT_SERVER, 'QUERY_STRING') . ' ' . $_SERVER['FRANKENPHP_WORKER'];";
    let (_root, setup) = booted::worker(&[("index.php", worker), ("late.php", late)]);
    let server = setup.start();
    for n in 1..7 {
        let answer = http::get(server.address(), &format!("/page/{n}?name=n{n}"));
        let expected = match n < 3 {
            true => "none 0".to_owned(),
            false => format!("/page/{n}?name=n{n} n{n} name=n{n} 1"),
        };
        assert_eq!(answer.text(), expected);
    }
    server.stop();
}

#[test]
fn a_directive_that_one_request_sets_holds_for_those_after_it() {
    // Symfony's session sets its `session.save_path` once, in the first request that has one.
    let worker = "<?php
        $handle = function () {
            if (isset($_GET['first'])) {
                mkdir(__DIR__ . '/sessions');
                ini_set('session.save_path', __DIR__ . '/sessions');
            }
            if (isset($_GET['session'])) { session_id('abc'); session_start();
            $_SESSION['n'] = $_GET['session']; }
            echo basename(ini_get('session.save_path'));
        };
        while (frankenphp_handle_request($handle)) {}";
    let (root, setup) = booted::worker(&[("index.php", worker)]);
    let server = setup.start();
    for target in ["/?first=1", "/", "/?session=later"] {
        assert_eq!(http::get(server.address(), target).text(), "sessions");
    }
    let kept = std::fs::read_to_string(root.path().join("sessions/sess_abc"));
    assert_eq!(kept.expect("the session was written"), "n|s:5:\"later\";");
    server.stop();
}

#[test]
fn the_last_error_of_a_request_is_not_the_next_ones() {
    let worker = "<?php
        $handle = function () {
            echo json_encode(error_get_last());
            @trigger_error('secret');
            echo error_get_last()['message'];
        };
        while (frankenphp_handle_request($handle)) {}";
    let (_root, setup) = booted::worker(&[("index.php", worker)]);
    let server = setup.start();
    for _ in 0..3 {
        assert_eq!(http::get(server.address(), "/").text(), "nullsecret");
    }
    server.stop();
}

#[test]
fn a_body_that_one_request_has_read_is_gone_and_nobody_trips_over_it() {
    // Strings take the place of what was freed, whatever its size.
    let worker = "<?php
        $kept = [];
        $handle = function () use (&$kept) {
            $read = file_get_contents('php://input');
            $own = strlen($read) && fopen('php://input', 'r');
            echo json_encode([$read, count(get_resources('stream')) - $own]);
        };
        while (frankenphp_handle_request($handle)) {
            for ($size = 16; $size < 400; $size += 8) { $kept[] = str_repeat('x', $size); }
        }";
    let (_root, setup) = booted::worker(&[("index.php", worker)]);
    let server = setup.start();
    let first = http::get(server.address(), "/").json();
    for n in 0..6 {
        let body = format!("body {n}");
        let post = http::Request::post("/", "text/plain", body.as_bytes());
        assert_eq!(http::ask(server.address(), &post).json()[0], body);
        // It reads nothing, which is as much of a stream.
        assert_eq!(http::get(server.address(), "/").json(), first);
    }
    server.stop();
}

#[test]
fn an_object_that_holds_the_body_of_a_request_finds_it_empty_in_the_next() {
    // Strings take the place of what was freed, whatever its size.
    let worker = "<?php
        $kept = $strings = [];
        $handle = function () use (&$kept) {
            $seen = [];
            if (isset($kept['file'])) {
                $kept['file']->rewind();
                // It has read a part ahead.
                for ($entries = 0; @$kept['xml']->read(); $entries++) { }
                $seen = [$kept['file']->fgets(), $kept['file']->eof(), $entries < 10000];
            }
            $own = file_get_contents('php://input');
            $kept['file'] = new SplFileObject('php://input');
            $kept['xml'] = new XMLReader();
            $kept['xml']->open('php://input');
            $kept['xml']->read();
            echo json_encode([getmypid(), $seen, $own, $kept['file']->fgets(), $kept['xml']->name,
                count(get_resources('stream'))]);
        };
        while (frankenphp_handle_request($handle)) {
            for ($size = 16; $size < 400; $size += 8) { $strings[] = str_repeat('x', $size); }
        }";
    let (_root, setup) = booted::worker(&[("index.php", worker)]);
    let server = setup.start();
    let mut first = None;
    for n in 0..6 {
        let body = format!("<page{n}>\n{}</page{n}>", "<entry/>".repeat(20_000));
        let post = http::Request::post("/", "text/plain", body.as_bytes());
        let seen = http::ask(server.address(), &post).json();
        let before = match n {
            0 => serde_json::json!([]),
            _ => serde_json::json!(["", true, true]),
        };
        assert_eq!(seen[1], before, "request {n}");
        assert_eq!(seen[2], body);
        assert_eq!(seen[3], format!("<page{n}>\n"));
        assert_eq!(seen[4], format!("page{n}"));
        // The process, and how much it has open: what was kept is let go of when the next is.
        let stays = (seen[0].clone(), seen[5].clone());
        assert_eq!(first.get_or_insert(stays.clone()), &stays);
    }
    server.stop();
}

#[test]
fn what_a_filter_opens_as_the_body_is_let_go_of_harms_nobody() {
    let worker = "<?php
        $opened = $strings = $inputs = [];
        final class Opens extends php_user_filter {
            public function onClose(): void {
                for ($n = 0; $n < 40; $n++) { $GLOBALS['opened'][] = fopen('php://memory', 'r'); }
                // In the place of the list that has become too short.
                for ($size = 16; $size < 200000; $size += $size >> 2) {
                    for ($n = 0; $n < 4; $n++) { $GLOBALS['strings'][] = str_repeat('x', $size); }
                }
            }
        }
        stream_filter_register('opens', 'Opens');
        $handle = function () {
            $GLOBALS['strings'] = [];
            $first = fopen('php://input', 'r');
            stream_filter_append($first, 'opens', STREAM_FILTER_READ);
            $GLOBALS['inputs'] = [$first, fopen('php://input', 'r')];
            echo getmypid(), ' ', count($GLOBALS['opened']);
        };
        while (frankenphp_handle_request($handle)) {
            foreach ($inputs as $input) { if (is_resource($input)) { exit; } }
        }";
    let (_root, setup) = booted::worker(&[("index.php", worker)]);
    let server = setup.pool("php_value.memory_limit = \"512M\"").start();
    let mut pid = None;
    for n in 0..40 {
        let text = http::get(server.address(), "/").text();
        let (process, opened) = text.split_once(' ').expect("it is the page");
        assert_eq!(opened, (n * 40).to_string());
        assert_eq!(pid.get_or_insert(process.to_owned()), process);
    }
    server.stop();
}

#[test]
fn what_is_added_to_the_links_of_one_page_is_not_in_the_next_and_may_be_added_again() {
    let worker = "<?php
        $handle = function () {
            if (isset($_GET['session'])) { session_id($_GET['session']); session_start(); }
            if (isset($_GET['id'])) { output_add_rewrite_var('id', $_GET['id']); }
            echo '<a href=\"/page\">';
        };
        while (frankenphp_handle_request($handle)) {}";
    let sessions = tempfile::tempdir().unwrap();
    give_to_web_user(sessions.path());
    let values = format!(
        "php_value = {{ \"url_rewriter.tags\" = \"a=href\", \"session.use_trans_sid\" = \"1\", \
         \"session.use_only_cookies\" = \"0\", \"session.use_cookies\" = \"0\", \
         \"session.save_path\" = {:?} }}",
        sessions.path()
    );
    let (_root, setup) = booted::worker(&[("index.php", worker)]);
    let server = setup.pool(&values).start();
    for (target, link) in [
        ("/?id=1", "/page?id=1"),
        ("/", "/page"),
        ("/?id=2", "/page?id=2"),
        ("/?session=abc", "/page?PHPSESSID=abc"),
        ("/", "/page"),
        ("/?session=def", "/page?PHPSESSID=def"),
        ("/?id=3", "/page?id=3"),
    ] {
        let answer = http::get(server.address(), target);
        assert_eq!(answer.text(), format!("<a href=\"{link}\">"), "{target}");
    }
    server.stop();
}

#[test]
fn code_that_runs_before_a_handler_finds_nothing_of_the_request_before() {
    // A request that is malformed (1001 variables, a form without a boundary), and an object that
    // the last request has left in its variables: each runs code of the script too early.
    let worker = "<?php
        final class Last {
            public function __destruct() { print('destructor ' . json_encode($_COOKIE)); }
        }
        set_error_handler(function (int $level, string $message) {
            print('handler ' . json_encode([$_COOKIE, $_SERVER['REQUEST_URI'] ?? null]));
            return true;
        });
        $handle = function () {
            echo json_encode([$_SERVER['REQUEST_URI'] === '/private', $_COOKIE['sid'] ?? null,
                count($_GET) > 0]);
            if (isset($_COOKIE['sid'])) {
                $_SERVER['last'] = new Last();
                $_GET['last'] = new Last();
            }
        };
        while (frankenphp_handle_request($handle)) {}
        file_put_contents(__DIR__ . '/end',
            json_encode([isset($_SERVER['REQUEST_TIME']), $_GET]));";
    let (root, setup) = booted::worker(&[("index.php", worker)]);
    give_to_web_user(root.path());
    let server = setup.pool("php_admin_value = { display_errors = \"1\" }").start();
    let many = (0..1001).map(|n| format!("v{n}")).collect::<Vec<_>>().join("&");
    for request in [
        Request::get(&format!("/?{many}")),
        Request::post("/?", "multipart/form-data", b"--x--"),
        Request::get("/?plain"),
    ] {
        let private = Request::get("/private").header("Cookie", "sid=secret");
        let first = http::ask(server.address(), &private).text();
        assert_eq!(first, "[true,\"secret\",false]");
        let other = http::ask(server.address(), &request).text();
        assert!(
            other.ends_with("[false,null,true]") || other.ends_with("[false,null,false]"),
            "{other}"
        );
        for left in ["secret", "private", "handler", "destructor"] {
            assert!(!other.contains(left), "{left}: {other}");
        }
    }
    server.stop();
    let end = std::fs::read_to_string(root.path().join("end")).expect("the script has ended");
    assert_eq!(end, "[true,[]]");
}
