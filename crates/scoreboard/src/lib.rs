//! The scoreboard: one page of shared memory for each pool, which the supervisor creates and the
//! front maps. It belongs to the pool's name and not to a process, so its counters survive a
//! replaced front.
//!
//! Each word has one owner: a front thread those of its [`ThreadBoard`], a front the two gauges to
//! which its queues add their [`QueueShare`], the supervisor those of [`WorkerBoard`]. Additions
//! are atomic, since an old front drains beside a new one. Workers never get the page: they run
//! untrusted scripts, which must not be able to falsify it. What applications count themselves is
//! in other memory ([`ApplicationMemory`]), whose contents are not trusted.

mod application;
mod copies;
mod counters;
mod histogram;
mod names;
mod opcache;
mod page;
mod reading;
mod request_outcome;
mod request_times;
mod size;
mod waits;
mod word_record;

use std::time::Duration;

pub use application::{
    APPLICATION_BOUNDS, APPLICATION_BUCKETS, APPLICATION_REFUSALS, ApplicationMemory,
    ApplicationReading, ApplicationSeries, ApplicationValue, MAX_SERIES, create_application_memory,
    is_application_memory, read_application,
};
pub use copies::{Copies, CopyCounters, NOT_REWOUND};
pub use counters::{Counter, CounterValue, Counters};
pub use histogram::{BUCKETS, Histogram, upper_bound};
pub use names::Cause;
pub use opcache::OpcacheStats;
pub use page::{Page, QueueShare, ThreadBoard, WorkerBoard};
pub use reading::Reading;
pub use request_outcome::{LogLevel, RequestOutcome};
pub use request_times::{RequestHistograms, RequestTimes};
pub use size::Size;
pub use waits::{WaitCounts, WaitKind};

/// The longest age of recent times. The newest fifth is still being filled, so the covered time is
/// a fifth shorter at least.
pub const RECENT: Duration = Duration::from_secs(10);

/// The clock of the scoreboard: the time since boot, to some milliseconds. All processes share it,
/// and it never goes backwards.
pub fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::try_from(time).unwrap_or_default()
}
