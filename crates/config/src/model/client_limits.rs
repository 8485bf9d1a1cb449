//! Limits of clients.

use serde::{Deserialize, Serialize};

use crate::model::with_defaults::with_defaults;

with_defaults! {
/// Limits of clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientLimits {
    /// Maximum connections of one IPv4 address or IPv6 /64; 0 is no limit.
    pub connections_per_address: u32 = 256,
    /// Bytes for headers of requests in flight, in addition to a fixed amount for each connection.
    pub request_memory: u64 = 48 << 20,
}
}
