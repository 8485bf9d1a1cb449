//! Settings of the purge log.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::redis::Redis;

/// The purge log of several nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeLog {
    /// Where it is.
    pub place: PurgeLogPlace,
    /// The name of this node; none: the host's.
    pub node: Option<String>,
    /// Purges that the log has, about.
    pub length: u32,
    /// How long cached pages are served after the log, or a peer, was last reached.
    pub lease: Duration,
    /// How long a purge waits for the other nodes.
    pub timeout: Duration,
}

/// Where a purge log is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PurgeLogPlace {
    /// In a stream of Redis or Valkey.
    Redis {
        /// Where that is, and how to log in.
        redis: Redis,
        /// The beginning of all keys.
        prefix: String,
    },
    /// Each node has its own, which the others follow.
    Peers(Peers),
}

/// The nodes of a purge log without Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    /// The address of this node, which the others have in their list.
    pub listen: SocketAddr,
    /// The addresses of the other nodes.
    pub addresses: Vec<SocketAddr>,
    /// A file with the secret that all nodes have.
    pub secret_file: PathBuf,
}
