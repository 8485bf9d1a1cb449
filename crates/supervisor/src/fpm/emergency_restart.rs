//! php-fpm's `emergency_restart_threshold` and `emergency_restart_interval`: workers that crash in
//! a row are a sign of corrupted shared memory, and every pool is restarted. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::Moment;

/// The signals that count: SIGSEGV and SIGBUS (signal(7)).
const CRASHES: [i32; 2] = [11, 7];

/// Most crashes that are stored. A larger threshold is never reached.
const MAX_CRASHES: usize = 65_536;

/// This many crashes within the interval restart every pool. Zero, for either, is never.
#[derive(Debug, Clone, Copy)]
pub struct CrashRule {
    /// `emergency_restart_threshold`.
    pub threshold: u32,
    /// `emergency_restart_interval`.
    pub interval: Duration,
}

/// The times of recent crashes.
#[derive(Debug, Default)]
pub struct CrashCounter {
    crashes: VecDeque<Moment>,
}

impl CrashCounter {
    /// A signal has ended a worker. True if every pool is to be restarted; counting starts again
    /// then.
    #[must_use]
    pub fn ended_by(&mut self, signal: i32, rule: CrashRule, now: Moment) -> bool {
        let CrashRule { threshold, interval } = rule;
        let threshold = usize::try_from(threshold).unwrap_or(usize::MAX);
        if !CRASHES.contains(&signal) || threshold == 0 || interval.is_zero() {
            return false;
        }
        self.crashes.push_back(now);
        if self.crashes.len() > MAX_CRASHES {
            self.crashes.pop_front();
        }
        while self.crashes.front().is_some_and(|first| *first + interval < now) {
            self.crashes.pop_front();
        }
        let reached = self.crashes.len() >= threshold;
        if reached {
            self.crashes.clear();
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: CrashRule = rule(3, Duration::from_secs(10));
    const SIGSEGV: i32 = 11;

    const fn rule(threshold: u32, interval: Duration) -> CrashRule {
        CrashRule { threshold, interval }
    }

    fn at(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    #[test]
    fn so_many_crashes_within_the_interval_are_an_emergency_and_then_are_forgotten() {
        let mut emergency = CrashCounter::default();
        assert!(!emergency.ended_by(SIGSEGV, RULE, at(100)));
        assert!(!emergency.ended_by(7, RULE, at(105)));
        assert!(emergency.ended_by(SIGSEGV, RULE, at(110)));
        assert!(!emergency.ended_by(SIGSEGV, RULE, at(111)));
    }

    #[test]
    fn crashes_that_are_too_far_apart_are_none() {
        let mut emergency = CrashCounter::default();
        for seconds in (100..200).step_by(6) {
            assert!(!emergency.ended_by(SIGSEGV, RULE, at(seconds)));
        }
    }

    #[test]
    fn other_signals_and_rules_that_are_not_set_never_count() {
        let mut emergency = CrashCounter::default();
        for _ in 0..10 {
            assert!(!emergency.ended_by(9, RULE, at(100)));
            assert!(!emergency.ended_by(SIGSEGV, rule(0, RULE.interval), at(100)));
            assert!(!emergency.ended_by(SIGSEGV, rule(1, Duration::ZERO), at(100)));
        }
        assert!(emergency.ended_by(SIGSEGV, rule(1, RULE.interval), at(100)));
    }

    #[test]
    fn crashes_without_end_fill_no_memory() {
        let mut emergency = CrashCounter::default();
        let rule = rule(u32::MAX, Duration::from_secs(1 << 30));
        for _ in 0..MAX_CRASHES + 10 {
            assert!(!emergency.ended_by(SIGSEGV, rule, at(1)));
        }
        assert_eq!(emergency.crashes.len(), MAX_CRASHES);
    }
}
