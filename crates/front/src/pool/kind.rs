//! Of which kind a request is: those of one kind ask for the same, as far as anybody can tell before they
//! do, and hang together when that does not answer any more.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use super::Pool;
use super::exchange::Exchange;
use super::group::Inner;
use super::queue::{Lane, Queue, SeatId};

/// The kind of a request's target: the first part of its path.
pub fn of(target: &str) -> u64 {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let first = path.trim_start_matches('/').split('/').next();
    let mut hasher = DefaultHasher::new();
    first.hash(&mut hasher);
    hasher.finish()
}

/// Of all requests that have a worker their kind, and whether they hang.
pub(super) fn in_hand<'q>(
    queue: &'q Queue<Arc<Exchange>>,
    hangs: impl Fn(SeatId) -> bool + 'q,
) -> impl Iterator<Item = (u64, bool)> + 'q {
    let in_hand = queue.in_hand();
    // Who is behind another in a slot of the same seat has not begun.
    in_hand.map(move |(seat, exchange)| (exchange.kind, hangs(seat) && exchange.has_begun()))
}

impl Inner {
    /// Whether a request is to get no worker now, since those that ask for the same hang and have all
    /// workers that they may.
    pub(super) fn holds_back(&self, exchange: &Exchange) -> bool {
        let auto = self.growth.auto.as_ref();
        let holds =
            auto.is_some_and(|auto| auto.hangs(exchange.kind) && auto.left_to_who_hangs() == 0);
        holds && exchange.lane == Lane::Usual
    }

    /// Has it wait for them. False: as many do as may.
    pub(super) fn hold_back(&mut self, exchange: Arc<Exchange>) -> bool {
        let has_room = self.held_back.len() < self.queue.waiting.most();
        if has_room {
            self.held_back.push_back(exchange);
        }
        has_room
    }

    /// Has those wait for any worker again that may have one now, at the head of the queue.
    pub(super) fn release(&mut self) {
        if self.held_back.is_empty() {
            return;
        }
        let (mut left, hang) = match &self.growth.auto {
            Some(auto) if self.queue.current() != 0 => {
                let hang = |exchange: &Arc<Exchange>| auto.hangs(exchange.kind);
                let hang: Vec<bool> = self.held_back.iter().map(hang).collect();
                (auto.left_to_who_hangs(), hang)
            }
            _ => (usize::MAX, Vec::new()),
        };
        let (mut go, mut stay) = (Vec::new(), VecDeque::new());
        let hang = hang.into_iter().chain(std::iter::repeat(false));
        for (exchange, hangs) in std::mem::take(&mut self.held_back).into_iter().zip(hang) {
            if hangs && left == 0 {
                stay.push_back(exchange);
                continue;
            }
            left = left.saturating_sub(usize::from(hangs));
            go.push(exchange);
        }
        self.held_back = stay;
        let now = Instant::now();
        for exchange in go.into_iter().rev() {
            self.queue.put_back(exchange, Lane::Usual, now);
        }
    }

    /// One of those is not wanted any more. False: it is none of them.
    pub(super) fn forget_held_back(&mut self, exchange: &Arc<Exchange>) -> bool {
        let place = self.held_back.iter().position(|held| held == exchange);
        place
            .and_then(|place| self.held_back.remove(place))
            .is_some()
    }

    /// How many requests wait.
    pub(super) fn queued(&self) -> usize {
        self.queue.queued() + self.held_back.len()
    }
}

impl Pool {
    /// Gives those a worker that were held back and may have one.
    pub(super) fn release(&self, inner: &mut Inner) {
        inner.release();
        while let Some(seat) = inner.queue.idle_for_waiting() {
            if !self.fill(inner, seat) {
                return;
            }
            if let Some(generation) = inner.generation(seat.generation) {
                generation.link().wake(seat.number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_of_a_path_says_what_is_asked_for() {
        let shop = of("/shop/cart?item=1");
        assert_eq!([of("/shop"), of("//shop/"), of("/shop?x=/y")], [shop; 3]);
        assert!(
            [of("/"), of("/shops"), of("/a/shop"), of("")]
                .iter()
                .all(|kind| *kind != shop)
        );
        assert_eq!(of("/"), of("/?page=2"));
    }
}
