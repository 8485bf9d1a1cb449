//! Requests that two servers could parse differently. All of them must be refused.

mod common;

use common::refused;
use maitred_http1::Refusal::{self, *};

/// Header blocks of `POST / HTTP/1.1` with a valid Host, and their refusals.
const HEADER_BLOCKS: &[(&[u8], Refusal)] = &[
    // Two Content-Length headers, or one that is no number.
    (b"Content-Length: 5\r\nContent-Length: 6\r\n", SeveralLengths),
    (b"Content-Length: 5\r\nContent-Length: 5\r\n", SeveralLengths),
    (b"Content-Length: 5\r\ncontent-length: 5\r\n", SeveralLengths),
    (b"Content-Length: 5, 5\r\n", SeveralLengths),
    (b"Content-Length: 5,6\r\n", SeveralLengths),
    (b"Content-Length: ,5\r\n", SeveralLengths),
    (b"Content-Length: +5\r\n", LengthForm),
    (b"Content-Length: -5\r\n", LengthForm),
    (b"Content-Length: 0x5\r\n", LengthForm),
    (b"Content-Length: 5.0\r\n", LengthForm),
    (b"Content-Length: 5 5\r\n", LengthForm),
    (b"Content-Length: 5e1\r\n", LengthForm),
    (b"Content-Length: \"5\"\r\n", LengthForm),
    (b"Content-Length: 5;\r\n", LengthForm),
    (b"Content-Length: \xd9\xa5\r\n", LengthForm),
    (b"Content-Length:\r\n", LengthForm),
    (b"Content-Length: 9223372036854775808\r\n", LengthForm),
    (b"Content-Length: 18446744073709551621\r\n", LengthForm),
    // Content-Length with Transfer-Encoding, in either order.
    (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", LengthAndCoding),
    (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", LengthAndCoding),
    (b"Transfer-Encoding: chunked\r\nContent-Length: x\r\n", LengthAndCoding),
    // Transfer codings other than a single chunked.
    (b"Transfer-Encoding: chunked, chunked\r\n", CodingForm),
    (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", CodingForm),
    (b"Transfer-Encoding: chunked,\r\n", CodingForm),
    (b"Transfer-Encoding: ,chunked\r\n", CodingForm),
    (b"Transfer-Encoding:\r\n", CodingForm),
    (b"Transfer-Encoding: identity\r\n", CodingUnknown),
    (b"Transfer-Encoding: gzip, chunked\r\n", CodingUnknown),
    (b"Transfer-Encoding: chunked, identity\r\n", CodingUnknown),
    (b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", CodingUnknown),
    (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", CodingUnknown),
    (b"Transfer-Encoding: xchunked\r\n", CodingUnknown),
    (b"Transfer-Encoding: chunked;q=1\r\n", CodingUnknown),
    (b"Transfer-Encoding: \"chunked\"\r\n", CodingUnknown),
    (b"Transfer-Encoding: chun ked\r\n", CodingUnknown),
    (b"Transfer-Encoding: chunked\xa0\r\n", CodingUnknown),
    (b"Transfer-Encoding: \x0bchunked\r\n", HeaderValue),
    (b"Transfer-Encoding: chunked\x00\r\n", HeaderValue),
    // White space around names, and folded lines.
    (b"Content-Length : 5\r\n", SpaceBeforeColon),
    (b"Transfer-Encoding\t: chunked\r\n", SpaceBeforeColon),
    (b"Content Length: 5\r\n", HeaderName),
    (b" Content-Length: 5\r\n", FoldedLine),
    (b"A: b\r\n c\r\n", FoldedLine),
    (b"A: b\r\n\tTransfer-Encoding: chunked\r\n", FoldedLine),
    (b"Transfer-Encoding:\r\n chunked\r\n", FoldedLine),
    (b"A:\r\n \r\n", FoldedLine),
    // Invalid line ends.
    (b"A: b\nContent-Length: 5\r\n", BareLineFeed),
    (b"A: b\n\r\n", BareLineFeed),
    (b"\nGET /admin HTTP/1.1\r\n", BareLineFeed),
    (b"A: b\rContent-Length: 5\r\n", HeaderValue),
    (b"A: b\r\r\n", HeaderValue),
    (b"A: \r\r\n", HeaderValue),
    // Names and values with invalid bytes.
    (b": x\r\n", EmptyName),
    (b"no colon\r\n", NoColon),
    (b"Content-Length\r\n", NoColon),
    (b"Content-Length\x00: 5\r\n", HeaderName),
    (b"\x00Content-Length: 5\r\n", HeaderName),
    (b"Content\xadLength: 5\r\n", HeaderName),
    (b"Content-Length(x): 5\r\n", HeaderName),
    (b"A\rB: c\r\n", HeaderName),
    (b"A: b\x00c\r\n", HeaderValue),
    (b"A: b\x7f\r\n", HeaderValue),
    (b"A: b\x1b[31m\r\n", HeaderValue),
    // A second host.
    (b"Host: other\r\n", SeveralHosts),
];

#[test]
fn no_ambiguous_header_block_is_taken() {
    for (block, refusal) in HEADER_BLOCKS {
        let request = [b"POST / HTTP/1.1\r\nHost: h\r\n", *block, b"\r\nhello"].concat();
        assert_eq!(refused(&request), *refusal, "{}", block.escape_ascii());
    }
}

#[test]
fn no_ambiguous_request_line_is_taken() {
    let lines: &[(&[u8], Refusal)] = &[
        (b"GET / HTTP/1.1\n", BareLineFeed),
        (b"GET / HTTP/1.1\r\r\n", RequestLine),
        (b"GET\t/\tHTTP/1.1\r\n", MethodToken),
        (b"GET /\tHTTP/1.1\r\n", RequestLine),
        (b"GET  / HTTP/1.1\r\n", RequestLine),
        (b" GET / HTTP/1.1\r\n", MethodToken),
        (b"GET / x HTTP/1.1\r\n", RequestLine),
        (b"GET /\x00 HTTP/1.1\r\n", RequestLine),
        (b"GET /\x7f HTTP/1.1\r\n", RequestLine),
        (b"GET /\r/ HTTP/1.1\r\n", RequestLine),
        (b"GET / HTTP/1.1\x00\r\n", RequestLine),
        (b"GET / HTTP/1.1\x0b\r\n", RequestLine),
        (b"GET / HTTP/01.1\r\n", RequestLine),
        (b"GET / HTTP/1.10\r\n", RequestLine),
        (b"GET / HTTP/1,1\r\n", RequestLine),
        (b"G(T / HTTP/1.1\r\n", MethodToken),
        (b"\nGET / HTTP/1.1\r\n", BareLineFeed),
        (b"\rGET / HTTP/1.1\r\n", RequestLine),
    ];
    for (line, refusal) in lines {
        let request = [*line, b"Host: h\r\n\r\n"].concat();
        assert_eq!(refused(&request), *refusal, "{}", line.escape_ascii());
    }
}

#[test]
fn chunks_are_no_part_of_http_1_0() {
    let request = b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(request), CodingOnHttp10);
}

#[test]
fn unknown_codings_are_not_implemented_and_the_rest_is_a_bad_request() {
    assert_eq!(CodingUnknown.status(), 501);
    assert_eq!(CodingForm.status(), 400);
    assert_eq!(LengthAndCoding.status(), 400);
}
