//! How many workers there is memory for, and how hard memory is pressed.
//!
//! What counts of a worker is what it has for itself: what all share is there once, however many they
//! are. A pool must neither be swapped nor have the kernel end one of its workers, so a part of the
//! memory is left alone, the requests that happen to take much at a time are counted with it, and a
//! worker is paid for before it is forked ([`Ledger`]), since it shows what it takes only later.

use std::time::Duration;

/// The part of the memory that is left alone.
const MARGIN: f64 = 0.1;

/// By how many standard deviations what requests take together may be above its average.
const DEVIATIONS: f64 = 3.0;

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Room {
    /// What the pool and all others may have together: the least limit of its control group and all
    /// those around it, or what the machine has.
    pub limit: f64,
    /// What is not the workers' own: other processes, and what the workers share.
    pub base: f64,
    /// What one more worker takes: what nearly all have for themselves at most.
    pub worker: f64,
    /// What those that run take beside that for their requests, on average over time.
    pub peak: f64,
    /// And at most.
    pub peak_most: f64,
    /// By how much that scatters (standard deviation).
    pub peak_deviation: f64,
}

impl Room {
    /// What workers may have for themselves, in bytes.
    pub fn usable(&self) -> f64 {
        (self.limit * (1.0 - MARGIN) - self.base).max(0.0)
    }

    /// Most workers of which there is room for all when `busy` of them, as a part, run a request.
    /// Nothing is known of a worker's memory: nothing.
    pub fn workers(&self, busy: f64) -> Option<usize> {
        if self.worker <= 0.0 {
            return None;
        }
        let beyond = self.peak_most - self.peak;
        let takes = |workers: f64| {
            let running = workers * busy;
            let together = DEVIATIONS * running.sqrt() * self.peak_deviation;
            let scatter = together.max(beyond).min(workers * beyond);
            workers * self.worker + running * self.peak + scatter
        };
        // Without the requests it would be so many; each step down is one that does not fit.
        let mut workers = (self.usable() / self.worker).floor();
        while workers > 0.0 && takes(workers) > self.usable() {
            workers -= 1.0;
        }
        Some(workers as usize)
    }
}

/// What was promised to workers that do not have it yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    /// By worker: what each may still take, in bytes.
    promised: Vec<(u64, f64)>,
}

impl Ledger {
    /// Whether one more worker may be forked, of `usable` bytes of which `taken` are in use; if so, it
    /// is promised what it takes.
    pub fn reserve(&mut self, worker: u64, takes: f64, taken: f64, usable: f64) -> bool {
        let fits = taken + self.promised() + takes <= usable;
        if fits {
            self.promised.push((worker, takes));
        }
        fits
    }

    /// What a worker takes has been measured, or it is gone: from now on it is in what is taken.
    pub fn settle(&mut self, worker: u64) {
        self.promised.retain(|(one, _)| *one != worker);
    }

    /// What all of them may still take, in bytes.
    pub fn promised(&self) -> f64 {
        self.promised.iter().map(|(_, takes)| takes).sum()
    }
}

/// How hard memory is pressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Not at all.
    #[default]
    Calm,
    /// Nothing is added.
    Careful,
    /// What is not needed goes.
    Short,
    /// Less than what is needed has to do.
    Out,
}

/// What tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Signs {
    /// Memory in use, as a part of the limit; nothing: it cannot be read.
    pub used: Option<f64>,
    /// Part of the last ten seconds in which some process waited for memory (PSI `some`).
    pub some: Option<f64>,
    /// Part of it in which all did (PSI `full`).
    pub full: Option<f64>,
    /// Pages have come back from swap since the last look.
    pub swaps_in: bool,
    /// The kernel has slowed the group down since then (`high` of `memory.events`).
    pub throttled: bool,
    /// The group has run into its limit since then (`max` of `memory.events`).
    pub at_limit: bool,
}

/// From which part of the limit, of PSI `some` and of PSI `full` each level is.
const LEVELS: [(Level, f64, f64, f64); 3] = [
    (Level::Out, 0.96, f64::INFINITY, 0.01),
    (Level::Short, 0.92, 0.05, f64::INFINITY),
    (Level::Careful, 0.85, 0.01, f64::INFINITY),
];

/// So much less has to be in use before a level is left, as a part of the limit.
const USED_LESS: f64 = 0.05;

/// And so much less has to be waited, as a part of what the level began with.
const WAITED_LESS: f64 = 0.5;

/// Shortest time on a level.
const STAYS: Duration = Duration::from_secs(10);

/// The level, which goes up at once and down one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    level: Level,
    since: Duration,
}

impl Pressure {
    /// The level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Looks at the signs; to be called about once a second.
    pub fn look(&mut self, now: Duration, signs: &Signs) -> Level {
        let reached = signs.reached(0.0, 1.0);
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
        Signs {
            used: Some(part),
            ..Signs::default()
        }
    }

    #[test]
    fn a_machine_of_4_gigabytes_has_room_for_twice_as_many_as_the_guides_say() {
        let room = |deviation: f64| Room {
            limit: 4096.0 * MB,
            base: (900.0 + 128.0) * MB,
            worker: 70.0 * MB,
            peak: 0.0,
            peak_most: 130.0 * MB,
            peak_deviation: deviation * MB,
        };
        assert!((room(0.0).usable() / MB - 2658.4).abs() < 0.1);
        assert_eq!(room(30.0).workers(1.0), Some(30));
        assert_eq!(room(10.0).workers(1.0), Some(35));
    }

    #[test]
    fn where_others_have_all_there_is_there_is_room_for_none() {
        let room = Room {
            limit: 100.0 * MB,
            base: 95.0 * MB,
            worker: MB,
            ..Room::default()
        };
        assert_eq!(room.workers(1.0), Some(0));
        assert_eq!(Room::default().workers(1.0), None, "nothing was measured");
    }

    #[test]
    fn a_storm_of_forks_gets_no_more_than_there_is() {
        let mut ledger = Ledger::default();
        let forked = (0..50).filter(|worker| ledger.reserve(*worker, 20.0, 100.0, 256.0));
        assert_eq!(forked.count(), 7);
        ledger.settle(3);
        assert!(!ledger.reserve(50, 20.0, 120.0, 256.0), "it has taken it");
        assert!(ledger.reserve(51, 16.0, 120.0, 256.0));
        assert!((ledger.promised() - 136.0).abs() < 1e-9);
    }

    #[test]
    fn pressure_rises_at_once_and_falls_level_by_level() {
        let mut pressure = Pressure::default();
        assert_eq!(pressure.look(seconds(0), &used(0.84)), Level::Calm);
        assert_eq!(pressure.look(seconds(1), &used(0.97)), Level::Out);
        assert_eq!(
            pressure.look(seconds(2), &used(0.50)),
            Level::Out,
            "too soon"
        );
        assert_eq!(
            pressure.look(seconds(11), &used(0.92)),
            Level::Out,
            "too near"
        );
        let falls: Vec<Level> = [12, 13, 22, 32, 42]
            .map(|second| pressure.look(seconds(second), &used(0.5)))
            .to_vec();
        let expected = [
            Level::Short,
            Level::Short,
            Level::Careful,
            Level::Calm,
            Level::Calm,
        ];
        assert_eq!(falls, expected);
    }

    #[test]
    fn each_sign_alone_is_enough() {
        let level = |signs: Signs| Pressure::default().look(seconds(0), &signs);
        let signs = Signs::default();
        assert_eq!(level(signs), Level::Calm, "nothing can be read");
        let some = |part| Signs {
            some: Some(part),
            ..signs
        };
        assert_eq!(level(some(0.02)), Level::Careful);
        assert_eq!(level(some(0.9)), Level::Short);
        assert_eq!(
            level(Signs {
                full: Some(0.02),
                ..signs
            }),
            Level::Out
        );
        assert_eq!(
            level(Signs {
                swaps_in: true,
                ..signs
            }),
            Level::Short
        );
        assert_eq!(
            level(Signs {
                throttled: true,
                ..signs
            }),
            Level::Short
        );
        assert_eq!(
            level(Signs {
                at_limit: true,
                ..signs
            }),
            Level::Out
        );
    }
}
