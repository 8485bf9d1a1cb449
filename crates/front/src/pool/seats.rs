//! The seats of a pool's generations, as its queue keeps them: who sits where and has what.

use maitred_control::{Generation, Incarnation};
use maitred_seat::SLOTS_PER_SEAT;

use crate::pool::wear;

/// A seat of one of a pool's generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatId {
    /// Number of the generation.
    pub generation: Generation,
    /// Number of the seat within it.
    pub number: u32,
}

/// Where a request is: a slot of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRef {
    /// The seat.
    pub seat: SeatId,
    /// Slot within the seat.
    pub slot: usize,
    /// The worker that sits there.
    pub incarnation: Incarnation,
}

/// What a generation is to its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationPhase {
    /// It has been opened, and gets nothing yet.
    Prepared,
    /// It gets the new requests.
    Current,
    /// Another has taken its place, or nothing will.
    Retiring,
}

/// One seat.
#[derive(Debug)]
pub struct Seat<T> {
    /// The worker that sits here; 0: nobody.
    pub incarnation: Incarnation,
    /// What it has.
    pub slots: [Option<T>; SLOTS_PER_SEAT],
    /// How many looks have seen it idle in a row.
    pub idle_checks: u32,
    /// Requests this worker was given.
    pub given: u64,
    /// After how many of them it counts as worn.
    pub wears_at: u64,
    /// Requests it is through with.
    pub done: u64,
    /// After how many of them it ends by itself, and must get nothing more.
    pub serves: u64,
    /// It is to be replaced.
    pub worn: bool,
    /// Its replacement serves already: it gets nothing more.
    pub closing: bool,
    /// What it runs is urgent.
    pub urgent: bool,
    /// What it runs has turned out long: nothing is put behind it.
    pub long: bool,
}

impl<T> Seat<T> {
    fn empty() -> Seat<T> {
        Seat {
            incarnation: 0,
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
        }
    }

    /// How many requests it holds.
    pub fn taken(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_some()).count()
    }

    /// Whether its worker will be there for another request.
    pub fn serves_another(&self) -> bool {
        self.done + self.taken() as u64 <= self.serves.saturating_sub(1)
    }

    /// A slot without a request.
    pub fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(Option::is_none)
    }

    /// What it has and where, the last slot first.
    pub fn all(&self, seat: SeatId) -> Vec<(T, SlotRef)>
    where
        T: Clone,
    {
        let place = |slot| SlotRef {
            seat,
            slot,
            incarnation: self.incarnation,
        };
        let slots = self.slots.iter().enumerate().rev();
        slots
            .filter_map(|(slot, item)| Some((item.clone()?, place(slot))))
            .collect()
    }
}

/// The seats of one generation.
#[derive(Debug)]
pub struct GenerationSeats<T> {
    /// Its number.
    pub generation: Generation,
    /// What it is to the pool.
    pub phase: GenerationPhase,
    /// Its seats.
    pub seats: Vec<Seat<T>>,
    /// How many of them have a worker.
    pub open: usize,
    /// Requests after which its workers leave; 0: never.
    max_requests: u64,
    /// Requests after which each of its workers ends by itself, exactly.
    pub serves: u64,
}

impl<T> GenerationSeats<T> {
    /// A generation in whose seats nobody sits.
    pub fn new(generation: Generation, seats: u32, max_requests: u64) -> GenerationSeats<T> {
        GenerationSeats {
            generation,
            phase: GenerationPhase::Prepared,
            seats: (0..seats).map(|_| Seat::empty()).collect(),
            open: 0,
            max_requests,
            serves: u64::MAX,
        }
    }

    /// Gives a seat to a worker, with what it still has from before.
    pub fn occupy(&mut self, seat: u32, incarnation: Incarnation, left: Vec<(usize, T)>) {
        let (max_requests, serves) = (self.max_requests, self.serves);
        let Some(place) = self.seats.get_mut(seat as usize) else {
            return;
        };
        if place.incarnation == 0 {
            self.open += 1;
        }
        *place = Seat {
            incarnation,
            wears_at: wear::threshold(max_requests, seat, incarnation),
            serves,
            ..Seat::empty()
        };
        for (slot, item) in left {
            place.slots[slot] = Some(item);
        }
    }
}
