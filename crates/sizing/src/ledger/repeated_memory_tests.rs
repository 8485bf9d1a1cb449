//! Memory that several programs of a worker share, and that counts for each of them.

use super::*;

const GB: f64 = 1024.0 * 1024.0 * 1024.0;

const MACHINE: f64 = 16.0 * GB;

/// The workers of the pool `www`, and what each has on average, and more or less than that.
const WORKERS: i32 = 20;
const WORKER: f64 = 0.05 * GB;
const SCATTER: f64 = 0.03 * GB;

/// In use beside the workers.
const BASE: f64 = 3.8 * GB;

/// Two pools: `bad`, of one worker, and `www`.
struct Host {
    rooms: MemoryLedger,
    second: u64,
    /// In use beside the workers and their programs.
    base: f64,
    /// Of the control group of `bad`, if it has one.
    limit: Option<f64>,
    /// The workers of a third pool, `new`, whose memory is not known yet.
    new: Vec<i32>,
}

impl Host {
    fn new(base: f64, limit: Option<f64>) -> Host {
        let mut host =
            Host { rooms: MemoryLedger::default(), second: 0, base, limit, new: Vec::new() };
        (0..60).for_each(|_| host.look(0.01 * GB, 0.01 * GB));
        host
    }

    /// A second in which the worker of `bad` uses this much, and as much more is counted.
    fn look(&mut self, used: f64, counted: f64) {
        self.second += 1;
        let mut budget = Budget { exactly: 16, roughly: 64 };
        let www: Vec<i32> = (2..2 + WORKERS).collect();
        let new = self.new.clone();
        for (pool, workers) in [("bad", &[1][..]), ("www", &www), ("new", &new)] {
            for due in self.rooms.due(pool, workers, 100 * self.second, &mut budget) {
                let own = match due.worker {
                    1 => counted,
                    worker if new.contains(&worker) => 0.002 * GB,
                    worker if worker % 2 == 0 => WORKER - SCATTER,
                    _ => WORKER + SCATTER,
                };
                self.rooms.measured(pool, due, WorkerMemory { own, ..WorkerMemory::default() });
            }
        }
        let group = |limit| Memory { limit, used: used + 0.05 * GB, by_group: true };
        let apart = self.limit.map(|limit| ("bad".to_owned(), group(limit)));
        let in_use = self.base + used + f64::from(WORKERS) * WORKER;
        let memory = Memory { limit: MACHINE, used: in_use, by_group: false };
        let signs = Signs { used: Some(memory.part()), ..Signs::default() };
        let now = Duration::from_secs(self.second);
        self.rooms.look_apart(now, &apart.into_iter().collect());
        self.rooms.look(now, Some(memory), &signs, &HashSet::from(["bad", "www", "new"]));
    }

    /// The most workers of `www`.
    fn room(&self) -> usize {
        self.rooms.workers("www", WORKERS as usize)
    }
}

#[test]
fn a_pool_whose_memory_is_counted_many_times_takes_no_worker_from_another() {
    for limit in [None, Some(1.5 * GB)] {
        for base in [BASE, BASE + 6.0 * GB] {
            let mut host = Host::new(base, limit);
            for _ in 0..200 {
                host.look(1.2 * GB, 20.0 * GB);
                assert!(host.room() >= 20, "{limit:?} {base} {}", host.second);
            }
            // What it has had counts for some time.
            for _ in 0..200 {
                host.look(0.01 * GB, 0.01 * GB);
                assert!(host.room() >= 20, "{limit:?} {base} {}", host.second);
            }
        }
    }
}

#[test]
fn a_pool_whose_memory_is_counted_many_times_leaves_others_what_is_free() {
    let room = |limit: Option<f64>, counted: f64| {
        let mut host = Host::new(BASE, limit);
        (0..200).for_each(|_| host.look(1.2 * GB, counted));
        host.room()
    };
    let honest = room(None, 1.2 * GB);
    assert!((100..200).contains(&honest), "{honest}");
    for limit in [None, Some(1.5 * GB)] {
        let repeated = room(limit, 20.0 * GB);
        assert!((honest - 20..=honest).contains(&repeated), "{limit:?} {repeated} {honest}");
    }
}

#[test]
fn what_a_pool_was_counted_to_have_had_reserves_at_most_a_quarter_of_the_memory_for_it() {
    let room = |counted: f64| {
        let mut host = Host::new(BASE, None);
        (0..200).for_each(|_| host.look(1.2 * GB, counted));
        (0..50).for_each(|_| host.look(0.01 * GB, 0.01 * GB));
        host.room()
    };
    let honest = room(1.2 * GB);
    let least = honest as f64 - RESERVED_SHARE * MACHINE / WORKER;
    assert!(room(20.0 * GB) as f64 >= least - 1.0, "{honest} {}", room(20.0 * GB));
}

#[test]
fn memory_that_is_counted_many_times_cancels_no_reservation_of_a_new_pool() {
    let room = |counted: f64| {
        let mut host = Host::new(BASE, None);
        host.new = (100..140).collect();
        (0..3).for_each(|_| host.look(1.2 * GB, counted));
        host.room()
    };
    let honest = room(1.2 * GB);
    assert!(room(20.0 * GB) <= honest, "{} {honest}", room(20.0 * GB));
}
