//! The settings of a purge log in Redis.

use std::path::PathBuf;
use std::time::Duration;

use maitred_control::redis_access::RedisAccess;

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisLog {
    /// Where Redis is, and how to log in.
    pub access: RedisAccess,
    /// The beginning of all keys.
    pub prefix: String,
    /// The name of this node.
    pub node: String,
    /// Entries of the stream, about.
    pub length: u64,
    /// How long pages may be served after the log was last read.
    pub lease: Duration,
    /// How long a purge waits for other nodes.
    pub timeout: Duration,
    /// The folder of cached pages, if they are on disk.
    pub folder: Option<PathBuf>,
    /// The fronts have no page yet, except from that folder.
    pub is_cold: bool,
}
