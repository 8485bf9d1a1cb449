//! A pool's workers in /proc.

use std::collections::HashMap;
use std::fs;

use maitred_os::proc::{self, Rollup, held_locks};
use maitred_os::schedstat::Schedstat;

/// Most workers whose memory is measured, since the kernel has to walk their pages.
const MAX_MEASURED: usize = 64;

/// Processor time and run queue time of processes, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct CpuTimes {
    of: HashMap<i32, (u64, u64)>,
}

/// Memory of workers, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkerMemory {
    /// Private memory, 95th percentile.
    pub private: Option<f64>,
    /// Private memory, median.
    pub typical: Option<f64>,
    /// Resident memory, on average.
    pub resident: Option<f64>,
}

/// The children of `master`, of this user if it is known, whose titles start with `title`. Any
/// process can have such a title, and the server adopts orphans of all pools: only those of its
/// user are surely a pool's.
pub fn workers(master: i32, title: &str, user: Option<u32>) -> Vec<i32> {
    let is_child = |pid| proc::Stat::of(pid).and_then(|stat| stat.parent()) == Some(master);
    let children = proc::pids().filter(|pid| is_child(*pid));
    let own = children.filter(|pid| user.is_none_or(|uid| is_of(*pid, uid)));
    own.filter(|pid| is_titled(*pid, title)).collect()
}

/// Whether the process title starts with `title` as whole words.
pub fn is_titled(pid: i32, title: &str) -> bool {
    let line = held_locks::read(pid, move || proc::command_line(pid)).unwrap_or_default();
    let rest = line.strip_prefix(title.as_bytes());
    rest.is_some_and(|rest| rest.first().is_none_or(|next| matches!(next, 0 | b' ')))
}

/// The user and group of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ProcessOwner {
    pub uid: u32,
    pub gid: u32,
}

/// The user and group with whose rights a process acts. (The owner of its files in /proc is root if
/// it may not be inspected.)
pub fn owner(pid: i32) -> Option<ProcessOwner> {
    let status = proc::read(pid, "status")?;
    let effective = |name: &str| {
        let ids = proc::value(&status, name)?;
        ids.split_ascii_whitespace().nth(1)?.parse::<u32>().ok()
    };
    Some(ProcessOwner { uid: effective("Uid")?, gid: effective("Gid")? })
}

/// Whether a process acts with the rights of this user.
pub fn is_of(pid: i32, uid: u32) -> bool {
    owner(pid).is_some_and(|owner| owner.uid == uid)
}

/// When a process began, in ticks since the machine did: with its id it is one process for ever.
pub fn began(pid: i32) -> Option<u64> {
    let stat = proc::Stat::of(pid)?;
    stat.started().filter(|_| !stat.has_ended())
}

impl CpuTimes {
    /// The current times (Documentation/scheduler/sched-stats.rst).
    pub fn of(pids: &[i32]) -> CpuTimes {
        let read = |pid: &i32| {
            let times = Schedstat::of(*pid)?;
            Some((*pid, (times.ran, times.waited)))
        };
        CpuTimes { of: pids.iter().filter_map(read).collect() }
    }

    /// The average processor time of a process since its start, in seconds.
    pub fn each(&self) -> Option<f64> {
        let all: u64 = self.of.values().map(|(cpu, _)| cpu).sum();
        (!self.of.is_empty()).then(|| all as f64 / 1e9 / self.of.len() as f64)
    }

    /// Merges a later snapshot; processes that have ended keep their earlier times.
    pub fn look_again(&mut self, later: CpuTimes) {
        self.of.extend(later.of);
    }

    /// Processor time and run queue time since `before`, in seconds; `None` if processes have ended
    /// without a later snapshot.
    pub fn since(&self, before: &CpuTimes) -> Option<(f64, f64)> {
        if self.of.is_empty() || before.of.keys().any(|pid| !self.of.contains_key(pid)) {
            return None;
        }
        let sums = self.of.iter().map(|(pid, (cpu, wait))| {
            let (cpu_before, wait_before) = before.of.get(pid).copied().unwrap_or_default();
            (cpu.saturating_sub(cpu_before), wait.saturating_sub(wait_before))
        });
        let (cpu, wait) = sums.fold((0, 0), |(cpu, wait), each| (cpu + each.0, wait + each.1));
        Some((cpu as f64 / 1e9, wait as f64 / 1e9))
    }
}

/// The memory of a worker; none if it holds the lock for that.
fn rollup(pid: i32) -> Option<Rollup> {
    held_locks::read(pid, move || Rollup::of(pid)).flatten()
}

/// The current memory of workers.
pub fn memory(pids: &[i32]) -> WorkerMemory {
    let rollups = pids.iter().take(MAX_MEASURED).filter_map(|pid| rollup(*pid));
    let (mut private, resident): (Vec<f64>, Vec<f64>) =
        rollups.map(|rollup| (rollup.private as f64, rollup.resident as f64)).unzip();
    private.sort_by(f64::total_cmp);
    let last = private.len().checked_sub(1);
    let at = |share: f64| private.get((last? as f64 * share).round() as usize).copied();
    WorkerMemory {
        private: at(0.95),
        typical: at(0.5),
        resident: last.map(|_| resident.iter().sum::<f64>() / resident.len() as f64),
    }
}

/// The most files that a worker has open; `None` if this user may not see it.
pub fn open_files(pids: &[i32]) -> Option<u64> {
    let each = pids.iter().take(MAX_MEASURED).filter_map(|pid| {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        u64::try_from(entries.count()).ok()
    });
    each.max()
}

/// Resets the kernel's maximum of the workers' resident memory (proc_pid_clear_refs(5): 5). Without
/// permission the maximum since their start remains.
pub fn forget_peaks(pids: &[i32]) {
    for pid in pids.iter().copied() {
        // Fails without permission.
        let _ = held_locks::read(pid, move || fs::write(format!("/proc/{pid}/clear_refs"), "5"));
    }
}

/// The most private memory that a worker has had at any moment: its maximum of resident memory,
/// without the memory that it shares now.
pub fn peak(pids: &[i32]) -> Option<f64> {
    let each = pids.iter().take(MAX_MEASURED).filter_map(|pid| {
        let most = proc::bytes(&proc::read(pid, "status")?, "VmHWM")?;
        Some(most as f64 - rollup(*pid)?.shared() as f64)
    });
    each.filter(|bytes| *bytes > 0.0).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_another_user_is_not_known_by_its_title_alone() {
        use std::os::unix::process::CommandExt;
        let ours = maitred_os::users::current().uid;
        let mut decoy = std::process::Command::new("sleep");
        decoy.arg0("maitred-php: worker pool a").arg("600");
        if maitred_os::users::is_root() {
            decoy.uid(5001);
        }
        let mut decoy = decoy.spawn().unwrap();
        let pid = i32::try_from(decoy.id()).unwrap();
        let title = "maitred-php: worker pool a";
        while !is_titled(pid, title) {}
        let uid = if maitred_os::users::is_root() { 5001 } else { ours };
        let found = |user| workers(i32::try_from(std::process::id()).unwrap(), title, user);
        assert_eq!((found(None), found(Some(uid))), (vec![pid], vec![pid]));
        assert_eq!(found(Some(uid + 1)), [0_i32; 0]);
        assert!(is_of(pid, uid) && !is_of(pid, uid + 1));
        assert_eq!(is_of(pid, ours), !maitred_os::users::is_root());
        decoy.kill().unwrap();
        decoy.wait().unwrap();
        assert!(!is_of(pid, uid), "it has ended");
    }

    #[test]
    fn a_process_is_known_by_its_parent_its_title_and_its_beginning() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let us = i32::try_from(std::process::id()).unwrap();
        // Until exec it is a copy of this process.
        while !is_titled(pid, "sleep") {}
        assert_eq!(workers(us, "sleep", None), [pid]);
        assert_eq!(workers(us, "slee", None), [0_i32; 0], "a part of a word is none");
        assert!(began(pid).is_some_and(|began| began > 0));
        let private = memory(&[pid]).private.unwrap_or_default();
        assert!(private > 0.0);
        forget_peaks(&[pid]);
        assert!(peak(&[pid]).is_some_and(|peak| peak >= private / 2.0));
        assert_eq!(peak(&[]), None);
        assert!(open_files(&[pid]).is_some_and(|files| files >= 3));
        let before = CpuTimes::of(&[pid, us]);
        assert!(CpuTimes::of(&[pid, us]).since(&before).is_some());
        assert!(before.each().is_some_and(|cpu| cpu > 0.0));
        child.kill().unwrap();
        while began(pid).is_some() {}
        child.wait().unwrap();
        assert_eq!(CpuTimes::of(&[us]).since(&before), None, "one has gone");
        let mut all = before.clone();
        all.look_again(CpuTimes::of(&[us]));
        assert!(all.since(&before).is_some(), "it was there before");
        assert_eq!(memory(&[]), WorkerMemory::default());
    }
}
