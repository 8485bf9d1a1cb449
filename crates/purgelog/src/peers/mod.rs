//! A purge log without Redis: each node has a log of its own purges, and follows those of the
//! others over TLS (docs/decisions/0018-purges-everywhere.md).
//!
//! [`own_log`] and [`followed_logs`] decide, without clock and connection; [`peer_session`] acts.

pub mod followed_logs;
pub mod own_log;
pub mod peer_figures;
pub mod peer_identity;
pub mod peer_messages;
pub mod peer_network;
mod peer_positions;
pub mod peer_session;
#[cfg(test)]
mod peer_simulation;
mod peer_states;

use peer_messages::PeerMessage;

/// Most purges of a log that are on their way to a node, or being applied there.
pub const WINDOW: u64 = 64;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerStep {
    /// Send a message over a connection.
    Send(u64, PeerMessage),
    /// Close a connection.
    Close(u64),
    /// Apply a purge in all fronts, and confirm it.
    Apply {
        /// Its number.
        mark: u64,
        /// The purge; none: one of everything.
        payload: Option<String>,
    },
    /// Cached pages may be served until then, and no longer.
    Lease(u64),
    /// Report the outcome of a purge.
    Report(u64, PeerOutcome),
    /// Log something about a peer, by its number.
    Say(usize, PeerRemark),
}

/// What has become of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerOutcome {
    /// All peers have applied it.
    Everywhere,
    /// These have not, by their numbers. They get it as soon as they are reached.
    Missing(Vec<usize>),
}

/// Something to log about a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRemark {
    /// It is not waited for any more: cached pages are served without it.
    GivenUp,
    /// It does not have this node in its list: no cached page is served while that is so.
    Refused,
    /// All pages are dropped, since some of its purges may be missing.
    Dropped,
}
