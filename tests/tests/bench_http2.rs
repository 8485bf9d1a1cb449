//! `maitred bench --http2`: over TLS and without, streams, and servers that do not do as they
//! should.

use std::net::TcpStream;

use maitred_tests::bench::{Benched, bench};
use maitred_tests::http2::{
    CONTINUATION, Connection, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, fields,
    frame,
};
use maitred_tests::odd::{Odd, answer};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::tls::Authority;
use maitred_tests::{Target, ports};

/// Echoes the request and the visitor of the cookie.
const PAGE: &str = "<?php
if (isset($_GET['sleep'])) { usleep(100000); }
if (isset($_GET['to'])) { header('Location: ' . $_GET['to']); }
$seen = (int) ($_COOKIE['seen'] ?? 0);
setcookie('seen', (string) ($seen + 1));
echo $_SERVER['SERVER_PROTOCOL'], ' ', $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'],
    ' ',
    strlen(file_get_contents('php://input')), ' host=', $_SERVER['HTTP_HOST'], ' accept=',
    $_SERVER['HTTP_ACCEPT'] ?? '', ' seen=', $seen, '.', str_repeat(' ', (int) ($_GET['pad'] ??
        0));";

fn expect_served(run: &Benched, count: u64) {
    assert_eq!(run.counts(), [count, 0, 0, 0, 0], "{run:?}");
    assert_eq!(run.code, Some(0));
    assert_eq!(run.report["run"]["protocol"], "HTTP/2");
}

#[test]
fn http2_is_agreed_upon_with_tls_and_spoken_at_once_without() {
    let root = document_root(&[("index.php", PAGE)]);
    let authority = Authority::default();
    let certificate = authority.issue("site", &["localhost"]);
    let address = ports::free_address();
    let lines = [format!("certificates = [{}]", certificate.toml())];
    let server = Setup::new(root.path()).tls(address, &lines).start();
    let secured = format!("https://localhost:{}/", address.port());
    let ca = format!("--ca={}", authority.ca().display());
    let plain = format!("{}/", server.base_url());
    for url in [&[secured.as_str(), ca.as_str()][..], &[plain.as_str()]] {
        let flags = ["--http2", "--contains=HTTP/2.0 GET / 0 host="];
        let closed = ["--users=6", "--requests=60", "--streams=3", "--threads=1"];
        let run = bench(&[url, &flags, &closed].concat());
        expect_served(&run, 60);
        assert_eq!(run.number("run.streams"), 3.0);
        assert_eq!(run.number("connections.made"), 2.0, "{run:?}");
        let open = ["--rate=100", "--duration=1s", "--warm-up=0"];
        expect_served(&bench(&[url, &flags, &open].concat()), 100);
        let each = ["--users=2", "--requests=10", "--no-keepalive"];
        let run = bench(&[url, &flags, &each].concat());
        expect_served(&run, 10);
        assert_eq!(run.number("connections.made"), 10.0, "{run:?}");
    }
}

fn server() -> (tempfile::TempDir, Server) {
    let root = document_root(&[("index.php", PAGE)]);
    let server = Setup::new(root.path()).workers(8).start();
    (root, server)
}

#[test]
fn streams_of_one_connection_are_on_their_way_at_once() {
    let (_root, server) = server();
    let url = format!("{}/?sleep", server.base_url());
    // One after the other they would take 8 s.
    let load = ["--rate=40", "--duration=2s", "--warm-up=0"];
    let line = ["--http2", "--connections=1", "--streams=8"];
    let run = bench(&[&[url.as_str()], &load[..], &line].concat());
    expect_served(&run, 80);
    assert_eq!(run.number("connections.made"), 1.0);
    assert!(run.number("connections.most_in_flight") > 1.0, "{run:?}");
    let line = ["--http2", "--connections=1", "--late-after=50ms"];
    let run = bench(&[&[url.as_str()], &load[..], &line].concat());
    assert_eq!(run.code, Some(3), "one stream is too few: {run:?}");
    assert!(run.number("requests.late_for_connections") > 5.0);
}

#[test]
fn requests_mean_the_same_as_over_http1() {
    let (_root, server) = server();
    let ask = |path: &str, flags: &[&str]| {
        let url = format!("{}{path}", server.base_url());
        let load = ["--http2", "--users=2", "--requests=10", "--streams=2"];
        bench(&[&[url.as_str()], &load[..], flags].concat())
    };
    let body = "x".repeat(100_000);
    let flags = [
        "-d",
        &body,
        "-HAccept: text/test",
        "-HHost: shop.example",
        "--contains=POST /a?b=c 100000 host=shop.example accept=text/test",
    ];
    expect_served(&ask("/a?b=c", &flags), 10);
    let run = ask("/?pad=300000", &["--contains=GET /?pad"]);
    expect_served(&run, 10);
    assert!(run.number("requests.body_bytes") > 3_000_000.0);
    let run = ask("/", &["-X", "HEAD"]);
    expect_served(&run, 10);
    assert_eq!(run.number("requests.body_bytes"), 0.0);
    // Five each, if both come as often; the cookies of one are not those of the other.
    let run = ask("/", &["--cookies", "--contains=seen=0."]);
    assert_eq!(run.counts(), [2, 0, 0, 0, 8], "{run:?}");
    expect_served(&ask("/?to=/there", &["--follow", "--contains=GET /there"]), 10);
    let run = ask("/?to=http://elsewhere.example/", &["--follow"]);
    assert_eq!(run.counts(), [0, 0, 0, 0, 10], "{run:?}");
    for (flags, complaint) in [
        (&["-HConnection: close"][..], "HTTP/2 has no header 'Connection'"),
        (&["--streams=0"], "--streams 0: expected 1 to"),
        (&["--no-keepalive"], "carries several requests"),
    ] {
        let url = format!("{}/", server.base_url());
        let usual = ["--http2", "--users=2", "--requests=1"];
        let streams = if flags[0].starts_with("--streams") { "--threads=1" } else { "--streams=2" };
        let run = bench(&[&[url.as_str(), streams], &usual[..], flags].concat());
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(complaint), "{run:?}");
    }
}

/// Ten requests over HTTP/2 to a server that does with each what `serve` does.
fn ask_odd(serve: impl Fn(&mut Connection, u32) -> bool + Send + Sync + 'static) -> Benched {
    ask_odd_within("--timeout=50s", serve)
}

fn ask_odd_within(
    timeout: &str,
    serve: impl Fn(&mut Connection, u32) -> bool + Send + Sync + 'static,
) -> Benched {
    let server = Odd::start(move |stream| response_streams(stream, &serve));
    let url = format!("http://{}/", server.address());
    let load = ["--users=1", "--requests=10", timeout];
    bench(&[&[url.as_str(), "--http2"], &load[..]].concat())
}

/// Hands each stream to `serve`, until that wants no more.
fn response_streams(stream: TcpStream, serve: &dyn Fn(&mut Connection, u32) -> bool) {
    let mut connection = Connection::accepted(stream, &[]);
    while let Ok(Some(frame)) = connection.next_frame() {
        if frame.kind == HEADERS && !serve(&mut connection, frame.stream) {
            return;
        }
    }
}

/// The bytes of an answer with this `Content-Length`.
fn hello(stream: u32, length: &str) -> Vec<u8> {
    let head = fields(&[(":status", "200"), ("content-length", length)]);
    let head = frame(HEADERS, END_HEADERS, stream, &head);
    [head, frame(DATA, END_STREAM, stream, b"hello")].concat()
}

fn ends(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

#[test]
fn a_server_that_says_goodbye_is_asked_again_on_another_connection() {
    let run = ask_odd(|connection, stream| {
        let served = connection.send(&hello(stream, "5")).is_ok();
        // After the third, as one that has served enough of a connection (RFC 9113, 6.8).
        if stream < 5 {
            return served;
        }
        let goodbye = [stream.to_be_bytes(), 0_u32.to_be_bytes()].concat();
        let _ = connection.send(&frame(GOAWAY, 0, 0, &goodbye));
        false
    });
    expect_served(&run, 10);
    assert_eq!(run.number("connections.made"), 4.0, "{run:?}");
}

#[test]
fn streams_that_fail_are_counted_and_named() {
    for (code, cause, resent) in [
        (2, "the server ended it with INTERNAL_ERROR (HTTP/2)", 0.0),
        // It was not looked at, so it may be sent once more (RFC 9113, 8.7).
        (7, "the server ended it with REFUSED_STREAM (HTTP/2)", 10.0),
    ] {
        let run = ask_odd(move |connection, stream| connection.send(&ends(stream, code)).is_ok());
        assert_eq!(run.counts(), [0, 0, 10, 0, 0], "{run:?}");
        assert_eq!(run.causes(), [cause]);
        assert_eq!(run.number("requests.resent"), resent);
        assert_eq!(run.number("connections.made"), 1.0, "the others are well");
    }
    let run = ask_odd(|connection, stream| connection.send(&hello(stream, "50")).is_ok());
    assert_eq!(run.counts(), [0, 0, 10, 0, 0], "{run:?}");
    assert_eq!(run.causes(), ["not an HTTP/2 response (PROTOCOL_ERROR)"]);
    let run = ask_odd(|_, _| false);
    assert_eq!(run.counts(), [0, 0, 10, 0, 0], "{run:?}");
    let run = ask_odd_within("--timeout=300ms", |_, _| true);
    assert_eq!(run.counts(), [0, 0, 0, 10, 0], "{run:?}");
    assert_eq!(run.number("connections.made"), 10.0, "none that hangs is used again");
}

#[test]
fn endless_fields_are_cut_off_over_http2_too() {
    let run = ask_odd(|connection, stream| {
        let first = fields(&[(":status", "200")]);
        let _ = connection.send(&frame(HEADERS, 0, stream, &first));
        let more = fields(&[("x-again", "and again")]);
        while connection.send(&frame(CONTINUATION, 0, stream, &more)).is_ok() {}
        false
    });
    assert_eq!(run.counts(), [0, 0, 10, 0, 0], "{run:?}");
}

#[test]
fn a_server_that_speaks_no_http2_is_named() {
    let plain = Odd::answering(|_| answer("200 OK", "hello"));
    let url = format!("http://{}/", plain.address());
    let load = ["--http2", "--users=1", "--requests=5", "--timeout=50s"];
    let run = bench(&[&[url.as_str()], &load[..]].concat());
    assert_eq!(run.counts(), [0, 0, 5, 0, 0], "{run:?}");
    assert!(run.causes()[0].starts_with("not an HTTP/2 response"), "{run:?}");
    assert_eq!(run.code, Some(1));
}
