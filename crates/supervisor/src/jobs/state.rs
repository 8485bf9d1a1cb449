//! What one program hands to the next in an upgrade: the processes of jobs run on.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::RawFd;

use maitred_config::Job;
use maitred_os::spawn;
use serde::{Deserialize, Serialize};

use super::Jobs;
use super::length_probe::Probed;
use super::schedule_runs::ScheduleRuns;
use super::slot::Slot;
use super::unit::{JobCounts, Runs, Unit};
use crate::jobs::alarm::Alarm;
use crate::limits::Moment;
use crate::logging::pool_output::PoolOutput;

/// A job.
#[derive(Debug, Serialize, Deserialize)]
pub struct JobState {
    job: Job,
    /// The pipe of each process, that of a probe included: the end of this program would close it.
    outputs: Vec<(i32, RawFd, RawFd)>,
    /// The user of each process, by pid.
    #[serde(default)]
    users: Vec<(i32, u32)>,
    counts: JobCounts,
    slots: Vec<Slot>,
    timer: Option<ScheduleRuns>,
    is_retired: bool,
    /// When the next run is due, in seconds since 1970.
    next: Option<i64>,
    /// When the run that waits, or began last, was due.
    #[serde(default)]
    due: Option<i64>,
}

impl JobState {
    /// Its descriptors.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.outputs.iter().flat_map(|(_, reader, writer)| [*reader, *writer])
    }

    fn inherit(self, now: Moment) -> io::Result<Unit> {
        let pool = &self.job.pool;
        let outputs = self.outputs.into_iter().map(|(pid, reader, writer)| {
            let (reader, writer) = (spawn::inherited_fd(reader)?, spawn::inherited_fd(writer)?);
            Ok((pid, PoolOutput::over(reader, writer, pool)))
        });
        let outputs = outputs.collect::<io::Result<_>>()?;
        let runs = match self.timer {
            None => Runs::Always(self.slots),
            Some(timer) => Runs::Timed { timer, table: None, next: None },
        };
        let mut unit = Unit::over(self.job, runs, outputs);
        // That of a probe, which was killed, goes to the process that closes pipes.
        let processes = unit.processes().into_iter().map(|process| process.pid);
        let processes: BTreeSet<i32> = processes.collect();
        unit.outputs.retain(|pid, _| processes.contains(pid));
        unit.users = self.users.into_iter().collect();
        unit.counts = self.counts;
        unit.is_retired = self.is_retired;
        unit.due = self.due;
        unit.probe_from(now);
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
            // The next program starts a probe of its own.
            let probe = unit.probed.as_ref().and_then(Probed::pid);
            let users = unit.users.iter().filter(|(pid, _)| probe != Some(**pid));
            let outputs = unit.outputs.iter().map(|(pid, output)| {
                let (reader, writer) = output.descriptors();
                (*pid, reader, writer)
            });
            JobState {
                job: unit.job.clone(),
                outputs: outputs.collect(),
                users: users.map(|(pid, uid)| (*pid, *uid)).collect(),
                counts: unit.counts.clone(),
                slots,
                timer,
                is_retired: unit.is_retired,
                due: unit.due,
                // A run that is claimed is claimed once more, with the same result.
                next: self
                    .claims
                    .of(&unit.job)
                    .map(|run| run.due)
                    .or_else(|| unit.next_run().map(|next| next.due)),
            }
        };
        self.units.iter().map(state).collect()
    }

    /// The jobs that the previous program has left running.
    ///
    /// # Errors
    /// When a descriptor is not there.
    pub fn inherited(states: Vec<JobState>, now: Moment) -> io::Result<Jobs> {
        let mut jobs = Jobs::default();
        for state in states {
            jobs.add(state.inherit(now)?);
        }
        Ok(jobs)
    }
}
