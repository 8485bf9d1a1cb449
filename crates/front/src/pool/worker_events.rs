//! Limits the wake-ups of a front thread by workers. Workers wake it through an eventfd of their
//! pool, which a hostile one may write to without end. Each event costs the thread a turn of its
//! loop, so a pool with useless events is ignored for a moment. Output of its workers in that time
//! is read afterwards, or at another event.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Events that are counted before they are compared with the useful ones.
const EVENTS_PER_CHECK: u32 = 32;

/// One of this many events has to be useful. Most events of an honest worker are.
const EVENTS_PER_USEFUL: u32 = 8;

/// The time for which a pool without useful events is ignored.
pub const PAUSE: Duration = Duration::from_millis(20);

/// Number of events with output of a worker. Only one thread counts; a separate cache line avoids
/// sharing it with the others.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct UsefulEvents(AtomicU32);

impl UsefulEvents {
    /// Counts an event.
    pub fn add_one(&self) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    /// The number of events.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Limits the events of one pool on one thread.
#[derive(Debug, Default)]
pub struct EventThrottle {
    count: u32,
    /// Number of useful events at the first of these.
    useful_before: u32,
}

impl EventThrottle {
    /// Counts an event; `useful` is the total of useful ones. True if the pool is to be ignored for
    /// [`PAUSE`].
    pub fn is_wasteful(&mut self, useful: u32) -> bool {
        if self.count == 0 {
            self.useful_before = useful;
        }
        self.count += 1;
        if self.count <= EVENTS_PER_CHECK {
            return false;
        }
        self.count = 0;
        let new = useful.wrapping_sub(self.useful_before);
        new < EVENTS_PER_CHECK / EVENTS_PER_USEFUL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the pool is ignored when every `nth` of `events` is useful.
    fn pauses(events: u32, nth: u32) -> u32 {
        let mut throttle = EventThrottle::default();
        // Near the wrap-around of the counter.
        let mut useful = u32::MAX - 3;
        let mut pauses = 0;
        for event in 0..events {
            useful = useful.wrapping_add((event % nth == 0).into());
            pauses += u32::from(throttle.is_wasteful(useful));
        }
        pauses
    }

    #[test]
    fn a_pool_without_useful_events_is_ignored_for_a_moment() {
        let groups = 1000 / (EVENTS_PER_CHECK + 1);
        assert_eq!(pauses(1000, 1000), groups);
        assert_eq!(pauses(1000, 100), groups);
        assert_eq!(pauses(10_000, 1), 0);
        assert_eq!(pauses(10_000, 4), 0);
    }
}
