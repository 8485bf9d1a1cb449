//! Workers that are ended, or told of, for what they do with an exchange.

use std::time::Duration;

use maitred_seat::Began;

use crate::pool::exchange::{Exchange, SlotLease};
use crate::pool::slow_scripts;

impl Exchange {
    /// Its worker has broken the rules of the seat link, in words.
    pub fn report_breach(&self, how: &str) {
        let place = {
            let state = self.lock();
            state.lease.as_ref().map(SlotLease::place).or(state.was_at)
        };
        if let Some(place) = place {
            self.pool.broke_rules(place, how);
        }
    }

    /// Has the worker ended that runs this for longer than `request_terminate_timeout`.
    pub fn end_overrun(&self) {
        let ran = self.began().map_or(Duration::ZERO, |began| began.elapsed());
        if let Some(lease) = &self.lock().lease
            && lease.link().progress(&lease.assignment) == Ok(Began::Running)
        {
            let overrun = slow_scripts::overrun(lease, ran);
            let why = "its script ran longer than request_terminate_timeout";
            self.pool.end_worker(lease, why, Some(overrun));
        }
    }

    /// Whether [`Exchange::report_slow`] has done its work.
    pub fn is_told_slow(&self) -> bool {
        self.lock().told_slow
    }

    /// Counts the script as slow and has its stack written to the slow log, once, if it runs.
    pub fn report_slow(&self) {
        let Some(began) = self.began() else { return };
        let report = {
            let mut state = self.lock();
            let lease = state.lease.as_ref().filter(|_| !state.told_slow);
            let report =
                lease.and_then(|lease| slow_scripts::report(lease, began.elapsed(), &self.request));
            state.told_slow |= report.is_some();
            report
        };
        if let Some(report) = report {
            self.pool.report_slow(&report);
        }
    }
}
