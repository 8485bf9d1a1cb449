//! The private memory of processes. Reading it costs the kernel a walk through all pages of a
//! process, so it is read at most once a second, and within a time budget.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use maitred_control::admin::{Measured, Memory};
use maitred_os::proc::{self, Rollup, Statm};

use crate::limits::Moment;

/// How long a measurement is fresh.
const FRESH: Duration = Duration::from_secs(1);

/// Time budget of one status reply. A process that is not measured then keeps its last number, and
/// comes first the next time.
const BUDGET: Duration = Duration::from_millis(10);

/// Measurements, by process id.
#[derive(Debug, Default)]
pub struct Measures {
    known: HashMap<i32, (Moment, Usage)>,
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    private: u64,
    shared: u64,
    /// Its share of swapped pages.
    swapped: u64,
    /// By the count of private pages.
    exact: bool,
}

impl Measures {
    /// Measures these processes, those with the oldest measurement first, and drops all others.
    pub fn measure(&mut self, pids: &[i32], now: Moment) {
        let begun = Instant::now();
        let age = |pid: &i32| self.known.get(pid).map(|(at, _)| *at);
        let mut due: Vec<i32> = pids.to_vec();
        due.retain(|pid| age(pid).is_none_or(|at| now >= at + FRESH));
        due.sort_unstable_by_key(age);
        for pid in due {
            if begun.elapsed() >= BUDGET {
                break;
            }
            match usage(pid) {
                Some(usage) => self.known.insert(pid, (now, usage)),
                None => self.known.remove(&pid),
            };
        }
        let present: std::collections::HashSet<&i32> = pids.iter().collect();
        self.known.retain(|pid, _| present.contains(pid));
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
            memory.measured = match (usage.exact, memory.measured) {
                (true, Measured::Nothing | Measured::Private) => Measured::Private,
                _ => Measured::RssMinusShared,
            };
        }
        memory
    }
}

/// Private memory of a process in bytes, with its share of swapped pages: these will come back.
pub fn private_bytes(pid: i32) -> Option<u64> {
    let usage = usage(pid)?;
    Some(usage.private.saturating_add(usage.swapped))
}

fn usage(pid: i32) -> Option<Usage> {
    if let Some(rollup) = Rollup::of(pid) {
        return Some(Usage {
            private: rollup.private,
            shared: rollup.shared(),
            swapped: rollup.swapped,
            exact: true,
        });
    }
    from_statm(&proc::read(pid, "statm")?, rustix::param::page_size() as u64)
}

/// Where the private pages may not be counted.
fn from_statm(text: &str, page_bytes: u64) -> Option<Usage> {
    let statm = Statm::parse(text)?;
    Some(Usage {
        private: statm.anonymous * page_bytes,
        shared: statm.shared * page_bytes,
        swapped: 0,
        exact: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_that_may_not_be_read_resident_pages_are_counted() {
        let usage = from_statm("2000 900 600 10 0 100 0\n", 4096).unwrap();
        assert_eq!((usage.private, usage.shared), (300 * 4096, 600 * 4096));
        assert!(!usage.exact);
        assert_eq!(from_statm("", 4096), None);
    }

    #[test]
    fn a_living_process_is_measured_and_one_that_is_gone_is_forgotten() {
        let ours = i32::try_from(std::process::id()).unwrap();
        let mut measures = Measures::default();
        measures.measure(&[ours, i32::MAX], FRESH);
        let memory = measures.of(&[ours, i32::MAX]);
        assert!(memory.private_bytes > 0);
        assert_eq!((memory.processes, memory.unmeasured), (1, 1));
        measures.measure(&[], FRESH);
        assert!(measures.known.is_empty());
    }
}
