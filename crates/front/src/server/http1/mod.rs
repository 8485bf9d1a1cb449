//! HTTP/1.1.

pub(crate) mod body;
pub(crate) mod client;
pub(crate) mod connection;
