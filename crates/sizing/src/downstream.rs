//! Finds out whether fewer workers would do as much, because all others only wait for the same
//! thing: a database with a limited number of connections, a lock.
//!
//! The waiting time of requests does not show that: a slow database and one with too many clients
//! look alike. So it is tried. While requests wait and processors are free, only as many workers
//! get requests for a while as would do if no request waited for another; if the throughput stays,
//! the others are let go. If it drops, but to much more than the proportion of workers, numbers
//! between the two are tried, until they are near each other. If each worker contributes its part,
//! all of them come back, and trials become rarer and rarer.
//!
//! Nothing is tried either if requests take no longer than without waiting for each other: then
//! each worker contributes its part.

use std::time::Duration;

/// The first trial uses at least this part of the workers.
const TRIED: f64 = 0.125;

/// If too few workers do more than this many times their proportion, all wait for the same thing,
/// and more are tried. Up to two thirds of the workers that do as much as all are found by that. If
/// each does its part and a trial has counted seven requests, one in ten is followed by another by
/// chance; with 1.25 it were one in four.
const MORE_THAN_ITS_PART: f64 = 1.5;

/// The time that requests take alone gives the least number of workers; some more are tried.
const MORE_THAN_ALONE: f64 = 1.25;

/// Two numbers whose ratio is at most this are not distinguished.
const NEAR: f64 = 1.33;

/// A drop by more than this part of the throughput is a drop.
const LESS: f64 = 0.012;

/// It counts at once when this many more square roots of the count are missing.
const CHANCE: f64 = 2.5;

/// A rise by this part is a rise.
const MORE: f64 = 0.02;

/// A drop to less than this part is clear when this many requests are missing: more than two roots
/// of the 400 that would have ended, and six of the 55 where an eighth is done.
const CLEARLY_LESS: f64 = 0.88;
const MISSING: f64 = 48.0;

/// Shortest and longest time of counting.
const COUNTS_FOR: Duration = Duration::from_secs(2);
const COUNTS_LONGEST: Duration = Duration::from_secs(20);

/// Requests that have to end in that time for a count to be valid, without a trial and in one, and
/// those after which it is final.
const ENOUGH: u64 = 8000;
const ENOUGH_TRIED: u64 = 4000;
const ENOUGH_FOR_SURE: u64 = 20_000;

/// Requests that have to end in the longest time, or it is not valid.
const ENOUGH_AT_LAST: u64 = 200;

/// The pause after the first trial without a result, and the longest one.
const RESTS: Duration = Duration::from_secs(30);
const RESTS_LONGEST: Duration = Duration::from_secs(960);

/// How long a result is valid.
const BELIEVED: Duration = Duration::from_secs(300);

/// Samples further apart are not about the pool: it, or the whole machine, was stopped in between.
const APART: Duration = Duration::from_secs(4);

/// A sample of a pool, about once a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolSample {
    /// Workers that serve.
    pub workers: usize,
    /// Requests that have ended since the last sample.
    pub done: u64,
    /// Requests wait although all workers are busy, and not all processors.
    pub is_stuck: bool,
    /// Workers that would have done as much if no request had waited for another.
    pub alone: f64,
}

/// The search for a common downstream limit.
#[derive(Debug, Default)]
pub struct Guard {
    /// Most workers that do more than fewer would.
    found: Option<usize>,
    found_at: Duration,
    /// This many did less.
    too_few: usize,
    step: TrialStep,
    /// Highest throughput, without a trial or in one.
    before: f64,
    /// With this many workers.
    all: usize,
    rests_until: Duration,
    rests: Duration,
    looked: Duration,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum TrialStep {
    /// Nothing is tried.
    #[default]
    Rest,
    /// The throughput without a trial is counted.
    Count { since: Duration, done: u64 },
    /// Workers beyond `workers` get no requests; their running ones have not ended yet.
    Settle { workers: usize },
    /// The throughput with `workers` is counted.
    Try { workers: usize, since: Duration, done: u64 },
}

/// The result of a trial.
struct Trial {
    workers: usize,
    /// Requests a second.
    rate: f64,
    /// The throughput is that without the trial.
    as_much: bool,
}

impl Guard {
    /// Most workers that contribute; `None`: no limit is known.
    pub fn limit(&self) -> Option<usize> {
        match self.step {
            TrialStep::Settle { workers } | TrialStep::Try { workers, .. } => Some(workers),
            TrialStep::Rest | TrialStep::Count { .. } => self.found,
        }
    }

    /// Called about once a second.
    pub fn look(&mut self, now: Duration, seen: &PoolSample) {
        if self.found.is_some() && now.saturating_sub(self.found_at) > BELIEVED {
            self.found = None;
            self.step = TrialStep::Rest;
        }
        let looked = std::mem::replace(&mut self.looked, now);
        if !seen.is_stuck {
            self.step = TrialStep::Rest;
            return;
        }
        if now.saturating_sub(looked) > APART {
            self.begin_again(now);
            return;
        }
        self.step = match self.step {
            TrialStep::Rest if now >= self.rests_until => {
                self.too_few = 0;
                TrialStep::Count { since: now, done: 0 }
            }
            TrialStep::Rest => TrialStep::Rest,
            TrialStep::Count { since, done } => {
                self.count(now, since, done.saturating_add(seen.done), seen)
            }
            TrialStep::Settle { workers } => TrialStep::Try { workers, since: now, done: 0 },
            TrialStep::Try { workers, since, done } => {
                self.weigh(now, workers, since, done.saturating_add(seen.done), seen)
            }
        };
    }

    /// The count so far is not valid.
    fn begin_again(&mut self, now: Duration) {
        self.step = match self.step {
            TrialStep::Count { .. } => TrialStep::Count { since: now, done: 0 },
            TrialStep::Try { workers, .. } => TrialStep::Settle { workers },
            other => other,
        };
    }

    fn count(&mut self, now: Duration, since: Duration, done: u64, seen: &PoolSample) -> TrialStep {
        let Some(rate) = rate(now.saturating_sub(since), done, ENOUGH) else {
            return TrialStep::Count { since, done };
        };
        self.before = rate;
        self.all = seen.workers;
        self.next(seen.workers, seen.alone)
    }

    fn weigh(
        &mut self,
        now: Duration,
        workers: usize,
        since: Duration,
        done: u64,
        seen: &PoolSample,
    ) -> TrialStep {
        let time = now.saturating_sub(since);
        let soon = done as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE);
        let expected = self.before * time.as_secs_f64();
        let is_clear = soon < CLEARLY_LESS * self.before && expected - done as f64 >= MISSING;
        let still = TrialStep::Try { workers, since, done };
        let Some(rate) = rate(time, done, ENOUGH_TRIED).or(is_clear.then_some(soon)) else {
            return still;
        };
        let less = 1.0 - rate / self.before;
        let is_sure = done >= ENOUGH_FOR_SURE || time >= COUNTS_LONGEST || is_clear;
        let as_much = less <= LESS;
        if as_much || is_sure || less > LESS + CHANCE / (done.max(1) as f64).sqrt() {
            let trial = Trial { workers, rate, as_much };
            self.judge(now, trial, seen.alone)
        } else {
            still
        }
    }

    fn judge(&mut self, now: Duration, trial: Trial, alone: f64) -> TrialStep {
        let Trial { workers, rate, as_much } = trial;
        let part = self.before * workers as f64 / self.all.max(1) as f64;
        let next = match (as_much, self.found) {
            (true, _) => {
                self.found = Some(workers);
                self.found_at = now;
                self.rests = Duration::ZERO;
                if rate > (1.0 + MORE) * self.before {
                    self.before = rate;
                }
                self.next(workers, alone)
            }
            // Fewer workers are enough, but not this few.
            (false, Some(enough)) => {
                self.too_few = workers;
                self.next(enough, 0.0)
            }
            (false, None) if rate > MORE_THAN_ITS_PART * part => {
                self.too_few = workers;
                self.next(self.all, 0.0)
            }
            (false, None) => TrialStep::Rest,
        };
        match (next, self.found) {
            (TrialStep::Rest, Some(_)) => self.rests_until = now + BELIEVED,
            (TrialStep::Rest, None) => {
                self.rests = (self.rests * 2).clamp(RESTS, RESTS_LONGEST);
                self.rests_until = now + self.rests;
            }
            _ => {}
        }
        next
    }

    /// The next trial, if there is one to make where `enough` workers are enough.
    fn next(&self, enough: usize, alone: f64) -> TrialStep {
        let least = (alone * MORE_THAN_ALONE).ceil() as usize;
        let few = match self.too_few {
            0 => (enough as f64 * TRIED).floor() as usize,
            too_few => ((enough * too_few) as f64).sqrt().ceil() as usize,
        };
        let few = few.max(least);
        let is_near = |fewer: usize| enough as f64 <= NEAR * fewer as f64;
        let none_between = few == 0 || few >= enough;
        if none_between || is_near(self.too_few) || few == least && is_near(few) {
            TrialStep::Rest
        } else {
            TrialStep::Settle { workers: few }
        }
    }
}

/// Requests a second, if the count is valid by now.
fn rate(time: Duration, done: u64, enough: u64) -> Option<f64> {
    let is_enough = time >= COUNTS_FOR && done >= enough;
    let is_at_last = time >= COUNTS_LONGEST && done >= ENOUGH_AT_LAST;
    (is_enough || is_at_last).then(|| done as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples a pool of up to 64 workers once a second; `does` gives their throughput, and `alone`
    /// is the number it would need.
    fn follow(
        guard: &mut Guard,
        seconds: std::ops::Range<u64>,
        alone: f64,
        does: impl Fn(usize) -> u64,
    ) {
        for second in seconds {
            let workers = guard.limit().unwrap_or(64);
            let seen = PoolSample { workers, done: does(workers), is_stuck: true, alone };
            guard.look(Duration::from_secs(second), &seen);
        }
    }

    #[test]
    fn workers_that_only_wait_for_ten_connections_are_let_go() {
        for alone in [0.0, 10.0, 14.0] {
            let mut guard = Guard::default();
            follow(&mut guard, 0..30, alone, |workers| 2000.min(workers as u64 * 143));
            let found = guard.found.unwrap_or_default();
            assert!((14..=19).contains(&found), "{found}: 14 do 2000");
        }
    }

    #[test]
    fn as_few_as_two_to_four_workers_that_do_as_much_are_found_and_believed_for_a_while() {
        for most in 2..=4 {
            let mut guard = Guard::default();
            follow(&mut guard, 0..60, 0.0, |workers| 1000 * workers.min(most) as u64);
            assert_eq!(guard.limit(), Some(most), "{guard:?}");
            assert_eq!(guard.step, TrialStep::Rest, "{most}: nothing is left to try");
            // The common limit has disappeared.
            follow(&mut guard, 60..500, 0.0, |workers| 1000 * workers as u64);
            assert_eq!(guard.limit(), None, "{most}: {guard:?}");
        }
    }

    #[test]
    fn a_third_to_two_thirds_of_the_workers_that_do_as_much_are_found() {
        for most in [20, 24, 28, 32, 36, 40] {
            let mut guard = Guard::default();
            follow(&mut guard, 0..120, 0.0, |workers| 100 * workers.min(most) as u64);
            let found = guard.found.unwrap_or(64);
            let near = (NEAR * most as f64) as usize;
            assert!((most..=near).contains(&found), "{found} for {most}");
        }
    }

    #[test]
    fn a_trial_for_nothing_is_over_when_enough_requests_are_missing() {
        // Of 64 workers with a throughput of `all` eight are tried, with an eighth of it.
        for all in [8, 16, 48, 64, 640] {
            let mut guard = Guard::default();
            let (mut tried, mut missing) = (0, 0);
            for second in 0..55 {
                let fewer = guard.limit().is_some();
                let done = if fewer { all / 8 } else { all };
                tried += u64::from(fewer);
                missing += all - done;
                follow(&mut guard, second..second + 1, 0.0, |_| done);
            }
            // A second until the requests of the others have ended, and at least one of counting.
            let longest = 1 + 55_u64.div_ceil(all);
            assert!((2..=longest).contains(&tried), "{all}: {tried} s");
            assert!(missing <= 2 * all + 48, "{all}: {missing} missing");
        }
    }

    #[test]
    fn where_requests_take_no_longer_than_alone_nothing_is_tried() {
        let mut guard = Guard::default();
        for second in 0..600 {
            let seen = PoolSample { workers: 64, done: 6400, is_stuck: true, alone: 64.0 };
            guard.look(Duration::from_secs(second), &seen);
            assert_eq!(guard.limit(), None);
        }
    }

    #[test]
    fn where_each_worker_does_its_part_they_come_back_and_nothing_is_tried_for_long() {
        let mut guard = Guard::default();
        let mut fewer = 0;
        for second in 0..3600 {
            let workers = guard.limit().unwrap_or(64);
            fewer += u32::from(workers < 64);
            follow(&mut guard, second..second + 1, 0.0, |workers| workers as u64 * 100);
        }
        assert_eq!(guard.found, None);
        assert!(fewer < 40, "fewer of them for {fewer} s of an hour");
    }

    #[test]
    fn what_was_found_is_forgotten_and_found_again() {
        let mut guard = Guard::default();
        let does = |most: u64| move |workers: usize| most.min(workers as u64 * 143);
        follow(&mut guard, 0..60, 0.0, does(2000));
        // Another database, which twice as many can use.
        follow(&mut guard, 60..900, 0.0, does(4000));
        assert!(guard.found.is_none_or(|found| found >= 28), "{guard:?}");
    }

    #[test]
    fn a_pool_that_was_stopped_while_it_was_looked_at_is_looked_at_again() {
        for stopped_after in 1..12 {
            let mut guard = Guard::default();
            let does = |workers: usize| workers as u64 * 100;
            follow(&mut guard, 0..stopped_after, 0.0, does);
            // An hour later, without requests.
            follow(&mut guard, 3600..3640, 0.0, does);
            assert_eq!(guard.found, None, "each worker does its part");
            follow(&mut guard, 3640..3660, 0.0, |workers| 1000.min(workers as u64 * 100));
        }
    }

    #[test]
    fn nothing_is_tried_while_nothing_waits() {
        let mut guard = Guard::default();
        let calm = PoolSample { workers: 64, done: 2000, is_stuck: false, alone: 0.0 };
        (0..100).for_each(|second| guard.look(Duration::from_secs(second), &calm));
        assert_eq!(guard.limit(), None);
        let absurd =
            PoolSample { workers: 1, done: u64::MAX / 2, is_stuck: true, alone: f64::INFINITY };
        (0..9).for_each(|_| guard.look(Duration::ZERO, &absurd));
        assert_eq!(guard.limit(), None, "one worker is not halved");
    }
}
