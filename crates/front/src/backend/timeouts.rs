//! How long a script may run before it is told of, and before it is ended.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::backend::error::Failure;
use crate::backend::{Limits, Source};

/// When a script will have run for long enough to be told of, and to be ended.
pub(crate) struct Due<'a> {
    assignment: Instant,
    limits: &'a Limits,
    slow: Option<Instant>,
    over: Option<Instant>,
}

impl<'a> Due<'a> {
    pub(crate) fn new(assignment: Instant, limits: &'a Limits) -> Due<'a> {
        let after = |timeout: Option<Duration>| timeout.map(|timeout| assignment + timeout);
        let (slow, over) = (after(limits.slow_timeout), after(limits.terminate_timeout));
        Due {
            assignment,
            limits,
            slow,
            over,
        }
    }

    /// When to look; never if there is no limit.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.slow.min(self.over).or(self.slow).or(self.over)
    }

    /// Tells of a script that is slow, once, and ends one that has run for too long.
    pub(crate) fn look(&mut self, source: &Source) -> Result<(), Failure> {
        let is_over = |time: Option<Instant>| time.is_some_and(|time| time <= Instant::now());
        if is_over(self.slow) {
            self.slow = self.later(source, self.limits.slow_timeout);
            if is_over(self.slow) {
                self.slow = None;
                source.report_slow();
            }
        }
        if is_over(self.over) {
            self.over = self.later(source, self.limits.terminate_timeout);
            if is_over(self.over) {
                source.end_overrun();
                return Err(Failure::Terminated);
            }
        }
        Ok(())
    }

    /// When the script will have run for as long as `timeout`: later than was thought, if it waited
    /// behind another. Never when it is over.
    fn later(&self, source: &Source, timeout: Option<Duration>) -> Option<Instant> {
        let began = source
            .began(self.assignment.into_std())
            .map(Instant::from_std);
        began.zip(timeout).map(|(began, timeout)| began + timeout)
    }
}

/// Returns at `deadline`; without one, never.
pub(crate) async fn until(deadline: Option<Instant>) {
    match deadline {
        // Few get as far as to wait for it, and all of them would hold the room.
        Some(deadline) => Box::pin(sleep_until(deadline)).await,
        None => pending().await,
    }
}
