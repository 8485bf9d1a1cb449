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

use crate::capacity::private_memory::private_bytes;

/// Most programs run by a worker's script whose memory is counted.
const PROGRAMS_MOST: usize = 16;

/// The last count of each worker, by process id.
#[derive(Debug, Default)]
pub(super) struct WorkerMeasures(HashMap<i32, Count>);

/// In bytes: private memory, and the resident memory at that time that was neither file-backed nor
/// shared.
#[derive(Debug, Clone, Copy)]
struct Count {
    private: f64,
    resident: f64,
}

impl WorkerMeasures {
    /// Measures a worker and the programs its script runs, if it is due. `None` when the worker is
    /// gone.
    pub(super) fn measure(
        &mut self,
        files: &dyn Files,
        due: DueMeasurement,
    ) -> Option<WorkerMemory> {
        let pid = due.worker;
        let before = self.0.get(&pid).filter(|_| !due.exactly).copied();
        let (own, most) = match before {
            Some(count) => {
                let grown = resident(files, pid)? - count.resident;
                ((count.private + grown).max(0.0), None)
            }
            None => self.count(files, pid)?,
        };
        let own = own + of_programs(files, pid);
        Some(WorkerMemory { own, most, served: None })
    }

    /// Counts private pages: the present number and the peak.
    fn count(&mut self, files: &dyn Files, pid: i32) -> Option<(f64, Option<f64>)> {
        let private = private_bytes(pid)? as f64;
        let resident = resident(files, pid).unwrap_or(private);
        self.0.insert(pid, Count { private, resident });
        let most = highest(files, pid).map(|highest| private + (highest - resident).max(0.0));
        Some((private, most))
    }

    /// Forgets all other workers.
    pub(super) fn keep(&mut self, present: &HashSet<i32>) {
        self.0.retain(|pid, _| present.contains(pid));
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

/// Private memory of the programs that a worker's script runs, in bytes. The worker's child is
/// usually a small shell, and the program is a child of that shell.
fn of_programs(files: &dyn Files, pid: i32) -> f64 {
    let mut family = vec![pid];
    let mut looked = 0;
    while let Some(parent) = family.get(looked) {
        let children = files.read(&format!("/proc/{parent}/task/{parent}/children"));
        let children = children.unwrap_or_default();
        let children = children.split_whitespace().map_while(|pid| pid.parse::<i32>().ok());
        family.extend(children.take(PROGRAMS_MOST + 1 - family.len()));
        looked += 1;
    }
    let programs = family.iter().skip(1);
    let each = programs.filter_map(|program| private_bytes(*program));
    each.map(|bytes| bytes as f64).sum()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::super::Machine;
    use super::*;

    const OURSELVES: fn(bool) -> DueMeasurement =
        |exactly| DueMeasurement { worker: std::process::id() as i32, exactly };

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
        let has = counted.measure(&Machine, OURSELVES(true)).unwrap();
        assert!(has.own > 100_000.0, "{has:?}");
        assert!(has.most.is_some_and(|most| most >= 0.9 * has.own), "{has:?}");
        let gone = DueMeasurement { worker: i32::MAX, ..OURSELVES(true) };
        assert_eq!(counted.measure(&Machine, gone), None);
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
        while of_programs(&Machine, pid) < bytes as f64 {
            assert!(Instant::now() < until, "{}", of_programs(&Machine, pid));
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(shell.stdin.take());
        assert!(shell.wait().unwrap().success());
        assert_eq!(of_programs(&Machine, pid), 0.0, "they are gone");
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
        assert_eq!(of_programs(&many, 1), 0.0, "there is no such process");
        assert_eq!(many.0.get(), 1 + PROGRAMS_MOST);
    }

    #[test]
    fn what_has_become_resident_since_it_was_counted_is_its_own() {
        let mut counted = WorkerMeasures::default();
        let page = rustix::param::page_size() as f64;
        let first = Written("2000 900 600 10 0 100 0\n", "");
        let more = Written("2000 960 610 10 0 100 0\n", "");
        let before = counted.measure(&first, OURSELVES(true)).unwrap();
        let after = counted.measure(&more, OURSELVES(false)).unwrap();
        assert_eq!(after.own - before.own, 50.0 * page);
        assert_eq!((before.most, after.most), (None, None), "no counters");
        let less = Written("1 1 1\n", "");
        let least = counted.measure(&less, OURSELVES(false)).unwrap();
        assert!(least.own >= 0.0);
        counted.keep(&HashSet::new());
        assert!(counted.0.is_empty());
    }

    #[test]
    fn the_most_that_a_process_has_had_is_without_what_is_shared() {
        let status = "Name:\tphp\nVmHWM:\t   5000 kB\nVmRSS:\t 3000 kB\nRssAnon:\t 900 kB\n\
                      RssFile:\t 1500 kB\nRssShmem:\t 500 kB\n";
        assert_eq!(highest(&Written("", status), 1), Some(3000.0 * 1024.0));
        assert_eq!(highest(&Written("", "VmHWM: many kB\n"), 1), None);
    }
}
