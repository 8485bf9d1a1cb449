//! A script's header means the same whole and byte by byte; one that is taken can be sent on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_fastcgi::cgi::{CgiHeaders, HeadError, HeadReader, Limits};

const LIMITS: Limits = Limits { max_bytes: 256, max_headers: 8 };

/// The header in `input`, handed over in pieces of `size` bytes, and its length.
fn read(input: &[u8], size: usize) -> Result<Option<(CgiHeaders, usize)>, HeadError> {
    let (mut reader, mut before) = (HeadReader::new(LIMITS), 0);
    for piece in input.chunks(size.max(1)) {
        if let Some((head, len)) = reader.read(piece)? {
            return Ok(Some((head, before + len)));
        }
        before += piece.len();
    }
    Ok(None)
}

fuzz_target!(|input: &[u8]| {
    let whole = read(input, input.len());
    assert_eq!(whole, read(input, 1));
    let Ok(Some((head, len))) = whole else {
        return;
    };
    assert!(len <= input.len() && input[..len].ends_with(b"\n"));
    assert!((200..1000).contains(&head.status()));
    let answer = maitred_http1::ResponseStart {
        version: maitred_http1::Version::Http11,
        status: head.status(),
        reason: head.reason(),
        framing: maitred_http1::ResponseFraming::Chunked,
        keep_alive: true,
        date: b"Sun, 06 Nov 1994 08:49:37 GMT",
    };
    let mut out = Vec::new();
    assert_eq!(maitred_http1::write_head(&mut out, &answer, head.headers()), 0);
});
