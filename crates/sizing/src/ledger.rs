//! Memory for the workers of all pools with `pm = auto`, and reservations of it.
//!
//! About once a second the memory in use is read, and that of some workers with their children. In
//! between, each worker that is ordered reserves memory out of what was free, so all pools together
//! order no more than there is memory for. A pool whose control group has a limit reserves out of
//! that as well.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use self::budget::{MemoryBudget, Others};
pub use self::pool_memory::{Budget, DueMeasurement, Grown, WorkerMemory};
use self::pool_memory::{PoolCap, PoolMemory, UNKNOWN_WORKER_BYTES};
use crate::memory::{Level, Signs};
use crate::sources::Memory;

mod budget;
mod pool_memory;

/// Pause after a worker of a pool was replaced because it had grown: its successor is to show first
/// how much it needs.
const REPLACED_PAUSE: Duration = Duration::from_secs(30);

/// The part of the server's memory that one pool can reserve beyond what it uses, if its workers
/// report large peaks, or have had much.
const RESERVED_SHARE: f64 = 0.25;

/// The memory of all pools with `pm = auto`.
#[derive(Debug, Default)]
pub struct MemoryLedger {
    /// The server's.
    common: MemoryBudget,
    /// Of the pools with a limit of their own.
    apart: BTreeMap<String, MemoryBudget>,
    looks: u32,
    looked: Duration,
    /// When a worker of a pool was replaced last because it had grown.
    replaced: BTreeMap<String, Duration>,
    /// Use of all pools' workers, and their reservations, in bytes.
    all: Others,
    pools: BTreeMap<String, PoolMemory>,
    /// Left to processes beside the workers: of all pools, and by pool, in bytes.
    beside: f64,
    beside_by_pool: BTreeMap<String, f64>,
}

impl MemoryLedger {
    /// Leaves memory to processes beside the workers, before each sample: of `all` pools together,
    /// and by pool, in bytes.
    pub fn leave(&mut self, all: f64, by_pool: BTreeMap<String, f64>) {
        self.beside = all;
        self.beside_by_pool = by_pool;
    }

    /// Free memory for processes of a pool beside its workers, in bytes; `None`: it is not known.
    pub fn free(&self, pool: &str) -> Option<f64> {
        let apart = self.apart.get(pool).into_iter();
        let all = apart.chain([&self.common]).filter_map(MemoryBudget::free);
        all.reduce(f64::min)
    }

    /// `limit` is the server's memory, in bytes.
    fn cap(&self, pool: &str, limit: Option<f64>) -> PoolCap {
        let own = self.apart.get(pool).and_then(|budget| budget.memory);
        PoolCap {
            share: limit.map_or(f64::INFINITY, |limit| RESERVED_SHARE * limit),
            limit: own.map_or(f64::INFINITY, |memory| memory.limit),
            used: own.map_or(f64::INFINITY, |memory| memory.used),
        }
    }

    fn beside_in(&self, pool: &str) -> f64 {
        self.beside_by_pool.get(pool).copied().unwrap_or(0.0)
    }

    /// The workers of a pool to measure now, by process id: those not measured yet, and the others
    /// in turn, within the budget of this sample. `requests` of the pool have ended so far.
    pub fn due(
        &mut self,
        pool: &str,
        workers: &[i32],
        requests: u64,
        budget: &mut Budget,
    ) -> Vec<DueMeasurement> {
        let known = self.pools.entry(pool.to_owned()).or_default();
        known.served(requests);
        known.due(workers, budget)
    }

    /// Workers of a pool are starting at this sample and cannot be measured yet.
    pub fn are_coming(&mut self, pool: &str, workers: usize) {
        if let Some(known) = self.pools.get_mut(pool) {
            known.promise(workers);
        }
    }

    /// Whether to read the request counts of a pool's workers though no pages are counted: one may
    /// be young, and its lasting memory is not known.
    pub fn may_have_young(&self, pool: &str) -> bool {
        self.pools.get(pool).is_some_and(PoolMemory::may_have_young)
    }

    /// The memory of a worker that was due.
    pub fn measured(&mut self, pool: &str, due: DueMeasurement, has: WorkerMemory) {
        let known = self.pools.entry(pool.to_owned()).or_default();
        known.measured(due, has, self.looks);
    }

    /// A sample, after all due workers were measured; `pools` are those that exist.
    pub fn look(
        &mut self,
        now: Duration,
        memory: Option<Memory>,
        signs: &Signs,
        pools: &HashSet<&str>,
    ) {
        self.pools.retain(|name, _| pools.contains(name.as_str()));
        self.looks = self.looks.saturating_add(1);
        self.looked = now;
        self.replaced.retain(|name, at| {
            pools.contains(name.as_str()) && now.saturating_sub(*at) < REPLACED_PAUSE
        });
        self.pools.values_mut().for_each(PoolMemory::settle);
        let limit = memory.map(|memory| memory.limit);
        let caps = self.pools.iter().map(|(name, known)| (known, self.cap(name, limit)));
        let caps: Vec<(&PoolMemory, PoolCap)> = caps.collect();
        let own: f64 = caps.iter().map(|(known, cap)| known.own(*cap)).sum();
        let claim: f64 = caps.iter().map(|(known, cap)| known.claims(*cap)).sum();
        let take: f64 = caps.iter().map(|(known, cap)| known.takes(*cap)).sum();
        let used = memory.map_or(f64::INFINITY, |memory| memory.used);
        // More than what is in use is memory that was counted several times: at this moment, while
        // the pools' use is averaged, and their reservations are beyond it.
        let again = (own - used).max(0.0);
        let counted = (take - again).max(take.min(used));
        self.all = Others { take, claim: claim - take + counted };
        let promised: f64 = caps.iter().map(|(known, cap)| known.is_to_have(*cap)).sum();
        self.common.look(now, memory, signs, own, promised + self.beside);
    }

    /// The memory of the pools with a limit of their own; called before [`MemoryLedger::look`].
    pub fn look_apart(&mut self, now: Duration, memories: &BTreeMap<String, Memory>) {
        self.apart.retain(|name, _| memories.contains_key(name));
        for (name, memory) in memories {
            let known = self.pools.get(name);
            let own = known.map_or(0.0, |known| known.own(PoolCap::NONE));
            let beside = self.beside_in(name);
            let promised = known.map_or(0.0, |known| known.is_to_have(PoolCap::NONE)) + beside;
            let signs = Signs { used: Some(memory.part()), ..Signs::default() };
            let budget = self.apart.entry(name.clone()).or_default();
            budget.look(now, Some(*memory), &signs, own, promised);
        }
    }

    /// The most workers of a pool that has `workers`.
    pub fn workers(&self, pool: &str, workers: usize) -> usize {
        let unknown = PoolMemory::default();
        let known = self.pools.get(pool).unwrap_or(&unknown);
        let cap = self.cap(pool, self.common.memory.map(|memory| memory.limit));
        let take = self.all.take - known.takes(cap);
        let others = Others {
            // What jobs may need later lets no pool grow, but takes no worker from another.
            take: take.min(self.common.used_by_others(known.own(cap))).max(0.0),
            claim: (self.all.claim - known.claims(cap)).max(0.0) + self.beside,
        };
        let all = self.common.workers(known, others, workers);
        let apart = self.apart.get(pool);
        let beside = self.beside_in(pool);
        let others = Others { take: beside, claim: beside };
        apart.map_or(all, |budget| all.min(budget.workers(known, others, workers)))
    }

    /// Workers of a pool are starting.
    pub fn promise(&mut self, pool: &str, workers: usize) {
        let cap = self.cap(pool, self.common.memory.map(|memory| memory.limit));
        let known = self.pools.get_mut(pool);
        let (worker, reserved) =
            known.map_or((UNKNOWN_WORKER_BYTES, UNKNOWN_WORKER_BYTES * workers as f64), |known| {
                let before = known.is_to_have(cap);
                self.all.claim -= known.claims(cap);
                known.promise(workers);
                self.all.claim += known.claims(cap);
                (known.worker(), known.is_to_have(cap) - before)
            });
        self.common.promised += reserved;
        let apart = self.apart.get_mut(pool);
        if let Some(budget) = apart {
            budget.promised += worker * workers as f64;
        }
    }

    /// The pool and the worker to replace: if memory is nearly full, the largest of those that have
    /// grown. None if memory is short: the new one would come first.
    pub fn outgrown(&self) -> Option<(&str, Grown)> {
        let pools = self.pools.iter().filter(|(name, _)| {
            let apart = self.apart.get(name.as_str());
            let budgets = apart.into_iter().chain([&self.common]);
            let level = budgets.map(|budget| budget.pressure.seen()).max();
            level == Some(Level::Careful) && !self.replaced.contains_key(name.as_str())
        });
        let grown = pools.filter_map(|(name, known)| Some((name, known.outgrown(self.looked)?)));
        let most = grown.max_by(|(_, one), (_, other)| one.has.total_cmp(&other.has));
        most.map(|(name, grown)| (name.as_str(), grown))
    }

    /// This worker is replaced because it has grown.
    pub fn replaces(&mut self, pool: &str, worker: i32) {
        self.replaced.insert(pool.to_owned(), self.looked);
        if let Some(known) = self.pools.get_mut(pool) {
            known.replaces(worker, self.looked);
        }
    }

    /// Whether the memory of all pools' workers is known: until then, sample more often.
    pub fn are_known(&self) -> bool {
        self.pools.values().all(PoolMemory::is_known)
    }

    /// Whether memory is ample, so that the workers' memory need not be known soon.
    pub fn are_far_from_the_limit(&self) -> bool {
        let mut all = self.apart.values().chain([&self.common]);
        all.all(MemoryBudget::is_far_from_the_limit)
    }

    /// The pressure on the server's memory.
    pub fn level(&self) -> Level {
        self.common.pressure.level()
    }

    /// Whether the amount of memory is known.
    pub fn is_readable(&self) -> bool {
        self.common.memory.is_some()
    }
}

#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod repeated_memory_tests;

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1024.0 * 1024.0;

    fn memory(limit: f64, used: f64) -> Option<Memory> {
        Some(Memory { limit: limit * MB, used: used * MB, by_group: true })
    }

    fn signs(memory: Option<Memory>) -> Signs {
        Signs { used: memory.map(|memory| memory.used / memory.limit), ..Signs::default() }
    }

    /// In megabytes.
    fn has(own: f64, most: f64) -> WorkerMemory {
        WorkerMemory { own: own * MB, most: Some(most * MB), served: None }
    }

    fn looked(memory: Option<Memory>) -> MemoryLedger {
        let mut rooms = MemoryLedger::default();
        rooms.look(Duration::ZERO, memory, &signs(memory), &HashSet::from(["www"]));
        rooms
    }

    /// A second of a pool whose workers use `has`.
    fn follow(
        rooms: &mut MemoryLedger,
        second: u64,
        used: f64,
        workers: &[i32],
        has: impl Fn(i32) -> f64,
    ) {
        let mut budget = Budget { exactly: 16, roughly: 64 };
        for due in rooms.due("www", workers, 100 * second, &mut budget) {
            let own = has(due.worker) * MB;
            rooms.measured("www", due, WorkerMemory { own, ..WorkerMemory::default() });
        }
        let memory = memory(4096.0, used);
        let pools = HashSet::from(["www"]);
        rooms.look(Duration::from_secs(second), memory, &signs(memory), &pools);
    }

    #[test]
    fn what_is_promised_is_not_promised_again() {
        let mut rooms = looked(memory(4000.0, 2000.0));
        // 1600 MB are free, and a worker takes 128 by default.
        assert_eq!(rooms.workers("www", 3), 12);
        rooms.promise("www", 9);
        assert_eq!(rooms.workers("www", 12), 12);
        rooms.promise("www", 20);
        assert_eq!(rooms.workers("www", 33), 33);
    }

    #[test]
    fn what_is_left_to_a_batch_is_not_promised_to_workers() {
        let mut rooms = MemoryLedger::default();
        let there = memory(4000.0, 2000.0);
        let own = BTreeMap::from([("www".to_owned(), 640.0 * MB)]);
        rooms.leave(960.0 * MB, own);
        rooms.look(Duration::ZERO, there, &signs(there), &HashSet::from(["www"]));
        // 640 of 1600 MB that are free remain, and a worker takes 128 by default.
        assert_eq!(rooms.workers("www", 3), 5);
        let apart = BTreeMap::from([("www".to_owned(), memory(2000.0, 776.0).unwrap())]);
        rooms.look_apart(Duration::ZERO, &apart);
        assert_eq!(rooms.workers("www", 0), 3, "of 1024 MB that are free in its own group");
    }

    #[test]
    fn two_pools_that_want_the_same_memory_get_no_more_of_it_together_than_there_is() {
        let pools = ["one", "two"];
        let mut rooms = MemoryLedger::default();
        let mut had = [1_usize; 2];
        for second in 0..120 {
            let mut next = 0;
            for (pool, had) in pools.iter().zip(had) {
                let workers: Vec<i32> = (next..next + had as i32).collect();
                let mut budget = Budget { exactly: 16, roughly: 64 };
                for due in rooms.due(pool, &workers, 100 * second, &mut budget) {
                    rooms.measured(pool, due, has(80.0, 80.0));
                }
                next += had as i32;
            }
            let used = 200.0 + 80.0 * (had[0] + had[1]) as f64;
            let memory = memory(2000.0, used);
            let named = HashSet::from(pools);
            rooms.look(Duration::from_secs(second), memory, &signs(memory), &named);
            // Both want as many as possible, first the one and then the other.
            for turn in 0..2 {
                let pool = (second as usize + turn) % 2;
                let may = rooms.workers(pools[pool], had[pool]);
                rooms.promise(pools[pool], may.saturating_sub(had[pool]));
                had[pool] = may;
            }
            let used = 200.0 + 80.0 * (had[0] + had[1]) as f64;
            assert!(used <= 1800.0, "{had:?} at {second}: a tenth is left alone");
            assert!(had.iter().all(|had| *had >= 1));
        }
        let together = had[0] + had[1];
        assert!((19..=20).contains(&together), "{had:?}: all there is");
    }

    /// New pools want as many as possible at each sample, and have as many as their young workers
    /// seem to allow: the result.
    fn cold(pools: &[&str], looks: u32, limit: f64) -> Vec<usize> {
        let mut rooms = MemoryLedger::default();
        let mut had = vec![1_usize; pools.len()];
        for look in 0..looks {
            let mut next = 0;
            for (pool, had) in pools.iter().zip(&had) {
                let workers: Vec<i32> = (next..next + *had as i32).collect();
                let mut budget = Budget { exactly: 16, roughly: 64 };
                for due in rooms.due(pool, &workers, 0, &mut budget) {
                    rooms.measured(pool, due, has(2.0, 2.0));
                }
                next += *had as i32;
            }
            let used = 100.0 + 2.0 * f64::from(next);
            let memory = memory(limit, used);
            let named = pools.iter().copied().collect();
            let now = Duration::from_millis(100) * look;
            rooms.look(now, memory, &signs(memory), &named);
            for (pool, had) in pools.iter().zip(&mut had) {
                let may = rooms.workers(pool, *had);
                rooms.promise(pool, may.saturating_sub(*had));
                *had = may;
            }
        }
        had
    }

    #[test]
    fn what_was_promised_to_a_cold_pool_is_not_promised_to_another_at_the_next_look() {
        // 800 MB are usable, for six workers of 128 each.
        for looks in [1, 2, 3, 50] {
            assert_eq!(cold(&["one"], looks, 1000.0), [6]);
            assert_eq!(cold(&["one", "two", "three"], looks, 1000.0), [6, 1, 1]);
        }
        // And two of them share what there is.
        assert_eq!(cold(&["one", "two"], 9, 1000.0), [6, 1]);
    }

    #[test]
    fn a_peak_that_a_pools_workers_invent_does_not_stop_the_growth_of_others() {
        let mut rooms = MemoryLedger::default();
        let named = HashSet::from(["bad", "www"]);
        for second in 0..20 {
            let mut budget = Budget { exactly: 16, roughly: 64 };
            for due in rooms.due("bad", &[1, 2], 0, &mut budget) {
                rooms.measured("bad", due, has(10.0, 4000.0));
            }
            for due in rooms.due("www", &[3], 100 * second, &mut budget) {
                rooms.measured("www", due, has(20.0, 20.0));
            }
            rooms.are_coming("bad", 1);
            let memory = memory(4000.0, 300.0);
            rooms.look(Duration::from_secs(second), memory, &signs(memory), &named);
        }
        let without = rooms.workers("www", 1);
        assert!(without > 50, "{without}");
        // Its own limit is the most that it can reserve.
        let apart = BTreeMap::from([("bad".to_owned(), memory(200.0, 30.0).unwrap())]);
        rooms.look_apart(Duration::from_secs(20), &apart);
        let memory = memory(4000.0, 300.0);
        rooms.look(Duration::from_secs(21), memory, &signs(memory), &named);
        assert!(rooms.workers("www", 1) > without);
    }

    #[test]
    fn pools_that_rest_with_one_worker_take_no_room_from_one_that_does_not() {
        let mut rooms = MemoryLedger::default();
        let names: Vec<String> = (0..100).map(|number| format!("p{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            let mut budget = Budget { exactly: 16, roughly: 64 };
            for due in rooms.due(name, &[number as i32], 0, &mut budget) {
                rooms.measured(name, due, has(2.0, 2.0));
            }
        }
        let memory = memory(2000.0, 400.0);
        let named = names.iter().map(String::as_str).collect();
        rooms.look(Duration::ZERO, memory, &signs(memory), &named);
        // 1800 MB are usable, and 400 are used.
        assert_eq!(rooms.workers("p7", 1), 11);
    }

    #[test]
    fn where_nobody_tells_what_there_is_nothing_is_added() {
        let rooms = looked(None);
        assert_eq!((rooms.workers("www", 7), rooms.workers("www", 0)), (7, 1));
        assert!(!rooms.is_readable());
    }

    #[test]
    fn where_memory_is_out_a_fifth_of_the_workers_goes_and_one_stays() {
        let rooms = looked(memory(1000.0, 990.0));
        assert_eq!((rooms.workers("www", 10), rooms.workers("www", 1)), (8, 1));
        let rooms = looked(memory(1000.0, 870.0));
        assert_eq!(rooms.workers("www", 10), 10);
    }

    #[test]
    fn where_memory_was_out_for_a_moment_nobody_goes_or_comes_once_there_is_some() {
        let mut rooms = looked(memory(4000.0, 3960.0));
        assert_eq!(rooms.workers("www", 10), 8);
        let pools = HashSet::from(["www"]);
        let workers: Vec<usize> = (1..=40)
            .map(|second| {
                let enough = memory(4000.0, 300.0);
                rooms.look(Duration::from_secs(second), enough, &signs(enough), &pools);
                rooms.workers("www", 8)
            })
            .collect();
        assert_eq!(workers[..29], [8; 29], "ten seconds on each level");
        assert!(workers[39] > 8, "{workers:?}");
    }

    #[test]
    fn what_the_largest_has_had_still_counts_when_it_has_left() {
        let mut rooms = MemoryLedger::default();
        let turns = [(vec![1, 2], 0), (vec![1, 2], 150), (vec![2], 160)];
        let workers = turns.map(|(workers, requests)| {
            let mut budget = Budget { exactly: 16, roughly: 64 };
            for due in rooms.due("www", &workers, requests, &mut budget) {
                let most = if due.worker == 1 { 120.0 } else { 40.0 };
                rooms.measured("www", due, has(20.0, most));
            }
            let memory = memory(1024.0, 100.0);
            rooms.look(Duration::ZERO, memory, &signs(memory), &HashSet::from(["www"]));
            rooms.workers("www", workers.len())
        });
        // About 860 MB are for workers of 128, then of 120 and a little: none of 150 requests took
        // more.
        assert_eq!(workers, [6, 7, 7]);
    }

    #[test]
    fn what_workers_were_found_to_take_makes_room_for_more_of_them() {
        let mut rooms = looked(memory(4096.0, 1000.0));
        let workers: Vec<i32> = (1..=8).collect();
        for second in 1..60 {
            follow(&mut rooms, second, 1000.0 + 8.0 * 20.0, &workers, |_| 20.0);
        }
        assert_eq!(rooms.workers("www", 8), 8 + 126);
    }

    #[test]
    fn the_more_requests_have_taken_no_more_the_less_is_kept_for_one_that_might() {
        let mut rooms = MemoryLedger::default();
        let fits: Vec<usize> = [0, 3, 30, 150]
            .into_iter()
            .map(|requests| {
                let mut budget = Budget { exactly: 16, roughly: 64 };
                for due in rooms.due("www", &[1, 2], requests, &mut budget) {
                    rooms.measured("www", due, has(20.0, 40.0));
                }
                let memory = memory(1024.0, 100.0);
                rooms.look(Duration::ZERO, memory, &signs(memory), &HashSet::from(["www"]));
                rooms.workers("www", 2)
            })
            .collect();
        // 862 MB are for workers: 6 of 128 MB, 17 of 48.8, 20 of 41.8.
        assert_eq!(fits, [6, 6, 17, 20]);
    }

    #[test]
    fn what_children_take_now_and_then_is_kept_free_for_all_workers() {
        let mut rooms = looked(memory(4096.0, 1028.0));
        let workers: Vec<i32> = (1..=6).collect();
        for second in 1..120 {
            let has = |worker: i32| match (second as i32 + worker) % 3 {
                0 => 370.0,
                _ => 70.0,
            };
            let own: f64 = workers.iter().map(|worker| has(*worker)).sum();
            follow(&mut rooms, second, 1028.0 + own, &workers, has);
        }
        assert_eq!(rooms.workers("www", 6), 7, "7 x 370 MB fit beside the rest");
    }

    #[test]
    fn a_limit_that_was_lowered_below_what_is_in_use_makes_a_pool_smaller_at_once() {
        let mut rooms = looked(memory(4096.0, 1000.0));
        let workers: Vec<i32> = (1..=20).collect();
        (1..60).for_each(|second| follow(&mut rooms, second, 2000.0, &workers, |_| 50.0));
        let less = memory(1500.0, 2000.0);
        rooms.look(Duration::from_secs(61), less, &signs(less), &HashSet::from(["www"]));
        // 1350 MB are usable, and others use 1000.
        assert_eq!(rooms.workers("www", 20), 7);
    }

    #[test]
    fn a_pool_with_a_limit_of_its_own_keeps_to_that_and_others_to_what_there_is() {
        let mut rooms = looked(memory(16_000.0, 2000.0));
        let own = |used: f64| BTreeMap::from([("www".to_owned(), memory(2000.0, used).unwrap())]);
        rooms.look_apart(Duration::ZERO, &own(520.0));
        // 1280 MB of its 2000 are free beside a tenth, and a worker takes 128 by default.
        assert_eq!(rooms.workers("www", 3), 10);
        assert_eq!(rooms.workers("other", 3), 96, "of 12,400 MB");
        rooms.promise("www", 9);
        assert_eq!(rooms.workers("www", 3), 4);
        assert_eq!(rooms.workers("other", 3), 90, "it comes out of both");
        rooms.look_apart(Duration::from_secs(1), &own(1950.0));
        assert_eq!(rooms.workers("www", 10), 8, "97 % of its own are in use");
        assert_eq!(rooms.level(), Level::Calm, "the server has enough");
        assert!(!rooms.are_far_from_the_limit());
        rooms.look_apart(Duration::from_secs(2), &BTreeMap::new());
        assert_eq!(rooms.workers("www", 3), 90, "the limit is gone");
    }

    #[test]
    fn a_pool_with_a_limit_of_its_own_has_as_many_workers_as_fit_into_it_once_they_are_known() {
        let mut rooms = MemoryLedger::default();
        let workers: Vec<i32> = (1..=8).collect();
        for second in 1..60 {
            follow(&mut rooms, second, 1000.0, &workers, |_| 50.0);
            let own = memory(1024.0, 100.0 + 8.0 * 50.0).unwrap();
            let own = BTreeMap::from([("www".to_owned(), own)]);
            rooms.look_apart(Duration::from_secs(second), &own);
        }
        // 921.6 MB are usable, of which 100 are shared by its workers.
        assert_eq!(rooms.workers("www", 8), 16);
    }
}
