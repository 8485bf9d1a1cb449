//! A page read out.

use std::time::Duration;

use crate::cache::Cache;
use crate::copies::Copies;
use crate::histogram::Times;
use crate::names::Cause;
use crate::request_outcome::RequestOutcome;
use crate::size::Size;
use crate::took::TIMES;

/// All that a page says, read at about one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Requests by how they ended, in the order of [`RequestOutcome::ALL`].
    pub outcomes: [u64; RequestOutcome::ALL.len()],
    /// How long requests waited for a worker.
    pub waits: Times,
    /// How long scripts took.
    pub scripts: Times,
    /// How long requests used a processor.
    pub cpu: Times,
    /// How long they were ready to run and had none.
    pub core_waits: Times,
    /// How long their scripts waited for anything else.
    pub blocked: Times,
    /// How long requests waited that ended within [`RECENT`].
    pub recent_waits: Times,
    /// How long scripts took that ended within [`RECENT`].
    pub recent_scripts: Times,
    /// How long requests used a processor that ended within [`RECENT`].
    pub recent_cpu: Times,
    /// How long those were ready to run and had none.
    pub recent_core_waits: Times,
    /// How long the scripts of those waited for anything else.
    pub recent_blocked: Times,
    /// Processor time of programs that scripts have started.
    pub children: Duration,
    /// The most memory that each script had: kilobytes in place of microseconds.
    pub peak_memory: Times,
    /// Requests that wait for a worker.
    pub queued: u64,
    /// Most requests that ever waited at once.
    pub max_queued: u64,
    /// Workers that run a script.
    pub busy: u64,
    /// Most workers that ever ran one at once.
    pub max_busy: u64,
    /// Times that a request found all workers busy and no further one allowed.
    pub limit_reached: u64,
    /// How long newer requests have come before older ones, because there were too many.
    pub newest_first: Duration,
    /// Workers that can take requests, or run one.
    pub seated: u64,
    /// Workers that were ordered and are not there yet.
    pub coming: u64,
    /// Workers started so far.
    pub spawned: u64,
    /// Workers that could not be forked.
    pub fork_failed: u64,
    /// Memory that only one process of the pool has, of all its processes together, in bytes, when
    /// it was last measured.
    pub private_bytes: u64,
    /// Memory that a process of the pool shares with others, that with the most, in bytes.
    pub shared_bytes: u64,
    /// How the pool's OPcache was doing, and when that was by the clock of [`now`]; nothing if it
    /// is not known.
    pub cache: Option<(Cache, Duration)>,
    /// How the number of workers was found; nothing if it is not (`pm` is not `auto`).
    pub size: Option<Size>,
    /// How copies of a booted application are doing; nothing if workers are none.
    pub copies: Option<Copies>,
    /// Workers that ended, in the order of [`Cause::ALL`].
    pub ended: [u64; Cause::ALL.len()],
    /// Signals that ended workers, and how often each did; those that never did are left out.
    pub signals: Vec<(i32, u64)>,
}

impl Reading {
    /// The times of all requests, in the order in which their histograms lie.
    pub(crate) fn total(&mut self) -> [&mut Times; TIMES] {
        [
            &mut self.waits,
            &mut self.scripts,
            &mut self.cpu,
            &mut self.core_waits,
            &mut self.blocked,
        ]
    }

    /// The same of those that ended within [`RECENT`].
    pub(crate) fn recent(&mut self) -> [&mut Times; TIMES] {
        [
            &mut self.recent_waits,
            &mut self.recent_scripts,
            &mut self.recent_cpu,
            &mut self.recent_core_waits,
            &mut self.recent_blocked,
        ]
    }
}
