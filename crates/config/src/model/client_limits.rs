//! Limits of clients.

use serde::{Deserialize, Serialize};

use crate::model::with_defaults::with_defaults;

with_defaults! {
/// Limits of clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientLimits {
    /// Most connections of one address, or of one /64 of IPv6; 0 is no limit.
    pub connections_per_address: u32 = 256,
    /// Bytes for the headers of requests in flight, beyond a share of each connection's own.
    pub request_memory: u64 = 48 << 20,
}
}
