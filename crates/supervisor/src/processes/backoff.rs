//! Waits between retries.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::{BACKOFF_FIRST, BACKOFF_LONGEST, Moment};

/// Waits that double from [`BACKOFF_FIRST`] to [`BACKOFF_LONGEST`] and start over after a success.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Backoff {
    last: Option<Failure>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Failure {
    at: Moment,
    delay: Duration,
}

impl Backoff {
    /// Notes a failure and returns when to retry. Failures during a wait belong to the one that
    /// started it: eight workers that die together are one failure, not eight doublings.
    pub fn failed(&mut self, now: Moment) -> Moment {
        self.failed_within(now, BACKOFF_LONGEST)
    }

    /// The same with another longest wait.
    pub fn failed_within(&mut self, now: Moment, longest: Duration) -> Moment {
        let delay = match &self.last {
            None => BACKOFF_FIRST,
            Some(last) if now < last.at + last.delay => return last.at + last.delay,
            Some(last) => (last.delay * 2).min(longest),
        };
        self.last = Some(Failure { at: now, delay });
        now + delay
    }

    /// Notes a success.
    pub fn succeeded(&mut self) {
        self.last = None;
    }

    /// When the failure happened that caused the current wait, if there is one.
    pub fn failed_at(&self) -> Option<Moment> {
        self.last.as_ref().map(|last| last.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_over_after_a_success() {
        let mut backoff = Backoff::default();
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..10 {
            let again = backoff.failed(now);
            waits.push((again - now).as_millis());
            now = again;
        }
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000, 1000, 1000, 1000, 1000]);
        backoff.succeeded();
        assert_eq!(backoff.failed(now), now + BACKOFF_FIRST);
    }

    #[test]
    fn failures_at_the_same_time_are_one_failure() {
        let mut backoff = Backoff::default();
        let now = Duration::from_secs(5);
        let again = backoff.failed(now);
        assert_eq!(backoff.failed(now), again);
        assert_eq!(backoff.failed(again - Duration::from_nanos(1)), again);
        assert_eq!(backoff.failed(again), again + 2 * BACKOFF_FIRST);
    }

    proptest! {
        #[test]
        fn no_wait_is_ever_longer_than_the_longest(steps in prop::collection::vec(
            (0u64..20_000, any::<bool>()), 1..200))
        {
            let mut backoff = Backoff::default();
            let mut now = Duration::ZERO;
            for (pass, success) in steps {
                now += Duration::from_millis(pass);
                if success {
                    backoff.succeeded();
                } else {
                    let again = backoff.failed(now);
                    prop_assert!(again > now && again <= now + BACKOFF_LONGEST);
                }
            }
        }
    }
}
