//! The processes that a script has started (`proc_open`, `exec`, `pcntl_fork`), when its worker is
//! terminated or crashes: they are ended as well, since nothing waits for them any more.
//!
//! A worker leads a process group, which its scripts' processes inherit. Those that were started
//! after the script are its own; earlier ones were left by scripts that finished, and stay. So does
//! a process that has left the group (`setsid`), or runs as another user (`sudo`).
//!
//! All orphans of all pools are our children, and a tenant decides how many that are. So one search
//! is for all scripts of a user that have ended in a turn, the group of a child is read once, and
//! the reads are limited, for each turn, and each user and second. Users take turns.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use maitred_control::token_bucket::TokenBucket;
use maitred_os::proc::Stat;
use maitred_os::signals::{self, Signal};
use rustix::process::{Pid, test_kill_process_group};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::limits::Moment;
use crate::processes::adopt;

/// Most processes that are looked at in a turn: a look takes 6 µs.
const LOOKS_PER_TURN: u32 = 256;

/// Most of them for the scripts of a user, in a burst, and in each second beyond.
const LOOKS_AT_ONCE: u32 = 2048;
const LOOKS_PER_SECOND: u32 = 2048;

/// A look for the children of a process of a script, and one to kill it.
const LOOKS_OF_MEMBER: u32 = 2;

/// How often the processes of a script are looked for: those that are killed leave us their
/// children, and may have started further ones meanwhile.
const MAX_ROUNDS: usize = 4;

/// Pause between two rounds, for all scripts together.
const PAUSE: Duration = Duration::from_millis(20);

/// The same as a multiple of the time of a round: the kernel takes long to list many children.
const PAUSE_BY_ROUND: u32 = 9;

/// How long they are looked for. A script that starts more than are found by then keeps them.
const LOOKED_FOR: Duration = Duration::from_secs(2);

/// Most scripts whose processes are looked for at a time; others keep theirs.
const SCRIPTS_MOST: usize = 1024;

/// Most of a user's, where others have reached that limit: slow rounds keep it reached for long.
const SCRIPTS_OF_USER: usize = 64;

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

/// The processes of a script that were ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedProcesses {
    /// The pool; none of a command or schedule.
    pub pool: Option<String>,
    /// The worker of the script.
    pub worker: i32,
    /// How many.
    pub count: usize,
}

/// A script whose processes are looked for.
#[derive(Debug)]
struct ChildSearch {
    script: EndedScript,
    pool: Option<String>,
    until: Moment,
    rounds: usize,
    /// Members of its group that were killed, or are not its own.
    tried: HashSet<i32>,
    /// Those that were killed and may still exist.
    dying: Vec<i32>,
    killed: usize,
}

/// The scripts whose processes are looked for.
#[derive(Debug)]
pub struct ScriptChildren {
    searches: Vec<ChildSearch>,
    /// The group of each child of ours at the first look. One that goes to another group later is
    /// no script's: a script's process is in its group from the start.
    groups: HashMap<i32, i32>,
    /// The looks of each user who had a search: there are as many users as pools at most.
    looks: HashMap<u32, TokenBucket>,
    /// The user whose searches had the last round.
    last_user: u32,
    /// When the next round begins.
    next_at: Moment,
}

impl Default for ScriptChildren {
    fn default() -> ScriptChildren {
        ScriptChildren {
            searches: Vec::new(),
            groups: HashMap::new(),
            looks: HashMap::new(),
            last_user: 0,
            next_at: Moment::ZERO,
        }
    }
}

/// The looks of a round.
struct LookBudget<'a> {
    bucket: &'a mut TokenBucket,
    now: Moment,
    left: u32,
    /// There were too few.
    are_short: bool,
}

impl LookBudget<'_> {
    /// Takes one, if there are more than those that are reserved for `members`.
    fn take_beyond(&mut self, members: usize) -> bool {
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        let has_more = self.left > members.saturating_mul(LOOKS_OF_MEMBER);
        self.are_short |= !has_more;
        has_more && self.take()
    }

    /// Takes one. False: there is none left.
    fn take(&mut self) -> bool {
        let has_one = self.left > 0 && self.bucket.take(self.now);
        match has_one {
            true => self.left -= 1,
            false => self.are_short = true,
        }
        has_one
    }
}

/// Questions to the system.
trait ProcessTree {
    /// Whether a process group has members.
    fn has_members(&self, group: i32) -> bool;
    /// All our children.
    fn children(&self) -> Vec<i32>;
    /// The children of another process.
    fn children_of(&self, pid: i32) -> Vec<i32>;
    /// The group of a process that has not ended.
    fn group_of(&self, pid: i32) -> Option<i32>;
    /// Whether a process of a group exists, also one that has ended: its threads may still run.
    fn exists(&self, pid: i32, group: i32) -> bool;
    /// Kills a process, if the script has started it. Whether it did.
    fn kill(&self, pid: i32, script: &EndedScript) -> bool;
}

/// The processes of this machine.
struct RunningSystem;

impl ProcessTree for RunningSystem {
    fn has_members(&self, group: i32) -> bool {
        matches!(Pid::from_raw(group).map(test_kill_process_group), Some(Ok(())))
    }

    fn children(&self) -> Vec<i32> {
        adopt::children()
    }

    fn children_of(&self, pid: i32) -> Vec<i32> {
        adopt::children_of(pid)
    }

    fn group_of(&self, pid: i32) -> Option<i32> {
        Stat::of(pid).filter(|stat| !stat.has_ended())?.field(GROUP_FIELD)
    }

    fn exists(&self, pid: i32, group: i32) -> bool {
        Stat::of(pid).is_some_and(|stat| stat.field(GROUP_FIELD) == Some(group))
    }

    fn kill(&self, pid: i32, script: &EndedScript) -> bool {
        let Ok(pidfd) = signals::pidfd(pid) else {
            return false;
        };
        // Only now the number cannot become another process.
        let after = script.since_ticks();
        let is_its = Stat::of(pid).is_some_and(|stat| {
            script.has_member(&stat) && stat.started().is_some_and(|started| started > after)
        });
        is_its
            && adopt::runs_as(pid, script.uid)
            && signals::send_to(pidfd.as_fd(), Signal::SIGKILL).is_ok()
    }
}

impl ScriptChildren {
    /// A script has ended with its worker: its processes are to be ended, too. `pool` is none for a
    /// command or a schedule.
    pub fn end_those_of(&mut self, script: EndedScript, pool: Option<&str>, now: Moment) {
        // The usual case: no process is left in the group.
        if self.has_room(script.uid) && RunningSystem.has_members(script.worker) {
            self.searches.push(ChildSearch {
                script,
                pool: pool.map(str::to_owned),
                until: now + LOOKED_FOR,
                rounds: MAX_ROUNDS,
                tried: HashSet::new(),
                dying: Vec::new(),
                killed: 0,
            });
        }
    }

    /// Whether the processes of another script of this user may be looked for.
    fn has_room(&self, uid: u32) -> bool {
        let its = self.searches.iter().filter(|search| search.script.uid == uid);
        self.searches.len() < SCRIPTS_MOST || its.count() < SCRIPTS_OF_USER
    }

    /// A child of ours was reaped: its number may become another process.
    pub fn reaped(&mut self, pid: i32) {
        self.groups.remove(&pid);
    }

    /// When the next round begins.
    pub fn deadline(&self) -> Option<Moment> {
        (!self.searches.is_empty()).then_some(self.next_at)
    }

    /// Looks for processes once, and kills them. `ours` are zygotes, workers and the like. Returns
    /// the scripts for which that is over, if they had any.
    pub fn look(&mut self, ours: impl Fn() -> HashSet<i32>, now: Moment) -> Vec<EndedProcesses> {
        if self.deadline().is_none_or(|at| now < at) {
            return Vec::new();
        }
        let began = Instant::now();
        let over = self.round(&RunningSystem, &ours(), now);
        self.pause(began.elapsed(), now);
        over
    }

    /// A round began at `now` and took this long. The pause beyond the usual one is not a part of
    /// the time for which processes are looked for.
    fn pause(&mut self, took: Duration, now: Moment) {
        let pause = PAUSE.max(took.saturating_mul(PAUSE_BY_ROUND));
        self.next_at = now + took + pause;
        for search in &mut self.searches {
            search.until += pause - PAUSE;
        }
    }

    fn round(
        &mut self,
        system: &dyn ProcessTree,
        ours: &HashSet<i32>,
        now: Moment,
    ) -> Vec<EndedProcesses> {
        for search in &mut self.searches {
            let group = search.script.worker;
            // The number of a group without members may become that of a new worker.
            if now >= search.until || ours.contains(&group) || !system.has_members(group) {
                search.rounds = 0;
            }
        }
        let mut over = self.take_over();
        if !self.searches.is_empty() {
            self.kill_members(system, ours, now);
            over.extend(self.take_over());
        }
        over
    }

    /// The user whose searches are next: the one after the last by number.
    fn next_user(&self) -> Option<u32> {
        let users = || self.searches.iter().map(|search| search.script.uid);
        let later = users().filter(|user| *user > self.last_user);
        later.min().or_else(|| users().min())
    }

    fn kill_members(&mut self, system: &dyn ProcessTree, ours: &HashSet<i32>, now: Moment) {
        let Some(user) = self.next_user() else { return };
        self.last_user = user;
        let ScriptChildren { searches, groups, looks, .. } = self;
        let full = || TokenBucket::full(LOOKS_AT_ONCE, LOOKS_PER_SECOND);
        let bucket = looks.entry(user).or_insert_with(full);
        let mut looks = LookBudget { bucket, now, left: LOOKS_PER_TURN, are_short: false };
        let is_its = |search: &ChildSearch| search.script.uid == user;
        let wanted = searches.iter().filter(|search| is_its(search));
        let wanted = wanted.map(|search| (search.script.worker, Vec::new()));
        let mut members: HashMap<i32, Vec<i32>> = wanted.collect();
        // Before the children are read: the last of a process become ours when it ends.
        for search in searches.iter_mut().filter(|search| is_its(search)) {
            search.forget_gone(system, &mut looks);
        }
        find(system, ours, groups, &mut looks, &mut members);
        for search in searches.iter_mut().filter(|search| is_its(search)) {
            let (before, has_dying) = (search.killed, !search.dying.is_empty());
            for pid in members.remove(&search.script.worker).unwrap_or_default() {
                if search.tried.contains(&pid) || !looks.take() {
                    continue;
                }
                search.tried.insert(pid);
                if system.kill(pid, &search.script) {
                    search.killed += 1;
                    search.dying.push(pid);
                }
            }
            match search.killed > before {
                true => search.rounds = search.rounds.saturating_sub(1),
                false if !looks.are_short && !has_dying => search.rounds = 0,
                false => {}
            }
        }
    }

    fn take_over(&mut self) -> Vec<EndedProcesses> {
        let over = self.searches.extract_if(.., |search| search.rounds == 0);
        let had_any = over.filter(|search| search.killed > 0);
        let ended = had_any.map(|search| EndedProcesses {
            pool: search.pool,
            worker: search.script.worker,
            count: search.killed,
        });
        ended.collect()
    }
}

impl ChildSearch {
    /// Forgets the killed processes that are gone, up to one that is not.
    fn forget_gone(&mut self, system: &dyn ProcessTree, looks: &mut LookBudget<'_>) {
        while let Some(pid) = self.dying.last() {
            if !looks.take() || system.exists(*pid, self.script.worker) {
                return;
            }
            self.dying.pop();
        }
    }
}

/// Adds the processes of these groups that descend from us, as far as there are looks.
fn find(
    system: &dyn ProcessTree,
    ours: &HashSet<i32>,
    groups: &mut HashMap<i32, i32>,
    looks: &mut LookBudget<'_>,
    members: &mut HashMap<i32, Vec<i32>>,
) {
    let children = system.children();
    let present: HashSet<i32> = children.iter().copied().collect();
    groups.retain(|pid, _| present.contains(pid));
    let mut queue = VecDeque::new();
    // The last that became ours come first: those of the script are among them.
    for pid in children.into_iter().rev().filter(|pid| !ours.contains(pid)) {
        let mut group = groups.get(&pid).copied();
        if group.is_none() && looks.take_beyond(queue.len()) {
            group = system.group_of(pid);
            groups.extend(group.map(|group| (pid, group)));
        }
        if let Some(of_group) = group.and_then(|group| members.get_mut(&group)) {
            of_group.push(pid);
            queue.push_back(pid);
        }
    }
    while let Some(parent) = queue.pop_front().filter(|_| looks.take()) {
        for pid in system.children_of(parent) {
            if !looks.take() {
                return;
            }
            let group = system.group_of(pid);
            if let Some(of_group) = group.and_then(|group| members.get_mut(&group)) {
                of_group.push(pid);
                queue.push_back(pid);
            }
        }
    }
}

impl EndedScript {
    fn has_member(&self, stat: &Stat) -> bool {
        stat.field(GROUP_FIELD) == Some(self.worker) && !stat.has_ended()
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
#[path = "script_children_tests.rs"]
mod tests;
