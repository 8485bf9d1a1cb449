//! A span: an operation with a start, an end and attributes.

use crate::ids::{SpanId, TraceId};

/// Longest text of an attribute in bytes; longer ones are cut.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The kind of a span, by its number in OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Within this server.
    Internal = 1,
    /// A request from a client.
    Server = 2,
    /// A request to another server.
    Client = 3,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum SpanValue {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
    /// A number with decimals, such as milliseconds.
    Decimal(f64),
    /// Yes or no.
    Flag(bool),
}

/// A span.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The trace.
    pub trace_id: TraceId,
    /// Its id.
    pub span_id: SpanId,
    /// The span that caused it.
    pub parent: Option<SpanId>,
    /// Whether `parent` is a span of another program.
    pub is_parent_remote: bool,
    /// The flags of its trace.
    pub flags: u8,
    /// The state of tracing systems.
    pub state: Option<Box<str>>,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: SpanKind,
    /// The start, in nanoseconds since 1970.
    pub start: u64,
    /// The end, in nanoseconds since 1970.
    pub end: u64,
    /// Its attributes, by name.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Whether the operation failed.
    pub has_failed: bool,
}

impl SpanValue {
    /// Text, cut after [`MAX_TEXT_BYTES`].
    pub fn text(text: &str) -> SpanValue {
        let mut end = text.len().min(MAX_TEXT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        SpanValue::Text(text.get(..end).unwrap_or_default().to_owned())
    }
}
