//! The runs of a schedule, each a process that ends by itself. Pure.

use maitred_config::{Overlap, Schedule};
use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::jobs::job_process::{JobEnd, JobProcess, JobStep};
use crate::limits::Moment;

/// What runs, and what waits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ScheduleRuns {
    running: Option<JobProcess>,
    /// When the run exceeds its timeout.
    timeout_at: Option<Moment>,
    /// A run is to begin as soon as none is running.
    is_queued: bool,
    is_retired: bool,
}

/// What becomes of a run that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fired {
    /// It begins.
    Begins,
    /// It is left out, since the last one runs.
    Skipped,
    /// It begins when the last one has ended.
    Waits,
}

impl ScheduleRuns {
    /// A run is due.
    pub fn fire(&mut self, overlap: Overlap) -> Fired {
        match (&self.running, overlap) {
            (None, _) => {
                self.is_queued = true;
                Fired::Begins
            }
            (Some(_), Overlap::Skip) => Fired::Skipped,
            (Some(_), Overlap::Queue) if self.is_queued => Fired::Skipped,
            (Some(_), Overlap::Queue) => {
                self.is_queued = true;
                Fired::Waits
            }
            (Some(_), Overlap::Kill) => {
                self.is_queued = true;
                self.timeout_at = Some(Moment::ZERO);
                Fired::Waits
            }
        }
    }

    /// What is due now. The step counts as taken; after `Start` the outcome is to be reported.
    pub fn due(&mut self, stop_timeout: Duration, may_start: bool, now: Moment) -> Option<JobStep> {
        let Some(process) = &mut self.running else {
            let starts = self.is_queued && may_start && !self.is_retired;
            self.is_queued &= !starts;
            return starts.then_some(JobStep::Start);
        };
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.timeout_at = None;
            return process.stop(now, stop_timeout);
        }
        process.due(now)
    }

    /// The run has begun.
    pub fn started(&mut self, pid: i32, schedule: &Schedule, now: Moment) {
        self.running = Some(JobProcess::new(pid, now));
        let timeout = Some(schedule.timeout).filter(|timeout| !timeout.is_zero());
        self.timeout_at = timeout.map(|timeout| now.saturating_add(timeout));
    }

    /// The process has ended, with exit code 0 if it `succeeded`. None: it is none of this
    /// schedule. One that was asked to end has failed as well: it was not finished.
    pub fn ended(&mut self, pid: i32, succeeded: bool, now: Moment) -> Option<JobEnd> {
        let ended = self.running.take_if(|process| process.pid == pid)?;
        self.timeout_at = None;
        let after = now.saturating_sub(ended.since);
        let was_asked = ended.is_asked();
        Some(JobEnd { was_asked, failed: !succeeded, after, again_in: None })
    }

    /// No run begins any more, and the one that goes on is stopped.
    pub fn retire(&mut self, stop_timeout: Duration, now: Moment) -> Option<JobStep> {
        self.is_retired = true;
        self.running.as_mut().and_then(|process| process.stop(now, stop_timeout))
    }

    /// Whether no run goes on or will begin.
    pub fn is_gone(&self) -> bool {
        self.is_retired && self.running.is_none()
    }

    /// The process of the run that goes on.
    pub fn process(&self) -> Option<&JobProcess> {
        self.running.as_ref()
    }

    /// When [`ScheduleRuns::due`] returns something, without an event.
    pub fn deadline(&self, may_start: bool) -> Option<Moment> {
        let Some(process) = &self.running else {
            let starts = self.is_queued && may_start && !self.is_retired;
            return starts.then_some(Moment::ZERO);
        };
        process.deadline().into_iter().chain(self.timeout_at).min()
    }

    /// Its state in a word.
    pub fn word(&self) -> &'static str {
        match &self.running {
            None => "waiting",
            Some(process) if process.is_asked() => "stopping",
            Some(_) => "running",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_config::Missed;
    use maitred_timetable::When;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule(overlap: Overlap) -> Schedule {
        Schedule {
            when: When::Every(SECOND),
            timezone: None,
            overlap,
            timeout: 60 * SECOND,
            jitter: Duration::ZERO,
            missed: Missed::Skip,
            one_node: false,
        }
    }

    fn running(overlap: Overlap) -> ScheduleRuns {
        let mut timer = ScheduleRuns::default();
        assert_eq!(timer.fire(overlap), Fired::Begins);
        assert_eq!((timer.deadline(false), timer.deadline(true)), (None, Some(Moment::ZERO)));
        assert_eq!(timer.due(SECOND, true, SECOND), Some(JobStep::Start));
        timer.started(7, &schedule(overlap), SECOND);
        timer
    }

    #[test]
    fn a_run_that_is_due_while_another_goes_on_is_skipped_waits_or_takes_its_place() {
        let mut timer = running(Overlap::Skip);
        assert_eq!(timer.fire(Overlap::Skip), Fired::Skipped);
        assert!(timer.ended(7, true, 2 * SECOND).is_some());
        assert_eq!(timer.due(SECOND, true, 2 * SECOND), None);

        let mut timer = running(Overlap::Queue);
        assert_eq!(timer.fire(Overlap::Queue), Fired::Waits);
        assert_eq!(timer.fire(Overlap::Queue), Fired::Skipped, "one waits at most");
        assert_eq!(timer.due(SECOND, true, 2 * SECOND), None);
        timer.ended(7, true, 3 * SECOND).unwrap();
        assert_eq!(timer.due(SECOND, true, 3 * SECOND), Some(JobStep::Start));

        let mut timer = running(Overlap::Kill);
        assert_eq!(timer.fire(Overlap::Kill), Fired::Waits);
        assert_eq!(timer.due(SECOND, true, 2 * SECOND), Some(JobStep::Stop(7)));
        assert_eq!(timer.due(SECOND, true, 3 * SECOND), Some(JobStep::Kill(7)));
        assert!(timer.ended(7, false, 4 * SECOND).unwrap().was_asked);
        assert_eq!(timer.due(SECOND, true, 4 * SECOND), Some(JobStep::Start));
    }

    #[test]
    fn a_run_is_stopped_after_its_timeout_and_a_retired_schedule_begins_none() {
        let mut timer = running(Overlap::Queue);
        assert_eq!(timer.deadline(true), Some(61 * SECOND));
        assert_eq!(timer.due(SECOND, true, 61 * SECOND), Some(JobStep::Stop(7)));
        assert_eq!(timer.fire(Overlap::Queue), Fired::Waits);
        assert_eq!(timer.retire(SECOND, 61 * SECOND), None, "it was asked before");
        assert!(!timer.is_gone());
        timer.ended(7, false, 62 * SECOND).unwrap();
        assert_eq!(timer.due(SECOND, true, 62 * SECOND), None);
        assert!(timer.is_gone());
    }
}
