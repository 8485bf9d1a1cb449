//! Growth of workers with the requests that they serve: the Theil-Sen slope of their private
//! memory.

use serde::Serialize;

/// Fewest samples of a slope.
const FEWEST: usize = 5;

/// A slope below this is no leak, in bytes a request.
pub const LEAK: f64 = 1_024.0;

/// The number of requests of each worker after which the absence of growth is certain.
pub const ENOUGH: f64 = 2_000.0;

/// Memory by served requests, of the workers that have served most since their start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GrowthSamples {
    now: Vec<(f64, f64)>,
    longest: Vec<(f64, f64)>,
}

impl GrowthSamples {
    /// The workers were replaced.
    pub fn restart(&mut self) {
        self.now.clear();
    }

    /// Each worker has served this many further requests, and 95 % of them have at most this much
    /// private memory, in bytes.
    pub fn add(&mut self, requests: f64, private: f64) {
        let before = self.now.last().map_or(0.0, |look| look.0);
        self.now.push((before + requests, private));
        if before + requests >= self.longest.last().map_or(0.0, |look| look.0) {
            self.longest.clone_from(&self.now);
        }
    }

    /// Their growth.
    pub fn slope(&self) -> Option<Slope> {
        slope(&self.longest)
    }
}

/// Growth in bytes a request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Slope {
    /// The median of all pairs of samples.
    pub bytes: f64,
    /// The 5th percentile of them.
    pub low: f64,
    /// The 95th.
    pub high: f64,
    /// The number of requests of each worker.
    pub requests: f64,
}

impl Slope {
    /// Whether there is certainly a leak.
    pub fn leaks(&self) -> bool {
        self.low > LEAK
    }

    /// Whether the absence of a leak is certain as well.
    pub fn is_long(&self) -> bool {
        self.requests >= ENOUGH
    }
}

/// The slope of samples (requests of a worker, its memory in bytes).
fn slope(looks: &[(f64, f64)]) -> Option<Slope> {
    if looks.len() < FEWEST {
        return None;
    }
    let pairs = looks
        .iter()
        .enumerate()
        .flat_map(|(at, first)| looks[at + 1..].iter().map(move |second| (first, second)));
    let slopes = pairs.filter(|(first, second)| second.0 > first.0);
    let mut slopes: Vec<f64> =
        slopes.map(|(first, second)| (second.1 - first.1) / (second.0 - first.0)).collect();
    slopes.sort_by(f64::total_cmp);
    let last = slopes.len().checked_sub(1)?;
    let at = |share: f64| slopes[(last as f64 * share).round() as usize];
    Some(Slope {
        bytes: at(0.5),
        low: at(0.05),
        high: at(0.95),
        requests: looks.iter().map(|look| look.0).fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_told_from_caches_that_fill_and_from_nothing() {
        let leak: Vec<(f64, f64)> =
            (0..10).map(|at| (f64::from(at) * 100.0, 1e7 + f64::from(at) * 3e5)).collect();
        let found = slope(&leak).expect("a slope");
        assert!(found.leaks() && (found.bytes - 3_000.0).abs() < 1.0, "{found:?}");
        let flat: Vec<(f64, f64)> =
            (0..10).map(|at| (f64::from(at) * 100.0, 1e7 + f64::from(at % 3) * 4_096.0)).collect();
        assert!(!slope(&flat).expect("a slope").leaks());
        assert_eq!(slope(&flat[..4]), None);
    }

    #[test]
    fn restarted_workers_start_at_zero_and_the_longest_life_counts() {
        let mut looks = GrowthSamples::default();
        for at in 0..6 {
            looks.add(500.0, 1e7 + f64::from(at) * 2e6);
        }
        looks.restart();
        for _ in 0..6 {
            looks.add(100.0, 1e7);
        }
        let long = looks.slope().expect("a slope");
        assert!(long.leaks() && long.is_long(), "{long:?}");
        assert_eq!(long.requests, 3_000.0);
        for _ in 0..30 {
            looks.add(100.0, 1e7);
        }
        let longer = looks.slope().expect("a slope");
        assert!(!longer.leaks() && longer.requests > 3_500.0, "{longer:?}");
    }
}
