//! Copies of a header section with other values, and the texts of statuses.

mod common;

use common::good;
use maitred_http1::{Head, reason_phrase};

const REQUEST: &str = "GET /a?b HTTP/1.1\r\nHost: a.example\r\nCookie: one=1\r\nX: y\r\n\
    COOKIE: two=2\r\nIf-None-Match: \"sent\"\r\n\r\n";

/// Its headers in their order, as text.
fn fields(head: &Head) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    head.headers().map(|(name, value)| (text(name), text(value))).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn other_cookies_take_the_place_of_all_that_were_sent() {
    let head = good(REQUEST);
    let rest = [("Host", "a.example"), ("X", "y"), ("If-None-Match", "\"sent\"")];
    let replaced = head.with_cookies(b"three=3");
    assert_eq!(fields(&replaced), pairs(&[&rest[..], &[("Cookie", "three=3")]].concat()));
    assert_eq!((replaced.target(), replaced.host()), (head.target(), head.host()));
    assert_eq!(fields(&head.with_cookies(b"")), pairs(&rest));
    assert_eq!(fields(&replaced.with_cookies(b"")), pairs(&rest));
    assert_eq!(head.count("cookie"), 2, "the original stays as it is");
}

#[test]
fn other_values_take_the_place_of_those_at_their_indexes() {
    let head = good(REQUEST);
    let replaced = head.with_values(&[(2, b"z".to_vec()), (0, b"b.example".to_vec())]);
    let expected = [
        ("Host", "b.example"),
        ("Cookie", "one=1"),
        ("X", "z"),
        ("COOKIE", "two=2"),
        ("If-None-Match", "\"sent\""),
    ];
    assert_eq!(fields(&replaced), pairs(&expected));
    assert_eq!(fields(&head.with_values(&[(5, b"none".to_vec())])), fields(&head));
}

#[test]
fn the_tags_that_a_client_has_sent_are_known_though_others_take_their_place() {
    let head = good(REQUEST);
    assert_eq!(head.sent_tags(), b"\"sent\"");
    let replaced = head.with_values(&[(4, b"\"ours\"".to_vec())]);
    assert_eq!(replaced.header("if-none-match"), Some(&b"\"ours\""[..]));
    assert_eq!(replaced.sent_tags(), b"\"sent\"");
    assert_eq!(head.with_values(&[(2, b"z".to_vec())]).sent_tags(), b"\"sent\"");
    assert_eq!(good("GET / HTTP/1.1\r\nHost: a\r\n\r\n").sent_tags(), b"");
}

#[test]
fn hosts_are_addresses_of_ipv6_too() {
    for host in ["[::]", "[::1]", "[2001:db8::7]:8080", "[::1]:", "[::ffff:192.0.2.1]:80"] {
        assert_eq!(good(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).host(), host);
    }
}

#[test]
fn each_status_has_the_text_of_the_registry() {
    for status in 100..=599 {
        // The crate http has the names of RFC 9110's predecessors, and one without its hyphen.
        let expected = match status {
            203 => "Non-Authoritative Information",
            413 => "Content Too Large",
            422 => "Unprocessable Content",
            // Unused, and not to be used.
            306 | 418 | 510 => "",
            _ => http::StatusCode::from_u16(status).unwrap().canonical_reason().unwrap_or_default(),
        };
        assert_eq!(reason_phrase(status), expected, "{status}");
    }
    assert_eq!(reason_phrase(999), "");
}
