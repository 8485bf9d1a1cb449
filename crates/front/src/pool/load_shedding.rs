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
    pub(crate) fn join(
        &self,
        state: &mut PoolState,
        exchange: &Arc<Exchange>,
        within: Duration,
    ) -> Result<(), NotTaken> {
        let now = Instant::now();
        let queue = &mut state.queue;
        let joined = match exchange.priority {
            Priority::Urgent => queue.join_urgent(exchange.clone()),
            Priority::Normal => queue.join(exchange.clone(), (now, within), self.script_time()),
        };
        self.count_turned(state);
        let in_vain = joined.in_vain();
        self.note_refusal(in_vain.is_some());
        if let Some(why) = in_vain {
            self.grow_for_refused(state, why);
            return Err(why);
        }
        if let Joined::Replaces(oldest) = joined {
            self.turn_away(&oldest, NotTaken::QueueFull);
        }
        if let Some(last) = state.crowded_out() {
            self.turn_away(&last, NotTaken::QueueFull);
        }
        state.count_arrival(0);
        self.begins_to_wait(state);
        Ok(())
    }

    /// Why a request is not taken that comes now with this queue_request, as far as that is certain before it is made.
    pub fn turns_away(
        &self,
        QueueRequest {
            priority,
            within,
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
            .turns_away(who, (now, within), self.script_time());
        self.count_turned(&mut state);
        let why = told?.in_vain()?;
        self.grow_for_refused(&mut state, why);
        Some(why)
    }

    /// A request is turned away. Who waits asks for workers; where nobody may, whoever is refused does, or a pool
    /// without an idle worker would never get another.
    fn grow_for_refused(&self, state: &mut PoolState, why: NotTaken) {
        if why == NotTaken::QueueFull && state.queue.waiting.most() == 0 {
            state.count_arrival(1);
            self.ask_for_workers(state, 1);
        }
    }

    /// Whether the request that came last was turned away. Where it was not, looking whether the next one
    /// will be ([`Pool::turns_away`]) does not pay.
    pub fn is_turning_away(&self) -> bool {
        self.is_turning_away.load(Ordering::Relaxed)
    }

    /// The request that came last was turned away, or it was not.
    pub(crate) fn note_refusal(&self, is_refused: bool) {
        // Most often nothing has changed, and what is not written need not be fetched by other threads.
        if self.is_turning_away() != is_refused {
            self.is_turning_away.store(is_refused, Ordering::Relaxed);
        }
    }

    /// A request waits in the queue now, because all workers are busy.
    pub(crate) fn begins_to_wait(&self, state: &mut PoolState) {
        if state.growth.auto.is_some() {
            self.stalls.notify_one();
        }
        if state.queue.open_seats() == 0 {
            // Somebody has to see to it that a worker comes, though one was asked for already.
            self.stirred.notify_one();
        }
        let at_limit = state.queue.open_seats() >= state.queue.max_open();
        let reached = &mut state.figures.limit_reached;
        *reached = reached.wrapping_add(at_limit.into());
        self.show_figures(state);
        self.watch.waits(at_limit);
        if at_limit {
            self.tally().inspect(|tally| tally.limit_reached());
        }
    }

    /// Some wait, and a seat is about to be given what it does next.
    pub(crate) fn pass_time(&self, state: &mut PoolState) -> Instant {
        let now = Instant::now();
        state.queue.pass_time(now, self.script_time());
        self.count_turned(state);
        now
    }

    /// Turns away those whom newer ones have passed for too long.
    pub(crate) fn turn_away_passed(&self, state: &mut PoolState, now: Instant) {
        while let Some(passed) = state.queue.next_passed(now, self.script_time()) {
            self.turn_away(&passed, NotTaken::Passed);
        }
    }

    fn turn_away(&self, exchange: &Exchange, why: NotTaken) {
        exchange.turn_away(why);
        self.uncount_in_flight(exchange);
    }

    fn count_turned(&self, state: &mut PoolState) {
        let turned = state.queue.waiting.take_turned();
        if !turned.is_zero() {
            self.tally().inspect(|tally| tally.newest_first(turned));
        }
    }

    /// How long a request takes from now on that comes to the end of the queue, as far as that can be
    /// known. Somebody is told who was turned away; `in_vain`: after all the time that it could wait.
    pub fn takes(&self, in_vain: bool) -> Option<Duration> {
        let mut state = self.lock();
        if in_vain {
            state.queue.waiting.gave_up();
        }
        let takes = state.queue.waiting.takes(Instant::now())?;
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
