//! Autoscalers on the saturation that nodes measure: the HPA's rule, and KEDA's.
//!
//! The fewest nodes for a rate are found by trying all that are not overloaded by it.

use maitred_simulator::chance::Times;
use maitred_simulator::cluster::autoscalers::{Autoscaler, Fixed, Hpa};
use maitred_simulator::cluster::{ClusterOutcome, NodeShape, Traffic, play};

/// What the guide recommends.
const TARGET: f64 = 0.8;

const NODE: NodeShape = NodeShape { cores: 2.0, workers: 24, start: 20.0 };

/// Highest response time of 99 of a hundred requests, in seconds: three times what it is without
/// any load.
const P99: f64 = 1.1;

/// Rates at which the fewest nodes are found are held for this long, in seconds.
const HELD: f64 = 400.0;

const NONE: Times = Times::Fixed(0.0);

/// Seconds of computation of a page, in the mean.
const CPU: f64 = 0.05;

/// Pages of 50 ms of computation and 50 ms of waiting: 40 a second keep a node's processors busy.
fn pages(rate: &dyn Fn(f64) -> f64, most: f64, seconds: f64) -> Traffic<'_> {
    Traffic {
        rate,
        most,
        cpu: Times::Exponential(CPU),
        blocked: Times::Exponential(0.05),
        database: NONE,
        connections: 1,
        queue_timeout: 10.0,
        seconds,
    }
}

fn scalers() -> [(&'static str, Hpa); 2] {
    [("HPA", Hpa::new(TARGET, 2, 40)), ("KEDA", Hpa::by_keda(TARGET, 2, 40))]
}

/// The fewest nodes that hold [`P99`] at a constant rate.
fn fewest(rate: f64) -> usize {
    let constant = |_| rate;
    let traffic = pages(&constant, rate, HELD);
    let holds = |nodes: &usize| {
        let outcome = play(NODE, &traffic, &mut Fixed(*nodes), 5);
        outcome.percentile(99.0, 60.0, HELD) <= P99
    };
    // With fewer the queue only grows, and takes longest to play.
    let least = (rate * CPU / NODE.cores).ceil() as usize;
    (least.max(1)..).find(holds).unwrap_or(usize::MAX)
}

fn run(traffic: &Traffic<'_>, scaler: &mut dyn Autoscaler, seed: u64) -> ClusterOutcome {
    play(NODE, traffic, scaler, seed)
}

#[test]
fn five_times_the_load_gets_about_the_fewest_nodes_that_hold_the_response_time() {
    let (low, high) = (60.0, 300.0);
    let step = |at: f64| if (1800.0..5400.0).contains(&at) { high } else { low };
    let traffic = pages(&step, high, 9000.0);
    let best = fewest(high);
    for (name, mut scaler) in scalers() {
        for seed in 1..=3 {
            let outcome = run(&traffic, &mut scaler, seed);
            // Three minutes after the step all nodes are there, and after ten those of the backlog
            // have gone.
            let p99 = outcome.percentile(99.0, 1980.0, 5400.0);
            let (peak, nodes) =
                (outcome.most_nodes(1800.0, 2400.0), outcome.most_nodes(2400.0, 5400.0));
            println!(
                "{name} {seed}: step: {nodes} nodes, {peak} at first, fewest {best}, p99 {p99:.3} s"
            );
            assert!(p99 <= P99, "{name}: {p99}");
            assert!(nodes as f64 <= (1.1 * best as f64).ceil(), "{name}: {nodes}, not {best}");
            assert!(peak as f64 <= 1.5 * best as f64, "{name}: {peak} at first, not {best}");
            assert!(outcome.reversals(0.0, 9000.0) <= 2, "{name}: {:?}", outcome.sizes);
        }
    }
}

#[test]
fn a_day_is_followed_without_going_to_and_fro() {
    // A day in four hours.
    let day = 14_400.0;
    let curve = |at: f64| 170.0 - 130.0 * (at / day * std::f64::consts::TAU).cos();
    let traffic = pages(&curve, 300.0, day);
    let hour = day / 24.0;
    // The most that is needed within each part, as an autoscaler cannot look ahead.
    let parts = (1..24).map(|part| f64::from(part) * hour);
    let parts = parts.map(|from| (from, fewest(curve(from).max(curve(from + hour)))));
    let parts: Vec<(f64, usize)> = parts.collect();
    for (name, mut scaler) in scalers() {
        let outcome = run(&traffic, &mut scaler, 7);
        let (mut used, mut least) = (0.0, 0.0);
        for &(from, best) in &parts {
            let nodes = outcome.nodes(from, from + hour);
            let p99 = outcome.percentile(99.0, from, from + hour);
            assert!(p99 <= P99, "{name}: from {from} s: {p99}");
            used += nodes;
            least += best as f64;
        }
        let reversals = outcome.reversals(0.0, day);
        println!("{name}: {used:.0} node hours, fewest {least:.0}, {reversals} reversals");
        assert!(used <= 1.1 * least, "{name}: {used}, not {least}");
        assert!(reversals <= 4, "{name}: {reversals} in four hours");
    }
}

#[test]
fn no_nodes_are_added_for_a_database_that_all_of_them_share() {
    // Of 100 ms each, the database serves 200 a second.
    let rises = |at: f64| match at {
        ..1800.0 => 60.0,
        ..3600.0 => 60.0 + 120.0 * (at - 1800.0) / 1800.0,
        ..5400.0 => 180.0,
        _ => 300.0,
    };
    let traffic = Traffic {
        cpu: Times::Exponential(0.01),
        blocked: NONE,
        database: Times::Exponential(0.1),
        connections: 20,
        ..pages(&rises, 300.0, 4.0 * 3600.0)
    };
    for (name, mut scaler) in scalers() {
        let outcome = run(&traffic, &mut scaler, 11);
        let before = outcome.most_nodes(3600.0, 5400.0);
        let nodes = outcome.most_nodes(5400.0, 4.0 * 3600.0);
        println!("{name}: {before} nodes at 0.9 of the database, {nodes} at 1.5");
        assert!(nodes <= before, "{name}: {nodes} for the database, {before} before");
        assert!(outcome.reversals(0.0, 4.0 * 3600.0) <= 4, "{name}: {:?}", outcome.sizes);
    }
}
