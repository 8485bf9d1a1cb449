//! The simulator agrees with queueing theory.

use maitred_simulator::arrivals::draw;
use maitred_simulator::chance::Times;
use maitred_simulator::outcome::Outcome;
use maitred_simulator::plant::{Kind, Plant};
use maitred_simulator::plants;
use maitred_simulator::policies::fixed::Fixed;
use maitred_simulator::search::{best, traces};
use maitred_simulator::world::play;

fn run(plant: &Plant, workers: usize) -> Outcome {
    play(plant, &draw(plant, 1), &mut Fixed(workers))
}

/// `workers` with exponential service times of mean 1, of which `load` are busy on average.
fn erlang(load: f64, workers: usize) -> (f64, f64) {
    let asleep = Kind::new(Times::Fixed(1e-9), Times::Exponential(1.0));
    let mut plant = Plant::steady("Erlang", 64.0, load, asleep, 60_000.0 / load.sqrt());
    plant.queue_timeout = f64::INFINITY;
    let outcome = run(&plant, workers);
    let waited = outcome.waits.iter().filter(|wait| **wait > 0.0).count();
    (waited as f64 / outcome.waits.len() as f64, outcome.wait(99.0))
}

#[test]
fn as_many_wait_and_for_as_long_as_erlang_says() {
    for (load, workers, waits, longest) in [
        (4.0, 6, 0.28, 1.68),
        (4.0, 8, 0.059, 0.44),
        (10.0, 14, 0.17, 0.71),
        (10.0, 17, 0.031, 0.16),
        (31.5, 38, 0.19, 0.45),
    ] {
        let (found, wait) = erlang(load, workers);
        assert!((found - waits).abs() < 0.1 * waits + 0.005, "{load}: {found}, not {waits}");
        assert!((wait - longest).abs() < 0.12 * longest, "{load}: {wait}, not {longest}");
    }
}

#[test]
fn littles_law_and_the_law_of_utilisation_hold_in_every_run() {
    for plant in plants::stationary(20.0) {
        let outcome = run(&plant, 12);
        let (mean, rate) = (outcome.in_workers / outcome.ended as f64, outcome.goodput());
        let cores = plant.segments[0].cores;
        assert!(rate * mean <= 12.0 * 1.02, "{}: more than 12 at a time", plant.name);
        let worked = outcome.worked / outcome.seconds();
        assert!(worked <= cores * 1.02, "{}: {worked} processors", plant.name);
    }
}

#[test]
fn pure_waiting_bends_where_it_must() {
    let mut plant = plants::stationary(60.0).remove(0);
    plant.segments[0].kinds = vec![Kind::new(Times::Fixed(1e-6), Times::Fixed(0.1))];
    plant.segments[0].rate = 1000.0;
    for workers in [1, 10, 50] {
        let (found, expected) = (run(&plant, workers).goodput(), workers as f64 * 10.0);
        assert!((found / expected - 1.0).abs() < 0.01, "{workers}: {found}");
    }
}

#[test]
fn gunthers_law_has_its_peak_at_35_and_89_percent_of_it_at_64() {
    let plant = plants::crosstalk(6.0);
    let law =
        |n: f64| 995.648_6 * n / (1.0 + 0.026_715_91 * (n - 1.0) + 7.690_945e-4 * n * (n - 1.0));
    for workers in [1, 8, 35, 64] {
        let (found, expected) = (run(&plant, workers).goodput(), law(workers as f64));
        assert!((found / expected - 1.0).abs() < 0.02, "{workers}: {found}, not {expected}");
    }
    assert!((law(64.0) / law(35.0) - 0.89).abs() < 0.01);
}

#[test]
fn ten_connections_of_five_milliseconds_do_2000_and_14_workers_suffice() {
    let plants = plants::stationary(20.0);
    let plant = plants.iter().find(|plant| plant.name.starts_with("P5 database, 1.5")).unwrap();
    let (few, enough, many) = (run(plant, 10), run(plant, 18), run(plant, 60));
    assert!(few.goodput() < 1750.0, "{}", few.goodput());
    assert!(enough.goodput() > 1930.0, "{}", enough.goodput());
    assert!((many.goodput() - 1980.0).abs() < 40.0, "{}", many.goodput());
}

#[test]
fn the_search_finds_the_numbers_that_are_known() {
    let all = plants::stationary(20.0);
    let find = |name: &str| {
        let plant = all.iter().find(|plant| plant.name.starts_with(name)).unwrap();
        best(plant, &traces(plant, 1), &[2, 3, 4, 5, 6, 7, 8, 10, 14, 20, 40]).0
    };
    assert_eq!(find("P1 work, 3 x"), 4);
    assert!((7..=10).contains(&find("P2 7 + 3 ms, 2 x")));
}

#[test]
fn fifty_workers_swap_where_there_is_room_for_half_of_them() {
    let all = plants::stationary(20.0);
    let wall = all.iter().find(|plant| plant.name.starts_with("P4")).unwrap();
    let (fits, collapses) = (run(wall, 23), run(wall, 56));
    assert!(fits.swapped == 0.0, "{} s", fits.swapped);
    assert!(collapses.swapped > 1.0);
    assert!(collapses.goodput() < fits.goodput());
}

/// Mean value analysis of `workers` that share a lock, each for `locked` after `free`.
fn behind_a_lock(workers: usize, free: f64, locked: f64) -> f64 {
    let (mut waiting, mut rate) = (0.0, 0.0);
    for number in 1..=workers {
        let behind = locked * (1.0 + waiting);
        rate = number as f64 / (free + behind);
        waiting = rate * behind;
    }
    rate
}

#[test]
fn a_twentieth_of_the_work_behind_a_lock_is_gunthers_contention_of_a_twentieth() {
    // There are enough processors.
    let plant = plants::lock("P5b lock", 128.0, 0.2, 6000.0, 20.0);
    for workers in [1, 10, 20, 90] {
        let (found, expected) =
            (run(&plant, workers).goodput(), behind_a_lock(workers, 0.0038, 0.0002));
        assert!((found / expected - 1.0).abs() < 0.03, "{workers}: {found}, not {expected}");
    }
    let sigma = run(&plant, 1).goodput() / run(&plant, 90).goodput();
    assert!((sigma / 0.05 - 1.0).abs() < 0.10, "{sigma}");
}
