//! The processes that a script has started (`proc_open`, `exec`, `pcntl_fork`), when its worker is
//! terminated or crashes: they are ended as well, since nothing waits for them any more.
//!
//! A worker leads a process group, which its scripts' processes inherit. Those that were started
//! after the script are its own; earlier ones were left by scripts that finished, and stay. So does
//! a process that has left the group (`setsid`), or runs as another user (`sudo`).

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::AsFd;
use std::time::Duration;

use maitred_os::proc::Stat;
use maitred_os::signals::{self, Signal};
use rustix::process::{Pid, test_kill_process_group};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::processes::adopt;

/// Most processes that are examined. A script that starts more keeps them.
const MAX_PROCESSES: usize = 1024;

/// How often they are looked for: those that are killed leave us their children, and may have
/// started further ones meanwhile.
const MAX_ROUNDS: usize = 4;

/// The field of `/proc/PID/stat` with the process group (proc(5)).
const GROUP_FIELD: usize = 5;

/// A script that was running when its worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedScript {
    /// The process id of its worker, which has been reaped.
    pub worker: i32,
    /// The pool's user.
    pub uid: u32,
    /// When the script started, on the monotonic clock.
    pub since: Duration,
}

impl EndedScript {
    /// Kills the processes that the script has started; `is_ours` tells zygotes and workers.
    /// Returns how many there were.
    pub fn end_children(&self, is_ours: impl Fn(i32) -> bool) -> usize {
        let group = Pid::from_raw(self.worker).map(test_kill_process_group);
        // The usual case: no process is left in the group.
        if !matches!(group, Some(Ok(()))) {
            return 0;
        }
        let after = self.since_ticks();
        let mut ended = BTreeSet::new();
        for _ in 0..MAX_ROUNDS {
            // One that was killed may not have ended yet.
            let mut members = self.members(&is_ours);
            members.retain(|pid| !ended.contains(pid) && self.kill(*pid, after));
            if members.is_empty() {
                break;
            }
            ended.extend(members);
        }
        ended.len()
    }

    /// The processes of the group that descend from us.
    fn members(&self, is_ours: impl Fn(i32) -> bool) -> Vec<i32> {
        let mut members = Vec::new();
        let mut queue: VecDeque<i32> = adopt::children().into();
        queue.retain(|pid| !is_ours(*pid));
        while let Some(pid) = queue.pop_front().filter(|_| members.len() < MAX_PROCESSES) {
            if Stat::of(pid).is_some_and(|stat| self.has_member(&stat)) {
                members.push(pid);
                queue.extend(adopt::children_of(pid));
            }
        }
        members
    }

    fn has_member(&self, stat: &Stat) -> bool {
        stat.field(GROUP_FIELD) == Some(self.worker) && !stat.has_ended()
    }

    /// Kills a member of the group, if the script has started it. Whether it did.
    fn kill(&self, pid: i32, after: u64) -> bool {
        let Ok(pidfd) = signals::pidfd(pid) else {
            return false;
        };
        // Only now the number cannot become another process.
        let is_its = Stat::of(pid).is_some_and(|stat| {
            self.has_member(&stat) && stat.started().is_some_and(|started| started > after)
        });
        is_its
            && adopt::runs_as(pid, self.uid)
            && signals::send_to(pidfd.as_fd(), Signal::SIGKILL).is_ok()
    }

    /// When the script started, as `/proc` counts time: in ticks since the boot of the machine.
    fn since_ticks(&self) -> u64 {
        let ago = time_of(ClockId::Monotonic).saturating_sub(self.since);
        let since = time_of(ClockId::Boottime).saturating_sub(ago);
        let tick = u128::from(rustix::param::clock_ticks_per_second());
        u64::try_from(since.as_nanos() * tick / 1_000_000_000).unwrap_or(u64::MAX)
    }
}

fn time_of(clock: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let nanos = u32::try_from(tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(tv_sec).unwrap_or(0), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    fn sleeper(group: i32) -> Child {
        Command::new("sleep").arg("1000").process_group(group).spawn().unwrap()
    }

    fn wait_for_a_tick() {
        // The start of a process is known to a hundredth of a second.
        std::thread::sleep(Duration::from_millis(25));
    }

    #[test]
    fn only_processes_of_the_group_that_are_younger_than_the_script_are_ended() {
        let mut leader = sleeper(0);
        let group = i32::try_from(leader.id()).unwrap();
        let mut before = sleeper(group);
        wait_for_a_tick();
        let since = time_of(ClockId::Monotonic);
        wait_for_a_tick();
        let mut after = sleeper(group);
        let mut of_another_group = sleeper(0);
        let uid = maitred_os::users::current().uid;
        let script = EndedScript { worker: group, uid, since };
        let stranger = EndedScript { uid: uid + 1, ..script };
        assert_eq!(stranger.end_children(|_| false), 0);
        assert_eq!(script.end_children(|pid| pid == group), 1);
        assert!(after.wait().unwrap().code().is_none());
        for left in [&mut leader, &mut before, &mut of_another_group] {
            assert!(left.try_wait().unwrap().is_none());
            left.kill().unwrap();
            left.wait().unwrap();
        }
        assert_eq!(script.end_children(|_| false), 0, "the group is gone");
    }
}
