//! Search for the highest rate that holds the objective: doubles the rate until it fails, then
//! bisects.

/// The search ends when the lowest failing rate is within this factor of the highest that holds.
const NEAR_ENOUGH: f64 = 1.05;

/// The lowest rate that is tried, in requests a second.
const LOWEST: f64 = 1.0;

/// The divisor of a rate that held, but not for long.
const GENTLY: f64 = 1.1;

/// Most rates that are tried.
pub const MAX_STEPS: usize = 40;

/// A server that serves less than this share of its capacity under overload has collapsed.
const GRACEFUL_SHARE: f64 = 0.9;

/// A search for the highest rate.
#[derive(Debug, Clone, PartialEq)]
pub struct CapacitySearch {
    holds: Option<f64>,
    fails: Option<f64>,
    next: f64,
    /// The divisor of a failing rate while no rate has held.
    fall: f64,
    steps: usize,
}

impl CapacitySearch {
    /// Starts with this rate.
    pub fn new(first: f64) -> CapacitySearch {
        CapacitySearch { holds: None, fails: None, next: first.max(LOWEST), fall: 2.0, steps: 0 }
    }

    /// The next rate to try; `None` when the search is over.
    pub fn next(&self) -> Option<f64> {
        let found = match (self.holds, self.fails) {
            (Some(holds), Some(fails)) => fails / holds <= NEAR_ENOUGH,
            (None, Some(fails)) => fails <= LOWEST,
            _ => false,
        };
        (!found && self.steps < MAX_STEPS).then_some(self.next)
    }

    /// Records whether the current rate held.
    pub fn tried(&mut self, held: bool) {
        self.steps += 1;
        if held {
            self.holds = Some(self.next);
        } else {
            self.fails = Some(self.next);
        }
        self.next = match (self.holds, self.fails) {
            // The geometric mean, since rates differ by factors.
            (Some(holds), Some(fails)) => (holds * fails).sqrt(),
            (Some(holds), None) => holds * 2.0,
            (None, Some(fails)) => (fails / self.fall).max(LOWEST),
            (None, None) => self.next,
        };
    }

    /// The highest rate held only for a short time: the search continues below it.
    pub fn did_not_last(&mut self) {
        self.fails = self.holds.take().or(self.fails);
        self.fall = GENTLY;
        let fails = self.fails.unwrap_or(self.next);
        self.next = (fails / GENTLY).max(LOWEST);
    }

    /// The highest rate that held.
    pub fn highest(&self) -> Option<f64> {
        self.holds
    }
}

/// The behaviour of a server beyond its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// It serves as much as at its capacity; further requests wait or are rejected.
    Graceful,
    /// It serves less.
    Collapse,
}

impl Shape {
    /// Compares the rate served in time at capacity with the lowest one beyond it.
    pub fn of(at_capacity: f64, beyond: f64) -> Shape {
        if beyond >= at_capacity * GRACEFUL_SHARE { Shape::Graceful } else { Shape::Collapse }
    }

    /// A description for people.
    pub fn words(self) -> &'static str {
        match self {
            Shape::Graceful => "graceful: it serves as much as at its capacity",
            Shape::Collapse => "collapse: it serves less than at its capacity",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(first: f64, capacity: f64) -> (Option<f64>, usize) {
        let mut search = CapacitySearch::new(first);
        while let Some(rate) = search.next() {
            search.tried(rate <= capacity);
        }
        (search.highest(), search.steps)
    }

    #[test]
    fn the_highest_rate_is_found_from_below_and_from_above() {
        for (first, capacity) in [(50.0, 740.0), (5_000.0, 740.0), (1.0, 31.0), (740.0, 740.0)] {
            let (found, steps) = search(first, capacity);
            let found = found.expect("a rate");
            assert!(found <= capacity && found > capacity / 1.06, "{found} of {capacity}");
            assert!(steps < 20, "{steps}");
        }
        assert_eq!(search(50.0, 0.0).0, None);
        assert_eq!(search(50.0, f64::INFINITY).1, MAX_STEPS);
    }

    #[test]
    fn what_did_not_last_is_not_the_answer() {
        let mut search = CapacitySearch::new(100.0);
        search.tried(true);
        search.did_not_last();
        assert_eq!(search.highest(), None);
        assert!(search.next().is_some_and(|rate| (90.0..91.0).contains(&rate)));
        search.tried(false);
        assert!(search.next().is_some_and(|rate| (82.0..83.0).contains(&rate)));
    }

    #[test]
    fn a_server_that_serves_less_when_it_is_asked_for_more_has_collapsed() {
        assert_eq!(Shape::of(100.0, 95.0), Shape::Graceful);
        assert_eq!(Shape::of(100.0, 40.0), Shape::Collapse);
    }
}
