//! Chunked request bodies, whole and one byte at a time.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use maitred_http1::{ChunkedBody, MAX_EXTENSION_BYTES, MAX_TRAILER_BYTES, Refusal};

/// The body in `input`, in pieces of `size` bytes, and the rest; `None` if it does not end.
fn decode(input: &[u8], size: usize) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
    let (mut decoder, mut body, mut total) = (ChunkedBody::new(), Vec::new(), 0);
    for mut piece in input.chunks(size) {
        while !piece.is_empty() {
            let decoded = decoder.decode(piece)?;
            body.extend_from_slice(decoded.data);
            total += decoded.consumed;
            if decoded.complete {
                return Ok(Some((body, total)));
            }
            assert!(decoded.consumed > 0, "a decoder that does not move would spin");
            piece = &piece[decoded.consumed..];
        }
    }
    Ok(None)
}

/// The same, once whole and once byte by byte, which must agree.
fn both_ways(input: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
    let whole = decode(input, input.len().max(1));
    assert_eq!(whole, decode(input, 1), "{}", input.escape_ascii());
    whole
}

fn body(input: &[u8]) -> (Vec<u8>, usize) {
    both_ways(input).unwrap().unwrap()
}

#[test]
fn chunks_are_joined_and_the_next_request_is_left() {
    let input = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET /";
    assert_eq!(body(input), (b"hello world".to_vec(), input.len() - 5));
}

#[test]
fn an_empty_body_is_one_last_chunk() {
    assert_eq!(body(b"0\r\n\r\n"), (vec![], 5));
    assert_eq!(body(b"000\r\n\r\n"), (vec![], 7));
}

#[test]
fn sizes_are_hexadecimal_in_either_case() {
    let data = vec![b'x'; 0xab];
    for size in ["ab", "AB", "aB", "00ab"] {
        let input = [size.as_bytes(), b"\r\n", &data, b"\r\n0\r\n\r\n"].concat();
        assert_eq!(body(&input).0, data);
    }
}

#[test]
fn extensions_and_trailers_are_passed_over() {
    let input = b"2;a=b;c=\"d e\"\r\nhi\r\n0;x\r\nA: b\r\nDigest:\r\n\r\n";
    assert_eq!(body(input), (b"hi".to_vec(), input.len()));
    assert_eq!(body(b"2 \t;a\r\nhi\r\n0\r\n\r\n").0, b"hi");
}

#[test]
fn a_body_that_has_not_ended_is_not_complete() {
    let input = b"5\r\nhello\r\n0\r\nA: b\r\n\r\n";
    for end in 0..input.len() {
        assert_eq!(both_ways(&input[..end]), Ok(None), "{}", input[..end].escape_ascii());
    }
}

#[test]
fn data_is_handed_on_before_the_chunk_has_all_come() {
    let mut decoder = ChunkedBody::new();
    let decoded = decoder.decode(b"ff\r\nabc").unwrap();
    assert_eq!((decoded.data, decoded.consumed, decoded.complete), (&b"abc"[..], 7, false));
}

#[test]
fn malformed_chunks_are_refused() {
    let bodies: &[(&[u8], Refusal)] = &[
        (b"0x5\r\nhello\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"+5\r\nhello\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"-5\r\nhello\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b" 5\r\nhello\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"5 \r\nhello\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"5 5\r\nhello\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"5_0\r\nhello\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b"\r\n5\r\nhello\r\n0\r\n\r\n", Refusal::ChunkSize),
        (b";a\r\n", Refusal::ChunkSize),
        (b"g\r\n", Refusal::ChunkSize),
        (b"\n", Refusal::ChunkSize),
        (b"5\nhello\r\n0\r\n\r\n", Refusal::ChunkLineEnd),
        (b"5\rhello\r\n0\r\n\r\n", Refusal::ChunkLineEnd),
        (b"5;a\nhello\r\n0\r\n\r\n", Refusal::ChunkLineEnd),
        (b"5;a\rb\r\nhello\r\n0\r\n\r\n", Refusal::ChunkLineEnd),
        (b"5;\x00\r\nhello\r\n0\r\n\r\n", Refusal::ChunkExtensionForm),
        (b"5\r\nhello\n0\r\n\r\n", Refusal::ChunkEnd),
        (b"5\r\nhelloX\r\n0\r\n\r\n", Refusal::ChunkEnd),
        (b"5\r\nhello\r0\r\n\r\n", Refusal::ChunkEnd),
        (b"4\r\nhello\r\n0\r\n\r\n", Refusal::ChunkEnd),
        (b"6\r\nhello\r\n0\r\n\r\n", Refusal::ChunkEnd),
        (b"5\r\nhello0\r\n\r\n", Refusal::ChunkEnd),
        (b"8000000000000000\r\n", Refusal::ChunkTooLarge),
        (b"ffffffffffffffff\r\n", Refusal::ChunkTooLarge),
        (b"10000000000000005\r\nhello\r\n", Refusal::ChunkTooLarge),
        (b"00000000000000005\r\nhello\r\n", Refusal::ChunkTooLarge),
        (b"0\n\n", Refusal::ChunkLineEnd),
        (b"0\r\n\n", Refusal::ChunkLineEnd),
        (b"0\r\n\rX", Refusal::ChunkLineEnd),
        (b"0\r\nA: b\n\r\n", Refusal::ChunkLineEnd),
        (b"0\r\nA: b\rc\r\n\r\n", Refusal::ChunkLineEnd),
        (b"0\r\n A: b\r\n\r\n", Refusal::TrailerForm),
        (b"0\r\nA : b\r\n\r\n", Refusal::TrailerForm),
        (b"0\r\n: b\r\n\r\n", Refusal::TrailerForm),
        (b"0\r\nA\r\n\r\n", Refusal::TrailerForm),
        (b"0\r\nA: b\r\n c\r\n\r\n", Refusal::TrailerForm),
        (b"0\r\nA: \x00\r\n\r\n", Refusal::TrailerForm),
        (b"0\r\nGET / HTTP/1.1\r\n\r\n", Refusal::TrailerForm),
    ];
    for (input, refusal) in bodies {
        assert_eq!(both_ways(input), Err(*refusal), "{}", input.escape_ascii());
    }
}

#[test]
fn extensions_are_bounded_over_the_whole_body() {
    let chunk = |extension: usize| format!("1;{}\r\nx\r\n", "e".repeat(extension - 1));
    let half = MAX_EXTENSION_BYTES as usize / 2;
    let within = chunk(half) + &chunk(half) + "0\r\n\r\n";
    assert_eq!(body(within.as_bytes()).0, b"xx");
    let beyond = chunk(half) + &chunk(half) + "0;\r\n\r\n";
    assert_eq!(both_ways(beyond.as_bytes()), Err(Refusal::ChunkExtensions));
    let spaces = format!("1{}", " ".repeat(half * 2 + 1));
    assert_eq!(both_ways(spaces.as_bytes()), Err(Refusal::ChunkExtensions));
}

#[test]
fn trailers_are_bounded() {
    let trailer = "A: ".to_owned() + &"x".repeat(MAX_TRAILER_BYTES as usize);
    let input = format!("0\r\n{trailer}\r\n\r\n");
    assert_eq!(both_ways(input.as_bytes()), Err(Refusal::TrailersTooLarge));
    // The bytes of a trailer section, but for its last line feed.
    let section = |bytes: u32| {
        let value = "x".repeat(bytes as usize - "A: \r\n\r".len());
        both_ways(format!("0\r\nA: {value}\r\n\r\n").as_bytes())
    };
    assert!(section(MAX_TRAILER_BYTES).is_ok_and(|decoded| decoded.is_some()));
    assert_eq!(section(MAX_TRAILER_BYTES + 1), Err(Refusal::TrailersTooLarge));
}
