//! The first page after a start with an empty OPcache, with the old and the new setting in turn.

use maitred_measure::compare::{Direction, Ratio, Verdict, verdicts};
use serde::Serialize;

use super::{NARROW, PhpRatio};

/// Fewest and most pairs: four agree by chance once in 16 times, and a cold start compiles
/// everything, so that the usual difference is a multiple of the noise.
pub(super) const COLD_PAIRS: (usize, usize) = (4, 8);

/// The first pages of both settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FirstPages {
    /// The median with the old setting, in seconds.
    pub old_seconds: f64,
    /// The same with the new one.
    pub new_seconds: f64,
    /// The ratio of the new one to the old one.
    pub ratio: PhpRatio,
}

/// Cold starts so far, in seconds of their first page.
#[derive(Debug, Clone, Default)]
pub(super) struct ColdStarts {
    pairs: Vec<(f64, f64)>,
    half: Option<f64>,
}

/// A conclusion.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ColdVerdict {
    pub(super) gain: bool,
    pub(super) pages: Option<FirstPages>,
    pub(super) why: &'static str,
}

impl ColdStarts {
    /// Finished pairs.
    pub(super) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Whether the first start of a pair is done.
    pub(super) fn is_half(&self) -> bool {
        self.half.is_some()
    }

    /// Adds a start.
    pub(super) fn add(&mut self, seconds: f64, is_new: bool) {
        match self.half.take() {
            None => self.half = Some(seconds),
            Some(first) => {
                self.pairs.push(if is_new { (first, seconds) } else { (seconds, first) })
            }
        }
    }

    /// The conclusion, once there is one; `is_late`: no further pairs.
    pub(super) fn judge(&self, seed: u64, is_late: bool) -> Option<ColdVerdict> {
        if self.is_half() || self.pairs.len() < COLD_PAIRS.0 {
            return None;
        }
        let ratios: Vec<f64> = self.pairs.iter().map(|(old, new)| new / old).collect();
        let ratio = Ratio::of(&ratios, 1, seed);
        let found = verdicts(&[(Direction::LowerIsBetter, ratio)]);
        let gain = found.first() == Some(&Verdict::Faster);
        let is_wide = ratio.is_some_and(|ratio| ratio.detectable() >= NARROW);
        if !gain && is_wide && self.pairs.len() < COLD_PAIRS.1 && !is_late {
            return None;
        }
        let pages = ratio.map(|ratio| FirstPages {
            old_seconds: median(self.pairs.iter().map(|(old, _)| *old)),
            new_seconds: median(self.pairs.iter().map(|(_, new)| *new)),
            ratio: PhpRatio { mean: ratio.mean, low: ratio.low, high: ratio.high },
        });
        let why = match gain {
            true => "proven to be better after a cold start",
            false => "no proven gain after a cold start",
        };
        Some(ColdVerdict { gain, pages, why })
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(pairs: &[(f64, f64)]) -> ColdStarts {
        let mut starts = ColdStarts::default();
        for (at, (old, new)) in pairs.iter().enumerate() {
            let new_first = at % 2 == 0;
            let order = [(*new, true), (*old, false)];
            let order = if new_first { order } else { [order[1], order[0]] };
            for (seconds, is_new) in order {
                starts.add(seconds, is_new);
            }
        }
        starts
    }

    #[test]
    fn first_pages_that_are_faster_each_time_are_proven() {
        let pairs = [(0.263, 0.075), (0.257, 0.072), (0.264, 0.077), (0.260, 0.074)];
        assert_eq!(starts(&pairs[..3]).judge(1, false), None, "too few");
        let verdict = starts(&pairs).judge(1, false).expect("a verdict");
        let pages = verdict.pages.expect("figures");
        assert!(verdict.gain && pages.ratio.high < 0.5, "{verdict:?}");
        assert_eq!((pages.old_seconds, pages.new_seconds), (0.263, 0.075));
    }

    #[test]
    fn first_pages_that_differ_by_chance_get_more_pairs_and_are_not_proven() {
        let pairs = [(0.2, 0.3), (0.3, 0.2), (0.25, 0.2), (0.2, 0.25)];
        assert_eq!(starts(&pairs).judge(1, false), None);
        let late = starts(&pairs).judge(1, true).expect("a verdict");
        assert!(!late.gain, "{late:?}");
        let all = [pairs, pairs].concat();
        let verdict = starts(&all).judge(1, false).expect("a verdict");
        assert!(!verdict.gain, "{verdict:?}");
    }
}
