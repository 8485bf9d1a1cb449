//! Workers that would be used, from the requests in flight at each arrival.
//!
//! An arriving request sees what requests experience (for Poisson arrivals the average over time as
//! well), however requests arrive and however long they take: no model of either is needed. With
//! `n` workers that only wait, the request that makes `in_hand` requests in flight waits about
//! `(in_hand - n) / n` times as long as a request takes; with workers that work, less, since it
//! would have waited for a processor in any case ([`Pace::enough`](crate::knee::Pace::enough)). So
//! the pool has enough workers when at most [`WAITING_SHARE`] of all requests wait longer than
//! `patience`, as a part of that time, behind those in flight.

use std::collections::VecDeque;
use std::time::Duration;

/// Share of requests that may wait longer than acceptable.
pub const WAITING_SHARE: f64 = 0.01;

/// The time that the pool remembers: it keeps the workers needed in it.
pub const REMEMBERED: Duration = Duration::from_secs(300);

/// Parts of that time that are dropped at once.
const PARTS: usize = 10;

/// Distinguished numbers of workers.
const COUNTED: usize = 4096;

/// Workers needed at arrivals.
#[derive(Debug, Default)]
pub struct Demand {
    /// The newest last; at most [`PARTS`].
    parts: VecDeque<Part>,
    /// This many were enough for all but a few.
    keep: usize,
}

#[derive(Debug, Default)]
struct Part {
    began: Duration,
    arrivals: u64,
    /// Arrivals by the number of workers that were enough.
    found: Vec<u32>,
}

/// Spare workers above the average that are busy, in square roots of it: less than one in ten
/// requests waits (Erlang-C).
const ABOVE_AVERAGE: f64 = 2.0;

/// Workers that are enough for `load` requests in flight on average (their rate times their time),
/// if arrivals were not counted.
pub fn offered(load: f64) -> usize {
    (load + ABOVE_AVERAGE * load.max(0.0).sqrt()).ceil().max(1.0) as usize
}

impl Demand {
    /// A request has arrived for which `needed` workers are enough.
    pub fn arrived(&mut self, needed: usize) {
        if self.parts.is_empty() {
            self.parts.push_back(Part::default());
        }
        let Some(part) = self.parts.back_mut() else {
            return;
        };
        let place = needed.min(COUNTED - 1);
        if part.found.len() <= place {
            part.found.resize(place + 1, 0);
        }
        part.found[place] = part.found[place].saturating_add(1);
        part.arrivals += 1;
    }

    /// Closes the interval; called about once a second while requests arrive.
    pub fn look(&mut self, now: Duration) {
        let part_of = REMEMBERED / PARTS as u32;
        while self.parts.front().is_some_and(|part| now.saturating_sub(part.began) > REMEMBERED) {
            self.parts.pop_front();
        }
        let is_over = |part: &Part| now.saturating_sub(part.began) >= part_of;
        if self.parts.back().is_none_or(is_over) {
            self.parts.push_back(Part { began: now, ..Part::default() });
        }
        self.keep = self.quantile();
    }

    /// Whether any request has arrived in the remembered time.
    pub fn has_come(&self) -> bool {
        self.parts.iter().any(|part| part.arrivals > 0)
    }

    /// The number of workers worth keeping.
    pub fn keep(&self) -> usize {
        self.keep
    }

    fn quantile(&self) -> usize {
        let arrivals: u64 = self.parts.iter().map(|part| part.arrivals).sum();
        // Among few arrivals one may be an exception.
        let mut may_wait = ((arrivals as f64 * WAITING_SHARE) as u64).max(1);
        let most = self.parts.iter().map(|part| part.found.len()).max();
        let needed = (0..most.unwrap_or(0)).rev().find(|place| {
            let at = |part: &Part| u64::from(part.found.get(*place).copied().unwrap_or(0));
            let found: u64 = self.parts.iter().map(at).sum();
            let is_within = found <= may_wait;
            may_wait = may_wait.saturating_sub(found);
            !is_within
        });
        needed.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_in_a_hundred_may_find_more() {
        let mut demand = Demand::default();
        (0..990).for_each(|_| demand.arrived(5));
        (0..10).for_each(|_| demand.arrived(40));
        demand.look(seconds(1));
        assert_eq!(demand.keep(), 5);
        demand.arrived(40);
        demand.look(seconds(2));
        assert_eq!(demand.keep(), 40, "eleven of 1001 are more than that");
    }

    #[test]
    fn one_of_few_is_an_exception_and_two_are_not() {
        let mut demand = Demand::default();
        (0..20).for_each(|_| demand.arrived(1));
        demand.arrived(7);
        demand.look(seconds(1));
        assert_eq!(demand.keep(), 1);
        demand.arrived(6);
        demand.look(seconds(2));
        assert_eq!(demand.keep(), 6);
    }

    #[test]
    fn what_is_in_hand_on_average_and_two_roots_of_it_is_enough() {
        assert_eq!([0.0, 4.0, 10.0, 100.0].map(offered), [1, 8, 17, 120]);
        assert_eq!(offered(f64::NAN), 1);
    }

    #[test]
    fn what_was_needed_is_kept_for_five_minutes_and_then_forgotten() {
        let mut demand = Demand::default();
        demand.look(seconds(0));
        (0..50).for_each(|_| demand.arrived(8));
        for second in 1..=299 {
            demand.look(seconds(second));
            assert_eq!(demand.keep(), 8);
        }
        demand.look(seconds(301));
        assert_eq!(demand.keep(), 0);
        assert!(demand.parts.len() <= PARTS + 1);
    }

    #[test]
    fn a_clock_that_jumps_forgets_and_breaks_nothing() {
        let mut demand = Demand::default();
        demand.look(seconds(1_000_000));
        (0..2).for_each(|_| demand.arrived(usize::MAX));
        demand.look(seconds(5));
        assert_eq!(demand.keep(), COUNTED - 1);
    }
}
