//! Kinds of paths, with their requests.

use serde::{Deserialize, Serialize};

/// Most routes of all pools together in a reply: those with the most script time.
pub const MAX_ROUTES_SHOWN: usize = 100;

/// A kind of paths of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RouteFigures {
    /// The pool.
    pub pool: String,
    /// The path, without the parts of a single page.
    pub route: String,
    /// Finished requests.
    pub requests: u64,
    /// Run time of their scripts.
    pub script_seconds: f64,
    /// Their time in the queue.
    pub queue_seconds: f64,
    /// Part of `script_seconds`: on a processor.
    pub cpu_seconds: f64,
    /// Part of it: waiting for a processor.
    pub core_wait_seconds: f64,
    /// Part of it: blocked on anything else.
    pub blocked_seconds: f64,
    /// Memory of the script with the most.
    pub peak_memory_bytes: u64,
}
