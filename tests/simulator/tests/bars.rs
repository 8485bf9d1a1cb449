//! `pm = auto` compared with the best fixed number of workers, in a small form; in full: `cargo run
//! -p maitred-simulator --release`.

use maitred_simulator::chance::Times;
use maitred_simulator::plant::{Kind, Plant};
use maitred_simulator::plants;
use maitred_simulator::policies::auto::Auto;
use maitred_simulator::policies::fixed::Fixed;
use maitred_simulator::policies::fpm::Dynamic;
use maitred_simulator::search::{Score, best, numbers, score, traces};

/// Simulated seconds of a plant, and number of seeds.
const SECONDS: f64 = 40.0;
const SEEDS: u64 = 1;

/// About as many numbers up to 96 are tried.
const STEP: f64 = 0.25;

fn compare(plant: &Plant) -> (Score, Score) {
    compare_often(plant, SEEDS)
}

fn compare_often(plant: &Plant, seeds: u64) -> (Score, Score) {
    let traces = traces(plant, seeds);
    let (_, fixed) = best(plant, &traces, &numbers(plant.cap, STEP));
    (score(plant, &traces, &|| Box::new(Auto::new(plant))), fixed)
}

fn stationary(name: &str) -> Plant {
    let mut all = plants::stationary(SECONDS).into_iter();
    all.find(|plant| plant.name == name).expect("a plant of this name")
}

fn is_as_good_as_the_best(name: &str) {
    is_as_good_often(name, SEEDS);
}

fn is_as_good_often(name: &str, seeds: u64) {
    let (auto, fixed) = compare_often(&stationary(name), seeds);
    let goodput = auto.goodput / fixed.goodput;
    assert!(goodput >= 0.985, "{name}: {goodput} of its requests");
    let p99 = auto.p99 / fixed.p99;
    assert!(p99 <= 1.10, "{name}: {p99} times its p99");
    let more = auto.workers - fixed.workers;
    assert!(more <= 2.0 || auto.workers <= 1.10 * fixed.workers, "{name}: {more} more workers");
}

#[test]
fn a_pool_that_works_is_as_good_as_the_best_fixed_one_up_to_three_times_its_capacity() {
    is_as_good_as_the_best("P1 work, 0.9 of capacity");
    is_as_good_as_the_best("P1 work, 3 x capacity");
    is_as_good_as_the_best("P2 7 + 3 ms, half");
    // In so short a time the throughput of a full pool depends on the requests that it happens to
    // get.
    is_as_good_often("P2 7 + 3 ms, 2 x capacity", 2);
}

#[test]
fn a_pool_that_waits_is_as_good_as_the_best_fixed_one() {
    is_as_good_as_the_best("P2 1 + 9 ms, a quarter");
    is_as_good_as_the_best("P15 sleep, 3 in flight");
    is_as_good_as_the_best("P15 sleep, 20 in flight");
    is_as_good_as_the_best("rare: 2/s of 40 ms");
}

#[test]
fn users_of_equal_pages_do_not_wait_for_each_other() {
    is_as_good_as_the_best("P16 sleep, 32 users");
    // Nor where they differ by a tenth.
    let mut plant = stationary("P16 sleep, 32 users");
    plant.segments[0].kinds[0].blocked = Times::Lognormal { mean: 0.040, cv2: 0.01 };
    let (auto, fixed) = compare(&plant);
    assert!(auto.p99 <= 1.10 * fixed.p99, "{auto:?} {fixed:?}");
}

#[test]
fn short_requests_do_not_wait_behind_long_ones() {
    let plant = stationary("P8 heavy tail, 0.7");
    let traces = traces(&plant, SEEDS);
    let auto = score(&plant, &traces, &|| Box::new(Auto::new(&plant)));
    let of = |workers| score(&plant, &traces, &|| Box::new(Fixed(workers)));
    assert!(auto.p99 <= 1.10 * of(12).p99, "{auto:?}");
    assert!(auto.p50 <= 0.8 * of(4).p50, "{auto:?}: 4 are as many as there are processors");
}

#[test]
fn a_pool_that_waits_for_one_database_has_no_more_workers_than_that_serves() {
    is_as_good_as_the_best("P5 database, half");
    let mut database = stationary("P5 database, 1.5 x capacity");
    database.seconds *= 2.0;
    database.warm_up = SECONDS;
    for (plant, enough) in [(database, 18), (plants::crosstalk(2.0 * SECONDS), 33)] {
        let traces = traces(&plant, SEEDS);
        let auto = score(&plant, &traces, &|| Box::new(Auto::new(&plant)));
        let fixed = score(&plant, &traces, &|| Box::new(Fixed(enough)));
        assert!(auto.goodput >= 0.97 * fixed.goodput, "{auto:?} {fixed:?}");
        assert!(auto.workers <= 45.0, "{auto:?}, of 96");
    }
}

#[test]
fn memory_is_never_swapped_out_where_fewer_workers_do() {
    for name in ["P4 memory wall", "P13 children of 300 MB"] {
        let plant = stationary(name);
        let (auto, fixed) = compare(&plant);
        assert_eq!(auto.swapped, 0.0, "{name}");
        assert!(auto.goodput >= 0.8 * fixed.goodput, "{name}: {auto:?} {fixed:?}");
        let traces = traces(&plant, SEEDS);
        let dynamic = score(&plant, &traces, &|| Box::new(Dynamic::by_the_guide(96)));
        assert!(dynamic.swapped > 10.0, "{name}: it would have been");
    }
}

/// The 99th percentile of the requests that do not hang, where two of a hundred do.
const P99_OF_OTHERS: f64 = 97.02;

#[test]
fn requests_that_do_not_hang_do_not_wait_for_those_that_do() {
    // Of exponentially distributed times the slowest hundredth takes about four times as long as
    // half of them.
    for (plant, times) in [(plants::hang(SECONDS), 4.5), (plants::hang_and_work(SECONDS), 3.0)] {
        for trace in &traces(&plant, SEEDS) {
            let outcome = maitred_simulator::world::play(&plant, trace, &mut Auto::new(&plant));
            let (slow, half) = (outcome.percentile(P99_OF_OTHERS), outcome.percentile(50.0));
            assert!(slow <= times * half, "{}: {slow} s, where half take {half} s", plant.name);
            assert_eq!(outcome.refused, 0);
        }
    }
}

#[test]
fn a_step_from_one_idle_worker_is_as_quick_as_with_fifty() {
    let plant = plants::step_from_cold(6.0);
    for trace in traces(&plant, SEEDS) {
        let outcome = maitred_simulator::world::play(&plant, &trace, &mut Auto::new(&plant));
        let fixed = maitred_simulator::world::play(&plant, &trace, &mut Fixed(50));
        let (ours, theirs) = (outcome.percentile(99.0), fixed.percentile(99.0));
        assert!(ours <= 1.3 * theirs, "{ours} s, {theirs} s with 50");
    }
}

#[test]
fn a_step_to_twenty_times_as_many_makes_no_request_wait() {
    let plant = &plants::shifting(SECONDS)[0];
    for trace in traces(plant, SEEDS) {
        let outcome = maitred_simulator::world::play(plant, &trace, &mut Auto::new(plant));
        assert_eq!(outcome.refused, 0);
        assert!(outcome.wait(99.0) < 0.050, "{} s", outcome.wait(99.0));
    }
}

#[test]
fn where_the_work_changes_it_serves_about_as_much_as_the_best_fixed_number() {
    for plant in plants::shifting(SECONDS) {
        let (auto, fixed) = compare(&plant);
        let (goodput, p99) = (auto.goodput / fixed.goodput, auto.p99 / fixed.p99);
        assert!(goodput >= 0.96, "{}: {goodput} of its requests", plant.name);
        assert!(p99 <= 1.05, "{}: {p99} times its p99", plant.name);
    }
}

#[test]
fn pages_that_work_for_long_do_not_hang() {
    let kind = Kind::new(Times::Fixed(0.2), Times::Fixed(0.0));
    let plant = Plant::steady("P1 slow pages from cold, 3 x capacity", 4.0, 60.0, kind, 20.0);
    for trace in traces(&plant, SEEDS) {
        let outcome = maitred_simulator::world::play(&plant, &trace, &mut Auto::new(&plant));
        let most = outcome.sizes.iter().map(|(_, workers)| *workers).max();
        // As if a quarter of each request were computing, until that is known.
        assert!(most.is_some_and(|most| most <= 24), "{most:?}");
    }
}
