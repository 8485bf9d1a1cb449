//! Requests that wait in vain: they are told so at once, or as soon as it is known.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::pool::exchange::{Exchange, QueueRequest};
use crate::pool::generations::PoolState;
use crate::pool::queue::Priority;
use crate::pool::wait_list::Joined;
use crate::pool::{NotTaken, Pool};

impl Pool {
    /// A request finds no worker free and waits, unless that is in vain.
    pub(crate) fn enqueue(
        &self,
        state: &mut PoolState,
        exchange: &Arc<Exchange>,
        max_wait: Duration,
    ) -> Result<(), NotTaken> {
        let now = Instant::now();
        let queue = &mut state.queue;
        let joined = match exchange.priority {
            Priority::Urgent => queue.enqueue_urgent(exchange.clone()),
            Priority::Normal => {
                queue.enqueue(exchange.clone(), (now, max_wait), self.script_time())
            }
        };
        self.count_lifo_time(state);
        let in_vain = joined.in_vain();
        self.note_rejection(in_vain.is_some());
        if let Some(why) = in_vain {
            self.grow_for_rejected(state, why);
            return Err(why);
        }
        if let Joined::Replaces(oldest) = joined {
            self.reject(&oldest, NotTaken::QueueFull);
        }
        if let Some(last) = state.crowded_out() {
            self.reject(&last, NotTaken::QueueFull);
        }
        state.count_arrival(0);
        self.note_waiting(state);
        Ok(())
    }

    /// Why a request is not taken that comes now with this queue_request, as far as that is certain before it is made.
    pub fn would_reject(
        &self,
        QueueRequest {
            priority,
            max_wait,
            kind,
        }: QueueRequest,
    ) -> Option<NotTaken> {
        let mut state = self.lock();
        if state.is_held_back((priority, kind)) {
            return None;
        }
        let (now, who) = (Instant::now(), (priority, self.depth()));
        let told = state
            .queue
            .would_reject(who, (now, max_wait), self.script_time());
        self.count_lifo_time(&mut state);
        let why = told?.in_vain()?;
        self.grow_for_rejected(&mut state, why);
        Some(why)
    }

    /// A request is turned away. Who waits asks for workers; where nobody may, whoever is refused does, or a pool
    /// without an idle worker would never get another.
    fn grow_for_rejected(&self, state: &mut PoolState, why: NotTaken) {
        if why == NotTaken::QueueFull && state.queue.waiting.limit() == 0 {
            state.count_arrival(1);
            self.ask_for_workers(state, 1);
        }
    }

    /// Whether the request that came last was turned away. Where it was not, looking whether the next one
    /// will be ([`Pool::turns_away`]) does not pay.
    pub fn is_rejecting(&self) -> bool {
        self.is_rejecting.load(Ordering::Relaxed)
    }

    /// The request that came last was turned away, or it was not.
    pub(crate) fn note_rejection(&self, is_refused: bool) {
        // Most often nothing has changed, and what is not written need not be fetched by other threads.
        if self.is_rejecting() != is_refused {
            self.is_rejecting.store(is_refused, Ordering::Relaxed);
        }
    }

    /// A request waits in the queue now, because all workers are busy.
    pub(crate) fn note_waiting(&self, state: &mut PoolState) {
        if state.growth.auto.is_some() {
            self.stalled.notify_one();
        }
        if state.queue.open_seats() == 0 {
            // Somebody has to see to it that a worker comes, though one was asked for already.
            self.dirty.notify_one();
        }
        let at_limit = state.queue.open_seats() >= state.queue.max_open();
        let reached = &mut state.figures.limit_reached;
        *reached = reached.wrapping_add(at_limit.into());
        self.show_figures(state);
        self.saturation.waits(at_limit);
        if at_limit {
            self.tally().inspect(|tally| tally.limit_reached());
        }
    }

    /// Some wait, and a seat is about to be given what it does next.
    pub(crate) fn pass_time(&self, state: &mut PoolState) -> Instant {
        let now = Instant::now();
        state.queue.pass_time(now, self.script_time());
        self.count_lifo_time(state);
        now
    }

    /// Turns away those whom newer ones have passed for too long.
    pub(crate) fn shed_passed(&self, state: &mut PoolState, now: Instant) {
        while let Some(passed) = state.queue.next_to_shed(now, self.script_time()) {
            self.reject(&passed, NotTaken::Passed);
        }
    }

    fn reject(&self, exchange: &Exchange, why: NotTaken) {
        exchange.reject(why);
        self.uncount_in_flight(exchange);
    }

    fn count_lifo_time(&self, state: &mut PoolState) {
        let turned = state.queue.waiting.take_lifo_time();
        if !turned.is_zero() {
            self.tally().inspect(|tally| tally.newest_first(turned));
        }
    }

    /// How long a request takes from now on that comes to the end of the queue, as far as that can be
    /// known. Somebody is told who was turned away; `in_vain`: after all the time that it could wait.
    pub fn takes(&self, in_vain: bool) -> Option<Duration> {
        let mut state = self.lock();
        if in_vain {
            state.queue.waiting.note_timeout();
        }
        let takes = state.queue.waiting.wait_estimate(Instant::now())?;
        Some(takes + self.script_time())
    }

    /// How long scripts take, smoothed; nothing while that is not known.
    fn script_time(&self) -> Duration {
        match self.average_micros.load(Ordering::Relaxed) {
            u32::MAX => Duration::ZERO,
            micros => Duration::from_micros(micros.into()),
        }
    }
}
