//! Commands and schedules in a reply of the admin socket.

use serde::{Deserialize, Serialize};

/// A command or a schedule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// `command` or `schedule`.
    pub kind: String,
    /// `running`, `waiting`, `stopping`, `ended` or `off`; of a command whose processes differ,
    /// the number of each.
    pub state: String,
    /// Its processes.
    pub processes: Vec<JobProcessStatus>,
    /// Processes that were started.
    pub starts: u64,
    /// Those that failed by themselves, or could not be started.
    pub failures: u64,
    /// Runs of a schedule that were left out, since the last one went on.
    pub skipped: u64,
    /// How the last process ended.
    pub last_exit: Option<String>,
    /// How long ago that was.
    pub last_exit_seconds_ago: Option<f64>,
    /// The next run of a schedule, in its time zone.
    pub next_run: Option<String>,
    /// Seconds until it begins.
    pub next_in_seconds: Option<f64>,
}

/// A process of a command or a schedule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobProcessStatus {
    /// Its process id.
    pub pid: i32,
    /// How long it has run.
    pub seconds: f64,
    /// Its resident memory, without that of processes that it has started.
    pub memory_bytes: Option<u64>,
}

/// Most jobs of [`ShownJobs`].
pub const MAX_JOBS_SHOWN: usize = 100;

/// Commands and schedules as the dashboard shows them. Times are absolute, so that what does not
/// change stays the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownJobs {
    /// The first [`MAX_JOBS_SHOWN`], by pool in the order of the file.
    pub list: Vec<ShownJob>,
    /// How many more there are.
    pub more: usize,
}

/// A command or a schedule as the dashboard shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownJob {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// `command` or `schedule`.
    pub kind: String,
    /// As [`JobStatus::state`].
    pub state: String,
    /// How many processes it has.
    pub processes: usize,
    /// Processes that were started.
    pub starts: u64,
    /// Those that failed by themselves, or could not be started.
    pub failures: u64,
    /// Runs of a schedule that were left out, since the last one went on.
    pub skipped: u64,
    /// How the last process ended, as [`crate::front::shown`] has it.
    pub last_exit: Option<String>,
    /// When that was, in seconds since 1970.
    pub last_exit_at: Option<u64>,
    /// The next run of a schedule, in seconds since 1970.
    pub next_at: Option<u64>,
}

/// What a pool with `pm = "auto"` leaves to its commands and schedules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// CPUs that they use on average.
    pub used_cores: f64,
    /// CPUs that are left to them.
    pub cores: f64,
    /// Their private memory in bytes.
    pub memory_bytes: u64,
    /// Memory that is left to them beyond that, in bytes.
    pub growth_bytes: u64,
}
