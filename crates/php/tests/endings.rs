//! How requests end: well, by bailouts, by clients that leave, by panics.

mod php;

use php::{Php, Request};

fn hidden(code: &str) -> Request {
    Php::new().ini("display_errors=0\nlog_errors=1").file("t.php", code).serve(&["t.php"]).one()
}

#[test]
fn exit_is_no_bailout() {
    let run =
        Php::new().file("t.php", "<?php function f() { exit(3); } f();").serve(&["t.php", "t.php"]);
    assert_eq!(run.requests.len(), 2);
    assert!(run.requests.iter().all(|request| request.served == "Finished status=200 gone=false"));
}

#[test]
fn an_uncaught_exception_is_an_error_500_and_no_bailout() {
    let request = hidden("<?php throw new Exception('oh');");
    assert!(
        request.head().starts_with("Status: 500 Internal Server Error\r\n"),
        "{}",
        request.head()
    );
    assert!(request.log().contains("Uncaught Exception: oh"));
    assert_eq!(request.served, "Finished status=500 gone=false");
}

#[test]
fn a_parse_error_is_an_error_500_and_no_bailout() {
    let request = hidden("<?php nonsense here");
    assert_eq!(request.served, "Finished status=500 gone=false");
}

#[test]
fn exhausted_memory_is_answered_and_ends_the_process() {
    let php = Php::new()
        .ini("display_errors=0\nlog_errors=1\nmemory_limit=8M")
        .file("t.php", "<?php $a = str_repeat('x', 100000000);");
    let run = php.serve(&["t.php", "t.php"]);
    assert_eq!(run.requests.len(), 1);
    let request = run.one();
    assert!(request.head().starts_with("Status: 500 Internal Server Error\r\n"));
    assert!(request.log().contains("Allowed memory size of 8388608 bytes exhausted"));
    assert_eq!(request.served, "Fatal status=500 gone=false");
    assert_eq!(request.count("finish"), 1);
}

#[test]
fn a_fatal_error_after_output_leaves_what_was_sent() {
    let request = hidden("<?php echo 'begun'; flush(); trigger_error('stop', E_USER_ERROR);");
    assert_eq!(request.body(), "begun");
    assert_eq!(request.served, "Fatal status=200 gone=false");
}

#[test]
fn a_fatal_error_in_a_shutdown_function_ends_the_process() {
    let request = hidden(
        "<?php register_shutdown_function(function () { trigger_error('stop', E_USER_ERROR); });",
    );
    assert!(request.served.starts_with("Fatal "), "{}", request.served);
}

#[test]
fn the_error_header_of_php_ini_replaces_a_success() {
    let php = Php::new()
        .ini(
            "display_errors=1\nfastcgi.error_header=\"HTTP/1.1 550 Broken\"\noutput_buffering=4096",
        )
        .file("t.php", "<?php throw new Exception('oh');");
    let head = php.serve(&["t.php"]).one().head();
    assert!(head.starts_with("Status: 550 Broken\r\n"), "{head}");
}

#[test]
fn a_client_that_leaves_ends_the_script() {
    let php = Php::new().ini("log_errors=1").with(&["--leave-after", "1"]).file(
        "t.php",
        "<?php register_shutdown_function(
            fn() => error_log('status ' . connection_status()));
        echo 'one'; error_log('went on');",
    );
    let run = php.serve(&["t.php", "t.php"]);
    assert_eq!(run.requests.len(), 2, "the process serves the next request");
    for request in run.requests {
        assert_eq!(request.log(), "PHP message: status 1");
        assert_eq!(request.served, "Finished status=200 gone=true");
        assert_eq!(request.count("finish"), 1);
    }
}

#[test]
fn a_script_that_its_client_leaves_ends_as_with_exit() {
    let php = Php::new().ini("log_errors=1").with(&["--leave-after", "1"]).file(
        "t.php",
        "<?php class D { function __destruct() { echo 'x'; error_log('destructor'); } }
        register_shutdown_function(function () { echo 'x'; flush(); error_log('shutdown'); });
        function f() { $d = new D; try { echo 'one'; } finally { error_log('finally'); } }
        set_exception_handler(fn() => error_log('handler'));
        try { f(); } catch (Throwable) { error_log('caught'); } error_log('went on');",
    );
    let request = php.serve(&["t.php"]).one();
    assert_eq!(request.log(), "PHP message: destructorPHP message: shutdown");
    assert_eq!(request.served, "Finished status=200 gone=true");
}

#[test]
fn a_client_that_leaves_during_shutdown_ends_no_shutdown_function() {
    let php = Php::new().ini("log_errors=1").with(&["--leave-after", "1"]).file(
        "t.php",
        "<?php register_shutdown_function(
            function () { echo 'x'; flush(); echo 'y'; error_log('one'); });
        register_shutdown_function(fn() => error_log('two ' . connection_aborted()));",
    );
    let request = php.serve(&["t.php"]).one();
    assert_eq!(request.log(), "PHP message: onePHP message: two 1");
    assert_eq!(request.served, "Finished status=200 gone=true");
}

#[test]
fn a_function_that_writes_without_end_is_left_and_ends_the_process() {
    let php = Php::new()
        .with(&["--leave-after", "1"])
        .file("t.php", "<?php readfile('/dev/zero'); error_log('went on');");
    let run = php.serve(&["t.php", "t.php"]);
    assert_eq!(run.requests.len(), 1);
    let request = run.one();
    assert_eq!(request.log(), "");
    assert_eq!(request.served, "ClientGone status=200 gone=true");
}

#[test]
fn a_script_can_go_on_without_its_client() {
    let php = Php::new().with(&["--leave-after", "1"]).file(
        "t.php",
        "<?php ignore_user_abort(true); echo 'one'; error_log('aborted ' . connection_aborted());",
    );
    let request = php.serve(&["t.php"]).one();
    assert_eq!(request.log(), "PHP message: aborted 1");
    assert_eq!(request.served, "Finished status=200 gone=true");
}

#[test]
fn a_panic_of_the_exchange_does_not_unwind_into_php() {
    let php = Php::new().with(&["--panic-on-send"]).file("t.php", "<?php echo 'one';");
    let run = php.serve(&["t.php"]);
    assert_eq!(run.output.status.code(), Some(101), "{:?}", run.output);
    let message = String::from_utf8_lossy(&run.output.stderr).into_owned();
    assert_eq!(message.matches("the exchange was told to panic").count(), 1, "{message}");
}

#[test]
fn a_session_is_written_before_the_answer_ends() {
    let php = Php::new();
    let path = format!("session.save_path={}\nsession.use_strict_mode=0", php.root().display());
    let php = php
        .ini(&path)
        .param("HTTP_COOKIE", "PHPSESSID=abc")
        .file("t.php", "<?php session_start(); echo $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;");
    assert_eq!(php.serve(&["t.php", "t.php", "t.php"]).bodies(), ["1", "2", "3"]);
}

#[test]
fn a_form_too_large_for_the_memory_limit_is_answered_and_ends_the_process() {
    let php = Php::new()
        .ini("display_errors=0\nlog_errors=1\nmemory_limit=2M\npost_max_size=64M")
        .file("body", &format!("a={}", "x".repeat(8_000_000)))
        .file("t.php", "<?php echo 'not reached';");
    let body = php.path("body").display().to_string();
    let php =
        php.with(&["--body", &body]).param("CONTENT_TYPE", "application/x-www-form-urlencoded");
    let run = php.serve(&["t.php", "t.php"]);
    assert_eq!(run.requests.len(), 1);
    let request = run.one();
    assert!(request.head().starts_with("Status: 500 Internal Server Error\r\n"));
    assert!(request.log().contains("Allowed memory size"), "{}", request.log());
    assert!(request.served.starts_with("NotStarted"), "{}", request.served);
    assert_eq!(request.count("finish"), 1);
}

#[test]
fn the_error_header_of_one_request_is_not_that_of_the_next() {
    let php = Php::new()
        .ini("display_errors=0\nfastcgi.error_header=\"HTTP/1.1 550 Broken\"")
        .file("t.php", "<?php throw new Exception('oh');");
    let run = php.serve(&["t.php", "none.php"]);
    assert!(run.requests[1].head().starts_with("Status: 404 Not Found\r\n"));
}
