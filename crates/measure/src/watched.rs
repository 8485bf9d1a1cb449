//! Samples of the server during a run: workers, queue, processor time, private memory.

use std::collections::{HashMap, HashSet};
use std::fs;

use serde::Serialize;

/// The server's state at one moment; `None` where the source does not report a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ServerSample {
    /// Seconds since the start of the run.
    pub second: f64,
    /// Workers that run a script.
    pub busy: Option<u64>,
    /// Idle workers.
    pub idle: Option<u64>,
    /// Requests that wait for a worker.
    pub queue: Option<u64>,
    /// Processes.
    pub processes: Option<u64>,
    /// Processor time since the start of the run, in seconds.
    pub cpu: Option<f64>,
    /// Private memory of all processes, in bytes.
    pub private_bytes: Option<u64>,
}

/// All samples of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ServerSamples {
    /// Where they come from.
    pub source: String,
    /// Why sampling ended early.
    pub lost: Option<String>,
    /// Most busy workers.
    pub most_busy: Option<u64>,
    /// Most queued requests.
    pub most_queue: Option<u64>,
    /// Processor time during the run, in seconds.
    pub cpu: Option<f64>,
    /// Most private memory, in bytes.
    pub most_private_bytes: Option<u64>,
    /// Second by second.
    pub samples: Vec<ServerSample>,
}

impl ServerSamples {
    /// Summarises samples.
    pub fn of(source: String, samples: Vec<ServerSample>, lost: Option<String>) -> ServerSamples {
        let most = |of: fn(&ServerSample) -> Option<u64>| samples.iter().filter_map(of).max();
        ServerSamples {
            source,
            lost,
            most_busy: most(|sample| sample.busy),
            most_queue: most(|sample| sample.queue),
            most_private_bytes: most(|sample| sample.private_bytes),
            cpu: samples.iter().rev().find_map(|sample| sample.cpu),
            samples,
        }
    }
}

/// A process with its descendants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessTree {
    /// The number of processes.
    pub processes: u64,
    /// Their processor time, including that of collected children, in clock ticks.
    pub ticks: u64,
    /// Their private memory in bytes, where it may be read.
    pub private_bytes: Option<u64>,
}

/// The used fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ProcessStat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// Its processor time, including that of collected children.
    pub(crate) ticks: u64,
}

impl ProcessTree {
    /// Reads the current state from `/proc`; `None` if the process does not exist.
    pub fn of(root: i32) -> Option<ProcessTree> {
        let processes = processes()?;
        processes
            .contains_key(&root)
            .then(|| ProcessTree::among(&processes, root))
    }

    fn among(processes: &HashMap<i32, ProcessStat>, root: i32) -> ProcessTree {
        let mut family = ProcessTree::default();
        for stat in descendants(processes, &[root]) {
            family.processes += 1;
            family.ticks += stat.ticks;
            let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", stat.pid)).ok();
            if let Some(private) = rollup.as_deref().and_then(private) {
                *family.private_bytes.get_or_insert(0) += private;
            }
        }
        family
    }
}

/// All processes, by their ids.
pub(crate) fn processes() -> Option<HashMap<i32, ProcessStat>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let stats = pids.filter_map(|pid| {
        // The process may have ended meanwhile.
        stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    });
    Some(stats.map(|stat| (stat.pid, stat)).collect())
}

/// The root processes and their descendants, each once.
pub(crate) fn descendants(
    processes: &HashMap<i32, ProcessStat>,
    roots: &[i32],
) -> Vec<ProcessStat> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for stat in processes.values() {
        children.entry(stat.parent).or_default().push(stat.pid);
    }
    let mut seen: HashSet<i32> = roots.iter().copied().collect();
    let mut next: Vec<i32> = seen.iter().copied().collect();
    let mut found = Vec::new();
    while let Some(pid) = next.pop() {
        found.extend(processes.get(&pid));
        let of_it = children.remove(&pid).unwrap_or_default();
        next.extend(of_it.into_iter().filter(|pid| seen.insert(*pid)));
    }
    found
}

/// The name, in parentheses, may contain anything (proc_pid_stat(5)).
fn stat(line: &str) -> Option<ProcessStat> {
    let (pid, _) = line.split_once(' ')?;
    let (_, rest) = line.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |place: usize| fields.get(place)?.parse::<u64>().ok();
    Some(ProcessStat {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        // utime, stime, cutime and cstime are the fields 14 to 17, and the state is the third.
        ticks: ticks(11)? + ticks(12)? + ticks(13)? + ticks(14)?,
    })
}

/// Private_Clean and Private_Dirty (proc_pid_smaps(5)), in bytes.
fn private(rollup: &str) -> Option<u64> {
    let lines = rollup.lines().filter(|line| line.starts_with("Private_"));
    let kibibytes = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kibibytes
        .reduce(|sum, each| sum + each)
        .map(|sum| sum * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found_whatever_its_members_are_called() {
        let line = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 1 20 0 1 0 9 8 7";
        let found = stat(line).expect("a process");
        assert_eq!((found.pid, found.parent, found.ticks), (42, 7, 124));
        assert_eq!(
            private("Rss: 9 kB\nPrivate_Clean: 4 kB\nPrivate_Dirty: 6 kB\n"),
            Some(10_240)
        );
        let ours = i32::try_from(std::process::id()).expect("a pid");
        let family = ProcessTree::of(ours).expect("we are there");
        assert!(family.processes >= 1 && family.private_bytes.is_some_and(|bytes| bytes > 0));
        assert_eq!(ProcessTree::of(i32::MAX), None);
    }

    #[test]
    fn the_most_and_the_last_are_kept() {
        let sample = |busy, cpu| ServerSample {
            busy: Some(busy),
            cpu,
            ..ServerSample::default()
        };
        let samples = vec![sample(3, Some(0.5)), sample(1, Some(1.5)), sample(2, None)];
        let watched = ServerSamples::of("x".into(), samples, None);
        assert_eq!((watched.most_busy, watched.cpu), (Some(3), Some(1.5)));
        assert_eq!(watched.most_private_bytes, None);
    }
}
