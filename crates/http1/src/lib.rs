//! The server's side of HTTP/1.1 (RFC 9110 and RFC 9112), as bytes in and values out: no I/O, no
//! clock, no async.
//!
//! What a request means is never guessed. Whatever two implementations could read differently (a
//! bare line feed, a folded line, two lengths, a length beside chunks) is a [`Refusal`]; after one,
//! answer with its status and close.
//!
//! - [`HeadParser`] takes a request's head off a buffer; [`Head`] tells what it says.
//! - [`Head::of_fields`] makes the same of a request of HTTP/2, so that nobody else need know of
//!   versions.
//! - [`ChunkedBody`] decodes a chunked request body without copying.
//! - [`write_head`] writes an answer's head, [`write_chunk_header`] frames its body.

mod answer;
mod ascii;
mod chunked;
mod diagnose;
mod fields;
mod head;
mod parse;
mod pseudo;
mod reason;
mod refusal;
mod target;

pub use answer::{
    Answer, AnswerFraming, CHUNK_END, CONTINUE, LAST_CHUNK, answer_framing, carries_body,
    is_hop_by_hop, write_chunk_header, write_head,
};
pub use chunked::{ChunkedBody, Decoded, MAX_EXTENSION_BYTES, MAX_TRAILER_BYTES};
pub use diagnose::HTTP2_PREFACE;
pub use head::{Framing, Head, Method, Version};
pub use parse::{HeadParser, Limits, MAX_HEADERS};
pub use pseudo::Pseudo;
pub use reason::reason_phrase;
pub use refusal::Refusal;
