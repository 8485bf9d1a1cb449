//! Settings of connections to Redis or Valkey.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where Redis is, and how to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redis {
    /// Where Redis is.
    pub server: RedisServer,
    /// The database.
    pub database: u32,
    /// The user of Redis; none: its default user.
    pub username: Option<String>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// A PEM file with roots to verify the server of Redis; none: the system's.
    pub ca_file: Option<PathBuf>,
}

/// Where Redis is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RedisServer {
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
