//! A page read out.

use std::time::Duration;

use crate::copies::Copies;
use crate::counters::Counters;
use crate::histogram::Histogram;
use crate::names::{Cause, Outcome};
use crate::opcache::OpcacheStats;
use crate::request_times::TIMES;
use crate::size::Size;

/// All that a page says, read at about one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Requests by how they ended, in the order of [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// The counters.
    pub counters: Counters,
    /// How long requests waited for a worker.
    pub waits: Histogram,
    /// How long scripts took.
    pub scripts: Histogram,
    /// How long requests used a processor.
    pub cpu: Histogram,
    /// How long they were ready to run and had none.
    pub core_waits: Histogram,
    /// How long their scripts waited for anything else.
    pub blocked: Histogram,
    /// How long requests waited that ended within [`RECENT`].
    pub recent_waits: Histogram,
    /// How long scripts took that ended within [`RECENT`].
    pub recent_scripts: Histogram,
    /// How long requests used a processor that ended within [`RECENT`].
    pub recent_cpu: Histogram,
    /// How long those were ready to run and had none.
    pub recent_core_waits: Histogram,
    /// How long the scripts of those waited for anything else.
    pub recent_blocked: Histogram,
    /// The most memory that each script had: kilobytes in place of microseconds.
    pub peak_memory: Histogram,
    /// Requests that wait for a worker.
    pub queued: u64,
    /// Most requests that ever waited at once.
    pub max_queued: u64,
    /// Workers that run a script.
    pub busy: u64,
    /// Most workers that ever ran one at once.
    pub max_busy: u64,
    /// Workers that can take requests, or run one.
    pub seated: u64,
    /// Workers that were ordered and are not there yet.
    pub coming: u64,
    /// Memory that only one process of the pool has, of all its processes together, in bytes, when
    /// it was last measured.
    pub private_bytes: u64,
    /// Memory that a process of the pool shares with others, that with the most, in bytes.
    pub shared_bytes: u64,
    /// How the pool's OPcache was doing, and when that was by the clock of [`now`]; nothing if it
    /// is not known.
    pub cache: Option<(OpcacheStats, Duration)>,
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
    pub(crate) fn total(&mut self) -> [&mut Histogram; TIMES] {
        [
            &mut self.waits,
            &mut self.scripts,
            &mut self.cpu,
            &mut self.core_waits,
            &mut self.blocked,
        ]
    }

    /// The same of those that ended within [`RECENT`].
    pub(crate) fn recent(&mut self) -> [&mut Histogram; TIMES] {
        [
            &mut self.recent_waits,
            &mut self.recent_scripts,
            &mut self.recent_cpu,
            &mut self.recent_core_waits,
            &mut self.recent_blocked,
        ]
    }
}
