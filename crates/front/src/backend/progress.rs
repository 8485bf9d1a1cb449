//! How far the response to a request has been sent.

use std::sync::Arc;
use std::time::Duration;

use maitred_seat::Spent;
use tokio::time::Instant;

use crate::pool::exchange::Exchange;

/// How an answer went, whether it came to its end or not.
#[derive(Debug, Default)]
pub struct Sent {
    /// Whether the client has got any of it.
    pub begun: bool,
    /// How long the request waited for a worker.
    pub queued: Option<Duration>,
    /// It got none, and waited for others that ask for the same rather than for any.
    pub held_back: bool,
    /// How long its script took.
    pub script: Option<Duration>,
    /// Where that time went, by the word of the worker.
    pub spent: Option<Spent>,
    /// The exchange of a script that goes on though its answer is complete.
    pub going_on: Option<Arc<Exchange>>,
    /// When the script had said everything.
    pub(crate) script_over: Option<Instant>,
}

impl Sent {
    /// The script was through at `through`, of a request that began at `begun`: says how long it took,
    /// and takes the rest for the time that the request waited.
    pub(crate) fn split(&mut self, begun: Instant, through: Instant, script: Duration) {
        let total = through.duration_since(begun);
        let script = script.min(total);
        (self.script, self.queued) = (Some(script), Some(total - script));
    }
}
