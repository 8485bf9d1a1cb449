//! Settings of the purge log.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The purge log of several nodes, in Redis or Valkey.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeLog {
    /// Where Redis is.
    pub server: PurgeLogServer,
    /// The database.
    pub database: u32,
    /// The user of Redis; none: its default user.
    pub username: Option<String>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// A PEM file with roots to verify the server of Redis; none: the system's.
    pub ca_file: Option<PathBuf>,
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

/// Where Redis is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PurgeLogServer {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host.
    Tcp {
        /// Its name or address.
        host: String,
        /// The port.
        port: u16,
        /// Whether it speaks TLS.
        has_tls: bool,
    },
}
