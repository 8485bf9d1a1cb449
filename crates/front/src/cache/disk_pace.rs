//! Measures the speed of the disk. The thread that serves a client reads and writes small pages
//! itself, which is best as long as the disk is fast; a slow disk would stall all clients of the
//! thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use maitred_pagecache::Millis;

use crate::cache::running_uses::RunningUses;

/// The longest that a serving thread may wait for the disk without consequence. Reads from the
/// kernel's page cache take some microseconds.
const QUICK: Duration = Duration::from_millis(20);

/// How long the disk counts as slow afterwards, in milliseconds; twice as long each time that it is
/// slow again soon after. Every attempt may stall the clients of a thread.
const SLOW_FOR: Millis = 10_000;

/// The longest, in milliseconds.
const MAX_SLOW_FOR: Millis = 10 * 60_000;

/// The pace of one disk.
#[derive(Debug, Default)]
pub struct DiskPace {
    slow_until: AtomicU64,
    /// The latest period; 0: it was never slow.
    slow_for: AtomicU64,
    running: RunningUses,
}

impl DiskPace {
    /// Whether the disk is so slow that other threads have to access it.
    pub fn is_slow(&self, now: Millis) -> bool {
        // One that does not end would hold one thread after the other.
        self.was_slow(now) || self.running.has_older(QUICK)
    }

    fn was_slow(&self, now: Millis) -> bool {
        let until = self.slow_until.load(Ordering::Relaxed);
        // A clock that was set back must not prolong it.
        until > now && until - now <= self.slow_for.load(Ordering::Relaxed)
    }

    /// Calls a function that uses the disk, and measures it.
    pub fn measure<T>(&self, work: impl FnOnce() -> T, now: impl FnOnce() -> Millis) -> T {
        let running = self.running.begin();
        let begun = Instant::now();
        let done = work();
        let took = begun.elapsed();
        if took > QUICK {
            self.note_slow(took, now());
        }
        drop(running);
        done
    }

    fn note_slow(&self, took: Duration, now: Millis) {
        let is_news = !self.was_slow(now);
        let mut slow_for = self.slow_for.load(Ordering::Relaxed).max(SLOW_FOR);
        if is_news {
            let was_fast_for = now.saturating_sub(self.slow_until.load(Ordering::Relaxed));
            let again = if was_fast_for < slow_for { slow_for * 2 } else { SLOW_FOR };
            slow_for = again.min(MAX_SLOW_FOR);
            self.slow_for.store(slow_for, Ordering::Relaxed);
        }
        self.slow_until.store(now + slow_for, Ordering::Relaxed);
        if is_news {
            tracing::warn!(
                "cache_dir has taken {} ms for a page: until it is fast again, other threads \
                 use it",
                took.as_millis()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_disk_is_slow_for_a_while_after_it_has_been() {
        let pace = DiskPace::default();
        assert_eq!(pace.measure(|| 7, || 101_000), 7);
        assert!(!pace.is_slow(101_000));
        pace.note_slow(Duration::from_millis(21), 101_000);
        assert!(pace.is_slow(101_001) && pace.is_slow(110_999));
        pace.note_slow(Duration::from_millis(21), 109_000);
        assert!(pace.is_slow(118_999) && !pace.is_slow(119_000));
        assert!(!pace.is_slow(100_500), "the clock was set back");
    }

    #[test]
    fn a_disk_that_is_slow_again_and_again_is_tried_less_and_less() {
        let (pace, took) = (DiskPace::default(), Duration::from_millis(21));
        let mut now = 100_000;
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600] {
            pace.note_slow(took, now);
            assert!(pace.is_slow(now + seconds * 1000 - 1), "{seconds} s");
            now += seconds * 1000;
            assert!(!pace.is_slow(now), "{seconds} s");
        }
        now += MAX_SLOW_FOR;
        pace.note_slow(took, now);
        assert!(!pace.is_slow(now + SLOW_FOR), "it was fast for long");
    }

    #[test]
    fn what_takes_long_is_noted() {
        let pace = DiskPace::default();
        pace.measure(|| thread::sleep(QUICK * 2), || 1000);
        assert!(pace.is_slow(1000));
    }
    #[test]
    fn a_disk_that_does_not_respond_is_slow_before_its_use_ends() {
        let pace = DiskPace::default();
        let (release, stuck) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| pace.measure(move || stuck.recv(), || 101_000));
            let begun = Instant::now();
            while !pace.is_slow(101_000) {
                assert!(begun.elapsed() < Duration::from_secs(60), "it is used by all threads");
                thread::yield_now();
            }
            drop(release);
        });
        assert!(pace.is_slow(101_001) && !pace.is_slow(101_000 + SLOW_FOR));
    }
}
