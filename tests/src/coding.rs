//! Bodies in a coding that takes less room.

use std::io::Read;

/// The codings that the server knows.
pub const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

/// The text that was coded.
///
/// # Panics
/// When it was not, or was no text.
pub fn decode(coding: &str, coded: &[u8]) -> String {
    let mut plain = Vec::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(coded).read_to_end(&mut plain),
        "br" => brotli::Decompressor::new(coded, 4096).read_to_end(&mut plain),
        "zstd" => zstd::stream::read::Decoder::new(coded)
            .and_then(|mut decoder| decoder.read_to_end(&mut plain)),
        _ => panic!("{coding} is no coding"),
    }
    .unwrap_or_else(|error| panic!("{coding}: {error}"));
    String::from_utf8(plain).expect("it was text")
}
