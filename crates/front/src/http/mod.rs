//! Requests and responses, whatever the version of HTTP.

pub(crate) mod body;
pub(crate) mod body_stream;
pub(crate) mod client;
pub(crate) mod content;
pub(crate) mod deadline;
pub(crate) mod early_hints;
pub(crate) mod error_body;
pub(crate) mod headers;
pub mod hosts;
pub(crate) mod large_file;
pub(crate) mod request_memory;
pub(crate) mod server_timing;
pub(crate) mod spool;
pub(crate) mod spool_folder;
pub(crate) mod transfers;
