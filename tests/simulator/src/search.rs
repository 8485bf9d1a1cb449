//! The best fixed number of workers, by trying all.

use crate::arrivals::{Arrival, draw};
use crate::outcome::Outcome;
use crate::plant::Plant;
use crate::policies::Policy;
use crate::policies::fixed::Fixed;
use crate::world::play;

/// Of two numbers whose throughput differs by less, the one with the smaller p99 is better.
const AS_MUCH: f64 = 0.99;

/// Two p99 that differ by less count as the same: fewer workers are better.
const AS_QUICK: f64 = 1.01;

/// The results of a policy on a plant, averaged over seeds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Served requests a second.
    pub goodput: f64,
    /// Of served requests, in seconds.
    pub p50: f64,
    /// Of served requests, in seconds.
    pub p99: f64,
    /// Workers.
    pub workers: f64,
    /// Workers started a second.
    pub forks: f64,
    /// Seconds in which memory was overcommitted, over all seeds.
    pub swapped: f64,
}

impl Score {
    /// The average of outcomes.
    pub fn of(outcomes: &[Outcome]) -> Score {
        let count = outcomes.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / count;
        Score {
            goodput: mean(&Outcome::goodput),
            p50: mean(&|outcome| outcome.percentile(50.0)),
            p99: mean(&|outcome| outcome.percentile(99.0)),
            workers: mean(&Outcome::workers),
            forks: mean(&|outcome| outcome.forks as f64 / outcome.seconds()),
            swapped: mean(&|outcome| outcome.swapped) * count,
        }
    }
}

/// The first of the seeds that the constants were chosen with.
pub const FIRST_SEED: u64 = 1000;

/// The requests of a plant with this many seeds.
pub fn traces(plant: &Plant, seeds: u64) -> Vec<Vec<Arrival>> {
    traces_from(plant, FIRST_SEED, seeds)
}

/// The same from another seed on.
pub fn traces_from(plant: &Plant, first: u64, seeds: u64) -> Vec<Vec<Arrival>> {
    let seeds = first..first.saturating_add(seeds);
    seeds.map(|seed| draw(plant, seed)).collect()
}

/// The score of a policy on all of them, with a new instance for each.
pub fn score(plant: &Plant, traces: &[Vec<Arrival>], make: &dyn Fn() -> Box<dyn Policy>) -> Score {
    let outcomes = traces.iter().map(|trace| play(plant, trace, &mut *make()));
    Score::of(&outcomes.collect::<Vec<_>>())
}

/// The best of these numbers of workers, and its score.
pub fn best(plant: &Plant, traces: &[Vec<Arrival>], numbers: &[usize]) -> (usize, Score) {
    let all: Vec<(usize, Score)> = numbers
        .iter()
        .map(|workers| {
            let workers = *workers;
            (workers, score(plant, traces, &|| Box::new(Fixed(workers))))
        })
        .collect();
    // A number with which others are swapped out is not comparable.
    let least = all.iter().map(|(_, one)| one.swapped).fold(f64::MAX, f64::min);
    let all: Vec<_> = all.into_iter().filter(|(_, one)| one.swapped <= least).collect();
    let most = all.iter().map(|(_, one)| one.goodput).fold(0.0, f64::max);
    let served = all.iter().filter(|(_, one)| one.goodput >= AS_MUCH * most);
    let served: Vec<_> = served.copied().collect();
    let quickest = served.iter().map(|(_, one)| one.p99).fold(f64::MAX, f64::min);
    let mut quick = served.into_iter().filter(|(_, one)| one.p99 <= AS_QUICK * quickest);
    quick.next().unwrap_or_default()
}

/// All numbers up to `most`, thinned out to steps of a `part` of the number.
pub fn numbers(most: usize, part: f64) -> Vec<usize> {
    let mut all = vec![1];
    while let Some(last) = all.last().copied().filter(|last| *last < most) {
        let step = ((last as f64 * part) as usize).max(1);
        all.push((last + step).min(most));
    }
    all
}
