//! Which request gets which seat: a pool's one queue, as a state machine without clock,
//! descriptor or lock. Whoever drives it carries its answers out.
//!
//! A request goes to the most recently used idle seat, so that few workers stay warm and the rest
//! may rest. While every seat is busy, requests wait in the order they came; if the pool's scripts
//! are short, the next ones wait in the second slots of busy seats instead, where a worker finds
//! them without sleeping. One that was put behind a script which turns out long is fetched from
//! there by the first seat that becomes idle ([`Next::TakeBack`]).

use std::collections::VecDeque;

use maitred_seat::SLOTS_PER_SEAT;

/// Where a request is: a slot of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the seat.
    pub seat: u32,
    /// Slot within the seat.
    pub slot: usize,
    /// The worker that sits there.
    pub incarnation: u32,
}

/// What became of a request that was submitted.
#[derive(Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It goes here, now.
    Placed(Place),
    /// It waits.
    Waiting,
    /// The queue is as long as it may be.
    Full,
}

/// What a seat does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// This request goes here.
    Run(T, Place),
    /// Try to take this request back from where it waits behind another; if that succeeds, call
    /// [`Queue::moved`] and run it at `to`.
    TakeBack {
        /// The request.
        item: T,
        /// Where it waits.
        from: Place,
        /// Where it would run at once.
        to: Place,
    },
    /// Nothing.
    Rest,
}

#[derive(Debug)]
struct Seat<T> {
    /// The worker that sits here; 0: nobody.
    incarnation: u32,
    slots: [Option<T>; SLOTS_PER_SEAT],
}

impl<T> Seat<T> {
    fn taken(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_some()).count()
    }

    fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(Option::is_none)
    }
}

/// A pool's queue and seats. `T` is a request.
#[derive(Debug)]
pub struct Queue<T> {
    seats: Vec<Seat<T>>,
    /// Seats with a worker and nothing to do, the most recently used last.
    idle: Vec<u32>,
    waiting: VecDeque<T>,
    limit: usize,
    /// Seats with a worker.
    open: usize,
}

impl<T: Clone + PartialEq> Queue<T> {
    /// A queue for `seats` seats, all without a worker, in which `limit` requests may wait.
    pub fn new(seats: u32, limit: usize) -> Queue<T> {
        let seat = |_| Seat { incarnation: 0, slots: [const { None }; SLOTS_PER_SEAT] };
        Queue {
            seats: (0..seats).map(seat).collect(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            limit,
            open: 0,
        }
    }

    /// How many requests wait that are in no slot.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many seats have something to do.
    pub fn busy(&self) -> usize {
        self.open - self.idle.len()
    }

    /// The seat that would be used next, if one is idle.
    pub fn idle_seat(&self) -> Option<u32> {
        self.idle.last().copied()
    }

    /// A request has come. `short` says that the pool's scripts take well under a millisecond.
    pub fn submit(&mut self, item: T, short: bool) -> Submitted {
        if let Some(seat) = self.idle.pop() {
            return Submitted::Placed(self.put(seat, item));
        }
        if short && self.waiting.is_empty() {
            let busy = self.seats.iter().position(|seat| seat.incarnation != 0 && seat.taken() == 1);
            if let Some(seat) = busy {
                return Submitted::Placed(self.put(seat as u32, item));
            }
        }
        if self.waiting.len() >= self.limit {
            return Submitted::Full;
        }
        self.waiting.push_back(item);
        Submitted::Waiting
    }

    /// A worker sits in a seat and can take requests; `left` are slots in which it still has
    /// something from before.
    pub fn open(&mut self, seat: u32, incarnation: u32, left: Vec<(usize, T)>) {
        let Some(places) = self.seats.get_mut(seat as usize) else { return };
        if places.incarnation == 0 {
            self.open += 1;
        }
        places.incarnation = incarnation;
        for (slot, item) in left {
            places.slots[slot] = Some(item);
        }
        if places.taken() == 0 {
            self.idle.push(seat);
        }
    }

    /// The worker of a seat has gone: what it had, with the slots it had it in.
    pub fn close(&mut self, seat: u32, incarnation: u32) -> Vec<(Place, T)> {
        let Some(places) = self.seats.get_mut(seat as usize) else { return Vec::new() };
        if places.incarnation != incarnation || incarnation == 0 {
            return Vec::new();
        }
        self.open -= 1;
        places.incarnation = 0;
        self.idle.retain(|&idle| idle != seat);
        let slots = places.slots.iter_mut().enumerate();
        slots
            .filter_map(|(slot, item)| {
                item.take().map(|item| (Place { seat, slot, incarnation }, item))
            })
            .collect()
    }

    /// A request that was with a worker which died before it began: it is the next to run.
    pub fn put_back(&mut self, item: T) {
        self.waiting.push_front(item);
    }

    /// A slot is free again. Ask [`Queue::next`] what its seat does now.
    pub fn free(&mut self, place: Place) {
        let Some(seat) = self.seats.get_mut(place.seat as usize) else { return };
        if seat.incarnation != place.incarnation || seat.slots[place.slot].take().is_none() {
            return;
        }
        if seat.taken() == 0 {
            self.idle.push(place.seat);
        }
    }

    /// What a seat that may have room does next. Call it until it says [`Next::Rest`].
    pub fn next(&mut self, seat: u32, short: bool) -> Next<T> {
        let Some(places) = self.seats.get(seat as usize) else { return Next::Rest };
        let taken = places.taken();
        let room = places.incarnation != 0 && (taken == 0 || (short && taken < SLOTS_PER_SEAT));
        if !room {
            return Next::Rest;
        }
        if let Some(item) = self.waiting.pop_front() {
            self.idle.retain(|&idle| idle != seat);
            let place = self.put(seat, item.clone());
            return Next::Run(item, place);
        }
        if taken > 0 {
            return Next::Rest;
        }
        self.find_second(seat)
    }

    /// A request that waits behind another, for an idle seat to fetch. Which of a seat's two
    /// runs is the worker's to say, so the caller tries; only the newer one can succeed.
    fn find_second(&self, seat: u32) -> Next<T> {
        let incarnation = self.seats[seat as usize].incarnation;
        let to = Place { seat, slot: 0, incarnation };
        for (other, places) in (0u32..).zip(&self.seats) {
            if places.incarnation == 0 || places.taken() < SLOTS_PER_SEAT {
                continue;
            }
            // Both are offered or run; the caller tries the one in slot 1 and then, through
            // `Place::slot`, the other.
            if let Some(item) = &places.slots[1] {
                let from = Place { seat: other, slot: 1, incarnation: places.incarnation };
                return Next::TakeBack { item: item.clone(), from, to };
            }
        }
        Next::Rest
    }

    /// The other request of a seat with two, when the first to be tried had begun.
    pub fn sibling(&self, place: Place) -> Option<(T, Place)> {
        let seat = self.seats.get(place.seat as usize)?;
        let slot = (place.slot + 1) % SLOTS_PER_SEAT;
        (seat.incarnation == place.incarnation)
            .then(|| Some((seat.slots[slot].clone()?, Place { slot, ..place })))
            .flatten()
    }

    /// A request was taken back from `from` and runs at `to`, which was idle.
    pub fn moved(&mut self, item: T, from: Place, to: Place) {
        self.free(from);
        self.idle.retain(|&idle| idle != to.seat);
        if let Some(seat) = self.seats.get_mut(to.seat as usize) {
            seat.slots[to.slot] = Some(item);
        }
    }

    /// Forgets a request that waits. False when it does not wait (any more).
    pub fn cancel(&mut self, item: &T) -> bool {
        match self.waiting.iter().position(|waiting| waiting == item) {
            Some(position) => self.waiting.remove(position).is_some(),
            None => false,
        }
    }

    fn put(&mut self, seat: u32, item: T) -> Place {
        let places = &mut self.seats[seat as usize];
        let slot = places.free_slot().unwrap_or(0);
        places.slots[slot] = Some(item);
        Place { seat, slot, incarnation: places.incarnation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn opened(seats: u32) -> Queue<u32> {
        let mut queue = Queue::new(seats, 3);
        for seat in 0..seats {
            queue.open(seat, 1, Vec::new());
        }
        queue
    }

    fn place(seat: u32, slot: usize) -> Place {
        Place { seat, slot, incarnation: 1 }
    }

    #[test]
    fn the_most_recently_used_seat_is_taken_first() {
        let mut queue = opened(3);
        assert_eq!(queue.submit(1, false), Submitted::Placed(place(2, 0)));
        assert_eq!(queue.submit(2, false), Submitted::Placed(place(1, 0)));
        queue.free(place(2, 0));
        assert_eq!(queue.submit(3, false), Submitted::Placed(place(2, 0)));
    }

    #[test]
    fn requests_wait_in_order_and_the_queue_has_an_end() {
        let mut queue = opened(1);
        queue.submit(1, false);
        for item in 2..=4 {
            assert_eq!(queue.submit(item, false), Submitted::Waiting);
        }
        assert_eq!(queue.submit(5, false), Submitted::Full);
        queue.free(place(0, 0));
        assert_eq!(queue.next(0, false), Next::Run(2, place(0, 0)));
        assert_eq!(queue.next(0, false), Next::Rest);
    }

    #[test]
    fn short_scripts_use_the_second_slot_and_long_ones_do_not() {
        let mut queue = opened(1);
        queue.submit(1, true);
        assert_eq!(queue.submit(2, false), Submitted::Waiting);
        let mut queue = opened(1);
        queue.submit(1, true);
        assert_eq!(queue.submit(2, true), Submitted::Placed(place(0, 1)));
    }

    #[test]
    fn an_idle_seat_fetches_what_waits_behind_another() {
        let mut queue = opened(2);
        queue.submit(1, true);
        queue.submit(2, true);
        assert_eq!(queue.submit(3, true), Submitted::Placed(place(0, 1)));
        queue.free(place(1, 0));
        let (from, to) = (place(0, 1), place(1, 0));
        assert_eq!(queue.next(1, true), Next::TakeBack { item: 3, from, to });
        queue.moved(3, from, to);
        assert_eq!(queue.submit(4, false), Submitted::Waiting);
    }

    #[test]
    fn a_seat_without_a_worker_gets_nothing_and_gives_back_what_it_had() {
        let mut queue = opened(1);
        queue.submit(1, true);
        queue.submit(2, true);
        let left = queue.close(0, 1);
        assert_eq!(left, vec![(place(0, 0), 1), (place(0, 1), 2)]);
        assert_eq!(queue.submit(3, true), Submitted::Waiting);
        queue.put_back(2);
        queue.open(0, 2, Vec::new());
        let reopened = Place { seat: 0, slot: 0, incarnation: 2 };
        assert_eq!(queue.next(0, false), Next::Run(2, reopened));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Submit { short: bool },
        Finish { nth: usize },
        Die { seat: u32 },
        Cancel { nth: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<bool>().prop_map(|short| Step::Submit { short }),
            4 => any::<usize>().prop_map(|nth| Step::Finish { nth }),
            1 => (0u32..3).prop_map(|seat| Step::Die { seat }),
            1 => any::<usize>().prop_map(|nth| Step::Cancel { nth }),
        ]
    }

    /// The driver's part, without clock or memory: whatever is placed has begun only if it is
    /// the older of its seat's two.
    struct World {
        queue: Queue<u32>,
        placed: Vec<(u32, Place)>,
        incarnations: Vec<u32>,
        waiting: usize,
    }

    impl World {
        fn settle(&mut self, seat: u32, short: bool) {
            loop {
                match self.queue.next(seat, short) {
                    Next::Run(item, place) => {
                        self.waiting -= 1;
                        self.placed.push((item, place));
                    }
                    Next::TakeBack { item, from, to } => {
                        let first = self.placed.iter().find(|(_, place)| place.seat == from.seat);
                        let (item, from) = match first {
                            Some(&(older, _)) if older == item => {
                                self.queue.sibling(from).expect("a seat with two")
                            }
                            _ => (item, from),
                        };
                        self.queue.moved(item, from, to);
                        self.placed.retain(|(other, _)| *other != item);
                        self.placed.push((item, to));
                    }
                    Next::Rest => return,
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_request_is_in_one_place_and_no_slot_holds_two(
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            let mut world = World {
                queue: opened(3),
                placed: Vec::new(),
                incarnations: vec![1; 3],
                waiting: 0,
            };
            let mut next_item = 0;
            for step in steps {
                match step {
                    Step::Submit { short } => {
                        next_item += 1;
                        match world.queue.submit(next_item, short) {
                            Submitted::Placed(place) => world.placed.push((next_item, place)),
                            Submitted::Waiting => world.waiting += 1,
                            Submitted::Full => prop_assert!(world.waiting >= 3),
                        }
                    }
                    Step::Finish { nth } if !world.placed.is_empty() => {
                        let (_, place) = world.placed.remove(nth % world.placed.len());
                        world.queue.free(place);
                        world.settle(place.seat, false);
                    }
                    Step::Die { seat } => {
                        let old = world.incarnations[seat as usize];
                        let left = world.queue.close(seat, old);
                        world.placed.retain(|(_, place)| place.seat != seat);
                        if let Some((_, item)) = left.last() {
                            world.queue.put_back(*item);
                            world.waiting += 1;
                        }
                        world.incarnations[seat as usize] += 1;
                        world.queue.open(seat, old + 1, Vec::new());
                        world.settle(seat, false);
                    }
                    Step::Cancel { nth } if next_item > 0 => {
                        let item = nth as u32 % next_item + 1;
                        if world.queue.cancel(&item) {
                            world.waiting -= 1;
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(world.queue.waiting(), world.waiting);
                let mut places: Vec<_> =
                    world.placed.iter().map(|(_, place)| (place.seat, place.slot)).collect();
                places.sort_unstable();
                places.dedup();
                prop_assert_eq!(places.len(), world.placed.len());
                let mut items: Vec<_> = world.placed.iter().map(|(item, _)| *item).collect();
                items.sort_unstable();
                items.dedup();
                prop_assert_eq!(items.len(), world.placed.len());
                let idle = 3 - world.queue.busy();
                prop_assert!(idle == 0 || world.queue.waiting() == 0, "a seat idles, a request waits");
            }
        }
    }
}
