//! The frames of an HTTP/2 connection mean the same whole and in pieces, and what a plain reading
//! of them says. The first byte is the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the front's own file")]
#[path = "../../crates/front/src/server/http2/frames.rs"]
mod frames;

use frames::{FrameEvent, Frames};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The trailers of a connection, the bytes of an incomplete header block at its end, and the sizes
/// of frames that the client accepts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    trailers: Vec<(u32, usize)>,
    open: Option<usize>,
    frame_sizes: Vec<usize>,
}

/// As the parser reports it, for pieces of `size` bytes.
fn parse(input: &[u8], size: usize) -> Read {
    let (mut parser, mut read) = (Frames::new(), Read::default());
    parser.take(PREFACE, |what| panic!("{what:?} in the preface"));
    for piece in input.chunks(size.max(1)) {
        parser.take(piece, |what| match what {
            FrameEvent::Trailers(stream, bytes) => read.trailers.push((stream, bytes)),
            FrameEvent::Open(bytes) => {
                assert!(bytes <= input.len() && read.open.is_none_or(|before| before <= bytes));
                read.open = Some(bytes);
            }
            FrameEvent::Complete => assert!(read.open.take().is_some(), "none was open"),
            FrameEvent::FrameSize(bytes) => read.frame_sizes.push(bytes),
        });
    }
    read
}

/// As RFC 9113 §4.1 and §6 have it: frame by frame.
fn expected(mut input: &[u8]) -> Read {
    let (mut read, mut last, mut is_trailers) = (Read::default(), 0, false);
    while let Some((&[a, b, c, kind, flags, d, e, f, g], rest)) = input.split_first_chunk() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes([d & 0x7f, e, f, g]);
        let is_whole = rest.len() >= length;
        if kind == 1 {
            (is_trailers, last) = (stream <= last, last.max(stream));
        }
        if kind == 1 || kind == 9 {
            if is_trailers {
                read.trailers.push((stream, length));
            }
            let arrived = read.open.unwrap_or(0) + if is_whole { length } else { 0 };
            read.open = (!is_whole || flags & 4 == 0).then_some(arrived);
        }
        if kind == 4 {
            for setting in rest[..length.min(rest.len())].chunks_exact(6) {
                if let [0, 5, value @ ..] = setting {
                    let value = value.try_into().expect("a value has four bytes");
                    read.frame_sizes.push(u32::from_be_bytes(value) as usize);
                }
            }
        }
        input = rest.get(length..).unwrap_or_default();
    }
    read
}

fuzz_target!(|input: &[u8]| {
    let Some((size, input)) = input.split_first() else {
        return;
    };
    let expected = expected(input);
    for size in [usize::from(*size), 1, input.len()] {
        assert_eq!(parse(input, size), expected, "{size} bytes at a time");
    }
});
