//! Measures the speed of the disk. The thread that serves a client reads and writes small pages
//! itself, which is best as long as the disk is fast; a slow disk would stall all clients of the
//! thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use maitred_pagecache::Millis;

/// The longest that a serving thread may wait for the disk without consequence. Reads from the
/// kernel's page cache take some microseconds.
const QUICK: Duration = Duration::from_millis(20);

/// How long the disk counts as slow afterwards, in milliseconds.
const SLOW_FOR: Millis = 10_000;

/// The pace of one disk.
#[derive(Debug, Default)]
pub struct DiskPace {
    slow_until: AtomicU64,
}

impl DiskPace {
    /// Whether the disk is so slow that other threads have to access it.
    pub fn is_slow(&self, now: Millis) -> bool {
        let until = self.slow_until.load(Ordering::Relaxed);
        // A clock that was set back must not prolong it.
        until > now && until - now <= SLOW_FOR
    }

    /// Calls a function that uses the disk, and measures it.
    pub fn measure<T>(&self, work: impl FnOnce() -> T, now: impl FnOnce() -> Millis) -> T {
        let begun = Instant::now();
        let done = work();
        let took = begun.elapsed();
        if took > QUICK {
            self.note_slow(took, now());
        }
        done
    }

    fn note_slow(&self, took: Duration, now: Millis) {
        let is_news = !self.is_slow(now);
        self.slow_until.store(now + SLOW_FOR, Ordering::Relaxed);
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
    use super::*;

    #[test]
    fn a_disk_is_slow_for_a_while_after_it_has_been() {
        let pace = DiskPace::default();
        assert_eq!(pace.measure(|| 7, || 1000), 7);
        assert!(!pace.is_slow(1000));
        pace.note_slow(Duration::from_millis(21), 1000);
        assert!(pace.is_slow(1001) && pace.is_slow(10_999));
        pace.note_slow(Duration::from_millis(21), 9000);
        assert!(pace.is_slow(18_999) && !pace.is_slow(19_000));
        assert!(!pace.is_slow(500), "the clock was set back");
    }

    #[test]
    fn what_takes_long_is_noted() {
        let pace = DiskPace::default();
        pace.measure(|| std::thread::sleep(QUICK * 2), || 1000);
        assert!(pace.is_slow(1000));
    }
}
