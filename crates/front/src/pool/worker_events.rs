//! Workers wake a front thread by an event of their pool's, and one that is hostile may ring it
//! without end. Each ring costs the thread a turn of its loop, so a pool whose rings bring nothing
//! is not listened to for a moment. What its workers tell meanwhile is heard when that is over, or
//! when something else wakes the thread.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Rings that are counted before they are compared with what they have brought.
const RINGS_LOOKED_AT: u32 = 32;

/// Of so many rings one has to bring something. Most rings of an honest worker do.
const RINGS_PER_NEWS: u32 = 8;

/// How long a pool whose rings bring nothing is not listened to.
pub const DEAF_FOR: Duration = Duration::from_millis(20);

/// How often the workers of a pool have told a front thread something. Only that thread counts; a
/// cache line of its own keeps it from the others.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct News(AtomicU32);

impl News {
    /// Something was told.
    pub fn came(&self) {
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
pub struct Rings {
    count: u32,
    /// The pool's news when the first of these came.
    before: u32,
}

impl Rings {
    /// The event was rung, and so much news has come by now. True if it is not to be listened to
    /// for [`DEAF_FOR`].
    pub fn rung(&mut self, news: u32) -> bool {
        if self.count == 0 {
            self.before = news;
        }
        self.count += 1;
        if self.count <= RINGS_LOOKED_AT {
            return false;
        }
        self.count = 0;
        let brought = news.wrapping_sub(self.before);
        brought < RINGS_LOOKED_AT / RINGS_PER_NEWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it is not listened to when of `rings` every `nth` brings something.
    fn deaf(rings: u32, nth: u32) -> u32 {
        let mut all = Rings::default();
        // News that began to be counted long ago.
        let mut news = u32::MAX - 3;
        let mut deaf = 0;
        for ring in 0..rings {
            news = news.wrapping_add((ring % nth == 0).into());
            deaf += u32::from(all.rung(news));
        }
        deaf
    }

    #[test]
    fn a_pool_that_rings_and_has_nothing_to_tell_is_not_listened_to_for_a_moment() {
        let groups = 1000 / (RINGS_LOOKED_AT + 1);
        assert_eq!(deaf(1000, 1000), groups);
        assert_eq!(deaf(1000, 100), groups);
        assert_eq!(deaf(10_000, 1), 0);
        assert_eq!(deaf(10_000, 4), 0);
    }
}
