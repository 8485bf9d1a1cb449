//! Where the time of a request went.

use std::time::Duration;

/// What a request took, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// How long it waited for a worker.
    pub waited: Duration,
    /// How long its script took, if a worker took it. The next three are parts of it.
    pub script: Option<Duration>,
    /// How long it used a processor.
    pub cpu: Option<Duration>,
    /// How long it was ready to run and had no processor.
    pub core_wait: Option<Duration>,
    /// How long it waited for anything else.
    pub blocked: Option<Duration>,
    /// Processor time of programs that its script started.
    pub children: Duration,
    /// The most memory that its script had, in bytes; 0: that is not known.
    pub peak_memory: u64,
}

/// How many times there are of a request.
pub(crate) const TIMES: usize = 5;

impl RequestTimes {
    /// The times, in the order in which their histograms lie.
    pub(crate) fn times(&self) -> [Option<Duration>; TIMES] {
        [
            Some(self.waited),
            self.script,
            self.cpu,
            self.core_wait,
            self.blocked,
        ]
    }
}
