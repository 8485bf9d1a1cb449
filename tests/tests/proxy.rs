//! Paths that another HTTP server answers: a Node program, an nginx, and servers that fail.

use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::http2::{Connection as Http2, END_STREAM, curl, curl_with, fields};
use maitred_tests::node::Node;
use maitred_tests::proxied::{MIB, proxied, rule, said, serve, site};
use maitred_tests::server::{Setup, public_folder};
use maitred_tests::web::Web;
use maitred_tests::{Target, maitred_program, wait};

#[test]
fn a_path_is_answered_by_its_server_and_all_others_as_before() {
    let (root, node) = (site(), Node::start());
    let server = proxied(&root, &node.url(), "");
    let answer = http::get(server.address(), "/app/file.txt?a=%20b");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["url"], "/app/file.txt?a=%20b");
    assert_eq!(answer.header("X-Answered-By"), Some("node"));
    for hop in ["X-Dropped", "X-Accel-Buffering", "Keep-Alive"] {
        assert_eq!(answer.header(hop), None, "{hop}");
    }
    assert_eq!(http::get(server.address(), "/style.css").text(), "p {}");
    assert_eq!(http::get(server.address(), "/app").text(), "php");
    server.stop();
}

#[test]
fn the_server_is_told_who_the_client_is_and_not_what_it_says_of_itself() {
    let (root, node) = (site(), Node::start());
    let server = proxied(&root, &node.url(), "");
    let request = Request::new("GET", "/app/seen")
        .header("Host", "shop.example.com:8080")
        .header("X-Forwarded-For", "192.0.2.1")
        .header("X-Forwarded-Prefix", "/evil")
        .header("X_Forwarded_Proto", "https")
        .header("Forwarded", "for=192.0.2.1")
        .header("Proxy", "http://evil.example")
        .header("Connection", "close, X-Hop")
        .header("X-Hop", "1")
        .header("TE", "trailers")
        .header("Cookie", "a=1")
        .header("X-Own", "kept");
    let seen = http::ask(server.address(), &request).json();
    let fields = &seen["fields"];
    assert_eq!(fields["host"], "shop.example.com:8080");
    assert_eq!(fields["x-forwarded-for"], "127.0.0.1");
    assert_eq!(fields["x-forwarded-proto"], "http");
    assert_eq!(fields["x-forwarded-host"], "shop.example.com:8080");
    assert_eq!((&fields["cookie"], &fields["x-own"]), (&"a=1".into(), &"kept".into()));
    for gone in ["x-forwarded-prefix", "x_forwarded_proto", "forwarded", "proxy", "x-hop", "te"] {
        assert!(fields[gone].is_null(), "{gone}: {seen}");
    }
}

#[test]
fn a_trusted_proxy_in_front_is_believed_behind_as_well() {
    let (root, node) = (site(), Node::start());
    let setup = Setup::new(root.path()).top("trusted_proxies = [\"127.0.0.1\"]");
    let server = setup.site(&rule(&node.url(), "")).start();
    let request = Request::get("/app/seen")
        .header("X-Forwarded-For", "203.0.113.7, 198.51.100.9")
        .header("X-Forwarded-Proto", "https");
    let fields = http::ask(server.address(), &request).json()["fields"].clone();
    assert_eq!(fields["x-forwarded-for"], "198.51.100.9");
    assert_eq!(fields["x-forwarded-proto"], "https");
}

#[test]
fn host_and_path_are_as_the_rule_says() {
    let (root, node) = (site(), Node::start());
    let fields = ", host = \"inner.example\", strip_prefix = true";
    let server = proxied(&root, &node.url(), fields);
    for (asked, url) in [
        ("/app/a%2Fb?q", "/a%2Fb?q"),
        ("/app/", "/"),
        ("//app/x%20y", "/x%20y"),
        ("/app//x//seen", "/x//seen"),
        ("/a%70p/x", "/x"),
        ("/app/<a>?q=\"b\"", "/%3Ca%3E?q=%22b%22"),
    ] {
        let seen = http::get(server.address(), asked).json();
        assert_eq!(seen["url"], url, "{asked}");
        assert_eq!(seen["fields"]["host"], "inner.example");
        assert_eq!(seen["fields"]["x-forwarded-host"], "localhost");
    }
}

#[test]
fn no_spelling_of_a_path_leads_a_server_where_its_rule_does_not() {
    let (root, node) = (site(), Node::start());
    let server = serve(&root, &[&rule(&node.url(), ""), "deny = [\"/app/private/*\"]"]);
    for (asked, url) in [
        ("/app/private/../seen?a=/../b", "/app/seen?a=/../b"),
        ("/app/private%2f..%2fseen", "/app/seen"),
        ("/app/x/%2E%2e/./seen%20y", "/app/seen%20y"),
        ("/app/a%2Fb/seen", "/app/a%2Fb/seen"),
        ("/app/seen\\..\\private\\x", "/app/seen%5C..%5Cprivate%5Cx"),
        ("/app/.well-known/seen", "/app/.well-known/seen"),
        ("//app/app/seen", "/app/app/seen"),
        ("///app/seen//?a=//b", "/app/seen//?a=//b"),
        ("/app//a//seen", "/app//a//seen"),
    ] {
        let seen = http::get(server.address(), asked).json();
        assert_eq!(seen["url"], url, "{asked}");
    }
    for (asked, status) in [
        ("/app/seen/..%2fprivate/x", 403),
        ("/app//private/x", 403),
        ("/app/seen/..;/private/x", 400),
        ("/app/seen/%2e%2e%3Ba=b/private/x", 400),
        ("/app/../../x", 400),
    ] {
        let answer = http::get(server.address(), asked);
        assert_eq!(answer.status, status, "{asked}");
    }
    server.stop();
}

#[test]
fn a_request_is_called_the_same_behind_and_in_the_answer() {
    let (root, node) = (site(), Node::start());
    let setup = Setup::new(root.path()).top("send_request_id = true");
    let server = setup.site(&rule(&node.url(), "")).start();
    let own = Request::get("/app/seen").header("X-Request-Id", "mine");
    let answer = http::ask(server.address(), &own);
    let id = answer.json()["fields"]["x-request-id"].clone();
    let id = id.as_str().expect("it has one");
    assert_eq!(answer.header("X-Request-Id"), Some(id));
    assert_eq!(id.len(), 32, "what a client calls it does not count");
}

#[test]
fn a_unix_socket_leads_to_a_server_as_well() {
    let (root, folder) = (site(), public_folder());
    let node = Node::on_socket(&folder.path().join("app.sock"));
    let server = proxied(&root, &node.url(), "");
    let seen = http::get(server.address(), "/app/seen").json();
    assert_eq!(seen["fields"]["host"], "localhost");
}

#[test]
fn a_rewritten_path_is_passed_on_as_it_was_rewritten() {
    let (root, node) = (site(), Node::start());
    let lines = ["rewrite = [{ from = \"/old/*\", to = \"/app/$1?v=1\" }]"];
    let server = serve(&root, &[lines[0], &rule(&node.url(), "")]);
    let seen = http::get(server.address(), "/old/x?a=b").json();
    assert_eq!(seen["url"], "/app/x?v=1&a=b");
}

#[test]
fn the_rules_of_the_site_hold_for_what_a_server_answers() {
    let (root, node) = (site(), Node::start());
    let server = serve(
        &root,
        &[
            &rule(&node.url(), ""),
            "deny = [\"/app/private/*\"]",
            "headers = { X-Ours = \"1\", X-Answered-By = \"maitred\" }",
            "rate_limit = [{ path = \"/app/rare\", rate = \"1/h\" }, \
             { path = \"/app/login\", rate = \"1/h\", burst = 1 }]",
            "rewrite = [{ from = \"/enter\", to = \"/app/login\" }]",
            "error_pages = { 401 = \"/sorry.html\", 404 = \"/sorry.html\" }",
            "intercept_errors = true",
            "paths = [{ path = \"/app/small/*\", max_body_size = 10 }]",
        ],
    );
    let get = |path: &str| http::get(server.address(), path);
    assert_eq!(get("/app/private/x").status, 403);
    assert_eq!(get("/app//x/../private/x").status, 403);
    let answer = get("/app/seen");
    assert_eq!(answer.header("X-Ours"), Some("1"));
    assert_eq!(answer.all("X-Answered-By").collect::<Vec<_>>(), ["maitred"]);
    assert_eq!(get("/app/rare").status, 200);
    assert_eq!(get("/app/rare").status, 429);
    let logins = ["/enter", "/app/login", "/enter", "/app/login"];
    let is_refused = logins.map(|path| get(path).status == 429);
    assert_eq!(is_refused, [false, false, true, true]);
    assert_eq!(said(&get("/app/status?is=404")), "404 sorry");
    assert_eq!(said(&get("/app/status?is=410")), "410 own words");
    let challenges = "h=WWW-Authenticate:Basic%20realm=%22a%22&h=WWW-Authenticate:Bearer";
    let asks = get(&format!("/app/text?status=401&{challenges}"));
    assert_eq!(said(&asks), "401 sorry");
    assert_eq!(asks.all("WWW-Authenticate").collect::<Vec<_>>(), ["Basic realm=\"a\"", "Bearer"]);
    let post = |path: &str, size: usize| {
        http::ask(server.address(), &Request::post(path, "a/b", &vec![b'x'; size]))
    };
    assert_eq!(post("/app/small/digest", 10).status, 200);
    assert_eq!(post("/app/small/digest", 11).status, 413);
    let chunked = Request::post("/app/small/digest", "a/b", &[b'x'; 64]).chunked(8);
    assert_eq!(http::ask(server.address(), &chunked).status, 413);
}

#[test]
fn answers_of_every_kind_come_as_they_are() {
    let (root, node) = (site(), Node::start());
    let server = proxied(&root, &node.url(), "");
    let mut kept = Connection::open(server.address());
    for (method, path, expected) in [
        ("GET", "/app/status?is=201", "201 own words"),
        ("GET", "/app/empty/status?is=204", "204 "),
        ("GET", "/app/empty/status?is=304", "304 "),
        ("HEAD", "/app/status?is=200", "200 "),
        ("HEAD", "/app/seen", "200 "),
        ("GET", "/app/trailers", "200 body"),
        ("GET", "/app/hints", "200 hinted"),
        ("DELETE", "/app/status?is=500", "500 own words"),
        ("GET", "/app/status?is=200", "200 own words"),
    ] {
        let request = Request { method: method.to_owned(), ..Request::get(path) };
        let answer = kept.ask(&request).expect("the connection is kept");
        assert_eq!(said(&answer), expected, "{method} {path}");
        let hints: &[u16] = if path == "/app/hints" { &[103] } else { &[] };
        assert_eq!(answer.interim, hints, "{method} {path}");
    }
    let request = Request { version: "HTTP/1.0".to_owned(), ..Request::get("/app/trailers") };
    assert_eq!(said(&http::ask(server.address(), &request)), "200 body");
}

#[test]
fn events_come_when_they_happen() {
    let (root, node) = (site(), Node::start());
    let server = proxied(&root, &node.url(), "");
    let mut client = Connection::open(server.address());
    client.send(&Request::get("/app/events").to_bytes()).unwrap();
    assert_eq!(client.read_head().unwrap().status, 200);
    assert_eq!(client.read_chunk().unwrap(), b"data: first\n\n");
    assert_eq!(http::get(server.address(), "/app/go").text(), "gone");
    assert_eq!(client.read_chunk().unwrap(), b"data: last\n\n");
    assert_eq!(client.read_chunk().unwrap(), b"");
    // A stream of events has no end of its own, and holds no stop up.
    client.send(&Request::get("/app/events").to_bytes()).unwrap();
    client.read_head().unwrap();
    client.read_chunk().unwrap();
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < wait::DEADLINE, "{begun:?}");
    assert_eq!(client.read_chunk().unwrap(), b"");
}

#[test]
fn a_body_is_passed_on_while_it_comes() {
    let (root, node) = (site(), Node::start());
    let server = proxied(&root, &node.url(), "");
    for chunk in [None, Some(1), Some(1000)] {
        let mut request = Request::post("/app/echo", "text/plain", &[b'a'; 3000]);
        request.chunk_size = chunk;
        assert_eq!(http::ask(server.address(), &request).body, [b'a'; 3000], "{chunk:?}");
    }
    // The first half comes back before the second is sent.
    let mut client = Connection::open(server.address());
    let head = "POST /app/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}5\r\nfirst\r\n").as_bytes()).unwrap();
    assert_eq!(client.read_head().unwrap().status, 200);
    assert_eq!(client.read_chunk().unwrap(), b"first");
    client.send(b"4\r\nlast\r\n0\r\n\r\n").unwrap();
    assert_eq!(client.read_chunk().unwrap(), b"last");
    assert_eq!(client.read_chunk().unwrap(), b"");
    let expects = Request::post("/app/digest", "a/b", b"four").header("Expect", "100-continue");
    let head = expects.to_bytes();
    let mut client = Connection::open(server.address());
    client.send(&head[..head.len() - 4]).unwrap();
    let mut interim = [0; 25];
    client.stream().read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"four").unwrap();
    assert!(client.read_response(false).unwrap().text().starts_with("4 "));
}

#[test]
fn over_http2_it_is_the_same() {
    let (root, node) = (site(), Node::start());
    let server = proxied(&root, &node.url(), "");
    let url = |path: &str| format!("{}{path}", server.base_url());
    let h2 = "--http2-prior-knowledge";
    let seen = curl(&["-s", h2, "-H", "Cookie: a=1; b=2", &url("/app/seen?x")]);
    let seen: serde_json::Value = serde_json::from_str(&seen).expect(&seen);
    assert_eq!(seen["url"], "/app/seen?x");
    assert_eq!(seen["fields"]["cookie"], "a=1; b=2");
    assert_eq!(seen["fields"]["x-forwarded-proto"], "http");
    let body = vec![b'x'; 5 * MIB];
    let post = ["-s", h2, "--data-binary", "@-", &url("/app/digest")];
    assert!(curl_with(&post, &body).starts_with(&format!("{} ", body.len())));
    let streamed = ["-s", h2, "-T", "-", &url("/app/echo")];
    assert_eq!(curl_with(&streamed, &body).len(), body.len());
    let hinted = curl(&["-s", h2, "-D", "-", &url("/app/hints")]);
    assert!(hinted.starts_with("HTTP/2 103"), "{hinted}");
    assert!(hinted.contains("link: </a.css>; rel=preload; as=style"), "{hinted}");
    let large = url(&format!("/app/large?bytes={}", 20 * MIB));
    assert_eq!(curl(&["-s", h2, &large]).len(), 20 * MIB);
    assert_eq!(curl(&["-s", h2, &url("/app/status?is=503")]), "own words");
}

#[test]
fn an_nginx_behind_is_a_server_like_any_other() {
    let root = site();
    let back = Web::nginx("", &format!("root {}; index style.css;", root.path().display()));
    let server = proxied(&root, &back.base_url(), ", strip_prefix = true");
    let mut client = Connection::open(server.address());
    let first = client.ask(&Request::get("/app/style.css")).unwrap();
    assert_eq!(said(&first), "200 p {}");
    let etag = first.header("ETag").expect("nginx gives one").to_owned();
    let again = Request::get("/app/style.css").header("If-None-Match", &etag);
    assert_eq!(client.ask(&again).unwrap().status, 304);
    let part = Request::get("/app/style.css").header("Range", "bytes=0-1");
    assert_eq!(said(&client.ask(&part).unwrap()), "206 p ");
    assert_eq!(client.ask(&Request::get("/app/nothing")).unwrap().status, 404);
    assert_eq!(client.ask(&Request::post("/app/style.css", "a/b", b"x")).unwrap().status, 405);
}

#[test]
fn what_no_server_takes_is_refused_in_words() {
    let (root, node) = (site(), Node::start());
    let server = proxied(&root, &node.url(), "");
    let handshake = |path: &str| {
        Request::get(path)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    };
    let mark = server.log().mark();
    for path in ["/chat", "/style.css", "/index.php"] {
        let answer = http::ask(server.address(), &handshake(path));
        assert_eq!(answer.status, 501, "{path}");
        assert!(answer.text().contains("`proxy`"), "{}", answer.text());
    }
    server.expect_log(mark, "localhost: a WebSocket at /chat is refused with a 501");
    let lines = server.log().since(mark);
    let told = lines.iter().filter(|line| line.contains("a WebSocket at"));
    assert_eq!(told.count(), 1, "{lines:?}");
    // Any other protocol is passed over, as if it had not been named (RFC 9110 §7.8).
    let other = Request::get("/style.css").header("Connection", "Upgrade").header("Upgrade", "h2c");
    assert_eq!(said(&http::ask(server.address(), &other)), "200 p {}");
    let other = Request::get("/app/seen").header("Connection", "Upgrade").header("Upgrade", "h2c");
    assert!(http::ask(server.address(), &other).json()["fields"]["upgrade"].is_null());
    let connect = Request::new("CONNECT", "example.com:443").header("Host", "example.com:443");
    assert_eq!(http::ask(server.address(), &connect).status, 501);
    let mut client = Http2::open(server.address(), &[]);
    let connect = [(":method", "CONNECT"), (":authority", "example.com:443")];
    client.ask_with(1, &fields(&connect), END_STREAM);
    assert!(client.text(1).starts_with("501 "));
}

#[test]
fn explain_and_check_know_it() {
    let (root, node) = (site(), Node::start());
    let folder = public_folder();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let server = serve(
        &root,
        &[&rule(&node.url(), ""), "paths = [{ path = \"/app/*\", max_body_size = 7 }]"],
    );
    let run = |arguments: &[&str]| {
        let output = Command::new(maitred_program()).args(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let file = server.configuration();
    let file = file.to_str().unwrap();
    let (_, said) = run(&["explain", "http://localhost/app/x", "--config", file]);
    let expected = format!("/app/* matches: {}", node.url());
    assert!(said.contains(&expected), "{said}");
    assert!(said.contains("what that server says"), "{said}");
    assert!(said.contains("7 bytes"), "{said}");
    assert!(run(&["check", "--config", file]).0);
    let text = std::fs::read_to_string(file).unwrap();
    let wrong = |path: &Path| text.replace(&node.url(), &format!("unix:{}", path.display()));
    for (name, why) in [("file", "is no socket"), ("none/app.sock", "is not there")] {
        let other = folder.path().join("other.toml");
        std::fs::write(&other, wrong(&folder.path().join(name))).unwrap();
        let (good, said) = run(&["check", "--config", other.to_str().unwrap()]);
        assert!(!good && said.contains(why), "{said}");
    }
}

#[test]
fn a_reload_leaves_no_connection_behind_and_loses_no_request() {
    let (root, node) = (site(), Node::start());
    let server = proxied(&root, &node.url(), "");
    let setup = |timeout: &str| {
        let fields = format!(", read_timeout = \"{timeout}\"");
        Setup::new(root.path()).site(&rule(&node.url(), &fields))
    };
    let mut held = Connection::open(server.address());
    held.send(&Request::get("/app/events").to_bytes()).unwrap();
    held.read_head().unwrap();
    held.read_chunk().unwrap();
    for timeout in ["30s", "40s"] {
        server.configure(&setup(timeout));
        assert!(server.reload().contains("reloaded: "));
        assert_eq!(http::get(server.address(), "/app/seen").status, 200);
    }
    assert_eq!(http::get(server.address(), "/app/go").text(), "gone");
    assert_eq!(held.read_chunk().unwrap(), b"data: last\n\n");
}
