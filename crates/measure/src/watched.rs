//! Samples of the server during a run: workers, queue, processor time, private memory.

use std::collections::{HashMap, HashSet};

use maitred_os::proc;

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
        processes.contains_key(&root).then(|| ProcessTree::among(&processes, root))
    }

    fn among(processes: &HashMap<i32, ProcessStat>, root: i32) -> ProcessTree {
        let mut family = ProcessTree::default();
        for stat in descendants(processes, &[root]) {
            family.processes += 1;
            family.ticks += stat.ticks;
            if let Some(rollup) = proc::Rollup::of(stat.pid) {
                *family.private_bytes.get_or_insert(0) += rollup.private;
            }
        }
        family
    }
}

/// All processes, by their ids.
pub(crate) fn processes() -> Option<HashMap<i32, ProcessStat>> {
    // One that has just ended is none.
    let stats: HashMap<i32, ProcessStat> = proc::pids()
        .filter_map(|pid| {
            let stat = proc::Stat::of(pid)?;
            let (parent, ticks) = (stat.parent()?, stat.ticks()?);
            Some((pid, ProcessStat { pid, parent, ticks }))
        })
        .collect();
    (!stats.is_empty()).then_some(stats)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_found() {
        let ours = i32::try_from(std::process::id()).expect("a pid");
        let family = ProcessTree::of(ours).expect("we are there");
        assert!(family.processes >= 1 && family.private_bytes.is_some_and(|bytes| bytes > 0));
        assert_eq!(ProcessTree::of(i32::MAX), None);
    }

    #[test]
    fn the_most_and_the_last_are_kept() {
        let sample = |busy, cpu| ServerSample { busy: Some(busy), cpu, ..ServerSample::default() };
        let samples = vec![sample(3, Some(0.5)), sample(1, Some(1.5)), sample(2, None)];
        let watched = ServerSamples::of("x".into(), samples, None);
        assert_eq!((watched.most_busy, watched.cpu), (Some(3), Some(1.5)));
        assert_eq!(watched.most_private_bytes, None);
    }
}
