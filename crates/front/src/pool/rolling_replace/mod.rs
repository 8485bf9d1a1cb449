//! Replaces workers: those of one generation by those of the next, and a worn one by a new one;
//! and retires all of them when the pool is removed. Part of the queue's state machine.
//!
//! All generations together never have more open seats than the newest's `max_children`. A worker
//! that arrives while there are as many is *pending*: it is ready and gets no requests. As soon as
//! a worker to be replaced is idle, it retires and the pending one opens, in one step. Until then
//! the workers to be replaced serve as before, but get no requests in their spare slots.
//!
//! While fewer seats are open than allowed, a worker of the current generation opens at once, and
//! still replaces an older one: older generations keep no more seats than were open when the
//! current one took over, less the seats that it has opened. They might stay for ever otherwise:
//! the supervisor may be unable to start more (`process.max`) before one of them has exited.

use maitred_control::{Generation, Wear};

use crate::pool::queue::Queue;
use crate::pool::seats::{GenerationPhase, GenerationSeats, Seat, SeatId, SlotRef, WorkerRef};

/// A change of the worker of a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeatChange {
    /// This idle worker gets no further requests: let it exit.
    Retire(WorkerRef),
    /// The worker of this seat gets requests from now on: see [`Queue::next`].
    Open(SeatId),
}

impl<T: Clone + PartialEq> Queue<T> {
    /// All requests in seats, with the seat of each.
    pub fn assigned_requests(&self) -> impl Iterator<Item = (SeatId, &T)> {
        self.all_seats().flat_map(|(seat, entry)| {
            let requests = entry.slots.iter().flatten();
            requests.map(move |item| (seat, item))
        })
    }

    /// Adds a generation, which gets no requests yet.
    pub fn add(&mut self, generation: Generation, seats: u32, max_requests: u64) {
        self.generations.push(GenerationSeats::new(generation, seats, max_requests));
    }

    /// Sets the number of requests after which each worker of a generation exits by itself.
    pub fn serve_each(&mut self, generation: Generation, requests: u64) {
        if let Some(seats) = self.generation_seats_mut(generation) {
            seats.serves = requests;
        }
    }

    /// Sends new requests to generation `new`, and applies its limits to all generations together:
    /// at most `max_open` open seats, and `limit` waiting requests.
    pub fn replace(&mut self, new: Generation, max_open: usize, limit: usize) {
        if self.generation_seats(new).is_none() {
            return;
        }
        for seats in &mut self.generations {
            // Numbers only grow: a later generation waits for its own replacement.
            if seats.generation < new {
                seats.phase = GenerationPhase::Retiring;
            } else if seats.generation == new {
                seats.phase = GenerationPhase::Current;
            }
        }
        (self.current, self.max_open) = (new, max_open);
        self.waiting.set_limit(limit);
        self.open_at_replace = if self.has_retiring() { self.open } else { usize::MAX };
        self.unused.extend(self.pending.drain(..));
        for worker in std::mem::take(&mut self.prepared) {
            if worker.seat.generation == new {
                self.pending.push_back(worker);
            } else if worker.seat.generation < new {
                self.unused.push(worker);
            } else {
                self.prepared.push(worker);
            }
        }
    }

    /// Retires a generation without a replacement.
    pub fn leave(&mut self, generation: Generation) {
        let Some(seats) = self.generation_seats_mut(generation) else {
            return;
        };
        seats.phase = GenerationPhase::Retiring;
        if self.current == generation {
            self.current = 0;
        }
        let never_used = self.pending.iter().chain(&self.prepared).copied();
        self.unused.extend(never_used.filter(|worker| worker.seat.generation == generation));
        self.pending.retain(|worker| worker.seat.generation != generation);
        self.prepared.retain(|worker| worker.seat.generation != generation);
    }

    /// Removes a generation without workers. Returns the requests in its seats, in order.
    pub fn remove(&mut self, generation: Generation) -> Vec<(SlotRef, T)> {
        let all = self.all_seats();
        let open: Vec<_> = all
            .filter(|(seat, _)| seat.generation == generation)
            .map(|(seat, entry)| seat.worker(entry.incarnation))
            .collect();
        let had = open.into_iter().flat_map(|worker| self.close(worker));
        let had = had.collect();
        if self.current == generation {
            self.current = 0;
        }
        self.generations.retain(|seats| seats.generation != generation);
        self.forget_unopened(|worker| worker.seat.generation == generation);
        had
    }

    /// Limits the number of open seats: further workers stay pending. True if the limit was lower
    /// before.
    pub fn limit_serving(&mut self, seats: usize) -> bool {
        std::mem::replace(&mut self.serving, seats) < seats
    }

    /// Retires pending workers beyond a total of `workers`, except those that replace others.
    pub fn limit_pending(&mut self, workers: usize) {
        if self.has_retiring() || self.has_worn() {
            return;
        }
        let stay = workers.saturating_sub(self.open);
        self.unused.extend(self.pending.drain(stay.min(self.pending.len())..));
    }

    /// Whether a worker of the current generation is worn and still there.
    fn has_worn(&self) -> bool {
        let is_worn = |entry: &Seat<T>| entry.incarnation != 0 && entry.worn;
        let current = self.generation_seats(self.current);
        current.is_some_and(|seats| seats.seats.iter().any(is_worn))
    }

    /// Whether another worker may open a seat beside the open ones.
    fn may_open_another(&self) -> bool {
        self.open < self.max_open.min(self.serving)
    }

    /// Closes idle seats beyond `keep` from now on.
    pub fn keep_only(&mut self, keep: usize) {
        self.keep = Some(keep);
    }

    /// Clears a seat for a new worker: its former worker is dead, even if that has not been
    /// reported yet. Returns the former worker's requests.
    pub fn vacate(&mut self, seat: SeatId) -> Vec<(SlotRef, T)> {
        self.forget_unopened(|worker| worker.seat == seat);
        self.close(seat.worker(self.incarnation(seat)))
    }

    /// Adds a ready worker; `inherited` are its requests from an earlier front.
    pub fn arrive(&mut self, worker: WorkerRef, inherited: Vec<(usize, T)>) {
        let seat = worker.seat;
        let Some(seats) = self.generation_seats(seat.generation) else {
            return;
        };
        if seat.number >= seats.most {
            return;
        }
        let may_open = self.may_open_another() && self.pending.is_empty();
        match seats.phase {
            // It is busy already.
            _ if !inherited.is_empty() => self.open(worker, inherited),
            GenerationPhase::Prepared => self.prepared.push(worker),
            GenerationPhase::Current if may_open => {
                self.close_one_worn();
                self.open(worker, inherited);
            }
            GenerationPhase::Current => self.pending.push_back(worker),
            GenerationPhase::Retiring if may_open => self.open(worker, inherited),
            GenerationPhase::Retiring => self.unused.push(worker),
        }
    }

    /// Removes a dead worker whose seat was never opened. False for any other worker.
    pub fn forget_pending(&mut self, worker: WorkerRef) -> bool {
        self.forget_unopened(|other| *other == worker)
    }

    /// Forgets the workers without an open seat for which `is_gone`. False when there were none.
    fn forget_unopened(&mut self, is_gone: impl Fn(&WorkerRef) -> bool) -> bool {
        let count =
            |queue: &Queue<T>| queue.pending.len() + queue.prepared.len() + queue.unused.len();
        let before = count(self);
        self.pending.retain(|worker| !is_gone(worker));
        self.prepared.retain(|worker| !is_gone(worker));
        self.unused.retain(|worker| !is_gone(worker));
        count(self) < before
    }

    fn open(&mut self, worker: WorkerRef, inherited: Vec<(usize, T)>) {
        let WorkerRef { seat, incarnation } = worker;
        let Some(seats) = self.generation_seats_mut(seat.generation) else {
            return;
        };
        let taken = |seats: &GenerationSeats<T>| {
            let entry = seats.seats.get(seat.number as usize);
            entry.map_or(0, Seat::taken)
        };
        let (open_before, had, is_idle) = (seats.open, taken(seats), inherited.is_empty());
        seats.occupy(seat.number, incarnation, inherited);
        let (opened, has) = (seats.open - open_before, taken(seats));
        self.open += opened;
        self.held = self.held + has - had;
        self.idle.retain(|idle| *idle != seat);
        if is_idle {
            self.idle.push(seat);
        }
    }

    /// Marks a worker as worn: due for replacement.
    pub fn wear_out(&mut self, worker: WorkerRef, why: Wear) {
        if worker.seat.generation != self.current {
            return;
        }
        if let Some(entry) = self.seat_of(worker)
            && !entry.worn
        {
            entry.worn = true;
            self.worn.push((worker, why));
        }
    }

    /// A worker that became worn since the last call, and the reason.
    pub fn next_worn(&mut self) -> Option<(WorkerRef, Wear)> {
        self.worn.pop()
    }

    /// Another worker opens its seat: if it was started for a worn one, that one closes once idle.
    fn close_one_worn(&mut self) {
        let current = self.current;
        let Some(seats) = self.generation_seats_mut(current) else {
            return;
        };
        let mut all = seats.seats.iter_mut();
        let worn = all.find(|entry| entry.incarnation != 0 && entry.worn && !entry.closing);
        if let Some(entry) = worn {
            entry.closing = true;
            self.closing += 1;
        }
    }

    /// Whether a seat gets no more requests now, because its worker is about to be replaced.
    pub(crate) fn refuses(&self, seat: SeatId) -> bool {
        if self.nothing_changes() {
            return false;
        }
        self.seat(seat).is_some_and(|entry| {
            entry.closing
                || entry.worn && !self.pending.is_empty()
                || self.is_retiring(seat.generation)
                    && (!self.pending.is_empty() || self.is_crowded())
        })
    }

    /// Whether no open seat is to close now.
    fn nothing_changes(&self) -> bool {
        self.closing == 0 && self.pending.is_empty() && !self.is_crowded()
    }

    /// Whether seats of retiring generations have to close for those of the current one.
    fn is_crowded(&self) -> bool {
        self.open > self.max_open.min(self.open_at_replace)
    }

    /// The next change of a seat. Call it until there is none, after a worker has arrived or died,
    /// a slot has become free, or a generation has changed.
    pub fn next_seat_change(&mut self) -> Option<SeatChange> {
        if let Some(worker) = self.unused.pop() {
            return Some(SeatChange::Retire(worker));
        }
        if self.may_open_another()
            && let Some(worker) = self.pending.pop_front()
        {
            self.open(worker, Vec::new());
            return Some(SeatChange::Open(worker.seat));
        }
        let seat = self.dispensable()?;
        Some(SeatChange::Retire(self.close_seat(seat)))
    }

    /// An idle seat that has to close now.
    fn dispensable(&self) -> Option<SeatId> {
        if self.idle.is_empty() {
            return None;
        }
        let is_ending = self.current == 0 && self.keep.is_none();
        let keep = if is_ending { Some(0) } else { self.keep };
        let is_unneeded = keep.is_some_and(|keep| self.waiting() == 0 && self.idle.len() > keep);
        if is_unneeded {
            // The last one is used next.
            return self.idle.first().copied();
        }
        if self.nothing_changes() {
            return None;
        }
        self.idle.iter().copied().find(|seat| self.refuses(*seat))
    }

    /// Closes an idle seat of a retiring generation, if the current one has an idle seat as well.
    pub fn close_retiring(&mut self) -> Option<WorkerRef> {
        if self.idle_current() == 0 {
            return None;
        }
        let mut idle = self.idle.iter().copied();
        let seat = idle.find(|seat| self.is_retiring(seat.generation))?;
        Some(self.close_seat(seat))
    }

    /// Number of idle seats of the current generation.
    pub fn idle_current(&self) -> usize {
        let current = |seat: &&SeatId| seat.generation == self.current;
        self.idle.iter().filter(current).count()
    }

    /// Number of open seats of the current generation.
    pub fn open_current(&self) -> usize {
        let current = self.generation_seats(self.current);
        current.map_or(0, |seats| seats.open)
    }

    /// Whether a retiring generation has open seats.
    pub fn has_retiring(&self) -> bool {
        self.open > self.open_current()
    }

    /// Whether there are neither generations nor requests.
    pub fn is_void(&self) -> bool {
        self.generations.is_empty() && self.waiting() == 0
    }
}

#[cfg(test)]
mod tests;
