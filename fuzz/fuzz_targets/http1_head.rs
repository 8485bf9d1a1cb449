//! A header means the same whole and byte by byte; one that is taken holds nothing ambiguous.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use maitred_http1::{Framing, Head, HeadParser, Limits, Refusal, Version};

const LIMITS: Limits = Limits { max_head_bytes: 512, max_headers: 12, max_target_bytes: 100 };

/// The first header in `input`, handed over in pieces of `size` bytes.
fn parse(input: &[u8], size: usize) -> Result<Option<Head>, Refusal> {
    let (mut parser, mut buf) = (HeadParser::new(), BytesMut::new());
    for piece in input.chunks(size.max(1)) {
        buf.extend_from_slice(piece);
        if let Some(head) = parser.parse(&mut buf, &LIMITS)? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

fuzz_target!(|input: &[u8]| {
    let whole = parse(input, input.len());
    assert_eq!(whole, parse(input, 1));
    let Ok(Some(head)) = whole else {
        return;
    };
    assert!(head.target().starts_with('/') || head.target() == "*");
    assert!(head.target().starts_with(head.path()));
    assert!(head.version() == Version::Http10 || !head.host().is_empty());
    for (name, value) in head.headers() {
        assert!(!name.is_empty() && name.iter().all(u8::is_ascii_graphic));
        assert!(value.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f)));
    }
    let (lengths, codings) = (head.count("content-length"), head.count("transfer-encoding"));
    match head.body {
        Framing::None => assert_eq!((lengths, codings), (0, 0)),
        Framing::Length(_) => assert_eq!((lengths, codings), (1, 0)),
        Framing::Chunked => assert_eq!((lengths, codings), (0, 1)),
    }
});
