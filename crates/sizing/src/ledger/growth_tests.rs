//! Replacing workers that have grown.

use super::*;

const MB: f64 = 1024.0 * 1024.0;

/// Seconds until the workers' memory is known, with margin.
const KNOWN: usize = 20;

/// Nearly full, of 1000 MB.
const FULL: f64 = 860.0;

/// A pool's workers, by what each has, in megabytes, and how many requests it has served.
struct World {
    rooms: MemoryLedger,
    second: u64,
    /// In use, in megabytes.
    used: f64,
    workers: Vec<(i32, f64, u64)>,
    /// Their seats report their requests.
    reports: bool,
}

impl World {
    /// Three known workers that had 20 MB when they began to serve.
    fn warm() -> World {
        let mut world = World::cold();
        (0..KNOWN).for_each(|_| assert_eq!(world.look(), None));
        world
    }

    fn cold() -> World {
        World {
            rooms: MemoryLedger::default(),
            second: 0,
            used: FULL,
            workers: [7, 8, 9].map(|worker| (worker, 20.0, 1000)).into(),
            reports: true,
        }
    }

    fn set(&mut self, worker: i32, has: f64, served: u64) {
        self.workers.retain(|one| one.0 != worker);
        self.workers.push((worker, has, served));
    }

    /// The worker replaced at the next sample, a second later.
    fn look(&mut self) -> Option<i32> {
        self.second += 1;
        let ids: Vec<i32> = self.workers.iter().map(|one| one.0).collect();
        let mut budget = Budget { exactly: 16, roughly: 64 };
        for due in self.rooms.due("www", &ids, 100 * self.second, &mut budget) {
            let worker = self.workers.iter().find(|one| one.0 == due.worker);
            let (_, own, served) = *worker.unwrap();
            let has =
                WorkerMemory { own: own * MB, most: None, served: self.reports.then_some(served) };
            self.rooms.measured("www", due, has);
        }
        let memory = Memory { limit: 1000.0 * MB, used: self.used * MB, by_group: true };
        let signs = Signs { used: Some(memory.part()), ..Signs::default() };
        let now = Duration::from_secs(self.second);
        let pools = HashSet::from(["www"]);
        self.rooms.look(now, Some(memory), &signs, &pools);
        let worker = self.rooms.outgrown().map(|(_, grown)| grown.worker);
        if let Some(worker) = worker {
            self.rooms.replaces("www", worker);
        }
        worker
    }

    fn looks(&mut self, looks: usize) -> Vec<i32> {
        (0..looks).filter_map(|_| self.look()).collect()
    }
}

#[test]
fn where_memory_is_nearly_full_the_worker_goes_that_has_grown_most() {
    for (used, has, goes) in [
        (FULL, [30.0, 90.0, 50.0], Some(8)),
        (FULL, [30.0, 35.0, 39.0], None),
        (840.0, [30.0, 90.0, 50.0], None),
        // If memory is short, another would be there beside it for a while.
        (930.0, [30.0, 90.0, 50.0], None),
    ] {
        let mut world = World::warm();
        world.used = used;
        for (worker, has) in (7..).zip(has) {
            world.set(worker, has, 2000);
        }
        assert_eq!(world.look(), None, "one request may have taken it");
        assert_eq!(world.look(), goes, "{used} {has:?}");
    }
}

#[test]
fn what_one_large_request_takes_for_a_moment_is_no_growth() {
    let mut world = World::warm();
    for _ in 0..20 {
        world.set(8, 200.0, 2000);
        assert_eq!(world.look(), None);
        world.set(8, 20.0, 2001);
        assert_eq!(world.look(), None);
    }
}

#[test]
fn a_worker_that_had_rested_has_not_grown_by_its_first_requests() {
    let mut world = World::warm();
    world.set(10, 2.0, 0);
    assert_eq!(world.looks(40), []);
    world.set(10, 60.0, 5);
    assert_eq!(world.looks(40), []);
    world.set(10, 65.0, 5000);
    assert_eq!(world.looks(40), []);
}

#[test]
fn what_a_seat_still_tells_of_who_sat_there_before_is_not_taken_for_the_new_worker_s() {
    let mut world = World::warm();
    world.set(10, 2.0, 1000);
    assert_eq!(world.look(), None);
    world.set(10, 60.0, 70);
    assert_eq!(world.looks(40), []);
}

#[test]
fn who_may_be_young_is_worth_a_question_until_it_is_known_what_it_keeps() {
    let mut world = World::warm();
    let may_have_young = |world: &World| world.rooms.may_have_young("www");
    assert!(!may_have_young(&world), "all have served a thousand requests");
    // Its seat reports the previous worker's requests at first.
    world.set(10, 2.0, 1000);
    world.look();
    assert!(may_have_young(&world));
    world.set(10, 20.0, 3);
    world.look();
    assert!(!may_have_young(&world));
    world.set(11, 20.0, 5000);
    world.look();
    assert!(may_have_young(&world), "unknown yet");
    world.look();
    assert!(!may_have_young(&world));
}

#[test]
fn who_has_what_a_young_worker_has_stays_since_its_successor_would_have_as_much() {
    let mut world = World::warm();
    (7..10).for_each(|worker| world.set(worker, 50.0 + f64::from(worker), 2000));
    assert_eq!(world.looks(2), [9]);
    world.workers.pop();
    world.set(10, 60.0, 20);
    assert_eq!(world.looks(100), [], "it is what the application takes");
    world.set(7, 130.0, 3000);
    assert_eq!(world.looks(2), [7], "and this is more than that");
}

#[test]
fn a_pool_of_which_many_have_grown_has_one_replaced_in_half_a_minute() {
    let mut world = World::warm();
    (7..10).for_each(|worker| world.set(worker, 60.0 + f64::from(worker), 2000));
    let mut gone = Vec::new();
    let mut at = Vec::new();
    for second in 0..100 {
        if let Some(worker) = world.look() {
            world.workers.retain(|one| one.0 != worker);
            world.set(worker + 100, 20.0, 20);
            gone.push(worker);
            at.push(second);
        }
    }
    assert_eq!(gone, [9, 8, 7], "the largest first, and each once");
    assert_eq!(at, [1, 31, 61]);
}

#[test]
fn who_does_not_leave_for_ten_minutes_keeps_no_other_from_it_and_is_chosen_again_then() {
    let mut world = World::warm();
    (7..10).for_each(|worker| world.set(worker, 60.0 + f64::from(worker), 2000));
    let chosen: Vec<(usize, i32)> =
        (0..640).filter_map(|second| Some((second, world.look()?))).collect();
    let all = [(1, 9), (31, 8), (61, 7), (601, 9), (631, 8)];
    assert_eq!(chosen, all, "each runs a long script, or has no order");
}

#[test]
fn who_was_full_grown_when_it_was_seen_first_is_not_taken_for_what_the_application_takes() {
    let mut world = World::warm();
    // As after an upgrade of the server: it has served long.
    world.set(10, 100.0, 100_000);
    assert_eq!(world.looks(10), []);
    world.set(8, 70.0, 2000);
    assert_eq!(world.looks(3), [8]);
}

#[test]
fn who_was_young_when_that_was_told_last_is_not_taken_for_it_when_it_has_grown() {
    let mut world = World::warm();
    world.set(10, 20.0, 20);
    assert_eq!(world.looks(3), []);
    world.reports = false;
    world.set(8, 100.0, 5000);
    world.set(10, 90.0, 5000);
    assert_eq!(world.looks(2), [8]);
}

#[test]
fn nobody_is_replaced_before_it_is_known_what_workers_take() {
    let mut world = World::cold();
    assert_eq!(world.look(), None);
    world.set(8, 100.0, 2000);
    assert_eq!(world.looks(4), []);
}
