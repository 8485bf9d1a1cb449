//! What pools with `pm = auto` may use: processors, and memory for workers. It is read once a second
//! while such a pool has lately asked for workers, and otherwise now and then; between two looks each
//! worker that is ordered is paid for out of what was there, so that all pools together order no more
//! than there is memory for.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use maitred_config::ProcessManager;
use maitred_control::ToFront;
use maitred_sizing::memory::{Level, Pressure, Room};
use maitred_sizing::sources::{self, Counters, Files};
use tracing::warn;

use crate::admin::private_bytes;
use crate::limits::Moment;
use crate::run::Supervisor;

/// How often it is looked while a pool grows or shrinks, and while none does.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const CALM_LOOK_EVERY: Duration = Duration::from_secs(30);

/// How long a pool counts as growing or shrinking after its last worker came or went.
const STIRRED_FOR: Duration = Duration::from_secs(10);

/// Workers of a pool that are measured at a look: it costs the kernel a walk through their pages.
const MEASURED_AT_ONCE: usize = 4;

/// What a worker is taken to need before one was measured, in bytes.
const UNKNOWN_WORKER_BYTES: f64 = 32.0 * 1024.0 * 1024.0;

/// The part of the workers that may go on when memory is short, and when it is out.
const SHORT: f64 = 0.9;
const OUT: f64 = 0.8;

/// What there is for all pools that find their size.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    due: Option<Moment>,
    stirred: Moment,
    counters: Counters,
    pressure: Pressure,
    /// Thousandths of a processor.
    cores: u32,
    /// Memory that no worker has or was promised, in bytes; nothing: it cannot be read.
    free: Option<f64>,
    pools: BTreeMap<String, Known>,
    /// That memory cannot be read was said.
    said: bool,
}

/// What is known of a pool's workers.
#[derive(Debug, Default)]
struct Known {
    /// Process ids with their private memory, in bytes, those measured last at the end.
    measured: VecDeque<(i32, u64)>,
    /// What the front of this number was told last: of which generation, and what.
    told: Option<(u32, u32, u32, Option<u32>)>,
}

impl Known {
    /// What one more worker takes: what 95 of 100 have at most.
    fn worker(&self) -> f64 {
        let mut all: Vec<u64> = self.measured.iter().map(|(_, bytes)| *bytes).collect();
        all.sort_unstable();
        let place = (all.len() * 95 / 100).min(all.len().saturating_sub(1));
        let worker = all.get(place).map(|bytes| *bytes as f64);
        worker.unwrap_or(UNKNOWN_WORKER_BYTES).max(1.0)
    }
}

/// The files of this machine.
struct Machine;

impl Files for Machine {
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }
}

impl Rooms {
    /// How many workers a pool may have that has `workers`; nothing: memory is no limit.
    fn workers(&self, pool: &str, workers: u32) -> u32 {
        // Where nobody knows what there is, nothing is added.
        let Some(free) = self.free else {
            return workers.max(1);
        };
        let part = |part: f64| ((f64::from(workers) * part) as u32).max(1);
        match self.pressure.level() {
            Level::Out => return part(OUT),
            Level::Short => return part(SHORT),
            Level::Careful => return workers.max(1),
            Level::Calm => {}
        }
        let worker = self
            .pools
            .get(pool)
            .map_or(UNKNOWN_WORKER_BYTES, Known::worker);
        let more = (free / worker).max(0.0) as u32;
        // One serves whatever there is: none would be a pool that is down.
        workers.saturating_add(more).max(1)
    }

    /// So many workers of a pool are on their way.
    fn promise(&mut self, pool: &str, workers: u32) {
        let worker = self
            .pools
            .get(pool)
            .map_or(UNKNOWN_WORKER_BYTES, Known::worker);
        if let Some(free) = &mut self.free {
            *free -= worker * f64::from(workers);
        }
    }

    /// Looks at the machine; `pools` are the pools that find their size with their workers' processes.
    fn look(
        &mut self,
        now: Moment,
        files: &dyn Files,
        allowed: usize,
        pools: &[(String, Vec<i32>)],
    ) {
        let counters = Counters::read(files);
        let signs = counters.signs(&self.counters, files);
        self.counters = counters;
        self.pressure.look(now, &signs);
        self.cores = (sources::cores(files, allowed).count * 1000.0) as u32;
        self.pools
            .retain(|name, _| pools.iter().any(|(pool, _)| pool == name));
        let mut promised = 0.0;
        for (name, pids) in pools {
            let known = self.pools.entry(name.clone()).or_default();
            known.measure(pids);
            let unknown = pids.len().saturating_sub(known.measured.len());
            promised += unknown as f64 * known.worker();
        }
        self.free = sources::memory(files).map(|memory| {
            let room = Room {
                limit: memory.limit,
                base: memory.used + promised,
                ..Room::default()
            };
            room.usable()
        });
    }
}

impl Known {
    /// Measures those that were not yet, and some of the others in turn.
    fn measure(&mut self, pids: &[i32]) {
        let present: HashSet<&i32> = pids.iter().collect();
        self.measured.retain(|(pid, _)| present.contains(pid));
        let known: HashSet<i32> = self.measured.iter().map(|(pid, _)| *pid).collect();
        let new = pids.iter().filter(|pid| !known.contains(pid));
        let mut due: Vec<i32> = new.take(MEASURED_AT_ONCE).copied().collect();
        // Those that are known grow, too.
        due.extend(self.measured.pop_front().map(|(pid, _)| pid));
        for pid in due {
            if let Some(bytes) = private_bytes(pid) {
                self.measured.push_back((pid, bytes));
            }
        }
    }
}

impl Supervisor {
    /// When what there is has to be looked at again.
    pub(crate) fn room_deadline(&self) -> Option<Moment> {
        let any = self.phase.wants_workers() && self.pools.iter().any(|pool| pool.finds_its_size());
        any.then(|| self.rooms.due.unwrap_or(Moment::ZERO))
    }

    /// Looks at what there is, if it is time to, and tells the front.
    pub(crate) fn keep_room(&mut self) {
        let now = self.now();
        if self.room_deadline().is_none_or(|due| due > now) {
            return;
        }
        let pools = self.pools.iter().filter(|pool| pool.finds_its_size());
        let pools = pools.map(|pool| {
            let pids = pool.workers.keys().copied().collect();
            (pool.plan.settings.pool.clone(), pids)
        });
        let pools: Vec<(String, Vec<i32>)> = pools.collect();
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        self.rooms.look(now, &Machine, allowed, &pools);
        if self.rooms.free.is_none() && !std::mem::replace(&mut self.rooms.said, true) {
            warn!(
                "neither /proc/meminfo nor a control group tells how much memory there is; pools \
                 with pm = \"auto\" get no more workers than they have, set max_children and \
                 pm = \"dynamic\" instead"
            );
        }
        let is_stirred = now < self.rooms.stirred + STIRRED_FOR;
        let wait = if is_stirred {
            LOOK_EVERY
        } else {
            CALM_LOOK_EVERY
        };
        self.rooms.due = Some(now + wait);
        for index in 0..self.pools.len() {
            self.give_room(index);
            self.tell_room(index);
        }
    }

    /// Has a pool that finds its size keep to what there is now. True if it is such a pool.
    pub(crate) fn give_room(&mut self, index: usize) -> bool {
        let running = &mut self.pools[index];
        if !running.finds_its_size() {
            return false;
        }
        let name = &running.plan.settings.pool;
        let room = self.rooms.workers(name, running.pool.workers());
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
        let name = running.plan.settings.pool.clone();
        self.rooms.promise(&name, now.saturating_sub(before));
        self.rooms.stirred = self.now();
        let soon = self.rooms.stirred + LOOK_EVERY;
        self.rooms.due = self.rooms.due.map(|due| due.min(soon));
    }

    fn tell_room(&mut self, index: usize) {
        let running = &self.pools[index];
        if !running.is_current() || running.line != self.front.line || !running.finds_its_size() {
            return;
        }
        let name = running.plan.settings.pool.clone();
        let room = self.rooms.workers(&name, running.pool.workers());
        let workers = (room < running.plan.max_children()).then_some(room);
        let (generation, cores) = (running.generation, self.rooms.cores);
        let told = (self.front.epoch, generation, cores, workers);
        let (Some(peer), Some(known)) = (&mut self.front.peer, self.rooms.pools.get_mut(&name))
        else {
            return;
        };
        if known.told.replace(told) != Some(told) {
            let order = ToFront::Room {
                generation,
                cores,
                workers,
            };
            peer.say(order, &[]);
        }
    }
}

impl crate::run::RunningPool {
    /// Whether its number of workers is found.
    fn finds_its_size(&self) -> bool {
        self.plan.pool.pm == ProcessManager::Auto && !self.pool.is_leaving()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Small(&'static str);

    impl Files for Small {
        fn read(&self, path: &str) -> Option<String> {
            (path == "/proc/meminfo").then(|| self.0.to_owned())
        }
    }

    const HALF: Small = Small("MemTotal: 1024000 kB\nMemAvailable: 512000 kB\n");
    const NOTHING: Small = Small("");

    fn looked(files: &Small) -> Rooms {
        let mut rooms = Rooms::default();
        rooms.look(Duration::ZERO, files, 4, &[("www".to_owned(), Vec::new())]);
        rooms
    }

    #[test]
    fn what_is_promised_is_not_promised_again() {
        let mut rooms = looked(&HALF);
        // 400 MB are free of which a tenth of 1000 MB stays so, and a worker takes 32.
        assert_eq!(rooms.workers("www", 3), 3 + 12);
        rooms.promise("www", 10);
        assert_eq!(rooms.workers("www", 13), 13 + 2);
        rooms.promise("www", 20);
        assert_eq!(rooms.workers("www", 33), 33);
    }

    #[test]
    fn where_nobody_tells_what_there_is_nothing_is_added() {
        let rooms = looked(&NOTHING);
        assert_eq!((rooms.workers("www", 7), rooms.workers("www", 0)), (7, 1));
    }

    #[test]
    fn where_memory_is_out_a_fifth_of_the_workers_goes_and_one_stays() {
        let rooms = looked(&Small("MemTotal: 1000 kB\nMemAvailable: 10 kB\n"));
        assert_eq!((rooms.workers("www", 10), rooms.workers("www", 1)), (8, 1));
        let rooms = looked(&Small("MemTotal: 1000 kB\nMemAvailable: 130 kB\n"));
        assert_eq!(rooms.workers("www", 10), 10);
    }
}
