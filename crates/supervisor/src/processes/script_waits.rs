//! What blocked scripts wait for: the disk, a socket, a lock of a file. While a dashboard is open,
//! or metrics or a status are read, the state of workers whose script runs for long is looked at
//! twice a second: blocked time alone does not tell a slow disk from a slow database.
//!
//! `/proc/PID/stat` and `wchan` need no lock of the worker's memory, which a script could hold for
//! long (`do_task_stat` in the kernel's `fs/proc/array.c`, `proc_pid_wchan` in `fs/proc/base.c`).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use maitred_os::clock::monotonic_nanos;
use maitred_os::proc::{self, Stat};
use maitred_scoreboard::{WaitCounts, WaitKind};
use maitred_seat::Boards;

use crate::limits::Moment;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;
use crate::processes::scoreboards::Scoreboards;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long looks go on after a request: longer than the interval of an open dashboard's.
const WATCHED_FOR: Duration = Duration::from_secs(15);

/// How long a look counts.
const COUNTED_FOR: Duration = Duration::from_secs(10);

/// Only scripts that have run for this long are looked at.
pub const RUNS_LONG: Duration = Duration::from_millis(100);

/// Most processes of all pools, and of one, in a look: each takes about 20 µs.
const MAX_PROCESSES: usize = 64;
const MAX_PROCESSES_OF_POOL: usize = 16;

/// Most pools whose boards are read in a look.
const MAX_POOLS: usize = 64;

/// The kernel's functions, by the beginning of their names, in which a process sleeps that a signal
/// wakes. Names differ a little between kernels.
const INTERRUPTIBLE: [(WaitKind, &[&str]); 5] = [
    (WaitKind::Disk, &["request_wait_answer", "fuse_", "__fuse_", "p9_"]),
    (
        WaitKind::Network,
        &[
            "poll_schedule_timeout",
            "do_sys_poll",
            "do_poll",
            "do_select",
            "ep_poll",
            "wait_woken",
            "sk_",
            "tcp_",
            "inet_",
            "inet6_",
            "unix_",
            "udp_",
            "skb_",
            "__skb_",
        ],
    ),
    (WaitKind::FileLock, &["locks_lock_inode_wait", "flock_lock_inode_wait", "posix_lock_inode"]),
    (WaitKind::Sleep, &["hrtimer_nanosleep", "do_nanosleep", "common_nsleep"]),
    (WaitKind::Program, &["do_wait", "pipe_", "anon_pipe_"]),
];

/// The same of those that no signal wakes. All others are taken for the disk.
const UNINTERRUPTIBLE: [(WaitKind, &[&str]); 2] = [
    // The start of a program: vfork(2).
    (WaitKind::Program, &["kernel_clone", "wait_for_vfork_done", "do_fork", "_do_fork"]),
    // A frozen control group, and one with too much memory.
    (
        WaitKind::Other,
        &["__refrigerator", "mem_cgroup_handle_over_high", "__mem_cgroup_handle_over_high"],
    ),
];

/// What a process in this state waits for, by the function of the kernel in which it sleeps, if
/// that is known. `None` if it does not wait.
fn wait_kind(state: char, channel: Option<&str>) -> Option<WaitKind> {
    let named = |kinds: &[(WaitKind, &[&str])]| {
        let channel = channel?;
        let is_of = |names: &[&str]| names.iter().any(|name| channel.starts_with(name));
        kinds.iter().find(|(_, names)| is_of(names)).map(|(kind, _)| *kind)
    };
    match state {
        'D' => Some(named(&UNINTERRUPTIBLE).unwrap_or(WaitKind::Disk)),
        'S' => Some(named(&INTERRUPTIBLE).unwrap_or(WaitKind::Other)),
        _ => None,
    }
}

/// What a process waits for now. `None` if it does not wait, or has ended.
pub fn wait_of(pid: i32) -> Option<WaitKind> {
    let state = Stat::of(pid)?.state()?;
    // It may have gone on since: then nothing is known of its wait.
    let channel = "SD".contains(state).then(|| proc::wait_channel(pid)).flatten();
    wait_kind(state, channel.as_deref())
}

/// The last looks at a pool, the oldest first.
#[derive(Debug, Default)]
struct RecentLooks(VecDeque<PoolLook>);

#[derive(Debug)]
struct PoolLook {
    at: Moment,
    found: WaitCounts,
}

impl RecentLooks {
    fn add(&mut self, at: Moment, found: WaitCounts) {
        if found.all() > 0 {
            self.0.push_back(PoolLook { at, found });
        }
    }

    /// The sum of those that still count.
    fn sum(&mut self, now: Moment) -> WaitCounts {
        while self.0.front().is_some_and(|look| now >= look.at + COUNTED_FOR) {
            self.0.pop_front();
        }
        self.0.iter().fold(WaitCounts::default(), |sum, look| sum.and(look.found))
    }
}

/// The looks at the workers of all pools.
#[derive(Debug, Default)]
pub struct ScriptWaits {
    /// The next look, and the end of the looks; `None`: nothing is looked at.
    watch: Option<LookTimes>,
    pools: BTreeMap<String, RecentLooks>,
    /// The number of the next look: another generation and other workers come first.
    turn: usize,
}

#[derive(Debug)]
struct LookTimes {
    due: Moment,
    until: Moment,
}

impl ScriptWaits {
    /// The figures are being read: workers are looked at for a while.
    pub fn watch(&mut self, now: Moment) {
        let due = self.watch.as_ref().map_or(now, |watch| watch.due);
        self.watch = Some(LookTimes { due, until: now + WATCHED_FOR });
    }

    /// When the next look is due.
    pub fn deadline(&self) -> Option<Moment> {
        self.watch.as_ref().map(|watch| watch.due)
    }

    /// Looks, if that is due, and shows what was found on the scoreboards.
    pub fn keep(&mut self, pools: &Pools, scoreboards: &Scoreboards, now: Moment) {
        let Some(watch) = self.watch.as_mut().filter(|watch| now >= watch.due) else {
            return;
        };
        watch.due = now + LOOK_EVERY;
        let is_over = now >= watch.until;
        let is_busy =
            |pool: &&RunningPool| scoreboards.page(pool.name()).is_some_and(|page| page.busy() > 0);
        let busy: Vec<&RunningPool> = pools.iter().filter(is_busy).collect();
        // The next request for the figures has a server without busy workers looked at again.
        if is_over || (busy.is_empty() && self.pools.is_empty()) {
            self.watch = None;
            self.pools.clear();
            for page in scoreboards.pages() {
                page.workers().show_waits(WaitCounts::default());
            }
            return;
        }
        self.look(&busy, now);
        self.pools.retain(|name, looks| {
            let found = looks.sum(now);
            if let Some(page) = scoreboards.page(name) {
                page.workers().show_waits(found);
            }
            found.all() > 0
        });
    }

    /// Looks at some workers of these generations.
    fn look(&mut self, busy: &[&RunningPool], now: Moment) {
        self.turn = self.turn.wrapping_add(1);
        let mut left = MAX_PROCESSES;
        let first = self.turn % busy.len().max(1);
        for pool in busy.iter().cycle().skip(first).take(busy.len().min(MAX_POOLS)) {
            let mut pids = long_running(pool);
            let place = self.turn % pids.len().max(1);
            pids.rotate_left(place);
            pids.truncate(MAX_PROCESSES_OF_POOL.min(left));
            left -= pids.len();
            let mut found = WaitCounts::default();
            pids.into_iter().filter_map(wait_of).for_each(|kind| found.add(kind));
            self.pools.entry(pool.name().to_owned()).or_default().add(now, found);
        }
    }
}

/// The workers whose script runs for long, by their boards.
fn long_running(pool: &RunningPool) -> Vec<i32> {
    // Mapped only now: a pool's memory is large, and this is rarely needed.
    let Ok(boards) = Boards::map(&pool.plan.memory) else {
        return Vec::new();
    };
    let now = Duration::from_nanos(monotonic_nanos());
    let runs_long = |seat| {
        let since = boards.seat(seat).and_then(|board| board.runs_since(now));
        since.is_some_and(|since| now.saturating_sub(since) >= RUNS_LONG)
    };
    let seated = pool.state.seated().filter(|seated| runs_long(seated.worker.seat));
    seated.map(|seated| seated.pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_millis;

    fn found(disk: u64, network: u64) -> WaitCounts {
        WaitCounts { disk, network, ..WaitCounts::default() }
    }

    #[test]
    fn a_wait_is_that_for_the_disk_where_no_signal_ends_it() {
        for channel in [None, Some("folio_wait_bit_common"), Some("rpc_wait_bit_killable")] {
            assert_eq!(wait_kind('D', channel), Some(WaitKind::Disk));
        }
        assert_eq!(wait_kind('S', Some("request_wait_answer")), Some(WaitKind::Disk), "FUSE");
        assert_eq!(wait_kind('D', Some("kernel_clone")), Some(WaitKind::Program));
        assert_eq!(wait_kind('D', Some("__refrigerator")), Some(WaitKind::Other));
    }

    #[test]
    fn other_waits_are_told_apart_by_the_function_of_the_kernel() {
        let all = [
            ("poll_schedule_timeout.constprop.0", WaitKind::Network),
            ("unix_stream_read_generic", WaitKind::Network),
            ("inet_csk_accept", WaitKind::Network),
            ("locks_lock_inode_wait", WaitKind::FileLock),
            ("hrtimer_nanosleep", WaitKind::Sleep),
            ("anon_pipe_read", WaitKind::Program),
            ("do_wait", WaitKind::Program),
            ("futex_wait_queue", WaitKind::Other),
        ];
        for (channel, kind) in all {
            assert_eq!(wait_kind('S', Some(channel)), Some(kind), "{channel}");
        }
        assert_eq!(wait_kind('S', None), Some(WaitKind::Other), "it may not be traced");
        for state in ['R', 'T', 'Z', 'I'] {
            assert_eq!(wait_kind(state, Some("do_wait")), None);
        }
    }

    #[test]
    fn looks_count_for_ten_seconds() {
        let mut looks = RecentLooks::default();
        looks.add(AT(0), found(3, 1));
        looks.add(AT(500), found(0, 0));
        looks.add(AT(6_000), found(0, 4));
        assert_eq!(looks.0.len(), 2, "nothing waited, and nothing is stored");
        assert_eq!(looks.sum(AT(9_999)), found(3, 5));
        assert_eq!(looks.sum(AT(10_000)), found(0, 4));
        assert_eq!(looks.sum(AT(16_000)), found(0, 0));
        assert!(looks.0.is_empty());
    }

    #[test]
    fn workers_are_looked_at_for_a_while_after_each_request_for_figures() {
        let (pools, mut scoreboards) = (Pools::new(Vec::new()), Scoreboards::new(1));
        scoreboards.add("www").unwrap();
        let page = scoreboards.page("www").unwrap();
        let mut waits = ScriptWaits::default();
        assert_eq!(waits.deadline(), None, "nothing is looked at");
        waits.watch(AT(1_000));
        assert_eq!(waits.deadline(), Some(AT(1_000)));
        waits.keep(&pools, &scoreboards, AT(1_000));
        assert_eq!(waits.deadline(), None, "no worker is busy");
        waits.watch(AT(1_000));
        waits.pools.entry("www".to_owned()).or_default().add(AT(1_000), found(1, 0));
        waits.keep(&pools, &scoreboards, AT(1_000));
        assert_eq!(waits.deadline(), Some(AT(1_500)));
        waits.watch(AT(1_200));
        assert_eq!(waits.deadline(), Some(AT(1_500)), "no more often");
        waits.pools.entry("www".to_owned()).or_default().add(AT(1_200), found(5, 0));
        waits.keep(&pools, &scoreboards, AT(1_500));
        assert_eq!(page.read().waits, found(6, 0));
        waits.keep(&pools, &scoreboards, AT(1_200) + WATCHED_FOR);
        assert_eq!(waits.deadline(), None);
        assert_eq!(page.read().waits, WaitCounts::default(), "nothing old is shown");
    }

    #[test]
    fn a_process_that_sleeps_waits_for_that() {
        let mut sleeps = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(sleeps.id()).unwrap();
        let mut tries = (0..10_000).map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            wait_of(pid)
        });
        assert!(tries.any(|kind| kind == Some(WaitKind::Sleep)));
        sleeps.kill().and_then(|()| sleeps.wait().map(drop)).unwrap();
        assert_eq!(wait_of(pid), None);
    }
}
