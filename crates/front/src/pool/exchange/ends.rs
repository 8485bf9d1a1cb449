//! Ends of an exchange by its worker: protocol violations, timeouts; and slow scripts.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use maitred_seat::SlotProgress;

use crate::pool::exchange::{Exchange, SlotLease};
use crate::pool::{WorkerFault, slow_scripts};

impl Exchange {
    /// Ready when the exchange has ended, for callers that ignore the response.
    pub fn poll_over(self: &Arc<Exchange>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        self.take_response(&mut state);
        let mut state = self.give_back(state);
        if state.ended.is_some() {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reports that its worker has violated the seat protocol; `how` is for the log.
    pub fn report_breach(&self, how: &str) {
        let slot = {
            let state = self.lock();
            state.lease.as_ref().map(SlotLease::slot_ref).or(state.was_at)
        };
        if let Some(slot) = slot {
            self.pool.broke_rules(slot, how);
        }
    }

    /// Kills its worker, because the script exceeded `request_terminate_timeout`. Done once: the
    /// worker lives on for a moment, in which the timeout of a script without a client passes, too.
    /// Returns its seat. `is_logged`: the caller logs it.
    pub fn end_overrun(&self, is_logged: bool) -> Option<u32> {
        let ran = self.began().map_or(Duration::ZERO, |began| began.elapsed());
        let mut state = self.lock();
        if let Some(lease) = state.lease.as_ref().filter(|_| !state.is_terminated)
            && lease.link().progress(&lease.slot) == Ok(SlotProgress::Running)
        {
            let overrun = slow_scripts::overrun(lease, ran);
            let (generation, at) = (&lease.generation, lease.slot_ref());
            let seat = at.seat.number;
            let fault = WorkerFault::Overrun { overrun, is_logged };
            // A lost report is repeated when the script has no client any more.
            state.is_terminated = self.pool.end_worker(generation, at, fault);
            return Some(seat);
        }
        None
    }

    /// Its script, after its worker has died; `shown` is the one on the board of the worker's seat.
    pub fn script_of_dead(&self, shown: String) -> String {
        slow_scripts::script_of_dead(&self.request, shown)
    }

    /// Whether its script was reported as slow.
    pub fn is_reported_slow(&self) -> bool {
        self.lock().reported_slow
    }

    /// Reports a running script as slow, once: it is counted, and the slow log gets its stack.
    pub fn report_slow(&self) {
        let Some(began) = self.began() else { return };
        let report = {
            let mut state = self.lock();
            let lease = state.lease.as_ref().filter(|_| !state.reported_slow);
            let report =
                lease.and_then(|lease| slow_scripts::report(lease, began.elapsed(), &self.request));
            state.reported_slow |= report.is_some();
            report
        };
        if let Some(report) = report {
            self.pool.report_slow(&report);
        }
    }
}
