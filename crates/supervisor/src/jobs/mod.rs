//! Commands and schedules of pools: the processes beside those that serve requests. [`slot`] and
//! [`schedule_runs`] decide; [`unit`] carries it out for one job, and [`Jobs`] has all of them.

mod alarm;
mod job_process;
mod last_runs;
pub mod launch;
mod length_probe;
mod process_count;
mod process_ends;
mod report;
mod run_claims;
mod schedule_runs;
mod slot;
mod state;
mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::path::Path;

use maitred_config::{Config, Job};
use maitred_control::purge_log::{ClaimOutcome, ToPurgeLog};
use maitred_os::fork::HowEnded;
use maitred_os::proc::{self, Statm};
use maitred_os::shared::page_bytes;
use tracing::{debug, error, info};

use crate::limits::{JOB_MEMORY_CHECKED_EVERY, JOB_STEPS_PER_TURN, Moment};
use crate::logging::shared_limit::SharedLimit;
use crate::logging::tenant_pipe::PipeRead;
use crate::processes::pipe_orders::ReadReport;
use crate::processes::script_children::EndedScript;
use alarm::{Alarm, WallTime};
use last_runs::LastRuns;
pub use process_ends::UnitNumber;
use run_claims::{ClaimedRun, Claims};
pub use state::JobState;
pub use unit::JobContext;
use unit::{Runs, Unit};

/// All commands and schedules.
#[derive(Debug, Default)]
pub struct Jobs {
    units: Vec<Unit>,
    /// The number of the unit that was added last.
    last_number: u64,
    /// The limits of log lines, by pool.
    limits: BTreeMap<String, SharedLimit>,
    /// None until there is a schedule.
    alarm: Option<Alarm>,
    memory_checked: Moment,
    /// The unit that the next turn begins with.
    first: usize,
    is_retired: bool,
    last_runs: LastRuns,
    claims: Claims,
    /// The groups of processes that have ended, until they are taken.
    ended_groups: Vec<EndedScript>,
}

impl Jobs {
    /// Follows a configuration for the pools that have it: new jobs begin, changed ones are
    /// renewed, others end. A pool whose next generation is on trial follows with that.
    pub fn follow(&mut self, config: &Config, has_it: impl Fn(&str) -> bool, now: Moment) {
        if self.is_retired {
            return;
        }
        let wall = Alarm::wall();
        let seconds = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
        // One that is being removed is not taken back: its successor is another.
        let units = self.units.iter_mut().filter(|unit| !unit.is_retiring());
        for unit in units.filter(|unit| has_it(&unit.job.pool)) {
            let own = &unit.job;
            let is_same = |job: &&Job| {
                job.pool == own.pool
                    && job.name == own.name
                    && job.schedule.is_some() == own.schedule.is_some()
            };
            match config.jobs.iter().find(is_same) {
                None => unit.retire(now),
                Some(job) if job == own => {}
                Some(job) => {
                    unit.change(job, now, wall);
                    // What was due before was due at other times.
                    self.last_runs.ran(job, seconds);
                }
            }
        }
        for job in config.jobs.iter().filter(|job| has_it(&job.pool)) {
            let is_there = |unit: &Unit| {
                unit.job.pool == job.pool && unit.job.name == job.name && !unit.is_retiring()
            };
            if self.units.iter().any(is_there) {
                continue;
            }
            let mut unit = Unit::new(job, now, wall);
            if last_runs::is_remembered(job) {
                unit.make_up(self.last_runs.of(job, seconds), wall);
            }
            self.add(unit);
        }
        self.last_runs.write();
    }

    /// Adds a job, whose log lines count towards those of its pool.
    fn add(&mut self, mut unit: Unit) {
        self.last_number += 1;
        unit.number = UnitNumber(self.last_number);
        unit.share(self.limits.entry(unit.job.pool.clone()).or_default());
        self.units.push(unit);
    }

    /// Kills the probes: the next program does not know them.
    pub fn kill_probes(&mut self) {
        self.units.iter_mut().for_each(Unit::kill_probe);
    }

    /// Has the last runs of schedules in a file of the server with this configuration.
    pub fn remember_runs(&mut self, config: &Config, file: Option<&Path>) {
        self.last_runs.follow(config, file);
    }

    /// The pool has got a new generation: its commands are replaced, each once.
    pub fn renew(&mut self, pool: &str, config: &Config, now: Moment) {
        // One that has changed is replaced for that.
        let stays = |unit: &Unit| config.jobs.contains(&unit.job) && !unit.is_retiring();
        for unit in self.units.iter_mut().filter(|unit| unit.job.pool == pool) {
            if stays(unit) {
                unit.renew(now);
            }
        }
        self.follow(config, |name| name == pool, now);
    }

    /// These pools stop: their jobs end. A pool that runs again has new ones.
    pub fn retire_pools(&mut self, pools: &BTreeSet<String>, now: Moment) {
        let units = self.units.iter_mut().filter(|unit| !unit.is_retiring());
        for unit in units.filter(|unit| pools.contains(&unit.job.pool)) {
            unit.retire(now);
        }
    }

    /// Does what is due.
    pub fn keep(&mut self, context: &JobContext<'_>) {
        if self.units.is_empty() {
            // Those of schedules that were removed meanwhile.
            self.claims.forget();
            return;
        }
        self.check_memory(context.now);
        let wall = Alarm::wall();
        self.begin_due_runs(wall, context);
        // Where many are due, each turn begins with others.
        let (count, mut steps) = (self.units.len(), JOB_STEPS_PER_TURN);
        for at in (0..count).map(|at| (self.first + at) % count) {
            steps = self.units[at].keep(steps, context);
        }
        self.first = (self.first + 1) % count;
        self.units.retain(|unit| !unit.is_gone());
        self.limits.retain(|_, limit| !limit.is_unused());
        let next = self.units.iter().filter_map(|unit| unit.next_run());
        let next = next.map(|next| next.begins).min().filter(|_| context.may_start);
        if next.is_some() && self.alarm.is_none() {
            self.alarm = Alarm::new().map_err(|why| error!("schedules do not run: {why}")).ok();
        }
        if let Some(alarm) = &mut self.alarm {
            alarm.set(next);
        }
    }

    /// Begins the runs that are due, or claims them.
    fn begin_due_runs(&mut self, wall: WallTime, context: &JobContext<'_>) {
        for run in self.claims.overdue(context.now) {
            self.carry_out(&run, ClaimOutcome::Undecided, context);
        }
        for unit in self.units.iter_mut().filter(|_| context.may_start) {
            let Some(due) = unit.due_run(wall) else { continue };
            // It stands for all that were due until now.
            self.last_runs.ran(&unit.job, i64::try_from(wall.as_secs()).unwrap_or(due));
            if !unit.job.runs_on_one_node() {
                unit.begin_run(due, context);
            } else if !self.claims.claim(&unit.job, due, context.now) {
                unit.leave_out(context);
            }
        }
        self.last_runs.write();
    }

    /// The purge log has decided on a run.
    pub fn decided(&mut self, number: u64, outcome: ClaimOutcome, context: &JobContext<'_>) {
        if let Some(run) = self.claims.decided(number) {
            self.carry_out(&run, outcome, context);
        }
    }

    fn carry_out(&mut self, run: &ClaimedRun, outcome: ClaimOutcome, context: &JobContext<'_>) {
        let is_lost = outcome == ClaimOutcome::Undecided;
        if self.claims.note(is_lost) {
            let ClaimedRun { pool, name, .. } = run;
            match is_lost {
                true => error!(
                    "pool {pool}: schedule {name} is left out, since the purge log does not say \
                     which node runs it; so is each run of a schedule with `one_node` until Redis \
                     is reached"
                ),
                false => info!("schedules with `one_node` run again, on one node each"),
            }
        }
        let is_its = |unit: &&mut Unit| run.is_of(&unit.job) && !unit.is_retiring();
        let Some(unit) = self.units.iter_mut().find(is_its) else { return };
        match outcome {
            ClaimOutcome::Here => unit.begin_run(run.due, context),
            ClaimOutcome::Elsewhere => {
                debug!("pool {}: schedule {} runs on another node", run.pool, run.name);
            }
            ClaimOutcome::Undecided => unit.leave_out(context),
        }
    }

    /// Orders for the process of the purge log.
    pub fn take_claims(&mut self) -> Vec<ToPurgeLog> {
        self.claims.take_orders()
    }

    /// Replaces processes that have grown beyond `max_memory`.
    fn check_memory(&mut self, now: Moment) {
        if self.memory_deadline().is_none_or(|at| at > now) {
            return;
        }
        self.memory_checked = now;
        for unit in &mut self.units {
            let most = unit.job.max_memory;
            let Unit { runs: Runs::Always(slots), reaped, .. } = unit else { continue };
            for slot in slots.iter_mut().filter(|_| most > 0) {
                let process = slot.up().filter(|process| !reaped.contains_key(&process.pid));
                let memory = process.and_then(|process| memory_of(process.pid));
                if memory.is_some_and(|memory| memory > most) {
                    slot.replace(now);
                }
            }
        }
    }

    fn memory_deadline(&self) -> Option<Moment> {
        let is_checked = |unit: &Unit| unit.job.max_memory > 0 && !unit.processes().is_empty();
        let is_any = self.units.iter().any(is_checked);
        is_any.then(|| self.memory_checked + JOB_MEMORY_CHECKED_EVERY)
    }

    /// The server stops: all processes are stopped, and none is started any more.
    pub fn retire(&mut self, now: Moment) {
        self.is_retired = true;
        self.units.iter_mut().for_each(|unit| unit.retire(now));
    }

    /// Whether no process is left.
    pub fn are_gone(&self) -> bool {
        self.units.iter().all(Unit::is_gone)
    }

    /// The processes of all jobs that were not reaped.
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.units.iter().flat_map(Unit::pids)
    }

    /// Whether this is a process of a job, which was not reaped.
    pub fn is_process(&self, pid: i32) -> bool {
        self.pids().any(|own| own == pid)
    }

    /// A process was reaped. Returns the unit that it was of, if it was a process of a job: its
    /// number may be another's from now on.
    pub fn reaped(&mut self, pid: i32, how: HowEnded) -> Option<UnitNumber> {
        let unit = self.units.iter_mut().find_map(|unit| unit.reap(pid, how).then_some(unit))?;
        Some(unit.number)
    }

    fn unit(&mut self, number: UnitNumber) -> Option<&mut Unit> {
        self.units.iter_mut().find(|unit| unit.number == number)
    }

    /// Acts on the end of a process of a unit, which was reaped. Those that it has left in its
    /// group are killed, or a shell's children would run beside their successors.
    pub fn settle(&mut self, number: UnitNumber, pid: i32, context: &JobContext<'_>) {
        let group = self.unit(number).and_then(|unit| unit.settle(pid, context));
        self.ended_groups.extend(group);
    }

    /// Takes the groups of processes that have ended: what is left in them is to be killed.
    pub fn take_ended_groups(&mut self) -> Vec<EndedScript> {
        std::mem::take(&mut self.ended_groups)
    }

    /// The alarm of schedules, to poll.
    pub fn alarm(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.as_ref().and_then(Alarm::listening)
    }

    /// The alarm of schedules can be read.
    pub fn take_alarm(&mut self) {
        if let Some(alarm) = &mut self.alarm {
            alarm.take();
        }
    }

    /// The pipes of processes that can be polled, by their numbers.
    pub fn pipes(&self, now: Moment) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.units.iter().flat_map(move |unit| unit.pipes(now))
    }

    /// The pipes with one of these numbers are to be read.
    pub fn order_reads(&mut self, ready: &[u64]) -> Vec<PipeRead> {
        self.units.iter_mut().flat_map(|unit| unit.order_reads(ready)).collect()
    }

    /// A pipe was read.
    pub fn take_read(&mut self, read: &ReadReport, now: Moment) {
        self.units.iter_mut().any(|unit| unit.take_read(read, now));
    }

    /// Whether output of a process of a unit, which was reaped, is still to be read.
    pub fn awaits_output(&mut self, number: UnitNumber, pid: i32, now: Moment) -> bool {
        self.unit(number).is_some_and(|unit| unit.awaits_output(pid, now))
    }

    /// When something is due by the monotonic clock.
    pub fn deadline(&self, may_start: bool, now: Moment) -> Option<Moment> {
        let units = self.units.iter().filter_map(|unit| unit.deadline(may_start, now));
        units.chain(self.memory_deadline()).chain(self.claims.deadline()).min()
    }

    /// Whether a stop has begun.
    pub fn is_retired(&self) -> bool {
        self.is_retired
    }
}

/// What changes of the clock within a year do to the schedules: one sentence each.
pub fn clock_changes(config: &Config) -> Vec<String> {
    let now = i64::try_from(Alarm::wall().as_secs()).unwrap_or(i64::MAX);
    let of = |job: &Job| {
        let table = job.schedule.as_ref().and_then(|schedule| schedule.timetable().ok());
        let notes = table.map(|table| table.notes(now)).unwrap_or_default();
        let name = format!("schedule {}/{}", job.pool, job.name);
        notes.into_iter().map(move |note| format!("{name}: {note}"))
    };
    config.jobs.iter().flat_map(of).collect()
}

/// Resident memory of a process in bytes.
fn memory_of(pid: i32) -> Option<u64> {
    let statm = Statm::parse(&proc::read(pid, "statm")?)?;
    Some(statm.anonymous.saturating_add(statm.shared).saturating_mul(page_bytes()))
}

#[cfg(test)]
pub mod tests {
    use super::slot::{Chance, Slot};
    use super::*;

    const PID: i32 = 7;

    /// The process of a command that always runs.
    fn start(jobs: &mut Jobs, unit: usize, pid: i32) {
        let job = jobs.units[unit].job.clone();
        let Runs::Always(slots) = &mut jobs.units[unit].runs else { panic!("a command") };
        let mut slot = Slot::new(Moment::ZERO);
        slot.due(true, Moment::ZERO).unwrap();
        slot.started(pid, &job, Chance(0.0), Moment::ZERO);
        *slots = vec![slot];
    }

    /// A command with this process.
    pub fn with_process(pid: i32) -> Jobs {
        let mut jobs = Jobs::default();
        jobs.add(Unit::over(Job::default(), Runs::Always(Vec::new()), BTreeMap::new()));
        start(&mut jobs, 0, pid);
        jobs
    }

    #[test]
    fn the_number_of_a_process_that_was_reaped_may_be_one_of_another_command() {
        let mut jobs = Jobs::default();
        for _ in 0..2 {
            jobs.add(Unit::over(Job::default(), Runs::Always(Vec::new()), BTreeMap::new()));
        }
        start(&mut jobs, 0, PID);
        assert!(jobs.is_process(PID) && jobs.reaped(8, HowEnded::Exited(0)).is_none());
        let first = jobs.reaped(PID, HowEnded::Exited(0));
        assert!(first.is_some() && !jobs.is_process(PID));
        assert_eq!(jobs.reaped(PID, HowEnded::Exited(0)), None, "it is another's");
        start(&mut jobs, 1, PID);
        assert!(jobs.is_process(PID));
        let second = jobs.reaped(PID, HowEnded::Exited(3));
        assert!(second.is_some() && second != first && !jobs.is_process(PID));
        let reaped = jobs.units.iter().map(|unit| unit.reaped[&PID]);
        assert_eq!(reaped.collect::<Vec<_>>(), [HowEnded::Exited(0), HowEnded::Exited(3)]);
    }
}
