//! The input of a course, and the types of its steps and results.

use serde::Serialize;

use super::goal::Goal;
use super::profile::Route;
use crate::decide::MemoryBudget;
use crate::measurement::Task;
use crate::timeline::Stalls;

/// What is known before the first measurement.
#[derive(Debug, Clone)]
pub struct CourseInput {
    /// The total time, in seconds.
    pub seconds: f64,
    /// The tuning ends within that time, and skips what does not fit.
    pub ends: bool,
    /// How long the first page took before the tuning, in seconds.
    pub first: Option<f64>,
    /// Processors; a quota may be a fraction.
    pub cores: f64,
    /// The memory budget.
    pub memory: MemoryBudget,
    /// The pool's original setting.
    pub now: PoolSetting,
    /// The user's limit of workers.
    pub most_workers: Option<u32>,
    /// The user's goal.
    pub goal: Option<Goal>,
    /// The requested paths, with their shares.
    pub routes: Vec<Route>,
    /// Continue on a machine that others use, or whose results vary.
    pub despite_noise: bool,
    /// The seed of random numbers.
    pub seed: u64,
}

/// The original setting of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolSetting {
    /// `pm`.
    pub pm: String,
    /// The limit of workers.
    pub workers: u32,
}

impl PoolSetting {
    /// A description for people.
    pub fn words(&self) -> String {
        format!("pm = {}, at most {} workers", self.pm, self.workers)
    }
}

/// The result of a tuning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The choice is proven to be better.
    Gain,
    /// It is not proven.
    NoGain(String),
    /// The original setting needs no change.
    NothingToGain(String),
    /// No choice could be made.
    CannotSay(String),
}

/// The cost of starting workers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WorkerStart {
    /// Processor time of a new worker before its first request, in seconds.
    pub cpu: Option<f64>,
    /// How long the first request after a reload took, in seconds.
    pub first: f64,
    /// How long the second took.
    pub second: Option<f64>,
}

/// The machine's state without load. Shares are of 1, memory is in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct IdleSample {
    /// The share of the processors that other processes used, if known.
    pub outside: Option<f64>,
    /// What tasks waited for.
    pub stalls: Stalls,
    /// Memory in use by all processes.
    pub memory: Option<f64>,
}

/// The next step.
#[derive(Debug, Clone, PartialEq)]
pub enum NextStep {
    /// Observe the machine for this many seconds, without load.
    Idle(f64),
    /// Make this measurement.
    Measure(Task),
    /// The tuning is over.
    Over,
}
