//! Which request gets which seat: a pool's one queue, as a state machine without clock,
//! descriptor or lock. Whoever drives it carries its answers out.
//!
//! A request goes to the most recently used idle seat, so that few workers stay warm and the rest
//! may rest. While every seat is busy, requests wait in the order they came. If the pool's scripts
//! are short, requests also wait in the spare slots of busy seats, where a worker finds them
//! without sleeping; if they are so short that waking another worker takes longer than waiting for
//! this one, they do so even while others are idle ([`Depth`]). One that was put behind a script
//! which turns out long is fetched from there by a seat with nothing to do ([`Next::TakeBack`]).

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
    /// Try to take one of these requests back from where it waits behind another; if that
    /// succeeds, call [`Queue::moved`] and run it at `to`.
    TakeBack {
        /// Requests of one seat and where they are; all but one of them wait.
        from: Vec<(T, Place)>,
        /// Where it would run at once.
        to: Place,
    },
    /// Nothing.
    Rest,
}

/// How many requests one seat may hold, the running one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// While other seats are idle. 1: an idle seat always comes first.
    pub before_waking: usize,
    /// While none is idle.
    pub when_busy: usize,
}

#[derive(Debug)]
struct Seat<T> {
    /// The worker that sits here; 0: nobody.
    incarnation: u32,
    slots: [Option<T>; SLOTS_PER_SEAT],
    /// How many [`Queue::look_at_idle`] have seen it idle in a row.
    rested: u32,
}

impl<T> Seat<T> {
    fn taken(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_some()).count()
    }

    fn all(&self, seat: u32) -> Vec<(T, Place)>
    where
        T: Clone,
    {
        let place = |slot| Place {
            seat,
            slot,
            incarnation: self.incarnation,
        };
        let slots = self.slots.iter().enumerate().rev();
        slots
            .filter_map(|(slot, item)| Some((item.clone()?, place(slot))))
            .collect()
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
    /// The seat that was given a request last.
    warm: u32,
}

impl<T: Clone + PartialEq> Queue<T> {
    /// A queue for `seats` seats, all without a worker, in which `limit` requests may wait.
    pub fn new(seats: u32, limit: usize) -> Queue<T> {
        let seat = |_| Seat {
            incarnation: 0,
            slots: [const { None }; SLOTS_PER_SEAT],
            rested: 0,
        };
        Queue {
            seats: (0..seats).map(seat).collect(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            limit,
            open: 0,
            warm: 0,
        }
    }

    /// How many requests wait that are in no slot.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many seats have a worker.
    pub fn open_seats(&self) -> usize {
        self.open
    }

    /// Counts for how many looks in a row each idle seat has been idle.
    pub fn look_at_idle(&mut self) {
        for &seat in &self.idle {
            let rested = &mut self.seats[seat as usize].rested;
            *rested = rested.saturating_add(1);
        }
    }

    /// Closes the seat that has been idle for longest, if more than `keep` are idle and it was so
    /// at the last `looks` looks. Nothing is on its way there, and nothing will be.
    pub fn retire(&mut self, keep: usize, looks: u32) -> Option<(u32, u32)> {
        let seat = *self.idle.first()?;
        let Seat {
            incarnation,
            rested,
            ..
        } = self.seats[seat as usize];
        if self.idle.len() <= keep || rested < looks {
            return None;
        }
        self.close(seat, incarnation);
        Some((seat, incarnation))
    }

    /// How many seats have something to do.
    pub fn busy(&self) -> usize {
        self.open - self.idle.len()
    }

    /// The seat that would be used next, if one is idle.
    pub fn idle_seat(&self) -> Option<u32> {
        self.idle.last().copied()
    }

    /// A request has come.
    pub fn submit(&mut self, item: T, depth: Depth) -> Submitted {
        if self.takes_more(self.warm, depth.before_waking) {
            return Submitted::Placed(self.put(self.warm, item));
        }
        if let Some(seat) = self.idle.pop() {
            return Submitted::Placed(self.put(seat, item));
        }
        if depth.when_busy > 1 && self.waiting.is_empty() {
            let mut seats = (0u32..).take(self.seats.len());
            if let Some(seat) = seats.find(|&seat| self.takes_more(seat, depth.when_busy)) {
                return Submitted::Placed(self.put(seat, item));
            }
        }
        if self.waiting.len() >= self.limit {
            return Submitted::Full;
        }
        self.waiting.push_back(item);
        Submitted::Waiting
    }

    /// Whether a busy seat may hold another request.
    fn takes_more(&self, seat: u32, depth: usize) -> bool {
        self.seats.get(seat as usize).is_some_and(|seat| {
            seat.incarnation != 0 && (1..depth.min(SLOTS_PER_SEAT)).contains(&seat.taken())
        })
    }

    /// A worker sits in a seat and can take requests; `left` are slots in which it still has
    /// something from before.
    pub fn open(&mut self, seat: u32, incarnation: u32, left: Vec<(usize, T)>) {
        let Some(places) = self.seats.get_mut(seat as usize) else {
            return;
        };
        if places.incarnation == 0 {
            self.open += 1;
        }
        places.incarnation = incarnation;
        for (slot, item) in left {
            places.slots[slot] = Some(item);
        }
        if places.taken() == 0 {
            places.rested = 0;
            self.idle.push(seat);
        }
    }

    /// The worker that sits in a seat; 0: nobody.
    pub fn incarnation(&self, seat: u32) -> u32 {
        self.seats
            .get(seat as usize)
            .map_or(0, |seat| seat.incarnation)
    }

    /// The worker of a seat has gone: what it had, with the slots it had it in.
    pub fn close(&mut self, seat: u32, incarnation: u32) -> Vec<(Place, T)> {
        let Some(places) = self.seats.get_mut(seat as usize) else {
            return Vec::new();
        };
        if places.incarnation != incarnation || incarnation == 0 {
            return Vec::new();
        }
        self.open -= 1;
        places.incarnation = 0;
        self.idle.retain(|&idle| idle != seat);
        let slots = places.slots.iter_mut().enumerate();
        slots
            .filter_map(|(slot, item)| {
                item.take().map(|item| {
                    (
                        Place {
                            seat,
                            slot,
                            incarnation,
                        },
                        item,
                    )
                })
            })
            .collect()
    }

    /// A request that was with a worker which died before it began: it is the next to run.
    pub fn put_back(&mut self, item: T) {
        self.waiting.push_front(item);
    }

    /// A slot is free again. Ask [`Queue::next`] what its seat does now.
    pub fn free(&mut self, place: Place) {
        let Some(seat) = self.seats.get_mut(place.seat as usize) else {
            return;
        };
        if seat.incarnation != place.incarnation || seat.slots[place.slot].take().is_none() {
            return;
        }
        if seat.taken() == 0 {
            seat.rested = 0;
            self.idle.push(place.seat);
        }
    }

    /// What a seat that may have room does next. Call it until it says [`Next::Rest`].
    pub fn next(&mut self, seat: u32, depth: Depth) -> Next<T> {
        let Some(places) = self.seats.get(seat as usize) else {
            return Next::Rest;
        };
        let taken = places.taken();
        let room = taken == 0 || taken < depth.when_busy.min(SLOTS_PER_SEAT);
        if places.incarnation == 0 || !room {
            return Next::Rest;
        }
        if let Some(item) = self.waiting.pop_front() {
            self.idle.retain(|&idle| idle != seat);
            let place = self.put(seat, item.clone());
            return Next::Run(item, place);
        }
        if taken > 0 || depth.before_waking > 1 {
            return Next::Rest;
        }
        self.find_second(seat)
    }

    /// Requests of a seat that has more than one, for an idle seat to fetch one of. Which of
    /// them runs is the worker's to say, so the caller tries, the latest first.
    fn find_second(&self, seat: u32) -> Next<T> {
        let to = Place {
            seat,
            slot: 0,
            incarnation: self.seats[seat as usize].incarnation,
        };
        let crowded = (0u32..)
            .zip(&self.seats)
            .find(|(_, places)| places.incarnation != 0 && places.taken() > 1);
        match crowded {
            None => Next::Rest,
            Some((other, places)) => Next::TakeBack {
                from: places.all(other),
                to,
            },
        }
    }

    /// A place at an idle seat, if there is one.
    pub fn idle_place(&self) -> Option<Place> {
        let seat = *self.idle.last()?;
        Some(Place {
            seat,
            slot: 0,
            incarnation: self.seats[seat as usize].incarnation,
        })
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
        self.warm = seat;
        let places = &mut self.seats[seat as usize];
        let slot = places.free_slot().unwrap_or(0);
        places.slots[slot] = Some(item);
        Place {
            seat,
            slot,
            incarnation: places.incarnation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: Depth = Depth {
        before_waking: 1,
        when_busy: 1,
    };
    const TWO: Depth = Depth {
        before_waking: 1,
        when_busy: 2,
    };
    const DEEP: Depth = Depth {
        before_waking: 3,
        when_busy: 4,
    };

    fn opened(seats: u32) -> Queue<u32> {
        let mut queue = Queue::new(seats, 3);
        for seat in 0..seats {
            queue.open(seat, 1, Vec::new());
        }
        queue
    }

    fn place(seat: u32, slot: usize) -> Place {
        Place {
            seat,
            slot,
            incarnation: 1,
        }
    }

    #[test]
    fn the_most_recently_used_seat_is_taken_first() {
        let mut queue = opened(3);
        assert_eq!(queue.submit(1, ONE), Submitted::Placed(place(2, 0)));
        assert_eq!(queue.submit(2, ONE), Submitted::Placed(place(1, 0)));
        queue.free(place(2, 0));
        assert_eq!(queue.submit(3, ONE), Submitted::Placed(place(2, 0)));
    }

    #[test]
    fn requests_wait_in_order_and_the_queue_has_an_end() {
        let mut queue = opened(1);
        queue.submit(1, ONE);
        for item in 2..=4 {
            assert_eq!(queue.submit(item, ONE), Submitted::Waiting);
        }
        assert_eq!(queue.submit(5, ONE), Submitted::Full);
        queue.free(place(0, 0));
        assert_eq!(queue.next(0, ONE), Next::Run(2, place(0, 0)));
        assert_eq!(queue.next(0, ONE), Next::Rest);
    }

    #[test]
    fn short_scripts_use_the_second_slot_and_long_ones_do_not() {
        let mut queue = opened(1);
        queue.submit(1, TWO);
        assert_eq!(queue.submit(2, ONE), Submitted::Waiting);
        let mut queue = opened(1);
        queue.submit(1, TWO);
        assert_eq!(queue.submit(2, TWO), Submitted::Placed(place(0, 1)));
    }

    #[test]
    fn very_short_scripts_fill_a_busy_seat_before_another_is_woken() {
        let mut queue = opened(2);
        for slot in 0..3 {
            assert_eq!(
                queue.submit(slot as u32, DEEP),
                Submitted::Placed(place(1, slot))
            );
        }
        assert_eq!(queue.submit(3, DEEP), Submitted::Placed(place(0, 0)));
        assert_eq!(queue.idle_place(), None);
    }

    #[test]
    fn an_idle_seat_fetches_what_waits_behind_another() {
        let mut queue = opened(2);
        queue.submit(1, TWO);
        queue.submit(2, TWO);
        assert_eq!(queue.submit(3, TWO), Submitted::Placed(place(0, 1)));
        queue.free(place(1, 0));
        let to = place(1, 0);
        let from = vec![(3, place(0, 1)), (2, place(0, 0))];
        assert_eq!(queue.next(1, TWO), Next::TakeBack { from, to });
        queue.moved(3, place(0, 1), to);
        assert_eq!(queue.submit(4, ONE), Submitted::Waiting);
    }

    #[test]
    fn a_seat_without_a_worker_gets_nothing_and_gives_back_what_it_had() {
        let mut queue = opened(1);
        queue.submit(1, TWO);
        queue.submit(2, TWO);
        let left = queue.close(0, 1);
        assert_eq!(left, vec![(place(0, 0), 1), (place(0, 1), 2)]);
        assert_eq!(queue.submit(3, TWO), Submitted::Waiting);
        queue.put_back(2);
        queue.open(0, 2, Vec::new());
        let reopened = Place {
            seat: 0,
            slot: 0,
            incarnation: 2,
        };
        assert_eq!(queue.next(0, ONE), Next::Run(2, reopened));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Submit { depth: Depth },
        Finish { nth: usize },
        Die { seat: u32 },
        Cancel { nth: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => prop_oneof![Just(ONE), Just(TWO), Just(DEEP)].prop_map(|depth| Step::Submit { depth }),
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
        fn settle(&mut self, seat: u32) {
            loop {
                match self.queue.next(seat, ONE) {
                    Next::Run(item, place) => {
                        self.waiting -= 1;
                        self.placed.push((item, place));
                    }
                    Next::TakeBack { from, to } => {
                        let begun = self.placed.iter().find(|(_, at)| at.seat == from[0].1.seat);
                        let begun = begun.map(|(item, _)| *item);
                        let waits = from.into_iter().find(|(item, _)| Some(*item) != begun);
                        let (item, from) = waits.expect("a seat with two");
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
                    Step::Submit { depth } => {
                        next_item += 1;
                        match world.queue.submit(next_item, depth) {
                            Submitted::Placed(place) => world.placed.push((next_item, place)),
                            Submitted::Waiting => world.waiting += 1,
                            Submitted::Full => prop_assert!(world.waiting >= 3),
                        }
                    }
                    Step::Finish { nth } if !world.placed.is_empty() => {
                        let (_, place) = world.placed.remove(nth % world.placed.len());
                        world.queue.free(place);
                        world.settle(place.seat);
                    }
                    Step::Die { seat } => {
                        let old = world.incarnations[seat as usize];
                        let left = world.queue.close(seat, old);
                        world.placed.retain(|(_, place)| place.seat != seat);
                        for (_, item) in left.iter().skip(1).rev() {
                            world.queue.put_back(*item);
                            world.waiting += 1;
                        }
                        world.incarnations[seat as usize] += 1;
                        world.queue.open(seat, old + 1, Vec::new());
                        while let (Some(idle), 1..) = (world.queue.idle_seat(), world.waiting) {
                            world.settle(idle);
                        }
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
