//! The FastCGI listener of a pool.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Default mode of a Unix socket (php-fpm's `listen.mode`).
pub const DEFAULT_SOCKET_MODE: u32 = 0o660;

/// A listening FastCGI socket, with php-fpm's `listen` settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastcgiListener {
    /// Its address.
    pub listen: Address,
    /// The address as written in the configuration, for messages. A port alone means all addresses:
    /// IPv6 and IPv4, or IPv4 on a machine without IPv6.
    #[serde(default)]
    pub asked: String,
    /// Length of the kernel's queue of connections not yet accepted; none: the kernel's maximum
    /// (`net.core.somaxconn`).
    pub backlog: Option<u32>,
    /// Owner of the Unix socket, by name or number; none: the user who creates it.
    pub owner: Option<String>,
    /// Group of the Unix socket, by name or number; none: the group of that user.
    pub group: Option<String>,
    /// Mode of the Unix socket.
    pub mode: u32,
    /// Users who may also connect to the Unix socket (POSIX ACL). With any users or groups here,
    /// owner and group are not set.
    pub acl_users: Vec<String>,
    /// Groups that may also connect to the Unix socket.
    pub acl_groups: Vec<String>,
    /// Addresses that may connect over TCP; `None`: all of them; an empty list: none.
    pub allowed_clients: Option<Vec<IpAddr>>,
}

/// The address of a listener.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket, by its absolute path.
    Unix(PathBuf),
}

impl FastcgiListener {
    /// A listener at `listen` in which every other setting has its default.
    pub fn at(listen: Address) -> FastcgiListener {
        FastcgiListener {
            asked: listen.to_string(),
            listen,
            backlog: None,
            owner: None,
            group: None,
            mode: DEFAULT_SOCKET_MODE,
            acl_users: Vec::new(),
            acl_groups: Vec::new(),
            allowed_clients: None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(out),
            Address::Unix(path) => path.display().fmt(out),
        }
    }
}
