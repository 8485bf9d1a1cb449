//! What reaches a script: variables, bodies, headers.

mod php;

use php::{Php, response};

#[test]
fn server_variables_hold_what_the_request_says() {
    let php = Php::new().param("HTTP_HOST", "example.com").param("PATH_INFO", "/more").file(
        "t.php",
        "<?php echo json_encode([$_SERVER['HTTP_HOST'], $_SERVER['PHP_SELF'],
            $_SERVER['SCRIPT_NAME'], is_int($_SERVER['REQUEST_TIME']),
            is_float($_SERVER['REQUEST_TIME_FLOAT'])], JSON_UNESCAPED_SLASHES);",
    );
    let body = php.serve(&["t.php"]).one().body();
    assert_eq!(body, r#"["example.com","/t.php/more","/t.php",true,true]"#);
}

#[test]
fn without_fix_pathinfo_php_self_is_the_path_info() {
    let php = Php::new()
        .ini("cgi.fix_pathinfo=0")
        .param("PATH_INFO", "/more")
        .file("t.php", "<?php echo $_SERVER['PHP_SELF'];");
    assert_eq!(php.serve(&["t.php"]).one().body(), "/more");
}

#[test]
fn the_filter_extension_sees_server_variables() {
    let php = Php::new().param("HTTP_X_NUMBER", "42").file(
        "t.php",
        "<?php var_dump(filter_input(INPUT_SERVER, 'HTTP_X_NUMBER', FILTER_VALIDATE_INT));",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "int(42)\n");
}

#[test]
fn a_proxy_header_reaches_no_script() {
    let php = Php::new().param("HTTP_PROXY", "evil:80").file(
        "t.php",
        "<?php var_dump(isset($_SERVER['HTTP_PROXY']), getenv('HTTP_PROXY'),
            isset(getallheaders()['Proxy']));",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "bool(false)\nbool(false)\nbool(false)\n");
}

#[test]
fn getenv_sees_the_request_before_the_process() {
    let php = Php::new().param("APP_MODE", "request").file(
        "t.php",
        "<?php echo getenv('APP_MODE'), getenv('ONLY_HERE'),
            getenv()['APP_MODE'], $_SERVER['ONLY_HERE'];",
    );
    let mut command = php.command(&["t.php"]);
    let output =
        command.env("APP_MODE", "process").env("ONLY_HERE", "+").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.ends_with("\r\n\r\nrequest+request+"), "{text}");
}

#[test]
fn the_environment_array_is_filled_when_asked_for() {
    let php = Php::new()
        .ini("variables_order=EGPCS")
        .param("HTTP_X_A", "1")
        .file("t.php", "<?php echo $_ENV['HTTP_X_A'], $_SERVER['HTTP_X_A'];");
    assert_eq!(php.serve(&["t.php"]).one().body(), "11");
}

#[test]
fn basic_authorization_is_decoded() {
    let php = Php::new().param("HTTP_AUTHORIZATION", "Basic dXNlcjpwYXNz").file(
        "t.php",
        "<?php echo $_SERVER['PHP_AUTH_USER'] ?? 'none', ':', $_SERVER['PHP_AUTH_PW'] ?? '';",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "user:pass");
}

#[test]
fn digest_authorization_is_passed_on() {
    let php = Php::new()
        .param("HTTP_AUTHORIZATION", "Digest username=\"a\"")
        .file("t.php", "<?php echo $_SERVER['PHP_AUTH_DIGEST'];");
    assert_eq!(php.serve(&["t.php"]).one().body(), "username=\"a\"");
}

#[test]
fn request_headers_are_listed_by_their_names() {
    let php =
        Php::new().param("HTTP_X_FORWARDED_FOR", "::1").param("CONTENT_TYPE", "text/plain").file(
            "t.php",
            "<?php $h = getallheaders(); echo $h['X-Forwarded-For'], ' ', $h['Content-Type'], ' ';
            var_dump($h == apache_request_headers());",
        );
    assert_eq!(php.serve(&["t.php"]).one().body(), "::1 text/plain bool(true)\n");
}

#[test]
fn cookies_and_query_strings_are_parsed() {
    let php = Php::new()
        .param("HTTP_COOKIE", "a=1; b=x%20y")
        .param("QUERY_STRING", "q[]=1&q[]=2")
        .file("t.php", "<?php echo json_encode([$_COOKIE, $_GET]);");
    assert_eq!(php.serve(&["t.php"]).one().body(), r#"[{"a":"1","b":"x y"},{"q":["1","2"]}]"#);
}

#[test]
fn argv_holds_the_query_string_when_wanted() {
    let script = "<?php echo json_encode([$_SERVER['argv'] ?? null, $_SERVER['argc'] ?? null]);";
    let php = Php::new()
        // PHP 8.5 says that this is deprecated.
        .ini("register_argc_argv=1\ndisplay_errors=0")
        .param("QUERY_STRING", "a+b")
        .file("t.php", script);
    assert_eq!(php.serve(&["t.php"]).one().body(), r#"[["a","b"],2]"#);
    let php =
        Php::new().ini("register_argc_argv=0").param("QUERY_STRING", "a+b").file("t.php", script);
    assert_eq!(php.serve(&["t.php"]).one().body(), "[null,null]");
}

fn with_body(body: &str, content_type: &str) -> Php {
    let php = Php::new().param("CONTENT_TYPE", content_type).file("body", body);
    let path = php.path("body").display().to_string();
    php.with(&["--body", &path])
}

#[test]
fn a_form_is_parsed() {
    let php = with_body("a=1&b[x]=2", "application/x-www-form-urlencoded")
        .file("t.php", "<?php echo json_encode($_POST), file_get_contents('php://input');");
    assert_eq!(php.serve(&["t.php"]).one().body(), r#"{"a":"1","b":{"x":"2"}}a=1&b[x]=2"#);
}

#[test]
fn an_upload_is_stored_and_removed() {
    let body = "--X\r\nContent-Disposition: form-data; name=\"f\"; filename=\"n.txt\"\r\n\
        Content-Type: text/plain\r\n\r\nhello\r\n--X--\r\n";
    let php = with_body(body, "multipart/form-data; boundary=X").file(
        "t.php",
        "<?php $f = $_FILES['f']; echo $f['name'], $f['size'],
            file_get_contents($f['tmp_name']), '|', $f['tmp_name'];",
    );
    let response = php.serve(&["t.php"]).one().body();
    let (seen, stored) = response.split_once('|').expect("two parts");
    assert_eq!(seen, "n.txt5hello");
    assert!(!std::path::Path::new(stored).exists());
}

#[test]
fn a_large_body_is_read_from_the_input_stream() {
    let php = with_body(&"z".repeat(300_000), "application/octet-stream").file(
        "t.php",
        "<?php $same = file_get_contents('php://input') === str_repeat('z', 300000);
            echo $same ? 'same' : 'other';",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "same");
}

#[test]
fn a_shutdown_function_can_still_read_the_body() {
    let php = with_body("late", "text/plain").ini("enable_post_data_reading=0").file(
        "t.php",
        "<?php register_shutdown_function(function () { echo file_get_contents('php://input'); });",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "late");
}

#[test]
fn a_body_that_no_script_reads_is_not_read() {
    let php = with_body(&"z".repeat(300_000), "text/plain")
        .param("REQUEST_METHOD", "PUT")
        .file("t.php", "<?php echo 'done';");
    let request = php.serve(&["t.php"]).one();
    assert_eq!(request.body(), "done");
    assert_eq!(request.count("read"), 0, "{}", request.order());
}

#[test]
fn the_pool_status_is_an_array() {
    let code = "<?php $s = fpm_get_status(); $p = $s['procs'][0]; echo json_encode([$s['pool'],
        $s['total-processes'], $p['state'], $p['requests']]);";
    let php = Php::new().with(&["--status"]).file("t.php", code);
    assert_eq!(php.serve(&["t.php"]).one().body(), r#"["www",5,"Running",7]"#);
    assert_eq!(response("<?php var_dump(fpm_get_status());").body(), "bool(false)\n");
}

#[test]
fn requests_do_not_see_each_other() {
    let php = Php::new()
        .file(
            "a.php",
            "<?php define('LEFT', 1); $GLOBALS['x'] = 1; ini_set('memory_limit', '77M');
            function left() {} header('X-Left: 1'); http_response_code(201); echo 'a';",
        )
        .file(
            "b.php",
            "<?php echo json_encode([defined('LEFT'), isset($x), ini_get('memory_limit'),
            function_exists('left'), http_response_code()]);",
        );
    let run = php.serve(&["a.php", "b.php"]);
    assert_eq!(run.requests[1].body(), r#"[false,false,"128M",false,200]"#);
    assert!(!run.requests[1].head().contains("X-Left"));
}
