//! Settings of the purge log.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::redis::Redis;

/// The purge log of several nodes, in Redis or Valkey.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeLog {
    /// Where Redis is, and how to log in.
    pub redis: Redis,
    /// The name of this node; none: the host's.
    pub node: Option<String>,
    /// The beginning of all keys.
    pub prefix: String,
    /// Entries of the stream, about.
    pub length: u32,
    /// How long cached pages are served after the log was last read.
    pub lease: Duration,
    /// How long a purge waits for the other nodes.
    pub timeout: Duration,
}
