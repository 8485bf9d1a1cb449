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
use std::time::Duration;

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

/// How long they are looked for. A script that starts more than are found by then keeps them.
const LOOKED_FOR: Duration = Duration::from_secs(2);

/// Most scripts whose processes are looked for at a time; others keep theirs.
const SCRIPTS_MOST: usize = 1024;

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
        if self.searches.len() < SCRIPTS_MOST && RunningSystem.has_members(script.worker) {
            self.searches.push(ChildSearch {
                script,
                pool: pool.map(str::to_owned),
                until: now + LOOKED_FOR,
                rounds: MAX_ROUNDS,
                tried: HashSet::new(),
                killed: 0,
            });
        }
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
        self.next_at = now + PAUSE;
        self.round(&RunningSystem, &ours(), now)
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
        find(system, ours, groups, &mut looks, &mut members);
        for search in searches.iter_mut().filter(|search| is_its(search)) {
            let before = search.killed;
            for pid in members.remove(&search.script.worker).unwrap_or_default() {
                if search.tried.contains(&pid) || !looks.take() {
                    continue;
                }
                search.tried.insert(pid);
                search.killed += usize::from(system.kill(pid, &search.script));
            }
            match search.killed > before {
                true => search.rounds = search.rounds.saturating_sub(1),
                false if !looks.are_short => search.rounds = 0,
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
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    const NOW: Moment = Moment::from_secs(9);

    fn sleeper(group: i32) -> Child {
        Command::new("sleep").arg("1000").process_group(group).spawn().unwrap()
    }

    fn wait_for_a_tick() {
        // The start of a process is known to a hundredth of a second.
        std::thread::sleep(Duration::from_millis(25));
    }

    /// Ends the processes of a script. How many there were.
    fn end_children(script: EndedScript, ours: &[i32]) -> usize {
        let mut children = ScriptChildren::default();
        children.end_those_of(script, None, NOW);
        let (mut now, mut count) = (NOW, 0);
        while let Some(at) = children.deadline() {
            now = now.max(at);
            let ended = children.look(|| ours.iter().copied().collect(), now);
            count += ended.iter().map(|ended| ended.count).sum::<usize>();
        }
        count
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
        assert_eq!(end_children(stranger, &[]), 0);
        let own = i32::try_from(after.id()).unwrap();
        assert_eq!(end_children(script, &[own]), 0, "it is ours");
        assert_eq!(end_children(script, &[]), 1);
        assert!(after.wait().unwrap().code().is_none());
        for left in [&mut leader, &mut before, &mut of_another_group] {
            assert!(left.try_wait().unwrap().is_none());
            left.kill().unwrap();
            left.wait().unwrap();
        }
        assert_eq!(end_children(script, &[]), 0, "the group is gone");
    }

    /// Children of ours, each with its group; a child of the process 1 is in its parent's group.
    #[derive(Default)]
    struct WrittenTree {
        children: RefCell<HashMap<i32, i32>>,
        below_first: Vec<i32>,
        killed: RefCell<Vec<i32>>,
        looks: Cell<u32>,
    }

    impl WrittenTree {
        fn of(children: impl IntoIterator<Item = (i32, i32)>) -> WrittenTree {
            let children = RefCell::new(children.into_iter().collect());
            WrittenTree { children, ..WrittenTree::default() }
        }
    }

    impl ProcessTree for WrittenTree {
        fn has_members(&self, _group: i32) -> bool {
            true
        }

        fn children(&self) -> Vec<i32> {
            let mut all: Vec<i32> = self.children.borrow().keys().copied().collect();
            all.sort_unstable();
            all
        }

        fn children_of(&self, pid: i32) -> Vec<i32> {
            if pid == 1 { self.below_first.clone() } else { Vec::new() }
        }

        fn group_of(&self, pid: i32) -> Option<i32> {
            self.looks.set(self.looks.get() + 1);
            let group = self.children.borrow().get(&pid).copied();
            group.or_else(|| self.children.borrow().get(&1).copied())
        }

        fn kill(&self, pid: i32, _script: &EndedScript) -> bool {
            self.looks.set(self.looks.get() + 1);
            self.children.borrow_mut().remove(&pid);
            self.killed.borrow_mut().push(pid);
            true
        }
    }

    /// Those that look for the processes of scripts with these workers.
    fn searching(workers: impl IntoIterator<Item = i32>) -> ScriptChildren {
        let search = |worker| ChildSearch {
            script: EndedScript { worker, uid: 0, since: Duration::ZERO },
            pool: Some("www".to_owned()),
            until: NOW + LOOKED_FOR,
            rounds: MAX_ROUNDS,
            tried: HashSet::new(),
            killed: 0,
        };
        let searches = workers.into_iter().map(search).collect();
        ScriptChildren { searches, ..ScriptChildren::default() }
    }

    #[test]
    fn one_search_is_for_all_scripts_and_goes_below_what_it_finds() {
        let mut system = WrittenTree::of([(1, 70), (2, 80), (3, 90), (4, 70)]);
        system.below_first = vec![5, 6];
        let mut children = searching([70, 80]);
        let none = HashSet::new();
        assert_eq!(children.round(&system, &none, NOW), [], "others may come");
        let mut killed = system.killed.borrow().clone();
        killed.sort_unstable();
        assert_eq!(killed, [1, 2, 4, 5, 6]);
        let ended = children.round(&system, &none, NOW);
        let ended: Vec<_> = ended.iter().map(|one| (one.worker, one.count)).collect();
        assert_eq!(ended, [(70, 4), (80, 1)]);
        assert!(children.deadline().is_none());
    }

    #[test]
    fn however_many_orphans_of_others_there_are_each_is_looked_at_once() {
        let orphans = 10_000;
        let all = (100..100 + orphans).map(|pid| (pid, pid)).chain([(200_000, 70)]);
        let (system, none) = (WrittenTree::of(all), HashSet::new());
        let mut children = searching([70]);
        let (mut now, mut ended) = (NOW, Vec::new());
        while ended.is_empty() {
            children.searches[0].until = now + LOOKED_FOR;
            let before = system.looks.get();
            ended = children.round(&system, &none, now);
            assert!(system.looks.get() - before <= LOOKS_PER_TURN);
            now += PAUSE;
        }
        assert_eq!(*system.killed.borrow(), [200_000]);
        let seconds = (now - NOW).as_secs_f64();
        let most = f64::from(LOOKS_AT_ONCE) + f64::from(LOOKS_PER_SECOND) * seconds;
        assert!(f64::from(system.looks.get()) <= most, "{} in {seconds} s", system.looks.get());
        // Another worker crashes.
        system.children.borrow_mut().insert(200_001, 71);
        children.searches = searching([71]).searches;
        children.searches[0].until = now + LOOKED_FOR;
        let before = system.looks.get();
        children.round(&system, &none, now);
        assert_eq!(system.killed.borrow().last(), Some(&200_001));
        assert_eq!(system.looks.get() - before, 2, "a look at the new one, and one to kill it");
    }

    #[test]
    fn a_user_with_orphans_without_end_leaves_the_searches_of_another_their_looks() {
        let (system, none) = (WrittenTree::of([(1_000_000, 71)]), HashSet::new());
        let mut children = searching([70, 71]);
        children.searches[1].script.uid = 1;
        let other = children.searches.pop().unwrap();
        let (mut now, mut orphan) = (NOW, 100);
        // In each round there are more new ones than may be looked at.
        let mut round = |children: &mut ScriptChildren| {
            let more = i32::try_from(LOOKS_PER_TURN).unwrap();
            system.children.borrow_mut().extend((orphan..orphan + more).map(|pid| (pid, pid)));
            orphan += more;
            children.searches[0].until = now + LOOKED_FOR;
            children.round(&system, &none, now);
            now += PAUSE;
        };
        for _ in 0..100 {
            round(&mut children);
        }
        children.searches.push(other);
        children.searches[1].until = NOW + 100 * LOOKED_FOR;
        round(&mut children);
        assert_eq!(*system.killed.borrow(), [1_000_000]);
    }

    #[test]
    fn a_search_ends_with_its_time_and_where_a_new_worker_has_the_number() {
        let system = WrittenTree::of([(1, 70), (2, 80)]);
        let mut children = searching([70, 80]);
        children.searches[0].until = NOW;
        let ended = children.round(&system, &HashSet::from([80]), NOW);
        assert!(ended.is_empty() && children.deadline().is_none());
        assert!(system.killed.borrow().is_empty());
    }
}
