//! The order of waiting requests, alone and with workers in virtual time.

use super::*;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);
const FOREVER: Duration = Duration::MAX;
const WORK: Workload = Workload { script: Duration::from_millis(5), workers: 2 };

fn waiting(limit: usize, timeout: Duration) -> WaitList<u32> {
    let mut waiting = WaitList::new();
    waiting.set_limit(limit);
    waiting.set_timeout(timeout);
    waiting
}

/// An overloaded pool in virtual time.
struct WaitWorld {
    waiting: WaitList<u32>,
    began: Instant,
    now: Instant,
    /// When each worker is free again.
    free: Vec<Instant>,
    came: Vec<Instant>,
    /// The wait of each request that got a worker, and the request.
    served: Vec<(Duration, u32)>,
    refused: Vec<(RequestOutcome, Duration)>,
    busy: Duration,
    /// Clients leave after this time.
    patience: Duration,
    /// The clients before this one have left.
    gone: u32,
}

impl WaitWorld {
    fn new(limit: usize, timeout: Duration) -> WaitWorld {
        let now = Instant::now();
        WaitWorld {
            waiting: waiting(limit, timeout),
            began: now,
            now,
            free: vec![now; WORK.workers],
            came: Vec::new(),
            served: Vec::new(),
            refused: Vec::new(),
            busy: Duration::ZERO,
            patience: FOREVER,
            gone: 0,
        }
    }

    fn waited(&self, item: u32) -> Duration {
        self.now - self.came[item as usize]
    }

    /// Requests arrive every `pause`, for `time`; each may wait for `max_wait`.
    fn run(&mut self, time: Duration, pause: Duration, max_wait: Duration) {
        let end = self.now + time;
        let mut next = self.now;
        while self.now < end {
            let free = *self.free.iter().min().expect("there are workers");
            if free <= next && !self.waiting.is_empty() {
                self.now = self.now.max(free);
                self.leave();
                self.serve();
                continue;
            }
            self.now = next;
            self.leave();
            next += pause;
            let item = self.came.len() as u32;
            self.came.push(self.now);
            if let Some(worker) = self.free.iter_mut().find(|free| **free <= self.now) {
                *worker = self.now + WORK.script;
                self.busy += WORK.script;
                self.served.push((Duration::ZERO, item));
                // A worker asks for waiting requests before it is idle.
                assert_eq!(self.waiting.take(), None);
                continue;
            }
            let told = self.waiting.would_reject(self.now, max_wait, &WORK);
            let joined = self.waiting.enqueue(item, self.now, max_wait, &WORK);
            assert_eq!(told, joined.err(), "a caller that asks before gets the same result");
            match joined {
                Ok(None) => {}
                Ok(Some(oldest)) => {
                    let waited = self.waited(oldest);
                    self.refused.push((RequestOutcome::QueueFull, waited));
                }
                Err(why) => self.refused.push((why, Duration::ZERO)),
            }
        }
    }

    fn leave(&mut self) {
        let waits_for = |item: &u32| self.now - self.came[*item as usize];
        let (first, last) = (self.gone, self.came.len() as u32);
        let left = (first..last).take_while(|item| waits_for(item) >= self.patience);
        for item in left {
            self.waiting.cancel(&item, self.now);
            self.gone = item + 1;
        }
    }

    fn serve(&mut self) {
        self.waiting.pass_time(self.now, &WORK);
        let Some(item) = self.waiting.take() else {
            return;
        };
        self.served.push((self.waited(item), item));
        let now = self.now;
        let worker = self.free.iter_mut().find(|free| **free <= now);
        *worker.expect("a free worker") = now + WORK.script;
        self.busy += WORK.script;
        while let Some(passed) = self.waiting.next_to_shed(self.now, &WORK) {
            let waited = self.waited(passed);
            self.refused.push((RequestOutcome::Shed, waited));
        }
    }

    /// The share of the workers' time in which they ran a script.
    fn share_busy(&self) -> f64 {
        let time = (self.now - self.began) * WORK.workers as u32;
        self.busy.as_secs_f64() / time.as_secs_f64()
    }

    fn waited_most(&self, from: usize) -> Duration {
        let served = self.served[from..].iter().map(|(waited, _)| *waited);
        served.max().expect("some were answered")
    }
}

#[test]
fn three_and_ten_times_too_much_keep_all_workers_busy_and_those_answered_hardly_wait() {
    for times in [3, 10] {
        for (limit, timeout) in [(1000, 10_000 * MS), (1000, 500 * MS), (50, 10_000 * MS)] {
            let mut world = WaitWorld::new(limit, timeout);
            let pause = WORK.script / WORK.workers as u32 / times;
            world.run(5000 * MS, pause, timeout);
            let begun = world.served.len();
            world.run(10_000 * MS, pause, timeout);
            assert!(world.share_busy() > 0.99, "{}", world.share_busy());
            assert!(world.waiting.is_lifo());
            let most = world.waited_most(begun);
            assert!(most <= 10 * MS, "{times} times, {limit}, {timeout:?}: {most:?}");
            let refused = world.refused.iter();
            let latest = refused.map(|(_, waited)| *waited).max();
            assert!(latest <= Some(PATIENT), "{latest:?}");
        }
    }
}

/// The longest wait of an overtaken request, with the last step of the clock.
const PATIENT: Duration = Duration::from_millis(1010);

#[test]
fn clients_that_leave_sooner_than_any_is_refused_are_answered_before_they_do() {
    for times in [2, 3, 10] {
        let mut world = WaitWorld::new(1000, 10_000 * MS);
        world.patience = 200 * MS;
        let pause = WORK.script / WORK.workers as u32 / times;
        world.run(1000 * MS, pause, 10_000 * MS);
        let begun = world.served.len();
        world.run(5000 * MS, pause, 10_000 * MS);
        let most = world.waited_most(begun);
        assert!(most <= 10 * MS, "{times} times: {most:?}");
        assert!(world.share_busy() > 0.99, "{}", world.share_busy());
    }
}

#[test]
fn clients_that_leave_at_once_do_not_turn_a_queue_of_patient_ones_round() {
    let mut line = waiting(1000, 10_000 * MS);
    let mut now = Instant::now();
    for item in 0..500 {
        now += 5 * MS;
        for item in [2 * item, 2 * item + 1] {
            assert_eq!(line.enqueue(item, now, 10_000 * MS, &WORK), Ok(None));
        }
        assert!(line.cancel(&(2 * item + 1), now + MS));
        if item >= 100 {
            line.pass_time(now, &WORK);
            assert_eq!(line.take(), Some(2 * (item - 100)), "in order");
        }
    }
    assert!(!line.is_lifo());
}

#[test]
fn requests_that_come_back_from_behind_long_scripts_hide_no_crowd() {
    let mut world = WaitWorld::new(1000, 10_000 * MS);
    for _ in 0..100 {
        world.run(50 * MS, WORK.script / 6, FOREVER);
        let item = world.waiting.take().expect("some wait");
        world.waiting.put_back(item, world.now);
    }
    assert!(world.waiting.is_lifo());
}

#[test]
fn order_comes_back_when_the_crowd_has_gone() {
    let mut world = WaitWorld::new(1000, 10_000 * MS);
    world.run(3000 * MS, WORK.script / 6, FOREVER);
    assert!(world.waiting.is_lifo());
    world.run(5000 * MS, WORK.script, FOREVER);
    assert!(world.waiting.is_empty());
    let refused = world.refused.len();
    world.run(MS, MS / 20, FOREVER);
    assert!(!world.waiting.is_lifo());
    world.run(5000 * MS, WORK.script, FOREVER);
    assert_eq!(world.refused.len(), refused);
}

#[test]
fn a_burst_within_bounds_is_answered_in_full_and_in_order() {
    let mut world = WaitWorld::new(1000, 10_000 * MS);
    world.run(MS, MS / 500, FOREVER);
    world.run(5000 * MS, 100 * MS, FOREVER);
    assert!(world.refused.is_empty());
    assert!(world.served.iter().map(|(_, item)| item).is_sorted());
    assert!(world.served.len() > 500);
}

#[test]
fn who_would_wait_for_too_long_is_refused_at_once_when_the_pace_is_known() {
    let mut world = WaitWorld::new(1000, 500 * MS);
    // 500 come at once, of which 200 can be answered in time; the rest of the time half as many.
    world.run(MS, MS / 500, 500 * MS);
    world.run(400 * MS, WORK.script, 500 * MS);
    let rejected = world.refused.iter();
    let rejected = rejected.filter(|(why, _)| *why == RequestOutcome::WaitTooLong);
    let count = rejected.count();
    assert!(count > 5, "{count} of {}", world.came.len());
    // Who is more patient, or comes when there are fewer, waits.
    let joined = world.waiting.enqueue(u32::MAX, world.now, FOREVER, &WORK);
    assert_eq!(joined, Ok(None));
}

#[test]
fn in_order_the_newest_is_refused_and_otherwise_the_oldest() {
    let now = Instant::now();
    let mut line = waiting(2, FOREVER);
    let enqueue = |line: &mut WaitList<u32>, item, at| line.enqueue(item, now + at, FOREVER, &WORK);
    assert_eq!(enqueue(&mut line, 0, MS), Ok(None));
    assert_eq!(enqueue(&mut line, 1, MS), Ok(None));
    assert_eq!(line.take(), Some(0));
    assert_eq!(enqueue(&mut line, 2, 2 * MS), Ok(None));
    assert_eq!(enqueue(&mut line, 3, 3 * MS), Err(RequestOutcome::QueueFull));
    // It was empty at first, and has stood for the whole of the next interval.
    assert_eq!(enqueue(&mut line, 3, 110 * MS), Err(RequestOutcome::QueueFull));
    assert_eq!(line.take(), Some(1));
    assert_eq!(enqueue(&mut line, 3, 120 * MS), Ok(None));
    assert_eq!(enqueue(&mut line, 4, 130 * MS), Err(RequestOutcome::QueueFull));
    assert_eq!(enqueue(&mut line, 4, 220 * MS), Ok(Some(2)));
    assert_eq!(enqueue(&mut line, 5, 230 * MS), Ok(Some(3)));
    assert_eq!(line.lifo_starts(), 1);
    assert_eq!(line.take(), Some(5));
    line.put_back(5, now + 230 * MS);
    assert_eq!((line.take(), line.take(), line.take()), (Some(5), Some(4), None));
    assert_eq!(line.take_lifo_time(), 10 * MS);
}

#[test]
fn nobody_waits_where_nobody_may() {
    let mut line = waiting(0, FOREVER);
    for at in 0..50 {
        let joined = line.enqueue(at, Instant::now() + 50 * at * MS, FOREVER, &WORK);
        assert_eq!(joined, Err(RequestOutcome::QueueFull));
    }
}

proptest! {
    #[test]
    fn everybody_is_answered_refused_or_waits_and_nobody_twice(
        steps in prop::collection::vec((0u8..6, 0u32..400), 1..300),
    ) {
        let mut line = waiting(5, 300 * MS);
        let (mut now, mut present, mut next) = (Instant::now(), Vec::new(), 0);
        for (step, pause) in steps {
            now += MS * pause;
            let mut gone = Vec::new();
            match step {
                0..3 => {
                    next += 1;
                    match line.enqueue(next, now, 300 * MS, &WORK) {
                        Ok(None) => present.push(next),
                        Ok(Some(oldest)) => {
                            present.push(next);
                            gone.push(oldest);
                        }
                        Err(_) => {}
                    }
                }
                3 => {
                    line.pass_time(now, &WORK);
                    gone.extend(line.take());
                    while let Some(passed) = line.next_to_shed(now, &WORK) {
                        gone.push(passed);
                    }
                }
                4 if !present.is_empty() => {
                    let item = present[pause as usize % present.len()];
                    prop_assert!(line.cancel(&item, now));
                    prop_assert!(!line.cancel(&item, now));
                    gone.push(item);
                }
                _ => {
                    if let Some(item) = line.take() {
                        line.put_back(item, now);
                    }
                }
            }
            for item in gone {
                prop_assert!(present.contains(&item), "{item} was here once only");
                present.retain(|other| *other != item);
            }
            prop_assert_eq!(line.len(), present.len());
            prop_assert!(line.len() <= 5);
        }
        let mut left: Vec<u32> = line.drain().collect();
        left.sort_unstable();
        present.sort_unstable();
        prop_assert_eq!(left, present);
    }
}
