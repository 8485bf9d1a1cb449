//! The peer of a connection to the admin listener.

use std::os::fd::AsFd;

/// The peer of a connection to the admin listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminPeer {
    /// Over TCP: its user is unknown.
    Tcp,
    /// Over a Unix socket: user id and group id of the peer; none if the system does not report
    /// them.
    Unix(Option<(u32, u32)>),
}

impl AdminPeer {
    /// The peer behind a socket that was accepted.
    pub fn of(socket: &impl AsFd, is_unix: bool) -> AdminPeer {
        if !is_unix {
            return AdminPeer::Tcp;
        }
        let peer = rustix::net::sockopt::socket_peercred(socket).ok();
        AdminPeer::Unix(peer.map(|peer| (peer.uid.as_raw(), peer.gid.as_raw())))
    }
}
