//! What leaves PHP: headers, bodies, flushes, ends.

mod php;

use php::{Php, response};

#[test]
fn a_script_is_answered_with_a_head_and_a_body() {
    let request = response("<?php echo 'hello';");
    assert!(request.head().starts_with("X-Powered-By: PHP/8."), "{}", request.head());
    assert!(request.head().ends_with("Content-type: text/html; charset=UTF-8\r\n"));
    assert_eq!(request.body(), "hello");
    assert_eq!(request.served, "Finished status=200 gone=false");
}

#[test]
fn headers_keep_their_order_and_their_duplicates() {
    let request = response(
        "<?php header_remove('X-Powered-By'); header('B: 1'); header('A: 2');
        header('B: 3', false); header('C: 4'); header_remove('C');",
    );
    assert_eq!(
        request.head(),
        "B: 1\r\nA: 2\r\nB: 3\r\nContent-type: text/html; charset=UTF-8\r\n"
    );
}

#[test]
fn a_status_other_than_200_is_the_first_line() {
    assert!(
        response("<?php http_response_code(404);").head().starts_with("Status: 404 Not Found\r\n")
    );
    let own = response("<?php header('HTTP/1.1 299 Quite Fine');");
    assert!(own.head().starts_with("Status: 299 Quite Fine\r\n"), "{}", own.head());
    let unknown = response("<?php http_response_code(599);");
    assert!(unknown.head().starts_with("Status: 599\r\n"), "{}", unknown.head());
}

#[test]
fn a_status_line_is_cut_where_php_fpm_cuts_it() {
    let head = response("<?php header('HTTP/1.1 201 ' . str_repeat('A', 1014));").head();
    let line = format!("Status: 201 {}\r\n", "A".repeat(1011));
    assert!(head.starts_with(&line), "{head}");
}

#[test]
fn a_status_header_of_the_script_is_sent_once() {
    let head = response("<?php header('Status: 503 Busy');").head();
    assert_eq!(head.matches("Status:").count(), 1, "{head}");
    let both = response("<?php header('Status: 503 Busy'); http_response_code(404);").head();
    assert_eq!(both.matches("Status:").count(), 1, "{both}");
}

#[test]
fn an_answer_with_status_304_has_no_content_type() {
    let head = response("<?php header('ETag: x'); http_response_code(304);").head();
    assert!(head.contains("ETag: x\r\n"));
    assert!(!head.to_lowercase().contains("content-type"), "{head}");
}

#[test]
fn a_head_of_a_megabyte_leaves_in_one_piece() {
    let request = response(
        "<?php for ($i = 0; $i < 4; $i++) header(\"X-$i: \" . str_repeat('v', 250000)); echo 1;",
    );
    assert!(request.events[0].1.len() > 1_000_000);
    assert!(request.events[0].1.ends_with(b"\r\n\r\n"));
    assert_eq!(request.order(), "send send finish");
}

#[test]
fn ten_thousand_headers_leave_in_one_piece() {
    let request = response("<?php for ($i = 0; $i < 10000; $i++) header(\"X-$i: $i\"); echo 1;");
    assert!(request.head().contains("X-9999: 9999\r\n"));
    assert_eq!(request.order(), "send send finish");
}

#[test]
fn a_head_request_gets_no_body() {
    let php = Php::new()
        .param("REQUEST_METHOD", "HEAD")
        .file("t.php", "<?php header('A: b'); echo 'hello';");
    let request = php.serve(&["t.php"]).one();
    assert!(request.head().contains("A: b\r\n"));
    assert_eq!(request.body(), "");
}

#[test]
fn output_without_a_buffer_leaves_piece_by_piece() {
    let request = response("<?php echo 'one'; flush(); echo 'two';");
    assert_eq!(request.order(), "send send flush send finish");
}

#[test]
fn a_flush_before_any_output_sends_the_head_from_php_8_4_on() {
    let request = response("<?php flush(); if (PHP_VERSION_ID >= 80400) { echo 'late'; }");
    let late = request.body() == "late";
    let order = if late { "send flush send finish" } else { "send finish" };
    assert_eq!(request.order(), order);
}

#[test]
fn output_buffering_joins_the_pieces() {
    let php =
        Php::new().ini("output_buffering=4096").file("t.php", "<?php echo 'one'; echo 'two';");
    let request = php.serve(&["t.php"]).one();
    assert_eq!(request.order(), "send send finish");
    assert_eq!(request.body(), "onetwo");
}

#[test]
fn a_finished_answer_ends_before_the_script_does() {
    let request = response(
        "<?php echo 'seen'; $first = fastcgi_finish_request(); echo 'unseen'; flush();
        error_log(json_encode([$first, fastcgi_finish_request(), connection_status()]));",
    );
    assert_eq!(request.body(), "seen");
    assert_eq!(request.order(), "send send finish flush log");
    assert_eq!(request.log(), "PHP message: [true,false,0]");
    assert_eq!(request.served, "Finished status=200 gone=false");
}

#[test]
fn shutdown_functions_and_destructors_still_write_to_the_answer() {
    let request = response(
        "<?php class D { function __destruct() { echo 'destructed'; } } $d = new D;
        register_shutdown_function(function () { echo 'shut,'; }); exit('exit,');",
    );
    assert_eq!(request.body(), "exit,shut,destructed");
    assert_eq!(request.served, "Finished status=200 gone=false");
}

#[test]
fn a_message_of_a_script_goes_to_the_log() {
    let long = "x".repeat(10_000);
    let request = response(&format!("<?php error_log('first'); error_log('{long}');"));
    assert_eq!(request.log(), format!("PHP message: firstPHP message: {long}"));
}

#[test]
fn a_missing_script_is_not_found_and_logged() {
    let request = Php::new().serve(&["none.php"]).one();
    assert!(request.head().starts_with("Status: 404 Not Found\r\n"));
    assert_eq!(request.body(), "File not found.\n");
    assert!(request.log().starts_with("Primary script unknown: "), "{}", request.log());
    assert!(request.served.starts_with("Finished status=404"));
}

#[test]
fn a_path_with_two_dots_is_not_served() {
    let php = Php::new().file("a/b.php", "<?php echo 1;").file("t.php", "<?php echo 2;");
    let request = php.serve(&["a/../t.php"]).one();
    assert_eq!(request.body(), "File not found.\n");
}

#[test]
fn a_folder_is_no_script() {
    let request = Php::new().file("a/b.php", "").serve(&["a"]).one();
    assert!(request.head().starts_with("Status: 404 Not Found\r\n"), "{}", request.head());
}
