//! The requests of a run, drawn before it begins: every policy gets the same.

use fastrand::Rng;

use crate::chance::exponential;
use crate::plant::{Kind, Plant, Segment};

/// A request that will come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// When, in seconds.
    pub at: f64,
    /// Which of its segment's kinds it is of.
    pub kind: u64,
    /// Processor time, in seconds.
    pub cpu: f64,
    /// Waiting for what nobody else waits for, in seconds.
    pub blocked: f64,
    /// Time at the database, in seconds.
    pub database: f64,
    /// Memory beside its worker's, in bytes.
    pub peak: f64,
}

/// All requests of a run, in order. They come as a Poisson process.
pub fn draw(plant: &Plant, seed: u64) -> Vec<Arrival> {
    let mut rng = Rng::with_seed(seed);
    let mut all = Vec::new();
    for (place, segment) in plant.segments.iter().enumerate() {
        let next = plant.segments.get(place + 1);
        let end = next.map_or(plant.seconds, |next| next.at);
        let mut at = segment.at;
        loop {
            at += exponential(&mut rng) / segment.rate.max(f64::MIN_POSITIVE);
            if at >= end {
                break;
            }
            let (number, kind) = pick(segment, &mut rng);
            all.push(Arrival {
                at,
                kind: number as u64,
                cpu: kind.cpu.draw(&mut rng),
                blocked: kind.blocked.draw(&mut rng),
                database: kind.database.draw(&mut rng),
                peak: kind.peak,
            });
        }
    }
    all
}

fn pick(segment: &Segment, rng: &mut Rng) -> (usize, Kind) {
    let sum: f64 = segment.kinds.iter().map(|kind| kind.weight).sum();
    let mut left = rng.f64() * sum;
    for (number, kind) in segment.kinds.iter().enumerate() {
        left -= kind.weight;
        if left < 0.0 {
            return (number, *kind);
        }
    }
    let last = segment.kinds.len() - 1;
    (last, segment.kinds[last])
}
