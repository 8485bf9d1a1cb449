//! A page as it was read.

use std::time::Duration;

use crate::copies::Copies;
use crate::counters::Counters;
use crate::histogram::Histogram;
use crate::names::Cause;
use crate::opcache::OpcacheStats;
use crate::request_outcome::RequestOutcome;
use crate::request_times::RequestHistograms;
use crate::size::Size;
use crate::waits::WaitCounts;

/// The contents of a page, read at about one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Requests by how they ended, in the order of [`RequestOutcome::ALL`].
    pub outcomes: [u64; RequestOutcome::ALL.len()],
    /// The counters.
    pub counters: Counters,
    /// The times of all requests.
    pub total: RequestHistograms,
    /// The times of requests that ended within [`RECENT`](crate::RECENT).
    pub recent: RequestHistograms,
    /// Peak PHP memory of each script: kilobytes in place of microseconds.
    pub peak_memory: Histogram,
    /// Requests in the queue.
    pub queued: u64,
    /// Most requests that ever were in the queue at once.
    pub max_queued: u64,
    /// Workers that run a script.
    pub busy: u64,
    /// Most workers that ever ran a script at once.
    pub max_busy: u64,
    /// Workers that are ready or busy.
    pub seated: u64,
    /// Workers that are being started.
    pub coming: u64,
    /// Private memory of all processes of the pool together, in bytes, when last measured.
    pub private_bytes: u64,
    /// Shared memory of the pool's process with the most, in bytes.
    pub shared_bytes: u64,
    /// OPcache statistics, and their time by the clock of [`now`](crate::now); `None`: unknown.
    pub cache: Option<(OpcacheStats, Duration)>,
    /// How `pm = auto` chose the number of workers; `None` with another `pm`.
    pub size: Option<Size>,
    /// The copies of a booted application; `None` if workers are no copies.
    pub copies: Option<Copies>,
    /// What scripts that ran for long were found to wait for; all zero while they are not looked
    /// at.
    pub waits: WaitCounts,
    /// Workers that exited, in the order of [`Cause::ALL`].
    pub ended: [u64; Cause::ALL.len()],
    /// Signals that killed workers, and how many each; signals that killed none are left out.
    pub signals: Vec<(i32, u64)>,
}
