//! What the commands and schedules of pools take beside the workers, and what is left to them.
//!
//! A batch is not to starve the web, and the web is not to starve the batch, or have it killed. So
//! the pools that find their size leave it processors: what it uses, but at most the share that its
//! weight gives it where workers want all. And they leave it memory: what its processes use is in
//! use anyway, but each of them may grow to what one of them had before, and one that is being
//! replaced will.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The weight of a worker.
const WORKER_WEIGHT: f64 = 100.0;

/// Averaging time of used processors: a number of workers that follows each second of a batch would
/// be useless to both.
const AVERAGED_SECONDS: f64 = 30.0;

/// A peak of memory counts by half after this long.
const PEAK_HALVED_SECONDS: f64 = 3600.0;

/// A smaller part of a processor is not reserved: the number of workers would be the same.
const LEAST_CORES: f64 = 0.05;

/// A process of a job, with those that it has started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchProcess {
    /// Its process id.
    pub pid: i32,
    /// Processor time since its start.
    pub cpu: Duration,
    /// Its private memory in bytes; `None`: not measured at this sample.
    pub memory: Option<f64>,
}

/// A command, or a schedule whose run goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch<'a> {
    /// Its pool.
    pub pool: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The weight of each process; that of a worker is 100.
    pub weight: u32,
    /// Processes that are to run.
    pub wanted: usize,
    /// The number of those that run.
    pub running: usize,
    /// Those of them that are looked at.
    pub processes: Vec<BatchProcess>,
}

/// What is reserved.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reserve {
    /// Processors that are used, on average.
    pub used_cores: f64,
    /// Processors that are left to it.
    pub cores: f64,
    /// Memory in use, in bytes.
    pub memory: f64,
    /// Memory that is left to it beyond that, in bytes.
    pub growth: f64,
}

/// The state of all jobs.
#[derive(Debug, Default)]
pub struct BatchLedger {
    looked: Option<Duration>,
    known: BTreeMap<(String, String), KnownBatch>,
    /// By pool.
    reserves: BTreeMap<String, Reserve>,
    all: Reserve,
}

#[derive(Debug, Default)]
struct KnownBatch {
    cpu: HashMap<i32, Duration>,
    memory: HashMap<i32, f64>,
    cores: f64,
    /// The most that one process had, in bytes.
    peak: f64,
}

impl BatchLedger {
    /// A sample of all jobs, on a machine with this many processors.
    pub fn look(&mut self, now: Duration, cores: f64, batches: &[Batch<'_>]) {
        let passed = self.looked.map_or(0.0, |before| now.saturating_sub(before).as_secs_f64());
        self.looked = Some(now);
        self.known.values_mut().for_each(|known| known.age(passed));
        self.reserves.clear();
        let mut weight = 0.0;
        for batch in batches {
            let key = (batch.pool.to_owned(), batch.name.to_owned());
            let known = self.known.entry(key).or_default();
            known.look(batch, passed);
            let one = known.reserve(batch);
            // One process wants a processor at most, and so has its weight at most once for each.
            weight += f64::from(batch.weight) * one.used_cores;
            let reserve = self.reserves.entry(batch.pool.to_owned()).or_default();
            reserve.used_cores += one.used_cores;
            reserve.memory += one.memory;
            reserve.growth += one.growth;
        }
        self.forget(batches);
        self.share(cores, weight);
    }

    /// A schedule that does not run is remembered by its peak, until that is next to nothing.
    fn forget(&mut self, batches: &[Batch<'_>]) {
        const NOTHING: f64 = 1024.0 * 1024.0;
        let is_there = |key: &(String, String)| {
            batches.iter().any(|batch| batch.pool == key.0 && batch.name == key.1)
        };
        self.known.retain(|key, known| is_there(key) || known.peak > NOTHING);
    }

    /// Divides the processors as the kernel would if workers wanted all of them.
    fn share(&mut self, cores: f64, weight: f64) {
        let used: f64 = self.reserves.values().map(|reserve| reserve.used_cores).sum();
        let due = cores * weight / (weight + WORKER_WEIGHT * cores);
        let part = if used > 0.0 { (due / used).min(1.0) } else { 0.0 };
        let part = if used * part < LEAST_CORES { 0.0 } else { part };
        self.all = Reserve::default();
        for reserve in self.reserves.values_mut() {
            reserve.cores = reserve.used_cores * part;
            self.all.used_cores += reserve.used_cores;
            self.all.cores += reserve.cores;
            self.all.memory += reserve.memory;
            self.all.growth += reserve.growth;
        }
    }

    /// The most memory that a process of a job has had lately, in bytes; `None`: it is not known.
    pub fn peak(&self, pool: &str, name: &str) -> Option<f64> {
        let known = self.known.get(&(pool.to_owned(), name.to_owned()));
        known.map(|known| known.peak)
    }

    /// The pools with jobs, each with the memory that is left to them beyond what is in use.
    pub fn growths(&self) -> impl Iterator<Item = (&str, f64)> {
        self.reserves.iter().map(|(pool, reserve)| (pool.as_str(), reserve.growth))
    }

    /// That of all pools together.
    pub fn all(&self) -> Reserve {
        self.all
    }

    /// That of the jobs of a pool.
    pub fn of(&self, pool: &str) -> Reserve {
        self.reserves.get(pool).copied().unwrap_or_default()
    }
}

impl KnownBatch {
    fn age(&mut self, passed: f64) {
        self.peak *= 0.5_f64.powf(passed / PEAK_HALVED_SECONDS);
    }

    fn look(&mut self, batch: &Batch<'_>, passed: f64) {
        let grown = batch.processes.iter().map(|process| {
            let before = self.cpu.get(&process.pid).copied().unwrap_or_default();
            process.cpu.saturating_sub(before).as_secs_f64()
        });
        let grown: f64 = grown.sum();
        self.cpu = batch.processes.iter().map(|process| (process.pid, process.cpu)).collect();
        if passed > 0.0 {
            // None uses more than a processor, whatever a process that was there before it had.
            let used = (grown / passed).min(batch.processes.len() as f64);
            let weight = 1.0 - (-passed / AVERAGED_SECONDS).exp();
            self.cores += weight * (used - self.cores);
        }
        self.memory.retain(|pid, _| batch.processes.iter().any(|process| process.pid == *pid));
        for process in &batch.processes {
            if let Some(memory) = process.memory {
                self.memory.insert(process.pid, memory);
                self.peak = self.peak.max(memory);
            }
        }
    }

    fn reserve(&self, batch: &Batch<'_>) -> Reserve {
        let measured: f64 = self.memory.values().sum();
        // The others have about as much; it is in use, and not to be reserved a second time.
        let others = batch.running.saturating_sub(self.memory.len());
        let mean = measured / self.memory.len().max(1) as f64;
        let memory = measured + mean * others as f64;
        let most = self.peak * batch.wanted.max(batch.running) as f64;
        Reserve { used_cores: self.cores, cores: 0.0, memory, growth: (most - memory).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1024.0 * 1024.0;

    fn process(pid: i32, cpu: f64, megabytes: f64) -> BatchProcess {
        let cpu = Duration::from_secs_f64(cpu);
        BatchProcess { pid, cpu, memory: Some(megabytes * MB) }
    }

    fn batch(weight: u32, wanted: usize, processes: Vec<BatchProcess>) -> Batch<'static> {
        let running = processes.len();
        Batch { pool: "www", name: "mails", weight, wanted, running, processes }
    }

    /// The reserve after two minutes in which each of these processes used all of a processor.
    fn busy(weight: u32, processes: i32, cores: f64) -> Reserve {
        let mut ledger = BatchLedger::default();
        for second in 0..=120 {
            let all = (0..processes).map(|pid| process(pid, f64::from(second), 10.0));
            let now = Duration::from_secs(second as u64);
            ledger.look(now, cores, &[batch(weight, processes as usize, all.collect())]);
        }
        ledger.of("www")
    }

    #[test]
    fn a_batch_gets_what_it_uses_but_no_more_than_its_weight_where_workers_want_all() {
        let near = |reserve: Reserve, used: f64, cores: f64| {
            let is_near = |one: f64, other: f64| (one - other).abs() < 0.05;
            assert!(
                is_near(reserve.used_cores, used) && is_near(reserve.cores, cores),
                "{reserve:?}"
            );
        };
        near(busy(10, 1, 2.0), 0.98, 2.0 * 10.0 / 210.0);
        near(busy(100, 2, 2.0), 1.96, 1.0);
        near(busy(100, 1, 8.0), 0.98, 8.0 / 9.0);
        assert_eq!(busy(1, 1, 2.0).cores, 0.0, "too little to matter");
        assert_eq!(busy(10, 0, 2.0), Reserve::default());
    }

    #[test]
    fn a_process_that_sleeps_has_no_processor_and_one_that_is_new_no_more_than_there_was_time() {
        let mut ledger = BatchLedger::default();
        ledger.look(Duration::ZERO, 2.0, &[batch(100, 1, vec![process(1, 500.0, 1.0)])]);
        ledger.look(Duration::from_secs(2), 2.0, &[batch(100, 1, vec![process(1, 500.0, 1.0)])]);
        assert_eq!(ledger.all().used_cores, 0.0);
        ledger.look(Duration::from_secs(4), 2.0, &[batch(100, 1, vec![process(2, 900.0, 1.0)])]);
        assert!(ledger.all().used_cores < 0.1, "{:?}", ledger.all());
    }

    #[test]
    fn memory_is_left_to_processes_that_will_grow_as_others_did() {
        let mut ledger = BatchLedger::default();
        let growth = |ledger: &mut BatchLedger, second, processes| {
            ledger.look(Duration::from_secs(second), 2.0, &[batch(10, 2, processes)]);
            (ledger.of("www").growth / MB).round()
        };
        let large = vec![process(1, 0.0, 300.0), process(2, 0.0, 100.0)];
        assert_eq!(growth(&mut ledger, 0, large), 200.0);
        // Both were replaced, and one of them has not begun.
        assert_eq!(growth(&mut ledger, 1, vec![process(3, 0.0, 20.0)]), 580.0);
        let small = || vec![process(3, 0.0, 20.0), process(4, 0.0, 20.0)];
        assert_eq!(growth(&mut ledger, 3601, small()), 260.0, "half of the peak is forgotten");
        // A schedule has nothing while it does not run, and its peak when it does.
        ledger.look(Duration::from_secs(3602), 2.0, &[]);
        assert_eq!(ledger.all(), Reserve::default());
        assert!(growth(&mut ledger, 3603, Vec::new()) > 250.0);
        ledger.look(Duration::from_secs(3602 * 20), 2.0, &[]);
        assert!(ledger.known.is_empty());
    }

    #[test]
    fn what_was_not_measured_this_time_is_as_it_was() {
        let mut ledger = BatchLedger::default();
        ledger.look(Duration::ZERO, 2.0, &[batch(10, 1, vec![process(1, 0.0, 50.0)])]);
        let unmeasured = BatchProcess { memory: None, ..process(1, 0.0, 0.0) };
        ledger.look(Duration::from_secs(2), 2.0, &[batch(10, 1, vec![unmeasured])]);
        assert_eq!(ledger.all().memory, 50.0 * MB);
    }
}
