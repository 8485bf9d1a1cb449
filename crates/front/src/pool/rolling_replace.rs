//! How seats change hands: from one generation of a pool to the next, from a worn worker to its
//! replacement, and at the end to nobody. Part of the queue's state machine.
//!
//! All generations together never have more open seats than the newest's `max_children`. A worker
//! that comes while there are as many is *pending*: it is ready and gets nothing. As soon as a
//! worker that is to go has nothing to do, it goes and the pending one takes its place, in one
//! step. Until then those who are to go serve as before, but take nothing into their spare slots.
//!
//! Where fewer are open than may be, a worker of the current generation is used at once, and still
//! takes the place of one that is to go: older generations keep no more seats than were open when
//! the current one took over, less those it has by now. They might wait for ever otherwise: the
//! supervisor may be unable to start more (`process.max`) before one of them has ended.

use maitred_control::{Generation, Incarnation, Wear};

use crate::pool::queue::Queue;
use crate::pool::seats::{GenerationPhase, GenerationSeats, Seat, SeatId, SlotRef};

/// A seat that changes hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeatChange {
    /// This worker gets nothing more, has nothing, and is to end.
    Retire(SeatId, Incarnation),
    /// This worker gets requests from now on. Ask [`Queue::next`] which.
    Open(SeatId),
}

impl<T: Clone + PartialEq> Queue<T> {
    /// All requests that have a worker, with its seat.
    pub fn assigned_requests(&self) -> impl Iterator<Item = (SeatId, &T)> {
        self.generations.iter().flat_map(|generation_seats| {
            let generation = generation_seats.generation;
            let seats = (0u32..).zip(&generation_seats.seats);
            seats.flat_map(move |(number, seat)| {
                let at = SeatId { generation, number };
                seat.slots.iter().flatten().map(move |item| (at, item))
            })
        })
    }

    /// A generation comes, and gets nothing yet.
    pub fn add(&mut self, generation: Generation, seats: u32, max_requests: u64) {
        self.generations
            .push(GenerationSeats::new(generation, seats, max_requests));
    }

    /// Each worker of a generation ends by itself when it has served this many requests.
    pub fn serve_each(&mut self, generation: Generation, requests: u64) {
        if let Some(generation_seats) = self.generation_seats_mut(generation) {
            generation_seats.serves = requests;
        }
    }

    /// From now on requests go to generation `new`, whose limits hold for all: at most `max_open`
    /// seats, and `limit` requests that wait.
    pub fn replace(&mut self, new: Generation, max_open: usize, limit: usize) {
        if self.generation_seats(new).is_none() {
            return;
        }
        for generation_seats in &mut self.generations {
            // Numbers only grow: what comes later waits for its own turn.
            if generation_seats.generation < new {
                generation_seats.phase = GenerationPhase::Retiring;
            } else if generation_seats.generation == new {
                generation_seats.phase = GenerationPhase::Current;
            }
        }
        (self.current, self.max_open) = (new, max_open);
        self.waiting.set_limit(limit);
        self.open_at_replace = match self.has_retiring() {
            true => self.open,
            false => usize::MAX,
        };
        self.never_used.extend(self.pending.drain(..));
        for (seat, incarnation) in std::mem::take(&mut self.prepared) {
            if seat.generation == new {
                self.pending.push_back((seat, incarnation));
            } else if seat.generation < new {
                self.never_used.push((seat, incarnation));
            } else {
                self.prepared.push((seat, incarnation));
            }
        }
    }

    /// A generation leaves and nothing takes its place.
    pub fn leave(&mut self, generation: Generation) {
        let Some(generation_seats) = self.generation_seats_mut(generation) else {
            return;
        };
        generation_seats.phase = GenerationPhase::Retiring;
        let is_its = |seat: &SeatId| seat.generation == generation;
        if self.current == generation {
            self.current = 0;
        }
        let unused = self.pending.iter().chain(&self.prepared).copied();
        self.never_used
            .extend(unused.filter(|(seat, _)| is_its(seat)));
        self.pending.retain(|(seat, _)| !is_its(seat));
        self.prepared.retain(|(seat, _)| !is_its(seat));
    }

    /// Nothing is left of a generation: whatever its seats still had, in order.
    pub fn remove(&mut self, generation: Generation) -> Vec<(SlotRef, T)> {
        let Some(generation_seats) = self.generation_seats(generation) else {
            return Vec::new();
        };
        let seats = (0u32..).zip(&generation_seats.seats);
        let open: Vec<_> = seats
            .filter(|(_, place)| place.incarnation != 0)
            .map(|(number, place)| (SeatId { generation, number }, place.incarnation))
            .collect();
        let closed = open.into_iter();
        let had = closed
            .flat_map(|(seat, incarnation)| self.close(seat, incarnation))
            .collect();
        if self.current == generation {
            self.current = 0;
        }
        self.generations
            .retain(|generation_seats| generation_seats.generation != generation);
        self.pending
            .retain(|(seat, _)| seat.generation != generation);
        self.prepared
            .retain(|(seat, _)| seat.generation != generation);
        self.never_used
            .retain(|(seat, _)| seat.generation != generation);
        had
    }

    /// From now on no seat is opened while so many are: who comes is pending. True if those are more than
    /// before.
    pub fn limit_serving(&mut self, seats: usize) -> bool {
        std::mem::replace(&mut self.serving, seats) < seats
    }

    /// No more than `workers` are to be there: of those that are ready and get nothing so far, as many go as are
    /// beyond that, or all. Those stay that are to take the place of another.
    pub fn limit_pending(&mut self, workers: usize) {
        if self.has_retiring() || self.has_worn() {
            return;
        }
        let stay = workers.saturating_sub(self.open);
        let beyond = self.pending.len().saturating_sub(stay);
        let first = self.pending.len() - beyond;
        self.never_used.extend(self.pending.drain(first..));
    }

    /// Whether a worker of the current generation is worn, and has not gone.
    fn has_worn(&self) -> bool {
        let is_worn = |place: &Seat<T>| place.incarnation != 0 && place.worn;
        let generation_seats = self.generation_seats(self.current);
        generation_seats.is_some_and(|generation_seats| generation_seats.seats.iter().any(is_worn))
    }

    /// Whether a worker that is ready may be used beside those that are.
    fn may_open_another(&self) -> bool {
        self.open < self.max_open.min(self.serving)
    }

    /// From now on no more than `keep` seats stay open without anything to do.
    pub fn keep_only(&mut self, keep: usize) {
        self.keep = Some(keep);
    }

    /// A worker is about to sit in a seat: whoever sat there, or waited to be of use there, is dead,
    /// even if nobody has said so yet. Returns what that one had.
    pub fn vacate(&mut self, seat: SeatId) -> Vec<(SlotRef, T)> {
        let other = |waiting: &(SeatId, Incarnation)| waiting.0 != seat;
        self.pending.retain(other);
        self.prepared.retain(other);
        self.never_used.retain(other);
        self.close(seat, self.incarnation(seat))
    }

    /// A worker sits in a seat and could get requests; `left` are slots in which it still has
    /// something from before.
    pub fn arrive(&mut self, seat: SeatId, incarnation: Incarnation, left: Vec<(usize, T)>) {
        let Some(generation_seats) = self.generation_seats(seat.generation) else {
            return;
        };
        if seat.number as usize >= generation_seats.seats.len() {
            return;
        }
        let room = self.may_open_another();
        match generation_seats.phase {
            // It is busy already.
            _ if !left.is_empty() => self.open(seat, incarnation, left),
            GenerationPhase::Prepared => self.prepared.push((seat, incarnation)),
            GenerationPhase::Current if room && self.pending.is_empty() => {
                self.close_one_worn();
                self.open(seat, incarnation, left);
            }
            GenerationPhase::Current => self.pending.push_back((seat, incarnation)),
            GenerationPhase::Retiring if room && self.pending.is_empty() => {
                self.open(seat, incarnation, left);
            }
            GenerationPhase::Retiring => self.never_used.push((seat, incarnation)),
        }
    }

    /// A worker that has got nothing so far is dead. False when it is none of these.
    pub fn forget_pending(&mut self, seat: SeatId, incarnation: Incarnation) -> bool {
        let other = |waiting: &(SeatId, Incarnation)| *waiting != (seat, incarnation);
        let count =
            |queue: &Queue<T>| queue.pending.len() + queue.prepared.len() + queue.never_used.len();
        let before = count(self);
        self.pending.retain(other);
        self.prepared.retain(other);
        self.never_used.retain(other);
        count(self) < before
    }

    fn open(&mut self, seat: SeatId, incarnation: Incarnation, left: Vec<(usize, T)>) {
        let Some(generation_seats) = self.generation_seats_mut(seat.generation) else {
            return;
        };
        let held = |generation_seats: &GenerationSeats<T>| {
            let place = generation_seats.seats.get(seat.number as usize);
            place.map_or(0, Seat::taken)
        };
        let (before, had, is_idle) = (
            generation_seats.open,
            held(generation_seats),
            left.is_empty(),
        );
        generation_seats.occupy(seat.number, incarnation, left);
        let (opened, has) = (generation_seats.open - before, held(generation_seats));
        self.open += opened;
        self.held = self.held + has - had;
        self.idle.retain(|idle| *idle != seat);
        if is_idle {
            self.idle.push(seat);
        }
    }

    /// A worker counts as worn from now on, once.
    pub fn wear_out(&mut self, seat: SeatId, incarnation: Incarnation, why: Wear) {
        if seat.generation != self.current {
            return;
        }
        if let Some(place) = self.seat_mut(seat)
            && place.incarnation == incarnation
            && !place.worn
        {
            place.worn = true;
            self.worn.push((seat, incarnation, why));
        }
    }

    /// A worker that has become worn since this was asked last.
    pub fn next_worn(&mut self) -> Option<(SeatId, Incarnation, Wear)> {
        self.worn.pop()
    }

    /// A worker comes while there is room: if it was started for a worn one, that one goes as
    /// soon as it has nothing to do.
    fn close_one_worn(&mut self) {
        let current = self.current;
        let Some(generation_seats) = self.generation_seats_mut(current) else {
            return;
        };
        let mut seats = generation_seats.seats.iter_mut();
        let worn = seats.find(|place| place.incarnation != 0 && place.worn && !place.closing);
        if let Some(place) = worn {
            place.closing = true;
            self.closing += 1;
        }
    }

    /// Whether a seat gets nothing more for now: it is to go, and somebody is to take its place.
    pub(crate) fn refuses(&self, seat: SeatId) -> bool {
        if self.nothing_changes() {
            return false;
        }
        self.seat(seat).is_some_and(|place| {
            place.closing
                || place.worn && !self.pending.is_empty()
                || self.is_retiring(seat.generation)
                    && (!self.pending.is_empty() || self.is_crowded())
        })
    }

    /// Whether no open seat is to go now.
    fn nothing_changes(&self) -> bool {
        self.closing == 0 && self.pending.is_empty() && !self.is_crowded()
    }

    /// Whether more seats are open than leave room for those of generations that leave.
    fn is_crowded(&self) -> bool {
        self.open > self.max_open.min(self.open_at_replace)
    }

    /// The next seat that changes hands now. Call it until there is none, whenever a worker has
    /// come or gone, a slot has got free, or generations have changed.
    pub fn next_seat_change(&mut self) -> Option<SeatChange> {
        if let Some((seat, incarnation)) = self.never_used.pop() {
            return Some(SeatChange::Retire(seat, incarnation));
        }
        if self.may_open_another()
            && let Some((seat, incarnation)) = self.pending.pop_front()
        {
            self.open(seat, incarnation, Vec::new());
            return Some(SeatChange::Open(seat));
        }
        let seat = self.dispensable()?;
        let incarnation = self.incarnation(seat);
        self.close(seat, incarnation);
        Some(SeatChange::Retire(seat, incarnation))
    }

    /// An idle seat that is to go now.
    fn dispensable(&self) -> Option<SeatId> {
        if self.idle.is_empty() {
            return None;
        }
        let ends = self.current == 0 && self.keep.is_none();
        let keep = if ends { Some(0) } else { self.keep };
        let unneeded = keep.is_some_and(|keep| self.waiting() == 0 && self.idle.len() > keep);
        if unneeded {
            // The last one is the one that is used next.
            return self.idle.first().copied();
        }
        if self.nothing_changes() {
            return None;
        }
        self.idle.iter().copied().find(|seat| self.refuses(*seat))
    }

    /// Closes an idle seat of a generation that leaves, if the current one has an idle seat as
    /// well.
    pub fn close_retiring(&mut self) -> Option<(SeatId, Incarnation)> {
        let current = |seat: &&SeatId| seat.generation == self.current;
        self.idle.iter().find(current)?;
        let mut idle = self.idle.iter().copied();
        let seat = idle.find(|seat| self.is_retiring(seat.generation))?;
        let incarnation = self.incarnation(seat);
        self.close(seat, incarnation);
        Some((seat, incarnation))
    }

    /// How many idle seats the current generation has.
    pub fn idle_current(&self) -> usize {
        let current = |seat: &&SeatId| seat.generation == self.current;
        self.idle.iter().filter(current).count()
    }

    /// How many seats of the current generation are open.
    pub fn open_current(&self) -> usize {
        self.generation_seats(self.current)
            .map_or(0, |generation_seats| generation_seats.open)
    }

    /// Whether a generation that leaves has open seats.
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
