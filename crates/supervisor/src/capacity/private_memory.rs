//! The private memory of processes. Reading it costs the kernel a walk through all pages of a
//! process, so it is read at most once a second, and within a time budget.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use maitred_control::admin::{Measured, Memory};

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
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    if let Some(usage) = rollup.ok().as_deref().and_then(from_rollup) {
        return Some(usage);
    }
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    from_statm(&statm, rustix::param::page_size() as u64)
}

/// From the sums of `smaps_rollup`, in kB (proc_pid_smaps(5)).
fn from_rollup(text: &str) -> Option<Usage> {
    let (mut rss, mut private, mut swapped) = (0, 0, 0);
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let bytes = || -> Option<u64> {
            let kilobytes = value.trim().strip_suffix("kB")?.trim();
            Some(kilobytes.parse::<u64>().ok()? * 1024)
        };
        match name {
            "Rss" => rss = bytes()?,
            "SwapPss" => swapped = bytes()?,
            "Private_Clean" | "Private_Dirty" | "Private_Hugetlb" => private += bytes()?,
            _ => {}
        }
    }
    (rss > 0).then(|| Usage {
        private,
        shared: rss.saturating_sub(private),
        swapped,
        exact: true,
    })
}

/// From `statm`, in pages: size, resident, and of these those of files and shared memory
/// (proc_pid_statm(5)).
fn from_statm(text: &str, page_bytes: u64) -> Option<Usage> {
    let mut pages = text.split_ascii_whitespace().skip(1);
    let mut next = || pages.next()?.parse::<u64>().ok();
    let (resident, shared) = (next()?, next()?);
    Some(Usage {
        private: resident.saturating_sub(shared) * page_bytes,
        shared: shared * page_bytes,
        swapped: 0,
        exact: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_pages_are_added_up_and_the_rest_is_shared() {
        let text = "55d0-7ffe ---p 00000000 00:00 0    [rollup]\nRss:    9460 kB\nPss: 2108 kB\n\
                    Pss_Dirty: 1 kB\nShared_Clean: 8000 kB\nShared_Dirty: 300 kB\n\
                    Private_Clean:       160 kB\nPrivate_Dirty:      1000 kB\n\
                    Private_Hugetlb:      0 kB\nSwap: 90 kB\nSwapPss:      40 kB\n";
        let usage = from_rollup(text).unwrap();
        assert_eq!(usage.private, 1160 * 1024);
        assert_eq!(usage.shared, 8300 * 1024);
        assert_eq!(usage.swapped, 40 * 1024);
        assert!(usage.exact);
        assert_eq!(from_rollup(""), None);
    }

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
