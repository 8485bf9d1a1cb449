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
    /// The root certificates to verify it with, as PEM; none: the system's.
    pub roots: Option<String>,
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

impl RedisServer {
    /// Whether it speaks TLS.
    pub fn has_tls(&self) -> bool {
        matches!(self, RedisServer::Tcp { has_tls: true, .. })
    }
}

impl RedisAccess {
    /// Whether the system's root certificates verify it.
    pub fn needs_roots_of_system(&self) -> bool {
        self.server.has_tls() && self.roots.is_none()
    }
}
