//! The number of workers that fit into memory, and the pressure on memory.
//!
//! A worker costs its private memory: shared pages exist once, however many workers there are. A
//! pool must neither be swapped nor lose a worker to the OOM killer, so a part of the memory stays
//! free, and coinciding peaks of requests are included.

use std::time::Duration;

use crate::sources::Memory;

/// The part of the memory that stays free.
pub const MARGIN: f64 = 0.1;

/// The standard deviations by which the total of requests may exceed its average. The free part is
/// for the rest.
const DEVIATIONS: f64 = 3.5;

/// More workers are not distinguished.
const MOST: f64 = 10_000.0;

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Capacity {
    /// The limit of the pool and all others together: the least of its control group and its
    /// ancestors, or the machine's memory.
    pub limit: f64,
    /// Memory beside the workers' own: other processes, and shared pages.
    pub base: f64,
    /// Average private memory of a worker, with its request and its children.
    pub worker: f64,
    /// Its standard deviation.
    pub deviation: f64,
    /// Its maximum.
    pub most: f64,
}

impl Capacity {
    /// Memory for the workers, in bytes.
    pub fn usable(&self) -> f64 {
        (self.limit * (1.0 - MARGIN) - self.base).max(0.0)
    }

    /// Most workers that fit. `None` if a worker's memory is unknown.
    pub fn workers(&self) -> Option<usize> {
        if self.worker <= 0.0 {
            return None;
        }
        let beyond = (self.most - self.worker).max(0.0);
        let takes = |workers: f64| {
            let together = reserve(workers * self.deviation * self.deviation);
            workers * self.worker + together.max(beyond).min(workers * beyond)
        };
        // On average this many would fit. The more there are, the more they take.
        let most = (self.usable() / self.worker).floor().min(MOST) as usize;
        let (mut fit, mut too_many) = (0, most + 1);
        while fit + 1 < too_many {
            let middle = fit + (too_many - fit) / 2;
            if takes(middle as f64) <= self.usable() { fit = middle } else { too_many = middle }
        }
        Some(fit)
    }
}

/// The reserve for a scatter of `variance`, in bytes.
pub fn reserve(variance: f64) -> f64 {
    DEVIATIONS * variance.max(0.0).sqrt()
}

/// The pressure on memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// None.
    #[default]
    Calm,
    /// No worker is added.
    Careful,
    /// Idle workers exit.
    Short,
    /// Even busy pools shrink.
    Out,
}

/// The signs of pressure.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Signs {
    /// Memory in use, as a part of the limit; `None`: it cannot be read.
    pub used: Option<f64>,
    /// Share of the last ten seconds in which some process waited for memory (PSI `some`).
    pub some: Option<f64>,
    /// Share of it in which all did (PSI `full`).
    pub full: Option<f64>,
    /// Pages were read from swap since the last sample.
    pub swaps_in: bool,
    /// The kernel has throttled a group around the server for its own limit since then (`high` of
    /// `memory.events.local`).
    pub throttled: bool,
    /// Such a group has reached its own limit since then (`max` there).
    pub at_limit: bool,
}

/// Thresholds of each level: part of the limit, PSI `some` and PSI `full`.
const LEVELS: [(Level, f64, f64, f64); 3] = [
    (Level::Out, 0.96, f64::INFINITY, 0.01),
    (Level::Short, 0.92, 0.05, f64::INFINITY),
    (Level::Careful, 0.85, 0.01, f64::INFINITY),
];

/// The part of the limit from which the other signs count.
const COUNTS_FROM: f64 = 0.7;

/// The part of the limit from which pages from swap and events of a limit count. Below it, the
/// kernel has swapped pages out for another reason than lack of memory, such as the limit of
/// another control group, and a limit is reached by files alone, which are dropped at once.
const EVENTS_COUNT_FROM: f64 = 0.85;

/// The share of stalls (PSI `some`) from which events of a limit count below it: what is dropped to
/// keep the limit is needed.
const STALLS: f64 = 0.05;

/// The part of its own limit from which a pool's control group swaps for itself.
const SWAPS_FOR_ITSELF: f64 = 0.9;

/// The use has to drop by this before a level ends, as a part of the limit.
const USED_LESS: f64 = 0.05;

/// And the stalls to this part of the threshold.
const WAITED_LESS: f64 = 0.5;

/// Shortest time on a level.
const STAYS: Duration = Duration::from_secs(10);

/// The level, which rises at once and falls step by step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    level: Level,
    since: Duration,
    /// The level of the last signs alone.
    seen: Level,
}

impl Pressure {
    /// The level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The level of the last signs alone: a higher level has helped already, and holds.
    pub fn seen(&self) -> Level {
        self.seen
    }

    /// Evaluates the signs; called about once a second.
    pub fn look(&mut self, now: Duration, signs: &Signs) -> Level {
        let signs = signs.without_what_others_wait_for();
        let reached = signs.reached(0.0, 1.0);
        self.seen = reached;
        if reached >= self.level {
            if reached > self.level {
                self.since = now;
            }
            self.level = reached;
            return self.level;
        }
        let still = signs.reached(USED_LESS, WAITED_LESS);
        if still < self.level && now.saturating_sub(self.since) >= STAYS {
            self.level = match self.level {
                Level::Out => Level::Short,
                Level::Short => Level::Careful,
                Level::Careful | Level::Calm => Level::Calm,
            };
            self.since = now;
        }
        self.level
    }
}

impl Signs {
    /// Beside control groups of pools with limits: the pages of one near its limit return from swap
    /// without end, whatever memory the server has.
    #[must_use]
    pub fn beside(self, mut pools: impl Iterator<Item = Memory>) -> Signs {
        let is_full = |pool: Memory| pool.part() >= SWAPS_FOR_ITSELF;
        Signs { swaps_in: self.swaps_in && !pools.any(is_full), ..self }
    }

    /// Stalls, swapping and events mean nothing where memory is free: other processes read files,
    /// and the kernel's file cache fills every limit.
    fn without_what_others_wait_for(&self) -> Signs {
        match self.used {
            Some(used) if used < COUNTS_FROM => Signs { used: self.used, ..Signs::default() },
            Some(used) if used < EVENTS_COUNT_FROM => {
                let stalls = self.some.is_some_and(|some| some >= STALLS);
                let (throttled, at_limit) = (self.throttled && stalls, self.at_limit && stalls);
                Signs { swaps_in: false, throttled, at_limit, ..*self }
            }
            _ => *self,
        }
    }

    fn reached(&self, used_less: f64, waited_part: f64) -> Level {
        let over = |value: Option<f64>, bound: f64| value.is_some_and(|value| value >= bound);
        let by_figures = LEVELS.into_iter().find(|(_, used, some, full)| {
            over(self.used, used - used_less)
                || over(self.some, some * waited_part)
                || over(self.full, full * waited_part)
        });
        let by_figures = by_figures.map_or(Level::Calm, |(level, ..)| level);
        let by_events = match (self.at_limit, self.swaps_in || self.throttled) {
            (true, _) => Level::Out,
            (false, true) => Level::Short,
            (false, false) => Level::Calm,
        };
        by_figures.max(by_events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1024.0 * 1024.0;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn used(part: f64) -> Signs {
        Signs { used: Some(part), ..Signs::default() }
    }

    #[test]
    fn a_machine_of_4_gigabytes_has_room_for_twice_as_many_as_the_guides_say() {
        let room = |deviation: f64| Capacity {
            limit: 4096.0 * MB,
            base: (900.0 + 128.0) * MB,
            worker: 70.0 * MB,
            most: 200.0 * MB,
            deviation: deviation * MB,
        };
        assert!((room(0.0).usable() / MB - 2658.4).abs() < 0.1);
        assert_eq!(room(30.0).workers(), Some(29));
        assert_eq!(room(10.0).workers(), Some(35));
        // All at their maximum: that many fit in any case.
        assert_eq!(room(1e9).workers(), Some(13));
    }

    #[test]
    fn where_others_have_all_there_is_there_is_room_for_none() {
        let room =
            Capacity { limit: 100.0 * MB, base: 95.0 * MB, worker: MB, ..Capacity::default() };
        assert_eq!(room.workers(), Some(0));
        assert_eq!(Capacity::default().workers(), None, "nothing was measured");
    }

    #[test]
    fn pressure_rises_at_once_and_falls_level_by_level() {
        let mut pressure = Pressure::default();
        assert_eq!(pressure.look(seconds(0), &used(0.84)), Level::Calm);
        assert_eq!(pressure.look(seconds(1), &used(0.97)), Level::Out);
        assert_eq!(pressure.look(seconds(2), &used(0.50)), Level::Out, "too soon");
        assert_eq!(pressure.look(seconds(11), &used(0.92)), Level::Out, "too near");
        let falls: Vec<Level> =
            [12, 13, 22, 32, 42].map(|second| pressure.look(seconds(second), &used(0.5))).to_vec();
        let expected = [Level::Short, Level::Short, Level::Careful, Level::Calm, Level::Calm];
        assert_eq!(falls, expected);
    }

    #[test]
    fn each_sign_alone_is_enough() {
        let level = |signs: Signs| Pressure::default().look(seconds(0), &signs);
        let signs = Signs::default();
        assert_eq!(level(signs), Level::Calm, "nothing can be read");
        let some = |part| Signs { some: Some(part), ..signs };
        assert_eq!(level(some(0.02)), Level::Careful);
        let of_others = Signs { used: Some(0.14), swaps_in: true, at_limit: true, ..some(0.9) };
        assert_eq!(level(of_others), Level::Calm, "there is enough");
        assert_eq!(level(some(0.9)), Level::Short);
        assert_eq!(level(Signs { full: Some(0.02), ..signs }), Level::Out);
        assert_eq!(level(Signs { swaps_in: true, ..signs }), Level::Short);
        assert_eq!(level(Signs { throttled: true, ..signs }), Level::Short);
        assert_eq!(level(Signs { at_limit: true, ..signs }), Level::Out);
    }

    #[test]
    fn a_limit_that_is_reached_is_a_sign_where_memory_is_nearly_full_or_tasks_wait_for_it() {
        let level = |signs: Signs| Pressure::default().look(seconds(0), &signs);
        let reached = |part, some| Signs { at_limit: true, some: Some(some), ..used(part) };
        let throttled = |part, some| Signs { throttled: true, some: Some(some), ..used(part) };
        assert_eq!(level(reached(0.84, 0.0)), Level::Calm);
        assert_eq!(level(throttled(0.84, 0.0)), Level::Calm);
        assert_eq!(level(reached(0.84, 0.02)), Level::Careful, "by the stalls");
        assert_eq!(level(reached(0.84, 0.06)), Level::Out);
        assert_eq!(level(reached(0.86, 0.0)), Level::Out);
        assert_eq!(level(throttled(0.86, 0.0)), Level::Short);
        assert_eq!(level(Signs { at_limit: true, ..used(0.86) }), Level::Out, "without PSI");
    }

    #[test]
    fn pages_from_swap_are_a_sign_where_memory_is_nearly_full_and_no_pool_is_at_its_own_limit() {
        let level = |signs: Signs| Pressure::default().look(seconds(0), &signs);
        let swaps = |part| Signs { swaps_in: true, ..used(part) };
        assert_eq!(level(swaps(0.84)), Level::Calm);
        assert_eq!(level(swaps(0.86)), Level::Short);
        let pool = |used| Memory { limit: 100.0, used, by_group: true };
        let beside = |pools: &[Memory]| level(swaps(0.86).beside(pools.iter().copied()));
        assert_eq!(beside(&[]), Level::Short);
        assert_eq!(beside(&[pool(80.0)]), Level::Short);
        assert_eq!(beside(&[pool(80.0), pool(120.0)]), Level::Careful);
    }
}
