//! The plants by which ways of sizing are judged. Their numbers are those of the list.

use crate::chance::Times;
use crate::cores::Drag;
use crate::plant::{Database, Kind, MB, Memory, Plant, Segment};

fn exponential(milliseconds: f64) -> Times {
    Times::Exponential(milliseconds / 1000.0)
}

fn fixed(milliseconds: f64) -> Times {
    Times::Fixed(milliseconds / 1000.0)
}

fn mixed(cpu: f64, blocked: f64) -> Kind {
    Kind::new(exponential(cpu), exponential(blocked))
}

/// Plants with a constant load.
pub fn stationary(seconds: f64) -> Vec<Plant> {
    let steady = |name, rate, kind| Plant::steady(name, 4.0, rate, kind, seconds);
    let work = Kind::new(fixed(20.0), fixed(0.0));
    let heavy = Kind::new(Times::Lognormal { mean: 0.010, cv2: 10.0 }, fixed(0.0));
    let asleep = Kind::new(fixed(0.05), fixed(100.0));
    vec![
        steady("P1 work, half of capacity", 100.0, work),
        steady("P1 work, 0.9 of capacity", 180.0, work),
        steady("P1 work, 3 x capacity", 600.0, work),
        steady("P2 7 + 3 ms, half", 285.0, mixed(7.0, 3.0)),
        steady("P2 7 + 3 ms, 2 x capacity", 1140.0, mixed(7.0, 3.0)),
        steady("P2 1 + 9 ms, a quarter", 1000.0, mixed(1.0, 9.0)),
        steady("P2 1 + 9 ms, 0.8", 3200.0, mixed(1.0, 9.0)),
        steady("P2 1 + 9 ms, 1.5 x capacity", 6000.0, mixed(1.0, 9.0)),
        database("P5 database, half", 1000.0, seconds),
        database("P5 database, 1.5 x capacity", 3000.0, seconds),
        lock("P5b lock, half", 8.0, 1.0, 500.0, seconds),
        lock("P5b lock, 1.5 x capacity", 8.0, 1.0, 1500.0, seconds),
        wall("P4 memory wall", seconds),
        children("P13 children of 300 MB", seconds),
        steady("P8 heavy tail, 0.7", 280.0, heavy),
        steady("P15 sleep, 3 in flight", 30.0, asleep),
        steady("P15 sleep, 20 in flight", 200.0, asleep),
        users("P16 sleep, 32 users", 32, seconds),
        steady("rare: 2/s of 40 ms", 2.0, mixed(5.0, 35.0)),
    ]
}

/// A closed loop whose requests wait 40 ms and hardly compute: with fewer workers than clients all
/// end together, and the remaining clients wait for a whole round.
fn users(name: &'static str, users: usize, seconds: f64) -> Plant {
    let kind = Kind::new(fixed(0.2), fixed(40.0));
    let most = users as f64 / kind.blocked.mean();
    Plant { users: Some(users), ..Plant::steady(name, 4.0, 1.1 * most, kind, seconds) }
}

/// 8 processors, 2 ms of computing, 5 ms at one of 10 connections.
fn database(name: &'static str, rate: f64, seconds: f64) -> Plant {
    let mut kind = mixed(2.0, 0.0);
    kind.blocked = fixed(0.0);
    kind.database = exponential(5.0);
    Plant {
        database: Some(Database { slots: 10, is_lock: false }),
        ..Plant::steady(name, 8.0, rate, kind, seconds)
    }
}

/// 4 ms of computing, `locked` of it under a lock.
pub fn lock(name: &'static str, cores: f64, locked: f64, rate: f64, seconds: f64) -> Plant {
    let mut kind = mixed(4.0 - locked, 0.0);
    kind.blocked = fixed(0.0);
    kind.database = exponential(locked);
    Plant {
        database: Some(Database { slots: 1, is_lock: true }),
        ..Plant::steady(name, cores, rate, kind, seconds)
    }
}

/// Gunther's law with the coefficients of the Cisco benchmark: the best number is 35 workers.
pub fn crosstalk(seconds: f64) -> Plant {
    let kind = Kind::new(Times::Exponential(1.0 / 995.648_6), fixed(0.0));
    let mut plant = Plant::steady("P3 crosstalk", 1000.0, 20_000.0, kind, seconds);
    plant.drag = Drag { switching: 0.0, contention: 0.026_715_91, crosstalk: 7.690_945e-4 };
    plant
}

/// 4 GB; a worker takes 70 MB and a page up to 130 MB more. By resident memory a worker would take
/// 190 MB.
fn wall(name: &'static str, seconds: f64) -> Plant {
    let page = Kind { weight: 0.9, ..mixed(5.0, 195.0) };
    let large = Kind { weight: 0.1, peak: 130.0 * MB, ..page };
    let mut plant = Plant::steady(name, 4.0, 300.0, page, seconds);
    plant.segments[0].kinds = vec![page, large];
    plant.memory = Some(Memory {
        limit: 4096.0 * MB,
        base: (900.0 + 128.0) * MB,
        worker: 70.0 * MB,
        leak: 0.0,
        by_children: false,
        swap_drag: 1.0,
    });
    plant
}

/// One request in ten runs a program of 300 MB for 2 s.
fn children(name: &'static str, seconds: f64) -> Plant {
    let mut plant = wall(name, seconds);
    let image =
        Kind { weight: 0.1, peak: 300.0 * MB, ..Kind::new(exponential(5.0), fixed(2000.0)) };
    let page = Kind { weight: 0.9, ..mixed(5.0, 35.0) };
    plant.segments[0].kinds = vec![page, image];
    plant.segments[0].rate = 20.0;
    plant.memory = plant.memory.map(|memory| Memory { by_children: true, ..memory });
    plant
}

/// 6 % of the requests take 400 MB for a second; two of them fit at once.
pub fn pictures(seconds: f64) -> Plant {
    let page = Kind { weight: 0.94, ..mixed(5.0, 0.0) };
    let large = Kind { weight: 0.06, peak: 400.0 * MB, ..Kind::new(fixed(300.0), fixed(700.0)) };
    let mut plant = Plant::steady("B14 pictures of 400 MB", 2.0, 20.0, page, seconds);
    plant.segments[0].kinds = vec![page, large];
    plant.memory = Some(Memory {
        limit: 1024.0 * MB,
        base: 60.0 * MB,
        worker: 10.0 * MB,
        leak: 0.0,
        by_children: false,
        swap_drag: 1.0,
    });
    plant.queue_timeout = 30.0;
    plant.warm_up = 0.0;
    plant
}

/// 2 % of the requests hang for 15 s; there are enough workers for all of them.
pub fn hang(seconds: f64) -> Plant {
    let quick = Kind { weight: 0.98, ..mixed(5.0, 10.0) };
    let hanging = Kind { weight: 0.02, ..Kind::new(fixed(5.0), fixed(15_000.0)) };
    let mut plant = Plant::steady("P6 hang", 4.0, 100.0, quick, seconds);
    plant.segments[0].kinds = vec![quick, hanging];
    plant.warm_up = 0.0;
    plant
}

/// The same with at most 20 workers: fewer than hang.
pub fn hang_where_twenty_are_all(seconds: f64) -> Plant {
    Plant { name: "P6 hang, 20 workers at most", cap: 20, ..hang(seconds) }
}

/// A third of the requests call a dead service, in the second third of the time.
pub fn dead_dependency(seconds: f64) -> Plant {
    let mut plant = hang(seconds);
    plant.name = "P6 every third asks for what is dead";
    plant.cap = 64;
    let segment = |at: f64, dead: Kind| {
        let mut segment = plant.segments[0].clone();
        segment.at = at * seconds;
        segment.kinds[0].weight = 0.66;
        segment.kinds[1] = Kind { weight: 0.34, ..dead };
        segment
    };
    let (quick, hangs) = (plant.segments[0].kinds[0], plant.segments[0].kinds[1]);
    let segments = vec![segment(0.0, quick), segment(1.0 / 3.0, hangs), segment(2.0 / 3.0, quick)];
    Plant { segments, ..plant }
}

/// The same with requests that only compute, on two processors: as many workers as processors may
/// hang at a time.
pub fn hang_and_work(seconds: f64) -> Plant {
    let mut plant = hang(seconds);
    plant.name = "P6 hang, others work";
    plant.segments[0].kinds[0].cpu = fixed(5.0);
    plant.segments[0].kinds[0].blocked = fixed(0.0);
    plant.segments[0].cores = 2.0;
    plant
}

/// From zero to 200 requests a second that compute for 4 ms and wait for 40 ms, without a warm-up.
pub fn step_from_cold(seconds: f64) -> Plant {
    let kind = Kind::new(fixed(4.0), fixed(40.0));
    Plant { warm_up: 0.0, ..Plant::steady("P7 from cold to 200/s", 2.0, 200.0, kind, seconds) }
}

/// Plants with a changing load.
pub fn shifting(seconds: f64) -> Vec<Plant> {
    let part =
        |at: f64, rate, kind, cores| Segment { at: at * seconds, rate, kinds: vec![kind], cores };
    let plant = |name, segments: Vec<Segment>| Plant {
        shifts: true,
        warm_up: seconds / 12.0,
        segments,
        ..Plant::steady(name, 4.0, 1.0, mixed(1.0, 1.0), seconds)
    };
    let (waits, works) = (mixed(1.0, 40.0), Kind::new(fixed(20.0), fixed(0.0)));
    vec![
        plant(
            "P7 20 to 400/s and back",
            vec![
                part(0.0, 20.0, mixed(2.0, 40.0), 4.0),
                part(0.3, 400.0, mixed(2.0, 40.0), 4.0),
                part(0.5, 20.0, mixed(2.0, 40.0), 4.0),
            ],
        ),
        plant(
            "P9 4 processors, 2, 4",
            vec![
                part(0.0, 350.0, mixed(7.0, 3.0), 4.0),
                part(0.3, 350.0, mixed(7.0, 3.0), 2.0),
                part(0.6, 350.0, mixed(7.0, 3.0), 4.0),
            ],
        ),
        plant(
            "waiting, then too much work",
            vec![
                part(0.0, 800.0, waits, 4.0),
                part(0.4, 300.0, works, 4.0),
                part(0.8, 800.0, waits, 4.0),
            ],
        ),
    ]
}

/// Steps of overload, as multiples of the processors' capacity: computing only, and with waiting.
pub fn ladder(seconds: f64) -> Vec<Plant> {
    let rung = |name, rate, kind| Plant::steady(name, 4.0, rate, kind, seconds);
    let (work, waits) = (Kind::new(fixed(5.0), fixed(0.0)), mixed(1.0, 9.0));
    vec![
        rung("P10 work, as much as there is room for", 800.0, work),
        rung("P10 work, 2 x capacity", 1600.0, work),
        rung("P10 work, 10 x capacity", 8000.0, work),
        rung("P10 1 + 9 ms, as much as there is room for", 4000.0, waits),
        rung("P10 1 + 9 ms, 3 x capacity", 12_000.0, waits),
        rung("P10 1 + 9 ms, 10 x capacity", 40_000.0, waits),
    ]
}

/// Hours of a simulated day, each of five minutes.
const HOURS: usize = 24;
const HOUR_SECONDS: f64 = 300.0;

/// How long the requests of a cron job last at each full hour, in seconds, and their factor.
const CRON_SECONDS: f64 = 10.0;
const CRON: f64 = 3.0;

/// A day: few requests at night, most in the afternoon, and three times as many for ten seconds of
/// each hour. An hour is five minutes.
pub fn day() -> Plant {
    let kind = mixed(2.0, 40.0);
    let segment = |at: f64, rate: f64| Segment { at, rate, kinds: vec![kind], cores: 4.0 };
    let hours = (0..HOURS).flat_map(|hour| {
        let at = hour as f64 * HOUR_SECONDS;
        let turn = std::f64::consts::TAU * hour as f64 / HOURS as f64;
        let rate = 155.0 - 145.0 * turn.cos();
        [segment(at, CRON * rate), segment(at + CRON_SECONDS, rate)]
    });
    let seconds = HOURS as f64 * HOUR_SECONDS;
    Plant {
        segments: hours.collect(),
        shifts: true,
        warm_up: HOUR_SECONDS,
        ..Plant::steady("P12 a day", 4.0, 1.0, kind, seconds)
    }
}
