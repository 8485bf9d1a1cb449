//! A chunked body means the same whole and byte by byte, and its decoder always moves on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_http1::{ChunkedBody, Refusal};

/// The body, how much of `input` it took, and how it ended.
fn decode(input: &[u8], size: usize) -> (Vec<u8>, usize, Result<bool, Refusal>) {
    let (mut decoder, mut body, mut total) = (ChunkedBody::new(), Vec::new(), 0);
    for mut piece in input.chunks(size.max(1)) {
        while !piece.is_empty() {
            let decoded = match decoder.decode(piece) {
                Ok(decoded) => decoded,
                Err(refusal) => return (body, 0, Err(refusal)),
            };
            body.extend_from_slice(decoded.data);
            total += decoded.consumed;
            if decoded.complete {
                return (body, total, Ok(true));
            }
            assert!(decoded.consumed > 0);
            piece = &piece[decoded.consumed..];
        }
    }
    (body, total, Ok(false))
}

fuzz_target!(|input: &[u8]| {
    let whole = decode(input, input.len());
    assert_eq!(whole, decode(input, 1));
    assert!(whole.0.len() <= input.len());
});
