//! Traces: the headers of W3C Trace Context, the choice of requests whose spans are exported, and
//! spans in the JSON form of OTLP. No I/O.

pub mod context;
pub mod ids;
pub mod otlp;
pub mod request;
pub mod span;
pub mod tracestate;

pub use context::TraceParent;
pub use ids::{SpanId, TraceId};
pub use request::{RequestTrace, Sampling};
pub use span::{Span, SpanKind, SpanValue};
