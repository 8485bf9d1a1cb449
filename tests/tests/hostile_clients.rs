//! Clients that mean harm, or cannot help it: whatever one sends or fails to read, the others are
//! answered.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::http2::curl;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::wait;
use tempfile::TempDir;

/// How long a server may tolerate a client that does nothing at all.
const PATIENCE: Duration = Duration::from_secs(150);

fn site() -> TempDir {
    document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("hello.txt", "hello, file"),
        ("length.php", "<?php echo strlen(file_get_contents('php://input'));"),
        ("large.php", "<?php for ($i = 0; $i < 320; $i++) { echo str_repeat('x', 100000); }"),
    ])
}

fn answers(address: SocketAddr) {
    assert_eq!(http::get(address, "/hello.php").text(), "hello");
    assert_eq!(http::get(address, "/hello.txt").text(), "hello, file");
}

/// Sends bytes as they are; the status of the answer, which must end the connection.
fn refusal(address: SocketAddr, bytes: &[u8]) -> u16 {
    let mut connection = Connection::open(address);
    let sent = connection.send(bytes);
    let response = connection.read_response(false);
    let response = response.unwrap_or_else(|error| {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        panic!("{shown:?} got no answer: {error} (sent: {sent:?})")
    });
    assert!(connection.is_closed_by_server(), "a refused connection is closed");
    response.status
}

fn assert_refused(server: &Server, status: u16, requests: &[&[u8]]) {
    for request in requests {
        let shown = String::from_utf8_lossy(request).into_owned();
        assert_eq!(refusal(server.address(), request), status, "{shown:?}");
    }
    answers(server.address());
}

#[test]
fn a_client_that_sends_byte_by_byte_delays_nobody() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    let mut slow = Connection::open(server.address());
    for byte in Request::get("/hello.php").to_bytes() {
        slow.send(&[byte]).expect("the server takes a byte");
        answers(server.address());
    }
    assert_eq!(slow.read_response(false).expect("the slow one is answered too").text(), "hello");
}

#[test]
fn a_client_that_uploads_slowly_holds_no_worker() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    let request = Request::post("/length.php", "text/plain", &[b'x'; 100_000]).to_bytes();
    let (first, second) = request.split_at(request.len() / 2);
    let mut slow = Connection::open(server.address());
    slow.send(first).expect("the server takes half a request");
    for _ in 0..20 {
        answers(server.address());
    }
    slow.send(second).expect("the server takes the other half");
    assert_eq!(slow.read_response(false).expect("an answer").text(), "100000");
}

#[test]
fn a_client_that_never_finishes_its_head_is_sent_away() {
    let root = site();
    let server = Server::start(root.path());
    let mut idle = Connection::open(server.address());
    idle.send(b"GET /hello.php HTTP/1.1\r\nHost: loc").expect("the server takes half a head");
    idle.stream().set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    let last = String::from_utf8_lossy(&idle.read_to_end()).into_owned();
    assert!(last.is_empty() || last.starts_with("HTTP/1.1 408 "), "{last:?}");
    answers(server.address());
}

#[test]
fn a_client_that_never_reads_holds_no_worker_and_loses_nothing() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    let mut lazy = Connection::open(server.address());
    lazy.send(&Request::get("/large.php").to_bytes()).expect("the server takes a request");
    for _ in 0..20 {
        answers(server.address());
    }
    let late = lazy.read_response(false).expect("all of it is kept for the client");
    assert_eq!(late.body.len(), 32_000_000);
}

#[test]
fn a_client_that_leaves_at_any_byte_of_its_request_disturbs_nobody() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    let workers = server.workers();
    let request = Request::post("/length.php", "text/plain", b"0123456789").chunked(4).to_bytes();
    for end in 0..=request.len() {
        let mut leaver = Connection::open(server.address());
        leaver.send(&request[..end]).expect("the server takes the start of a request");
        drop(leaver);
    }
    answers(server.address());
    assert_eq!(server.workers(), workers, "no worker ended");
}

#[test]
fn a_client_that_leaves_while_it_is_answered_disturbs_nobody() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    for _ in 0..20 {
        let mut leaver = Connection::open(server.address());
        leaver.send(&Request::get("/large.php").to_bytes()).expect("the server takes a request");
        leaver.read_head().expect("the answer begins");
    }
    answers(server.address());
    // PHP ends such a script by a bailout, after which its worker is replaced.
    server.wait_for_full_strength(2, wait::DEADLINE);
}

#[test]
fn a_request_whose_client_left_the_queue_is_never_executed() {
    let root = document_root(&[
        ("hello.txt", "hello, file"),
        ("hello.php", "<?php echo 'hello';"),
        (
            "wait.php",
            "<?php echo 'waiting'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }",
        ),
        ("mark.php", "<?php error_log('the left request was executed');"),
    ]);
    let server = Setup::new(root.path()).workers(1).start();
    let mut busy = Connection::open(server.address());
    busy.send(&Request::get("/wait.php").to_bytes()).expect("the server takes a request");
    busy.read_head().expect("the only worker is busy");
    for _ in 0..5 {
        let mut leaver = Connection::open(server.address());
        leaver.send(&Request::get("/mark.php").to_bytes()).expect("the server takes a request");
        drop(leaver);
    }
    let mut patient = Connection::open(server.address());
    patient.send(&Request::get("/hello.php").to_bytes()).expect("the server takes a request");
    assert_eq!(http::get(server.address(), "/hello.txt").status, 200);
    std::fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!(patient.read_response(false).expect("an answer").text(), "hello");
    let log = server.log_text();
    assert!(!log.contains("the left request was executed"), "{log}");
}

#[test]
fn a_hundred_thousand_headers_are_refused_with_431() {
    let root = site();
    let server = Server::start(root.path());
    let mut request = Request::get("/hello.php");
    for number in 0..100_000 {
        request = request.header(&format!("X-{number}"), "1");
    }
    assert_refused(&server, 431, &[&request.to_bytes()]);
}

#[test]
fn a_header_or_target_of_a_megabyte_is_refused() {
    let root = site();
    let server = Server::start(root.path());
    let long = "x".repeat(1 << 20);
    let header = Request::get("/hello.php").header("X-Long", &long).to_bytes();
    let target = Request::get(&format!("/{long}")).to_bytes();
    assert_refused(&server, 431, &[&header]);
    assert_refused(&server, 414, &[&target]);
}

#[test]
fn a_method_of_kilobytes_reaches_neither_a_script_nor_the_log() {
    let root = site();
    let server = Setup::new(root.path()).site("max_body_size = \"1M\"").start();
    let mark = server.log().mark();
    let long = "M".repeat(60_000);
    // The script would be refused its body, with a line in the log.
    let request =
        format!("{long} /length.php HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000000\r\n\r\n");
    assert_refused(&server, 501, &[request.as_bytes()]);
    let target = format!("http://{}/hello.php", server.address());
    let status = ["-o", "/dev/null", "-w", "%{http_code}", "-X", &long[..1000], &target];
    assert_eq!(curl(&status), "501", "over HTTP/2");
    answers(server.address());
    let log = server.log().since(mark).join("\n");
    assert!(!log.contains(&long[..1000]), "{log}");
}

#[test]
fn a_body_whose_length_is_in_doubt_is_refused_with_400() {
    let root = site();
    let server = Server::start(root.path());
    let requests: [&[u8]; 9] = [
        b"POST /length.php HTTP/1.1\r\nHost: a\r\n\
          Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST /length.php HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc",
        b"POST /length.php HTTP/1.1\r\nHost: a\r\n\
          Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /length.php HTTP/1.1\r\nHost: a\r\n\
          Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"POST /length.php HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /length.php HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
        b"POST /length.php HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\nabc",
        b"POST /length.php HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /length.php HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ];
    assert_refused(&server, 400, &requests);
}

#[test]
fn bad_chunks_are_refused_with_400() {
    let root = site();
    let server = Server::start(root.path());
    let bodies = [
        "x\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3 \r\nab\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\nno colon\r\n\r\n",
    ];
    for body in bodies {
        let head = "POST /length.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_refused(&server, 400, &[format!("{head}{body}").as_bytes()]);
    }
}

#[test]
fn malformed_heads_are_refused_with_400() {
    let root = site();
    let server = Server::start(root.path());
    let requests: [&[u8]; 17] = [
        b"GET /hello.php HTTP/1.1\r\nHost: a\r\nX-N\0ul: 1\r\n\r\n",
        b"GET /hello.php HTTP/1.1\r\nHost: a\r\nX-C\rr: 1\r\n\r\n",
        b"GET /hello.php HTTP/1.1\r\nHost: a\r\nX-Value: a\0b\r\n\r\n",
        b"GET /hello.php HTTP/1.1\r\nHost: a\r\nX-Value: a\rb\r\n\r\n",
        b"GET /hello.php HTTP/1.1\r\nHost: a\r\nX Space: 1\r\n\r\n",
        b"GET /hello.php HTTP/1.1\r\nHost: a\r\nX-Before-Colon : 1\r\n\r\n",
        b"GET /hello.php HTTP/1.1\r\nHost: a\r\nX-Folded: 1\r\n two\r\n\r\n",
        b"GET /hello.php HTTP/1.1\r\nHost: a\r\n: empty name\r\n\r\n",
        b"GET /hello.php HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        b"GET /hello.php HTTP/1.1\nHost: a\n\n",
        b"GET /hello.php HTTP/1.1\r\n\r\n",
        b"GET /hello.php HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /hello.php HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET hello.php HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /hello.php\r\n\r\n",
        b"G\0T /hello.php HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not HTTP at all\r\n\r\n",
    ];
    assert_refused(&server, 400, &requests);
}

#[test]
fn a_body_over_the_limit_is_refused_before_it_is_sent() {
    let root = site();
    let server = Setup::new(root.path()).site("max_body_size = \"1M\"").start();
    let head = |length: u64| {
        format!("POST /length.php HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
    };
    let ten_gigabytes = head(10 << 30);
    assert_refused(&server, 413, &[ten_gigabytes.as_bytes(), head((1 << 20) + 1).as_bytes()]);
    let request = Request::post("/length.php", "text/plain", &vec![b'x'; 1 << 20]);
    assert_eq!(http::ask(server.address(), &request).text(), "1048576");
}

#[test]
fn a_chunked_body_is_refused_when_it_passes_the_limit() {
    let root = site();
    let server = Setup::new(root.path()).site("max_body_size = \"1M\"").start();
    let mut connection = Connection::open(server.address());
    let request = Request::post("/length.php", "text/plain", &vec![b'x'; 3 << 20]).chunked(5000);
    let response = connection.ask(&request).expect("an answer");
    assert_eq!(response.status, 413);
    answers(server.address());
}

#[test]
fn a_body_waits_for_100_continue_and_a_refused_one_gets_none() {
    let root = site();
    let server = Setup::new(root.path()).site("max_body_size = \"1M\"").start();
    let head = |length: u64| {
        format!(
            "POST /length.php HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\
             Content-Length: {length}\r\n\r\n"
        )
    };
    let mut polite = Connection::open(server.address());
    polite.send(head(5).as_bytes()).expect("the server takes a head");
    let mut stream = polite.stream().try_clone().expect("a socket can be cloned");
    let mut first = [0; 25];
    std::io::Read::read_exact(&mut stream, &mut first).expect("an interim answer comes");
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").expect("the server takes a body");
    assert_eq!(polite.read_response(false).expect("an answer").text(), "5");

    let mut refused = Connection::open(server.address());
    refused.send(head(10 << 30).as_bytes()).expect("the server takes a head");
    let response = refused.read_response(false).expect("an answer");
    assert_eq!((response.status, response.interim), (413, Vec::new()));
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let root = site();
    let server = Server::start(root.path());
    let requests = [
        Request::get("/hello.php"),
        Request::post("/length.php", "text/plain", b"12345"),
        Request::get("/hello.txt"),
        Request::post("/length.php", "text/plain", b"1234567").chunked(3),
        Request::get("/hello.php"),
    ];
    let bytes: Vec<u8> = requests.iter().flat_map(Request::to_bytes).collect();
    let mut connection = Connection::open(server.address());
    connection.send(&bytes).expect("the server takes five requests");
    for expected in ["hello", "5", "hello, file", "7", "hello"] {
        assert_eq!(connection.read_response(false).expect("an answer").text(), expected);
    }
    connection.finish_sending();
    assert!(connection.is_closed_by_server());
}

#[test]
fn a_flood_of_pipelined_requests_is_answered_completely() {
    let root = site();
    let server = Server::start(root.path());
    let one = Request::get("/hello.php").to_bytes();
    let mut connection = Connection::open(server.address());
    let mut writer = connection.stream().try_clone().expect("a socket can be cloned");
    let flood = std::thread::spawn(move || writer.write_all(&one.repeat(5000)));
    for _ in 0..5000 {
        assert_eq!(connection.read_response(false).expect("an answer").text(), "hello");
    }
    flood.join().expect("no panic").expect("all requests were taken");
}

#[test]
fn head_gets_the_headers_of_get_and_leaves_the_connection_usable() {
    let root = site();
    let server = Server::start(root.path());
    for target in ["/hello.php", "/hello.txt"] {
        let mut connection = Connection::open(server.address());
        let get = connection.ask(&Request::get(target)).expect("an answer");
        let mut request = Request::get(target);
        request.method = "HEAD".into();
        let head = connection.ask(&request).expect("an answer");
        assert!(head.body.is_empty());
        for name in ["Content-Type", "ETag", "Last-Modified"] {
            assert_eq!(head.header(name), get.header(name), "{name} of {target}");
        }
        assert_eq!(connection.ask(&Request::get(target)).expect("an answer").body, get.body);
    }
}

#[test]
fn curl_gets_what_a_user_would_expect() {
    let root = site();
    let server = Server::start(root.path());
    let output = std::process::Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--data", "a=1", "--http1.1"])
        .arg(format!("{}/length.php", server.base_url()))
        .output()
        .expect("curl is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\n3"), "{text}");
}

#[test]
fn as_many_idle_connections_as_the_limit_allows_delay_nobody() {
    const WANTED: u64 = 20_000;
    // The front keeps 512 descriptors back for files and pools.
    const KEPT_FOR_OTHERS: u64 = 600;
    let root = site();
    let server = Server::start(root.path());
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let allowed = limit.current.unwrap_or(WANTED * 2).saturating_sub(KEPT_FOR_OTHERS);
    let count = WANTED.min(allowed);
    if count < WANTED {
        eprintln!("only {count} of {WANTED} connections: the limit of open files allows no more");
    }
    let mut connections: Vec<Connection> = Vec::new();
    for _ in 0..count {
        let mut connection = Connection::open(server.address());
        connection.send(&Request::get("/hello.txt").to_bytes()).expect("a request is taken");
        connections.push(connection);
    }
    for connection in &mut connections {
        assert_eq!(connection.read_response(false).expect("an answer").text(), "hello, file");
    }
    // Not one of the first, which may have been idle for as long as one may be, and not the last,
    // which is not kept: there is hardly room.
    let late = connections.len() * 9 / 10;
    let again =
        connections[late].ask(&Request::get("/hello.php")).expect("an idle connection still works");
    assert_eq!(again.text(), "hello");
    drop(connections);
    wait::until_true("others to be answered again", || {
        http::try_ask(server.address(), &Request::get("/hello.php")).is_ok()
    });
}
