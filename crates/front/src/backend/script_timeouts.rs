//! `request_slowlog_timeout` and `request_terminate_timeout`.

use std::future::pending;
use std::time::{Duration, Instant};

use maitred_scoreboard::RequestOutcome;
use tokio::time::sleep_until;

use crate::backend::error::Failure;
use crate::backend::{RequestLimits, Source};

/// The times at which a script has run for long enough to be reported, and to be killed.
pub(crate) struct ScriptTimeouts<'a> {
    assigned: Instant,
    limits: &'a RequestLimits,
    slow: Option<Instant>,
    over: Option<Instant>,
}

impl<'a> ScriptTimeouts<'a> {
    pub(crate) fn new(assigned: Instant, limits: &'a RequestLimits) -> ScriptTimeouts<'a> {
        let after = |timeout: Option<Duration>| timeout.map(|timeout| assigned + timeout);
        let (slow, over) = (after(limits.slow_timeout), after(limits.terminate_timeout));
        ScriptTimeouts { assigned, limits, slow, over }
    }

    /// The time of the next check; none without a limit.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.slow.min(self.over).or(self.slow).or(self.over)
    }

    /// Reports a slow script, once, and has the worker of one killed that ran for too long. Without
    /// a limit, no clock is read.
    pub(crate) fn check(&mut self, source: &Source) -> Result<(), Failure> {
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
                return Err(match source.end_overrun() {
                    Some(seat) => Failure::terminated(seat),
                    None => RequestOutcome::Terminated.into(),
                });
            }
        }
        Ok(())
    }

    /// The time at which the script has run for `timeout`: later than estimated if it waited behind
    /// another. None when it has ended.
    fn later(&self, source: &Source, timeout: Option<Duration>) -> Option<Instant> {
        let began = source.began(self.assigned);
        began.zip(timeout).map(|(began, timeout)| began + timeout)
    }
}

/// Returns at `deadline`; without one, never.
pub(crate) async fn until(deadline: Option<Instant>) {
    match deadline {
        // In a box: few futures get that far, and all would be larger.
        Some(deadline) => Box::pin(sleep_until(deadline.into())).await,
        None => pending().await,
    }
}
