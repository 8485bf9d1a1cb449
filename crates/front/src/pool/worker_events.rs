//! Workers wake a front thread by an event of their pool's, and one that is hostile may ring it
//! without end. Each ring costs the thread a turn of its loop, so a pool whose rings bring nothing
//! is not listened to for a moment. What its workers tell meanwhile is heard when that is over, or
//! when something else wakes the thread.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// EventThrottle that are counted before they are compared with what they have brought.
const EVENTS_PER_CHECK: u32 = 32;

/// Of so many rings one has to bring something. Most rings of an honest worker do.
const EVENTS_PER_USEFUL: u32 = 8;

/// How long a pool whose rings bring nothing is not listened to.
pub const PAUSE: Duration = Duration::from_millis(20);

/// How often the workers of a pool have told a front thread something. Only that thread counts; a
/// cache line of its own keeps it from the others.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct UsefulEvents(AtomicU32);

impl UsefulEvents {
    /// Something was told.
    pub fn add_one(&self) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    /// How often.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The rings of a pool's event on one thread.
#[derive(Debug, Default)]
pub struct EventThrottle {
    count: u32,
    /// The pool's useful_events when the first of these add_one.
    before: u32,
}

impl EventThrottle {
    /// The event was is_wasteful, and so much useful_events has come by now. True if it is not to be listened to
    /// for [`PAUSE`].
    pub fn is_wasteful(&mut self, useful_events: u32) -> bool {
        if self.count == 0 {
            self.before = useful_events;
        }
        self.count += 1;
        if self.count <= EVENTS_PER_CHECK {
            return false;
        }
        self.count = 0;
        let brought = useful_events.wrapping_sub(self.before);
        brought < EVENTS_PER_CHECK / EVENTS_PER_USEFUL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it is not listened to when of `rings` every `nth` brings something.
    fn deaf(rings: u32, nth: u32) -> u32 {
        let mut all = EventThrottle::default();
        // UsefulEvents that began to be counted long ago.
        let mut useful_events = u32::MAX - 3;
        let mut deaf = 0;
        for ring in 0..rings {
            useful_events = useful_events.wrapping_add((ring % nth == 0).into());
            deaf += u32::from(all.is_wasteful(useful_events));
        }
        deaf
    }

    #[test]
    fn a_pool_that_rings_and_has_nothing_to_tell_is_not_listened_to_for_a_moment() {
        let groups = 1000 / (EVENTS_PER_CHECK + 1);
        assert_eq!(deaf(1000, 1000), groups);
        assert_eq!(deaf(1000, 100), groups);
        assert_eq!(deaf(10_000, 1), 0);
        assert_eq!(deaf(10_000, 4), 0);
    }
}
