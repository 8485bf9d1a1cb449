//! Arrival of a request in the queue: it gets a seat with free capacity, or a place on the wait
//! list.

use std::time::{Duration, Instant};

use maitred_scoreboard::RequestOutcome;
use maitred_seat::SLOTS_PER_SEAT;

use crate::pool::queue::{Depth, Priority, Queue, SeatId, Submission};
use crate::pool::seats::Seat;

impl<T: Clone + PartialEq> Queue<T> {
    /// The seat with capacity for a request that arrives now, and whether it is idle.
    fn seat_for(&self, priority: Priority, depth: Depth) -> Option<(SeatId, bool)> {
        let depth = self.unreserved(depth);
        let idle = self.idle_seat().filter(|_| self.has_capacity(priority));
        let is_better = |idle: SeatId| idle.generation == self.current;
        let stays = self.warm.generation == self.current || !idle.is_some_and(is_better);
        let takes_more = |entry| self.takes_more(self.warm, entry, depth.before_waking);
        if stays && self.seat(self.warm).is_some_and(takes_more) {
            return Some((self.warm, false));
        }
        if let Some(seat) = idle {
            return Some((seat, true));
        }
        if depth.when_busy > 1 && self.waiting() == 0 {
            return Some((self.busy_seat_with_capacity(depth.when_busy)?, false));
        }
        None
    }

    /// Assigns a request to a seat, if one has capacity.
    pub fn submit(&mut self, item: T, priority: Priority, depth: Depth) -> Submission {
        match self.seat_for(priority, depth) {
            Some((seat, is_idle)) => {
                if is_idle {
                    self.mark_busy(seat);
                }
                Submission::Placed(self.put(seat, item, priority))
            }
            None if self.has_no_workers() => Submission::NoWorkers,
            None => Submission::Busy,
        }
    }

    /// The reason why [`Queue::enqueue`] would reject a request that arrives now, if that is
    /// certain: then its records need not be encoded.
    pub fn would_reject(
        &mut self,
        priority: Priority,
        depth: Depth,
        now: Instant,
        max_wait: Duration,
        script: Duration,
    ) -> Option<RequestOutcome> {
        let is_busy = !self.has_no_workers() && self.seat_for(priority, depth).is_none();
        if priority == Priority::Urgent || !is_busy {
            return None;
        }
        let workload = self.workload(script);
        self.waiting.would_reject(now, max_wait, &workload)
    }

    /// Queues an urgent request, since no seat has capacity.
    ///
    /// # Errors
    /// The queue is full.
    pub fn enqueue_urgent(&mut self, item: T) -> Result<(), RequestOutcome> {
        if self.urgent.len() >= self.waiting.limit() {
            return Err(RequestOutcome::QueueFull);
        }
        self.urgent.push_back(item);
        Ok(())
    }

    /// Queues a request, since no seat has capacity ([`Submission::Busy`]), for at most `max_wait`
    /// from `now` on. `script` is the average script time. May return an older request that is
    /// dropped in exchange.
    ///
    /// # Errors
    /// The request is rejected.
    pub fn enqueue(
        &mut self,
        item: T,
        now: Instant,
        max_wait: Duration,
        script: Duration,
    ) -> Result<Option<T>, RequestOutcome> {
        let workload = self.workload(script);
        self.waiting.enqueue(item, now, max_wait, &workload)
    }

    /// A busy seat that may have another request, one of the current generation first.
    fn busy_seat_with_capacity(&self, depth: usize) -> Option<SeatId> {
        let mut generations = self.generations.iter().rev();
        generations.find_map(|seats| {
            let mut all = (0u32..).zip(&seats.seats);
            all.find_map(|(number, entry)| {
                let seat = SeatId { generation: seats.generation, number };
                self.takes_more(seat, entry, depth).then_some(seat)
            })
        })
    }

    /// Whether a busy seat may have another request.
    fn takes_more(&self, seat: SeatId, entry: &Seat<T>, depth: usize) -> bool {
        entry.incarnation != 0
            && (1..depth.min(SLOTS_PER_SEAT)).contains(&entry.taken())
            && entry.moves_on()
            && entry.serves_another()
            && !self.refuses(seat)
    }
}
