//! Load shedding: rejects requests that would time out in the queue, on arrival or as soon as that
//! is known.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use maitred_scoreboard::{Counter, RequestOutcome};

use crate::pool::Pool;
use crate::pool::exchange::{Exchange, QueueRequest};
use crate::pool::generations::PoolQueues;
use crate::pool::queue::Priority;

impl Pool {
    /// Queues a request for which no worker is free.
    ///
    /// # Errors
    /// The request is rejected.
    pub(crate) fn enqueue(
        &self,
        state: &mut PoolQueues,
        exchange: &Arc<Exchange>,
    ) -> Result<(), RequestOutcome> {
        exchange.has_queued.store(true, Ordering::Relaxed);
        let (item, queue) = (exchange.clone(), &mut state.queue);
        let (now, max_wait, script) = (Instant::now(), exchange.max_wait, self.script_time());
        let result = match exchange.priority {
            Priority::Urgent => queue.enqueue_urgent(item).map(|()| None),
            Priority::Normal => queue.enqueue(item, now, max_wait, script),
        };
        self.count_lifo_time(state);
        self.note_rejection(result.is_err());
        let replaced = result.inspect_err(|why| self.grow_for_rejected(state, *why))?;
        for dropped in [replaced, state.crowded_out()].into_iter().flatten() {
            self.reject(state, &dropped, RequestOutcome::QueueFull);
        }
        state.count_arrival(0);
        self.note_waiting(state);
        Ok(())
    }

    /// The reason why [`Pool::submit`] would reject a request that arrives now, if that is certain.
    pub fn would_reject(&self, queue_request: QueueRequest) -> Option<RequestOutcome> {
        let QueueRequest { priority, max_wait, kind, .. } = queue_request;
        let mut state = self.lock();
        if state.is_held_back(priority, kind) {
            return None;
        }
        let (now, script) = (Instant::now(), self.script_time());
        let queue = &mut state.queue;
        let rejection = queue.would_reject(priority, self.depth(), now, max_wait, script);
        self.count_lifo_time(&mut state);
        let rejection = rejection?;
        state.meter.arrived(maitred_scoreboard::now());
        self.grow_for_rejected(&mut state, rejection);
        Some(rejection)
    }

    /// A request is rejected. Waiting requests make the pool grow; where none may wait, the
    /// rejected ones have to, or a pool without an idle worker would never get another.
    fn grow_for_rejected(&self, state: &mut PoolQueues, why: RequestOutcome) {
        if why == RequestOutcome::QueueFull && state.queue.waiting.limit() == 0 {
            state.count_arrival(1);
            self.ask_for_workers(state, 1);
        }
    }

    /// Whether the last request was rejected. If not, a check before encoding
    /// ([`Pool::would_reject`]) does not pay.
    pub fn is_rejecting(&self) -> bool {
        self.is_rejecting.load(Ordering::Relaxed)
    }

    /// Notes whether the last request was rejected.
    pub(crate) fn note_rejection(&self, is_rejected: bool) {
        // Mostly nothing has changed, and an unwritten cache line stays shared between threads.
        if self.is_rejecting() != is_rejected {
            self.is_rejecting.store(is_rejected, Ordering::Relaxed);
        }
    }

    /// A request waits in the queue now, because all workers are busy.
    pub(crate) fn note_waiting(&self, state: &mut PoolQueues) {
        if state.growth.auto.is_some() {
            self.stalled.notify_one();
        }
        if state.queue.open_seats() == 0 {
            // The maintenance task ensures that a worker arrives, even if one was requested.
            self.dirty.notify_one();
        }
        let at_limit = state.queue.open_seats() >= state.queue.max_open();
        let reached = &mut state.counters.limit_reached;
        *reached = reached.wrapping_add(at_limit.into());
        self.show_counters(state);
        self.saturation.waits(at_limit);
        if at_limit {
            self.metrics().inspect(|metrics| metrics.add(Counter::LimitReached));
        }
    }

    /// Updates the overload detection, before a seat gets a waiting request.
    pub(crate) fn pass_time(&self, state: &mut PoolQueues) -> Instant {
        let now = Instant::now();
        state.queue.pass_time(now, self.script_time());
        self.count_lifo_time(state);
        now
    }

    /// Rejects the requests that newer ones have overtaken for too long.
    pub(crate) fn shed_overtaken(&self, state: &mut PoolQueues, now: Instant) {
        while let Some(overtaken) = state.queue.next_to_shed(now, self.script_time()) {
            self.reject(state, &overtaken, RequestOutcome::Shed);
        }
    }

    pub(crate) fn reject(&self, state: &mut PoolQueues, exchange: &Exchange, why: RequestOutcome) {
        exchange.reject(why);
        state.refund(exchange);
        self.uncount_in_flight(exchange);
    }

    fn count_lifo_time(&self, state: &mut PoolQueues) {
        let time = state.queue.waiting.take_lifo_time();
        if !time.is_zero() {
            self.metrics().inspect(|metrics| metrics.add_time(Counter::LifoTime, time));
        }
    }

    /// Estimates the time to a response for a request that arrives now, for the `Retry-After`
    /// header. `has_timed_out`: after a request waited for its whole timeout.
    pub fn response_estimate(&self, has_timed_out: bool) -> Option<Duration> {
        let mut state = self.lock();
        if has_timed_out {
            state.queue.waiting.note_timeout();
        }
        let wait = state.queue.waiting.wait_estimate(Instant::now())?;
        Some(wait + self.script_time())
    }

    /// The average script time; zero while it is unknown.
    fn script_time(&self) -> Duration {
        match self.average_micros.load(Ordering::Relaxed) {
            u32::MAX => Duration::ZERO,
            micros => Duration::from_micros(micros.into()),
        }
    }
}
