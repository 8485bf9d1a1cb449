//! A request comes: the seat that has room for it, or whether it waits.

use std::time::{Duration, Instant};

use maitred_seat::SLOTS_PER_SEAT;

use crate::pool::queue::{Depth, Joined, Priority, Queue, SeatId, Submission};

impl<T: Clone + PartialEq> Queue<T> {
    /// The seat that has room for a request of this priority which comes now, and whether it is idle.
    fn seat_for(&self, priority: Priority, depth: Depth) -> Option<(SeatId, bool)> {
        let depth = self.unreserved(depth);
        let idle = self.idle_seat().filter(|_| self.has_capacity(priority));
        let is_better = |idle: SeatId| idle.generation == self.current;
        let stays = self.warm.generation == self.current || !idle.is_some_and(is_better);
        if stays && self.takes_more(self.warm, depth.before_waking) {
            return Some((self.warm, false));
        }
        if let Some(seat) = idle {
            return Some((seat, true));
        }
        if depth.when_busy > 1 && self.waiting() == 0 {
            return Some((self.roomy_seat(depth.when_busy)?, false));
        }
        None
    }

    /// There are no workers, and there will be none.
    fn has_no_workers(&self) -> bool {
        self.open == 0 && self.current == 0
    }

    /// A request has come.
    pub fn submit(&mut self, item: T, priority: Priority, depth: Depth) -> Submission {
        match self.seat_for(priority, depth) {
            Some((seat, is_idle)) => {
                if is_idle {
                    self.wake(seat);
                }
                Submission::Placed(self.put(seat, item, priority))
            }
            None if self.has_no_workers() => Submission::NoWorkers,
            None => Submission::Busy,
        }
    }

    /// What [`Queue::join`] would say to a request that comes now, if it is certain to be turned away:
    /// whoever asks before need not make it.
    pub fn would_reject(
        &mut self,
        (priority, depth): (Priority, Depth),
        patience: (Instant, Duration),
        script: Duration,
    ) -> Option<Joined<T>> {
        let is_busy = !self.has_no_workers() && self.seat_for(priority, depth).is_none();
        if priority == Priority::Urgent || !is_busy {
            return None;
        }
        let workload = self.workload(script);
        self.waiting.would_reject(patience, &workload)
    }

    /// An urgent request that found no room waits, if there are not too many.
    pub fn enqueue_urgent(&mut self, item: T) -> Joined<T> {
        if self.urgent.len() >= self.waiting.limit() {
            return Joined::Full;
        }
        self.urgent.push_back(item);
        Joined::Waits
    }

    /// A request that found no room ([`Submitted::Busy`]) waits from `now` on, for `within` at most,
    /// unless that is in vain. Scripts take `script`.
    pub fn enqueue(
        &mut self,
        item: T,
        patience: (Instant, Duration),
        script: Duration,
    ) -> Joined<T> {
        let workload = self.workload(script);
        self.waiting.enqueue(item, patience, &workload)
    }

    /// A busy seat that may hold another request, one of the current generation first.
    fn roomy_seat(&self, depth: usize) -> Option<SeatId> {
        let mut seats = self.generations.iter().rev().flat_map(|generation_seats| {
            let numbers = (0u32..).take(generation_seats.seats.len());
            numbers.map(|number| SeatId {
                generation: generation_seats.generation,
                number,
            })
        });
        seats.find(|&seat| self.takes_more(seat, depth))
    }

    /// Whether a busy seat may hold another request.
    fn takes_more(&self, seat: SeatId, depth: usize) -> bool {
        self.seat(seat).is_some_and(|place| {
            place.incarnation != 0
                && (1..depth.min(SLOTS_PER_SEAT)).contains(&place.taken())
                && !place.long
                && place.serves_another()
                && !self.refuses(seat)
        })
    }
}
