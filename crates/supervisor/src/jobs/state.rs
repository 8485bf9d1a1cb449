//! What one program hands to the next in an upgrade: the processes of jobs run on.

use std::io;
use std::os::fd::RawFd;

use maitred_config::Job;
use maitred_os::spawn;
use serde::{Deserialize, Serialize};

use super::Jobs;
use super::slot::Slot;
use super::timer::Timer;
use super::unit::{JobCounts, Runs, Unit};
use crate::jobs::alarm::Alarm;
use crate::logging::pool_output::PoolOutput;

/// A job.
#[derive(Debug, Serialize, Deserialize)]
pub struct JobState {
    job: Job,
    output: (RawFd, RawFd),
    counts: JobCounts,
    slots: Vec<Slot>,
    timer: Option<Timer>,
    is_retired: bool,
    /// When the next run is due, in seconds since 1970.
    next: Option<i64>,
}

impl JobState {
    /// Its descriptors.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.output.0, self.output.1]
    }

    fn inherit(self) -> io::Result<Unit> {
        let (reader, writer) = self.output;
        let output = PoolOutput::over(spawn::inherited_fd(reader)?, spawn::inherited_fd(writer)?);
        let runs = match self.timer {
            None => Runs::Always(self.slots),
            Some(timer) => Runs::Timed { timer, table: None, next: None },
        };
        let mut unit = Unit::over(self.job, runs, output);
        unit.counts = self.counts;
        unit.is_retired = self.is_retired;
        // A run that became due meanwhile begins now.
        unit.look_up_from(self.next, Alarm::wall());
        Ok(unit)
    }
}

impl Jobs {
    /// The state of all jobs.
    pub fn state(&self) -> Vec<JobState> {
        let state = |unit: &Unit| {
            let (slots, timer) = match &unit.runs {
                Runs::Always(slots) => (slots.clone(), None),
                Runs::Timed { timer, .. } => (Vec::new(), Some(timer.clone())),
            };
            JobState {
                job: unit.job.clone(),
                output: unit.output.descriptors(),
                counts: unit.counts.clone(),
                slots,
                timer,
                is_retired: unit.is_retired,
                next: unit.next_run().map(|next| next.due),
            }
        };
        self.units.iter().map(state).collect()
    }

    /// The jobs that the previous program has left running.
    ///
    /// # Errors
    /// When a descriptor is not there.
    pub fn inherited(states: Vec<JobState>) -> io::Result<Jobs> {
        let units = states.into_iter().map(JobState::inherit);
        Ok(Jobs { units: units.collect::<io::Result<_>>()?, ..Jobs::default() })
    }
}
