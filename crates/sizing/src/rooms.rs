//! What memory there is for the workers of all pools that find their size, and who has been promised
//! what of it.
//!
//! About once a second somebody looks: how much is in use, and what some of the workers have for
//! themselves, with their children. Between two looks each worker that is ordered is paid for out of what
//! was there, so all pools together order no more than there is memory for.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use crate::memory::{Level, Pressure, Room, Signs, reserve};
use crate::sources::Memory;

/// Workers of a pool that are measured at a look: it costs the kernel a walk through their pages.
const MEASURED_AT_ONCE: usize = 4;

/// What a worker is taken to need, in bytes, until enough were measured: PHP's own `memory_limit`.
const UNKNOWN_WORKER_BYTES: f64 = 128.0 * 1024.0 * 1024.0;

/// Measures that say what workers take, how it scatters, and what one takes at most.
const ENOUGH: usize = 40;

/// Measures that are remembered.
const REMEMBERED: usize = 400;

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
    pools: BTreeMap<String, Known>,
}

/// What is known of a pool's workers.
#[derive(Debug, Default)]
struct Known {
    workers: usize,
    /// Which were measured, and what they had, in bytes; those that were last at the end.
    measured: VecDeque<(i32, f64)>,
    /// What workers had that were not measured for the first time, in bytes; the last at the end.
    had: VecDeque<f64>,
    mean: f64,
    variance: f64,
    most: f64,
}

impl Known {
    fn is_known(&self) -> bool {
        self.had.len() >= ENOUGH
    }

    /// What one more worker takes, in bytes.
    fn worker(&self) -> f64 {
        match self.is_known() {
            true => self.mean.max(1.0),
            false => self.most.max(UNKNOWN_WORKER_BYTES),
        }
    }

    fn unmeasured(&self) -> usize {
        self.workers.saturating_sub(self.measured.len())
    }

    /// What all have now, in bytes: those that were not measured are taken for the average of the others.
    fn own(&self) -> f64 {
        let sum: f64 = self.measured.iter().map(|(_, bytes)| bytes).sum();
        let count = self.measured.len().max(1) as f64;
        sum + sum / count * self.unmeasured() as f64
    }

    fn add(&mut self, bytes: f64) {
        self.had.push_back(bytes);
        if self.had.len() > REMEMBERED {
            self.had.pop_front();
        }
        let count = self.had.len() as f64;
        self.mean = self.had.iter().sum::<f64>() / count;
        let squares = self.had.iter().map(|had| (had - self.mean).powi(2));
        self.variance = squares.sum::<f64>() / count;
        self.most = self.had.iter().copied().fold(0.0, f64::max);
    }

    /// What its workers take beyond their average, all of them together, in bytes.
    fn beyond(&self) -> f64 {
        let workers = self.workers as f64;
        let most = workers * (self.most - self.mean);
        reserve(workers * self.variance).min(most.max(0.0))
    }
}

impl Rooms {
    /// Which of a pool's workers are to be measured now, by their process ids: those that were not yet,
    /// and some of the others in turn.
    pub fn due(&mut self, pool: &str, workers: &[i32]) -> Vec<i32> {
        let known = self.pools.entry(pool.to_owned()).or_default();
        known.workers = workers.len();
        let present: HashSet<i32> = workers.iter().copied().collect();
        known.measured.retain(|(one, _)| present.contains(one));
        let seen: HashSet<i32> = known.measured.iter().map(|(one, _)| *one).collect();
        let new = workers.iter().filter(|one| !seen.contains(one));
        let old = known.measured.iter().map(|(one, _)| *one);
        let new = new.copied().take(MEASURED_AT_ONCE);
        new.chain(old.take(MEASURED_AT_ONCE)).collect()
    }

    /// A worker has so many bytes for itself, its children's included.
    pub fn measured(&mut self, pool: &str, worker: i32, bytes: u64) {
        let known = self.pools.entry(pool.to_owned()).or_default();
        let bytes = bytes as f64;
        match known.measured.iter().position(|(one, _)| *one == worker) {
            // When it is young it has little, and says nothing of what it will have.
            None => known.measured.push_back((worker, bytes)),
            Some(place) => {
                known.measured.remove(place);
                known.measured.push_back((worker, bytes));
                known.add(bytes);
            }
        }
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
        let all = self.pools.values();
        self.promised = all
            .map(|known| known.unmeasured() as f64 * known.worker())
            .sum();
        let passed = now.saturating_sub(self.looked.unwrap_or(now));
        self.looked = Some(now);
        let Some(memory) = memory else {
            return;
        };
        let all = self.pools.values();
        let own: f64 = all.map(Known::own).sum();
        let base = (memory.used - own).max(0.0);
        self.looks += 1;
        let weight = 1.0 - (-passed.as_secs_f64() / AVERAGED_SECONDS).exp();
        let weight = match self.looks < FIRST_LOOKS {
            true => weight.max(1.0 / f64::from(self.looks)),
            false => weight,
        };
        let before = self.base.unwrap_or(base);
        self.base = Some(before + weight * (base - before));
    }

    /// How many workers a pool may have that has `workers`.
    pub fn workers(&self, pool: &str, workers: usize) -> usize {
        let part = |part: f64| ((workers as f64 * part) as usize).max(1);
        // Where nobody knows what there is, nothing is added.
        let (Some(memory), Some(base)) = (self.memory, self.base) else {
            return workers.max(1);
        };
        match self.pressure.level() {
            Level::Out => return part(OUT),
            Level::Short => return part(SHORT),
            Level::Careful => return workers.max(1),
            Level::Calm => {}
        }
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
        let long = match known.is_known() {
            true => self.for_long(known, &memory, base),
            // Those that are there may stay until it is known what they take.
            false => self.for_now(known, &memory, base).max(workers),
        };
        long.min(now).max(1)
    }

    /// For how many workers of which nobody knows what they take.
    fn for_now(&self, known: &Known, memory: &Memory, base: f64) -> usize {
        let room = Room {
            limit: memory.limit,
            base,
            ..Room::default()
        };
        (room.usable() / known.worker()) as usize
    }

    /// For how many workers there is room whatever their requests happen to take at a time.
    fn for_long(&self, known: &Known, memory: &Memory, base: f64) -> usize {
        let others = self.pools.values().filter(|one| !std::ptr::eq(*one, known));
        let others = others.map(|one| one.workers as f64 * one.mean + one.beyond());
        let room = Room {
            limit: memory.limit,
            base: base + others.sum::<f64>(),
            worker: known.worker(),
            deviation: known.variance.sqrt(),
            most: known.most,
        };
        room.workers().unwrap_or(usize::MAX)
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
        for worker in rooms.due("www", workers) {
            rooms.measured("www", worker, (has(worker) * MB) as u64);
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
    fn what_workers_were_found_to_take_makes_room_for_more_of_them() {
        let mut rooms = looked(memory(4096.0, 1000.0));
        let workers: Vec<i32> = (1..=8).collect();
        for second in 1..60 {
            follow(&mut rooms, second, 1000.0 + 8.0 * 20.0, &workers, |_| 20.0);
        }
        assert_eq!(rooms.workers("www", 8), 8 + 126);
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
        assert_eq!(rooms.workers("www", 20), 16);
    }
}
