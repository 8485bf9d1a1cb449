//! Connections to upstream HTTP servers.

pub(crate) mod error;
pub(crate) mod server;
pub(crate) mod stats;
pub(crate) mod upload;
