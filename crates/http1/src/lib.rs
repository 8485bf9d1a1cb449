//! The server side of HTTP/1.1 (RFC 9110 and RFC 9112), as bytes in and values out: no I/O, no
//! clock, no async.
//!
//! Requests are never interpreted leniently. Any ambiguity between implementations (a bare LF,
//! obs-fold, two Content-Length headers, Content-Length with Transfer-Encoding) is a [`Refusal`]:
//! respond with its status and close the connection.
//!
//! - [`HeadParser`] splits request headers off a buffer; [`Head`] is a parsed one.
//! - [`Head::of_fields`] builds the same from an HTTP/2 request, so that other code does not depend
//!   on the version.
//! - [`ChunkedBody`] decodes a chunked request body without copying.
//! - [`write_head`] writes a response header section, [`write_chunk_header`] frames its body.

mod ascii;
mod chunked;
mod diagnose;
mod framing_headers;
mod head;
mod parse;
mod pseudo;
mod reason;
mod refusal;
mod response;
mod target;

pub use chunked::{ChunkedBody, Decoded, MAX_EXTENSION_BYTES, MAX_TRAILER_BYTES};
pub use diagnose::HTTP2_PREFACE;
pub use head::{Framing, Head, Method, Version};
pub use parse::{HeadParser, Limits, MAX_HEADERS, MAX_METHOD_BYTES};
pub use pseudo::Pseudo;
pub use reason::reason_phrase;
pub use refusal::Refusal;
pub use response::{
    CHUNK_END, CONTINUE, LAST_CHUNK, ResponseFraming, ResponseStart, carries_body, is_hop_by_hop,
    response_framing, write_chunk_header, write_head,
};
