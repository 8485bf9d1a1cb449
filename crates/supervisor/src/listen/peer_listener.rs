//! The socket to which the peers of the purge log connect. The supervisor keeps it: no other
//! program can listen at the address while the process of the log is replaced.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use maitred_os::spawn;
use serde::{Deserialize, Serialize};

/// A listening socket of the purge log.
#[derive(Debug)]
pub struct PeerListener {
    address: SocketAddr,
    socket: OwnedFd,
}

/// The same for the next program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerListenerState {
    address: SocketAddr,
    /// The number of its descriptor.
    pub socket: RawFd,
}

impl PeerListener {
    /// Listens at `address`.
    ///
    /// # Errors
    /// One sentence.
    pub fn open(address: SocketAddr) -> Result<PeerListener, String> {
        let bound = TcpListener::bind(address).map_err(|error| {
            format!(
                "`purge_log.listen`, {address}, cannot be listened on: {error}; set it to an \
                 address of this machine with a free port"
            )
        });
        bound.map(|socket| PeerListener { address, socket: socket.into() })
    }

    /// Whether it was opened for this address.
    pub fn is_at(&self, address: SocketAddr) -> bool {
        self.address == address
    }

    /// The socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What the next program has to know.
    pub fn state(&self) -> PeerListenerState {
        PeerListenerState { address: self.address, socket: self.socket.as_raw_fd() }
    }
}

impl PeerListenerState {
    /// Takes over what the previous program has left.
    ///
    /// # Errors
    /// When the descriptor is not open.
    pub fn inherit(self) -> io::Result<PeerListener> {
        Ok(PeerListener { address: self.address, socket: spawn::inherited_fd(self.socket)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_in_use_is_an_error_with_its_setting() {
        let first = PeerListener::open(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let socket = TcpListener::from(first.socket.try_clone().unwrap());
        let address = socket.local_addr().unwrap();
        let why = PeerListener::open(address).unwrap_err();
        let begin = format!("`purge_log.listen`, {address}, cannot be listened on: Address");
        assert!(why.starts_with(&begin), "{why}");
    }
}
