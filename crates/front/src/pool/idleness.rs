//! Whether a pool with `pm = auto` rests: it has had no request for so long that it needs no
//! worker.

use std::time::{Duration, Instant};

/// The time since the last request.
#[derive(Debug)]
pub struct Idleness {
    /// Time without a request after which the pool rests; none: it never does.
    rests_after: Option<Duration>,
    /// The last check that found a request, or the start.
    busy_at: Instant,
    /// A request has arrived since the front has known the pool.
    has_arrived: bool,
    is_resting: bool,
}

impl Idleness {
    /// A pool that rests after this time.
    pub fn new(rests_after: Option<Duration>, now: Instant) -> Idleness {
        Idleness { rests_after, busy_at: now, has_arrived: false, is_resting: false }
    }

    /// A request has arrived.
    pub fn arrived(&mut self) {
        self.has_arrived = true;
        self.is_resting = false;
    }

    /// Whether no worker is to be requested: before the first request the supervisor starts them
    /// by itself.
    pub fn needs_none(&self) -> bool {
        !self.has_arrived || self.is_resting
    }

    /// Whether the pool rests.
    pub fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// When the pool rests unless a request arrives.
    pub fn rests_at(&self) -> Option<Instant> {
        let after = self.rests_after.filter(|_| !self.is_resting)?;
        self.busy_at.checked_add(after)
    }

    /// A check. True if the pool rests from now on.
    pub fn look(&mut self, is_idle: bool, now: Instant) -> bool {
        if !is_idle {
            self.busy_at = now;
            return false;
        }
        let begins = self.rests_at().is_some_and(|at| at <= now);
        self.is_resting |= begins;
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_pool_rests_after_an_hour_without_a_request_until_the_next() {
        let start = Instant::now();
        let mut idleness = Idleness::new(Some(HOUR), start);
        assert!(idleness.needs_none() && !idleness.is_resting());
        idleness.arrived();
        assert!(!idleness.needs_none());
        assert!(!idleness.look(false, start + HOUR));
        assert!(!idleness.look(true, start + HOUR * 2 - Duration::from_secs(1)));
        assert!(idleness.look(true, start + HOUR * 2));
        assert!(idleness.is_resting() && idleness.needs_none());
        assert_eq!(idleness.rests_at(), None);
        assert!(!idleness.look(true, start + HOUR * 3), "it is reported once");
        idleness.arrived();
        assert!(!idleness.is_resting() && !idleness.needs_none());
    }

    #[test]
    fn a_pool_that_may_not_rest_never_does() {
        let start = Instant::now();
        let mut idleness = Idleness::new(None, start);
        idleness.arrived();
        assert!(!idleness.look(true, start + HOUR * 1000));
    }
}
