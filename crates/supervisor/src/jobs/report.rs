//! The jobs in a reply to `maitred status` and `maitred commands`.

use maitred_config::Config;
use maitred_control::front::shown;
use maitred_control::job_status::{
    JobProcessStatus, JobStatus, MAX_JOBS_SHOWN, ShownJob, ShownJobs,
};

use super::unit::{Runs, Unit};
use super::{Jobs, memory_of};
use crate::capacity::auto::SizedJob;
use crate::jobs::alarm::{Alarm, WallTime};
use crate::limits::Moment;

impl Jobs {
    /// The state of all jobs, or only of those of `pool`.
    pub fn report(&self, pool: Option<&str>, now: Moment) -> Vec<JobStatus> {
        let units = self.units.iter();
        let units = units.filter(|unit| pool.is_none_or(|pool| unit.job.pool == pool));
        units.map(|unit| unit.report(now)).collect()
    }
}

impl Jobs {
    /// The jobs as the dashboard shows them.
    pub fn shown(&self, now: Moment) -> ShownJobs {
        let (first, wall) = (self.units.iter().take(MAX_JOBS_SHOWN), Alarm::wall());
        ShownJobs {
            list: first.map(|unit| unit.shown(now, wall)).collect(),
            more: self.units.len().saturating_sub(MAX_JOBS_SHOWN),
        }
    }

    /// The commands, and the schedules whose run goes on, for the size of pools.
    pub fn to_size(&self, config: &Config) -> Vec<SizedJob> {
        let sized = |unit: &Unit| {
            let pids: Vec<i32> = unit.processes().iter().map(|process| process.pid).collect();
            let wanted = match &unit.runs {
                Runs::Always(slots) => slots.iter().filter(|slot| !slot.is_retired()).count(),
                Runs::Timed { .. } => pids.len(),
            };
            let pool = config.pool(&unit.job.pool);
            let of_pool = pool.and_then(|pool| pool.confinement.process_priority);
            let (pool, name) = (unit.job.pool.clone(), unit.job.name.clone());
            SizedJob { pool, name, weight: unit.job.weight(of_pool), wanted, pids }
        };
        let all = self.units.iter().map(sized);
        all.filter(|job| job.wanted > 0 || !job.pids.is_empty()).collect()
    }
}

impl Unit {
    fn shown(&self, now: Moment, wall: WallTime) -> ShownJob {
        let last_exit = self.counts.last_exit.as_ref();
        let since_1970 = |at: Moment| wall.saturating_sub(now.saturating_sub(at)).as_secs();
        ShownJob {
            pool: self.job.pool.clone(),
            name: self.job.name.clone(),
            kind: self.job.kind().to_owned(),
            state: self.state(),
            processes: self.processes().len(),
            starts: self.counts.starts,
            failures: self.counts.failures,
            skipped: self.counts.skipped,
            last_exit: last_exit.map(|(how, _)| shown(how)),
            last_exit_at: last_exit.map(|(_, at)| since_1970(*at)),
            next_at: self.next_run().map(|next| next.begins.as_secs()),
        }
    }

    fn state(&self) -> String {
        match &self.runs {
            Runs::Always(slots) => state_of(slots.iter().map(|slot| slot.word())),
            Runs::Timed { timer, .. } => timer.word().to_owned(),
        }
    }

    fn report(&self, now: Moment) -> JobStatus {
        let table = match &self.runs {
            Runs::Always(_) => None,
            Runs::Timed { table, .. } => table.as_ref(),
        };
        let processes = self.processes().into_iter().map(|process| JobProcessStatus {
            pid: process.pid,
            seconds: now.saturating_sub(process.since).as_secs_f64(),
            memory_bytes: memory_of(process.pid),
        });
        let next = self.next_run();
        let last_exit = self.counts.last_exit.as_ref();
        JobStatus {
            pool: self.job.pool.clone(),
            name: self.job.name.clone(),
            kind: self.job.kind().to_owned(),
            state: self.state(),
            processes: processes.collect(),
            starts: self.counts.starts,
            failures: self.counts.failures,
            skipped: self.counts.skipped,
            last_exit: last_exit.map(|(how, _)| how.clone()),
            last_exit_seconds_ago: last_exit.map(|(_, at)| now.saturating_sub(*at).as_secs_f64()),
            next_run: next.and_then(|next| Some(table?.in_words(next.due))),
            next_in_seconds: next
                .map(|next| next.begins.saturating_sub(Alarm::wall()).as_secs_f64()),
        }
    }
}

/// `2 running, 1 waiting`, or one word where all are the same.
fn state_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    let all: Vec<String> = match counts.len() {
        0 => vec!["off".to_owned()],
        1 => counts.keys().map(|word| (*word).to_owned()).collect(),
        _ => counts.iter().map(|(word, count)| format!("{count} {word}")).collect(),
    };
    all.join(", ")
}
