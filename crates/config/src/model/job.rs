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

/// The priority of disk accesses (ioprio_set(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoPriority {
    /// Only while no other process wants the disk.
    Idle,
    /// From 0, the highest, to 7.
    BestEffort(u8),
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

/// How the number of processes follows the length of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scaling {
    /// A program that prints the length, and its arguments.
    pub probe: Vec<String>,
    /// Time between two runs of it.
    pub interval: Duration,
    /// Fewest processes.
    pub min_processes: u32,
    /// Most processes.
    pub max_processes: u32,
    /// Waiting jobs for which there is a process.
    pub jobs_per_process: u32,
}

impl Default for Scaling {
    fn default() -> Scaling {
        Scaling {
            probe: Vec::new(),
            interval: Duration::from_secs(10),
            min_processes: 1,
            max_processes: 10,
            jobs_per_process: 10,
        }
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
    /// Its nice value; none: by its weight.
    pub process_priority: Option<i32> = None,
    /// Its processor time where requests want it as well, in hundredths of that of a worker; 0: it
    /// has only what no other process wants.
    pub cpu_weight: u32 = 2,
    /// The priority of its disk accesses; none: by its nice value.
    pub io: Option<IoPriority> = None,
    /// When it runs; none: always.
    pub schedule: Option<Schedule> = None,
    /// Processes that run at a time, if it always runs.
    pub processes: u32 = 1,
    /// How that number follows a queue; none: it is fixed.
    pub scaling: Option<Scaling> = None,
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

    /// What its weight adds to the nice value of the pool's processes. A step of it is a quarter
    /// more or less processor time (sched(7)).
    pub fn nicer(&self) -> i32 {
        let less = (100.0 / f64::from(self.cpu_weight.max(1))).ln() / 1.25_f64.ln();
        if self.process_priority.is_some() { 0 } else { (less.round() as i32).min(19) }
    }

    /// Its processor time in hundredths of that of a worker, in a pool with this nice value.
    pub fn weight(&self, of_pool: Option<i32>) -> u32 {
        let Some(nice) = self.process_priority else { return self.cpu_weight };
        let less = nice.saturating_sub(of_pool.unwrap_or(0));
        (100.0 / 1.25_f64.powi(less)).round() as u32
    }

    /// `command` or `schedule`.
    pub fn kind(&self) -> &'static str {
        if self.schedule.is_some() { "schedule" } else { "command" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_a_nice_value_beyond_that_of_the_pool() {
        let nicer = |cpu_weight| Job { cpu_weight, ..Job::default() }.nicer();
        assert_eq!([100, 50, 10, 2, 1, 0].map(nicer), [0, 3, 10, 18, 19, 19]);
        let job = Job { process_priority: Some(-3), ..Job::default() };
        assert_eq!((job.nicer(), job.weight(Some(-3)), job.weight(None)), (0, 100, 195));
    }
}
