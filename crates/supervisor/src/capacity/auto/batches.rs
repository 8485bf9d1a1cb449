//! The processor time and the memory of commands and schedules, for what is left to them
//! ([`BatchLedger`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use maitred_os::proc::{self, Stat};
use maitred_sizing::beside::{Batch, BatchLedger, BatchProcess, Reserve};
use maitred_sizing::ledger::DueMeasurement;
use maitred_sizing::sources::{Files, Memory};

use super::worker_memory::{MeasuredWorker, WorkerMeasures, WorkerToMeasure};
use crate::capacity::memory_reads::{MemoryReading, MemoryReads};
use crate::limits::Moment;

/// Processes of jobs whose processor time is read at a check, and those whose memory is, in turn.
const PROCESSES_MOST: usize = 256;
const MEASURED_AT_ONCE: usize = 16;

/// Processes that one of a job has started whose processor time counts.
const FAMILY_MOST: usize = 16;

/// The fields of `/proc/PID/stat` with processor time: its own, and that of children that have
/// ended (proc_pid_stat(5)).
const OWN_TIME: [usize; 2] = [14, 15];
const CHILDREN_TIME: [usize; 2] = [16, 17];

/// A command, or a schedule whose run goes on.
#[derive(Debug, Clone)]
pub struct SizedJob {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// The weight of each process; that of a worker is 100.
    pub weight: u32,
    /// Processes that are to run.
    pub wanted: usize,
    /// Those that run.
    pub pids: Vec<i32>,
}

/// The measurements of all jobs.
#[derive(Debug, Default)]
pub(super) struct Batches {
    ledger: BatchLedger,
    measures: WorkerMeasures,
    /// Memory that was measured since the last check, in bytes, by process id.
    measured: HashMap<i32, f64>,
    /// The number of the process that is measured next.
    next: usize,
}

impl Batches {
    /// Begins to measure the memory of some processes, for the next [`Batches::look`].
    pub(super) fn begin(
        &mut self,
        files: &dyn Files,
        jobs: &[SizedJob],
        reads: &mut MemoryReads,
        now: Moment,
    ) {
        let all = jobs.iter().flat_map(|job| job.pids.iter().map(move |pid| (job, *pid)));
        let count: usize = jobs.iter().map(|job| job.pids.len()).sum();
        let first = self.next % count.max(1);
        let due = all.enumerate().filter(|(number, _)| {
            let behind = (number + count - first) % count.max(1);
            behind < MEASURED_AT_ONCE
        });
        for (_, (job, pid)) in due {
            let due = DueMeasurement { worker: pid, exactly: true };
            let of = WorkerToMeasure { pool: job.pool.clone(), due, reported: None };
            let measured = self.measures.begin(files, of, reads, now);
            self.take(measured);
        }
        self.next = (first + MEASURED_AT_ONCE) % count.max(1);
        let present: HashSet<i32> = jobs.iter().flat_map(|job| job.pids.iter().copied()).collect();
        self.measures.keep(&present);
        self.measured.retain(|pid, _| present.contains(pid));
    }

    /// The pages of a process were counted, or could not be.
    pub(super) fn read(&mut self, files: &dyn Files, reading: &MemoryReading) {
        let measured = self.measures.read(files, reading);
        self.take(measured);
    }

    fn take(&mut self, measured: impl IntoIterator<Item = MeasuredWorker>) {
        let measured = measured.into_iter().map(|one| (one.of.due.worker, one.has.own));
        self.measured.extend(measured);
    }

    /// Whether counts of pages are still to come.
    pub(super) fn are_awaited(&self) -> bool {
        self.measures.are_awaited()
    }

    /// Judges the jobs on a machine with this many processors.
    pub(super) fn look(&mut self, now: Moment, cores: f64, jobs: &[SizedJob]) {
        let mut sample = |pid: i32| {
            let memory = self.measured.remove(&pid);
            Some(BatchProcess { pid, cpu: processor_time(pid)?, memory })
        };
        let mut left = PROCESSES_MOST;
        let batches = jobs.iter().map(|job| {
            let pids = job.pids.iter().take(left);
            let processes: Vec<BatchProcess> = pids.filter_map(|pid| sample(*pid)).collect();
            left -= processes.len().min(left);
            Batch {
                pool: &job.pool,
                name: &job.name,
                weight: job.weight,
                wanted: job.wanted,
                running: job.pids.len(),
                processes,
            }
        });
        let batches: Vec<Batch<'_>> = batches.collect();
        self.ledger.look(now, cores, &batches);
    }

    /// The most memory that a process of a job has had lately, in bytes.
    pub(super) fn peak(&self, pool: &str, name: &str) -> Option<f64> {
        self.ledger.peak(pool, name)
    }

    /// The memory that is left to the jobs of each pool beyond what is in use: no more than the
    /// pool's own limit allows.
    pub(super) fn growths(&self, apart: &BTreeMap<String, Memory>) -> BTreeMap<String, f64> {
        let within = |(pool, growth): (&str, f64)| {
            let free = apart.get(pool).map(|memory| (memory.limit - memory.used).max(0.0));
            (pool.to_owned(), growth.min(free.unwrap_or(f64::INFINITY)))
        };
        self.ledger.growths().map(within).collect()
    }

    /// What is reserved for the jobs of all pools.
    pub(super) fn all(&self) -> Reserve {
        self.ledger.all()
    }

    /// What is reserved for the jobs of a pool.
    pub(super) fn of(&self, pool: &str) -> Reserve {
        self.ledger.of(pool)
    }
}

/// The processor time of a process and of those that it has started.
fn processor_time(pid: i32) -> Option<Duration> {
    let stat = Stat::of(pid)?;
    let mut ticks = sum(&stat, &OWN_TIME) + sum(&stat, &CHILDREN_TIME);
    let mut family = children_of(pid);
    let mut looked = 0;
    while let Some(child) = family.get(looked).copied().filter(|_| looked < FAMILY_MOST) {
        looked += 1;
        if let Some(stat) = Stat::of(child) {
            ticks += sum(&stat, &OWN_TIME) + sum(&stat, &CHILDREN_TIME);
        }
        family.extend(
            children_of(child).into_iter().take(FAMILY_MOST - family.len().min(FAMILY_MOST)),
        );
    }
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_millis(ticks.saturating_mul(1000) / per_second))
}

/// The children of a process's first thread: a tenant decides how many threads it has.
fn children_of(pid: i32) -> Vec<i32> {
    let list = proc::read(format!("{pid}/task/{pid}"), "children").unwrap_or_default();
    list.split_ascii_whitespace().flat_map(str::parse).take(FAMILY_MOST).collect()
}

fn sum(stat: &Stat, fields: &[usize]) -> u64 {
    fields.iter().filter_map(|field| stat.field::<u64>(*field)).fold(0, u64::saturating_add)
}
