//! Which request gets which seat: a pool's one queue, as a state machine without clock,
//! descriptor or lock. Whoever drives it carries its answers out.
//!
//! A request goes to the most recently used idle seat, so that few workers stay warm and the rest
//! may rest. While every seat is busy, requests wait (`wait_list.rs`). If the pool's scripts
//! are short, requests also wait in the spare slots of busy seats, where a worker finds them
//! without sleeping; if they are so short that waking another worker takes longer than waiting for
//! this one, they do so even while others are idle ([`Depth`]). One that was put behind a script
//! which lifo_starts out long is fetched from there by a seat with nothing to do ([`Next::TakeBack`]), or,
//! while there is none, waits with the others again, before them ([`Queue::come_back`]).
//!
//! The seats are those of all the pool's generations, and the queue is one: nobody waits for a
//! reload. How seats change hands is in `rolling_replace.rs`.

pub(crate) mod arrival;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use maitred_control::{Generation, Incarnation, Wear};
use maitred_seat::SLOTS_PER_SEAT;

use crate::pool::overload::Workload;
use crate::pool::seats::{GenerationPhase, GenerationSeats, Seat};
pub use crate::pool::seats::{SeatId, SlotRef};
use crate::pool::wait_list::{Joined, WaitList};

/// What became of a request that was submitted.
#[derive(Debug, PartialEq, Eq)]
pub enum Submission {
    /// It goes here, now.
    Placed(SlotRef),
    /// No worker has room for it: it is to wait ([`Queue::join`]).
    Busy,
    /// The pool has no workers and will not get any.
    NoWorkers,
}

/// What a seat does next.
#[derive(Debug, PartialEq, Eq)]
pub enum SeatAction<T> {
    /// This request goes here.
    Run(T, SlotRef),
    /// Try to take one of these requests back from where it waits behind another; if that
    /// succeeds, call [`Queue::moved`] and run it at `to`.
    TakeBack {
        /// Requests of one seat and where they are; all but one of them wait.
        from: Vec<(T, SlotRef)>,
        /// Where it would run at once.
        to: SlotRef,
    },
    /// Nothing.
    Rest,
}

/// Who waits before whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Gets a worker before all others, and some may be kept for it alone.
    Urgent,
    /// All others.
    Normal,
}

/// How many requests one seat may hold, the running one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// While other seats are idle. 1: an idle seat always comes first.
    pub before_waking: usize,
    /// While none is idle.
    pub when_busy: usize,
}

/// A pool's queue and seats. `T` is a request.
#[derive(Debug)]
pub struct Queue<T> {
    /// The generations, in the order they came.
    pub(crate) generations: Vec<GenerationSeats<T>>,
    /// The generation that gets new requests; 0: none.
    pub(crate) current: Generation,
    /// Seats with a worker and nothing to do, the most recently used last.
    pub(crate) idle: Vec<SeatId>,
    /// Requests that no seat has.
    pub waiting: WaitList<T>,
    /// Of those the urgent ones, in order. They are not among the others.
    urgent: VecDeque<T>,
    /// As many seats are kept for urgent requests.
    reserved: usize,
    /// How many seats run one.
    urgent_seats: usize,
    /// Seats with a worker that may get requests, all generations together.
    pub(crate) open: usize,
    /// Most of them.
    pub(crate) max_open: usize,
    /// And most for now: who comes beyond them waits for one of them to go.
    pub(crate) serving: usize,
    /// How many were open when the current generation took over, while seats of an older one are
    /// left; then as many as there may be.
    pub(crate) open_at_replace: usize,
    /// Workers of the current generation that get nothing until there is room for them.
    pub(crate) pending: VecDeque<(SeatId, Incarnation)>,
    /// Workers of a generation that is not used yet.
    pub(crate) prepared: Vec<(SeatId, Incarnation)>,
    /// Workers that never got anything and are to end.
    pub(crate) never_used: Vec<(SeatId, Incarnation)>,
    /// How many open seats get nothing more because their replacement serves already.
    pub(crate) closing: usize,
    /// As many seats stay open while nothing needs more, and no more than that; none: it is
    /// another's to decide.
    pub(crate) keep: Option<usize>,
    /// Workers that have become worn since somebody asked.
    pub(crate) worn: Vec<(SeatId, Incarnation, Wear)>,
    /// The seat that was given a request last.
    warm: SeatId,
    /// Requests that are in a slot of an open seat.
    pub(crate) held: usize,
}

impl<T: Clone + PartialEq> Queue<T> {
    /// A queue of a pool without a generation.
    pub fn new() -> Queue<T> {
        let nowhere = SeatId {
            generation: 0,
            number: 0,
        };
        Queue {
            generations: Vec::new(),
            current: 0,
            idle: Vec::new(),
            waiting: WaitList::new(),
            urgent: VecDeque::new(),
            reserved: 0,
            urgent_seats: 0,
            open: 0,
            max_open: 0,
            serving: usize::MAX,
            open_at_replace: usize::MAX,
            pending: VecDeque::new(),
            prepared: Vec::new(),
            never_used: Vec::new(),
            closing: 0,
            keep: None,
            worn: Vec::new(),
            warm: nowhere,
            held: 0,
        }
    }

    /// The generation that gets new requests; 0: none.
    pub fn current(&self) -> Generation {
        self.current
    }

    /// The requests that wait for workers of which there are none and will be none.
    pub fn abandon(&mut self) -> Vec<T> {
        if self.open > 0 || self.current != 0 {
            return Vec::new();
        }
        self.urgent.drain(..).chain(self.waiting.drain()).collect()
    }

    /// How many requests wait that are in no slot.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.urgent.len()
    }

    /// How many requests wait because every worker is busy, those in a slot behind another included: a
    /// seat runs one. While a worker is idle, nobody waits there for longer than waking it would take.
    pub fn queued(&self) -> usize {
        let behind = match self.idle.is_empty() {
            true => self.held.saturating_sub(self.busy()),
            false => 0,
        };
        self.waiting() + behind
    }

    /// From now on so many seats are kept for urgent requests.
    pub fn reserve(&mut self, seats: usize) {
        self.reserved = seats;
    }

    /// Whether a request that is not urgent may have another seat.
    fn has_normal_capacity(&self) -> bool {
        // At least one is everybody's.
        let most = self.max_open.saturating_sub(self.reserved).max(1);
        self.reserved == 0 || self.busy().saturating_sub(self.urgent_seats) < most
    }

    /// Whether a request of this priority may have another seat.
    fn has_capacity(&self, priority: Priority) -> bool {
        priority == Priority::Urgent || self.has_normal_capacity()
    }

    /// How many requests a seat may hold if it could be as many as `depth`. Where seats are kept for
    /// urgent requests, one: who is behind another waits for as long as that one hangs, and a usual
    /// request behind an urgent one has its seat when that is over.
    fn unreserved(&self, depth: Depth) -> Depth {
        match self.reserved {
            0 => depth,
            _ => Depth {
                before_waking: 1,
                when_busy: 1,
            },
        }
    }

    /// An idle seat that could run one of those who wait.
    pub fn idle_for_waiting(&self) -> Option<SeatId> {
        let waits =
            !self.urgent.is_empty() || !self.waiting.is_empty() && self.has_normal_capacity();
        self.idle_seat().filter(|_| waits)
    }

    /// How many idle seats requests may have that are not urgent.
    pub fn idle_for_normal(&self) -> usize {
        match self.has_normal_capacity() {
            true => self.idle.len(),
            false => 0,
        }
    }

    /// How many seats have a worker that may get requests.
    pub fn open_seats(&self) -> usize {
        self.open
    }

    /// Most seats that are open at once, all generations together.
    pub fn max_open(&self) -> usize {
        self.max_open
    }

    /// Counts for how many looks in a row each idle seat has been idle.
    pub fn age_idle(&mut self) {
        for seat in std::mem::take(&mut self.idle) {
            if let Some(place) = self.seat_mut(seat) {
                place.idle_checks = place.idle_checks.saturating_add(1);
            }
            self.idle.push(seat);
        }
    }

    /// Closes the seat that has been idle for longest, if more than `keep` are idle and it was so
    /// at the last `looks` looks. Nothing is on its way there, and nothing will be.
    pub fn retire(&mut self, keep: usize, idle_checks: u32) -> Option<(SeatId, Incarnation)> {
        let seat = *self.idle.first()?;
        let place = self.seat(seat)?;
        if self.idle.len() <= keep || place.idle_checks < idle_checks {
            return None;
        }
        let incarnation = place.incarnation;
        self.close(seat, incarnation);
        Some((seat, incarnation))
    }

    /// Whether a seat has more than one request.
    pub fn is_shared(&self, seat: SeatId) -> bool {
        self.seat(seat).is_some_and(|place| place.taken() > 1)
    }

    /// Whether a seat has such a request.
    pub fn has(&self, seat: SeatId, is_such: impl Fn(&T) -> bool) -> bool {
        let place = self.seat(seat);
        place.is_some_and(|place| place.slots.iter().flatten().any(is_such))
    }

    /// How many seats have something to do.
    pub fn busy(&self) -> usize {
        self.open - self.idle.len()
    }

    /// The seat that would be used next, if one is idle: one of the current generation, if there
    /// is one.
    pub fn idle_seat(&self) -> Option<SeatId> {
        let last = *self.idle.last()?;
        if last.generation == self.current {
            return Some(last);
        }
        let mut idle = self.idle.iter().rev();
        let current = idle.find(|seat| seat.generation == self.current);
        Some(current.copied().unwrap_or(last))
    }

    /// Before seats get what waits: what that tells of the queue at `now`.
    pub fn pass_time(&mut self, now: Instant, script: Duration) {
        let workload = self.workload(script);
        self.waiting.pass_time(now, &workload);
    }

    /// The next request that newer ones have passed for too long.
    pub fn next_to_shed(&mut self, now: Instant, script: Duration) -> Option<T> {
        let workload = self.workload(script);
        self.waiting.next_to_shed(now, &workload)
    }

    fn workload(&self, script: Duration) -> Workload {
        Workload {
            script,
            workers: self.open,
        }
    }

    pub(crate) fn generation_seats(&self, generation: Generation) -> Option<&GenerationSeats<T>> {
        let mut generations = self.generations.iter().rev();
        generations.find(|generation_seats| generation_seats.generation == generation)
    }

    pub(crate) fn generation_seats_mut(
        &mut self,
        generation: Generation,
    ) -> Option<&mut GenerationSeats<T>> {
        let mut generations = self.generations.iter_mut().rev();
        generations.find(|generation_seats| generation_seats.generation == generation)
    }

    pub(crate) fn seat(&self, seat: SeatId) -> Option<&Seat<T>> {
        self.generation_seats(seat.generation)?
            .seats
            .get(seat.number as usize)
    }

    pub(crate) fn seat_mut(&mut self, seat: SeatId) -> Option<&mut Seat<T>> {
        let generation_seats = self.generation_seats_mut(seat.generation)?;
        generation_seats.seats.get_mut(seat.number as usize)
    }

    /// Whether a generation's place has been taken, or nothing will.
    pub(crate) fn is_retiring(&self, generation: Generation) -> bool {
        self.generation_seats(generation)
            .is_some_and(|generation_seats| generation_seats.phase == GenerationPhase::Retiring)
    }

    fn wake(&mut self, seat: SeatId) {
        match self.idle.last() {
            Some(last) if *last == seat => drop(self.idle.pop()),
            _ => self.idle.retain(|idle| *idle != seat),
        }
    }

    /// The worker that sits in a seat and may get requests; 0: nobody.
    pub fn incarnation(&self, seat: SeatId) -> Incarnation {
        self.seat(seat).map_or(0, |place| place.incarnation)
    }

    /// The worker of a seat has gone: what it had, with the slots it had it in.
    pub fn close(&mut self, seat: SeatId, incarnation: Incarnation) -> Vec<(SlotRef, T)> {
        let Some(generation_seats) = self.generation_seats_mut(seat.generation) else {
            return Vec::new();
        };
        let Some(place) = generation_seats.seats.get_mut(seat.number as usize) else {
            return Vec::new();
        };
        if place.incarnation != incarnation || incarnation == 0 {
            return Vec::new();
        }
        place.incarnation = 0;
        generation_seats.open -= 1;
        let was_closing = std::mem::take(&mut place.closing);
        let was_urgent = std::mem::take(&mut place.urgent);
        let slots = place.slots.iter_mut().enumerate();
        let at = |slot| SlotRef {
            seat,
            slot,
            incarnation,
        };
        let had: Vec<_> = slots
            .filter_map(|(slot, item)| Some((at(slot), item.take()?)))
            .collect();
        self.held -= had.len();
        self.open -= 1;
        self.closing -= usize::from(was_closing);
        self.urgent_seats -= usize::from(was_urgent);
        self.idle.retain(|idle| *idle != seat);
        if !self.has_retiring() {
            self.open_at_replace = usize::MAX;
        }
        had
    }

    /// A request that was with a worker which died before it began: it is the next to run.
    pub fn put_back(&mut self, item: T, priority: Priority, now: Instant) {
        match priority {
            Priority::Urgent => self.urgent.push_front(item),
            Priority::Normal => self.waiting.put_back(item, now),
        }
    }

    /// A worker is through with a request. One that ends by itself after so many has left its seat.
    pub fn done(&mut self, at: SlotRef) {
        if let Some(place) = self.seat_mut(at.seat)
            && place.incarnation == at.incarnation
        {
            place.done += 1;
            place.long = false;
        }
        self.free(at);
        let is_used_up = |place: &Seat<T>| place.taken() == 0 && !place.serves_another();
        if self.incarnation(at.seat) == at.incarnation && self.seat(at.seat).is_some_and(is_used_up)
        {
            self.close(at.seat, at.incarnation);
        }
    }

    /// A slot is free again. Ask [`Queue::next_change`] what becomes of its seat, and
    /// [`Queue::next`] what it does now.
    pub fn free(&mut self, at: SlotRef) {
        let Some(place) = self.seat_mut(at.seat) else {
            return;
        };
        if place.incarnation != at.incarnation || place.slots[at.slot].take().is_none() {
            return;
        }
        if place.taken() == 0 {
            place.idle_checks = 0;
            place.long = false;
            let was_urgent = std::mem::take(&mut place.urgent);
            self.urgent_seats -= usize::from(was_urgent);
            self.idle.push(at.seat);
        }
        self.held -= 1;
    }

    /// What a seat that may have room does next. Call it until it says [`Next::Rest`].
    pub fn next(&mut self, seat: SeatId, depth: Depth) -> SeatAction<T> {
        let Some(place) = self.seat(seat) else {
            return SeatAction::Rest;
        };
        let depth = self.unreserved(depth);
        let taken = place.taken();
        let room = taken == 0 || !place.long && taken < depth.when_busy.min(SLOTS_PER_SEAT);
        if place.incarnation == 0 || !room || !place.serves_another() || self.refuses(seat) {
            return SeatAction::Rest;
        }
        if let Some(item) = self.urgent.pop_front() {
            self.wake(seat);
            let place = self.put(seat, item.clone(), Priority::Urgent);
            return SeatAction::Run(item, place);
        }
        if taken == 0 && !self.has_normal_capacity() {
            return SeatAction::Rest;
        }
        if let Some(item) = self.waiting.take() {
            self.wake(seat);
            let place = self.put(seat, item.clone(), Priority::Normal);
            return SeatAction::Run(item, place);
        }
        if taken > 0 || depth.before_waking > 1 {
            return SeatAction::Rest;
        }
        self.find_second(seat)
    }

    /// Requests of a seat that has more than one, for an idle seat to fetch one of. Which of
    /// them runs is the worker's to say, so the caller tries, the latest first.
    fn find_second(&self, seat: SeatId) -> SeatAction<T> {
        let seats = self.generations.iter().flat_map(|generation_seats| {
            let seats = (0u32..).zip(&generation_seats.seats);
            seats.map(|(number, place)| (generation_seats.generation, number, place))
        });
        let mut crowded = seats.filter(|(.., place)| place.incarnation != 0 && place.taken() > 1);
        match crowded.next() {
            None => SeatAction::Rest,
            Some((generation, number, place)) => SeatAction::TakeBack {
                from: place.all(SeatId { generation, number }),
                to: self.first_slot(seat),
            },
        }
    }

    fn first_slot(&self, seat: SeatId) -> SlotRef {
        SlotRef {
            seat,
            slot: 0,
            incarnation: self.incarnation(seat),
        }
    }

    /// A place at an idle seat, if there is one that is not kept for others.
    pub fn idle_place(&self, priority: Priority) -> Option<SlotRef> {
        let idle = self.idle_seat().filter(|_| self.has_capacity(priority));
        idle.map(|seat| self.first_slot(seat))
    }

    /// A request of this priority was taken back from `from` and runs at `to`, which was idle.
    pub fn moved(&mut self, item: T, priority: Priority, (from, to): (SlotRef, SlotRef)) {
        self.free(from);
        self.wake(to.seat);
        self.note_priority(to.seat, priority);
        self.hold(to.seat, to.slot, item);
    }

    /// A request of this priority was taken back from `from`, where the script before it has turned out long,
    /// and no seat is idle: it is the next to run, and until that script ends none gets behind it.
    pub fn requeue(&mut self, item: T, priority: Priority, (from, now): (SlotRef, Instant)) {
        self.free(from);
        if let Some(place) = self.seat_mut(from.seat) {
            place.long = place.incarnation == from.incarnation && place.taken() > 0;
        }
        self.put_back(item, priority, now);
    }

    /// Forgets a request that waits. False when it does not wait (any more).
    pub fn cancel(&mut self, item: &T, now: Instant) -> bool {
        let urgent = self.urgent.iter().position(|urgent| urgent == item);
        match urgent {
            Some(position) => self.urgent.remove(position).is_some(),
            None => self.waiting.cancel(item, now),
        }
    }

    /// A seat gets a request of this priority. It counts as an urgent one's while it has had no others.
    fn note_priority(&mut self, seat: SeatId, priority: Priority) {
        let Some(place) = self.seat_mut(seat) else {
            return;
        };
        let was_urgent = place.urgent;
        place.urgent = priority == Priority::Urgent && (was_urgent || place.taken() == 0);
        let is_urgent = place.urgent;
        self.urgent_seats += usize::from(is_urgent);
        self.urgent_seats -= usize::from(was_urgent);
    }

    fn put(&mut self, seat: SeatId, item: T, priority: Priority) -> SlotRef {
        self.warm = seat;
        self.note_priority(seat, priority);
        let slot = self.seat(seat).and_then(Seat::free_slot).unwrap_or(0);
        let incarnation = self.hold(seat, slot, item);
        SlotRef {
            seat,
            slot,
            incarnation,
        }
    }

    /// Notes what a seat has got, and how much that is by now.
    fn hold(&mut self, seat: SeatId, slot: usize, item: T) -> Incarnation {
        let Some(place) = self.seat_mut(seat) else {
            return 0;
        };
        let was_free = place.slots[slot].replace(item).is_none();
        place.given += 1;
        let (incarnation, is_worn) = (place.incarnation, place.given >= place.wears_at);
        self.held += usize::from(was_free);
        if is_worn {
            self.wear_out(seat, incarnation, Wear::Requests);
        }
        incarnation
    }
}

#[cfg(test)]
pub mod tests;
