//! Request headers. Each is also delivered one byte at a time.

mod common;

use bytes::BytesMut;
use common::{framing, good, parse_both_ways, refused};
use maitred_http1::{
    Framing, HeadParser, Limits, MAX_HEADERS, MAX_METHOD_BYTES, Method, Refusal, Version,
};

#[test]
fn a_browsers_request_is_read_in_full() {
    let head = good(concat!(
        "GET /shop/index.php?id=7&q=a?b HTTP/1.1\r\n",
        "Host: shop.example.com:8080\r\n",
        "Accept: text/html\r\n",
        "cookie: a=1\r\n",
        "Cookie:   b=2 \t\r\n",
        "Empty:\r\n",
        "\r\n",
    ));
    assert_eq!((head.method(), head.kind()), ("GET", Method::Get));
    assert_eq!(head.target(), "/shop/index.php?id=7&q=a?b");
    assert_eq!(head.path(), "/shop/index.php");
    assert_eq!(head.query(), Some("id=7&q=a?b"));
    assert_eq!(head.version(), Version::Http11);
    assert_eq!(head.host(), "shop.example.com:8080");
    assert_eq!(head.header("COOKIE"), Some(&b"a=1"[..]));
    assert_eq!(head.values("Cookie").collect::<Vec<_>>(), [&b"a=1"[..], b"b=2"]);
    assert_eq!((head.count("cookie"), head.count("cook")), (2, 0));
    assert_eq!(head.header("Empty"), Some(&b""[..]));
    let names: Vec<&[u8]> = head.headers().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"Host"[..], b"Accept", b"cookie", b"Cookie", b"Empty"]);
    assert_eq!(head.body, Framing::None);
    assert!(head.keep_alive && !head.expects_continue);
}

#[test]
fn the_memory_of_a_header_has_a_place_for_each_line() {
    let lines: String = (0..40).map(|line| format!("X-{line}: a\r\n")).collect();
    let head = good(&format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n"));
    let places = head.memory_bytes() - head.len_bytes();
    assert!((41 * 16..2 * 41 * 16).contains(&places), "{places}");
}

#[test]
fn debug_output_names_the_target_and_no_value_of_a_header() {
    let head = good("GET /a HTTP/1.1\r\nHost: h\r\nCookie: secret\r\n\r\n");
    let text = format!("{head:?}");
    assert!(text.contains(r#"target: "/a""#) && !text.contains("secret"), "{text}");
}

#[test]
fn a_query_may_be_empty_or_missing() {
    assert_eq!(good("GET /a? HTTP/1.1\r\nHost: h\r\n\r\n").query(), Some(""));
    assert_eq!(good("GET /a HTTP/1.1\r\nHost: h\r\n\r\n").query(), None);
    assert_eq!(good("GET / HTTP/1.1\r\nHost: h\r\n\r\n").path(), "/");
}

#[test]
fn what_follows_the_head_stays_in_the_buffer() {
    let input = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET /";
    let Ok(Some((head, rest))) = parse_both_ways(input, &Limits::default()) else {
        panic!("the head is whole");
    };
    assert_eq!(head.body, Framing::Length(5));
    assert_eq!(rest, b"helloGET /");
}

#[test]
fn pipelined_requests_come_off_one_after_the_other() {
    let mut buf = BytesMut::from(
        &b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\nGET /3"[..],
    );
    let (mut parser, limits) = (HeadParser::new(), Limits::default());
    for target in ["/1", "/2"] {
        let head = parser.parse(&mut buf, &limits).unwrap().unwrap();
        assert_eq!(head.target(), target);
    }
    assert_eq!(parser.parse(&mut buf, &limits), Ok(None));
    assert_eq!(buf, &b"GET /3"[..], "a head that has begun stays until it ends");
    buf.extend_from_slice(b" HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(parser.parse(&mut buf, &limits).unwrap().unwrap().target(), "/3");
    assert!(buf.is_empty());
}

#[test]
fn two_empty_lines_before_a_request_are_skipped_and_a_third_is_not() {
    assert_eq!(good("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n").target(), "/");
    assert_eq!(good("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n").target(), "/");
    assert_eq!(refused(b"\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), Refusal::RequestLine);
}

#[test]
fn every_method_is_known_by_its_exact_name() {
    let kinds = [
        ("GET", Method::Get, true),
        ("HEAD", Method::Head, true),
        ("POST", Method::Post, false),
        ("PUT", Method::Put, true),
        ("DELETE", Method::Delete, true),
        ("OPTIONS", Method::Options, true),
        ("PATCH", Method::Patch, false),
        ("TRACE", Method::Trace, true),
        ("PROPFIND", Method::Other, false),
        ("get", Method::Other, false),
        ("M-SEARCH", Method::Other, false),
    ];
    for (name, kind, idempotent) in kinds {
        let head = good(&format!("{name} / HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!((head.method(), head.kind()), (name, kind));
        assert_eq!(kind.is_idempotent(), idempotent, "{name}");
    }
}

#[test]
fn an_absolute_target_is_split_at_its_authority() {
    let head = good("GET http://H.example:81/a?b HTTP/1.1\r\nHost: h.example:81\r\n\r\n");
    assert_eq!((head.target(), head.query(), head.host()), ("/a?b", Some("b"), "h.example:81"));
    let head = good("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((head.target(), head.path(), head.query()), ("/", "/", None));
    let head = good("OPTIONS http://h HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((head.target(), head.path(), head.query()), ("*", "*", None));
    assert_eq!(good("GET http://h/x HTTP/1.0\r\n\r\n").host(), "h");
}

#[test]
fn an_absolute_target_must_agree_with_host() {
    let refusal = refused(b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n");
    assert_eq!((refusal, refusal.status()), (Refusal::HostDisagrees, 400));
}

#[test]
fn targets_of_no_known_form_are_refused() {
    for target in
        ["a", "a/b", "ftp://h/", "http:/h/", "http:///x", "http://u@h/", "http://h?q", "/a#b"]
    {
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(refused(request.as_bytes()), Refusal::TargetForm, "{target}");
    }
    assert_eq!(refused(b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n"), Refusal::TargetForm);
}

#[test]
fn the_asterisk_is_for_options_only() {
    assert_eq!(good("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").target(), "*");
    assert_eq!(refused(b"GET * HTTP/1.1\r\nHost: h\r\n\r\n"), Refusal::Asterisk);
}

#[test]
fn connect_is_not_implemented() {
    let refusal = refused(b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n");
    assert_eq!((refusal, refusal.status()), (Refusal::Connect, 501));
}

#[test]
fn only_versions_1_0_and_1_1_are_spoken_in_request_lines() {
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/1.2", "HTTP/3.0"] {
        let refusal = refused(format!("GET / {version}\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!((refusal, refusal.status()), (Refusal::VersionUnknown, 505), "{version}");
    }
    assert_eq!(refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Refusal::Http2);
    for line in [
        "GET /",
        "GET / HTTP/1",
        "GET / HTTP/a.1",
        "GET / HTTP/1.b",
        "GET / http/1.1",
        "GET / HTTP/1.1 ",
        "GET /  HTTP/1.1",
    ] {
        let refusal = refused(format!("{line}\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!((refusal, refusal.status()), (Refusal::RequestLine, 400), "{line}");
    }
}

#[test]
fn the_refusal_names_the_first_line_that_is_wrong() {
    for target in ["/\x01", "/\t", ""] {
        let request = format!("GET {target} HTTP/1.1\r\nno colon\r\n\r\n");
        assert_eq!(refused(request.as_bytes()), Refusal::RequestLine, "{target:?}");
    }
    assert_eq!(refused(b"GET / HTTP/1.1\r\nno colon\r\n: x\r\n\r\n"), Refusal::NoColon);
}

#[test]
fn tls_on_a_plain_port_is_refused_at_its_first_byte() {
    assert_eq!(refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"), Refusal::MethodToken);
    assert_eq!(refused(b"G\x01T / HTTP/1.1\r\nHost: h\r\n\r\n"), Refusal::MethodToken);
}

#[test]
fn a_host_is_a_name_or_an_address_with_an_optional_port() {
    let names = ["h", "a-b_c.example", "h:", "%41.x", "!$&'()*+,;="];
    let addresses = ["1.2.3.4:80", "[::1]", "[2001:db8::1]:8080"];
    for host in names.into_iter().chain(addresses) {
        assert_eq!(good(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).host(), host);
    }
    for host in [
        "",
        "a b",
        "a/b",
        "u@h",
        "h:x",
        "h:65536",
        "h:080808",
        "h:1:2",
        ":80",
        "[::1",
        "[x]",
        "[]",
        "[::1]x",
        "::1",
        "a\\b",
        "a\"b",
        "%4",
        "%zz",
        "a<b",
        "\u{e9}.example",
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(refused(request.as_bytes()), Refusal::HostForm, "{host}");
    }
}

#[test]
fn host_comes_exactly_once_and_may_be_missing_on_1_0() {
    assert_eq!(refused(b"GET / HTTP/1.1\r\n\r\n"), Refusal::NoHost);
    assert_eq!(refused(b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"), Refusal::SeveralHosts);
    assert_eq!(good("GET / HTTP/1.0\r\n\r\n").host(), "");
    assert_eq!(good("GET / HTTP/1.0\r\nHost:\r\n\r\n").host(), "");
    assert_eq!(refused(b"GET / HTTP/1.0\r\nHost: a b\r\n\r\n"), Refusal::HostForm);
}

#[test]
fn connections_stay_open_as_their_version_says() {
    let stays = |version: &str, connection: &str| {
        good(&format!("GET / {version}\r\nHost: h\r\n{connection}\r\n")).keep_alive
    };
    assert!(stays("HTTP/1.1", ""));
    assert!(!stays("HTTP/1.1", "Connection: close\r\n"));
    assert!(!stays("HTTP/1.1", "Connection: x, Close ,y\r\n"));
    assert!(stays("HTTP/1.1", "User-Agent: close\r\n"));
    assert!(!stays("HTTP/1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
    assert!(stays("HTTP/1.1", "Connection: closed\r\n"));
    assert!(!stays("HTTP/1.0", ""));
    assert!(stays("HTTP/1.0", "Connection: Keep-Alive\r\n"));
    assert!(!stays("HTTP/1.0", "Connection: keep-alive, close\r\n"));
}

#[test]
fn an_upgrade_counts_only_if_connection_names_it() {
    let head =
        good("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(head.upgrade(), Some(&b"websocket"[..]));
    assert_eq!(good("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\n\r\n").upgrade(), None);
    let old = "GET / HTTP/1.0\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n";
    assert_eq!(good(old).upgrade(), None);
}

#[test]
fn a_list_header_is_searched_member_by_member() {
    let head = good("GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br , GZIP\r\n\r\n");
    assert!(head.lists("accept-encoding", "gzip") && head.lists("Accept-Encoding", "br"));
    assert!(!head.lists("Accept-Encoding", "zip"));
}

#[test]
fn a_client_may_wait_for_permission_to_send_its_body() {
    let expects = |version: &str, rest: &str| {
        good(&format!("POST / {version}\r\nHost: h\r\nExpect: 100-Continue\r\n{rest}\r\n"))
            .expects_continue
    };
    assert!(expects("HTTP/1.1", "Content-Length: 1\r\n"));
    assert!(expects("HTTP/1.1", "Transfer-Encoding: chunked\r\n"));
    assert!(!expects("HTTP/1.1", ""));
    assert!(!expects("HTTP/1.1", "Content-Length: 0\r\n"));
    assert!(!expects("HTTP/1.0", "Content-Length: 1\r\n"));
    let refusal = refused(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: a-miracle\r\n\r\n");
    assert_eq!((refusal, refusal.status()), (Refusal::Expectation, 417));
}

#[test]
fn a_body_has_a_length_or_is_chunked_or_is_not_there() {
    assert_eq!(framing(""), Framing::None);
    assert_eq!(framing("Content-Length: 0\r\n"), Framing::Length(0));
    assert_eq!(framing("Content-Length: 007\r\n"), Framing::Length(7));
    let most = format!("content-length: {}\r\n", i64::MAX);
    assert_eq!(framing(&most), Framing::Length(i64::MAX as u64));
    assert_eq!(framing("Transfer-Encoding: chunked\r\n"), Framing::Chunked);
    assert_eq!(framing("transfer-encoding: CHUNKED\r\n"), Framing::Chunked);
}

#[test]
fn a_head_may_be_as_large_as_the_limit_and_not_larger() {
    let limits = Limits { max_head_bytes: 100, ..Limits::default() };
    let of_size = |size: usize| {
        let frame = "GET / HTTP/1.1\r\nHost: h\r\nA: \r\n\r\n".len();
        format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "x".repeat(size - frame))
    };
    let (head, _) = parse_both_ways(of_size(100).as_bytes(), &limits).unwrap().unwrap();
    assert_eq!(head.len_bytes(), 100);
    let refusal = parse_both_ways(of_size(101).as_bytes(), &limits).unwrap_err();
    assert_eq!((refusal, refusal.status()), (Refusal::HeadTooLarge, 431));
}

#[test]
fn headers_up_to_the_cap_are_taken_and_one_more_is_refused() {
    let with = |count: usize| {
        let others: String = (1..count).map(|i| format!("A{i}: {i}\r\n")).collect();
        format!("GET / HTTP/1.1\r\nHost: h\r\n{others}\r\n")
    };
    let limits = Limits { max_headers: usize::MAX, ..Limits::default() };
    let (head, _) = parse_both_ways(with(MAX_HEADERS).as_bytes(), &limits).unwrap().unwrap();
    assert_eq!(head.headers().len(), MAX_HEADERS);
    assert_eq!(head.header("a255"), Some(&b"255"[..]));
    let refusal = parse_both_ways(with(MAX_HEADERS + 1).as_bytes(), &limits).unwrap_err();
    assert_eq!((refusal, refusal.status()), (Refusal::TooManyHeaders, 431));
    let few = Limits { max_headers: 3, ..limits };
    assert!(parse_both_ways(with(3).as_bytes(), &few).is_ok());
    assert_eq!(parse_both_ways(with(4).as_bytes(), &few), Err(Refusal::TooManyHeaders));
}

#[test]
fn a_target_that_is_too_long_is_told_apart_from_a_head_that_is() {
    let limits = Limits { max_target_bytes: 10, max_head_bytes: 1000, ..Limits::default() };
    let with = |len: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(len - 1));
    assert!(parse_both_ways(with(10).as_bytes(), &limits).is_ok());
    let refusal = parse_both_ways(with(11).as_bytes(), &limits).unwrap_err();
    assert_eq!((refusal, refusal.status()), (Refusal::TargetTooLong, 414));
    assert_eq!(parse_both_ways(with(2000).as_bytes(), &limits), Err(Refusal::TargetTooLong));
}

#[test]
fn a_method_that_is_too_long_is_refused_and_the_longest_is_not() {
    let with = |len: usize| format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", "M".repeat(len));
    let limits = Limits::default();
    let parsed = parse_both_ways(with(MAX_METHOD_BYTES).as_bytes(), &limits);
    let (head, _) = parsed.unwrap().unwrap();
    assert_eq!(head.method().len(), MAX_METHOD_BYTES);
    for len in [MAX_METHOD_BYTES + 1, limits.max_head_bytes / 2] {
        let refusal = parse_both_ways(with(len).as_bytes(), &limits).unwrap_err();
        assert_eq!((refusal, refusal.status()), (Refusal::MethodTooLong, 501));
    }
}

#[test]
fn a_hundred_thousand_headers_are_refused_before_they_have_all_come() {
    let mut buf = BytesMut::from(&b"GET / HTTP/1.1\r\nHost: h\r\n"[..]);
    let (mut parser, limits) = (HeadParser::new(), Limits::default());
    let refused_after = (0..100_000).find(|i| {
        buf.extend_from_slice(format!("A{i}: b\r\n").as_bytes());
        parser.parse(&mut buf, &limits) == Err(Refusal::TooManyHeaders)
    });
    assert_eq!(refused_after, Some(MAX_HEADERS - 1));
}

#[test]
fn every_refusal_tells_an_error_status_and_one_sentence() {
    let refusals = [Refusal::BareLineFeed, Refusal::TooManyHeaders, Refusal::CodingUnknown];
    for refusal in refusals {
        assert!((400..600).contains(&refusal.status()));
        assert!(refusal.to_string().ends_with('.'));
    }
}
