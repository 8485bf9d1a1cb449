//! Commands and schedules of a pool: its processes that serve no requests.

use std::path::PathBuf;
use std::time::Duration;

use maitred_timetable::{Timetable, When};
use serde::{Deserialize, Serialize};

use crate::model::with_defaults::with_defaults;

/// The first word of a command that stands for the pool's PHP.
pub const PHP: &str = "php";

/// When a command that has ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// Always.
    Always,
    /// If its exit code is not 0.
    OnFailure,
    /// Never, until the next reload of its pool.
    Never,
}

/// What a schedule does that is due while its last run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The run is left out.
    Skip,
    /// It begins when the last one has ended; at most one waits.
    Queue,
    /// The last one is stopped, and it begins when that has ended.
    Kill,
}

/// What becomes of runs that were due while the server did not run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// They are left out.
    #[default]
    Skip,
    /// One run begins for all of them.
    Once,
}

/// The time of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// When it is due.
    pub when: When,
    /// The time zone of `at` and `cron`; none: the system's.
    pub timezone: Option<String>,
    /// What it does if it is due while it runs.
    pub overlap: Overlap,
    /// Timeout of a run; zero: none.
    pub timeout: Duration,
    /// Longest delay of a run, at random.
    pub jitter: Duration,
    /// What becomes of runs that were missed.
    #[serde(default)]
    pub missed: Missed,
    /// Each run is on one of the nodes that share the purge log.
    #[serde(default)]
    pub one_node: bool,
}

impl Schedule {
    /// Its runs.
    ///
    /// # Errors
    /// The system has lost its time zone since the configuration was checked.
    pub fn timetable(&self) -> Result<Timetable, String> {
        Timetable::new(&self.when, self.timezone.as_deref())
    }
}

with_defaults! {
/// A command or a schedule of a pool. A field that an older program does not hand over has its
/// default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// The name of its pool.
    pub pool: String = String::new(),
    /// Its name: letters, digits, `_` and `-`, at most 32; one of those of its pool.
    pub name: String = String::new(),
    /// The program and its arguments; [`PHP`] as the program is the pool's PHP.
    pub command: Vec<String> = Vec::new(),
    /// Variables in addition to the pool's.
    pub env: Vec<(String, String)> = Vec::new(),
    /// Its working directory; none: that of the pool.
    pub dir: Option<PathBuf> = None,
    /// The signal that asks it to end, such as `SIGTERM`.
    pub stop_signal: String = "SIGTERM".to_owned(),
    /// Time after that signal until it is killed.
    pub stop_timeout: Duration = Duration::from_secs(30),
    /// Its nice value; none: that of the pool.
    pub process_priority: Option<i32> = None,
    /// When it runs; none: always.
    pub schedule: Option<Schedule> = None,
    /// Processes that run at a time, if it always runs.
    pub processes: u32 = 1,
    /// Whether a process that has ended is started again.
    pub restart: Restart = Restart::Always,
    /// Longest wait before that, after failures.
    pub restart_delay_max: Duration = Duration::from_secs(60),
    /// Resident memory in bytes beyond which a process is replaced; 0 is never.
    pub max_memory: u64 = 0,
    /// Time after which a process is replaced; zero is never.
    pub max_runtime: Duration = Duration::ZERO,
}
}

impl Job {
    /// Whether the pool's PHP runs it.
    pub fn is_php(&self) -> bool {
        self.command.first().is_some_and(|program| program == PHP)
    }

    /// Whether each of its runs is on one of several nodes.
    pub fn runs_on_one_node(&self) -> bool {
        self.schedule.as_ref().is_some_and(|schedule| schedule.one_node)
    }

    /// `command` or `schedule`.
    pub fn kind(&self) -> &'static str {
        if self.schedule.is_some() { "schedule" } else { "command" }
    }
}
