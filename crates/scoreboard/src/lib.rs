//! What is counted of a pool: one page of shared memory for each pool, which the supervisor makes
//! and the front maps. It belongs to the pool's name and not to a process, so its counters go on
//! when the front is replaced.
//!
//! Each word has one owner: a front thread those of its [`ThreadBoard`], a front the two to which
//! its queues add their [`QueueShare`], the supervisor those of [`WorkerBoard`]. Counters are added to atomically, for
//! the time in which an old front finishes beside a new one. Workers never get the page: they are
//! strangers, and what counts them must be out of their reach.

mod cache;
mod copies;
mod histogram;
mod names;
mod page;
mod reading;
mod request_outcome;
mod size;
mod took;

use std::time::Duration;

pub use cache::Cache;
pub use copies::{Copies, CopiesTold, STAYED, STAYED_FOR};
pub use histogram::{BUCKETS, Times, upper_bound};
pub use names::Cause;
pub use page::{Page, QueueShare, ThreadBoard, WorkerBoard};
pub use reading::Reading;
pub use request_outcome::{LogLevel, RequestOutcome};
pub use size::Size;
pub use took::Took;

/// How long what is "recent" lies back at most. The last part of it is still being filled, so it
/// is a fifth less at least.
pub const RECENT: Duration = Duration::from_secs(10);

/// The time by which recent figures are kept apart: that of the machine since it was started, to
/// some milliseconds. All processes agree on it, and it never goes backwards.
pub fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::try_from(time).unwrap_or_default()
}
