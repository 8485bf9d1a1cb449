//! Compares two configurations: pairs of runs in random order, bootstrap intervals of their ratio,
//! and one of four fixed verdicts.

use std::fmt;

/// Number of bootstrap resamples.
const RESAMPLES: usize = 10_000;

/// The tolerated rate of wrong verdicts, for all metrics of a comparison together.
const TOLERATED: f64 = 0.05;

/// The verdict follows the mean only if the sign test's p-value is at most this.
const SIGNS_BY_CHANCE: f64 = 0.1;

/// A difference below this, with its whole interval, counts as none.
const NO_DIFFERENCE: f64 = 0.03;

/// Whether a higher value of a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Higher is better.
    HigherIsBetter,
    /// Lower is better.
    LowerIsBetter,
}

/// The verdict on B compared with A, for one metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// B is faster.
    Faster,
    /// B is slower.
    Slower,
    /// They differ by no more than this share.
    NoDifferenceLargerThan(f64),
    /// Too few pairs to decide.
    Undecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Faster => f.write_str("faster"),
            Verdict::Slower => f.write_str("slower"),
            Verdict::NoDifferenceLargerThan(share) => {
                let percent = (share * 1_000.0).ceil() / 10.0;
                write!(f, "no difference larger than {percent} %")
            }
            Verdict::Undecided => f.write_str("undecided"),
        }
    }
}

/// The ratio of a metric, B to A.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The geometric mean of the ratios of the pairs.
    pub mean: f64,
    /// The interval of the mean, at 95 % for all metrics together.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// The two-sided p-value of the mean.
    pub chance: f64,
    /// The p-value of the one-sided sign test: the pairs that agree with the mean.
    pub signs: f64,
}

impl Ratio {
    /// Computes it from the ratios of the pairs. `figures` metrics are compared together, so each
    /// interval is wider by Bonferroni's method. `None` for fewer than two pairs, or for a ratio
    /// that is not a positive number.
    pub fn of(ratios: &[f64], figures: usize, seed: u64) -> Option<Ratio> {
        let usable = ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
        if ratios.len() < 2 || !usable {
            return None;
        }
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / logs.len() as f64;
        let middle = mean(&mut logs.iter().copied());
        let wider = wider(logs.len());
        let mut random = fastrand::Rng::with_seed(seed);
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| mean(&mut (0..logs.len()).map(|_| logs[random.usize(..logs.len())])))
            .map(|drawn| middle + (drawn - middle) * wider)
            .collect();
        means.sort_by(f64::total_cmp);
        let tail = TOLERATED / figures.max(1) as f64 / 2.0;
        // A share of RESAMPLES fits into usize.
        let at = |share: f64| means[((RESAMPLES - 1) as f64 * share).round() as usize];
        let below = means.iter().filter(|mean| **mean <= 0.0).count();
        let above = means.iter().filter(|mean| **mean >= 0.0).count();
        let chance = 2.0 * below.min(above) as f64 / RESAMPLES as f64;
        Some(Ratio {
            mean: middle.exp(),
            low: at(tail).exp(),
            high: at(1.0 - tail).exp(),
            // The number of resamples bounds the confidence.
            chance: chance.clamp(1.0 / RESAMPLES as f64, 1.0),
            signs: signs(&logs, middle),
        })
    }

    /// Whether chance explains the difference: the interval contains 1.
    pub fn holds_one(&self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }

    /// The smallest difference that these pairs could have shown.
    pub fn detectable(&self) -> f64 {
        (self.high / self.low).sqrt() - 1.0
    }
}

/// The sign test: the probability that at least as many of the differing pairs agree with the mean
/// if each were a coin toss. It ignores the size of differences, so it exposes a mean that a single
/// pair determines.
fn signs(logs: &[f64], middle: f64) -> f64 {
    let differ = logs.iter().filter(|log| **log != 0.0);
    let (all, agree) = differ.fold((0_u32, 0_u32), |(all, agree), log| {
        (all + 1, agree + u32::from((*log > 0.0) == (middle > 0.0)))
    });
    let mut ways = 1.0;
    let mut sum = 0.0;
    for count in 0..=all {
        if count >= agree {
            sum += ways;
        }
        ways *= f64::from(all - count) / f64::from(count + 1);
    }
    sum / 2_f64.powf(f64::from(all))
}

/// The factor that corrects the interval for few pairs. Their variance is underestimated by n / (n
/// - 1), and the tails of the normal distribution are thinner than Student's by about 1 + 1.4 / (n
/// - 1) at 95 %.
fn wider(pairs: usize) -> f64 {
    let (pairs, freedom) = (pairs as f64, pairs.saturating_sub(1).max(1) as f64);
    (pairs / freedom).sqrt() * (1.0 + 1.4 / freedom)
}

/// The verdicts on several metrics at once, by Holm's method: the smallest p-value is tested
/// against the tolerated rate divided by the number of metrics, the next against that divided by
/// one less, and so on.
pub fn verdicts(ratios: &[(Direction, Option<Ratio>)]) -> Vec<Verdict> {
    let mut order: Vec<(usize, f64)> = ratios
        .iter()
        .enumerate()
        .filter_map(|(place, (_, ratio))| Some((place, ratio.as_ref()?.chance)))
        .collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut verdicts = vec![Verdict::Undecided; ratios.len()];
    let mut sure = true;
    for (rank, (place, chance)) in order.iter().enumerate() {
        let Some((better, Some(ratio))) = ratios.get(*place) else {
            continue;
        };
        sure &= *chance <= TOLERATED / (order.len() - rank) as f64;
        verdicts[*place] = verdict(*better, ratio, sure);
    }
    verdicts
}

fn verdict(better: Direction, ratio: &Ratio, sure: bool) -> Verdict {
    let largest = (1.0 - ratio.low).abs().max((ratio.high - 1.0).abs());
    if largest <= NO_DIFFERENCE {
        return Verdict::NoDifferenceLargerThan(largest);
    }
    if !sure || ratio.signs > SIGNS_BY_CHANCE {
        return Verdict::Undecided;
    }
    match (better, ratio.mean > 1.0) {
        (Direction::HigherIsBetter, true) | (Direction::LowerIsBetter, false) => Verdict::Faster,
        _ => Verdict::Slower,
    }
}

/// The order of a pair: whether B runs first. Two consecutive pairs are ABBA or BAAB, so that a
/// machine that slows down affects both alike.
pub fn b_first(pair: usize, seed: u64) -> bool {
    let mut random = fastrand::Rng::with_seed(seed.wrapping_add(pair as u64 / 2));
    random.bool() ^ (pair % 2 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noisy(mean: f64, spread: f64, count: usize, seed: u64) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| mean * (spread * (random.f64() - 0.5)).exp()).collect()
    }

    fn judge(ratios: &[f64]) -> Verdict {
        verdicts(&[(Direction::HigherIsBetter, Ratio::of(ratios, 1, 1))])[0]
    }

    #[test]
    fn there_are_four_verdicts() {
        assert_eq!(judge(&noisy(1.2, 0.1, 10, 1)), Verdict::Faster);
        assert_eq!(judge(&noisy(0.8, 0.1, 10, 1)), Verdict::Slower);
        assert_eq!(judge(&noisy(1.0, 1.0, 8, 5)), Verdict::Undecided);
        let same = judge(&noisy(1.0, 0.02, 10, 1));
        assert!(same.to_string().starts_with("no difference larger than "), "{same}");
        assert_eq!(judge(&[1.5]), Verdict::Undecided);
        assert_eq!(judge(&[1.5, f64::NAN]), Verdict::Undecided);
        let latency =
            verdicts(&[(Direction::LowerIsBetter, Ratio::of(&noisy(0.8, 0.1, 10, 1), 1, 1))]);
        assert_eq!(latency, [Verdict::Faster]);
    }

    #[test]
    fn two_equal_configurations_are_seldom_called_different() {
        let wrong = (0..200).filter(|seed| {
            let verdict = judge(&noisy(1.0, 0.5, 10, *seed));
            matches!(verdict, Verdict::Faster | Verdict::Slower)
        });
        let wrong = wrong.count();
        assert!(wrong < 18, "{wrong} of 200");
    }

    #[test]
    fn an_interval_holds_the_truth_and_says_what_could_be_seen() {
        let ratio = Ratio::of(&noisy(1.1, 0.1, 20, 3), 1, 1).expect("a ratio");
        assert!(ratio.low < 1.1 && ratio.high > 1.1 && !ratio.holds_one(), "{ratio:?}");
        assert!((0.005..0.05).contains(&ratio.detectable()), "{ratio:?}");
    }

    #[test]
    fn several_figures_have_to_be_surer_than_one() {
        let weak = Ratio { mean: 1.1, low: 0.999, high: 1.2, chance: 0.03, signs: 0.01 };
        assert_eq!(verdicts(&[(Direction::HigherIsBetter, Some(weak))]), [Verdict::Faster]);
        let both = verdicts(&[
            (Direction::HigherIsBetter, Some(weak)),
            (Direction::HigherIsBetter, Some(weak)),
        ]);
        assert_eq!(both, [Verdict::Undecided, Verdict::Undecided]);
    }

    #[test]
    fn a_coin_would_do_it_so_often() {
        for (pairs, wanted) in [
            (&[0.1, 0.1, 0.1, 0.1, 0.1][..], 1.0 / 32.0),
            (&[0.1, 0.1, 0.1, 0.1, -0.1], 6.0 / 32.0),
            (&[-0.1, -0.1, -0.1, 0.0, 0.0], 1.0 / 8.0),
            (&[0.0, 0.0], 1.0),
        ] {
            let middle = pairs.iter().sum::<f64>();
            assert!((signs(pairs, middle) - wanted).abs() < 1e-9, "{pairs:?}");
        }
    }

    #[test]
    fn pairs_that_do_not_agree_are_not_followed_however_sure_their_mean_is() {
        let mut ratios = noisy(1.3, 0.1, 8, 1);
        assert_eq!(judge(&ratios), Verdict::Faster);
        // Three pairs that contradict it by so little that the mean hardly moves.
        ratios[..3].fill(0.999);
        let ratio = Ratio::of(&ratios, 1, 1).expect("a ratio");
        assert!(!ratio.holds_one() && ratio.signs > SIGNS_BY_CHANCE, "{ratio:?}");
        assert_eq!(judge(&ratios), Verdict::Undecided);
    }

    #[test]
    fn two_pairs_in_a_row_are_fair_to_both() {
        for pair in (0..20).step_by(2) {
            assert_ne!(b_first(pair, 9), b_first(pair + 1, 9));
        }
    }
}
