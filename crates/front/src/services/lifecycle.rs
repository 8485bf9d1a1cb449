//! Open connections: counted while they exist, and closed when idle for too long or no longer
//! wanted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::net::client_addresses::Address;
use crate::services::{Shared, Thread};

/// Counts a connection while it exists, for the admin listener or for clients, and for the client's
/// address if that is limited.
pub struct ConnectionGuard {
    /// The thread that serves the connection.
    pub thread: Arc<Thread>,
    is_admin: bool,
    address: Option<Address>,
}

impl ConnectionGuard {
    /// Counts a connection of a thread.
    pub fn new(thread: Arc<Thread>, is_admin: bool) -> ConnectionGuard {
        thread.count_in(is_admin);
        ConnectionGuard { thread, is_admin, address: None }
    }

    /// Counts the connection for the client's address.
    ///
    /// # Errors
    /// When the address has as many connections as it may.
    pub fn admit(&mut self, peer: SocketAddr) -> Result<(), ()> {
        self.address = self.thread.admit(peer.ip())?;
        Ok(())
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if let Some(address) = self.address {
            self.thread.shared.addresses.leave(address);
        }
        self.thread.count_out(self.is_admin);
    }
}

/// Waits until a connection without a request is to be closed.
pub async fn idle_is_over(shared: &Shared) {
    shared.takes_no_more().await;
    // Few connections get here, and all of them would hold the memory of this future.
    Box::pin(async {
        tokio::select! {
            () = shared.drains() => {}
            () = tokio::time::sleep(HAND_OVER_IDLE) => {}
        }
    })
    .await;
}

/// Timeout of a connection without a request once another front accepts the clients.
pub(crate) const HAND_OVER_IDLE: Duration = Duration::from_secs(5);
