//! The queue of one generation. `rolling_replace.rs` has the tests of several.

use super::*;
use maitred_scoreboard::RequestOutcome;
use proptest::prelude::*;

const ONE: Depth = Depth { before_waking: 1, when_busy: 1 };
const TWO: Depth = Depth { before_waking: 1, when_busy: 2 };
const DEEP: Depth = Depth { before_waking: 3, when_busy: 4 };

/// A script's time.
const SCRIPT: Duration = Duration::from_millis(1);

/// A request arrives, and waits if it has to ([`Submission::Busy`]) and may.
pub fn come(queue: &mut Queue<u32>, item: u32, depth: Depth) -> Submission {
    let submitted = queue.submit(item, Priority::Normal, depth);
    if submitted == Submission::Busy {
        let _ = enqueue(queue, item);
    }
    submitted
}

pub fn enqueue(queue: &mut Queue<u32>, item: u32) -> Result<Option<u32>, RequestOutcome> {
    queue.enqueue(item, Instant::now(), Duration::MAX, SCRIPT)
}

fn seat(number: u32) -> SeatId {
    SeatId { generation: 1, number }
}

fn opened(seats: u32) -> Queue<u32> {
    let mut queue = Queue::new();
    queue.add(1, seats, 0);
    queue.replace(1, seats as usize, 3);
    for number in 0..seats {
        queue.arrive(seat(number).worker(1), Vec::new());
    }
    queue
}

fn place(number: u32, slot: usize) -> SlotRef {
    SlotRef { seat: seat(number), slot, incarnation: 1 }
}

#[test]
fn a_request_that_is_certain_to_be_turned_away_is_told_so_before_it_comes() {
    let asks = |queue: &mut Queue<u32>, priority| {
        queue.would_reject(priority, ONE, Instant::now(), Duration::MAX, SCRIPT)
    };
    let mut queue = opened(2);
    for item in 0..5 {
        assert_eq!(asks(&mut queue, Priority::Normal), None, "{item}");
        come(&mut queue, item, ONE);
    }
    assert_eq!(asks(&mut queue, Priority::Normal), Some(RequestOutcome::QueueFull));
    assert_eq!(enqueue(&mut queue, 5), Err(RequestOutcome::QueueFull));
    assert_eq!(asks(&mut queue, Priority::Urgent), None, "those wait elsewhere");
    assert!(queue.cancel(&4, Instant::now()));
    assert_eq!(asks(&mut queue, Priority::Normal), None, "there is room again");
    // Without workers the cause of the rejection is another one.
    assert_eq!(asks(&mut Queue::new(), Priority::Normal), None);
}

#[test]
fn the_most_recently_used_seat_is_taken_first() {
    let mut queue = opened(3);
    assert_eq!(come(&mut queue, 1, ONE), Submission::Placed(place(2, 0)));
    assert_eq!(come(&mut queue, 2, ONE), Submission::Placed(place(1, 0)));
    queue.free(place(2, 0));
    assert_eq!(come(&mut queue, 3, ONE), Submission::Placed(place(2, 0)));
}

#[test]
fn a_retired_worker_is_known_as_the_last_of_its_seat_until_another_comes() {
    let mut queue = opened(2);
    let retired = queue.retire(0, 0).expect("an idle worker");
    assert_eq!(retired, seat(0).worker(1));
    assert!(queue.was_retired(retired) && !queue.was_retired(seat(1).worker(1)));
    queue.arrive(seat(0).worker(2), Vec::new());
    assert!(!queue.was_retired(retired));
    // One that has died is followed by another.
    queue.close(seat(1).worker(1));
    assert!(!queue.was_retired(seat(1).worker(1)));
}

#[test]
fn requests_wait_in_order_and_the_queue_has_an_end() {
    let mut queue = opened(1);
    come(&mut queue, 1, ONE);
    for item in 2..=4 {
        assert_eq!(come(&mut queue, item, ONE), Submission::Busy);
    }
    assert_eq!(queue.submit(5, Priority::Normal, ONE), Submission::Busy);
    assert_eq!(enqueue(&mut queue, 5), Err(RequestOutcome::QueueFull));
    queue.free(place(0, 0));
    assert_eq!(queue.next(seat(0), ONE), SeatAction::Run(2, place(0, 0)));
    assert_eq!(queue.next(seat(0), ONE), SeatAction::Rest);
}

#[test]
fn short_scripts_use_the_second_slot_and_long_ones_do_not() {
    let mut queue = opened(1);
    come(&mut queue, 1, TWO);
    assert_eq!(come(&mut queue, 2, ONE), Submission::Busy);
    let mut queue = opened(1);
    come(&mut queue, 1, TWO);
    assert_eq!(queue.queued(), 0);
    assert_eq!(come(&mut queue, 2, TWO), Submission::Placed(place(0, 1)));
    assert_eq!((queue.queued(), queue.waiting()), (1, 0), "it waits in a slot");
}

#[test]
fn very_short_scripts_fill_a_busy_seat_before_another_is_woken() {
    let mut queue = opened(2);
    for slot in 0..3 {
        assert_eq!(come(&mut queue, slot as u32, DEEP), Submission::Placed(place(1, slot)));
    }
    assert_eq!(queue.queued(), 0, "a worker is idle");
    assert_eq!(come(&mut queue, 3, DEEP), Submission::Placed(place(0, 0)));
    assert_eq!(queue.idle_slot(Priority::Normal), None);
}

#[test]
fn an_idle_seat_fetches_what_waits_behind_another() {
    let mut queue = opened(2);
    come(&mut queue, 1, TWO);
    come(&mut queue, 2, TWO);
    assert_eq!(come(&mut queue, 3, TWO), Submission::Placed(place(0, 1)));
    queue.free(place(1, 0));
    let to = place(1, 0);
    let from = vec![(3, place(0, 1)), (2, place(0, 0))];
    assert_eq!(queue.next(seat(1), TWO), SeatAction::TakeBack { from, to });
    queue.moved(3, Priority::Normal, place(0, 1), to);
    assert_eq!(come(&mut queue, 4, ONE), Submission::Busy);
}

#[test]
fn what_waits_behind_a_long_script_while_no_seat_is_idle_is_the_next_to_run() {
    let mut queue = opened(2);
    for item in 1..=4 {
        assert!(matches!(come(&mut queue, item, TWO), Submission::Placed(_)));
    }
    assert_eq!(come(&mut queue, 5, TWO), Submission::Busy);
    let (long, behind) = (seat(0), place(0, 1));
    assert_eq!(queue.seat(long).and_then(|seat| seat.slots[1]), Some(3));
    queue.requeue(3, Priority::Normal, behind, Instant::now());
    assert_eq!(queue.next(long, TWO), SeatAction::Rest);
    queue.done(place(1, 0));
    assert_eq!(queue.next(seat(1), TWO), SeatAction::Run(3, place(1, 0)));
    // The one that runs there has ended: it is as every other.
    queue.done(place(0, 0));
    assert_eq!(queue.next(long, TWO), SeatAction::Run(5, place(0, 0)));
    assert_eq!(come(&mut queue, 6, TWO), Submission::Placed(behind));
}

#[test]
fn a_seat_without_a_worker_gets_nothing_and_gives_back_what_it_had() {
    let mut queue = opened(1);
    come(&mut queue, 1, TWO);
    come(&mut queue, 2, TWO);
    let left = queue.close(seat(0).worker(1));
    assert_eq!(left, vec![(place(0, 0), 1), (place(0, 1), 2)]);
    assert_eq!(come(&mut queue, 3, TWO), Submission::Busy);
    queue.put_back(2, Priority::Normal, Instant::now());
    queue.arrive(seat(0).worker(2), Vec::new());
    let reopened = SlotRef { seat: seat(0), slot: 0, incarnation: 2 };
    assert_eq!(queue.next(seat(0), ONE), SeatAction::Run(2, reopened));
}

#[test]
fn an_urgent_request_comes_before_all_who_wait_and_keeps_seats_for_its_like() {
    let mut queue = opened(3);
    queue.reserve(1);
    let urgent = |queue: &mut Queue<u32>, item| queue.submit(item, Priority::Urgent, ONE);
    come(&mut queue, 1, ONE);
    come(&mut queue, 2, ONE);
    assert_eq!(come(&mut queue, 3, ONE), Submission::Busy, "the third is kept");
    assert_eq!(queue.idle_for_waiting(), None);
    assert_eq!(queue.idle_slot(Priority::Normal), None);
    assert_eq!(queue.next(seat(0), ONE), SeatAction::Rest);
    assert_eq!(urgent(&mut queue, 10), Submission::Placed(place(0, 0)));
    assert_eq!(urgent(&mut queue, 11), Submission::Busy);
    assert_eq!(queue.enqueue_urgent(11), Ok(()));
    queue.free(place(2, 0));
    assert_eq!(queue.next(seat(2), ONE), SeatAction::Run(11, place(2, 0)));
    // Two seats run urgent requests: the one that gets free next is everybody's.
    queue.free(place(1, 0));
    assert_eq!(queue.idle_for_waiting(), Some(seat(1)));
    assert_eq!(queue.next(seat(1), ONE), SeatAction::Run(3, place(1, 0)));
    queue.free(place(0, 0));
    queue.free(place(2, 0));
    assert_eq!(come(&mut queue, 4, ONE), Submission::Placed(place(2, 0)));
    assert_eq!(come(&mut queue, 5, ONE), Submission::Busy);
}

#[test]
fn urgent_requests_that_wait_can_leave_and_have_an_end_and_one_seat_is_always_everybodys() {
    let mut queue = opened(1);
    queue.reserve(1);
    assert_eq!(come(&mut queue, 1, ONE), Submission::Placed(place(0, 0)));
    for item in 10..13 {
        assert_eq!(queue.enqueue_urgent(item), Ok(()));
    }
    assert_eq!(queue.enqueue_urgent(13), Err(RequestOutcome::QueueFull));
    let now = Instant::now();
    assert!(queue.cancel(&11, now) && !queue.cancel(&11, now));
    assert_eq!(queue.waiting(), 2);
    let left = queue.close(seat(0).worker(1));
    assert_eq!(left.len(), 1);
    queue.put_back(14, Priority::Urgent, Instant::now());
    queue.arrive(seat(0).worker(2), Vec::new());
    let second = SlotRef { incarnation: 2, ..place(0, 0) };
    for item in [14, 10, 12] {
        assert_eq!(queue.next(seat(0), ONE), SeatAction::Run(item, second));
        queue.free(second);
    }
    assert_eq!(queue.next(seat(0), ONE), SeatAction::Rest);
}

#[test]
fn urgent_requests_get_the_seats_kept_for_them_however_short_scripts_are() {
    let mut queue = opened(3);
    queue.reserve(1);
    for item in 1..=2 {
        assert!(matches!(come(&mut queue, item, DEEP), Submission::Placed(at) if at.slot == 0));
    }
    assert_eq!(come(&mut queue, 3, DEEP), Submission::Busy);
    let urgent = queue.submit(10, Priority::Urgent, DEEP);
    assert_eq!(urgent, Submission::Placed(place(0, 0)));
    assert_eq!(queue.next(seat(0), DEEP), SeatAction::Rest, "no request behind it");
    assert_eq!(queue.submit(11, Priority::Urgent, DEEP), Submission::Busy);
    assert_eq!(queue.enqueue_urgent(11), Ok(()));
    queue.done(place(2, 0));
    assert_eq!(queue.next(seat(2), DEEP), SeatAction::Run(11, place(2, 0)));
    assert_eq!(queue.next(seat(2), DEEP), SeatAction::Rest);
}

#[test]
fn an_urgent_request_moves_to_a_seat_that_is_kept_and_what_it_leaves_is_everybodys() {
    let mut queue = opened(3);
    // From before the reservation: two normal requests, and an urgent one behind the second.
    come(&mut queue, 1, ONE);
    come(&mut queue, 2, DEEP);
    assert_eq!(come(&mut queue, 3, ONE), Submission::Placed(place(1, 0)));
    let urgent = queue.submit(10, Priority::Urgent, DEEP);
    assert_eq!(urgent, Submission::Placed(place(1, 1)));
    queue.reserve(1);
    assert_eq!(queue.idle_slot(Priority::Normal), None);
    assert_eq!(queue.idle_slot(Priority::Urgent), Some(place(0, 0)));
    queue.moved(10, Priority::Urgent, place(1, 1), place(0, 0));
    assert_eq!(come(&mut queue, 4, ONE), Submission::Busy);
    queue.done(place(0, 0));
    assert_eq!(queue.next(seat(0), ONE), SeatAction::Rest, "it is still kept");
    queue.done(place(1, 0));
    assert_eq!(queue.next(seat(1), ONE), SeatAction::Run(4, place(1, 0)));
}

#[derive(Debug, Clone)]
enum QueueStep {
    Submit { depth: Depth, priority: Priority },
    Finish { nth: usize },
    Die { seat: u32 },
    Cancel { nth: usize },
    TurnOutLong { seat: u32 },
}

fn step() -> impl Strategy<Value = QueueStep> {
    let depth = prop_oneof![Just(ONE), Just(TWO), Just(DEEP)];
    let priority = prop_oneof![2 => Just(Priority::Normal), 1 => Just(Priority::Urgent)];
    prop_oneof![
        4 => (depth, priority).prop_map(|(depth, priority)| QueueStep::Submit { depth, priority }),
        4 => any::<usize>().prop_map(|nth| QueueStep::Finish { nth }),
        1 => (0u32..3).prop_map(|seat| QueueStep::Die { seat }),
        1 => any::<usize>().prop_map(|nth| QueueStep::Cancel { nth }),
        1 => (0u32..3).prop_map(|seat| QueueStep::TurnOutLong { seat }),
    ]
}

/// The driver's part, without clock or memory: whatever is placed has begun only if it is
/// the older of its seat's two.
struct QueueWorld {
    queue: Queue<u32>,
    placed: Vec<(u32, SlotRef)>,
    incarnations: Vec<u32>,
    waiting: Vec<u32>,
    /// Of each request, from the first, which is 1.
    lanes: Vec<Priority>,
    /// What scripts were like when the last request came.
    depth: Depth,
}

impl QueueWorld {
    fn priority(&self, item: u32) -> Priority {
        self.lanes[item as usize - 1]
    }

    /// How many wait in this priority.
    fn waiting(&self, priority: Priority) -> usize {
        let waiting = self.waiting.iter().filter(|item| self.priority(**item) == priority);
        waiting.count()
    }

    /// How many seats hold usual requests.
    fn usual_seats(&self) -> usize {
        let usual = self.placed.iter().filter(|(item, _)| self.priority(*item) == Priority::Normal);
        let seats: std::collections::HashSet<_> = usual.map(|(_, at)| at.seat.number).collect();
        seats.len()
    }

    fn settle(&mut self, seat: SeatId) {
        loop {
            match self.queue.next(seat, self.depth) {
                SeatAction::Run(item, place) => {
                    self.waiting.retain(|waiting| *waiting != item);
                    self.placed.push((item, place));
                }
                SeatAction::TakeBack { from, to } => {
                    let begun = self.placed.iter().find(|(_, at)| at.seat == from[0].1.seat);
                    let begun = begun.map(|(item, _)| *item);
                    let waits = from.into_iter().find(|(item, _)| Some(*item) != begun);
                    let (item, from) = waits.expect("a seat with two");
                    self.queue.moved(item, self.priority(item), from, to);
                    self.placed.retain(|(other, _)| *other != item);
                    self.placed.push((item, to));
                }
                SeatAction::Rest => return,
            }
        }
    }
}

proptest! {
    #[test]
    fn every_request_is_in_one_place_and_no_slot_holds_two(
        steps in proptest::collection::vec(step(), 1..200),
        reserved in 0usize..4,
    ) {
        let mut world = QueueWorld {
            queue: opened(3),
            placed: Vec::new(),
            incarnations: vec![1; 3],
            waiting: Vec::new(),
            lanes: Vec::new(),
            depth: ONE,
        };
        world.queue.reserve(reserved);
        let usual_most = if reserved == 0 { 3 } else { 3usize.saturating_sub(reserved).max(1) };
        let mut next_item = 0;
        for step in steps {
            match step {
                QueueStep::Submit { depth, priority } => {
                    next_item += 1;
                    world.lanes.push(priority);
                    world.depth = depth;
                    let joined = match world.queue.submit(next_item, priority, depth) {
                        Submission::Placed(place) => {
                            world.placed.push((next_item, place));
                            None
                        }
                        Submission::Busy if priority == Priority::Urgent => {
                            Some(world.queue.enqueue_urgent(next_item).map(|()| None))
                        }
                        Submission::Busy => Some(enqueue(&mut world.queue, next_item)),
                        Submission::NoWorkers => panic!("there is a generation"),
                    };
                    match joined {
                        None => {}
                        Some(Ok(None)) => world.waiting.push(next_item),
                        Some(refused) => {
                            prop_assert_eq!(refused, Err(RequestOutcome::QueueFull));
                            prop_assert!(world.waiting(priority) >= 3);
                        }
                    }
                }
                QueueStep::Finish { nth } if !world.placed.is_empty() => {
                    let (_, place) = world.placed.remove(nth % world.placed.len());
                    world.queue.done(place);
                    world.settle(place.seat);
                }
                QueueStep::TurnOutLong { seat: number } if world.queue.idle_seat().is_none() => {
                    let there = |(_, at): &&(u32, SlotRef)| at.seat == seat(number);
                    let behind = world.placed.iter().filter(there).nth(1).copied();
                    if let Some((item, from)) = behind {
                        let now = Instant::now();
                        world.queue.requeue(item, world.priority(item), from, now);
                        world.placed.retain(|(other, _)| *other != item);
                        world.waiting.push(item);
                        prop_assert_eq!(world.queue.next(from.seat, TWO), SeatAction::Rest);
                    }
                }
                QueueStep::Die { seat: number } => {
                    let old = world.incarnations[number as usize];
                    let left = world.queue.close(seat(number).worker(old));
                    world.placed.retain(|(_, place)| place.seat != seat(number));
                    for (_, item) in left.iter().skip(1).rev() {
                        world.queue.put_back(*item, world.priority(*item), Instant::now());
                        world.waiting.push(*item);
                    }
                    world.incarnations[number as usize] += 1;
                    world.queue.arrive(seat(number).worker(old + 1), Vec::new());
                    while let Some(idle) = world.queue.idle_for_waiting() {
                        world.settle(idle);
                    }
                }
                QueueStep::Cancel { nth } if next_item > 0 => {
                    let item = nth as u32 % next_item + 1;
                    if world.queue.cancel(&item, Instant::now()) {
                        world.waiting.retain(|waiting| *waiting != item);
                    }
                }
                _ => {}
            }
            prop_assert_eq!(world.queue.waiting(), world.waiting.len());
            let mut places: Vec<_> =
                world.placed.iter().map(|(_, place)| (place.seat, place.slot)).collect();
            places.sort_unstable();
            places.dedup();
            prop_assert_eq!(places.len(), world.placed.len());
            places.dedup_by_key(|(seat, _)| *seat);
            let behind = match world.queue.busy() {
                3 => world.placed.len() - places.len(),
                _ => 0,
            };
            prop_assert_eq!(world.queue.queued(), world.waiting.len() + behind);
            let mut items: Vec<_> = world.placed.iter().map(|(item, _)| *item).collect();
            items.sort_unstable();
            items.dedup();
            prop_assert_eq!(items.len(), world.placed.len());
            let idle = 3 - world.queue.busy();
            prop_assert!(idle == 0 || world.waiting(Priority::Urgent) == 0, "an urgent one waits");
            let usual = world.usual_seats();
            prop_assert!(usual <= usual_most, "{usual} seats have usual requests");
            let may_wait = idle == 0 || usual == usual_most;
            prop_assert!(may_wait || world.waiting(Priority::Normal) == 0, "a usual one waits");
            let is_alone = world.placed.iter().all(|(_, at)| at.slot == 0);
            prop_assert!(reserved == 0 || is_alone, "one is behind another");
        }
    }
}

#[test]
fn a_copy_gets_what_it_is_there_for_and_one_that_waits_takes_its_place() {
    let mut queue = Queue::new();
    queue.add(1, 2, 0);
    queue.serve_each(1, 1);
    queue.replace(1, 1, 3);
    queue.arrive(seat(0).worker(1), Vec::new());
    queue.arrive(seat(1).worker(1), Vec::new());
    assert_eq!(come(&mut queue, 1, DEEP), Submission::Placed(place(0, 0)));
    assert_eq!(come(&mut queue, 2, DEEP), Submission::Busy);
    // It was taken back before the worker had begun: that one is as good as it was.
    queue.free(place(0, 0));
    assert_eq!(queue.next(seat(0), DEEP), SeatAction::Run(2, place(0, 0)));
    queue.done(place(0, 0));
    assert_eq!(queue.next(seat(0), DEEP), SeatAction::Rest);
    assert_eq!(queue.open_seats(), 0);
    let change = crate::pool::rolling_replace::SeatChange::Open(seat(1));
    assert_eq!(queue.next_seat_change(), Some(change));
    assert_eq!(come(&mut queue, 3, DEEP), Submission::Placed(place(1, 0)));
}

#[test]
fn a_worker_that_leaves_a_request_unclaimed_is_the_last_to_get_another_until_it_finishes_one() {
    let mut queue = opened(3);
    let (stalled, next, other) = (place(2, 0), place(1, 0), place(0, 0));
    assert_eq!(come(&mut queue, 1, DEEP), Submission::Placed(stalled));
    queue.note_unclaimed(stalled.worker(), Duration::from_secs(1));
    queue.moved(1, Priority::Normal, stalled, next);
    queue.done(next);
    for (item, at) in [(2, next), (3, other), (4, stalled)] {
        assert_eq!(come(&mut queue, item, ONE), Submission::Placed(at));
    }
    assert_eq!(come(&mut queue, 5, TWO), Submission::Placed(place(0, 1)));
    assert_eq!(come(&mut queue, 6, TWO), Submission::Placed(place(1, 1)));
    assert_eq!(come(&mut queue, 7, TWO), Submission::Busy, "none is put behind it");
    queue.done(stalled);
    assert_eq!(come(&mut queue, 8, ONE), Submission::Placed(stalled));
    assert_eq!(queue.next(seat(2), TWO), SeatAction::Run(7, place(2, 1)));
}

#[test]
fn a_worker_is_given_up_once_it_has_left_requests_unclaimed_for_the_limit_together() {
    const WAIT: Duration = Duration::from_secs(1);
    let mut queue = opened(1);
    let worker = seat(0).worker(1);
    for item in 0..2 {
        come(&mut queue, item, TWO);
    }
    assert_eq!(queue.give_up(worker, WAIT, 2 * WAIT), None);
    for slot in 0..2 {
        queue.note_unclaimed(worker, WAIT);
        queue.free(place(0, slot));
    }
    assert_eq!(queue.give_up(worker, WAIT, 2 * WAIT), Some(2 * WAIT));
    assert_eq!(queue.give_up(worker, WAIT, 2 * WAIT), None);
    queue.report_again(worker);
    assert_eq!(queue.give_up(worker, WAIT, 2 * WAIT), Some(2 * WAIT));
    queue.report_again(worker);
    come(&mut queue, 1, ONE);
    queue.done(place(0, 0));
    assert_eq!(queue.give_up(worker, WAIT, 2 * WAIT), None, "it has finished one");
}
