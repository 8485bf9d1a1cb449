//! Assigns requests to seats: a pool's one queue, as a state machine without clock, descriptor or
//! lock. The caller carries out its decisions.
//!
//! A request goes to the most recently used idle seat, so that few workers stay warm and the rest
//! may be stopped. While every seat is busy, requests wait (`wait_list.rs`). If the pool's scripts
//! are short, requests also wait in the spare slots of busy seats, where a worker finds them
//! without sleeping; if they are so short that waking another worker takes longer than waiting for
//! this one, they do so even while others are idle ([`Depth`]). If the script in front of such a
//! request runs long, an idle seat takes the request over ([`SeatAction::TakeBack`]); without an
//! idle seat it returns to the head of the queue ([`Queue::requeue`]).
//!
//! The seats are those of all the pool's generations, and the queue is one: no request waits for a
//! reload. `rolling_replace.rs` replaces the workers of one generation by those of the next.

pub(crate) mod arrival;
mod unclaimed;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use maitred_control::{Generation, Incarnation, Wear};
use maitred_seat::SLOTS_PER_SEAT;

use crate::pool::overload::Workload;
use crate::pool::seats::{GenerationPhase, GenerationSeats, Seat};
pub use crate::pool::seats::{SeatId, SlotRef, WorkerRef};
use crate::pool::wait_list::WaitList;

/// The result of submitting a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Submission {
    /// It is assigned to this slot now.
    Placed(SlotRef),
    /// No worker has capacity: it has to wait ([`Queue::enqueue`]).
    Busy,
    /// The pool has no workers and will not get any.
    NoWorkers,
}

/// The next action for a seat.
#[derive(Debug, PartialEq, Eq)]
pub enum SeatAction<T> {
    /// Assign this request to this slot.
    Run(T, SlotRef),
    /// Try to withdraw one of these requests, which wait behind another; on success call
    /// [`Queue::moved`] and run it at `to`.
    TakeBack {
        /// The requests of one seat and their slots; all but one of them wait.
        from: Vec<(T, SlotRef)>,
        /// The idle slot.
        to: SlotRef,
    },
    /// Nothing to do.
    Rest,
}

/// Queue priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Served before all others; `reserved_workers` are reserved for this priority.
    Urgent,
    /// Normal priority.
    Normal,
}

/// Maximum number of requests in one seat, including the running one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// The maximum while other seats are idle. 1: an idle seat is always preferred.
    pub before_waking: usize,
    /// The maximum while no seat is idle.
    pub when_busy: usize,
}

/// A pool's queue and seats. `T` is a request.
#[derive(Debug)]
pub struct Queue<T> {
    /// The generations, in the order of their arrival.
    pub(crate) generations: Vec<GenerationSeats<T>>,
    /// The generation that gets new requests; 0: none.
    pub(crate) current: Generation,
    /// Idle seats with a worker, the most recently used last.
    pub(crate) idle: Vec<SeatId>,
    /// Requests of normal priority without a slot.
    pub waiting: WaitList<T>,
    /// Urgent requests without a slot, in order of arrival.
    urgent: VecDeque<T>,
    /// Number of seats reserved for urgent requests.
    reserved: usize,
    /// Number of seats that run an urgent request.
    urgent_seats: usize,
    /// Seats with a worker that may get requests, all generations together.
    pub(crate) open: usize,
    /// Limit of open seats.
    pub(crate) max_open: usize,
    /// Current cap on open seats; workers above it stay pending until a seat closes.
    pub(crate) serving: usize,
    /// Number of open seats when the current generation took over, while seats of an older one
    /// are left; then `usize::MAX`.
    pub(crate) open_at_replace: usize,
    /// Workers of the current generation that wait for a seat to close.
    pub(crate) pending: VecDeque<WorkerRef>,
    /// Workers of a generation that is not used yet.
    pub(crate) prepared: Vec<WorkerRef>,
    /// Workers that never got a request and are to exit.
    pub(crate) unused: Vec<WorkerRef>,
    /// Number of open seats that get no more requests because their replacement already serves.
    pub(crate) closing: usize,
    /// Number of idle seats that stay open; none: this queue does not decide it.
    pub(crate) keep: Option<usize>,
    /// Workers that have become worn since the last [`Queue::next_worn`].
    pub(crate) worn: Vec<(WorkerRef, Wear)>,
    /// The seat of the last assigned request.
    warm: SeatId,
    /// Requests that are in a slot of an open seat.
    pub(crate) held: usize,
}

impl<T: Clone + PartialEq> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue::new()
    }
}

impl<T: Clone + PartialEq> Queue<T> {
    /// The queue of a pool without a generation.
    pub fn new() -> Queue<T> {
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
            unused: Vec::new(),
            closing: 0,
            keep: None,
            worn: Vec::new(),
            warm: SeatId::default(),
            held: 0,
        }
    }

    /// The generation that gets new requests; 0: none.
    pub fn current(&self) -> Generation {
        self.current
    }

    /// Removes all waiting requests if there is no worker, and none is expected.
    pub fn abandon(&mut self) -> Vec<T> {
        if !self.has_no_workers() {
            return Vec::new();
        }
        self.take_waiting()
    }

    /// Removes all waiting requests.
    pub fn take_waiting(&mut self) -> Vec<T> {
        self.urgent.drain(..).chain(self.waiting.drain()).collect()
    }

    /// Whether a worker is open.
    pub fn has_open_workers(&self) -> bool {
        self.open > 0
    }

    /// Whether there is no worker and will be none.
    fn has_no_workers(&self) -> bool {
        self.open == 0 && self.current == 0
    }

    /// Number of requests without a slot.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.urgent.len()
    }

    /// Number of requests that wait because every worker is busy, including those in a slot behind
    /// another: a seat runs one at a time. While a worker is idle, a request in a slot waits only
    /// until its worker wakes up.
    pub fn queued(&self) -> usize {
        let behind = if self.idle.is_empty() { self.held.saturating_sub(self.busy()) } else { 0 };
        self.waiting() + behind
    }

    /// Reserves this many seats for urgent requests.
    pub fn reserve(&mut self, seats: usize) {
        self.reserved = seats;
    }

    /// Whether requests of normal priority may use another seat.
    fn has_normal_capacity(&self) -> bool {
        // At least one seat is open to all.
        let most = self.max_open.saturating_sub(self.reserved).max(1);
        self.reserved == 0 || self.busy().saturating_sub(self.urgent_seats) < most
    }

    /// Whether a request of this priority may use another seat.
    fn has_capacity(&self, priority: Priority) -> bool {
        priority == Priority::Urgent || self.has_normal_capacity()
    }

    /// `depth`, or one request for each seat where seats are reserved for urgent requests: behind
    /// another one a request waits for as long as that one hangs, and a normal request behind an
    /// urgent one would keep its seat afterwards.
    fn unreserved(&self, depth: Depth) -> Depth {
        if self.reserved == 0 {
            return depth;
        }
        Depth { before_waking: 1, when_busy: 1 }
    }

    /// An idle seat that could run one of the waiting requests.
    pub fn idle_for_waiting(&self) -> Option<SeatId> {
        let waits =
            !self.urgent.is_empty() || !self.waiting.is_empty() && self.has_normal_capacity();
        self.idle_seat().filter(|_| waits)
    }

    /// Number of idle seats that requests of normal priority may use.
    pub fn idle_for_normal(&self) -> usize {
        if self.has_normal_capacity() { self.idle.len() } else { 0 }
    }

    /// Number of seats with a worker that may get requests.
    pub fn open_seats(&self) -> usize {
        self.open
    }

    /// Limit of open seats, all generations together.
    pub fn max_open(&self) -> usize {
        self.max_open
    }

    /// Counts an idleness check for each idle seat.
    pub fn age_idle(&mut self) {
        for seat in std::mem::take(&mut self.idle) {
            if let Some(entry) = self.seat_mut(seat) {
                entry.idle_checks = entry.idle_checks.saturating_add(1);
            }
            self.idle.push(seat);
        }
    }

    /// Closes the seat that has been idle for longest, if more than `keep` seats are idle and the
    /// last `idle_checks` checks found this one idle. It has no request then.
    pub fn retire(&mut self, keep: usize, idle_checks: u32) -> Option<WorkerRef> {
        let seat = *self.idle.first()?;
        if self.idle.len() <= keep || self.seat(seat)?.idle_checks < idle_checks {
            return None;
        }
        let worker = self.close_seat(seat);
        if let Some(entry) = self.seat_mut(seat) {
            entry.retired = worker.incarnation;
        }
        Some(worker)
    }

    /// Whether this worker was the last one of its seat, and [`Queue::retire`] has returned it.
    pub fn was_retired(&self, worker: WorkerRef) -> bool {
        let is_it = |entry: &Seat<T>| entry.retired == worker.incarnation && entry.incarnation == 0;
        self.seat(worker.seat).is_some_and(is_it)
    }

    /// Closes a seat without a request.
    pub(crate) fn close_seat(&mut self, seat: SeatId) -> WorkerRef {
        let worker = seat.worker(self.incarnation(seat));
        self.close(worker);
        worker
    }

    /// Whether a seat has more than one request.
    pub fn is_shared(&self, seat: SeatId) -> bool {
        self.seat(seat).is_some_and(|entry| entry.taken() > 1)
    }

    /// Whether a seat has a request with this property.
    pub fn has(&self, seat: SeatId, matches: impl Fn(&T) -> bool) -> bool {
        let entry = self.seat(seat);
        entry.is_some_and(|entry| entry.slots.iter().flatten().any(matches))
    }

    /// Number of busy seats.
    pub fn busy(&self) -> usize {
        self.open - self.idle.len()
    }

    /// The idle seat to use next: one of the current generation, if possible.
    pub fn idle_seat(&self) -> Option<SeatId> {
        let last = *self.idle.last()?;
        if last.generation == self.current {
            return Some(last);
        }
        let mut idle = self.idle.iter().rev();
        let current = idle.find(|seat| seat.generation == self.current);
        Some(current.copied().unwrap_or(last))
    }

    /// Updates the overload detection. Call it before assigning waiting requests to seats.
    pub fn pass_time(&mut self, now: Instant, script: Duration) {
        let workload = self.workload(script);
        self.waiting.pass_time(now, &workload);
    }

    /// The next request to shed: newer ones have overtaken it for too long.
    pub fn next_to_shed(&mut self, now: Instant, script: Duration) -> Option<T> {
        let workload = self.workload(script);
        self.waiting.next_to_shed(now, &workload)
    }

    fn workload(&self, script: Duration) -> Workload {
        Workload { script, workers: self.open }
    }

    pub(crate) fn generation_seats(&self, generation: Generation) -> Option<&GenerationSeats<T>> {
        let mut all = self.generations.iter().rev();
        all.find(|seats| seats.generation == generation)
    }

    pub(crate) fn generation_seats_mut(
        &mut self,
        generation: Generation,
    ) -> Option<&mut GenerationSeats<T>> {
        let mut all = self.generations.iter_mut().rev();
        all.find(|seats| seats.generation == generation)
    }

    pub(crate) fn seat(&self, seat: SeatId) -> Option<&Seat<T>> {
        let generation = self.generation_seats(seat.generation)?;
        generation.seats.get(seat.number as usize)
    }

    pub(crate) fn seat_mut(&mut self, seat: SeatId) -> Option<&mut Seat<T>> {
        let generation = self.generation_seats_mut(seat.generation)?;
        generation.seats.get_mut(seat.number as usize)
    }

    /// The seat of a worker, unless another worker has it now.
    pub(crate) fn seat_of(&mut self, worker: WorkerRef) -> Option<&mut Seat<T>> {
        let entry = self.seat_mut(worker.seat)?;
        Some(entry).filter(|entry| entry.incarnation == worker.incarnation)
    }

    /// Whether another generation has replaced this one, or the pool is being removed.
    pub(crate) fn is_retiring(&self, generation: Generation) -> bool {
        self.generation_seats(generation)
            .is_some_and(|seats| seats.phase == GenerationPhase::Retiring)
    }

    fn mark_busy(&mut self, seat: SeatId) {
        match self.idle.last() {
            Some(last) if *last == seat => drop(self.idle.pop()),
            _ => self.idle.retain(|idle| *idle != seat),
        }
    }

    /// The worker of a seat, if it may get requests; 0: none.
    pub fn incarnation(&self, seat: SeatId) -> Incarnation {
        self.seat(seat).map_or(0, |entry| entry.incarnation)
    }

    /// Closes the seat of a dead worker. Returns its requests with their slots.
    pub fn close(&mut self, worker: WorkerRef) -> Vec<(SlotRef, T)> {
        let WorkerRef { seat, incarnation } = worker;
        if incarnation == 0 {
            return Vec::new();
        }
        let Some(generation) = self.generation_seats_mut(seat.generation) else {
            return Vec::new();
        };
        let Some(entry) = generation.seats.get_mut(seat.number as usize) else {
            return Vec::new();
        };
        if entry.incarnation != incarnation {
            return Vec::new();
        }
        entry.incarnation = 0;
        generation.open -= 1;
        let was_closing = std::mem::take(&mut entry.closing);
        let was_urgent = std::mem::take(&mut entry.urgent);
        let slots = entry.slots.iter_mut().enumerate();
        let slot_ref = |slot| SlotRef { seat, slot, incarnation };
        let had: Vec<_> =
            slots.filter_map(|(slot, item)| Some((slot_ref(slot), item.take()?))).collect();
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

    /// Returns a request to the head of the queue: its worker died before it started.
    pub fn put_back(&mut self, item: T, priority: Priority, now: Instant) {
        match priority {
            Priority::Urgent => self.urgent.push_front(item),
            Priority::Normal => self.waiting.put_back(item, now),
        }
    }

    /// Handles the end of a request. Closes the seat if its worker exits by itself now.
    pub fn done(&mut self, at: SlotRef) {
        if let Some(entry) = self.seat_of(at.worker()) {
            entry.done += 1;
            entry.long = false;
            entry.unclaimed = Duration::ZERO;
        }
        self.free(at);
        let is_used_up = |entry: &mut Seat<T>| entry.taken() == 0 && !entry.serves_another();
        if self.seat_of(at.worker()).is_some_and(is_used_up) {
            self.close(at.worker());
        }
    }

    /// Frees a slot. [`Queue::next_seat_change`] and then [`Queue::next`] decide how to use the
    /// seat.
    pub fn free(&mut self, at: SlotRef) {
        let Some(entry) = self.seat_of(at.worker()) else {
            return;
        };
        if entry.slots[at.slot].take().is_none() {
            return;
        }
        if entry.taken() == 0 {
            entry.idle_checks = 0;
            entry.long = false;
            let was_urgent = std::mem::take(&mut entry.urgent);
            let is_stalled = entry.is_stalled();
            self.urgent_seats -= usize::from(was_urgent);
            self.push_idle(at.seat, is_stalled);
        }
        self.held -= 1;
    }

    /// The next action for a seat with possible capacity. Call it until it returns
    /// [`SeatAction::Rest`].
    pub fn next(&mut self, seat: SeatId, depth: Depth) -> SeatAction<T> {
        let Some(entry) = self.seat(seat) else {
            return SeatAction::Rest;
        };
        let depth = self.unreserved(depth);
        let taken = entry.taken();
        let is_free = taken == 0 || entry.moves_on() && taken < depth.when_busy.min(SLOTS_PER_SEAT);
        if entry.incarnation == 0 || !is_free || !entry.serves_another() || self.refuses(seat) {
            return SeatAction::Rest;
        }
        if let Some(item) = self.urgent.pop_front() {
            self.mark_busy(seat);
            let at = self.put(seat, item.clone(), Priority::Urgent);
            return SeatAction::Run(item, at);
        }
        if taken == 0 && !self.has_normal_capacity() {
            return SeatAction::Rest;
        }
        if let Some(item) = self.waiting.take() {
            self.mark_busy(seat);
            let at = self.put(seat, item.clone(), Priority::Normal);
            return SeatAction::Run(item, at);
        }
        if taken > 0 || depth.before_waking > 1 {
            return SeatAction::Rest;
        }
        self.find_second(seat)
    }

    /// The requests of a seat with more than one, for an idle seat to take one over. The queue
    /// does not know which of them runs, so the caller tries each, the latest first.
    fn find_second(&self, idle: SeatId) -> SeatAction<T> {
        let mut crowded = self.all_seats().filter(|(_, entry)| entry.taken() > 1);
        match crowded.next() {
            None => SeatAction::Rest,
            Some((seat, entry)) => {
                SeatAction::TakeBack { from: entry.all(seat), to: self.first_slot(idle) }
            }
        }
    }

    /// All seats with a worker, the oldest generation first.
    pub(crate) fn all_seats(&self) -> impl Iterator<Item = (SeatId, &Seat<T>)> {
        self.generations.iter().flat_map(|seats| {
            let generation = seats.generation;
            let all = (0u32..).zip(&seats.seats);
            let open = all.filter(|(_, entry)| entry.incarnation != 0);
            open.map(move |(number, entry)| (SeatId { generation, number }, entry))
        })
    }

    fn first_slot(&self, seat: SeatId) -> SlotRef {
        SlotRef { seat, slot: 0, incarnation: self.incarnation(seat) }
    }

    /// A slot of an idle seat that is not reserved for others.
    pub fn idle_slot(&self, priority: Priority) -> Option<SlotRef> {
        let idle = self.idle_seat().filter(|_| self.has_capacity(priority));
        idle.map(|seat| self.first_slot(seat))
    }

    /// Records that a request of this priority was withdrawn from `from` and runs at `to`, which
    /// was idle.
    pub fn moved(&mut self, item: T, priority: Priority, from: SlotRef, to: SlotRef) {
        self.free(from);
        self.mark_busy(to.seat);
        self.note_priority(to.seat, priority);
        self.hold(to.seat, to.slot, item);
    }

    /// Returns a request to the head of the queue after it was withdrawn from `from`: the script
    /// before it runs long, and no seat is idle. Until that script ends, no request is put behind
    /// it.
    pub fn requeue(&mut self, item: T, priority: Priority, from: SlotRef, now: Instant) {
        self.free(from);
        if let Some(entry) = self.seat_mut(from.seat) {
            entry.long = entry.incarnation == from.incarnation && entry.taken() > 0;
        }
        self.put_back(item, priority, now);
    }

    /// Removes a waiting request. False if it does not wait any more.
    pub fn cancel(&mut self, item: &T, now: Instant) -> bool {
        let urgent = self.urgent.iter().position(|urgent| urgent == item);
        match urgent {
            Some(position) => self.urgent.remove(position).is_some(),
            None => self.waiting.cancel(item, now),
        }
    }

    /// A seat gets a request of this priority. It counts as urgent while it has had no others.
    fn note_priority(&mut self, seat: SeatId, priority: Priority) {
        let Some(entry) = self.seat_mut(seat) else {
            return;
        };
        let was_urgent = entry.urgent;
        entry.urgent = priority == Priority::Urgent && (was_urgent || entry.taken() == 0);
        let is_urgent = entry.urgent;
        self.urgent_seats += usize::from(is_urgent);
        self.urgent_seats -= usize::from(was_urgent);
    }

    fn put(&mut self, seat: SeatId, item: T, priority: Priority) -> SlotRef {
        self.warm = seat;
        self.note_priority(seat, priority);
        let slot = self.seat(seat).and_then(Seat::free_slot).unwrap_or(0);
        let incarnation = self.hold(seat, slot, item);
        SlotRef { seat, slot, incarnation }
    }

    /// Puts a request into a slot, and marks the worker as worn when it has had enough of them.
    fn hold(&mut self, seat: SeatId, slot: usize, item: T) -> Incarnation {
        let Some(entry) = self.seat_mut(seat) else {
            return 0;
        };
        let was_free = entry.slots[slot].replace(item).is_none();
        entry.given += 1;
        let (incarnation, is_worn) = (entry.incarnation, entry.given >= entry.wears_at);
        self.held += usize::from(was_free);
        if is_worn {
            self.wear_out(seat.worker(incarnation), Wear::Requests);
        }
        incarnation
    }
}

#[cfg(test)]
pub mod tests;
