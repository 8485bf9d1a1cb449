//! Open connections: counted while they live, closed when idle for too long or no longer wanted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::net::client_addresses::Address;
use crate::net::socket::Socket;
use crate::services::{Shared, Thread};

/// Counts a connection, of the admin door or of a client, for as long as it lives; and for the client's
/// address, if those of that are counted.
pub struct Counted(pub Arc<Thread>, pub(crate) bool, pub(crate) Option<Address>);

impl Counted {
    /// Counts it for the client's address.
    ///
    /// # Errors
    /// When that has as many connections as it may.
    pub(crate) fn admit(&mut self, peer: SocketAddr) -> Result<(), ()> {
        self.2 = self.0.admit(peer.ip())?;
        Ok(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(address) = self.2 {
            self.0.shared.addresses.leave(address);
        }
        self.0.count_out(self.1);
    }
}

/// Returns when a connection without a request is to be closed.
pub async fn idle_is_over(shared: &Shared) {
    shared.takes_no_more().await;
    // Few connections get here, and all of them would hold the room for it.
    Box::pin(async {
        tokio::select! {
            () = shared.drains() => {}
            () = tokio::time::sleep(HAND_OVER_IDLE) => {}
        }
    })
    .await;
}

/// A web server that has connected: its socket, its address, which it has none of over a Unix
/// socket, and where it came in, as the configuration has it.
pub type Newcomer = (Socket, Option<SocketAddr>, Arc<str>, Counted);

/// How long a connection without a request stays once another front takes the clients.
pub(crate) const HAND_OVER_IDLE: Duration = Duration::from_secs(5);
