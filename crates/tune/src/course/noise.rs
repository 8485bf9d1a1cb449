//! The noise floor: differences of the original setting from itself.

use maitred_measure::compare::Ratio;

use super::proof::{self, ComparisonRow};
use crate::measurement::Measurement;

/// The highest noise floor with which settings can be compared.
pub const MOST_NOISE: f64 = 0.05;

/// Pairs of runs of the same setting.
#[derive(Debug, Clone, Default)]
pub struct Noise {
    half: Option<Measurement>,
    /// The pairs.
    pub pairs: Vec<(Measurement, Measurement)>,
    /// The comparison of the pairs.
    pub rows: Vec<ComparisonRow>,
    /// By which share the throughput of the same setting may differ from itself, at 95 %.
    pub floor: Option<f64>,
}

impl Noise {
    /// Adds a run. Returns whether that is enough: at least the fewest pairs, and more, up to the
    /// most, unless the machine is quiet.
    pub fn tried(&mut self, seen: Measurement, pairs: (usize, usize), seed: u64) -> bool {
        let Some(first) = self.half.take() else {
            self.half = Some(seen);
            return false;
        };
        self.pairs.push((first, seen));
        if self.pairs.len() < pairs.0 {
            return false;
        }
        self.rows = proof::rows(&self.pairs, seed);
        self.floor = floor(&self.pairs, seed);
        self.is_quiet() || self.pairs.len() >= pairs.1
    }

    fn is_quiet(&self) -> bool {
        self.floor.is_some_and(|floor| floor <= MOST_NOISE)
    }

    /// Why nothing can be concluded on this machine now, if so.
    pub fn trouble(&self) -> Option<String> {
        let shown = match self.floor {
            _ if self.is_quiet() => return None,
            Some(floor) => format!("by {:.1} %", floor * 100.0),
            None => "so much that it cannot be computed".to_owned(),
        };
        Some(format!(
            "the throughput of the same setting differs from itself {shown} in {} pairs of runs; \
             expected 5 % at most",
            self.pairs.len()
        ))
    }

    /// The number of runs until there are this many pairs.
    pub fn left(&self, pairs: usize) -> usize {
        let runs = 2 * pairs.saturating_sub(self.pairs.len());
        runs.saturating_sub(usize::from(self.half.is_some())).max(1)
    }

    /// By which share the throughput of a single run may differ from the median of all runs.
    pub fn spread(&self) -> Option<f64> {
        let both = self.pairs.iter().flat_map(|(one, other)| [one, other]);
        let mut rates: Vec<f64> = both.map(|seen| seen.rate).collect();
        rates.sort_by(f64::total_cmp);
        let (lowest, highest) = (rates.first()?, rates.last()?);
        let median = rates.get(rates.len() / 2).filter(|rate| **rate > 0.0)?;
        Some((highest - lowest) / 2.0 / median)
    }

    /// The highest throughput of all runs, in requests a second.
    pub fn best(&self) -> Option<f64> {
        let both = self.pairs.iter().flat_map(|(one, other)| [one, other]);
        both.map(|seen| seen.rate).reduce(f64::max)
    }

    /// The most private memory of a worker.
    pub fn private(&self) -> Option<f64> {
        let private = self.pairs.iter().filter_map(|(_, seen)| seen.private);
        private.reduce(f64::max)
    }
}

fn floor(pairs: &[(Measurement, Measurement)], seed: u64) -> Option<f64> {
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| b.rate / a.rate).collect();
    let ratio = Ratio::of(&ratios, 1, seed)?;
    Some((1.0 - ratio.low).abs().max((ratio.high - 1.0).abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(spread: f64) -> (Noise, usize) {
        let mut noise = Noise::default();
        let mut runs = 0;
        loop {
            runs += 1;
            let up = if runs % 4 < 2 { spread } else { 0.0 };
            let seen = Measurement { rate: 100.0 * (1.0 + up), ..Measurement::default() };
            if noise.tried(seen, (5, 8), 1) {
                return (noise, runs);
            }
        }
    }

    #[test]
    fn a_quiet_machine_takes_the_fewest_pairs_and_a_loud_one_all_and_is_said() {
        let (quiet, runs) = noise(0.01);
        assert_eq!((quiet.trouble(), runs), (None, 10));
        assert!(quiet.floor.is_some_and(|floor| floor < 0.03));
        assert!(quiet.spread().is_some_and(|spread| (0.004..0.006).contains(&spread)));
        let (loud, runs) = noise(0.4);
        assert_eq!(runs, 16);
        let why = loud.trouble().expect("a sentence");
        assert!(why.contains("in 8 pairs of runs; expected 5 % at most"), "{why}");
    }

    #[test]
    fn a_setting_that_serves_nothing_now_and_then_is_no_quiet_one() {
        let mut noise = Noise::default();
        for rate in [0.0, 100.0, 0.0, 100.0] {
            let seen = Measurement { rate, ..Measurement::default() };
            noise.tried(seen, (2, 2), 1);
        }
        assert!(noise.trouble().expect("a sentence").contains("cannot be"));
    }
}
