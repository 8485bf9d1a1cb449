//! Invariants under random plants; each plant that broke one is stored.

use maitred_simulator::arrivals::draw;
use maitred_simulator::chance::Times;
use maitred_simulator::plant::{Boot, Database, Kind, MB, Memory, Plant, Segment};
use maitred_simulator::policies::Policy;
use maitred_simulator::policies::auto::Auto;
use maitred_simulator::world::{play, play_together};
use proptest::prelude::*;

fn times(mean: std::ops::Range<f64>) -> impl Strategy<Value = Times> {
    (mean, 0..3_u8, 0.1..12.0_f64).prop_map(|(mean, kind, cv2)| match kind {
        0 => Times::Fixed(mean),
        1 => Times::Exponential(mean),
        _ => Times::Lognormal { mean, cv2 },
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    let time = (times(0.0001..0.05), times(0.0..0.2), times(0.0..0.02));
    (time, 0.1..1.0_f64, prop_oneof![Just(0.0), 1.0..50.0_f64]).prop_map(
        |((cpu, blocked, database), weight, peak)| Kind {
            weight,
            cpu,
            blocked,
            database,
            peak: peak * MB,
        },
    )
}

fn steady(kind: Kind, changes: bool) -> Kind {
    Kind { peak: if changes { 0.0 } else { kind.peak }, ..kind }
}

fn plant() -> impl Strategy<Value = Plant> {
    let segment = (1.0..400.0_f64, proptest::collection::vec(kind(), 1..3), 0.3..8.0_f64);
    let memory = proptest::option::of((256.0..4096.0_f64, 0.0..200.0_f64, 1.0..100.0_f64));
    (
        proptest::collection::vec(segment, 1..4),
        memory,
        proptest::option::of(1..20_usize),
        (0.0005..0.05_f64, 0.0..0.2_f64),
        1..100_usize,
    )
        .prop_map(|(segments, memory, slots, (cpu, time), cap)| {
            let seconds = 12.0;
            let first = segments[0].1[0];
            let length = seconds / segments.len() as f64;
            // The cost of requests has been learned before: a change is detected a second later.
            let changes = segments.len() > 1;
            let segments = segments.into_iter().enumerate();
            let segments = segments.map(|(place, (rate, kinds, cores))| Segment {
                at: place as f64 * length,
                rate,
                kinds: kinds.into_iter().map(|kind| steady(kind, changes)).collect(),
                cores,
            });
            Plant {
                segments: segments.collect(),
                memory: memory.map(|(limit, base, worker)| Memory {
                    limit: limit * MB,
                    base: base * MB,
                    worker: worker * MB,
                    leak: 0.0,
                    // Half of them, without another random number, so that stored cases stay the
                    // same.
                    by_children: base > 100.0,
                    swap_drag: 1.0,
                }),
                database: slots.map(|slots| Database { slots, is_lock: false }),
                boot: Boot { cpu, time },
                cap,
                warm_up: 0.0,
                ..Plant::steady("random", 1.0, 1.0, first, seconds)
            }
        })
}

/// Whether one worker alone, or the requests of a few, may swap: then nothing is guaranteed.
fn is_hopeless(plant: &Plant) -> bool {
    plant.memory.is_some_and(|memory| {
        let kinds = plant.segments.iter().flat_map(|segment| &segment.kinds);
        let peak = kinds.map(|kind| kind.peak).fold(0.0, f64::max);
        memory.base + memory.worker + peak > 0.9 * memory.limit
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_comes_a_pool_keeps_to_its_limits_and_loses_no_request(
        plant in plant(),
        seed in any::<u64>(),
    ) {
        let arrivals = draw(&plant, seed);
        let mut auto = Auto::new(&plant);
        let outcome = play(&plant, &arrivals, &mut auto);
        // I3, I10: at least one worker, at most max_children.
        prop_assert!(outcome.sizes.iter().all(|(_, workers)| *workers <= plant.cap));
        prop_assert!(outcome.sizes[1..].iter().all(|(_, workers)| *workers >= 1));
        // I1: memory is never overcommitted.
        prop_assert!(is_hopeless(&plant) || outcome.swapped < 0.25, "{} s", outcome.swapped);
        // No request is lost: served, rejected, or still in the pool.
        let over = outcome.ended + outcome.refused;
        prop_assert!(over <= arrivals.len() as u64);
        let left = arrivals.len() as u64 - over;
        prop_assert!(left <= (plant.queue_length + plant.cap) as u64);
        // I9: there is a reason, and it is that of the smallest limit.
        let sizing = auto.sizing();
        prop_assert_eq!(sizing.terms.of(sizing.binding), Some(sizing.terms.least().0));
    }

    #[test]
    fn two_pools_that_share_a_memory_keep_to_it_together(
        first in plant(),
        second in plant(),
        limit in 256.0..4096.0_f64,
        base in 0.0..200.0_f64,
        seed in any::<u64>(),
    ) {
        let shares = |plant: Plant| {
            let worker = plant.memory.map_or(40.0 * MB, |memory| memory.worker);
            let memory = Memory {
                limit: limit * MB,
                base: base * MB,
                worker,
                leak: 0.0,
                by_children: base > 100.0,
                swap_drag: 1.0,
            };
            Plant { memory: Some(memory), ..plant }
        };
        let plants = [first, second].map(shares);
        // One worker of each, with the largest memory.
        let most = |plant: &Plant| {
            let kinds = plant.segments.iter().flat_map(|segment| &segment.kinds);
            let peak = kinds.map(|kind| kind.peak).fold(0.0, f64::max);
            plant.memory.map_or(0.0, |memory| memory.worker + peak)
        };
        let least: f64 = plants.iter().map(most).sum();
        let is_hopeless = base * MB + least > 0.9 * limit * MB;
        let autos = Auto::together(&plants);
        let policies = autos.into_iter().map(|auto| Box::new(auto) as Box<dyn Policy>);
        let mut policies: Vec<Box<dyn Policy>> = policies.collect();
        let pools = plants.map(|plant| {
            let trace = draw(&plant, seed);
            (plant, trace)
        });
        let outcomes = play_together(&pools, &mut policies);
        for (outcome, (plant, _)) in outcomes.iter().zip(&pools) {
            prop_assert!(outcome.sizes.iter().all(|(_, workers)| *workers <= plant.cap));
            prop_assert!(is_hopeless || outcome.swapped < 0.25, "{} s", outcome.swapped);
        }
    }
}
