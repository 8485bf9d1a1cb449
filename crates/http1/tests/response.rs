//! Response headers, byte for byte.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use maitred_http1::{
    CHUNK_END, CONTINUE, LAST_CHUNK, ResponseFraming, ResponseStart, Version, carries_body,
    reason_phrase, response_framing, write_chunk_header, write_head,
};

const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

const OK: ResponseStart<'_> = ResponseStart {
    version: Version::Http11,
    status: 200,
    reason: None,
    framing: ResponseFraming::Length(13),
    keep_alive: true,
    date: DATE,
};

/// The header section, and the number of headers left out.
fn written(response: &ResponseStart<'_>, headers: &[(&str, &str)]) -> (String, usize) {
    let mut out = Vec::new();
    let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let unfit = write_head(&mut out, response, headers);
    (String::from_utf8(out).unwrap(), unfit)
}

#[test]
fn an_answer_says_status_headers_server_date_and_length() {
    let expected = concat!(
        "HTTP/1.1 200 OK\r\n",
        "Content-Type: text/plain\r\n",
        "Server: maitred\r\n",
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "Content-Length: 13\r\n",
        "\r\n",
    );
    assert_eq!(written(&OK, &[("Content-Type", "text/plain")]), (expected.to_owned(), 0));
}

#[test]
fn the_applications_own_server_and_date_are_kept() {
    let (head, _) = written(&OK, &[("server", "mine"), ("DATE", "today")]);
    assert_eq!(
        head,
        "HTTP/1.1 200 OK\r\nserver: mine\r\nDATE: today\r\nContent-Length: 13\r\n\r\n"
    );
}

#[test]
fn the_application_does_not_decide_on_framing_or_connection() {
    let headers = [
        ("Content-Length", "99"),
        ("transfer-encoding", "chunked"),
        ("Connection", "close"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "x"),
        ("Upgrade", "h2c"),
        ("TE", "trailers"),
        ("Trailer", "X"),
        ("X-Own", "kept"),
    ];
    let (head, unfit) = written(&OK, &headers);
    let plain = written(&OK, &[("X-Own", "kept")]);
    assert_eq!((head, unfit), plain);
}

#[test]
fn a_header_that_would_split_the_answer_is_left_out_and_counted() {
    let headers = [
        ("A", "b\r\nSet-Cookie: evil"),
        ("A", "b\nc"),
        ("A", "b\rc"),
        ("A", "b\0c"),
        ("A\r\nB", "c"),
        ("A B", "c"),
        ("A:", "c"),
        ("", "c"),
    ];
    assert_eq!(written(&OK, &headers), (written(&OK, &[]).0, headers.len()));
}

#[test]
fn an_own_reason_is_written_unless_it_would_split_the_answer() {
    let with = |reason| written(&ResponseStart { reason: Some(reason), ..OK }, &[]).0;
    assert!(with(b"Fine").starts_with("HTTP/1.1 200 Fine\r\n"));
    assert!(with(b"").starts_with("HTTP/1.1 200 \r\n"));
    assert!(with(b"a\r\nB: c").starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn a_status_without_a_standard_reason_is_written_with_none() {
    assert!(written(&ResponseStart { status: 799, ..OK }, &[]).0.starts_with("HTTP/1.1 799 \r\n"));
    assert!(
        written(&ResponseStart { status: 99, ..OK }, &[]).0.starts_with("HTTP/1.1 500 Internal")
    );
    assert!(
        written(&ResponseStart { status: 1000, ..OK }, &[]).0.starts_with("HTTP/1.1 500 Internal")
    );
    assert_eq!((reason_phrase(404), reason_phrase(299)), ("Not Found", ""));
}

#[test]
fn the_connection_header_says_what_the_version_does_not() {
    let says = |version, keep_alive, framing| {
        let (head, _) = written(&ResponseStart { version, keep_alive, framing, ..OK }, &[]);
        head.lines().find_map(|line| line.strip_prefix("Connection: ").map(str::to_owned))
    };
    let length = ResponseFraming::Length(1);
    assert_eq!(says(Version::Http11, true, length), None);
    assert_eq!(says(Version::Http11, false, length).as_deref(), Some("close"));
    assert_eq!(says(Version::Http10, true, length).as_deref(), Some("keep-alive"));
    assert_eq!(says(Version::Http10, false, length).as_deref(), Some("close"));
    assert_eq!(says(Version::Http11, true, ResponseFraming::UntilClose).as_deref(), Some("close"));
}

#[test]
fn framing_is_chosen_by_version_method_status_and_length() {
    use ResponseFraming::{Chunked, Length, NoBody, UntilClose};
    use Version::{Http10, Http11};
    assert_eq!(response_framing(Http11, false, 200, Some(5)), Length(5));
    assert_eq!(response_framing(Http11, false, 200, None), Chunked);
    assert_eq!(response_framing(Http10, false, 200, None), UntilClose);
    assert_eq!(response_framing(Http11, true, 200, Some(5)), Length(5));
    assert_eq!(response_framing(Http11, true, 200, None), NoBody);
    for status in [100, 103, 204, 304] {
        assert_eq!(response_framing(Http11, false, status, Some(5)), NoBody, "{status}");
        assert!(!carries_body(false, status));
    }
    assert!(carries_body(false, 200) && !carries_body(true, 200) && carries_body(false, 404));
}

#[test]
fn a_204_never_says_a_length_or_a_coding() {
    for framing in [ResponseFraming::Length(0), ResponseFraming::Chunked] {
        let (head, _) = written(&ResponseStart { status: 204, framing, ..OK }, &[]);
        assert!(!head.contains("Content-Length") && !head.contains("Transfer-Encoding"), "{head}");
    }
}

#[test]
fn early_hints_say_only_what_they_are_given() {
    let hints = ResponseStart { status: 103, framing: ResponseFraming::NoBody, ..OK };
    let (head, _) = written(&hints, &[("Link", "</a.css>; rel=preload")]);
    assert_eq!(head, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
    assert_eq!(CONTINUE, written(&ResponseStart { status: 100, ..hints }, &[]).0.as_bytes());
}

#[test]
fn what_is_written_in_chunks_is_read_back() {
    let mut out = Vec::new();
    for len in [1, 9, 10, 15, 16, 255, 256, 4095, 4096, 65_536] {
        write_chunk_header(&mut out, len);
        out.extend(vec![b'x'; len]);
        out.extend_from_slice(CHUNK_END);
    }
    write_chunk_header(&mut out, 0);
    out.extend_from_slice(LAST_CHUNK);
    let (mut decoder, mut at, mut lens) = (maitred_http1::ChunkedBody::new(), 0, Vec::new());
    while !decoder.is_complete() {
        let decoded = decoder.decode(&out[at..]).unwrap();
        at += decoded.consumed;
        lens.extend(Some(decoded.data.len()).filter(|&len| len > 0));
    }
    assert_eq!(at, out.len());
    assert_eq!(lens, [1, 9, 10, 15, 16, 255, 256, 4095, 4096, 65_536]);
}
