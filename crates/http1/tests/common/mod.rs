//! Helpers: a request delivered in pieces must mean the same as a whole one.

use bytes::BytesMut;
use maitred_http1::{Framing, Head, HeadParser, Limits, Refusal};

/// Parses `input` in pieces that end at `cuts`, until the header is complete or refused. With the
/// header comes the rest of the input.
pub fn parse_in_pieces(
    input: &[u8],
    cuts: &[usize],
    limits: &Limits,
) -> Result<Option<(Head, Vec<u8>)>, Refusal> {
    let (mut parser, mut buf, mut given) = (HeadParser::new(), BytesMut::new(), 0);
    for &cut in cuts.iter().chain([&input.len()]) {
        buf.extend_from_slice(&input[given..cut]);
        given = cut;
        if let Some(head) = parser.parse(&mut buf, limits)? {
            buf.extend_from_slice(&input[given..]);
            return Ok(Some((head, buf.to_vec())));
        }
    }
    Ok(None)
}

/// Parses `input` at once and a byte at a time, and requires the same of both.
pub fn parse_both_ways(input: &[u8], limits: &Limits) -> Result<Option<(Head, Vec<u8>)>, Refusal> {
    let whole = parse_in_pieces(input, &[], limits);
    let every_byte: Vec<usize> = (1..input.len()).collect();
    assert_eq!(whole, parse_in_pieces(input, &every_byte, limits), "{}", input.escape_ascii());
    whole
}

/// The header of a request that must be complete and valid.
#[allow(dead_code)]
pub fn good(input: &str) -> Head {
    match parse_both_ways(input.as_bytes(), &Limits::default()) {
        Ok(Some((head, _))) => head,
        other => panic!("{input:?} gives {other:?}"),
    }
}

/// The refusal of a request that must be refused.
#[allow(dead_code)]
pub fn refused(input: &[u8]) -> Refusal {
    match parse_both_ways(input, &Limits::default()) {
        Err(refusal) => refusal,
        other => panic!("{} gives {other:?}", input.escape_ascii()),
    }
}

/// The framing of a valid request with this header block.
#[allow(dead_code)]
pub fn framing(headers: &str) -> Framing {
    good(&format!("POST / HTTP/1.1\r\nHost: h\r\n{headers}\r\n")).body
}
