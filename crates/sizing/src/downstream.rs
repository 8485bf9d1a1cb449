//! Finds out whether fewer workers would do as much, because all that more of them do is to wait for
//! the same thing: a database with so many connections, a lock.
//!
//! That cannot be told from how long requests wait: a slow database and one that has too many
//! clients look alike. So it is tried. While requests wait and processors are free, a quarter of the
//! workers gets nothing for a while; if as much is done as before, they are let go and the next
//! quarter is tried, and if not, they come back and nothing is tried for longer and longer.

use std::time::Duration;

/// What is tried is this part of the workers there are.
const TRIED: f64 = 0.75;

/// Doing less than this part of what was done before is doing less.
const AS_MUCH: f64 = 0.97;

/// Doing less than this part is clear when so many would have ended.
const CLEARLY_LESS: f64 = 0.88;
const CLEAR: f64 = 400.0;

/// Shortest and longest time that what is done is counted.
const COUNTS_FOR: Duration = Duration::from_secs(3);
const COUNTS_LONGEST: Duration = Duration::from_secs(20);

/// Requests that have to end in that time for the count to say something.
const ENOUGH: u64 = 1000;

/// Requests that end in the longest time, or it says nothing.
const ENOUGH_AT_LAST: u64 = 200;

/// How long nothing is tried after the first trial that was none, and at most.
const RESTS: Duration = Duration::from_secs(30);
const RESTS_LONGEST: Duration = Duration::from_secs(960);

/// How long what was found is believed.
const BELIEVED: Duration = Duration::from_secs(300);

/// What is known of what requests wait for.
#[derive(Debug, Default)]
pub struct Guard {
    /// Most workers that do more than fewer would.
    found: Option<usize>,
    found_at: Duration,
    step: Step,
    /// Most requests a second, without a trial or in one.
    before: f64,
    rests_until: Duration,
    rests: Duration,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Step {
    /// Nothing is tried.
    #[default]
    Rest,
    /// What is done without a trial is counted.
    Count { since: Duration, done: u64 },
    /// Workers beyond `workers` get nothing; what they had is not over yet.
    Settle { workers: usize },
    /// What is done with `workers` is counted.
    Try {
        workers: usize,
        since: Duration,
        done: u64,
    },
}

impl Guard {
    /// Most workers that do anything; none: as many as there may be.
    pub fn limit(&self) -> Option<usize> {
        match self.step {
            Step::Settle { workers } | Step::Try { workers, .. } => Some(workers),
            Step::Rest | Step::Count { .. } => self.found,
        }
    }

    /// To be called about once a second: `workers` serve, `done` requests have ended since the last
    /// call, and `is_stuck` when requests wait although all workers and not all processors are busy.
    pub fn look(&mut self, now: Duration, workers: usize, done: u64, is_stuck: bool) {
        if self.found.is_some() && now.saturating_sub(self.found_at) > BELIEVED {
            self.found = None;
            self.step = Step::Rest;
        }
        if !is_stuck {
            self.step = Step::Rest;
            return;
        }
        self.step = match self.step {
            Step::Rest if now >= self.rests_until => Step::Count {
                since: now,
                done: 0,
            },
            Step::Rest => Step::Rest,
            Step::Count { since, done: sofar } => {
                let done = sofar + done;
                match rate(now.saturating_sub(since), done) {
                    None => Step::Count { since, done },
                    Some(rate) => {
                        self.before = rate;
                        tried(workers)
                    }
                }
            }
            Step::Settle { workers } => Step::Try {
                workers,
                since: now,
                done: 0,
            },
            Step::Try {
                workers: few,
                since,
                done: sofar,
            } => {
                let done = sofar + done;
                let time = now.saturating_sub(since);
                let soon = done as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE);
                let is_clear = soon < CLEARLY_LESS * self.before && self.expects(time) >= CLEAR;
                match rate(time, done).or(is_clear.then_some(soon)) {
                    None => Step::Try {
                        workers: few,
                        since,
                        done,
                    },
                    Some(rate) => self.judge(now, few, rate),
                }
            }
        };
    }

    /// How many requests would have ended by now without the trial.
    fn expects(&self, time: Duration) -> f64 {
        self.before * time.as_secs_f64()
    }

    fn judge(&mut self, now: Duration, workers: usize, rate: f64) -> Step {
        if rate >= AS_MUCH * self.before {
            self.found = Some(workers);
            self.found_at = now;
            self.rests = Duration::ZERO;
            self.before = self.before.max(rate);
            return tried(workers);
        }
        self.rests = (self.rests * 2).clamp(RESTS, RESTS_LONGEST);
        self.rests_until = now + self.rests;
        Step::Rest
    }
}

/// The next trial, if there is one to make of so many workers.
fn tried(workers: usize) -> Step {
    let few = (workers as f64 * TRIED).floor() as usize;
    match few {
        0 => Step::Rest,
        few => Step::Settle { workers: few },
    }
}

/// Requests a second, if they can be told by now.
fn rate(time: Duration, done: u64) -> Option<f64> {
    let is_enough = time >= COUNTS_FOR && done >= ENOUGH;
    let is_at_last = time >= COUNTS_LONGEST && done >= ENOUGH_AT_LAST;
    (is_enough || is_at_last).then(|| done as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once a second at a pool of up to 64 workers of which `does` says what they do.
    fn follow(guard: &mut Guard, seconds: std::ops::Range<u64>, does: impl Fn(usize) -> u64) {
        for second in seconds {
            let workers = guard.limit().unwrap_or(64);
            guard.look(Duration::from_secs(second), workers, does(workers), true);
        }
    }

    #[test]
    fn workers_that_only_wait_for_ten_connections_are_let_go() {
        let mut guard = Guard::default();
        follow(&mut guard, 0..60, |workers| 2000.min(workers as u64 * 143));
        assert_eq!(guard.found, Some(15), "14 do 2000");
    }

    #[test]
    fn where_each_worker_does_its_part_they_come_back_and_nothing_is_tried_for_long() {
        let mut guard = Guard::default();
        let mut fewer = 0;
        for second in 0..3600 {
            let workers = guard.limit().unwrap_or(64);
            fewer += u32::from(workers < 64);
            guard.look(
                Duration::from_secs(second),
                workers,
                workers as u64 * 10,
                true,
            );
        }
        assert_eq!(guard.found, None);
        assert!(fewer < 60, "fewer of them for {fewer} s of an hour");
    }

    #[test]
    fn what_was_found_is_forgotten_and_found_again() {
        let mut guard = Guard::default();
        follow(&mut guard, 0..60, |workers| 2000.min(workers as u64 * 143));
        // Another database, of which twice as many make use.
        follow(&mut guard, 60..900, |workers| {
            4000.min(workers as u64 * 143)
        });
        assert!(guard.found.is_none_or(|found| found >= 28), "{guard:?}");
    }

    #[test]
    fn nothing_is_tried_while_nothing_waits() {
        let mut guard = Guard::default();
        for second in 0..100 {
            guard.look(Duration::from_secs(second), 64, 2000, false);
        }
        assert_eq!(guard.limit(), None);
        guard.look(Duration::ZERO, 1, u64::MAX / 2, true);
        assert_eq!(tried(1), Step::Rest, "one worker is not halved");
    }
}
