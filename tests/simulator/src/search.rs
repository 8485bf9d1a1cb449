//! The best fixed number of workers, found by trying all.

use crate::arrivals::{Arrival, draw};
use crate::outcome::Outcome;
use crate::plant::Plant;
use crate::policies::Policy;
use crate::policies::fixed::Fixed;
use crate::world::play;

/// Of two that serve as much to this part, the one with the smaller p99 is better.
const AS_MUCH: f64 = 0.99;

/// Two p99 that differ by less than this part are the same: fewer workers are better.
const AS_QUICK: f64 = 1.01;

/// What a way of sizing does on a plant, on average over its seeds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Served requests a second.
    pub goodput: f64,
    /// Of the served, in seconds.
    pub p50: f64,
    /// Of the served, in seconds.
    pub p99: f64,
    /// Workers.
    pub workers: f64,
    /// Workers started a second.
    pub forks: f64,
    /// Seconds in which more memory was taken than there is, of all seeds.
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

/// The seeds that constants were chosen with begin here.
pub const FIRST_SEED: u64 = 1000;

/// The requests of so many seeds of a plant.
pub fn traces(plant: &Plant, seeds: u64) -> Vec<Vec<Arrival>> {
    traces_from(plant, FIRST_SEED, seeds)
}

/// The same with seeds from another one on.
pub fn traces_from(plant: &Plant, first: u64, seeds: u64) -> Vec<Vec<Arrival>> {
    let seeds = first..first.saturating_add(seeds);
    seeds.map(|seed| draw(plant, seed)).collect()
}

/// What a policy does on all of them, made anew for each.
pub fn score(plant: &Plant, traces: &[Vec<Arrival>], make: &dyn Fn() -> Box<dyn Policy>) -> Score {
    let outcomes = traces.iter().map(|trace| play(plant, trace, &mut *make()));
    Score::of(&outcomes.collect::<Vec<_>>())
}

/// The best of these numbers of workers, and what it does.
pub fn best(plant: &Plant, traces: &[Vec<Arrival>], numbers: &[usize]) -> (usize, Score) {
    let all: Vec<(usize, Score)> = numbers
        .iter()
        .map(|workers| {
            let workers = *workers;
            (workers, score(plant, traces, &|| Box::new(Fixed(workers))))
        })
        .collect();
    // One that has others swapped out is none to compare with.
    let least = all
        .iter()
        .map(|(_, one)| one.swapped)
        .fold(f64::MAX, f64::min);
    let all: Vec<_> = all
        .into_iter()
        .filter(|(_, one)| one.swapped <= least)
        .collect();
    let most = all.iter().map(|(_, one)| one.goodput).fold(0.0, f64::max);
    let served = all.iter().filter(|(_, one)| one.goodput >= AS_MUCH * most);
    let served: Vec<_> = served.copied().collect();
    let quickest = served
        .iter()
        .map(|(_, one)| one.p99)
        .fold(f64::MAX, f64::min);
    let mut quick = served
        .into_iter()
        .filter(|(_, one)| one.p99 <= AS_QUICK * quickest);
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
