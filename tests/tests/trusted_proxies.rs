//! Who a client is that a trusted proxy speaks of: beside nginx's realip module, and behind the
//! real nginx and HAProxy, whatever the client writes.

use std::fs;
use std::net::SocketAddr;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::rules::serve_with;
use maitred_tests::server::{Server, document_root};
use maitred_tests::web::Web;
use tempfile::TempDir;

/// Where nginx and HAProxy connect from, so that they are not at their clients' address.
const PROXY: &str = "127.0.0.7";

/// What clients may write in front of the address that their proxy appends, a byte a character.
const WRITTEN: [&str; 12] = [
    "\"",
    "\u{ff}",
    "10.0.0.5",
    "10.0.0.5;x=\"",
    "for=10.0.0.5",
    "127.0.0.1, \"",
    "\\",
    ",",
    "unknown",
    "10.0.0.5, \u{80}",
    "[",
    "\"10.0.0.5",
];

fn site() -> TempDir {
    document_root(&[
        ("who.php", "<?php echo $_SERVER['REMOTE_ADDR'];"),
        ("who.txt", "let in"),
        (
            "haproxy.php",
            "<?php echo $_SERVER['REMOTE_ADDR'], ' ', $_SERVER['HTTP_X_HAPROXY_SAYS'] ?? '-';",
        ),
    ])
}

/// A server that sends `who.txt` only to networks in which no real client is.
fn serve(root: &TempDir, top: &[&str]) -> Server {
    let deny = format!("deny = {{ path = \"/who.txt\", except = [\"{PROXY}\", \"10.0.0.0/8\"] }}");
    serve_with(root, top, &[&deny])
}

fn ask(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> http::Response {
    let request = Request::get(target);
    let add = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
    http::ask(address, &headers.iter().fold(request, add))
}

/// The address that PHP sees, or the status if it does not run.
fn who(address: SocketAddr, lines: &[(&str, &str)]) -> String {
    let answer = ask(address, "/who.php", lines);
    match answer.status {
        200 => answer.text(),
        status => status.to_string(),
    }
}

fn nginx_before(server: &Server, header: &str) -> Web {
    let to = server.address();
    let lines = format!(
        "location / {{ proxy_pass http://{to}; proxy_bind {PROXY}; proxy_set_header Host $host; \
         {header} }}"
    );
    Web::nginx("", &lines)
}

fn haproxy_before(server: &Server, lines: &str) -> Web {
    let to = server.address();
    Web::haproxy(&format!("    source {PROXY}\n    server maitred {to}\n{lines}"))
}

#[test]
fn a_client_behind_nginx_is_itself_whatever_it_writes() {
    let root = site();
    let trusted = format!("trusted_proxies = [\"{PROXY}\"]");
    let server = serve(&root, &[&trusted]);
    let header = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;";
    let nginx = nginx_before(&server, header);
    for written in WRITTEN {
        let header = [("X-Forwarded-For", written)];
        assert_eq!(who(nginx.address(), &header), "127.0.0.1", "{written:?}");
        let denied = ask(nginx.address(), "/who.txt", &header);
        assert_eq!(denied.status, 403, "{written:?}");
        let twice = [header[0], ("X-Forwarded-For", "10.0.0.9")];
        assert_eq!(who(nginx.address(), &twice), "127.0.0.1", "{written:?}");
    }
    assert_eq!(who(nginx.address(), &[]), "127.0.0.1");
}

#[test]
fn a_client_behind_nginx_with_forwarded_is_itself_or_refused() {
    let root = site();
    let trusted = format!("trusted_proxies = [\"{PROXY}\"]");
    let server = serve(&root, &[&trusted, "trusted_headers = [\"Forwarded\"]"]);
    // As nginx's wiki has it.
    let header = "proxy_set_header Forwarded \"$http_forwarded, for=$remote_addr\";";
    let nginx = nginx_before(&server, header);
    for written in WRITTEN {
        let header = [("Forwarded", written)];
        let seen = who(nginx.address(), &header);
        assert!(["127.0.0.1", "400"].contains(&seen.as_str()), "{written:?}: {seen}");
        let denied = ask(nginx.address(), "/who.txt", &header);
        assert!([400, 403].contains(&denied.status), "{written:?}: {}", denied.status);
    }
    let seen = who(nginx.address(), &[("Forwarded", "for=10.0.0.5")]);
    assert_eq!(seen, "127.0.0.1", "what is well formed is no reason to refuse");
}

#[test]
fn a_client_behind_haproxy_is_itself_whatever_it_writes() {
    let root = site();
    let trusted = format!("trusted_proxies = [\"{PROXY}\"]");
    for (field, top, lines) in [
        ("X-Forwarded-For", "X-Forwarded-For", "    option forwardfor"),
        ("X-Real-IP", "X-Real-IP", "    http-request set-header X-Real-IP %[src]"),
        ("Forwarded", "Forwarded", "    http-request add-header Forwarded for=%[src]"),
    ] {
        let headers = format!("trusted_headers = [\"{top}\"]");
        let server = serve(&root, &[&trusted, &headers]);
        let haproxy = haproxy_before(&server, lines);
        for written in WRITTEN {
            let header = [(field, written)];
            let seen = who(haproxy.address(), &header);
            assert_eq!(seen, "127.0.0.1", "{field}: {written:?}");
            assert_eq!(ask(haproxy.address(), "/who.txt", &header).status, 403);
            let dropped = [header[0], ("Connection", field)];
            let seen = who(haproxy.address(), &dropped);
            assert_eq!(seen, "127.0.0.1", "{field}: {written:?}, named by Connection");
        }
    }
}

#[test]
fn a_client_whose_proxy_does_not_say_readably_who_it_is_is_refused() {
    let root = site();
    let log = root.path().join("access.log");
    fs::write(&log, "").expect("a file can be written");
    let access_log = format!("access_log = {log:?}");
    let server = serve(&root, &["trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]", &access_log]);
    for value in WRITTEN.into_iter().chain(["203.0.113.9, \", 10.0.0.2", "", "203.0.113.9%1"]) {
        if ["10.0.0.5", "for=10.0.0.5"].contains(&value) {
            continue;
        }
        let answer = ask(server.address(), "/who.php", &[("X-Forwarded-For", value)]);
        assert_eq!(answer.status, 400, "{value:?}: {}", answer.text());
        let text = answer.text();
        assert!(text.contains("does not say who the client is"), "{text}");
    }
    server.expect_log(0, "127.0.0.1, one of trusted_proxies, gets a 400: its x-forwarded-for has");
    maitred_tests::wait::until_true("the line of the access log", || {
        let lines = fs::read_to_string(&log).unwrap_or_default();
        lines.lines().any(|line| line.starts_with("- - ") && line.contains("\" 400 "))
    });
    // Who is not trusted may write what it likes.
    let server = serve(&root, &["trusted_proxies = [\"10.0.0.0/8\"]"]);
    assert_eq!(who(server.address(), &[("X-Forwarded-For", "\"")]), "127.0.0.1");
}

#[test]
fn a_trusted_proxy_that_names_no_client_asks_for_itself() {
    let root = site();
    let server = serve(&root, &["trusted_proxies = [\"127.0.0.1\"]"]);
    assert_eq!(who(server.address(), &[]), "127.0.0.1", "as a health check does");
}

/// A number after another, the same in every run (the constants of Knuth's MMIX).
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// Lines of the `X-Forwarded-For` header as proxies write them, in many combinations.
fn well_formed(state: &mut u64) -> Vec<String> {
    const HOPS: [&str; 9] = [
        "10.0.0.2",
        "10.200.0.3",
        "203.0.113.9",
        "198.51.100.7:4711",
        "2001:db8::9",
        "[2001:db8::7]:80",
        "fd00::5",
        "[fd00::6]:443",
        "127.0.0.1",
    ];
    let lines = 1 + next(state) % 3;
    let line = |_| {
        let hops = 1 + next(state) % 4;
        let separator = [", ", ",", " , "][next(state) % 3];
        let hops: Vec<&str> = (0..hops).map(|_| HOPS[next(state) % HOPS.len()]).collect();
        hops.join(separator)
    };
    (0..lines).map(line).collect()
}

#[test]
fn well_formed_lists_mean_what_they_mean_to_nginx() {
    let root = site();
    for is_recursive in [true, false] {
        compare_with_nginx(&root, is_recursive);
    }
}

fn compare_with_nginx(root: &TempDir, is_recursive: bool) {
    let trusted = "trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\", \"fd00::/8\"]";
    let server = serve(root, &[trusted, &format!("trusted_recursive = {is_recursive}")]);
    let recursive = if is_recursive { "on" } else { "off" };
    let nginx = Web::nginx(
        "",
        &format!(
            "set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; set_real_ip_from fd00::/8; \
             real_ip_header X-Forwarded-For; real_ip_recursive {recursive}; \
             location / {{ return 200 \"$remote_addr\"; }}"
        ),
    );
    let mut state = 24;
    for _ in 0..400 {
        let lines = well_formed(&mut state);
        let lines: Vec<(&str, &str)> =
            lines.iter().map(|line| ("X-Forwarded-For", line.as_str())).collect();
        let expected = who(nginx.address(), &lines);
        assert_eq!(who(server.address(), &lines), expected, "{lines:?}");
    }
    // Where nginx cannot read an address, the proxy, or the one before it, is the client.
    for line in WRITTEN {
        let lines = [("X-Forwarded-For", line)];
        let seen = who(server.address(), &lines);
        let expected = who(nginx.address(), &lines);
        assert!(seen == "400" || seen == expected, "{line:?}: {seen}, nginx: {expected}");
    }
}

#[test]
fn the_last_address_is_what_it_is_to_haproxy() {
    let root = site();
    let trusted = format!("trusted_proxies = [\"{PROXY}\"]");
    let server = serve(&root, &[&trusted]);
    let lines = "    http-request set-header X-Haproxy-Says %[req.hdr_ip(x-forwarded-for,-1)]";
    let haproxy = haproxy_before(&server, lines);
    let mut state = 7;
    for _ in 0..200 {
        let lines = well_formed(&mut state);
        let lines: Vec<(&str, &str)> =
            lines.iter().map(|line| ("X-Forwarded-For", line.as_str())).collect();
        let seen = ask(haproxy.address(), "/haproxy.php", &lines);
        let text = seen.text();
        let (ours, theirs) = text.split_once(' ').expect("both speak");
        // HAProxy 2.6 does not read an address of IPv6 in brackets.
        let is_bracketed = lines.last().is_some_and(|(_, line)| line.contains(']'));
        let is_read = !is_bracketed || !theirs.is_empty();
        assert!(ours == theirs || !is_read, "{lines:?}: {ours}, {theirs}");
    }
}

#[test]
fn a_connection_of_whose_client_the_proxy_protocol_says_nothing_is_closed() {
    let root = site();
    let top = ["trusted_proxies = \"127.0.0.1\"", "proxy_protocol = true"];
    let server = serve(&root, &top);
    let request = Request::get("/who.php").header("X-Forwarded-For", "10.0.0.5");
    let unspecified = b"\r\n\r\n\0\r\nQUIT\n\x21\x00\0\0";
    for header in [&b"PROXY UNKNOWN\r\n"[..], unspecified] {
        let mut connection = Connection::open(server.address());
        let _ = connection.send(&[header, &request.to_bytes()].concat());
        assert!(connection.is_closed_by_server(), "{}", header.escape_ascii());
    }
    server.expect_log(0, "the PROXY protocol does not name the client's address");
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0";
    let mut connection = Connection::open(server.address());
    let check = Request::get("/who.php").to_bytes();
    connection.send(&[&local[..], &check].concat()).expect("it is taken");
    let answer = connection.read_response(false).expect("an answer comes");
    assert_eq!(answer.text(), "127.0.0.1", "LOCAL is the proxy's own");
}
