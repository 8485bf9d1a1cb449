//! Properties of any input: splitting its bytes never changes its meaning, and written output
//! parses to the same.

mod common;

use common::parse_in_pieces;
use maitred_http1::{ChunkedBody, Framing, Limits, Refusal, write_chunk_header};
use proptest::prelude::*;

/// Bytes that resemble a request: its parts, in any order and number, with noise.
fn requestish() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(b"GET / HTTP/1.1\r\n".to_vec()),
        Just(b"POST http://h/a?b HTTP/1.0\r\n".to_vec()),
        Just(b"Host: h\r\n".to_vec()),
        Just(b"Content-Length: 3\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"Connection: close, upgrade\r\n".to_vec()),
        Just(b"Expect: 100-continue\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b" ".to_vec()),
        Just(b": ".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..6),
        "[ -~]{0,8}".prop_map(String::into_bytes),
    ];
    let start = prop_oneof![Just(&b""[..]), Just(&b"GET /a HTTP/1.1\r\nHost: h\r\n"[..])];
    let end = prop_oneof![Just(&b""[..]), Just(&b"\r\n\r\nabc"[..])];
    (start, proptest::collection::vec(word, 0..6), end)
        .prop_map(|(start, words, end)| [start, &words.concat(), end].concat())
}

/// A header's name and value.
fn header_lines() -> impl Strategy<Value = (String, String)> {
    ("X-[a-zA-Z0-9-]{1,20}", "[!-~]([ -~]{0,30}[!-~])?")
}

/// Bytes that resemble a chunked body.
fn chunkish() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(b"3\r\nabc\r\n".to_vec()),
        Just(b"a;b=c\r\n0123456789\r\n".to_vec()),
        Just(b"0\r\n".to_vec()),
        Just(b"A: b\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(word, 0..10).prop_map(|words| words.concat())
}

/// Positions to split an input of `len` bytes, in order.
fn cuts(len: usize) -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0..=len, 0..8).prop_map(|mut cuts| {
        cuts.sort_unstable();
        cuts
    })
}

type Outcome = (Vec<u8>, Result<Option<usize>, Refusal>);

fn decode_in_pieces(input: &[u8], cuts: &[usize]) -> Outcome {
    let (mut decoder, mut body, mut at) = (ChunkedBody::new(), Vec::new(), 0);
    for &cut in cuts.iter().chain([&input.len()]) {
        while at < cut {
            match decoder.decode(&input[at..cut]) {
                Ok(decoded) => {
                    body.extend_from_slice(decoded.data);
                    at += decoded.consumed;
                    if decoded.complete {
                        return (body, Ok(Some(at)));
                    }
                }
                Err(refusal) => return (body, Err(refusal)),
            }
        }
    }
    (body, Ok(None))
}

proptest! {
    #[test]
    fn a_head_means_the_same_however_it_is_split(
        (input, cuts) in requestish().prop_flat_map(|input| {
            let len = input.len();
            (Just(input), cuts(len))
        }),
        max_head_bytes in 1_usize..200,
        max_headers in 0_usize..6,
    ) {
        let limits = Limits { max_head_bytes, max_headers, max_target_bytes: 8 };
        prop_assert_eq!(
            parse_in_pieces(&input, &[], &limits),
            parse_in_pieces(&input, &cuts, &limits)
        );
    }

    #[test]
    fn a_head_that_is_taken_reads_the_same_again(input in requestish()) {
        if let Ok(Some((head, rest))) = parse_in_pieces(&input, &[], &Limits::default()) {
            prop_assert!(head.target().starts_with(['/', '*']));
            prop_assert!(head.headers().all(|(name, value)| !name.is_empty()
                && !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))));
            let start = input.len() - rest.len() - head.len_bytes();
            let again = parse_in_pieces(&input[start..], &[], &Limits::default());
            prop_assert_eq!(again, Ok(Some((head, rest))));
        }
    }

    #[test]
    fn good_headers_are_all_found_with_their_values(
        headers in proptest::collection::vec(header_lines(), 0..40),
        length in any::<u32>(),
    ) {
        let lines: String = headers.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
        let start = "PUT /x HTTP/1.1\r\nHost: h\r\n";
        let request = format!("{start}{lines}Content-Length: {length}\r\n\r\n");
        let (head, rest) =
            parse_in_pieces(request.as_bytes(), &[], &Limits::default()).unwrap().unwrap();
        prop_assert_eq!(head.body, Framing::Length(length.into()));
        prop_assert!(rest.is_empty());
        let found: Vec<_> = head.headers().skip(1).take(headers.len()).collect();
        let sent: Vec<_> = headers.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        prop_assert_eq!(found, sent);
    }

    #[test]
    fn a_chunked_body_means_the_same_however_it_is_split(
        (input, cuts) in chunkish().prop_flat_map(|input| {
            let len = input.len();
            (Just(input), cuts(len))
        }),
    ) {
        prop_assert_eq!(decode_in_pieces(&input, &[]), decode_in_pieces(&input, &cuts));
    }

    #[test]
    fn chunks_that_are_written_are_read_back(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..6),
    ) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            write_chunk_header(&mut wire, chunk.len());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(maitred_http1::CHUNK_END);
        }
        wire.extend_from_slice(maitred_http1::LAST_CHUNK);
        let len = wire.len();
        wire.extend_from_slice(b"GET / HTTP/1.1\r\n");
        prop_assert_eq!(decode_in_pieces(&wire, &[]), (chunks.concat(), Ok(Some(len))));
    }
}
