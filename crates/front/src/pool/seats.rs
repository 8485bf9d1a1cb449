//! The seats of a pool's generations, for its queue: their workers, and the requests in their
//! slots.

use std::time::Duration;

use maitred_control::{Generation, Incarnation, WorkerId};
use maitred_seat::SLOTS_PER_SEAT;

use crate::pool::wear;

/// A seat in one of a pool's generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SeatId {
    /// Number of the generation.
    pub generation: Generation,
    /// Number of the seat within it.
    pub number: u32,
}

impl SeatId {
    /// The worker of this seat with this incarnation.
    pub fn worker(self, incarnation: Incarnation) -> WorkerRef {
        WorkerRef { seat: self, incarnation }
    }
}

/// A worker in one of a pool's generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerRef {
    /// Its seat.
    pub seat: SeatId,
    /// Its incarnation: a later worker of the same seat has another one.
    pub incarnation: Incarnation,
}

impl From<WorkerRef> for WorkerId {
    fn from(worker: WorkerRef) -> WorkerId {
        WorkerId { seat: worker.seat.number, incarnation: worker.incarnation }
    }
}

/// The position of a request: a slot of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRef {
    /// The seat.
    pub seat: SeatId,
    /// Slot within the seat.
    pub slot: usize,
    /// The incarnation of the worker.
    pub incarnation: Incarnation,
}

impl SlotRef {
    /// The worker.
    pub fn worker(&self) -> WorkerRef {
        self.seat.worker(self.incarnation)
    }
}

/// The state of a generation within its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationPhase {
    /// Open, without requests yet.
    Prepared,
    /// New requests are sent to it.
    Current,
    /// Replaced by another one, or the pool is being removed.
    Retiring,
}

/// One seat.
#[derive(Debug)]
pub struct Seat<T> {
    /// The incarnation of its worker; 0: the seat is empty.
    pub incarnation: Incarnation,
    /// The incarnation of its last worker, if that was retired without a successor; 0: it was not.
    pub retired: Incarnation,
    /// The requests of its worker.
    pub slots: [Option<T>; SLOTS_PER_SEAT],
    /// Number of consecutive checks that found it idle.
    pub idle_checks: u32,
    /// Requests assigned to this worker.
    pub given: u64,
    /// The number of assigned requests after which it counts as worn.
    pub wears_at: u64,
    /// Requests that it has finished.
    pub done: u64,
    /// The number of finished requests after which it exits by itself.
    pub serves: u64,
    /// Whether it is to be replaced.
    pub worn: bool,
    /// Whether its replacement is serving: it gets no further requests.
    pub closing: bool,
    /// Whether it runs an urgent request.
    pub urgent: bool,
    /// Whether its script runs longer than expected: no request is put behind it.
    pub long: bool,
    /// How long requests have waited at its head without a start, all together, since its worker
    /// last finished one.
    pub unclaimed: Duration,
    /// Whether its worker was reported, because that is too long.
    pub given_up: bool,
}

impl<T> Seat<T> {
    fn empty() -> Seat<T> {
        Seat {
            incarnation: 0,
            retired: 0,
            slots: [const { None }; SLOTS_PER_SEAT],
            idle_checks: 0,
            given: 0,
            wears_at: u64::MAX,
            done: 0,
            serves: u64::MAX,
            worn: false,
            closing: false,
            urgent: false,
            long: false,
            unclaimed: Duration::ZERO,
            given_up: false,
        }
    }

    /// Whether its worker has left its last request unclaimed: it is the last to get another.
    pub fn is_stalled(&self) -> bool {
        !self.unclaimed.is_zero()
    }

    /// Whether a request may be put behind its running one.
    pub fn moves_on(&self) -> bool {
        !self.long && !self.is_stalled()
    }

    /// Number of its requests.
    pub fn taken(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_some()).count()
    }

    /// Whether its worker can run another request before it exits by itself.
    pub fn serves_another(&self) -> bool {
        self.done + self.taken() as u64 <= self.serves.saturating_sub(1)
    }

    /// A slot without a request.
    pub fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(Option::is_none)
    }

    /// Its requests with their slots, the last slot first.
    pub fn all(&self, seat: SeatId) -> Vec<(T, SlotRef)>
    where
        T: Clone,
    {
        let slot_ref = |slot| SlotRef { seat, slot, incarnation: self.incarnation };
        let slots = self.slots.iter().enumerate().rev();
        slots.filter_map(|(slot, item)| Some((item.clone()?, slot_ref(slot)))).collect()
    }
}

/// The seats of one generation.
#[derive(Debug)]
pub struct GenerationSeats<T> {
    /// Number of the generation.
    pub generation: Generation,
    /// Its state within the pool.
    pub phase: GenerationPhase,
    /// Its seats up to the last one that has had a worker.
    pub seats: Vec<Seat<T>>,
    /// Number of its seats.
    pub most: u32,
    /// Number of seats with a worker.
    pub open: usize,
    /// Requests after which its workers are replaced; 0: never.
    max_requests: u64,
    /// Requests after which each of its workers exits by itself, exactly.
    pub serves: u64,
}

impl<T> GenerationSeats<T> {
    /// A generation with empty seats.
    pub fn new(generation: Generation, seats: u32, max_requests: u64) -> GenerationSeats<T> {
        GenerationSeats {
            generation,
            phase: GenerationPhase::Prepared,
            seats: Vec::new(),
            most: seats,
            open: 0,
            max_requests,
            serves: u64::MAX,
        }
    }

    /// Puts a worker into a seat, with its requests from an earlier front.
    pub fn occupy(&mut self, seat: u32, incarnation: Incarnation, inherited: Vec<(usize, T)>) {
        let (max_requests, serves) = (self.max_requests, self.serves);
        if seat >= self.most {
            return;
        }
        if self.seats.len() <= seat as usize {
            self.seats.resize_with(seat as usize + 1, Seat::empty);
        }
        let Some(entry) = self.seats.get_mut(seat as usize) else {
            return;
        };
        if entry.incarnation == 0 {
            self.open += 1;
        }
        *entry = Seat {
            incarnation,
            wears_at: wear::threshold(max_requests, seat, incarnation),
            serves,
            ..Seat::empty()
        };
        for (slot, item) in inherited {
            entry.slots[slot] = Some(item);
        }
    }
}
