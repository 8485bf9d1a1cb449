//! Of which kind a request is: those of one kind ask for the same, as far as anybody can tell before they
//! do, and hang together when that does not answer any more.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use crate::pool::Pool;
use crate::pool::exchange::Exchange;
use crate::pool::generations::PoolState;
use crate::pool::queue::{Priority, Queue, SeatId};

/// The kind of a request: the first part of its target's path, and the folder of the script that answers, since
/// a pool may have several sites.
pub fn of(script: &str, target: &str) -> u64 {
    let folder = script.rsplit_once('/').map(|(folder, _)| folder);
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let first = path.trim_start_matches('/').split('/').next();
    let mut hasher = DefaultHasher::new();
    (folder, first).hash(&mut hasher);
    hasher.finish()
}

/// Of all requests that have a worker their kind, and whether they hang.
pub(crate) fn assigned_requests<'q>(
    queue: &'q Queue<Arc<Exchange>>,
    hangs: impl Fn(SeatId) -> bool + 'q,
) -> impl Iterator<Item = (u64, bool)> + 'q {
    let assigned_requests = queue.assigned_requests();
    // Who is behind another in a slot of the same seat has not begun.
    assigned_requests
        .map(move |(seat, exchange)| (exchange.kind, hangs(seat) && exchange.has_begun()))
}

impl PoolState {
    /// Whether a request is to get no worker now, since those that ask for the same hang and have all
    /// workers that they may.
    pub(crate) fn holds_back(&self, exchange: &Exchange) -> bool {
        self.is_held_back((exchange.priority, exchange.kind))
    }

    /// The same of one that is not made yet.
    pub(crate) fn is_held_back(&self, (priority, kind): (Priority, u64)) -> bool {
        let auto = self.growth.auto.as_ref();
        let holds = auto.is_some_and(|auto| auto.hangs(kind) && auto.left_to_who_hangs() == 0);
        holds && priority == Priority::Normal
    }

    /// Has it wait for them. False: as many wait as may, here and in the queue.
    pub(crate) fn hold_back(&mut self, exchange: Arc<Exchange>) -> bool {
        let has_capacity = self.unplaced() < self.queue.waiting.limit();
        if has_capacity {
            self.held_back.push_back(exchange);
        }
        has_capacity
    }

    /// How many requests wait that count towards `request_queue_length` together.
    fn unplaced(&self) -> usize {
        self.queue.waiting.len() + self.held_back.len()
    }

    /// The one that is held back and has to go, since a request has come to wait that is not: no such request is
    /// refused for those.
    pub(crate) fn crowded_out(&mut self) -> Option<Arc<Exchange>> {
        let is_crowded = self.unplaced() > self.queue.waiting.limit();
        is_crowded.then(|| self.held_back.pop_back()).flatten()
    }

    /// Has those at the head of the queue wait for others of their kind that may have no worker now: they came
    /// before it was known.
    pub(crate) fn hold_back_first(&mut self) {
        let waiting = |state: &PoolState| {
            let first = state.queue.waiting.first();
            first.is_some_and(|first| state.holds_back(first))
        };
        while waiting(self) {
            let first = self.queue.waiting.withdraw();
            self.held_back.extend(first);
        }
    }

    /// Has those wait for any worker again, at the head of the queue, whose kind hangs no longer, and of the
    /// others as many as there are idle workers that they may have.
    pub(crate) fn release(&mut self) {
        if self.held_back.is_empty() {
            return;
        }
        let auto = self.growth.auto.as_ref();
        let auto = auto.filter(|_| self.queue.current() != 0);
        let mut left = auto.map_or(usize::MAX, |auto| auto.left_to_who_hangs());
        left = left.min(self.queue.idle_for_normal());
        let goes = |exchange: &Arc<Exchange>| {
            let hangs = auto.is_some_and(|auto| auto.hangs(exchange.kind));
            let goes = !hangs || left > 0;
            left -= usize::from(hangs && goes);
            goes
        };
        let held_back = std::mem::take(&mut self.held_back);
        let (go, stay): (VecDeque<_>, VecDeque<_>) = held_back.into_iter().partition(goes);
        self.held_back = stay;
        let now = Instant::now();
        for exchange in go.into_iter().rev() {
            self.queue.put_back(exchange, Priority::Normal, now);
        }
    }

    /// One of those is not wanted any more. False: it is none of them.
    pub(crate) fn forget_held_back(&mut self, exchange: &Arc<Exchange>) -> bool {
        let place = self.held_back.iter().position(|held| held == exchange);
        place
            .and_then(|place| self.held_back.remove(place))
            .is_some()
    }

    /// How many requests wait.
    pub(crate) fn queued(&self) -> usize {
        self.queue.queued() + self.held_back.len()
    }
}

impl Pool {
    /// Whether a request waits for others that ask for the same.
    pub fn has_held_back(&self, exchange: &Arc<Exchange>) -> bool {
        self.lock().held_back.contains(exchange)
    }

    /// Gives those a worker that were held back and may have one.
    pub(crate) fn release(&self, state: &mut PoolState) {
        state.release();
        self.fill_idle(state);
    }

    /// Gives every idle worker work that there is for it.
    pub(crate) fn fill_idle(&self, state: &mut PoolState) {
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
        assert!(
            [of("/"), of("/shops"), of("/a/shop"), of("")]
                .iter()
                .all(|kind| *kind != shop)
        );
        assert_eq!(of("/"), of("/?page=2"));
        assert_ne!(of("/"), super::of("/srv/b/index.php", "/"), "another site");
    }
}
