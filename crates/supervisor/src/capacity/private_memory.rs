//! The private memory of processes. Counting it costs the kernel a walk through all pages of a
//! process, so that is done at most once a second, and by a process of its own
//! ([`crate::capacity::memory_reader`]).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use maitred_control::admin::{Measured, Memory};
use maitred_os::proc::{self, Statm};

use crate::capacity::memory_reads::{
    Asked, CountOutcome, MemoryReading, MemoryReads, WantedMemory,
};
use crate::limits::{COUNTED_FOR_STATUS, Moment};

/// How long a measurement is fresh.
const FRESH: Duration = Duration::from_secs(1);

/// Measurements, by process id.
#[derive(Debug, Default)]
pub struct Measures {
    known: HashMap<i32, (Moment, Usage)>,
    /// Processes that are being counted.
    awaited: HashSet<i32>,
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    private: u64,
    shared: u64,
    /// Its share of swapped pages.
    swapped: u64,
    measured: Measured,
}

impl Measures {
    /// Has these processes measured, those with the oldest measurement first, and drops all others.
    /// A process without a measurement has a rough one until it is counted.
    pub fn measure(&mut self, all: Vec<WantedMemory>, reads: &mut MemoryReads, now: Moment) {
        let present: HashSet<i32> = all.iter().map(|one| one.pid).collect();
        self.known.retain(|pid, _| present.contains(pid));
        self.awaited.retain(|pid| present.contains(pid));
        let age = |one: &WantedMemory| self.known.get(&one.pid).map(|(at, _)| *at);
        let mut due = all;
        due.retain(|one| age(one).is_none_or(|at| now >= at + FRESH));
        due.sort_by_key(age);
        for (number, one) in due.into_iter().enumerate() {
            let pid = one.pid;
            let asked =
                if number < COUNTED_FOR_STATUS { reads.ask(one, now) } else { Asked::Later };
            match asked {
                Asked::Roughly => self.take(pid, CountOutcome::Late, now),
                Asked::Later => {
                    if number < COUNTED_FOR_STATUS {
                        self.awaited.insert(pid);
                    }
                    if !self.known.contains_key(&pid) {
                        self.take(pid, CountOutcome::Late, Moment::ZERO);
                    }
                }
            }
        }
    }

    /// Processes were counted, or could not be. Whether those that were awaited are complete now.
    pub fn read(&mut self, readings: &[MemoryReading], now: Moment) -> bool {
        let mut was_any = false;
        for reading in readings {
            if self.awaited.remove(&reading.pid) {
                was_any = true;
                self.take(reading.pid, reading.outcome, now);
            }
        }
        was_any && self.awaited.is_empty()
    }

    /// Whether processes are being counted.
    pub fn are_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    fn take(&mut self, pid: i32, outcome: CountOutcome, now: Moment) {
        match usage(pid, outcome) {
            Some(usage) => self.known.insert(pid, (now, usage)),
            None => self.known.remove(&pid),
        };
    }

    /// The sums over these processes.
    pub fn of(&self, pids: &[i32]) -> Memory {
        let mut memory = Memory::default();
        for pid in pids {
            let Some((_, usage)) = self.known.get(pid) else {
                memory.unmeasured += 1;
                continue;
            };
            memory.processes += 1;
            memory.private_bytes += usage.private;
            memory.shared_bytes = memory.shared_bytes.max(usage.shared);
            memory.measured = coarser(memory.measured, usage.measured);
        }
        memory
    }
}

/// The method that is less exact.
fn coarser(one: Measured, other: Measured) -> Measured {
    let exactness = |measured: &Measured| match measured {
        Measured::Nothing => 0,
        Measured::Private => 1,
        Measured::RssMinusShared => 2,
        Measured::RssMinusSharedLate => 3,
    };
    std::cmp::max_by_key(one, other, exactness)
}

/// Private memory of a process in bytes, with its share of swapped pages: these will come back.
/// `None`: it has ended.
pub fn private_bytes(pid: i32, outcome: CountOutcome) -> Option<u64> {
    let usage = usage(pid, outcome)?;
    Some(usage.private.saturating_add(usage.swapped))
}

fn usage(pid: i32, outcome: CountOutcome) -> Option<Usage> {
    let rough = |measured| {
        from_statm(&proc::read(pid, "statm")?, rustix::param::page_size() as u64, measured)
    };
    match outcome {
        CountOutcome::Counted(counted) => Some(Usage {
            private: counted.private,
            shared: counted.shared,
            swapped: counted.swapped,
            measured: Measured::Private,
        }),
        CountOutcome::Refused => rough(Measured::RssMinusShared),
        CountOutcome::Late => rough(Measured::RssMinusSharedLate),
    }
}

/// Where the private pages may not be counted, or were not in time.
fn from_statm(text: &str, page_bytes: u64, measured: Measured) -> Option<Usage> {
    let statm = Statm::parse(text)?;
    Some(Usage {
        private: statm.anonymous * page_bytes,
        shared: statm.shared * page_bytes,
        swapped: 0,
        measured,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::memory_reads::count_at_once;

    const NOW: Moment = Duration::from_secs(9);

    fn all(pids: &[i32]) -> Vec<WantedMemory> {
        pids.iter().map(|pid| WantedMemory { pool: "www".to_owned(), pid: *pid }).collect()
    }

    fn ours() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    #[test]
    fn where_that_may_not_be_read_resident_pages_are_counted() {
        let measured = Measured::RssMinusShared;
        let usage = from_statm("2000 900 600 10 0 100 0\n", 4096, measured).unwrap();
        assert_eq!((usage.private, usage.shared), (300 * 4096, 600 * 4096));
        assert_eq!(usage.measured, measured);
        assert_eq!(from_statm("", 4096, measured), None);
    }

    #[test]
    fn a_living_process_is_measured_and_one_that_is_gone_is_forgotten() {
        let (mut measures, mut reads) = (Measures::default(), MemoryReads::default());
        let pids = [ours(), i32::MAX];
        measures.measure(all(&pids), &mut reads, NOW);
        assert!(measures.are_awaited());
        assert!(measures.read(&count_at_once(&mut reads, NOW), NOW), "all have come");
        let memory = measures.of(&pids);
        assert!(memory.private_bytes > 0 && memory.measured == Measured::Private, "{memory:?}");
        assert_eq!((memory.processes, memory.unmeasured), (1, 1));
        measures.measure(all(&[ours()]), &mut reads, NOW + FRESH / 2);
        assert!(!measures.are_awaited(), "it is fresh");
        measures.measure(Vec::new(), &mut reads, NOW + FRESH);
        assert!(measures.known.is_empty());
    }

    #[test]
    fn a_process_that_is_not_counted_in_time_has_the_memory_that_costs_no_lock() {
        let (mut measures, mut reads) = (Measures::default(), MemoryReads::default());
        measures.measure(all(&[ours()]), &mut reads, NOW);
        let before = measures.of(&[ours()]);
        assert!(before.private_bytes > 0, "also until it is counted");
        assert_eq!(before.measured, Measured::RssMinusSharedLate);
        reads.next_order(NOW).unwrap();
        assert!(
            measures.read(&reads.order_timed_out(NOW).readings, NOW) && !measures.are_awaited()
        );
        assert_eq!(measures.of(&[ours()]).measured, Measured::RssMinusSharedLate);
        let later = NOW + FRESH;
        measures.measure(all(&[ours()]), &mut reads, later);
        assert!(!measures.are_awaited(), "its pool is not counted any more");
        assert_eq!(measures.known[&ours()].0, later, "and it is measured all the same");
    }
}
