//! The jobs in a reply to `maitred status` and `maitred commands`.

use maitred_config::Config;
use maitred_control::job_status::{JobProcessStatus, JobStatus};

use super::unit::{Runs, Unit};
use super::{Jobs, memory_of};
use crate::capacity::auto::SizedJob;
use crate::jobs::alarm::Alarm;
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
    fn report(&self, now: Moment) -> JobStatus {
        let (state, table) = match &self.runs {
            Runs::Always(slots) => (state_of(slots.iter().map(|slot| slot.word())), None),
            Runs::Timed { timer, table, .. } => (timer.word().to_owned(), table.as_ref()),
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
            state,
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
