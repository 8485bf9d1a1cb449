//! The FastCGI door: web servers that send us their PHP requests.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::accept::Counted;

/// One web server's connection, one request after the other. `listen` is the address as the
/// configuration has it; `peer` is none for one that came over a Unix socket.
pub async fn converse(
    _socket: OwnedFd,
    _peer: Option<SocketAddr>,
    _listen: String,
    _counted: Counted,
) {
}
