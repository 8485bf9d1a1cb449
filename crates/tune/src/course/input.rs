//! What a course begins with, and what it says.

use serde::Serialize;

use super::goal::Goal;
use super::profile::Route;
use crate::decide::MemoryBudget;
use crate::measurement::Task;
use crate::timeline::Stalls;

/// What is known beforehand.
#[derive(Debug, Clone)]
pub struct CourseInput {
    /// How long all of it is to take, in seconds.
    pub seconds: f64,
    /// It ends by then, and leaves out what there is no time for.
    pub ends: bool,
    /// How long the first page took when it was asked for beforehand, in seconds.
    pub first: Option<f64>,
    /// Processors there are, a quota's parts included.
    pub cores: f64,
    /// MemoryBudget there is.
    pub memory: MemoryBudget,
    /// How the pool is set.
    pub now: PoolSetting,
    /// No more workers than that, if somebody said so.
    pub most_workers: Option<u32>,
    /// What has to hold, if somebody said it.
    pub goal: Option<Goal>,
    /// What is asked for, and how often.
    pub routes: Vec<Route>,
    /// Go on on a machine that others use, or that differs from itself.
    pub despite_noise: bool,
    /// What chance begins with.
    pub seed: u64,
}

/// How a pool is set before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolSetting {
    /// `pm`.
    pub pm: String,
    /// Most workers.
    pub workers: u32,
}

impl PoolSetting {
    /// In words.
    pub fn words(&self) -> String {
        format!("pm = {}, at most {} workers", self.pm, self.workers)
    }
}

/// What it came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The choice is proven to be better.
    Gain,
    /// It is not.
    NoGain(String),
    /// What there is needs no change.
    NothingToGain(String),
    /// No choice could be made.
    CannotSay(String),
}

/// What it costs until a worker serves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WorkerStart {
    /// Processor time of a new worker before its first request, in seconds.
    pub cpu: Option<f64>,
    /// How long the first request after a reload took, in seconds.
    pub first: f64,
    /// And the second.
    pub second: Option<f64>,
}

/// What the machine was like while nothing was asked. Shares are of 1, memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct IdleSample {
    /// What others used of the processors; nothing: not known.
    pub outside: Option<f64>,
    /// What tasks waited for.
    pub stalls: Stalls,
    /// MemoryBudget that was in use, by whomever.
    pub memory: Option<f64>,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum NextStep {
    /// Look at the machine for so many seconds, and ask nothing.
    Idle(f64),
    /// Measure this.
    Measure(Task),
    /// It is over.
    Over,
}
