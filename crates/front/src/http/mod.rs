//! Requests and responses, whatever the version of HTTP.

pub(crate) mod body;
pub(crate) mod body_stream;
pub(crate) mod client;
pub(crate) mod deadline;
pub(crate) mod early_hints;
pub mod hosts;
pub(crate) mod refusal;
pub(crate) mod request_memory;
pub(crate) mod server_timing;
pub(crate) mod spool;
