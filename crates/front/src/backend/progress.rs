//! The progress of a request to a script.

use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_seat::Spent;

use crate::pool::exchange::Exchange;

/// The progress of a request to a script, whether its response is complete or not.
#[derive(Debug)]
pub struct ScriptProgress {
    /// When the request began.
    pub began: Instant,
    /// Whether the client has got any part of the response.
    pub has_sent: bool,
    /// Time that the request waited for a worker.
    pub queued: Option<Duration>,
    /// The part of that time in which its worker was starting.
    pub boot: Option<Duration>,
    /// Whether it got no worker because requests of its kind hang.
    pub held_back: bool,
    /// Run time of its script.
    pub script: Option<Duration>,
    /// Its cost, as its worker reports it.
    pub spent: Option<Spent>,
    /// The exchange of a script that continues after its complete response.
    pub going_on: Option<Arc<Exchange>>,
    /// When the script's output was complete.
    pub(crate) script_over: Option<Instant>,
}

impl ScriptProgress {
    /// A request that begins now.
    pub fn new() -> ScriptProgress {
        ScriptProgress {
            began: Instant::now(),
            has_sent: false,
            queued: None,
            boot: None,
            held_back: false,
            script: None,
            spent: None,
            going_on: None,
            script_over: None,
        }
    }

    /// The script has ended at `ended` and took `script`: the rest of the time was spent waiting.
    pub(crate) fn split(&mut self, ended: Instant, script: Duration) {
        let total = ended.saturating_duration_since(self.began);
        let script = script.min(total);
        (self.script, self.queued) = (Some(script), Some(total - script));
    }
}
