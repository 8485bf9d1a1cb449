//! A process of a command or a schedule, from its start to its end. Pure.
//!
//! ```text
//!   Up ──stop──▶ Stopping ──too late──▶ Killed
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::Moment;

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStep {
    /// Start a process.
    Start,
    /// Send the process `stop_signal`.
    Stop(i32),
    /// Kill the process and those that it has started.
    Kill(i32),
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProcess {
    /// Its process id.
    pub pid: i32,
    /// When it was started.
    pub since: Moment,
    stage: JobStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum JobStage {
    Up,
    Stopping { kill_at: Moment },
    Killed,
}

impl JobProcess {
    /// A process that was started.
    pub fn new(pid: i32, now: Moment) -> JobProcess {
        JobProcess { pid, since: now, stage: JobStage::Up }
    }

    /// Whether it was asked to end.
    pub fn is_asked(&self) -> bool {
        self.stage != JobStage::Up
    }

    /// It is to end within `timeout`. A step only the first time.
    pub fn stop(&mut self, now: Moment, timeout: Duration) -> Option<JobStep> {
        if self.is_asked() {
            return None;
        }
        self.stage = JobStage::Stopping { kill_at: now.saturating_add(timeout) };
        Some(JobStep::Stop(self.pid))
    }

    /// What is due now. The step counts as taken.
    pub fn due(&mut self, now: Moment) -> Option<JobStep> {
        match self.stage {
            JobStage::Stopping { kill_at } if kill_at <= now => {
                self.stage = JobStage::Killed;
                Some(JobStep::Kill(self.pid))
            }
            JobStage::Up | JobStage::Stopping { .. } | JobStage::Killed => None,
        }
    }

    /// When [`JobProcess::due`] returns something, without an event.
    pub fn deadline(&self) -> Option<Moment> {
        match self.stage {
            JobStage::Stopping { kill_at } => Some(kill_at),
            JobStage::Up | JobStage::Killed => None,
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobEnd {
    /// It was asked to end.
    pub was_asked: bool,
    /// It failed by itself.
    pub failed: bool,
    /// How long it ran.
    pub after: Duration,
    /// Time until it is started again, if it is.
    pub again_in: Option<Duration>,
}
