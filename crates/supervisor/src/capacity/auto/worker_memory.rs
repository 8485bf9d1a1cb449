//! The private memory of workers, measured at little cost.
//!
//! To count private pages the kernel walks through all pages of a process (50 µs for a small one).
//! Between two such counts it is enough to read how much the resident memory that is neither
//! file-backed nor shared has changed (3 µs): what a worker still shares with its zygote changes
//! little once the worker is warm.

use std::collections::{HashMap, HashSet};

use maitred_os::proc::{self, Statm};
use maitred_sizing::ledger::{DueMeasurement, WorkerMemory};
use maitred_sizing::sources::Files;

use super::worker_counters::WorkerCounters;
use crate::capacity::memory_reads::{
    Asked, CountOutcome, MemoryReading, MemoryReads, WantedMemory,
};
use crate::capacity::private_memory::private_bytes;
use crate::limits::Moment;

/// Most programs run by a worker's script whose memory is counted.
const PROGRAMS_MOST: usize = 16;

/// The last count of each worker, and measurements that wait for one, by process id.
#[derive(Debug, Default)]
pub(super) struct WorkerMeasures {
    counts: HashMap<i32, Count>,
    begun: HashMap<i32, BegunMeasurement>,
}

/// In bytes: private memory, and the resident memory at that time that was neither file-backed nor
/// shared.
#[derive(Debug, Clone, Copy)]
struct Count {
    private: f64,
    resident: f64,
}

/// A worker to measure.
#[derive(Debug, Clone)]
pub(super) struct WorkerToMeasure {
    /// Its pool.
    pub(super) pool: String,
    /// How it is to be measured.
    pub(super) due: DueMeasurement,
    /// What it publishes about itself.
    pub(super) reported: Option<WorkerCounters>,
}

/// A measured worker.
#[derive(Debug)]
pub(super) struct MeasuredWorker {
    /// The worker.
    pub(super) of: WorkerToMeasure,
    /// Its memory.
    pub(super) has: WorkerMemory,
}

/// A measurement that waits for counts of pages.
#[derive(Debug)]
struct BegunMeasurement {
    of: WorkerToMeasure,
    /// Its own memory, as far as that is known, and its peak.
    own: f64,
    most: Option<f64>,
    /// That of the programs its script runs.
    programs: f64,
    /// The processes whose pages are being counted.
    awaited: HashSet<i32>,
}

impl WorkerMeasures {
    /// Begins to measure a worker and the programs its script runs. Returns what is known already,
    /// which is all if no pages are counted.
    pub(super) fn begin(
        &mut self,
        files: &dyn Files,
        of: WorkerToMeasure,
        reads: &mut MemoryReads,
        now: Moment,
    ) -> Option<MeasuredWorker> {
        let (worker, pool) = (of.due.worker, of.pool.clone());
        let before = self.counts.get(&worker).filter(|_| !of.due.exactly).copied();
        let mut awaited: HashSet<i32> = programs(files, worker).into_iter().collect();
        let own = match before {
            Some(count) => (count.private + resident(files, worker)? - count.resident).max(0.0),
            None => {
                awaited.insert(worker);
                0.0
            }
        };
        let asked: Vec<i32> = awaited.iter().copied().collect();
        let begun = BegunMeasurement { of, own, most: None, programs: 0.0, awaited };
        self.begun.insert(worker, begun);
        for pid in asked {
            let wanted = WantedMemory { pool: pool.clone(), pid };
            if reads.ask(wanted, now) == Asked::Roughly {
                self.take(files, worker, &MemoryReading { pid, outcome: CountOutcome::Late });
            }
        }
        self.complete(worker)
    }

    /// The pages of a process were counted, or could not be. Returns the workers that are measured
    /// by that.
    pub(super) fn read(
        &mut self,
        files: &dyn Files,
        reading: &MemoryReading,
    ) -> Vec<MeasuredWorker> {
        let waits = self.begun.iter().filter(|(_, one)| one.awaited.contains(&reading.pid));
        let workers: Vec<i32> = waits.map(|(worker, _)| *worker).collect();
        let mut measured = Vec::new();
        for worker in workers {
            self.take(files, worker, reading);
            measured.extend(self.complete(worker));
        }
        measured
    }

    /// Whether any measurement waits for counts of pages.
    pub(super) fn are_awaited(&self) -> bool {
        !self.begun.is_empty()
    }

    fn complete(&mut self, worker: i32) -> Option<MeasuredWorker> {
        let begun = self.begun.remove(&worker)?;
        if !begun.awaited.is_empty() {
            self.begun.insert(worker, begun);
            return None;
        }
        let BegunMeasurement { of, own, most, programs, .. } = begun;
        Some(MeasuredWorker { of, has: WorkerMemory { own: own + programs, most, served: None } })
    }

    fn take(&mut self, files: &dyn Files, worker: i32, reading: &MemoryReading) {
        let Some(begun) = self.begun.get_mut(&worker) else { return };
        if !begun.awaited.remove(&reading.pid) {
            return;
        }
        let private = private_bytes(reading.pid, reading.outcome).map(|bytes| bytes as f64);
        if reading.pid != worker {
            begun.programs += private.unwrap_or(0.0);
            return;
        }
        let Some(private) = private else {
            // The worker is gone.
            self.begun.remove(&worker);
            return;
        };
        let resident = resident(files, worker).unwrap_or(private);
        self.counts.insert(worker, Count { private, resident });
        let most = highest(files, worker);
        begun.own = private;
        begun.most = most.map(|highest| private + (highest - resident).max(0.0));
    }

    /// Forgets all other workers.
    pub(super) fn keep(&mut self, present: &HashSet<i32>) {
        self.counts.retain(|pid, _| present.contains(pid));
        self.begun.retain(|pid, _| present.contains(pid));
    }
}

/// Resident memory of a process that is neither file-backed nor shared, in bytes
/// (proc_pid_statm(5)).
fn resident(files: &dyn Files, pid: i32) -> Option<f64> {
    let text = files.read(&format!("/proc/{pid}/statm"))?;
    let pages = Statm::parse(&text)?.anonymous;
    Some(pages as f64 * rustix::param::page_size() as f64)
}

/// The peak of it since the process started, in bytes (`VmHWM` in proc_pid_status(5)). The
/// file-backed and shared part is assumed to have been the same as now.
fn highest(files: &dyn Files, pid: i32) -> Option<f64> {
    let text = files.read(&format!("/proc/{pid}/status"))?;
    let of = |name| Some(proc::bytes(&text, name)? as f64);
    Some((of("VmHWM")? - of("RssFile")? - of("RssShmem")?).max(0.0))
}

/// The programs that a worker's script runs. The worker's child is usually a small shell, and the
/// program is a child of that shell.
fn programs(files: &dyn Files, pid: i32) -> Vec<i32> {
    let mut family = vec![pid];
    let mut looked = 0;
    while let Some(parent) = family.get(looked) {
        let children = files.read(&format!("/proc/{parent}/task/{parent}/children"));
        let children = children.unwrap_or_default();
        let children = children.split_whitespace().map_while(|pid| pid.parse::<i32>().ok());
        family.extend(children.take(PROGRAMS_MOST + 1 - family.len()));
        looked += 1;
    }
    family.split_off(1)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::super::Machine;
    use super::*;
    use crate::capacity::memory_reads::count_at_once;

    const OURSELVES: fn(bool) -> DueMeasurement =
        |exactly| DueMeasurement { worker: std::process::id() as i32, exactly };

    const NOW: Moment = Moment::ZERO;

    /// The memory of a worker, whose pages are counted at once.
    fn measure(
        measures: &mut WorkerMeasures,
        files: &dyn Files,
        due: DueMeasurement,
    ) -> Option<WorkerMemory> {
        let mut reads = MemoryReads::default();
        let of = WorkerToMeasure { pool: "www".to_owned(), due, reported: None };
        let known = measures.begin(files, of, &mut reads, NOW);
        let readings = count_at_once(&mut reads, NOW);
        let counted = readings.iter().flat_map(|reading| measures.read(files, reading));
        let mut all: Vec<MeasuredWorker> = counted.collect();
        all.extend(known);
        assert!(all.len() <= 1 && !measures.are_awaited());
        all.pop().map(|measured| measured.has)
    }

    /// Private memory of the programs that a script of this process runs.
    fn of_programs(pid: i32) -> f64 {
        let of = |pid: &i32| {
            let counted = maitred_control::memory_reader::CountedMemory::of(*pid);
            private_bytes(*pid, counted.map_or(CountOutcome::Refused, CountOutcome::Counted))
        };
        programs(&Machine, pid).iter().filter_map(of).sum::<u64>() as f64
    }

    /// A process as it is written here.
    struct Written(&'static str, &'static str);

    impl Files for Written {
        fn read(&self, path: &str) -> Option<String> {
            let text = match path.rsplit('/').next() {
                Some("statm") => self.0,
                Some("status") => self.1,
                _ => return None,
            };
            Some(text.to_owned())
        }
    }

    #[test]
    fn what_a_worker_has_now_and_has_had_at_most_is_counted() {
        let mut counted = WorkerMeasures::default();
        let has = measure(&mut counted, &Machine, OURSELVES(true)).unwrap();
        assert!(has.own > 100_000.0, "{has:?}");
        assert!(has.most.is_some_and(|most| most >= 0.9 * has.own), "{has:?}");
        let gone = DueMeasurement { worker: i32::MAX, ..OURSELVES(true) };
        assert_eq!(measure(&mut counted, &Machine, gone), None);
    }

    /// Runs a program as scripts do, and has it hold this many bytes until its standard input ends.
    fn holds_below_a_shell(bytes: u64) -> Child {
        let holds = format!("(head -c {bytes} /dev/zero; cat) | tail -c {bytes} >/dev/null; :");
        let shell = Command::new("sh")
            .args(["-c", &format!("sh -c '{holds}'; :")])
            .stdin(Stdio::piped())
            .spawn();
        shell.unwrap()
    }

    #[test]
    fn what_a_program_has_counts_however_far_below_the_script_it_runs() {
        let bytes = 20 << 20;
        let mut shell = holds_below_a_shell(bytes);
        let pid = i32::try_from(shell.id()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while of_programs(pid) < bytes as f64 {
            assert!(Instant::now() < until, "{}", of_programs(pid));
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(shell.stdin.take());
        assert!(shell.wait().unwrap().success());
        assert_eq!(of_programs(pid), 0.0, "they are gone");
    }

    /// Each process has two children.
    struct Many(Cell<usize>);

    impl Files for Many {
        fn read(&self, path: &str) -> Option<String> {
            self.0.set(self.0.get() + 1);
            path.ends_with("/children").then(|| format!("{} {} ", i32::MAX, i32::MAX))
        }
    }

    #[test]
    fn however_many_programs_run_no_more_are_looked_at() {
        let many = Many(Cell::new(0));
        assert!(programs(&many, 1).len() <= PROGRAMS_MOST);
        assert_eq!(many.0.get(), 1 + PROGRAMS_MOST);
    }

    #[test]
    fn what_has_become_resident_since_it_was_counted_is_its_own() {
        let mut counted = WorkerMeasures::default();
        let page = rustix::param::page_size() as f64;
        let first = Written("2000 900 600 10 0 100 0\n", "");
        let more = Written("2000 960 610 10 0 100 0\n", "");
        let before = measure(&mut counted, &first, OURSELVES(true)).unwrap();
        let after = measure(&mut counted, &more, OURSELVES(false)).unwrap();
        assert_eq!(after.own - before.own, 50.0 * page);
        assert_eq!((before.most, after.most), (None, None), "no counters");
        let less = Written("1 1 1\n", "");
        let least = measure(&mut counted, &less, OURSELVES(false)).unwrap();
        assert!(least.own >= 0.0);
        counted.keep(&HashSet::new());
        assert!(counted.counts.is_empty());
    }

    #[test]
    fn a_worker_waits_for_the_counts_of_all_its_processes_and_has_rough_ones_of_those_not_counted()
    {
        let (mut counted, mut reads) = (WorkerMeasures::default(), MemoryReads::default());
        let mut shell = holds_below_a_shell(1 << 20);
        let until = Instant::now() + Duration::from_secs(60);
        let worker = i32::try_from(shell.id()).unwrap();
        while programs(&Machine, worker).len() < 2 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
        let due = DueMeasurement { worker, exactly: true };
        let of = WorkerToMeasure { pool: "www".to_owned(), due, reported: None };
        assert!(counted.begin(&Machine, of.clone(), &mut reads, NOW).is_none());
        let pids = reads.next_order(NOW).unwrap();
        assert!(pids.contains(&worker) && pids.len() > 2, "{pids:?}");
        let late = reads.order_timed_out(NOW);
        let (last, first) = late.readings.split_last().unwrap();
        for reading in first {
            assert!(counted.read(&Machine, reading).is_empty());
        }
        let all = counted.read(&Machine, last);
        assert!(all[0].has.own > 0.0 && !counted.are_awaited(), "{all:?}");
        let at_once = counted.begin(&Machine, of, &mut reads, NOW);
        assert!(at_once.is_some(), "the pages of its pool are not counted any more");
        drop(shell.stdin.take());
        assert!(shell.wait().unwrap().success());
    }

    #[test]
    fn the_most_that_a_process_has_had_is_without_what_is_shared() {
        let status = "Name:\tphp\nVmHWM:\t   5000 kB\nVmRSS:\t 3000 kB\nRssAnon:\t 900 kB\n\
                      RssFile:\t 1500 kB\nRssShmem:\t 500 kB\n";
        assert_eq!(highest(&Written("", status), 1), Some(3000.0 * 1024.0));
        assert_eq!(highest(&Written("", "VmHWM: many kB\n"), 1), None);
    }
}
