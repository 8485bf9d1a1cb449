//! The responses of a server that is measured mean the same whole and in pieces. The first byte is
//! the size of the pieces; its lowest bit says that it speaks FastCGI.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_measure::fastcgi::FastcgiReader;
use maitred_measure::marker::Marker;
use maitred_measure::response::{Fault, Http1Reader, ReadOptions, ReadResponse, ResponseSummary};

fn read(
    mut reader: impl ReadResponse,
    marker: &Marker,
    pieces: std::slice::Chunks<'_, u8>,
) -> Result<ResponseSummary, Fault> {
    reader.begin(ReadOptions { head: false, marker: Some(marker), cookies: true });
    for piece in pieces {
        if let Some(response) = reader.read(piece)? {
            return Ok(response);
        }
    }
    reader.ended()
}

/// Bytes after a response end its connection, if they are seen with it.
fn told(found: Result<ResponseSummary, Fault>) -> Option<ResponseSummary> {
    found.ok().map(|response| ResponseSummary { keep_alive: false, ..response })
}

fuzz_target!(|input: &[u8]| {
    let Some((size, input)) = input.split_first() else { return };
    let (marker, pieces) = (Marker::new("needle"), usize::from(*size).max(1));
    let both = [input.len().max(1), pieces].map(|size| {
        let chunks = input.chunks(size);
        told(match pieces & 1 {
            0 => read(Http1Reader::default(), &marker, chunks),
            _ => read(FastcgiReader::default(), &marker, chunks),
        })
    });
    assert_eq!(both[0], both[1]);
    if let Some(response) = &both[0] {
        assert!(response.body_bytes <= input.len() as u64);
    }
});
