//! What is counted of a pool: one page of shared memory for each pool, which the supervisor makes
//! and the front maps. It belongs to the pool's name and not to a process, so its counters go on
//! when the front is replaced.
//!
//! Each word has one owner: a front thread those of its [`ThreadBoard`], a front the two to which
//! its queues add their [`QueueShare`], the supervisor those of [`WorkerBoard`]. Counters are added
//! to atomically, for the time in which an old front finishes beside a new one. Workers never get
//! the page: they are strangers, and what counts them must be out of their reach.

mod copies;
mod counters;
mod histogram;
mod names;
mod opcache;
mod page;
mod reading;
mod record;
mod request_times;
mod size;

use std::time::Duration;

pub use copies::{Copies, CopyCounters, NOT_REWOUND};
pub use counters::{Counter, CounterValue, Counters};
pub use histogram::{BUCKETS, Histogram, upper_bound};
pub use names::{Cause, Outcome};
pub use opcache::OpcacheStats;
pub use page::{Page, QueueShare, ThreadBoard, WorkerBoard};
pub use reading::Reading;
pub use request_times::RequestTimes;
pub use size::Size;

/// How long what is "recent" lies back at most. The last part of it is still being filled, so it
/// is a fifth less at least.
pub const RECENT: Duration = Duration::from_secs(10);

/// The time by which recent figures are kept apart: that of the machine since it was started, to
/// some milliseconds. All processes agree on it, and it never goes backwards.
pub fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::try_from(time).unwrap_or_default()
}
