//! What a line of the access log holds, what a request is called, and which requests are logged
//! where.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread::JoinHandle;

use maitred_tests::http::{self, Request};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::tls::{Authority, page};
use maitred_tests::{Target, ports, wait};
use tempfile::TempDir;

fn site() -> TempDir {
    document_root(&[
        ("hello.txt", "hello, file"),
        ("id.php", "<?php echo $_SERVER['REQUEST_ID'];"),
        ("both.php", "<?php echo $_SERVER['REQUEST_ID'], ' ', $_SERVER['HTTP_X_REQUEST_ID'];"),
        ("complains.php", "<?php error_log('the roof leaks'); echo $_SERVER['REQUEST_ID'];"),
        ("own.php", "<?php header('X-Request-Id: mine'); echo $_SERVER['REQUEST_ID'];"),
        ("slow.php", "<?php usleep(400000); echo $_SERVER['REQUEST_ID'];"),
        ("dies.php", "<?php posix_kill(getmypid(), SIGKILL);"),
    ])
}

/// A folder that the front may write to.
fn folder() -> TempDir {
    let folder = public_folder();
    give_to_web_user(folder.path());
    folder
}

fn lines(file: &Path, count: usize) -> Vec<String> {
    wait::until("the lines to be written", || {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

fn setup(root: &Path, log: &Path, format: &str) -> Setup {
    Setup::new(root)
        .top(&format!("access_log = {log:?}"))
        .top(&format!("access_log_format = '{format}'"))
}

fn is_own(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[test]
fn a_request_has_one_id_for_its_script_its_lines_and_who_asked() {
    let (root, folder) = (site(), folder());
    let log = folder.path().join("access.log");
    let server =
        setup(root.path(), &log, "$request_id $status").top("send_request_id = true").start();
    let answer = http::get(server.address(), "/complains.php");
    let id = answer.text();
    assert!(is_own(&id), "{id}");
    assert_eq!(answer.header("X-Request-Id"), Some(id.as_str()));
    let said = server.expect_log(0, "the roof leaks");
    assert!(said.ends_with(&format!(" [request {id}]")), "{said}");
    let of_file = http::get(server.address(), "/hello.txt");
    let of_file = of_file.header("X-Request-Id").expect("an id").to_owned();
    let of_nothing = http::get(server.address(), "/wp-content/%2e%2e/%2e%2e/x");
    let of_nothing = of_nothing.header("X-Request-Id").expect("an id").to_owned();
    let own = http::get(server.address(), "/own.php");
    assert_eq!(own.all("X-Request-Id").collect::<Vec<_>>(), ["mine"]);
    let written = lines(&log, 4);
    assert_eq!(written[0], format!("{id} 200"));
    assert_eq!(written[1], format!("{of_file} 200"));
    assert!(written[2].starts_with(&of_nothing), "{written:?}");
    assert!(is_own(&of_file) && of_file != id && of_nothing != id);
    let mark = server.log().mark();
    assert_eq!(http::get(server.address(), "/dies.php").status, 502);
    let died = server.expect_log(mark, "The worker died while it ran the script.");
    let id = lines(&log, 5)[4].replace(" 502", "");
    assert!(died.ends_with(&format!("[request {id}]")), "{died} {id}");
    server.stop();
}

#[test]
fn an_answer_has_no_id_unless_it_is_asked_for() {
    let root = site();
    let server = Server::start(root.path());
    for path in ["/hello.txt", "/id.php", "/complains.php"] {
        assert_eq!(http::get(server.address(), path).header("X-Request-Id"), None);
    }
    server.stop();
}

#[test]
fn only_a_trusted_proxy_s_id_is_taken_and_only_one_that_a_log_can_hold() {
    let root = site();
    let server = Server::start(root.path());
    let ask = |address: SocketAddr, path: &str, id: &str| {
        let request = Request::get(path).header("X-Request-Id", id);
        http::ask(address, &request).text()
    };
    let given = "7f1c2b00-aaaa-bbbb-cccc-0123456789ab";
    assert!(is_own(&ask(server.address(), "/id.php", given)), "no proxy is trusted");
    let both = ask(server.address(), "/both.php", given);
    assert!(both.ends_with(&format!(" {given}")), "a header is a header: {both}");
    let setup = Setup::new(root.path()).top("trusted_proxies = \"127.0.0.0/8\"");
    server.configure(&setup);
    server.reload();
    assert_eq!(ask(server.address(), "/id.php", given), given);
    let long = "x".repeat(65);
    for odd in ["two words", "a\"b", "", long.as_str()] {
        assert!(is_own(&ask(server.address(), "/id.php", odd)), "{odd}");
    }
    let twice = Request::get("/id.php").header("X-Request-Id", "one").header("X-Request-Id", "two");
    assert!(is_own(&http::ask(server.address(), &twice).text()));
    server.stop();
}

/// A server that answers one request with its `X-Request-Id` header.
fn echo_of_the_id() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    let answer = move || {
        let (mut client, _) = listener.accept().expect("a connection");
        let lines = BufReader::new(client.try_clone().expect("a descriptor")).lines();
        let lines = lines.map_while(Result::ok).take_while(|line| !line.is_empty());
        let told = |line: String| Some(line.strip_prefix("x-request-id: ")?.to_owned());
        let ids: Vec<String> = lines.filter_map(told).collect();
        let body = ids.join(" ");
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/css\r\n";
        let length = body.len();
        write!(client, "{head}Content-Length: {length}\r\n\r\n{body}").expect("it is taken");
    };
    (address, std::thread::spawn(answer))
}

#[test]
fn a_server_behind_is_told_the_id_and_so_is_who_asked() {
    let (root, folder) = (site(), folder());
    let log = folder.path().join("access.log");
    let (behind, answered) = echo_of_the_id();
    let server = setup(root.path(), &log, "$request_id $status")
        .top("send_request_id = true")
        .site(&format!("proxy = {{ path = \"/app/*\", to = \"http://{behind}\" }}"))
        .site("expires = [{ type = \"text/css\", after = \"1d\" }]")
        .start();
    let request = Request::get("/app/").header("X-Request-Id", "the-client-s");
    let answer = http::ask(server.address(), &request);
    let id = answer.text();
    assert!(is_own(&id), "{id}");
    assert_eq!(answer.header("X-Request-Id"), Some(id.as_str()));
    assert_eq!(answer.header("Cache-Control"), Some("max-age=86400"));
    assert!(answer.header("Expires").is_some_and(|date| date.ends_with(" GMT")));
    assert_eq!(lines(&log, 1), [format!("{id} 200")]);
    server.stop();
    answered.join().expect("it has answered");
}

#[test]
fn a_slow_script_s_entry_names_its_request() {
    let (root, folder) = (site(), folder());
    let log = folder.path().join("slow.log");
    let server = Setup::new(root.path())
        .pool(&format!("slowlog = {log:?}"))
        .pool("request_slowlog_timeout = \"50ms\"")
        .start();
    let id = http::get(server.address(), "/slow.php").text();
    wait::until_true("the entry", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.contains(&format!("\nrequest_id = {id}\n"))
    });
    server.stop();
}

#[test]
fn a_format_of_one_s_own_says_how_long_what_took() {
    let (root, folder) = (site(), folder());
    let log = folder.path().join("access.log");
    let format = "$remote_addr|$remote_user|$scheme|$host|$request|$status|$body_bytes_sent|$pool|\
                  $request_ms|$queue_ms|$script_ms|$http_x_odd|$ssl_protocol";
    let server = setup(root.path(), &log, format).start();
    let slow = Request::get("/slow.php?a=\"b\"")
        .header("X-Odd", "a\"b")
        .header("Authorization", "Basic YW5uOng=");
    http::ask(server.address(), &slow);
    http::get(server.address(), "/hello.txt");
    let written = lines(&log, 2);
    let slow: Vec<&str> = written[0].split('|').collect();
    assert_eq!(slow[..3], ["127.0.0.1", "ann", "http"]);
    assert_eq!(slow[4..8], ["GET /slow.php?a=\\\"b\\\" HTTP/1.1", "200", "32", "www"]);
    let millis = |text: &str| text.parse::<f64>().expect("milliseconds");
    let (whole, queue, script) = (millis(slow[8]), millis(slow[9]), millis(slow[10]));
    assert!(script >= 400.0 && queue >= 0.0 && whole >= script, "{slow:?}");
    assert_eq!(slow[11..], ["a\\\"b", "-"]);
    let file: Vec<&str> = written[1].split('|').collect();
    assert_eq!((file[7], file[9], file[10]), ("-", "-", "-"));
    server.stop();
}

#[test]
fn a_format_that_is_json_stays_json_whatever_clients_send() {
    let (root, folder) = (site(), folder());
    let log = folder.path().join("access.log");
    let format = r#"{"who":"$http_user_agent","line":"$request_method $uri","ms":$script_ms}"#;
    let server = setup(root.path(), &log, format).start();
    let odd = Request::get("/hello.txt").header("User-Agent", "a\"b\\c");
    http::ask(server.address(), &odd);
    http::get(server.address(), "/hello.txt");
    let read = |line: &String| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let written: Vec<_> = lines(&log, 2).iter().map(read).collect();
    assert_eq!(written[0]["who"], "a\"b\\c");
    assert_eq!(written[0]["line"], "GET /hello.txt");
    assert!(written[0]["ms"].is_null() && written[1]["who"].is_null());
    server.stop();
}

#[test]
fn version_and_cipher_of_tls_are_logged() {
    let (authority, root, folder) = (Authority::default(), site(), folder());
    let certificate = authority.issue("site", &["localhost"]);
    let (address, log) = (ports::free_address(), folder.path().join("access.log"));
    let lines_of_tls = [format!("certificates = [{}]", certificate.toml())];
    let server = setup(root.path(), &log, "$scheme $ssl_protocol $ssl_cipher $status")
        .tls(address, &lines_of_tls)
        .start();
    assert_eq!(page(&authority, address, "/hello.txt"), "hello, file");
    let written = lines(&log, 1).remove(0);
    assert!(written.starts_with("https TLSv1.3 TLS_") && written.ends_with(" 200"), "{written}");
    server.stop();
}

#[test]
fn a_site_has_a_log_of_its_own_or_none_and_both_follow_a_reload() {
    let (root, folder) = (site(), folder());
    let (all, own) = (folder.path().join("all.log"), folder.path().join("own.log"));
    let at = |line: &str| {
        let other = format!("\n[[sites]]\nroot = {:?}\nhosts = \"other\"\n{line}", root.path());
        setup(root.path(), &all, "$host $uri").site(&other)
    };
    let own_line = format!("access_log = {own:?}");
    let server = at(&own_line).start();
    let ask = |host: &str, path: &str| {
        let request = Request::new("GET", path).header("Host", host);
        http::ask(server.address(), &request)
    };
    ask("first", "/hello.txt?1");
    ask("other", "/hello.txt?2");
    assert_eq!(lines(&own, 1), ["other /hello.txt"]);
    assert_eq!(lines(&all, 1), ["first /hello.txt"]);
    let old = folder.path().join("own.log.1");
    fs::rename(&own, &old).expect("a log is there");
    server.signal(Signal::USR1);
    // The front uses it a moment after it is there.
    wait::until_true("a new file to be used", || own.exists() && !server.holds(&old));
    ask("other", "/id.php");
    assert_eq!(lines(&own, 1), ["other /id.php"]);
    server.configure(&at("access_log = \"off\""));
    server.reload();
    ask("other", "/hello.txt");
    ask("first", "/id.php");
    assert_eq!(lines(&all, 2)[1], "first /id.php");
    assert_eq!(lines(&own, 1).len(), 1);
    server.configure(&at(""));
    server.reload();
    ask("other", "/hello.txt");
    assert_eq!(lines(&all, 3)[2], "other /hello.txt");
    // Only sites have logs.
    let text = fs::read_to_string(server.configuration()).expect("a configuration");
    let text = text.replace(&format!("access_log = {all:?}"), "");
    server.configure_as(&format!("{text}{own_line}\n"));
    server.reload();
    ask("first", "/hello.txt");
    ask("other", "/id.php?3");
    assert_eq!(lines(&own, 2)[1], "other /id.php");
    assert_eq!(lines(&all, 3).len(), 3);
    server.stop();
}

#[test]
fn a_wrong_format_is_refused_with_what_it_should_be() {
    let (root, folder) = (site(), folder());
    let log = folder.path().join("access.log");
    let server = setup(root.path(), &log, "$status").start();
    let text = fs::read_to_string(server.configuration()).expect("a configuration");
    server.configure_as(&text.replace("'$status'", "'$stauts'"));
    let refused = server.reload();
    assert!(refused.contains("did you mean `$status`?"), "{refused}");
    http::get(server.address(), "/hello.txt");
    assert_eq!(lines(&log, 1), ["200"]);
    server.stop();
}

#[test]
fn an_error_page_is_neutral_and_its_id_leads_to_the_cause_in_the_log() {
    let root = site();
    let server = Setup::new(root.path()).site("max_body_size = \"1k\"").start();
    let large = Request::post("/id.php", "text/plain", &[b'x'; 2000]);
    let failures = [
        (Request::get("/dies.php"), "502", "An error on the server", "The worker died"),
        (large, "413", "The request is too large.", "max_body_size"),
    ];
    for (request, status, neutral, cause) in failures {
        let text = http::ask(server.address(), &request).text();
        assert!(text.starts_with(status) && text.contains(neutral), "{text}");
        assert!(!text.contains(cause), "{text}");
        let id = text.lines().find_map(|line| line.strip_prefix("Request ")).expect("an id");
        assert!(is_own(id), "{id}");
        let logged = server.expect_log(0, &format!("[request {id}]"));
        assert!(logged.contains(cause), "{logged}");
    }
    server.stop();
}
