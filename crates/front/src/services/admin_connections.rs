//! The connections of the admin listener. They do not count towards the limit of clients, so that
//! administrators can connect when clients have used up theirs. The scripts of any tenant may
//! connect as well, so no place is safe: when all are taken, the oldest connection without a
//! request is closed for the next, or else the one with the oldest request.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::services::idle_connections::IdleConnections;

/// Most connections of the admin listener.
const MAX_CONNECTIONS: usize = 64;

/// The connections of the admin listener.
#[derive(Debug)]
pub struct AdminConnections {
    open: AtomicUsize,
    /// Those without a request.
    pub idle: IdleConnections,
    /// Those with one, whose client may read slowly.
    pub busy: IdleConnections,
}

impl AdminConnections {
    /// None, in a front with this number of threads.
    pub fn new(threads: usize) -> AdminConnections {
        AdminConnections {
            open: AtomicUsize::new(0),
            idle: IdleConnections::new(threads),
            busy: IdleConnections::new(threads),
        }
    }

    /// Counts a new connection.
    pub fn enter(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection.
    pub fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether all places are taken.
    pub fn is_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= MAX_CONNECTIONS
    }

    /// Closes a connection to make room for another one; `thread` is the front thread, whose own
    /// are closed first. Returns whether there was one to close.
    pub fn make_room(&self, thread: u32) -> bool {
        self.idle.close_oldest(thread, 1) > 0 || self.busy.close_oldest(thread, 1) > 0
    }
}
