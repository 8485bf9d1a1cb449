//! Kinds of requests. Requests of one kind run similar code, as far as their targets show, and hang
//! together when a service that they need does not respond.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use crate::pool::Pool;
use crate::pool::exchange::Exchange;
use crate::pool::generations::PoolQueues;
use crate::pool::queue::{Priority, Queue, SeatId};

/// The kind of a request: the first segment of its path, and the directory of its script, since a
/// pool may have several sites.
pub fn of(script: &str, target: &str) -> u64 {
    let folder = script.rsplit_once('/').map(|(folder, _)| folder);
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let first = path.trim_start_matches('/').split('/').next();
    let mut hasher = DefaultHasher::new();
    (folder, first).hash(&mut hasher);
    hasher.finish()
}

/// The kind of each request with a worker, and whether it hangs.
pub(crate) fn assigned_kinds<'q>(
    queue: &'q Queue<Arc<Exchange>>,
    is_stuck: impl Fn(SeatId) -> bool + 'q,
) -> impl Iterator<Item = (u64, bool)> + 'q {
    let assigned = queue.assigned_requests();
    // A request behind another in a slot of the same seat has not begun.
    assigned.map(move |(seat, exchange)| (exchange.kind, is_stuck(seat) && exchange.has_begun()))
}

impl PoolQueues {
    /// Whether a request gets no worker now, because others of its kind hang and have all the
    /// workers that hanging requests may have.
    pub(crate) fn holds_back(&self, exchange: &Exchange) -> bool {
        self.is_held_back(exchange.priority, exchange.kind)
    }

    /// [`PoolQueues::holds_back`] for a request of this priority and kind.
    pub(crate) fn is_held_back(&self, priority: Priority, kind: u64) -> bool {
        let auto = self.growth.auto.as_ref();
        let holds = auto.is_some_and(|auto| auto.hangs(kind) && auto.workers_left_for_stuck() == 0);
        holds && priority == Priority::Normal
    }

    /// Holds a request back. False: the queue is full.
    pub(crate) fn hold_back(&mut self, exchange: Arc<Exchange>) -> bool {
        let has_capacity = self.unplaced() < self.queue.waiting.limit();
        if has_capacity {
            self.held_back.push_back(exchange);
        }
        has_capacity
    }

    /// Number of waiting requests that count towards `request_queue_length`.
    fn unplaced(&self) -> usize {
        self.queue.waiting.len() + self.held_back.len()
    }

    /// The held-back request to drop for one that waits for any worker: the queue is full, and no
    /// such request is rejected in favour of held-back ones.
    pub(crate) fn crowded_out(&mut self) -> Option<Arc<Exchange>> {
        let is_crowded = self.unplaced() > self.queue.waiting.limit();
        is_crowded.then(|| self.held_back.pop_back()).flatten()
    }

    /// Holds back requests at the head of the queue that arrived before their kind was found to
    /// hang.
    pub(crate) fn hold_back_first(&mut self) {
        let holds_first = |state: &PoolQueues| {
            let first = state.queue.waiting.first();
            first.is_some_and(|first| state.holds_back(first))
        };
        while holds_first(self) {
            let first = self.queue.waiting.withdraw();
            self.held_back.extend(first);
        }
    }

    /// Returns held-back requests to the head of the queue: all whose kind no longer hangs, and of
    /// the others as many as there are idle workers for them.
    pub(crate) fn release(&mut self) {
        if self.held_back.is_empty() {
            return;
        }
        let auto = self.growth.auto.as_ref();
        let auto = auto.filter(|_| self.queue.current() != 0);
        let mut left = auto.map_or(usize::MAX, |auto| auto.workers_left_for_stuck());
        left = left.min(self.queue.idle_for_normal());
        let is_released = |exchange: &Arc<Exchange>| {
            let hangs = auto.is_some_and(|auto| auto.hangs(exchange.kind));
            let is_released = !hangs || left > 0;
            left -= usize::from(hangs && is_released);
            is_released
        };
        let held_back = std::mem::take(&mut self.held_back);
        let (released, stay): (VecDeque<_>, VecDeque<_>) =
            held_back.into_iter().partition(is_released);
        self.held_back = stay;
        let now = Instant::now();
        for exchange in released.into_iter().rev() {
            self.queue.put_back(exchange, Priority::Normal, now);
        }
    }

    /// Drops a held-back request whose client has left. False: it is not held back.
    pub(crate) fn forget_held_back(&mut self, exchange: &Arc<Exchange>) -> bool {
        let index = self.held_back.iter().position(|held| held == exchange);
        index.and_then(|index| self.held_back.remove(index)).is_some()
    }

    /// Number of waiting requests.
    pub(crate) fn queued(&self) -> usize {
        self.queue.queued() + self.held_back.len()
    }
}

impl Pool {
    /// Whether a request is held back.
    pub fn has_held_back(&self, exchange: &Arc<Exchange>) -> bool {
        self.lock().held_back.contains(exchange)
    }

    /// Assigns workers to held-back requests that may have one.
    pub(crate) fn release(&self, state: &mut PoolQueues) {
        state.release();
        self.fill_idle(state);
    }

    /// Assigns waiting requests to idle workers.
    pub(crate) fn fill_idle(&self, state: &mut PoolQueues) {
        while let Some(seat) = state.queue.idle_for_waiting() {
            if !self.fill_seat(state, seat) {
                return;
            }
            if let Some(generation) = state.generation(seat.generation) {
                generation.link().wake(seat.number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_part_of_a_path_says_what_is_asked_for() {
        let of = |target| super::of("/srv/a/index.php", target);
        let shop = of("/shop/cart?item=1");
        assert_eq!([of("/shop"), of("//shop/"), of("/shop?x=/y")], [shop; 3]);
        assert!([of("/"), of("/shops"), of("/a/shop"), of("")].iter().all(|kind| *kind != shop));
        assert_eq!(of("/"), of("/?page=2"));
        assert_ne!(of("/"), super::of("/srv/b/index.php", "/"), "another site");
    }
}
