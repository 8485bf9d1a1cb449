//! A pool whose measurements are missing or absurd, one at a time, or whose resources change.

use std::time::Duration;

use maitred_simulator::arrivals::draw;
use maitred_simulator::chance::Times;
use maitred_simulator::plant::{Kind, MB, Plant, Segment};
use maitred_simulator::plants;
use maitred_simulator::policies::auto::Auto;
use maitred_simulator::policies::fixed::Fixed;
use maitred_simulator::policies::{Policy, View};
use maitred_simulator::search::{Score, best, numbers, score, traces};
use maitred_simulator::world::play_together;
use maitred_sizing::Spent;
use maitred_sizing::ledger::WorkerMemory;

const SECONDS: f64 = 40.0;

fn stationary(name: &str) -> Plant {
    let mut all = plants::stationary(SECONDS).into_iter();
    all.find(|plant| plant.name == name).expect("a plant of this name")
}

/// Our policy with falsified measurements.
struct Deceived {
    auto: Auto,
    spent: fn(Spent) -> Spent,
    view: fn(View) -> View,
}

impl Policy for Deceived {
    fn arrived(&mut self, view: &View) {
        self.auto.arrived(&(self.view)(*view));
    }

    fn holds_back(&self, kind: u64) -> bool {
        self.auto.holds_back(kind)
    }

    fn began(&mut self, kind: u64) {
        self.auto.began(kind);
    }

    fn finished(&mut self, view: &View, kind: u64, spent: Spent) {
        self.auto.finished(&(self.view)(*view), kind, (self.spent)(spent));
    }

    fn running(&mut self, waits: &mut dyn Iterator<Item = (u64, f64)>) {
        self.auto.running(waits);
    }

    fn all_busy(&mut self, waits: &mut dyn Iterator<Item = (u64, f64)>) {
        self.auto.all_busy(waits);
    }

    fn measures(&mut self, workers: &mut dyn Iterator<Item = (i32, WorkerMemory)>, ended: u64) {
        self.auto.measures(workers, ended);
    }

    fn every(&self) -> f64 {
        self.auto.every()
    }

    fn tick(&mut self, view: &View) {
        self.auto.tick(&(self.view)(*view));
    }

    fn wants(&self, view: &View) -> usize {
        self.auto.wants(&(self.view)(*view))
    }

    fn forked(&mut self, workers: usize) {
        self.auto.forked(workers);
    }

    fn lets_go(&self, view: &View) -> usize {
        self.auto.lets_go(&(self.view)(*view))
    }

    fn is_surplus(&self, view: &View) -> bool {
        self.auto.is_surplus(&(self.view)(*view))
    }

    fn outgrown(&self) -> Option<i32> {
        self.auto.outgrown()
    }
}

fn deceived(plant: &Plant, spent: fn(Spent) -> Spent, view: fn(View) -> View) -> Score {
    let auto = || -> Box<dyn Policy> { Box::new(Deceived { auto: Auto::new(plant), spent, view }) };
    score(plant, &traces(plant, 1), &auto)
}

/// The best fixed number, with a fifth more workers.
fn a_fifth_more(plant: &Plant) -> Score {
    let traces = traces(plant, 1);
    let (number, _) = best(plant, &traces, &numbers(plant.cap, 0.25));
    let more = (number as f64 * 1.2).ceil() as usize;
    score(plant, &traces, &|| Box::new(Fixed(more)))
}

fn same(view: View) -> View {
    view
}

#[test]
fn where_the_kernel_tells_no_wait_for_a_processor_it_does_as_much() {
    let no_schedstat = |spent: Spent| Spent {
        ready: None,
        blocked: spent.blocked + spent.ready.unwrap_or_default(),
        ..spent
    };
    for name in ["P1 work, 0.9 of capacity", "P2 7 + 3 ms, half", "P2 1 + 9 ms, 0.8"] {
        let plant = stationary(name);
        let (auto, fixed) = (deceived(&plant, no_schedstat, same), a_fifth_more(&plant));
        assert!(auto.goodput >= 0.99 * fixed.goodput, "{name}: {auto:?} {fixed:?}");
        assert!(auto.p99 <= 1.25 * fixed.p99, "{name}: {auto:?} {fixed:?}");
    }
}

#[test]
fn where_workers_tell_nothing_or_nonsense_of_their_time_requests_are_served_all_the_same() {
    let lies: [fn(Spent) -> Spent; 3] = [
        |_| Spent::default(),
        |spent| Spent { cpu: Duration::MAX / 4, ..spent },
        |spent| Spent { blocked: Duration::MAX / 4, ..spent },
    ];
    for name in ["P1 work, half of capacity", "P2 1 + 9 ms, a quarter"] {
        let plant = stationary(name);
        for lie in lies {
            let (auto, fixed) = (deceived(&plant, lie, same), a_fifth_more(&plant));
            assert!(auto.goodput >= 0.5 * fixed.goodput, "{name}: {auto:?} {fixed:?}");
            assert!(auto.workers >= 1.0 && auto.workers <= plant.cap as f64);
        }
    }
}

#[test]
fn where_no_quota_can_be_read_it_does_as_much() {
    let all_the_machine_has = |view: View| View { cores: 16.0, ..view };
    let plant = stationary("P2 7 + 3 ms, 2 x capacity");
    let auto = deceived(&plant, |spent| spent, all_the_machine_has);
    let fixed = a_fifth_more(&plant);
    assert!(auto.goodput >= 0.93 * fixed.goodput, "{auto:?} {fixed:?}");
}

#[test]
fn where_memory_cannot_be_read_the_pool_does_not_grow() {
    let blind = |view: View| View { memory: None, ..view };
    let plant = stationary("P4 memory wall");
    let auto = deceived(&plant, |spent| spent, blind);
    assert_eq!((auto.workers, auto.swapped), (1.0, 0.0));
}

#[test]
fn a_limit_of_memory_that_is_lowered_below_what_is_in_use_costs_workers_and_no_more() {
    let mut plant = stationary("P4 memory wall");
    plant.seconds = 2.0 * SECONDS;
    // Memory drops to 2.4 GB: with 1028 MB of others that is enough for seven.
    let lowered = |view: View| {
        let lower = |mut memory: maitred_sizing::sources::Memory| {
            memory.limit = 2400.0 * MB;
            memory
        };
        if view.now > SECONDS { View { memory: view.memory.map(lower), ..view } } else { view }
    };
    let mut policy = Deceived { auto: Auto::new(&plant), spent: |spent| spent, view: lowered };
    let trace = &traces(&plant, 1)[0];
    let outcome = maitred_simulator::world::play(&plant, trace, &mut policy);
    let at = |second: f64| {
        let before = |(at, _): &&(f64, usize)| *at <= second;
        outcome.sizes.iter().rfind(before).map_or(0, |(_, size)| *size)
    };
    assert!(at(SECONDS - 1.0) >= 18, "{}", at(SECONDS - 1.0));
    assert!(at(SECONDS + 30.0) <= 12, "{}", at(SECONDS + 30.0));
    assert!((1..=12).contains(&at(2.0 * SECONDS)));
}

#[test]
fn a_quota_that_is_halved_is_followed_within_three_seconds_and_so_is_its_return() {
    let plant = plants::shifting(60.0).swap_remove(1);
    let trace = &traces(&plant, 1)[0];
    let mut auto = Auto::new(&plant);
    maitred_simulator::world::play(&plant, trace, &mut auto);
    let at = |second: f64| {
        let before = |(at, _): &&(f64, usize)| *at <= second;
        auto.wanted.iter().rfind(before).map_or(0, |(_, size)| *size)
    };
    assert!(at(21.0) <= 5, "{}", at(21.0));
    assert!(at(39.0) >= 6, "{}", at(39.0));
}

#[test]
fn every_worker_hung_leaves_room_for_those_who_do_not_hang() {
    let mut plant = plants::hang(SECONDS);
    let all_hang = plant.segments[0].kinds[1];
    let good = plant.segments[0].clone();
    plant.segments.push(Segment { at: 10.0, rate: 3.0, kinds: vec![all_hang], cores: 4.0 });
    plant.segments.push(Segment { at: 14.0, ..good });
    let trace = &traces(&plant, 1)[0];
    let outcome = maitred_simulator::world::play(&plant, trace, &mut Auto::new(&plant));
    assert_eq!(outcome.refused, 0);
    assert!(outcome.wait(99.0) < 0.05, "{} s", outcome.wait(99.0));
}

#[test]
fn what_leaks_costs_workers_and_never_swaps() {
    for leak in [3.0 / 1024.0, 0.3] {
        let mut plant = stationary("P4 memory wall");
        plant.memory = plant
            .memory
            .map(|memory| maitred_simulator::plant::Memory { leak: leak * MB, ..memory });
        let trace = &traces(&plant, 1)[0];
        let outcome = maitred_simulator::world::play(&plant, trace, &mut Auto::new(&plant));
        assert_eq!(outcome.swapped, 0.0, "{leak} MB a request");
        assert!(outcome.ended > 1000, "{}", outcome.ended);
    }
}

#[test]
fn a_leak_of_a_pool_that_few_ask_is_recycled_before_it_fills_the_memory() {
    let mut plant = stationary("P4 memory wall");
    plant.segments[0].kinds = vec![Kind::new(Times::Fixed(0.005), Times::Fixed(0.02))];
    plant.segments[0].rate = 20.0;
    plant.seconds = 1200.0;
    plant.memory =
        plant.memory.map(|memory| maitred_simulator::plant::Memory { leak: 0.3 * MB, ..memory });
    // Of 3 GB for workers more than twice as much leaks.
    let trace = &traces(&plant, 1)[0];
    let outcome = maitred_simulator::world::play(&plant, trace, &mut Auto::new(&plant));
    assert_eq!(outcome.swapped, 0.0);
    assert_eq!(outcome.refused, 0);
    assert!(outcome.forks < 200, "{} forks", outcome.forks);
}

#[test]
fn a_machine_that_has_slept_for_an_hour_serves_as_before() {
    let has_slept =
        |view: View| View { now: view.now + if view.now > 20.0 { 3600.0 } else { 0.0 }, ..view };
    for name in ["P1 work, 3 x capacity", "P2 1 + 9 ms, a quarter", "P5 database, 1.5 x capacity"] {
        let plant = stationary(name);
        let (slept, awake) =
            (deceived(&plant, |spent| spent, has_slept), deceived(&plant, |spent| spent, same));
        assert!(slept.goodput >= 0.99 * awake.goodput, "{name}: {slept:?} {awake:?}");
        assert!(slept.p99 <= 1.1 * awake.p99, "{name}: {slept:?} {awake:?}");
    }
}

#[test]
fn a_burst_of_a_thousand_times_as_many_requests_costs_only_itself() {
    let mut plant = stationary("P4 memory wall");
    plant.segments[0].rate = 50.0;
    let usual = plant.segments[0].clone();
    plant.segments.push(Segment { at: 20.0, rate: 50_000.0, ..usual.clone() });
    plant.segments.push(Segment { at: 21.0, ..usual });
    let trace = &traces(&plant, 1)[0];
    let outcome = maitred_simulator::world::play(&plant, trace, &mut Auto::new(&plant));
    assert_eq!(outcome.swapped, 0.0);
    let most = outcome.sizes.iter().map(|(_, workers)| *workers).max();
    assert!(most.is_some_and(|most| most <= 30), "{most:?}");
    // All of that second without those that found a place in the queue, and those that met a full
    // queue while it drained.
    assert!((40_000..55_000).contains(&outcome.refused), "{}", outcome.refused);
    let last = outcome.sizes.last().map_or(0, |(_, workers)| *workers);
    assert!(last >= 10, "{last}");
}

/// A request that takes longer than this, in seconds, has hung.
const HUNG: f64 = 10.0;

/// The served share of the requests to live services, and the p99 of their response times, in
/// seconds.
fn others(plant: &Plant, policy: &mut dyn Policy) -> (f64, f64) {
    let trace = &traces(plant, 1)[0];
    let outcome = maitred_simulator::world::play(plant, trace, policy);
    let mut served: Vec<f64> = outcome.responses;
    served.retain(|response| *response < HUNG);
    served.sort_by(f64::total_cmp);
    let alive = trace.iter().filter(|request| request.blocked < HUNG);
    let part = served.len() as f64 / alive.count() as f64;
    (part, served[served.len() * 99 / 100])
}

#[test]
fn one_dead_dependency_does_not_take_the_pool() {
    for (plant, most) in [
        (plants::hang_where_twenty_are_all(SECONDS), 0.1),
        // Until that is detected, and while fewer workers are tried, one in a hundred waits.
        (plants::dead_dependency(SECONDS), 1.5),
    ] {
        let (served, p99) = others(&plant, &mut Auto::new(&plant));
        let (without, _) = others(&plant, &mut Auto::new(&plant).without_shares());
        let name = plant.name;
        assert!(served > 0.99, "{name}: {served} served, in {p99} s");
        assert!(p99 < most, "{name}: {p99} s");
        assert!(without < 0.9, "{name}: {without} where it may have all");
    }
}

#[test]
fn what_is_dead_for_minutes_does_not_take_the_pool_in_the_end() {
    // The longer it lasts, the more of the ended requests have hung.
    for (rate, dead, cap) in [(20.0, 0.34, 128), (10.0, 0.5, 64)] {
        let mut plant = plants::dead_dependency(1800.0);
        (plant.cap, plant.queue_timeout) = (cap, 10.0);
        for segment in &mut plant.segments {
            segment.rate = rate;
            (segment.kinds[0].weight, segment.kinds[1].weight) = (1.0 - dead, dead);
        }
        plant.segments[1].kinds[1].blocked = Times::Fixed(30.0);
        let (served, p99) = others(&plant, &mut Auto::new(&plant));
        assert!(served > 0.99 && p99 < 0.1, "{served} served, in {p99} s");
    }
}

#[test]
fn what_is_dead_when_a_pool_begins_does_not_take_it_either() {
    let mut plant = plants::dead_dependency(600.0);
    plant.queue_timeout = 10.0;
    let mut dead = plant.segments.swap_remove(1);
    (dead.at, dead.kinds[1].blocked) = (0.0, Times::Fixed(30.0));
    plant.segments = vec![dead];
    let (served, p99) = others(&plant, &mut Auto::new(&plant));
    assert!(served > 0.99 && p99 < 0.1, "{served} served, in {p99} s");
}

#[test]
fn two_cold_pools_that_want_the_same_memory_are_not_both_promised_it() {
    let mut plant = stationary("P4 memory wall");
    plant.segments[0].kinds = vec![Kind::new(Times::Fixed(0.005), Times::Fixed(3.0))];
    plant.segments[0].rate = 20.0;
    plant.memory = plant.memory.map(|memory| maitred_simulator::plant::Memory {
        limit: 1024.0 * MB,
        base: 100.0 * MB,
        // The memory of a young worker; the first request adds all that was unknown.
        worker: 2.0 * MB,
        ..memory
    });
    plant.segments[0].kinds[0].peak = 126.0 * MB;
    plant.seconds = 10.0;
    let pools = [1, 2].map(|seed| (plant.clone(), draw(&plant, seed)));
    let autos = Auto::together(&[plant.clone(), plant]);
    let mut policies: Vec<Box<dyn Policy>> = Vec::new();
    for auto in autos {
        policies.push(Box::new(auto));
    }
    for outcome in play_together(&pools, &mut policies) {
        assert_eq!(outcome.swapped, 0.0, "{:?}", outcome.sizes);
        assert!(outcome.ended >= 1, "{outcome:?}");
    }
}
