//! What becomes of the answers of a server behind: they are compressed as those of scripts are, and
//! counted in status and metrics.

use std::io::{Read, Write};
use std::net::SocketAddr;

use maitred_tests::coding::{CODINGS, decode};
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::http2::curl;
use maitred_tests::node::{ByHand, Node, read_head};
use maitred_tests::outside::{command, status, text};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::{Target, ports, wait};
use serde_json::Value;
use tempfile::TempDir;

/// Answers that the server compresses at a time.
const AT_A_TIME: usize = 128;

fn rule(path: &str, url: &str, fields: &str) -> String {
    format!("proxy = {{ path = \"{path}\", to = \"{url}\"{fields} }}")
}

fn serve(root: &TempDir, node: &Node, line: &str) -> Server {
    let rule = rule("/app/*", &node.url(), "");
    Setup::new(root.path()).site(&rule).site(line).start()
}

fn page() -> String {
    "some words of a page. ".repeat(200)
}

fn ask(address: SocketAddr, target: &str, accepted: &str) -> Response {
    let request = Request::get(target).header("Accept-Encoding", accepted);
    http::ask(address, &request.header("Connection", "close"))
}

#[test]
fn a_response_with_hundreds_of_headers_arrives_whole() {
    const COOKIES: usize = 500;
    let cookies: String =
        (0..COOKIES).map(|number| format!("Set-Cookie: c{number}=1\r\n")).collect();
    let response = format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 2\r\n\r\nok");
    let back = ByHand::start(move |mut stream, _| {
        read_head(&mut stream);
        let _ = stream.write_all(response.as_bytes());
    });
    let root = document_root(&[]);
    let server = Setup::new(root.path()).site(&rule("/app/*", &back.url(), "")).start();
    let response = http::get(server.address(), "/app/x");
    assert_eq!((response.status, response.text()), (200, "ok".to_owned()));
    let cookies =
        response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    assert_eq!(cookies.count(), COOKIES);
}

#[test]
fn answers_are_sent_in_the_coding_that_the_client_takes() {
    let (root, node) = (document_root(&[]), Node::start());
    let server = serve(&root, &node, "");
    let get = |query: &str, accepted: &str| {
        ask(server.address(), &format!("/app/text?{query}"), accepted)
    };
    for query in ["", "whole"] {
        for coding in CODINGS {
            let coded = get(query, coding);
            assert_eq!(coded.header("Content-Encoding"), Some(coding), "{query}");
            assert_eq!(decode(coding, &coded.body), page(), "{query}");
            assert!(coded.body.len() < page().len() / 4, "{query}");
            assert_eq!(coded.header("Vary"), Some("Accept-Encoding"));
        }
        let plain = get(query, "identity");
        assert_eq!((plain.text(), plain.header("Content-Encoding")), (page(), None));
        assert_eq!(plain.header("Vary"), Some("Accept-Encoding"));
    }
    let said =
        get("h=Content-Type:text/css&h=ETag:%22a%22&h=Vary:Cookie&h=Accept-Ranges:bytes", "gzip");
    assert_eq!(decode("gzip", &said.body), page());
    assert_eq!(said.header("ETag"), Some("\"a-maitred-gzip\""));
    assert_eq!(said.header("Vary"), Some("Cookie, Accept-Encoding"));
    assert_eq!(said.header("Accept-Ranges"), None);
    for untouched in [
        "h=Content-Type:image/png",
        "h=Content-Type:text/event-stream",
        "h=Content-Type:text/html&h=Content-Encoding:x-own",
        "h=Content-Type:text/html&h=Cache-Control:no-transform",
        "h=Content-Type:text/html&h=Content-Range:bytes%200-4399/9999&status=206",
        "times=20&whole",
    ] {
        let plain = get(untouched, "gzip");
        assert!(page().starts_with(&plain.text()), "{untouched}");
        assert_ne!(plain.header("Content-Encoding"), Some("gzip"), "{untouched}");
        assert_eq!(plain.header("Vary"), None, "{untouched}");
    }
    let mut kept = Connection::open(server.address());
    let head = Request {
        method: "HEAD".to_owned(),
        ..Request::get("/app/text?whole").header("Accept-Encoding", "br")
    };
    let head = kept.ask(&head).expect("an answer without a body");
    assert_eq!(head.header("Content-Encoding"), Some("br"));
    assert_eq!(head.header("Content-Length"), None, "it is unknown");
    let again = Request::get("/app/text").header("Accept-Encoding", "br");
    let again = kept.ask(&again).expect("the connection is kept");
    assert_eq!(decode("br", &again.body), page());
    let old = Request {
        version: "HTTP/1.0".to_owned(),
        ..Request::get("/app/text").header("Accept-Encoding", "gzip")
    };
    let old = http::ask(server.address(), &old);
    assert_eq!(decode("gzip", &old.body), page());
    let url = format!("{}/app/text", server.base_url());
    let over_http2 = curl(&["-s", "--http2-prior-knowledge", "--compressed", "-D", "-", &url]);
    assert!(over_http2.contains("content-encoding: "), "{over_http2}");
    assert!(over_http2.ends_with(&page()), "{over_http2}");
    server.stop();
}

#[test]
fn what_a_server_has_said_can_be_read_before_it_says_more() {
    let (root, node) = (document_root(&[]), Node::start());
    let server = serve(&root, &node, "");
    let mut client = Connection::open(server.address());
    let request = Request::get("/app/pieces").header("Accept-Encoding", "zstd");
    client.send(&request.to_bytes()).expect("a request is taken");
    let head = client.read_head().expect("an answer begins");
    assert_eq!(head.header("Content-Encoding"), Some("zstd"));
    let mut coded = client.read_chunk().expect("the first piece");
    let mut plain = [0; 13];
    let read = zstd::stream::read::Decoder::new(&coded[..])
        .and_then(|mut decoder| decoder.read_exact(&mut plain));
    read.expect("it can be read");
    assert_eq!(&plain, b"data: first\n\n");
    assert_eq!(http::get(server.address(), "/app/go").text(), "gone");
    loop {
        let piece = client.read_chunk().expect("the other pieces");
        if piece.is_empty() {
            break;
        }
        coded.extend(piece);
    }
    assert_eq!(decode("zstd", &coded), "data: first\n\ndata: last\n\n");
}

#[test]
fn a_site_that_compresses_nothing_leaves_them_as_they_are() {
    let (root, node) = (document_root(&[]), Node::start());
    let server = serve(&root, &node, "compression = false");
    let plain = ask(server.address(), "/app/text", "gzip, br, zstd");
    assert_eq!((plain.text(), plain.header("Vary")), (page(), None));
}

#[test]
fn no_more_answers_are_compressed_at_a_time_than_there_is_memory_for() {
    let (root, node) = (document_root(&[]), Node::start());
    let server = serve(&root, &node, "");
    let begin = || {
        let mut client = Connection::open(server.address());
        let request = Request::get("/app/pieces").header("Accept-Encoding", "gzip");
        client.send(&request.to_bytes()).expect("a request is taken");
        let head = client.read_head().expect("an answer begins");
        let coding = head.header("Content-Encoding").map(str::to_owned);
        (client, coding)
    };
    let mut all: Vec<_> = (0..AT_A_TIME).map(|_| begin()).collect();
    assert!(all.iter().all(|(_, coding)| coding.as_deref() == Some("gzip")));
    let (mut beyond, coding) = begin();
    assert_eq!(coding, None);
    assert_eq!(beyond.read_chunk().expect("a piece"), b"data: first\n\n");
    all.pop();
    wait::until("the place of one whose client has left", || {
        (begin().1.as_deref() == Some("gzip")).then_some(())
    });
}

/// The report on the only upstream server.
fn told(server: &Server) -> Value {
    wait::until("the front to tell of the server behind", || {
        let told = status(server)["proxies"][0].clone();
        told.is_object().then_some(told)
    })
}

#[test]
fn status_and_metrics_tell_what_came_of_requests() {
    let (root, node) = (document_root(&[("index.php", "<?php echo 1;")]), Node::start());
    let listener = ports::free_address();
    // Two rules with one server, which is counted once.
    let at = |url: &str| {
        let impatient = format!("path = \"/app/slow/*\", to = \"{url}\", read_timeout = \"100ms\"");
        let patient = format!("path = \"/app/*\", to = \"{url}\"");
        Setup::new(root.path())
            .top(&format!("admin = \"{listener}\""))
            .site(&format!("proxy = [{{ {impatient} }}, {{ {patient} }}]"))
    };
    let server = at(&node.url()).start();
    let mut kept = Connection::open(server.address());
    for (path, expected) in [
        ("/app/text", 200),
        ("/app/status?is=301", 301),
        ("/app/status?is=404", 404),
        ("/app/status?is=503", 503),
        ("/index.php", 200),
    ] {
        let answer = kept.ask(&Request::get(path)).expect("an answer");
        assert_eq!(answer.status, expected, "{path}");
    }
    let mut held = Connection::open(server.address());
    held.send(&Request::get("/app/pieces").to_bytes()).expect("a request is taken");
    held.read_head().expect("an answer begins");
    let busy = told(&server);
    assert_eq!(busy["active_requests"], 1, "{busy}");
    drop(held);
    // It says nothing more for so long that its answer is broken off.
    assert!(http::try_ask(server.address(), &Request::get("/app/slow/pieces")).is_err());
    let figures = wait::until("all requests to be counted", || {
        let told = told(&server);
        let is_over = told["active_requests"] == 0 && told["requests"]["timeout"] == 1;
        is_over.then_some(told)
    });
    assert_eq!(figures["server"], node.url(), "{figures}");
    for (result, count) in [
        ("1xx", 0),
        ("2xx", 1),
        ("3xx", 1),
        ("4xx", 1),
        ("5xx", 1),
        ("unreachable", 0),
        ("client_closed", 1),
    ] {
        assert_eq!(figures["requests"][result], count, "{result} in {figures}");
    }
    let seconds = figures["request_seconds"].as_f64().expect("a number");
    assert!(seconds >= 0.1, "one was waited for: {figures}");
    let opened = figures["connections"].as_u64().expect("a number");
    assert!((1..=4).contains(&opened), "most are kept: {figures}");
    let shown = text(&command(&server, &["status"]).stdout);
    let row = shown.lines().find(|line| line.starts_with(&node.url()));
    let row: Vec<&str> = row.expect(&shown).split_whitespace().collect();
    assert_eq!(row[1..6], ["6", "0", "1", "1", "1"], "{shown}");
    let metrics = http::get(listener, "/metrics").text();
    for line in [
        format!("maitred_proxy_requests_total{{server=\"{}\",result=\"2xx\"}} 1", node.url()),
        format!("maitred_proxy_requests_total{{server=\"{}\",result=\"timeout\"}} 1", node.url()),
        format!("maitred_proxy_active_requests{{server=\"{}\"}} 0", node.url()),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    // A reload keeps the counters of a server that stays, and forgets one that goes.
    server.configure(&at(&node.url()).site("headers = { X-New = \"1\" }"));
    server.reload();
    assert_eq!(told(&server)["requests"]["4xx"], 1);
    let unused = format!("http://{}", ports::free_address());
    server.configure(&at(&unused));
    server.reload();
    assert_eq!(http::get(server.address(), "/app/x").status, 502);
    let other = told(&server);
    assert_eq!((&other["server"], &other["requests"]["unreachable"]), (&unused.into(), &1.into()));
    assert_eq!(status(&server)["proxies"].as_array().map(Vec::len), Some(1));
    server.stop();
}
