//! Search for the highest rate at which a setting holds the goal.

use maitred_measure::capacity::CapacitySearch;
use serde::Serialize;

use crate::measurement::{Measurement, Setting};

/// How often to repeat a rate at which the generator, not the server, was late.
const TRIES: u32 = 2;

/// How often a highest rate is confirmed, and how many rates are tried after one that did not last.
const CONFIRMATIONS: u32 = 3;
const AFTER_CONFIRMATION: usize = 3;

/// A rate that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct RateTrial {
    pub setting: Setting,
    pub rate: f64,
    pub holds: bool,
    /// The measured time.
    pub seconds: f64,
    pub served: f64,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub error_share: f64,
    pub generator_late: bool,
}

/// The next rate to try.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextRate {
    /// In requests a second.
    pub rate: f64,
    /// It is the highest, and is kept up for long to see whether it lasts.
    pub confirms: bool,
}

/// A search.
#[derive(Debug, Clone, PartialEq)]
pub struct RateSearch {
    setting: Setting,
    search: CapacitySearch,
    left: usize,
    late: u32,
    /// Remaining confirmations of the highest rate.
    confirmations: u32,
    /// Whether the highest rate has lasted.
    pub is_confirmed: bool,
    /// The last rate that held only for a short time.
    short_lived: Option<f64>,
    /// The rates tried so far.
    pub tries: Vec<RateTrial>,
}

impl RateSearch {
    /// Starts with a rate, and tries at most this many.
    pub fn new(setting: Setting, first: f64, most: usize) -> RateSearch {
        RateSearch {
            setting,
            search: CapacitySearch::new(first),
            left: most,
            late: 0,
            confirmations: 0,
            is_confirmed: false,
            short_lived: None,
            tries: Vec::new(),
        }
    }

    /// The same, and finally confirms that the highest rate lasts.
    pub fn lasting(setting: Setting, first: f64, most: usize) -> RateSearch {
        RateSearch { confirmations: CONFIRMATIONS, ..RateSearch::new(setting, first, most) }
    }

    /// The next rate to try; `None` at the end.
    pub fn next(&self) -> Option<NextRate> {
        let step = |rate, confirms| NextRate { rate, confirms };
        if self.is_confirmed {
            return None;
        }
        let searched = self.search.next().filter(|_| self.left > 0);
        searched.map(|rate| step(rate, false)).or_else(|| {
            let highest = self.search.highest().filter(|_| self.confirmations > 0)?;
            Some(step(highest, true))
        })
    }

    /// Ends the search for lack of time. Returns how many rates were tried.
    pub fn stop(&mut self) -> usize {
        self.left = 0;
        self.confirmations = 0;
        self.tries.len()
    }

    /// How many more rates may be tried.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Whether the highest rate still has to be confirmed.
    pub fn will_confirm(&self) -> bool {
        self.confirmations > 0 && !self.is_confirmed
    }

    /// Takes the result of the current rate.
    pub fn tried(&mut self, seen: &Measurement) {
        let Some(step) = self.next() else { return };
        self.tries.push(RateTrial {
            setting: self.setting,
            rate: step.rate,
            holds: seen.holds,
            seconds: seen.seconds,
            served: seen.rate,
            p50: seen.p50,
            p90: seen.p90,
            p99: seen.p99,
            error_share: seen.error_share,
            generator_late: seen.generator_late,
        });
        if step.confirms {
            return self.confirmed(seen.holds && !seen.generator_late);
        }
        self.left = self.left.saturating_sub(1);
        if seen.generator_late && self.late < TRIES {
            self.late += 1;
            return;
        }
        self.late = 0;
        let held = seen.holds && !seen.generator_late;
        self.search.tried(held);
        if held && self.short_lived.is_some() {
            // The next step confirms this rate.
            self.left = 0;
        }
    }

    fn confirmed(&mut self, lasted: bool) {
        self.confirmations -= 1;
        self.is_confirmed = lasted;
        if !lasted {
            self.short_lived = self.search.highest();
            self.search.did_not_last();
            self.left = AFTER_CONFIRMATION;
        }
    }

    /// The highest rate that held; if none has lasted, one that held for a short time.
    pub fn highest(&self) -> Option<f64> {
        self.search.highest().or(self.short_lived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates up to `capacity` hold, those up to `lasting` for long.
    fn run(mut rate_search: RateSearch, capacity: f64, lasting: f64) -> RateSearch {
        while let Some(step) = rate_search.next() {
            let most = if step.confirms { lasting } else { capacity };
            rate_search.tried(&Measurement { holds: step.rate <= most, ..Measurement::default() });
            assert!(rate_search.tries.len() < 50);
        }
        rate_search
    }

    fn short(capacity: f64, most: usize) -> RateSearch {
        let rate_search = RateSearch::new(Setting::AsItWas, 100.0, most);
        run(rate_search, capacity, 0.0)
    }

    #[test]
    fn the_highest_rate_is_found_within_its_tries() {
        let found = short(130.0, 9).highest().expect("a rate");
        assert!(found <= 130.0 && found > 120.0, "{found}");
        assert!(short(130.0, 3).highest().expect("a rate") >= 100.0);
        assert_eq!(short(0.0, 5).highest(), None);
    }

    #[test]
    fn a_rate_that_does_not_last_is_not_the_highest() {
        let rate_search = || RateSearch::lasting(Setting::AsItWas, 100.0, 9);
        let lasts = run(rate_search(), 130.0, 130.0);
        assert!(lasts.is_confirmed && lasts.highest().is_some_and(|rate| rate > 120.0));
        let less = run(rate_search(), 130.0, 115.0);
        let found = less.highest().expect("a rate");
        assert!(less.is_confirmed && (100.0..=115.0).contains(&found), "{found}");
        assert!(!run(rate_search(), 130.0, 20.0).is_confirmed, "it is not tried for ever");
    }

    #[test]
    fn a_rate_at_which_the_generator_was_late_says_nothing() {
        let mut rate_search = RateSearch::new(Setting::AsItWas, 100.0, 9);
        let next = |rate_search: &RateSearch| rate_search.next().map(|step| step.rate);
        let late = Measurement { generator_late: true, holds: false, ..Measurement::default() };
        rate_search.tried(&late);
        assert_eq!(next(&rate_search), Some(100.0));
        rate_search.tried(&late);
        rate_search.tried(&late);
        assert_ne!(next(&rate_search), Some(100.0), "it is not tried for ever");
    }
}
