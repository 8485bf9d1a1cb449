//! What pools with `pm = auto` may use: processors, and memory for workers. The files are read here; what
//! follows from them is decided by the crate `sizing` ([`Rooms`]).
//!
//! They are read once a second while such a pool grows or shrinks or memory is nearly full, more often
//! until it is known what workers take, and otherwise now and then: seldom where there is plenty of memory.
//! However many pools and workers there are, a look costs about the same ([`BUDGET`]), and less where
//! there is plenty.

mod measure;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use maitred_config::ProcessManager;
use maitred_control::ToFront;
use maitred_scoreboard::Page;
use maitred_seat::Boards;
use maitred_sizing::memory::Level;
use maitred_sizing::rooms::{Budget, Has, Rooms};
use maitred_sizing::sources::{self, Counters, Files, Memory};
use tracing::{info, warn};

use self::measure::Counted;
use crate::limits::Moment;
use crate::pool::Seated;
use crate::run::Supervisor;
use crate::running::RunningPool;

/// How often it is looked while a pool grows or shrinks, and until it is known what workers take.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_SOON: Duration = Duration::from_millis(100);

/// Workers that are measured at a look: whose pages the kernel has to walk through, and others.
const BUDGET: Budget = Budget {
    exactly: 16,
    roughly: 128,
};

/// The same where there is plenty of memory: to count the pages of one takes 60 to 360 µs.
const CALM_BUDGET: Budget = Budget {
    exactly: 4,
    roughly: 32,
};

/// How often while some pool has more than one worker, and while none has.
const STEADY_LOOK_EVERY: Duration = Duration::from_secs(2);
const CALM_LOOK_EVERY: Duration = Duration::from_secs(30);

/// How long a pool counts as growing or shrinking after its last worker came or went.
const STIRRED_FOR: Duration = Duration::from_secs(10);

/// From which part of the limit on memory counts as nearly full.
const NEARLY_FULL: f64 = 0.75;

const MEGABYTE: f64 = 1024.0 * 1024.0;

/// What there is for all pools that find their size.
#[derive(Debug, Default)]
pub(crate) struct Room {
    due: Option<Moment>,
    stirred: Moment,
    counters: Counters,
    /// Thousandths of a processor.
    cores: u32,
    memory: Option<Memory>,
    /// What pools have to themselves whose control groups have a limit.
    apart: BTreeMap<String, Memory>,
    rooms: Rooms,
    counted: Counted,
    /// At which pool the next look begins.
    next: usize,
    /// By pool, what the front of this number was told last: of which generation, and what.
    told: BTreeMap<String, (u32, u32, u32, Option<u32>)>,
    level: Level,
    /// That memory cannot be read was said.
    said: bool,
}

/// A pool that finds its size, with its workers' processes and the requests that they have answered.
struct Seen<'a> {
    name: String,
    workers: Vec<i32>,
    /// That were ordered, and have not come yet.
    coming: usize,
    requests: u64,
    /// Whose workers tell how much they have served, and of the programs that their scripts have run.
    told_by: Option<&'a RunningPool>,
    /// The folder of its control group, if that may limit its memory.
    group: Option<PathBuf>,
}

/// The files of this machine.
struct Machine;

impl Files for Machine {
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }
}

/// Processors and memory there are now for a pool whose memory may be limited by the group in this folder,
/// read anew.
pub(crate) fn there_is_now(group: Option<&Path>) -> (f64, Option<Memory>) {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = sources::cores(&Machine, allowed).count;
    let apart = group.and_then(|folder| sources::memory_of_group(&Machine, folder.to_str()?));
    let memory = Memory::tightest(sources::memory(&Machine).into_iter().chain(apart));
    (cores, memory)
}

impl Room {
    /// Looks at the machine; `pools` are the pools that find their size.
    fn look(&mut self, now: Moment, files: &dyn Files, pools: &[Seen]) {
        self.measure(files, pools);
        let counters = Counters::read(files);
        let signs = counters.signs(&self.counters, files);
        self.counters = counters;
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        self.cores = (sources::cores(files, allowed).count * 1000.0) as u32;
        self.memory = sources::memory(files);
        let names: HashSet<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        self.told.retain(|name, _| names.contains(name.as_str()));
        self.rooms.look(now, self.memory, &signs, &names);
        let apart = pools.iter().filter_map(|pool| {
            let folder = pool.group.as_ref()?.to_str()?;
            let memory = sources::memory_of_group(files, folder)?;
            Some((pool.name.clone(), memory))
        });
        self.apart = apart.collect();
        self.rooms.look_apart(now, &self.apart);
    }

    /// Measures some of the workers of each pool, as far as the budget goes; the next look goes on from
    /// there.
    fn measure(&mut self, files: &dyn Files, pools: &[Seen]) {
        let mut left = match self.rooms.are_far_from_the_limit() {
            true => CALM_BUDGET,
            false => BUDGET,
        };
        let (seen, first) = (pools.len(), self.next);
        for turn in 0..seen {
            let pool = &pools[(first + turn) % seen];
            let workers = (pool.workers.as_slice(), pool.requests);
            let all_due = self.rooms.due(&pool.name, workers, &mut left);
            self.rooms.are_coming(&pool.name, pool.coming);
            // Nobody has had more than there is, whatever a worker says.
            let limit = self.memory.map_or(0.0, |memory| memory.limit);
            let told = match all_due.iter().any(|due| due.exactly) {
                true => pool.told_by.map(RunningPool::told_by_workers),
                false => None,
            };
            let told = told.unwrap_or_default();
            for due in all_due {
                let told = told.get(&due.worker).copied();
                if let Some(has) = self.counted.measure(files, due) {
                    let has = with_told(has, told, limit);
                    self.rooms.measured(&pool.name, due, has);
                }
            }
            if left.exactly > 0 && left.roughly > 0 {
                self.next = (first + turn + 1) % seen;
            }
        }
        // One that takes all of the budget leaves the next look to others.
        if seen > 0 && self.next == first {
            self.next = (first + 1) % seen;
        }
        let present = pools.iter().flat_map(|pool| pool.workers.iter().copied());
        self.counted.keep(&present.collect());
    }

    fn workers(&self, pool: &str, workers: u32) -> u32 {
        let room = self.rooms.workers(pool, workers as usize);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// How hard memory was pressed at the last look.
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// How long until the next look; `most` is the number of workers of the largest pool.
    fn wait(&self, now: Moment, most: u32) -> Duration {
        let is_stirred = now < self.stirred + STIRRED_FOR;
        let is_full = |memory: &Memory| memory.used >= NEARLY_FULL * memory.limit;
        let mut memories = self.memory.iter().chain(self.apart.values());
        let is_pressed = self.rooms.level() > Level::Calm || memories.any(is_full);
        let is_stirred = is_stirred && !self.rooms.are_far_from_the_limit();
        match (is_stirred, is_stirred || is_pressed, most) {
            (true, _, _) if !self.rooms.are_known() => LOOK_SOON,
            (_, true, _) => LOOK_EVERY,
            (_, false, 0..=1) => CALM_LOOK_EVERY,
            (_, false, _) => STEADY_LOOK_EVERY,
        }
    }

    fn say(&mut self) {
        if !self.rooms.is_readable() && !std::mem::replace(&mut self.said, true) {
            warn!(
                "neither /proc/meminfo nor a control group tells how much memory there is; pools \
                 with pm = \"auto\" get no more workers than they have, set max_children and \
                 pm = \"dynamic\" instead"
            );
        }
        let level = self.rooms.level();
        let before = std::mem::replace(&mut self.level, level);
        let used = self.memory.map_or(0.0, |memory| memory.used / memory.limit);
        let used = (used * 100.0).round();
        match level {
            _ if level == before => {}
            Level::Calm => info!("memory is no longer short ({used} % in use)"),
            Level::Careful => info!(
                "memory is nearly full ({used} % in use); pools with pm = \"auto\" get no more workers"
            ),
            Level::Short | Level::Out => warn!(
                "memory is short ({used} % in use, or the kernel says that processes wait for it); \
                 pools with pm = \"auto\" give workers up"
            ),
        }
    }
}

/// What a worker tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    /// What the largest program had that it has run, in bytes.
    program: u64,
    /// Requests that it has begun.
    requests: u64,
}

/// With what the worker has told, if it has; there is no more memory than `limit`.
fn with_told(has: Has, told: Option<Told>, limit: f64) -> Has {
    let program = told.map_or(0.0, |told| told.program as f64).min(limit);
    Has {
        most: has.most.map(|most| most + program),
        served: told.map(|told| told.requests),
        ..has
    }
}

/// What workers tell, by their process ids.
fn told_by(boards: &Boards, seated: impl Iterator<Item = Seated>) -> HashMap<i32, Told> {
    let told = seated.filter_map(|worker| {
        let board = boards.seat(worker.seat)?;
        let told = Told {
            program: board.program_most.load(Relaxed),
            requests: board.requests.load(Relaxed),
        };
        Some((worker.pid, told))
    });
    told.collect()
}

impl Supervisor {
    /// When what there is has to be looked at again.
    pub(crate) fn room_deadline(&self) -> Option<Moment> {
        let any = self.phase.wants_workers() && self.pools.iter().any(|pool| pool.finds_its_size());
        any.then(|| self.room.due.unwrap_or(Moment::ZERO))
    }

    /// Looks at what there is, if it is time to, and tells the front.
    pub(crate) fn keep_room(&mut self) {
        let now = self.now();
        if self.room_deadline().is_none_or(|due| due > now) {
            return;
        }
        let pools = self.pools.iter().filter(|pool| pool.finds_its_size());
        let pools = pools.map(|pool| {
            let name = pool.plan.settings.pool.clone();
            let page = self.scores.page(&name);
            Seen {
                workers: pool.workers.keys().copied().collect(),
                coming: (pool.pool.workers() as usize).saturating_sub(pool.workers.len()),
                requests: page.map_or(0, Page::answered),
                told_by: Some(pool),
                group: self.plan.memory_group(&name),
                name,
            }
        });
        let pools: Vec<Seen> = pools.collect();
        self.room.look(now, &Machine, &pools);
        self.room.say();
        let most = pools.iter().map(|pool| pool.workers.len()).max();
        let most = u32::try_from(most.unwrap_or(0)).unwrap_or(u32::MAX);
        for index in 0..self.pools.len() {
            if self.give_room(index) && self.pools[index].pool.lacks_room() {
                self.room.stirred = now;
            }
            self.tell_room(index);
        }
        self.replace_outgrown();
        self.room.due = Some(now + self.room.wait(now, most));
    }

    /// Where memory is nearly full, has the worker that has grown most leave its place to a new one.
    fn replace_outgrown(&mut self) {
        let Some((pool, grown)) = self.room.rooms.outgrown() else {
            return;
        };
        let (pool, pid) = (pool.to_owned(), grown.worker);
        let mut all = self.pools.iter().filter(|running| {
            let is_current = running.is_current() && running.line == self.front.line;
            is_current && running.plan.settings.pool == pool
        });
        let found = all.find_map(|running| {
            let worker = running.pool.seated().find(|worker| worker.pid == pid)?;
            Some((running.generation, worker))
        });
        if let (Some((generation, worker)), Some(peer)) = (found, &mut self.front.peer) {
            info!(
                "pool {pool}: worker {pid} has grown from {:.0} to {:.0} MB, and memory is nearly full: \
                 another takes its place",
                grown.began_with / MEGABYTE,
                grown.has / MEGABYTE
            );
            let order = ToFront::Outgrown {
                generation,
                seat: worker.seat,
                incarnation: worker.incarnation,
            };
            peer.say(order, &[]);
            self.room.rooms.replaces(&pool, pid);
        }
    }

    /// Has a pool that finds its size keep to what there is now. True if it is such a pool.
    pub(crate) fn give_room(&mut self, index: usize) -> bool {
        let running = &mut self.pools[index];
        if !running.finds_its_size() {
            return false;
        }
        let name = &running.plan.settings.pool;
        let room = self.room.workers(name, running.pool.workers());
        running.pool.give_room(room);
        true
    }

    /// A pool that finds its size had `before` workers: those that have come are paid for.
    pub(crate) fn pay_for_workers(&mut self, index: usize, before: u32) {
        let running = &self.pools[index];
        let now = running.pool.workers();
        if now == before {
            return;
        }
        let name = &running.plan.settings.pool;
        let more = now.saturating_sub(before) as usize;
        self.room.rooms.promise(name, more);
        self.room.stirred = self.now();
        let soon = match self.room.rooms.are_far_from_the_limit() {
            true => STEADY_LOOK_EVERY,
            false => LOOK_SOON,
        };
        let soon = self.room.stirred + soon;
        self.room.due = self.room.due.map(|due| due.min(soon));
    }

    fn tell_room(&mut self, index: usize) {
        let running = &self.pools[index];
        if !running.is_current() || running.line != self.front.line || !running.finds_its_size() {
            return;
        }
        let name = &running.plan.settings.pool;
        let room = self.room.workers(name, running.pool.workers());
        let workers = (room < running.plan.max_children()).then_some(room);
        let (generation, cores) = (running.generation, self.room.cores);
        let told = (self.front.epoch, generation, cores, workers);
        let Some(peer) = &mut self.front.peer else {
            return;
        };
        if self.room.told.insert(name.clone(), told) != Some(told) {
            let order = ToFront::Room {
                generation,
                cores,
                workers,
            };
            peer.say(order, &[]);
        }
    }
}

impl RunningPool {
    /// What the largest program has had that each of its workers says it has run, in bytes, by process id.
    fn told_by_workers(&self) -> HashMap<i32, Told> {
        // Mapped for the moment only, and for no more pools at a look than it counts pages for.
        let boards = Boards::map(&self.plan.memory).ok();
        boards.map_or_else(HashMap::new, |boards| told_by(&boards, self.pool.seated()))
    }

    /// Whether its number of workers is found.
    pub(crate) fn finds_its_size(&self) -> bool {
        self.plan.pool.pm == ProcessManager::Auto && !self.pool.is_leaving()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a machine with so much memory, in megabytes.
    struct Small {
        total: u64,
        available: u64,
    }

    impl Files for Small {
        fn read(&self, path: &str) -> Option<String> {
            let (total, available) = (self.total * 1024, self.available * 1024);
            let text = format!("MemTotal: {total} kB\nMemAvailable: {available} kB\n");
            (path == "/proc/meminfo").then_some(text)
        }
    }

    const NOW: Moment = Moment::ZERO;

    fn pool(name: &str, workers: Vec<i32>) -> Seen<'static> {
        Seen {
            name: name.to_owned(),
            workers,
            coming: 0,
            requests: 0,
            told_by: None,
            group: None,
        }
    }

    fn looked(total: u64, available: u64) -> Room {
        let mut room = Room::default();
        let files = Small { total, available };
        room.look(NOW, &files, &[pool("www", Vec::new())]);
        room
    }

    #[test]
    fn a_pool_gets_the_workers_there_is_memory_for() {
        // 1600 MB are free beside a tenth of 4000, and a worker takes 128 until it was measured.
        assert_eq!(looked(4000, 2000).workers("www", 3), 12);
        assert_eq!(looked(0, 0).workers("www", 3), 3, "nothing can be read");
    }

    /// A large machine with a pool's group that has 2000 MB, of which so many are in use.
    struct Apart(u64);

    impl Files for Apart {
        fn read(&self, path: &str) -> Option<String> {
            let megabytes = match path {
                "/group/memory.max" => 2000,
                "/group/memory.current" => self.0,
                "/group/memory.high" => return Some("max\n".to_owned()),
                _ => {
                    let (total, available) = (16_000, 14_000);
                    return Small { total, available }.read(path);
                }
            };
            Some(format!("{}\n", megabytes << 20))
        }
    }

    #[test]
    fn a_pool_gets_no_more_workers_than_its_own_group_has_memory_for() {
        let mut room = Room::default();
        let mut limited = pool("www", Vec::new());
        limited.group = Some("/group".into());
        let pools = [limited, pool("other", Vec::new())];
        room.look(NOW, &Apart(520), &pools);
        assert_eq!(room.workers("www", 3), 10, "1280 MB of 2000 are free");
        assert_eq!(room.workers("other", 3), 96, "12,400 MB of 16,000 are");
        let later = NOW + 2 * STIRRED_FOR;
        assert_eq!(room.wait(later, 2), STEADY_LOOK_EVERY);
        room.look(later, &Apart(1950), &pools);
        assert_eq!(room.workers("www", 10), 8);
        assert_eq!(room.wait(later, 2), LOOK_EVERY, "its own is nearly full");
    }

    #[test]
    fn it_is_looked_more_often_where_something_changes_or_memory_is_nearly_full() {
        let mut room = looked(4000, 3000);
        let later = NOW + 2 * STIRRED_FOR;
        assert_eq!(room.wait(NOW, 2), STEADY_LOOK_EVERY, "there is plenty");
        assert_eq!(looked(4000, 1900).wait(NOW, 1), LOOK_SOON);
        assert_eq!(room.wait(later, 1), CALM_LOOK_EVERY);
        assert_eq!(room.wait(later, 2), STEADY_LOOK_EVERY);
        room = looked(4000, 900);
        assert_eq!(room.wait(later, 1), LOOK_EVERY);
    }

    #[test]
    fn what_a_worker_tells_of_its_requests_and_the_largest_program_it_has_run_counts_with_what_it_has()
     {
        let memory = maitred_seat::create("www", 2, 1).unwrap();
        let boards = Boards::map(&memory).unwrap();
        boards.seat(1).unwrap().program_most.store(4000, Relaxed);
        boards.seat(1).unwrap().requests.store(7, Relaxed);
        let seated = [(0, 10), (1, 11), (2, 12)].map(|(seat, pid)| Seated {
            seat,
            incarnation: 1,
            pid,
        });
        let told = told_by(&boards, seated.into_iter());
        let all = [(10, 0, 0), (11, 4000, 7)];
        let all = all.map(|(pid, program, requests)| (pid, Told { program, requests }));
        assert_eq!(told, HashMap::from(all));
        let has = |most, served| Has {
            own: 1.0,
            most,
            served,
        };
        let with = |most| with_told(has(most, None), told.get(&11).copied(), 3000.0);
        assert_eq!(
            with(Some(2.0)),
            has(Some(3002.0), Some(7)),
            "and no more than there is"
        );
        assert_eq!(with(None), has(None, Some(7)), "nobody tells");
        let unknown = with_told(has(None, None), None, 3000.0);
        assert_eq!(unknown, has(None, None));
    }

    /// Notes whose pages were looked at.
    struct Noted(std::cell::RefCell<HashSet<String>>);

    impl Files for Noted {
        fn read(&self, path: &str) -> Option<String> {
            self.0.borrow_mut().insert(path.to_owned());
            None
        }
    }

    #[test]
    fn however_many_workers_there_are_a_look_measures_no_more_and_the_next_goes_on() {
        let ours = std::process::id() as i32;
        let many = |number: i32| pool(&format!("p{number:03}"), vec![ours, -number]);
        let pools: Vec<Seen> = (1..=100).map(many).collect();
        let (mut room, mut seen) = (Room::default(), HashSet::new());
        for _ in 0..50 {
            let read = read_by(&mut room, &pools);
            assert!(read <= most_read(BUDGET), "{read}");
            seen.insert(room.next);
        }
        assert!(seen.len() > 5, "{seen:?}");
        let read = read_by(&mut looked(16_000, 14_000), &pools);
        assert!(read <= most_read(CALM_BUDGET), "{read}");
        assert!(read > 0);
    }

    #[test]
    fn a_pool_that_takes_the_whole_budget_leaves_the_next_look_to_others() {
        let ours = std::process::id() as i32;
        // Of those nothing is ever known, so that they are always new.
        let cold = pool("cold", (-8..0).collect());
        let pools = [cold, pool("other", vec![ours])];
        let mut room = looked(16_000, 14_000);
        let files = Noted(std::cell::RefCell::default());
        (0..pools.len()).for_each(|_| room.measure(&files, &pools));
        let read = files.0.into_inner();
        assert!(read.contains(&format!("/proc/{ours}/statm")), "{read:?}");
    }

    /// Files that are read to measure workers once.
    fn read_by(room: &mut Room, pools: &[Seen]) -> usize {
        let files = Noted(std::cell::RefCell::default());
        room.measure(&files, pools);
        files.0.into_inner().len()
    }

    fn most_read(budget: Budget) -> usize {
        3 * (budget.exactly + budget.roughly)
    }
}
