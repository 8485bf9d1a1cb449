//! Settings of connections to Redis or Valkey.

use std::path::PathBuf;

pub use maitred_control::redis_access::RedisServer;
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
