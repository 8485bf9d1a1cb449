//! Header sections of HTTP/2 requests from their pseudo-headers and headers.

use maitred_http1::Refusal::{self, *};
use maitred_http1::{Framing, Head, Limits, MAX_METHOD_BYTES, Method, Pseudo, Version};

type Field<'a> = (&'a str, &'a str);

fn head_of(
    request_line: &str,
    authority: Option<&str>,
    fields: &[Field<'_>],
    is_all: bool,
) -> Result<Head, Refusal> {
    let (method, path) = request_line.split_once(' ').expect("a method");
    let pseudo = Pseudo { method, path, authority };
    let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    Head::of_fields(&pseudo, fields, is_all, &Limits::default())
}

fn refused(request_line: &str, authority: Option<&str>, fields: &[Field<'_>]) -> Refusal {
    head_of(request_line, authority, fields, true).expect_err("it is refused")
}

#[test]
fn a_request_is_what_its_pseudo_headers_say() {
    let fields = [("accept", "*/*"), ("cookie", "a=1"), ("cookie", "b=2")];
    let head = head_of("GET /a/b?c=d", Some("example.com:8080"), &fields, true).unwrap();
    assert_eq!((head.method(), head.kind()), ("GET", Method::Get));
    assert_eq!((head.target(), head.path()), ("/a/b?c=d", "/a/b"));
    assert_eq!(head.query(), Some("c=d"));
    assert_eq!(head.host(), "example.com:8080");
    assert_eq!(head.version(), Version::Http2);
    assert_eq!(head.version().as_str(), "HTTP/2.0");
    assert_eq!((head.body, head.keep_alive), (Framing::None, true));
    let cookies: Vec<_> = head.values("Cookie").collect();
    assert_eq!(cookies, [b"a=1", b"b=2"]);
    assert_eq!(head.header("accept"), Some(&b"*/*"[..]));
}

#[test]
fn a_body_has_the_length_that_is_said_or_ends_with_its_stream() {
    let body = |fields: &[Field<'_>], is_all| {
        let head = head_of("POST /", Some("a"), fields, is_all).unwrap();
        (head.body, head.expects_continue)
    };
    let waits = [("expect", "100-continue"), ("content-length", "3")];
    assert_eq!(body(&waits, false), (Framing::Length(3), true));
    assert_eq!(body(&[], false), (Framing::Chunked, false));
    assert_eq!(body(&waits[..1], true), (Framing::None, false));
    let empty = [("content-length", "0")];
    assert_eq!(body(&empty, true), (Framing::Length(0), false));
}

#[test]
fn host_stands_in_for_the_authority_and_must_not_disagree() {
    let get = "GET /";
    let host = [("host", "b.example")];
    let head = head_of(get, None, &host, true).unwrap();
    assert_eq!(head.host(), "b.example");
    let head = head_of(get, Some("B.example"), &host, true).unwrap();
    assert_eq!(head.host(), "B.example");
    assert_eq!(refused(get, Some("a.example"), &host), HostDisagrees);
    assert_eq!(refused(get, Some("a.example:80"), &host), HostDisagrees);
    assert_eq!(refused(get, None, &[]), NoHost);
    let two = [("host", "a"), ("host", "a")];
    assert_eq!(refused(get, None, &two), SeveralHosts);
    for form in ["user@a.example", "a b", "", "a/b", "[::1"] {
        assert_eq!(refused(get, Some(form), &[]), HostForm, "{form:?}");
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let at = Some("a.example");
    assert_eq!(refused("CONNECT ", at, &[]), Connect);
    assert_eq!(refused("GET *", at, &[]), Asterisk);
    assert_eq!(refused("GET a", at, &[]), TargetForm);
    assert_eq!(refused("GET ", at, &[]), TargetForm);
    assert_eq!(refused("GET http://b.example/", at, &[]), TargetForm);
    let long = format!("/{}", "a".repeat(16 << 10));
    assert_eq!(refused(&format!("GET {long}"), at, &[]), TargetTooLong);
    let longest = &long[..long.len() - 1];
    let head = head_of(&format!("GET {longest}"), at, &[], true).unwrap();
    assert_eq!(head.target(), longest);
    let long = "M".repeat(MAX_METHOD_BYTES + 1);
    assert_eq!(refused(&format!("{long} /"), at, &[]), MethodTooLong);
    let longest = &long[1..];
    let head = head_of(&format!("{longest} /"), at, &[], true).unwrap();
    assert_eq!(head.method(), longest);
    let lengths = [("content-length", "1"), ("content-length", "1")];
    assert_eq!(refused("POST /", at, &lengths), SeveralLengths);
    for (value, refusal) in [("1,1", SeveralLengths), ("+1", LengthForm), ("", LengthForm)] {
        let fields = [("content-length", value)];
        assert_eq!(refused("POST /", at, &fields), refusal, "{value:?}");
    }
    for value in [" a", "a ", "\ta", "a\r\nb: c", "a\0"] {
        assert_eq!(refused("GET /", at, &[("x", value)]), HeaderValue);
    }
    let other = [("expect", "a-miracle")];
    assert_eq!(refused("GET /", at, &other), Expectation);
    let many = [("x", "y"); 257];
    assert_eq!(refused("GET /", at, &many), TooManyHeaders);
}

#[test]
fn options_may_be_about_the_whole_server() {
    let head = head_of("OPTIONS *", Some("a"), &[], true).unwrap();
    assert_eq!((head.target(), head.path()), ("*", "*"));
}

#[test]
fn a_long_value_that_is_repeated_is_held_once() {
    let (long, other) = ("a".repeat(4000), "b".repeat(4000));
    let mut fields = vec![("x", long.as_str()); 15];
    fields.extend([("y", other.as_str()), ("x", &long), ("z", "short"), ("z", "short")]);
    let head = head_of("GET /", Some("a"), &fields, true).unwrap();
    let seen: Vec<_> = head.headers().collect();
    let sent = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    assert!(seen.iter().copied().eq(sent));
    assert!((8000..9000).contains(&head.memory_bytes()), "{}", head.memory_bytes());
}

#[test]
fn only_values_from_128_bytes_on_are_compared_with_those_before() {
    let length = |bytes: usize| {
        let value = "a".repeat(bytes);
        let head = head_of("GET /", Some("a"), &[("x", &value), ("x", &value)], true);
        head.unwrap().len_bytes()
    };
    assert_eq!(length(127) - length(128), 2 * 127 - 128);
}
