use serde::{Deserialize, Serialize};

const DEFAULT_CONNECTIONS_PER_ADDRESS: u32 = 256;
const DEFAULT_REQUEST_MEMORY_BYTES: u64 = 48 << 20;

/// What clients may take of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientLimits {
    /// Most connections of one address, or of one /64 of IPv6; 0 is no limit.
    pub connections_per_address: u32,
    /// Bytes that requests in hand may hold with their heads, beyond a share of each connection's own.
    pub request_memory: u64,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            connections_per_address: DEFAULT_CONNECTIONS_PER_ADDRESS,
            request_memory: DEFAULT_REQUEST_MEMORY_BYTES,
        }
    }
}
