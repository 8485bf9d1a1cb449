//! Compares two settings by pairs of runs, as `maitred bench compare` compares two servers.

use maitred_measure::compare::{Direction, Ratio, Verdict, verdicts};
use serde::Serialize;

use crate::measurement::Measurement;

/// With an interval this narrow more pairs would change nothing.
const NARROW: f64 = 0.03;

/// A metric of the comparison.
type ComparedMetric = (&'static str, Direction, fn(&Measurement) -> Option<f64>);

/// The metrics of the comparison.
const COMPARED: [ComparedMetric; 5] = [
    ("in time/s", Direction::HigherIsBetter, |seen| Some(seen.goodput)),
    ("p50", Direction::LowerIsBetter, |seen| seen.p50),
    ("p95", Direction::LowerIsBetter, |seen| seen.p95),
    ("p99", Direction::LowerIsBetter, |seen| seen.p99),
    ("p99.9", Direction::LowerIsBetter, |seen| seen.p999),
];

/// Up to this factor, throughput counts as the same.
const HARDLY_MORE: f64 = 1.1;

/// Zero throughput in time counts as this share of the other run's, so that there is a ratio.
const NEXT_TO_NOTHING: f64 = 0.01;

/// The comparison of one metric, the new setting with the old one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct ComparisonRow {
    pub figure: &'static str,
    pub ratio: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub verdict: String,
    #[serde(skip)]
    is_better: Option<bool>,
    #[serde(skip)]
    is_clear: bool,
}

/// Compares all metrics of pairs (old, new).
pub fn rows(pairs: &[(Measurement, Measurement)], seed: u64) -> Vec<ComparisonRow> {
    let value = |place: usize, seen: &Measurement, other: &Measurement| match place {
        0 => Some(seen.goodput.max(other.goodput * NEXT_TO_NOTHING)),
        _ => COMPARED[place].2(seen),
    };
    let ratio_of = |place: usize, old: &Measurement, new: &Measurement| {
        let (old, new) = (value(place, old, new)?, value(place, new, old)?);
        // If neither serves anything in time, they do not differ.
        Some(if old == new { 1.0 } else { new / old })
    };
    let known: Vec<Option<Vec<f64>>> = (0..COMPARED.len())
        .map(|place| {
            let ratios = pairs.iter().map(|(old, new)| ratio_of(place, old, new));
            ratios.collect()
        })
        .collect();
    // A metric without values must not widen the intervals of the others.
    let compared = known.iter().flatten().count();
    let ratios: Vec<(Direction, Option<Ratio>)> = known
        .iter()
        .zip(COMPARED)
        .map(|(ratios, (_, better, _))| {
            let ratio = ratios.as_ref();
            (better, ratio.and_then(|ratios| Ratio::of(ratios, compared, seed)))
        })
        .collect();
    let all = COMPARED.iter().zip(&ratios).zip(verdicts(&ratios));
    all.map(|(((figure, ..), (_, ratio)), verdict)| ComparisonRow {
        figure,
        ratio: ratio.map(|ratio| ratio.mean),
        low: ratio.map(|ratio| ratio.low),
        high: ratio.map(|ratio| ratio.high),
        verdict: verdict.to_string(),
        is_better: match verdict {
            Verdict::Faster => Some(true),
            Verdict::Slower => Some(false),
            _ => None,
        },
        is_clear: verdict != Verdict::Undecided
            || ratio.is_none_or(|ratio| ratio.detectable() < NARROW),
    })
    .collect()
}

/// Whether more pairs would change nothing.
pub fn is_clear(rows: &[ComparisonRow]) -> bool {
    rows.iter().all(|row| row.is_clear)
}

/// Whether the new setting is proven to be better: more requests in time, or as many with lower
/// latencies.
pub fn is_gain(rows: &[ComparisonRow]) -> bool {
    let goodput = rows.first().and_then(|row| row.is_better);
    let latency = || rows.iter().skip(1).map(|row| row.is_better);
    match goodput {
        Some(is_better) => is_better,
        None => latency().any(|row| row == Some(true)) && latency().all(|row| row != Some(false)),
    }
}

/// Whether the new setting surely serves hardly more in time than the old one.
pub fn is_as_much(rows: &[ComparisonRow]) -> bool {
    let in_time = rows.first().and_then(|row| row.high);
    in_time.is_some_and(|high| high <= HARDLY_MORE)
}

/// Whether the same setting differs from itself.
pub fn differs(rows: &[ComparisonRow]) -> bool {
    rows.iter().any(|row| row.is_better.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(goodput: f64, p50: f64) -> Measurement {
        Measurement { goodput, p50: Some(p50), p95: Some(p50 * 1.5), ..Measurement::default() }
    }

    fn pairs(new: impl Fn(f64) -> Measurement) -> Vec<ComparisonRow> {
        let wobble = |at: usize| 1.0 + 0.004 * (at % 3) as f64;
        let pairs: Vec<_> =
            (0..6).map(|at| (seen(100.0 * wobble(at + 1), 0.05), new(wobble(at)))).collect();
        rows(&pairs, 1)
    }

    #[test]
    fn more_in_time_is_a_gain_and_the_same_is_none() {
        let better = pairs(|wobble| seen(150.0 * wobble, 0.05));
        assert!(is_gain(&better) && differs(&better), "{better:?}");
        let same = pairs(|wobble| seen(100.0 * wobble, 0.05));
        assert!(!is_gain(&same) && !differs(&same) && is_clear(&same), "{same:?}");
        let worse = pairs(|wobble| seen(50.0 * wobble, 0.01));
        assert!(!is_gain(&worse), "fewer in time, if sooner");
        assert!(is_as_much(&same) && is_as_much(&worse) && !is_as_much(&better));
        assert!(!is_as_much(&[]), "it is not known");
        let sooner = pairs(|wobble| seen(100.0 * wobble, 0.02));
        assert!(is_gain(&sooner), "{sooner:?}");
    }

    #[test]
    fn a_setting_that_serves_nothing_in_time_can_still_be_compared() {
        let pairs: Vec<_> = (0..5).map(|_| (seen(0.0, 0.5), seen(100.0, 0.05))).collect();
        assert!(is_gain(&rows(&pairs, 1)));
    }

    #[test]
    fn a_pair_in_which_neither_serves_anything_in_time_hides_none_of_the_others() {
        let pairs: Vec<_> = (0..6)
            .map(|at| (seen(0.0, 0.5), seen(if at == 2 { 0.0 } else { 100.0 }, 0.05)))
            .collect();
        let found = &rows(&pairs, 1)[0];
        assert!(found.ratio.is_some_and(|ratio| ratio > 10.0), "{found:?}");
        assert!(found.low.is_some(), "{found:?}");
    }
}
