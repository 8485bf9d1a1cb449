//! Generations that replace each other, with requests in flight.

use std::collections::{HashMap, HashSet};

use maitred_control::Incarnation;
use maitred_scoreboard::RequestOutcome;
use proptest::prelude::*;

use super::*;
use crate::pool::queue::tests::enqueue;
use crate::pool::queue::{Depth, Priority, SeatAction, Submission};

const ONE: Depth = Depth { before_waking: 1, when_busy: 1 };
const TWO: Depth = Depth { before_waking: 1, when_busy: 2 };
/// Seats of each generation in these tests: two more than may be open.
const SEATS: u32 = 5;
const MAX_OPEN: usize = 3;
const LIMIT: usize = 4;

fn at(generation: Generation, number: u32) -> SeatId {
    SeatId { generation, number }
}

/// The queue, and the state of its driver.
struct ReplaceWorld {
    queue: Queue<u32>,
    placed: Vec<(u32, SlotRef)>,
    retired: Vec<SeatId>,
    /// The workers that neither were retired nor have died.
    alive: HashMap<SeatId, Incarnation>,
    waits: Vec<u32>,
    most_open: usize,
}

impl ReplaceWorld {
    fn new() -> ReplaceWorld {
        ReplaceWorld {
            queue: Queue::new(),
            placed: Vec::new(),
            retired: Vec::new(),
            alive: HashMap::new(),
            waits: Vec::new(),
            most_open: MAX_OPEN,
        }
    }

    fn with_generation(generation: Generation, seats: u32) -> ReplaceWorld {
        let mut world = ReplaceWorld::new();
        world.begin(generation, MAX_OPEN);
        for number in 0..seats {
            world.arrive(at(generation, number), 1);
        }
        world
    }

    fn begin(&mut self, generation: Generation, max_open: usize) {
        self.queue.add(generation, SEATS, 0);
        self.queue.replace(generation, max_open, LIMIT);
        self.settle();
    }

    fn arrive(&mut self, seat: SeatId, incarnation: Incarnation) {
        self.alive.insert(seat, incarnation);
        let had = self.queue.vacate(seat);
        self.lost(seat, &had);
        self.settle();
        self.queue.arrive(seat.worker(incarnation), Vec::new());
        self.fill_seat(seat);
        self.settle();
    }

    fn submit(&mut self, item: u32, depth: Depth) -> Submission {
        let submitted = self.queue.submit(item, Priority::Normal, depth);
        match submitted {
            Submission::Placed(place) => self.placed.push((item, place)),
            Submission::Busy => match enqueue(&mut self.queue, item) {
                Ok(None) => self.waits.push(item),
                refused => assert_eq!(refused, Err(RequestOutcome::QueueFull)),
            },
            Submission::NoWorkers => {}
        }
        self.settle();
        submitted
    }

    fn finish(&mut self, nth: usize) {
        let (_, place) = self.placed.remove(nth);
        self.queue.free(place);
        self.settle();
        self.fill_seat(place.seat);
        self.settle();
    }

    fn die(&mut self, seat: SeatId) {
        let Some(incarnation) = self.alive.remove(&seat) else {
            return;
        };
        if !self.queue.forget_pending(seat.worker(incarnation)) {
            let had = self.queue.close(seat.worker(incarnation));
            self.lost(seat, &had);
        }
        self.settle();
    }

    /// The running request is lost, the ones behind it return to the queue.
    fn lost(&mut self, seat: SeatId, had: &[(SlotRef, u32)]) {
        for (_, item) in had.iter().skip(1).rev() {
            self.queue.put_back(*item, Priority::Normal, std::time::Instant::now());
            self.waits.insert(0, *item);
        }
        self.placed.retain(|(_, place)| place.seat != seat);
    }

    /// Carries out the queue's decisions.
    fn settle(&mut self) {
        while let Some(change) = self.queue.next_seat_change() {
            match change {
                SeatChange::Retire(WorkerRef { seat, incarnation }) => {
                    assert_eq!(self.alive.remove(&seat), Some(incarnation));
                    assert!(self.placed.iter().all(|(_, place)| place.seat != seat));
                    self.retired.push(seat);
                }
                SeatChange::Open(seat) => {
                    assert!(self.queue.open_seats() <= self.queue.max_open());
                    self.fill_seat(seat);
                }
            }
        }
        for item in self.queue.abandon() {
            self.waits.retain(|waits| *waits != item);
        }
        while let (Some(idle), 1..) = (self.queue.idle_seat(), self.queue.waiting()) {
            self.fill_seat(idle);
        }
    }

    fn fill_seat(&mut self, seat: SeatId) {
        while let SeatAction::Run(item, place) = self.queue.next(seat, ONE) {
            assert_eq!(self.waits.remove(0), item, "in the order they came");
            self.placed.push((item, place));
        }
    }

    fn check(&self) {
        let queue = &self.queue;
        assert_eq!(queue.waiting(), self.waits.len());
        assert!(queue.open_seats() <= self.most_open.max(queue.max_open()));
        let seats: HashSet<_> = self.placed.iter().map(|(_, place)| place.seat).collect();
        assert_eq!(queue.busy(), seats.len());
        let idle = queue.open_seats() - queue.busy();
        assert!(idle == 0 || queue.waiting() == 0, "a seat idles, a request waits");
        let pending = !queue.pending.is_empty();
        assert!(!pending || queue.open_seats() >= queue.max_open());
        let leaves = queue.idle.iter().any(|seat| {
            let worn = queue.seat(*seat).is_some_and(|place| place.worn);
            queue.is_retiring(seat.generation) || worn
        });
        assert!(!pending || !leaves, "pending for ever");
        let mut idle = queue.idle.iter();
        assert!(!queue.is_crowded() || !idle.any(|seat| queue.is_retiring(seat.generation)));
        let mut items: Vec<_> = self.placed.iter().map(|(item, _)| *item).collect();
        items.extend(&self.waits);
        let count = items.len();
        items.sort_unstable();
        items.dedup();
        assert_eq!(items.len(), count, "each request is in one place");
    }
}

#[test]
fn seats_move_over_one_by_one_and_never_are_there_more_than_may_be() {
    let mut world = ReplaceWorld::with_generation(1, 3);
    world.submit(1, ONE);
    world.submit(2, ONE);
    world.begin(2, MAX_OPEN);
    assert_eq!(world.queue.open_seats(), 3);
    world.arrive(at(2, 0), 1);
    assert_eq!(world.retired, [at(1, 0)], "the idle one gave its place up");
    world.arrive(at(2, 1), 1);
    assert_eq!(world.retired.len(), 1, "the others have something to do");
    world.finish(0);
    assert_eq!(world.retired.len(), 2);
    assert_eq!(world.queue.open_seats(), 3);
    assert_eq!(world.queue.open_current(), 2);
}

#[test]
fn a_new_worker_takes_the_place_of_an_old_one_though_more_might_be_open() {
    let mut world = ReplaceWorld::with_generation(1, 2);
    world.submit(1, ONE);
    world.submit(2, ONE);
    world.begin(2, MAX_OPEN);
    world.submit(3, ONE);
    world.arrive(at(2, 0), 1);
    assert_eq!(world.queue.open_seats(), MAX_OPEN, "it serves at once");
    world.submit(4, ONE);
    world.finish(0);
    assert_eq!(world.retired.len(), 1, "though a request waits");
    world.finish(0);
    assert_eq!(world.retired.len(), 1, "one for one");
    assert_eq!(world.placed[1].0, 4, "the other old one goes on");
    world.arrive(at(2, 1), 1);
    world.finish(1);
    assert_eq!(world.retired.len(), 2);
    world.arrive(at(2, 2), 1);
    assert_eq!(world.queue.open_seats(), MAX_OPEN, "all may be open again");
    world.check();
}

#[test]
fn while_the_new_generation_has_no_worker_the_old_one_serves() {
    let mut world = ReplaceWorld::with_generation(1, 1);
    world.begin(2, MAX_OPEN);
    assert!(matches!(world.submit(1, ONE), Submission::Placed(place) if place.seat == at(1, 0)));
    assert_eq!(world.submit(2, ONE), Submission::Busy);
    world.finish(0);
    assert_eq!(world.placed[0].1.seat, at(1, 0), "no request waits for a reload");
    world.arrive(at(2, 0), 1);
    assert!(matches!(world.submit(3, ONE), Submission::Placed(place) if place.seat == at(2, 0)));
}

#[test]
fn a_waiting_request_goes_to_the_worker_that_takes_the_place() {
    let mut world = ReplaceWorld::with_generation(1, 3);
    for item in 1..=4 {
        world.submit(item, ONE);
    }
    world.begin(2, MAX_OPEN);
    world.arrive(at(2, 0), 1);
    world.finish(0);
    assert_eq!(world.retired.len(), 1);
    assert!(world.placed.contains(&(4, SlotRef { seat: at(2, 0), slot: 0, incarnation: 1 })));
}

#[test]
fn who_is_to_go_takes_nothing_into_spare_slots_while_somebody_waits_for_its_place() {
    let mut world = ReplaceWorld::with_generation(1, 3);
    for item in 1..=3 {
        world.submit(item, ONE);
    }
    world.begin(2, MAX_OPEN);
    world.arrive(at(2, 0), 1);
    assert_eq!(world.submit(4, TWO), Submission::Busy);
}

#[test]
fn a_generation_that_was_never_used_and_is_replaced_gives_its_workers_up() {
    let mut world = ReplaceWorld::with_generation(1, 3);
    for item in 1..=3 {
        world.submit(item, ONE);
    }
    world.begin(2, MAX_OPEN);
    world.arrive(at(2, 0), 1);
    world.arrive(at(2, 1), 1);
    world.begin(3, MAX_OPEN);
    world.retired.sort();
    assert_eq!(world.retired, [at(2, 0), at(2, 1)]);
}

#[test]
fn fewer_children_hold_for_the_old_generation_too() {
    let mut world = ReplaceWorld::with_generation(1, 3);
    world.submit(1, ONE);
    world.begin(2, 1);
    assert_eq!(world.queue.open_seats(), 1, "the idle ones went at once");
    world.arrive(at(2, 0), 1);
    world.finish(0);
    assert_eq!(world.queue.open_current(), 1);
    assert_eq!(world.queue.open_seats(), 1);
}

#[test]
fn a_successor_takes_the_place_of_one_that_died_before_it_got_anything() {
    let mut world = ReplaceWorld::with_generation(1, 3);
    for item in 0..3 {
        world.submit(item, ONE);
    }
    world.begin(2, MAX_OPEN);
    // The first dies as soon as it has come, and its successor is there before that is known.
    world.arrive(at(2, 0), 1);
    world.arrive(at(2, 0), 2);
    world.finish(0);
    assert_eq!(world.queue.incarnation(at(2, 0)), 2);
    world.submit(3, ONE);
    world.finish(0);
    world.check();
    assert!(world.placed.iter().any(|(item, _)| *item == 3));
}

#[test]
fn a_worn_worker_serves_until_its_replacement_is_ready() {
    let mut world = ReplaceWorld::new();
    world.queue.add(1, SEATS, 2);
    world.queue.replace(1, 1, LIMIT);
    world.arrive(at(1, 0), 1);
    world.submit(1, ONE);
    assert_eq!(world.queue.next_worn(), Some((at(1, 0).worker(1), Wear::Requests)));
    world.finish(0);
    world.submit(2, ONE);
    assert_eq!(world.queue.next_worn(), None, "it is said once");
    world.arrive(at(1, 1), 1);
    assert!(world.retired.is_empty());
    world.finish(0);
    assert_eq!(world.retired, [at(1, 0)]);
    assert!(matches!(world.submit(3, ONE), Submission::Placed(place) if place.seat == at(1, 1)));
}

#[test]
fn where_there_is_room_a_worn_worker_goes_when_its_replacement_comes() {
    let mut world = ReplaceWorld::with_generation(1, 1);
    world.submit(1, ONE);
    world.queue.wear_out(at(1, 0).worker(1), Wear::Memory);
    world.arrive(at(1, 1), 1);
    assert_eq!(world.queue.open_seats(), 2);
    world.finish(0);
    assert_eq!(world.retired, [at(1, 0)]);
    assert_eq!(world.queue.open_seats(), 1);
}

#[test]
fn who_comes_beyond_those_that_are_to_serve_takes_the_place_of_one_that_has_or_of_nobody() {
    let mut world = ReplaceWorld::new();
    assert!(!world.queue.limit_serving(1));
    world.queue.add(1, SEATS, 0);
    world.queue.serve_each(1, 1);
    world.queue.replace(1, MAX_OPEN, LIMIT);
    for number in 0..3 {
        world.arrive(at(1, number), 1);
    }
    assert_eq!(world.queue.open_seats(), 1);
    world.submit(1, ONE);
    let (_, served) = world.placed.remove(0);
    world.queue.done(served);
    world.settle();
    assert_eq!((world.queue.open_seats(), world.queue.pending.len()), (1, 1));
    assert!(world.retired.is_empty(), "it ends by itself");
    // One that waits has the next as soon as more may serve.
    world.submit(2, ONE);
    world.submit(3, ONE);
    assert_eq!((world.placed.len(), world.queue.waiting()), (1, 1));
    assert!(world.queue.limit_serving(2));
    world.settle();
    assert_eq!((world.placed.len(), world.queue.waiting()), (2, 0));
}

#[test]
fn where_there_is_room_for_fewer_those_that_get_nothing_so_far_go_before_those_that_serve() {
    let mut world = ReplaceWorld::new();
    world.queue.limit_serving(2);
    world.queue.add(1, SEATS, 0);
    world.queue.serve_each(1, 1);
    world.queue.replace(1, MAX_OPEN, LIMIT);
    for number in 0..4 {
        world.arrive(at(1, number), 1);
    }
    for (room, gone) in [(5, 0), (4, 0), (3, 1), (2, 2), (1, 2), (0, 2)] {
        world.queue.limit_pending(room);
        world.settle();
        assert_eq!(world.retired.len(), gone, "with room for {room}");
        assert_eq!(world.queue.open_seats(), 2);
    }
    assert_eq!(world.retired, [at(1, 3), at(1, 2)], "the last that came first");
}

#[test]
fn who_is_to_take_the_place_of_another_stays_however_little_room_there_is() {
    let mut worn = ReplaceWorld::with_generation(1, 3);
    worn.submit(1, ONE);
    let (_, busy) = worn.placed[0];
    worn.queue.wear_out(busy.seat.worker(1), Wear::Requests);
    worn.arrive(at(1, 3), 1);
    let mut old = ReplaceWorld::with_generation(1, 3);
    (1..=3).for_each(|item| {
        old.submit(item, ONE);
    });
    old.begin(2, MAX_OPEN);
    old.arrive(at(2, 0), 1);
    for mut world in [worn, old] {
        world.queue.limit_pending(1);
        world.settle();
        assert!(world.retired.is_empty(), "{:?}", world.retired);
        world.finish(0);
        world.settle();
        assert_eq!(world.retired.len(), 1, "it has taken its place");
    }
}

#[test]
fn a_closed_pool_serves_what_waits_and_then_nobody() {
    let mut world = ReplaceWorld::with_generation(1, 2);
    for item in 1..=3 {
        world.submit(item, ONE);
    }
    world.queue.leave(1);
    world.settle();
    assert!(world.retired.is_empty());
    world.finish(0);
    assert!(world.retired.is_empty(), "one waited");
    world.finish(0);
    world.finish(0);
    assert_eq!(world.retired.len(), 2);
    assert_eq!(world.submit(4, ONE), Submission::NoWorkers);
}

#[test]
fn what_waits_for_a_pool_that_is_no_more_is_told_so() {
    let mut world = ReplaceWorld::with_generation(1, 0);
    assert_eq!(world.submit(1, ONE), Submission::Busy);
    world.queue.leave(1);
    assert_eq!(world.queue.abandon(), [1]);
}

#[test]
fn at_the_end_one_worker_stays_for_the_last_clients() {
    let mut world = ReplaceWorld::with_generation(1, 3);
    world.submit(1, ONE);
    world.queue.keep_only(1);
    world.settle();
    assert_eq!(world.queue.open_seats(), 2, "one is busy and may be for long");
    world.finish(0);
    assert_eq!(world.queue.open_seats(), 1);
}

#[derive(Debug, Clone)]
enum ReplaceStep {
    Submit { two: bool },
    Finish { nth: usize },
    Die { generation: Generation, number: u32 },
    Arrive { back: u32, number: u32 },
    Add,
    Replace { max_open: usize },
    Wear { number: u32 },
    Leave,
    Forget,
    Look,
}

fn step() -> impl Strategy<Value = ReplaceStep> {
    let number = 0..SEATS;
    prop_oneof![
        8 => any::<bool>().prop_map(|two| ReplaceStep::Submit { two }),
        8 => any::<usize>().prop_map(|nth| ReplaceStep::Finish { nth }),
        2 => (1..8u32, number.clone())
            .prop_map(|(generation, number)| ReplaceStep::Die { generation, number }),
        8 => (0..2u32, number.clone())
            .prop_map(|(back, number)| ReplaceStep::Arrive { back, number }),
        1 => Just(ReplaceStep::Add),
        1 => (1..=MAX_OPEN).prop_map(|max_open| ReplaceStep::Replace { max_open }),
        1 => number.prop_map(|number| ReplaceStep::Wear { number }),
        1 => Just(ReplaceStep::Leave),
        1 => Just(ReplaceStep::Forget),
        2 => Just(ReplaceStep::Look),
    ]
}

impl ReplaceWorld {
    fn step(&mut self, step: &ReplaceStep, newest: &mut Generation, item: &mut u32) {
        match *step {
            ReplaceStep::Submit { two } => {
                *item += 1;
                self.submit(*item, if two { TWO } else { ONE });
            }
            ReplaceStep::Finish { nth } if !self.placed.is_empty() => {
                self.finish(nth % self.placed.len())
            }
            ReplaceStep::Finish { .. } => {}
            ReplaceStep::Die { generation, number } => self.die(at(generation, number)),
            ReplaceStep::Arrive { back, number } => {
                let seat = at(newest.saturating_sub(back), number);
                let is_there = self.queue.generation_seats(seat.generation).is_some();
                // A death may be told of later than the successor.
                let successor = self.alive.get(&seat).map_or(0, |last| last + 1);
                if is_there {
                    self.arrive(seat, successor.max(*item + 1));
                }
            }
            ReplaceStep::Add => {
                *newest += 1;
                self.queue.add(*newest, SEATS, 3);
            }
            ReplaceStep::Replace { max_open } => {
                self.most_open = self.queue.open_seats();
                self.queue.replace(*newest, max_open, LIMIT);
                self.settle();
            }
            ReplaceStep::Wear { number } => {
                let seat = at(self.queue.current(), number);
                let incarnation = self.queue.incarnation(seat);
                self.queue.wear_out(seat.worker(incarnation), Wear::Memory);
                self.settle();
            }
            ReplaceStep::Leave => {
                self.queue.leave(self.queue.current());
                self.settle();
            }
            ReplaceStep::Forget => {
                let gone = newest.saturating_sub(2);
                for number in 0..SEATS {
                    self.die(at(gone, number));
                }
                assert!(self.queue.remove(gone).is_empty());
                self.settle();
            }
            ReplaceStep::Look => {
                self.queue.age_idle();
                if let Some(WorkerRef { seat, .. }) = self.queue.close_retiring() {
                    assert!(self.queue.is_retiring(seat.generation));
                    self.alive.remove(&seat);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn no_reload_opens_too_many_seats_or_loses_a_request(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut world = ReplaceWorld::with_generation(1, 2);
        let (mut newest, mut item) = (1, 0);
        for step in steps {
            world.step(&step, &mut newest, &mut item);
            world.check();
        }
        while !world.placed.is_empty() {
            world.finish(0);
            world.check();
        }
        prop_assert!(world.waits.is_empty() || world.queue.open_seats() == 0);
    }
}
