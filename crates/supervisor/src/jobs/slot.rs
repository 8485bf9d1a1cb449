//! One of the processes of a command that always runs. Pure: state, event and time in, steps out.
//!
//! ```text
//!             start          max_runtime, max_memory: the successor is started
//!   Waiting ────────▶ Up ───────────────────────────────────────▶ Up, and the old one leaves
//!      ▲              │ ╲ reload, stop
//!      │ ended: wait  │  ╲─────────▶ Stopping ──ended──▶ Waiting (reload), Done (stop)
//!      ╰──────────────╯
//! ```

use std::time::Duration;

use maitred_config::{Job, Restart};
use serde::{Deserialize, Serialize};

use crate::jobs::job_process::{JobEnd, JobProcess, JobStep};
use crate::limits::{EARLY_DEATH, JOB_JITTER_PART, JOB_RUNTIME_JITTER_PART, Moment};
use crate::processes::backoff::Backoff;

/// The place of one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Slot {
    state: SlotState,
    /// A process that was replaced, and has not ended yet.
    leaving: Option<JobProcess>,
    backoff: Backoff,
    is_wanted: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum SlotState {
    Waiting {
        not_before: Moment,
    },
    Starting,
    /// A successor is being started while this process runs.
    Replacing(JobProcess),
    Up {
        process: JobProcess,
        replace_at: Option<Moment>,
    },
    Stopping(JobProcess),
    /// It is not started again by itself.
    Done,
}

/// A random part of a whole.
#[derive(Debug, Clone, Copy)]
pub struct Chance(
    /// From 0 to 1.
    pub f64,
);

impl Chance {
    fn of(self, whole: Duration, part: u32) -> Duration {
        (whole / part).mul_f64(self.0.clamp(0.0, 1.0))
    }
}

impl Slot {
    /// A slot whose process is to be started.
    pub fn new(now: Moment) -> Slot {
        let state = SlotState::Waiting { not_before: now };
        Slot { state, leaving: None, backoff: Backoff::default(), is_wanted: true }
    }

    /// What is due now, by the settings of the command. The step counts as taken; after `Start`
    /// the outcome is to be reported.
    pub fn due(&mut self, may_start: bool, now: Moment) -> Option<JobStep> {
        if let Some(step) = self.leaving.as_mut().and_then(|process| process.due(now)) {
            return Some(step);
        }
        match &mut self.state {
            SlotState::Waiting { not_before }
                if self.is_wanted && may_start && *not_before <= now =>
            {
                self.state = SlotState::Starting;
                Some(JobStep::Start)
            }
            SlotState::Up { process, replace_at: Some(at) }
                if may_start && *at <= now && self.leaving.is_none() =>
            {
                self.state = SlotState::Replacing(process.clone());
                Some(JobStep::Start)
            }
            SlotState::Stopping(process) => process.due(now),
            SlotState::Waiting { .. }
            | SlotState::Starting
            | SlotState::Replacing(_)
            | SlotState::Up { .. }
            | SlotState::Done => None,
        }
    }

    /// The process was started. The one that it replaces is stopped now.
    pub fn started(&mut self, pid: i32, job: &Job, chance: Chance, now: Moment) -> Option<JobStep> {
        let runtime = Some(job.max_runtime).filter(|runtime| !runtime.is_zero());
        let replace_at = runtime.map(|runtime| {
            now.saturating_add(runtime + chance.of(runtime, JOB_RUNTIME_JITTER_PART))
        });
        let process = JobProcess::new(pid, now);
        match std::mem::replace(&mut self.state, SlotState::Up { process, replace_at }) {
            SlotState::Replacing(mut old) => {
                let step = old.stop(now, job.stop_timeout);
                self.leaving = Some(old);
                step
            }
            SlotState::Waiting { .. }
            | SlotState::Starting
            | SlotState::Up { .. }
            | SlotState::Stopping(_)
            | SlotState::Done => None,
        }
    }

    /// The process could not be started. Returns the time until the next attempt.
    pub fn start_failed(&mut self, job: &Job, chance: Chance, now: Moment) -> Duration {
        let at = self.retry_at(job, chance, now);
        self.state = match std::mem::replace(&mut self.state, SlotState::Done) {
            SlotState::Replacing(process) => SlotState::Up { process, replace_at: Some(at) },
            SlotState::Waiting { .. }
            | SlotState::Starting
            | SlotState::Up { .. }
            | SlotState::Stopping(_)
            | SlotState::Done => SlotState::Waiting { not_before: at },
        };
        at.saturating_sub(now)
    }

    fn retry_at(&mut self, job: &Job, chance: Chance, now: Moment) -> Moment {
        let at = self.backoff.failed_within(now, job.restart_delay_max);
        at + chance.of(at.saturating_sub(now), JOB_JITTER_PART)
    }

    /// A process has ended, with exit code 0 if it `succeeded`. None: it is none of this slot.
    pub fn ended(
        &mut self,
        pid: i32,
        succeeded: bool,
        job: &Job,
        chance: Chance,
        now: Moment,
    ) -> Option<JobEnd> {
        if let Some(old) = self.leaving.take_if(|process| process.pid == pid) {
            return Some(asked(&old, now));
        }
        match &self.state {
            SlotState::Stopping(process) if process.pid == pid => {
                let end = asked(process, now);
                self.state = match self.is_wanted {
                    true => SlotState::Waiting { not_before: now },
                    false => SlotState::Done,
                };
                Some(end)
            }
            // Its end was held for its output until the successor got its number.
            SlotState::Replacing(process) if process.pid == pid => {
                let end = asked(process, now);
                self.state = SlotState::Starting;
                Some(end)
            }
            SlotState::Up { process, .. } if process.pid == pid => {
                let after = now.saturating_sub(process.since);
                Some(self.ended_by_itself(after, succeeded, job, chance, now))
            }
            SlotState::Waiting { .. }
            | SlotState::Starting
            | SlotState::Replacing(_)
            | SlotState::Up { .. }
            | SlotState::Stopping(_)
            | SlotState::Done => None,
        }
    }

    fn ended_by_itself(
        &mut self,
        after: Duration,
        succeeded: bool,
        job: &Job,
        chance: Chance,
        now: Moment,
    ) -> JobEnd {
        let restarts = match job.restart {
            Restart::Always => true,
            Restart::OnFailure => !succeeded,
            Restart::Never => false,
        };
        let failed = !succeeded || (restarts && after < EARLY_DEATH);
        if !failed || after >= job.restart_delay_max {
            self.backoff.succeeded();
        }
        if !(restarts && self.is_wanted) {
            self.state = SlotState::Done;
            return JobEnd { was_asked: false, failed, after, again_in: None };
        }
        let at = if failed { self.retry_at(job, chance, now) } else { now };
        self.state = SlotState::Waiting { not_before: at };
        JobEnd { was_asked: false, failed, after, again_in: Some(at.saturating_sub(now)) }
    }

    /// A reload: the process is stopped, and its successor started when it has ended. One that
    /// waits or has ended for good is started now.
    pub fn renew(&mut self, job: &Job, now: Moment) -> Option<JobStep> {
        self.backoff.succeeded();
        match &mut self.state {
            SlotState::Up { process, .. } => {
                let step = process.stop(now, job.stop_timeout);
                self.state = SlotState::Stopping(process.clone());
                step
            }
            SlotState::Waiting { .. } | SlotState::Done if self.is_wanted => {
                self.state = SlotState::Waiting { not_before: now };
                None
            }
            SlotState::Waiting { .. }
            | SlotState::Done
            | SlotState::Starting
            | SlotState::Replacing(_)
            | SlotState::Stopping(_) => None,
        }
    }

    /// The process is to be replaced by a successor as soon as possible.
    pub fn replace(&mut self, now: Moment) {
        if let SlotState::Up { replace_at, .. } = &mut self.state {
            *replace_at = Some(now);
        }
    }

    /// No process is wanted any more.
    pub fn retire(&mut self, job: &Job, now: Moment) -> Option<JobStep> {
        self.is_wanted = false;
        match &mut self.state {
            SlotState::Up { process, .. } => {
                let step = process.stop(now, job.stop_timeout);
                self.state = SlotState::Stopping(process.clone());
                step
            }
            SlotState::Waiting { .. } | SlotState::Starting => {
                self.state = SlotState::Done;
                None
            }
            SlotState::Replacing(_) | SlotState::Stopping(_) | SlotState::Done => None,
        }
    }

    /// Whether no process is left, and none will be started.
    pub fn is_gone(&self) -> bool {
        !self.is_wanted && matches!(self.state, SlotState::Done) && self.leaving.is_none()
    }

    /// Whether no process is wanted any more.
    pub fn is_retired(&self) -> bool {
        !self.is_wanted
    }

    /// The process that runs and is to run on.
    pub fn up(&self) -> Option<&JobProcess> {
        match &self.state {
            SlotState::Up { process, .. } => Some(process),
            SlotState::Waiting { .. }
            | SlotState::Starting
            | SlotState::Replacing(_)
            | SlotState::Stopping(_)
            | SlotState::Done => None,
        }
    }

    /// All its processes.
    pub fn processes(&self) -> impl Iterator<Item = &JobProcess> {
        let current = match &self.state {
            SlotState::Up { process, .. }
            | SlotState::Stopping(process)
            | SlotState::Replacing(process) => Some(process),
            SlotState::Waiting { .. } | SlotState::Starting | SlotState::Done => None,
        };
        current.into_iter().chain(&self.leaving)
    }

    /// When [`Slot::due`] returns something, without an event.
    pub fn deadline(&self, may_start: bool) -> Option<Moment> {
        let own = match &self.state {
            SlotState::Waiting { not_before } if self.is_wanted && may_start => Some(*not_before),
            SlotState::Up { replace_at, .. } if may_start && self.leaving.is_none() => *replace_at,
            SlotState::Stopping(process) => process.deadline(),
            SlotState::Waiting { .. }
            | SlotState::Starting
            | SlotState::Replacing(_)
            | SlotState::Up { .. }
            | SlotState::Done => None,
        };
        let leaving = self.leaving.as_ref().and_then(JobProcess::deadline);
        own.into_iter().chain(leaving).min()
    }

    /// Its state in a word.
    pub fn word(&self) -> &'static str {
        match &self.state {
            SlotState::Up { .. } | SlotState::Replacing(_) => "running",
            SlotState::Waiting { .. } | SlotState::Starting => "waiting",
            SlotState::Stopping(_) => "stopping",
            SlotState::Done => "ended",
        }
    }
}

fn asked(process: &JobProcess, now: Moment) -> JobEnd {
    let after = now.saturating_sub(process.since);
    JobEnd { was_asked: true, failed: false, after, again_in: None }
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
