//! Servers that sites proxy to, with their requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An HTTP server that sites proxy to. Its counters restart with each front.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxyServer {
    /// The server, as in the configuration.
    pub server: String,
    /// Finished requests by result: the class of the response (`1xx` for WebSockets, to `5xx`),
    /// `unreachable`, `timeout`, `invalid_response` (or an incomplete one), `body_rejected` (the
    /// client's), `client_closed`.
    pub requests: BTreeMap<String, u64>,
    /// Their total time, without WebSockets.
    pub request_seconds: f64,
    /// Requests in flight.
    pub active_requests: u64,
    /// Opened connections.
    pub connections: u64,
}
