//! How many workers there is memory for, and how hard memory is pressed.
//!
//! What counts of a worker is what it has for itself: what all share is there once, however many they
//! are. A pool must neither be swapped nor have the kernel end one of its workers, so a part of the
//! memory is left alone, and the requests that happen to take much at a time are counted with it.

use std::time::Duration;

/// The part of the memory that is left alone.
pub const MARGIN: f64 = 0.1;

/// By how many standard deviations what requests take together may be above its average. The part that is
/// left alone is for what goes beyond.
const DEVIATIONS: f64 = 3.5;

/// More workers than this are not told apart.
const MOST: f64 = 10_000.0;

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Capacity {
    /// What the pool and all others may have together: the least limit of its control group and all
    /// those around it, or what the machine has.
    pub limit: f64,
    /// What is not the workers' own: other processes, and what the workers share.
    pub base: f64,
    /// What a worker has for itself on average, with what its request and its children take.
    pub worker: f64,
    /// By how much that scatters (standard deviation).
    pub deviation: f64,
    /// And what one has at most.
    pub most: f64,
}

impl Capacity {
    /// What workers may have for themselves, in bytes.
    pub fn usable(&self) -> f64 {
        (self.limit * (1.0 - MARGIN) - self.base).max(0.0)
    }

    /// Most workers of which there is room for all. Nothing is known of a worker's memory: nothing.
    pub fn workers(&self) -> Option<usize> {
        if self.worker <= 0.0 {
            return None;
        }
        let beyond = (self.most - self.worker).max(0.0);
        let takes = |workers: f64| {
            let together = reserve(workers * self.deviation * self.deviation);
            workers * self.worker + together.max(beyond).min(workers * beyond)
        };
        // On average there would be room for so many. The more there are, the more they take.
        let most = (self.usable() / self.worker).floor().min(MOST) as usize;
        let (mut fit, mut too_many) = (0, most + 1);
        while fit + 1 < too_many {
            let middle = fit + (too_many - fit) / 2;
            if takes(middle as f64) <= self.usable() {
                fit = middle
            } else {
                too_many = middle
            }
        }
        Some(fit)
    }
}

/// What is kept free for what takes `variance` beside its average, in bytes.
pub fn reserve(variance: f64) -> f64 {
    DEVIATIONS * variance.max(0.0).sqrt()
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

/// From which part of the limit on anything but this part counts.
const COUNTS_FROM: f64 = 0.7;

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
    /// What the signs of the last look say by themselves.
    seen: Level,
}

impl Pressure {
    /// The level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// What the signs of the last look say by themselves: what is above that has helped already, and waits.
    pub fn seen(&self) -> Level {
        self.seen
    }

    /// Looks at the signs; to be called about once a second.
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
    /// Waits, swapping and events say nothing where there is enough: other processes read files, and what
    /// the kernel keeps of files fills every limit.
    fn without_what_others_wait_for(&self) -> Signs {
        match self.used {
            Some(used) if used < COUNTS_FROM => Signs {
                used: self.used,
                ..Signs::default()
            },
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
        Signs {
            used: Some(part),
            ..Signs::default()
        }
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
        // All at their most: there is room for no fewer than that.
        assert_eq!(room(1e9).workers(), Some(13));
    }

    #[test]
    fn where_others_have_all_there_is_there_is_room_for_none() {
        let room = Capacity {
            limit: 100.0 * MB,
            base: 95.0 * MB,
            worker: MB,
            ..Capacity::default()
        };
        assert_eq!(room.workers(), Some(0));
        assert_eq!(Capacity::default().workers(), None, "nothing was measured");
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
        let of_others = Signs {
            used: Some(0.14),
            swaps_in: true,
            at_limit: true,
            ..some(0.9)
        };
        assert_eq!(level(of_others), Level::Calm, "there is enough");
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
