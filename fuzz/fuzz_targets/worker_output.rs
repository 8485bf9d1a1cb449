//! The output of a worker means the same whole and in pieces, and no message of it is empty or has
//! a line end. The first byte is the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "the supervisor's own file")]
#[path = "../../crates/supervisor/src/logging/line_framing.rs"]
mod line_framing;

use line_framing::{LineFramer, Message, OutputStream};

fn messages(pieces: std::slice::Chunks<'_, u8>) -> Vec<Message> {
    let mut framer = LineFramer::default();
    pieces.for_each(|piece| framer.take(OutputStream::Stderr, piece));
    framer.close();
    framer.messages()
}

fuzz_target!(|input: &[u8]| {
    let Some((size, output)) = input.split_first() else { return };
    let whole = messages(output.chunks(output.len().max(1)));
    for size in [usize::from(*size).max(1), 1] {
        assert_eq!(messages(output.chunks(size)), whole, "{size} bytes at a time");
    }
    assert!(whole.iter().all(|one| !one.text.is_empty() && !one.text.contains(&b'\n')));
});
