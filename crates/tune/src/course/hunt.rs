//! The highest rate at which a setting holds the goal.

use maitred_measure::capacity::Search;
use serde::Serialize;

use crate::seen::{Seen, Setting};

/// How often a rate is tried at which the generator, not the server, was late.
const TRIES: u32 = 2;

/// A rate that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Try {
    pub setting: Setting,
    pub rate: f64,
    pub holds: bool,
    pub served: f64,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub error_share: f64,
    pub generator_late: bool,
}

/// A search that goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Hunt {
    setting: Setting,
    search: Search,
    left: usize,
    late: u32,
    /// What was tried so far.
    pub tries: Vec<Try>,
}

impl Hunt {
    /// Begins with a rate, and tries so many at most.
    pub fn new(setting: Setting, first: f64, most: usize) -> Hunt {
        Hunt {
            setting,
            search: Search::new(first),
            left: most,
            late: 0,
            tries: Vec::new(),
        }
    }

    /// The rate to try next; nothing when it is over.
    pub fn next(&self) -> Option<f64> {
        self.search.next().filter(|_| self.left > 0)
    }

    /// How many more rates there may be.
    pub fn left(&self) -> usize {
        self.left
    }

    /// What became of the rate that was tried.
    pub fn tried(&mut self, seen: &Seen) {
        let rate = self.search.next().unwrap_or(0.0);
        self.tries.push(Try {
            setting: self.setting,
            rate,
            holds: seen.holds,
            served: seen.rate,
            p50: seen.p50,
            p90: seen.p90,
            p99: seen.p99,
            error_share: seen.error_share,
            generator_late: seen.generator_late,
        });
        self.left = self.left.saturating_sub(1);
        if seen.generator_late && self.late < TRIES {
            self.late += 1;
            return;
        }
        self.late = 0;
        self.search.tried(seen.holds && !seen.generator_late);
    }

    /// The highest rate that held.
    pub fn highest(&self) -> Option<f64> {
        self.search.highest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(capacity: f64, most: usize) -> Hunt {
        let mut hunt = Hunt::new(Setting::AsItWas, 100.0, most);
        while let Some(rate) = hunt.next() {
            hunt.tried(&Seen {
                holds: rate <= capacity,
                ..Seen::default()
            });
        }
        hunt
    }

    #[test]
    fn the_highest_rate_is_found_within_its_tries() {
        let found = run(130.0, 9).highest().expect("a rate");
        assert!(found <= 130.0 && found > 120.0, "{found}");
        assert!(run(130.0, 3).highest().expect("a rate") >= 100.0);
        assert_eq!(run(0.0, 5).highest(), None);
    }

    #[test]
    fn a_rate_at_which_the_generator_was_late_says_nothing() {
        let mut hunt = Hunt::new(Setting::AsItWas, 100.0, 9);
        let late = Seen {
            generator_late: true,
            holds: false,
            ..Seen::default()
        };
        hunt.tried(&late);
        assert_eq!(hunt.next(), Some(100.0));
        hunt.tried(&late);
        hunt.tried(&late);
        assert_ne!(hunt.next(), Some(100.0), "it is not tried for ever");
    }
}
