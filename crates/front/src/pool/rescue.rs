//! Requests that wait in a slot for longer than the pool's scripts take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pool::exchange::Exchange;
use crate::pool::generations::PoolQueues;
use crate::pool::queue::SlotRef;
use crate::pool::{Pool, WorkerFault};

/// A woken worker that has not begun after this time has no processor, or does not run.
const WAKES_WITHIN: Duration = Duration::from_millis(100);

/// Time without a start after which a worker is ended that has requests at the head of its seat,
/// in a pool without `request_terminate_timeout`.
const CLAIMS_WITHIN: Duration = Duration::from_secs(10);

impl Pool {
    /// Handles a request that has waited in a slot for longer than the pool's scripts take: moves
    /// it to an idle seat, or back into the queue if there is none. A request at the head of its
    /// seat may just have woken its worker: it needs another worker only if that one does not wake
    /// up.
    pub fn rescue(&self, exchange: &Arc<Exchange>, waited: Duration) {
        let mut state = self.lock();
        // For a request in the queue, workers have been requested already.
        let Some(from) = exchange.slot_ref() else {
            return;
        };
        let is_late = waited > WAKES_WITHIN;
        if is_late {
            self.end_if_stalled(&mut state, exchange, from);
        }
        let Some(to) = state.queue.idle_slot(exchange.priority) else {
            let is_behind = state.queue.is_shared(from.seat);
            if is_behind || is_late {
                self.ask_for_workers(&mut state, 1);
            }
            if is_behind {
                self.requeue(&mut state, exchange, from);
            } else if is_late && let Some(generation) = state.generation(from.seat.generation) {
                generation.link().wake_unconditionally(from.seat.number);
            }
            return;
        };
        // If its worker claims it now after all, the end of the request clears this again.
        note_unclaimed(&mut state, exchange, from);
        if self.take_back_to(&mut state, vec![(exchange.clone(), from)], to) {
            // The former seat may be idle now, and due to close.
            self.apply_seat_changes(&mut state);
            self.show_counters(&mut state);
            let generation = state.generation(to.seat.generation).cloned();
            drop(state);
            match generation {
                Some(generation) if is_late => {
                    generation.link().wake_unconditionally(to.seat.number);
                }
                Some(generation) => generation.link().wake(to.seat.number),
                None => {}
            }
        }
    }

    /// Has a worker ended that leaves requests unclaimed: its script hangs between two requests,
    /// where no other limit applies.
    fn end_if_stalled(&self, state: &mut PoolQueues, exchange: &Exchange, at: SlotRef) {
        let limit = match self.settings().request_terminate_timeout {
            Duration::ZERO => CLAIMS_WITHIN,
            timeout => timeout,
        };
        let worker = at.worker();
        let Some(waited) = wait_at_head(state, exchange, at)
            .and_then(|waited| state.queue.give_up(worker, waited, limit))
        else {
            return;
        };
        let Some(generation) = state.generation(at.seat.generation).cloned() else {
            return;
        };
        if !self.end_worker(&generation, at, WorkerFault::TakesNoRequest { waited }) {
            state.queue.report_again(worker);
        }
    }

    /// Returns a request to the queue that waits behind a long script while no seat is idle: later
    /// ones would overtake it there. Where no request of that seat has begun, its worker only
    /// waits for a processor.
    fn requeue(&self, state: &mut PoolQueues, exchange: &Arc<Exchange>, from: SlotRef) {
        let is_behind_a_script = state.queue.has(from.seat, |other| other.has_begun());
        if !is_behind_a_script || !exchange.take_back() {
            return;
        }
        let (item, priority) = (exchange.clone(), exchange.priority);
        state.queue.requeue(item, priority, from, Instant::now());
        state.count_lost(exchange);
        self.note_waiting(state);
    }
}

/// Notes a request that is about to be withdrawn from the head of its seat.
pub(super) fn note_unclaimed(state: &mut PoolQueues, exchange: &Exchange, at: SlotRef) {
    if let Some(waited) = wait_at_head(state, exchange, at) {
        state.queue.note_unclaimed(at.worker(), waited);
    }
}

/// How long a request has waited in its slot; none if it is behind another that has begun.
fn wait_at_head(state: &PoolQueues, exchange: &Exchange, at: SlotRef) -> Option<Duration> {
    if state.queue.has(at.seat, |other| other.has_begun()) {
        return None;
    }
    exchange.assigned_at().map(|assigned| assigned.elapsed())
}
