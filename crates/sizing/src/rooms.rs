//! What memory there is for the workers of all pools that find their size, and who has been promised
//! what of it.
//!
//! About once a second somebody looks: how much is in use, and what some of the workers have for
//! themselves, with their children. Between two looks each worker that is ordered is paid for out of what
//! was there, so all pools together order no more than there is memory for.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

pub use self::known::{Budget, Due, Has};
use self::known::{Known, UNKNOWN_WORKER_BYTES};
use crate::memory::{Level, Pressure, Room, Signs};
use crate::sources::Memory;

mod known;

/// Memory of which less than this part is in use or promised is far from being short.
const FAR: f64 = 0.5;

/// How long what is not the workers' own is averaged, in seconds.
const AVERAGED_SECONDS: f64 = 60.0;

/// Looks of which none counts for more than another.
const FIRST_LOOKS: u32 = 100;

/// The part of the workers that may go on when memory is short, and when it is out.
const SHORT: f64 = 0.9;
const OUT: f64 = 0.8;

/// What there is for all pools that find their size.
#[derive(Debug, Default)]
pub struct Rooms {
    looked: Option<Duration>,
    looks: u32,
    pressure: Pressure,
    /// What may be in use, and what is, in bytes; nothing: it cannot be read.
    memory: Option<Memory>,
    /// What was promised since the last look, and what was before and is not in use yet, in bytes.
    promised: f64,
    /// What is in use and is no worker's own, on average over some seconds, in bytes.
    base: Option<f64>,
    /// What the workers of all pools take together, in bytes.
    taken: f64,
    pools: BTreeMap<String, Known>,
}

impl Rooms {
    /// Which of a pool's workers are to be measured now, by their process ids: those that were not yet,
    /// and the others in turn, within the budget of this look. So many requests of the pool have ended.
    pub fn due(
        &mut self,
        pool: &str,
        (workers, requests): (&[i32], u64),
        budget: &mut Budget,
    ) -> Vec<Due> {
        let known = self.pools.entry(pool.to_owned()).or_default();
        known.served(requests);
        known.due(workers, budget)
    }

    /// What a worker has that was to be measured.
    pub fn measured(&mut self, pool: &str, due: Due, has: Has) {
        let known = self.pools.entry(pool.to_owned()).or_default();
        known.measured(due, has, self.looks);
    }

    /// A look, after all that was due has been measured; `pools` are those that there are.
    pub fn look(
        &mut self,
        now: Duration,
        memory: Option<Memory>,
        signs: &Signs,
        pools: &HashSet<&str>,
    ) {
        self.pressure.look(now, signs);
        self.pools.retain(|name, _| pools.contains(name.as_str()));
        self.memory = memory;
        self.looks = self.looks.saturating_add(1);
        self.pools.values_mut().for_each(Known::settle);
        let all = self.pools.values();
        self.promised = all
            .map(|known| known.unmeasured() as f64 * known.worker())
            .sum();
        self.taken = self.pools.values().map(Known::takes).sum();
        let passed = now.saturating_sub(self.looked.unwrap_or(now));
        self.looked = Some(now);
        let Some(memory) = memory else {
            return;
        };
        let all = self.pools.values();
        let own: f64 = all.map(Known::own).sum();
        let base = (memory.used - own).max(0.0);
        let weight = 1.0 - (-passed.as_secs_f64() / AVERAGED_SECONDS).exp();
        let weight = match self.looks < FIRST_LOOKS {
            true => weight.max(1.0 / f64::from(self.looks)),
            false => weight,
        };
        let before = self.base.unwrap_or(base);
        let base = before + weight * (base - before);
        self.base = Some(base);
        for known in self.pools.values_mut() {
            let others = (self.taken - known.takes()).max(0.0);
            known.fits = known.fits_in(&memory, (base, others));
            known.fit_at_most = known.fit_at_most_in(&memory, base);
        }
    }

    /// How many workers a pool may have that has `workers`.
    pub fn workers(&self, pool: &str, workers: usize) -> usize {
        let part = |part: f64| ((workers as f64 * part) as usize).max(1);
        // Where nobody knows what there is, nothing is added.
        let (Some(memory), Some(base)) = (self.memory, self.base) else {
            return workers.max(1);
        };
        let unknown = Known::default();
        let known = self.pools.get(pool).unwrap_or(&unknown);
        let free = Room {
            limit: memory.limit,
            base: memory.used + self.promised,
            ..Room::default()
        };
        let more = (free.usable() / known.worker()) as usize;
        let now = workers.saturating_add(more);
        // One serves whatever there is: none would be a pool that is down.
        let (fits, stay) = match self.pools.get(pool) {
            Some(known) => (known.fits, known.fit_at_most),
            None => (known.fits_in(&memory, (base, 0.0)), usize::MAX),
        };
        let long = match known.is_known() {
            true => fits,
            // Those that are there may stay until it is known what they take, unless that is too much as it
            // is.
            false => fits.max(workers.min(stay)),
        };
        // Nobody goes for what was: a fifth would at each look, for as long as the level stays.
        let most = match (self.pressure.seen(), self.pressure.level()) {
            (Level::Out, _) => part(OUT),
            (Level::Short, _) => part(SHORT),
            (_, Level::Calm) => now,
            _ => workers,
        };
        most.min(long).max(1)
    }

    /// So many workers of a pool are on their way.
    pub fn promise(&mut self, pool: &str, workers: usize) {
        let known = self.pools.get(pool);
        let worker = known.map_or(UNKNOWN_WORKER_BYTES, Known::worker);
        self.promised += worker * workers as f64;
    }

    /// Whether it is known what the workers of all pools take: until then it is good to look more often.
    pub fn are_known(&self) -> bool {
        self.pools.values().all(Known::is_known)
    }

    /// Whether there is so much memory that what workers take need not be known soon.
    pub fn are_far_from_the_limit(&self) -> bool {
        let is_far = |memory: &Memory| memory.used + self.promised <= FAR * memory.limit;
        self.level() == Level::Calm && self.memory.as_ref().is_some_and(is_far)
    }

    /// How hard memory is pressed.
    pub fn level(&self) -> Level {
        self.pressure.level()
    }

    /// Whether anybody tells how much memory there is.
    pub fn is_readable(&self) -> bool {
        self.memory.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1024.0 * 1024.0;

    fn memory(limit: f64, used: f64) -> Option<Memory> {
        Some(Memory {
            limit: limit * MB,
            used: used * MB,
            by_group: true,
        })
    }

    fn signs(memory: Option<Memory>) -> Signs {
        Signs {
            used: memory.map(|memory| memory.used / memory.limit),
            ..Signs::default()
        }
    }

    fn looked(memory: Option<Memory>) -> Rooms {
        let mut rooms = Rooms::default();
        rooms.look(
            Duration::ZERO,
            memory,
            &signs(memory),
            &HashSet::from(["www"]),
        );
        rooms
    }

    /// A second of a pool whose workers have what `has` says.
    fn follow(
        rooms: &mut Rooms,
        second: u64,
        used: f64,
        workers: &[i32],
        has: impl Fn(i32) -> f64,
    ) {
        let mut budget = Budget {
            exactly: 16,
            roughly: 64,
        };
        for due in rooms.due("www", (workers, 100 * second), &mut budget) {
            let own = has(due.worker) * MB;
            rooms.measured("www", due, Has { own, most: None });
        }
        let memory = memory(4096.0, used);
        let pools = HashSet::from(["www"]);
        rooms.look(Duration::from_secs(second), memory, &signs(memory), &pools);
    }

    #[test]
    fn what_is_promised_is_not_promised_again() {
        let mut rooms = looked(memory(4000.0, 2000.0));
        // 1600 MB are free of which a worker takes 128 as far as anybody knows.
        assert_eq!(rooms.workers("www", 3), 12);
        rooms.promise("www", 9);
        assert_eq!(rooms.workers("www", 12), 12);
        rooms.promise("www", 20);
        assert_eq!(rooms.workers("www", 33), 33);
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
        let mut rooms = Rooms::default();
        let turns = [(vec![1, 2], 0), (vec![1, 2], 150), (vec![2], 160)];
        let workers = turns.map(|(workers, requests)| {
            let mut budget = Budget {
                exactly: 16,
                roughly: 64,
            };
            for due in rooms.due("www", (&workers, requests), &mut budget) {
                let most = if due.worker == 1 { 120.0 } else { 40.0 };
                let (own, most) = (20.0 * MB, Some(most * MB));
                rooms.measured("www", due, Has { own, most });
            }
            let memory = memory(1024.0, 100.0);
            rooms.look(
                Duration::ZERO,
                memory,
                &signs(memory),
                &HashSet::from(["www"]),
            );
            rooms.workers("www", workers.len())
        });
        // About 860 MB are for workers of 128, then of 120 and a little: none of 150 requests took more.
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
        let mut rooms = Rooms::default();
        let fits: Vec<usize> = [0, 3, 30, 150]
            .into_iter()
            .map(|requests| {
                let mut budget = Budget {
                    exactly: 16,
                    roughly: 64,
                };
                for due in rooms.due("www", (&[1, 2], requests), &mut budget) {
                    let (own, most) = (20.0 * MB, Some(40.0 * MB));
                    rooms.measured("www", due, Has { own, most });
                }
                let memory = memory(1024.0, 100.0);
                rooms.look(
                    Duration::ZERO,
                    memory,
                    &signs(memory),
                    &HashSet::from(["www"]),
                );
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
        rooms.look(
            Duration::from_secs(61),
            less,
            &signs(less),
            &HashSet::from(["www"]),
        );
        // 1350 MB are to be used, and others have 1000.
        assert_eq!(rooms.workers("www", 20), 7);
    }
}
