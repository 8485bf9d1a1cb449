//! How a process reaches Redis or Valkey.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::acme::Secret;

/// Where Redis is, and how to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedisAccess {
    /// Where Redis is.
    pub server: RedisServer,
    /// The user of Redis; none: its default user.
    pub username: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The database.
    pub database: u32,
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
        /// The root certificates to verify it with, as PEM; none: the system's.
        roots: Option<String>,
    },
}
