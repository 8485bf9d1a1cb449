//! Headers of scripts' responses. Each is also delivered one byte at a time.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use maitred_fastcgi::cgi::{CgiHeaders, Fault, HeadError, HeadReader, Limits};

/// The header in `input`, in pieces of `size` bytes, and its length.
fn read(
    input: &[u8],
    size: usize,
    limits: Limits,
) -> Result<Option<(CgiHeaders, usize)>, HeadError> {
    let (mut reader, mut before) = (HeadReader::new(limits), 0);
    for piece in input.chunks(size) {
        if let Some((head, len)) = reader.read(piece)? {
            return Ok(Some((head, before + len)));
        }
        before += piece.len();
    }
    Ok(None)
}

fn both_ways_within(
    input: &[u8],
    limits: Limits,
) -> Result<Option<(CgiHeaders, usize)>, HeadError> {
    let whole = read(input, input.len().max(1), limits);
    assert_eq!(whole, read(input, 1, limits), "{}", input.escape_ascii());
    whole
}

fn good(input: &[u8]) -> (CgiHeaders, usize) {
    both_ways_within(input, Limits::default()).unwrap().unwrap()
}

fn refused(input: &[u8]) -> HeadError {
    both_ways_within(input, Limits::default()).unwrap_err()
}

#[test]
fn what_php_sends_is_read_and_the_body_left() {
    let input = b"Status: 404 Not Found\r\nX-Powered-By: PHP/8.2.32\r\n\
        Set-Cookie: a=1\r\nset-cookie: b=2\r\nContent-type: text/html; charset=UTF-8\r\n\r\n\
        body\n\n";
    let (head, len) = good(input);
    assert_eq!(&input[len..], b"body\n\n");
    assert_eq!((head.status(), head.reason()), (404, Some(&b"Not Found"[..])));
    assert_eq!(head.headers().len(), 4);
    assert_eq!(head.header("content-TYPE"), Some(&b"text/html; charset=UTF-8"[..]));
    assert_eq!(head.values("Set-Cookie").collect::<Vec<_>>(), [&b"a=1"[..], b"b=2"]);
    assert_eq!(head.header("Status"), None);
}

#[test]
fn lines_may_end_in_lf_alone() {
    let (head, len) = good(b"A: b\nC:d\r\n\nbody");
    assert_eq!(head.headers().collect::<Vec<_>>(), [(&b"A"[..], &b"b"[..]), (b"C", b"d")]);
    assert_eq!(len, 11);
}

#[test]
fn a_head_may_be_empty() {
    let (head, len) = good(b"\r\nbody");
    assert_eq!((head.status(), head.reason(), head.headers().len(), len), (200, None, 0, 2));
}

#[test]
fn the_status_follows_from_status_or_location() {
    assert_eq!(good(b"A: b\n\n").0.status(), 200);
    assert_eq!(good(b"Location: /x\n\n").0.status(), 302);
    assert_eq!(good(b"Location:\n\n").0.status(), 200);
    assert_eq!(good(b"Location: /x\nStatus: 201\n\n").0.status(), 201);
    assert_eq!(good(b"Location: /x\n\n").0.header("location"), Some(&b"/x"[..]));
    let (head, _) = good(b"status:\t599 \t It's odd \r\n\n");
    assert_eq!((head.status(), head.reason()), (599, Some(&b"It's odd"[..])));
    assert_eq!(good(b"Status: 200 \n\n").0.reason(), None);
}

#[test]
fn values_keep_what_is_within_and_lose_white_space_around() {
    let (head, _) = good(b"A: \t b:\xc3\xbc \x01c\t \nB:\n\n");
    assert_eq!(head.header("A"), Some(&b"b:\xc3\xbc \x01c"[..]));
    assert_eq!(head.header("B"), Some(&b""[..]));
}

#[test]
fn garbage_is_refused_with_the_line_it_is_in() {
    let heads: &[(&[u8], Fault, usize)] = &[
        (b"Hello, world\n", Fault::NoColon, 1),
        (b"HTTP/1.1 200 OK\r\n", Fault::NoColon, 1),
        (b"A: b\n<html>\n", Fault::NoColon, 2),
        (b"A: b\n folded\n", Fault::FoldedLine, 2),
        (b"\tA: b\n", Fault::FoldedLine, 1),
        (b": b\n", Fault::Name, 1),
        (b"A b: c\n", Fault::Name, 1),
        (b"A : c\n", Fault::Name, 1),
        (b"A\0: c\n", Fault::Name, 1),
        (b"A\x7f: c\n", Fault::Name, 1),
        (b"A\x7f\n", Fault::NoColon, 1),
        (b"A: b\0c\n", Fault::Value, 1),
        (b"A: b\rc\n", Fault::Value, 1),
        (b"A: b\r\r\n", Fault::Value, 1),
        (b"Status:\n", Fault::Status, 1),
        (b"Status: OK\n", Fault::Status, 1),
        (b"Status: 20\n", Fault::Status, 1),
        (b"Status: 2000\n", Fault::Status, 1),
        (b"Status: +20\n", Fault::Status, 1),
        (b"Status: 200OK\n", Fault::Status, 1),
        (b"Status: 199\n", Fault::Status, 1),
        (b"Status: 101 Switching\n", Fault::Status, 1),
        (b"Status: 200\nX: y\nStatus: 200\n", Fault::SecondStatus, 3),
    ];
    for (input, fault, line) in heads {
        let error = refused(input);
        assert_eq!((error.fault, error.line), (*fault, *line), "{}", input.escape_ascii());
    }
}

#[test]
fn an_error_quotes_the_line_escaped_and_cut() {
    let long = ["A: b\n", &"\x1b[31m x".repeat(1000), "\n"].concat();
    let message = refused(long.as_bytes()).to_string();
    assert!(message.contains("has no colon (line 2: \"\\x1b[31m x"), "{message}");
    assert!(message.len() < 400 && !message.contains('\x1b'), "{message}");
}

#[test]
fn ten_thousand_headers_are_taken() {
    let lines: String = (0..10_000).map(|i| format!("X-{i}: {i}\r\n")).collect();
    let (head, _) = good(format!("{lines}\r\n").as_bytes());
    assert_eq!(head.headers().len(), 10_000);
    assert_eq!(head.header("x-9999"), Some(&b"9999"[..]));
}

#[test]
fn a_head_is_bounded_in_bytes_and_in_headers() {
    let limits = Limits { max_bytes: 20, max_headers: 2 };
    let within = |input: &[u8]| both_ways_within(input, limits).map_err(|error| error.fault);
    assert!(within(b"A: 3456789012345678\n\nbody beyond the limit").is_err());
    assert!(within(b"A: 34567890123456\r\n\nbody beyond the limit").is_ok());
    assert_eq!(within(b"A: 3456789012345678\n\n"), Err(Fault::TooLarge(20)));
    assert_eq!(within(&[b'x'; 21]), Err(Fault::TooLarge(20)));
    let line = |input: &[u8]| both_ways_within(input, limits).map_err(|error| error.line);
    assert_eq!(line(&[b'x'; 21]), Err(1));
    assert_eq!(line(b"A: 3456789\nB: 23456789\n"), Err(2));
    assert_eq!(within(&[b'x'; 20]), Ok(None));
    assert!(within(b"A:\nB:\n\n").is_ok());
    assert_eq!(within(b"A:\nB:\nC:\n\n"), Err(Fault::TooManyHeaders(2)));
}

#[test]
fn an_answer_that_ends_early_is_told_from_one_that_never_began() {
    let mut reader = HeadReader::default();
    assert_eq!(reader.ended_early().fault, Fault::Empty);
    assert_eq!(reader.read(b"A: b\nContent"), Ok(None));
    let error = reader.ended_early();
    assert_eq!(
        (error.fault, error.line, error.excerpt.as_str()),
        (Fault::Unfinished, 2, "Content")
    );
}

#[test]
fn a_reader_can_read_the_next_head_too() {
    let mut reader = HeadReader::default();
    let (first, _) = reader.read(b"Status: 201\n\n").unwrap().unwrap();
    let (second, _) = reader.read(b"A: b\n\n").unwrap().unwrap();
    assert_eq!((first.status(), second.status()), (201, 200));
    assert_eq!(second.header("A"), Some(&b"b"[..]));
}

#[test]
fn a_word_without_a_colon_and_a_name_with_other_letters_are_left_out() {
    let lines = "noColon\r\nX-Gr\u{f6}\u{df}e: 1\r\nA: b\r\n\r\n".as_bytes();
    let (head, _) = HeadReader::new(Limits::default()).read(lines).unwrap().unwrap();
    let headers: Vec<_> = head.headers().collect();
    assert_eq!(headers, [(&b"A"[..], &b"b"[..])]);
}

#[test]
fn the_last_content_type_counts_and_an_empty_one_is_none() {
    let types = |lines: &str| {
        let lines = format!("{lines}X: y\r\n\r\n");
        let read = HeadReader::new(Limits::default()).read(lines.as_bytes());
        let (head, _) = read.unwrap().unwrap();
        let types = head.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"content-type"));
        types.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(types("Content-Type: a/b\r\ncontent-type: c/d\r\n"), ["c/d"]);
    assert_eq!(types("Content-Type: a/b\r\nContent-Type:\r\n"), [""; 0]);
    assert_eq!(types("Content-Type:\r\nContent-Type: c/d\r\n"), ["c/d"]);
}
