//! HTTP/1.1.

pub(crate) mod client;
pub(crate) mod connection;
