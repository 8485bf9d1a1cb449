//! The durations of a tuning's phases.

/// The total time of the durations below, in seconds.
const USUAL: f64 = 600.0;

/// With less time than this, results are only indicative, in seconds.
const INDICATIVE_BELOW: f64 = 300.0;

/// With less time than this, fewer rates are tried, in seconds.
const HURRIED: f64 = 60.0;

/// Observation of the machine without load, in seconds.
const IDLE: f64 = 30.0;

/// Confirmation of the highest rate, and each overload, in seconds.
const CONFIRM: f64 = 60.0;
const BEYOND: f64 = 30.0;

/// Fewest and most pairs of the noise floor.
const FEWEST_PAIRS_OF_NOISE: usize = 5;
const MOST_PAIRS_OF_NOISE: usize = 10;

/// Fewest and most pairs of the proof: six agree by chance once in 64 times.
const FEWEST_PAIRS_OF_PROOF: usize = 6;
const MOST_PAIRS_OF_PROOF: usize = 12;

/// Fewest pairs of the proof with little time.
const FEWEST_PAIRS: usize = 5;

/// Durations in seconds, and counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// Observation without load.
    pub idle: f64,
    /// A window of the warm-up.
    pub window: f64,
    /// One user alone.
    pub alone: f64,
    /// All routes together.
    pub routes: f64,
    /// A run of the noise floor, and fewest and most pairs of them.
    pub noise: f64,
    #[allow(missing_docs)]
    pub noise_pairs: (usize, usize),
    /// A rate of a search.
    pub step: f64,
    /// Most rates of a search.
    pub steps: usize,
    /// A number of workers.
    pub sweep: f64,
    /// Confirmation of the highest rate.
    pub confirm: f64,
    /// Each overload.
    pub beyond: f64,
    /// A run of the proof.
    pub run: f64,
    /// Fewest and most pairs of the proof.
    pub pairs: (usize, usize),
    /// Whether results are only indicative.
    pub is_indicative: bool,
}

impl Times {
    /// For this total time, in seconds.
    pub fn of(total: f64) -> Times {
        let factor = total / USUAL;
        let part = |usual: f64, least: f64| (usual * factor).clamp(least, usual * 2.0);
        let is_indicative = total < INDICATIVE_BELOW;
        Times {
            idle: (IDLE * factor).clamp(0.2, IDLE),
            window: part(3.0, 0.2),
            alone: part(12.0, 0.5),
            routes: part(15.0, 0.5),
            noise: part(5.0, 0.3),
            noise_pairs: if is_indicative {
                (FEWEST_PAIRS_OF_NOISE, FEWEST_PAIRS_OF_NOISE)
            } else {
                (FEWEST_PAIRS_OF_NOISE, MOST_PAIRS_OF_NOISE)
            },
            step: part(8.0, 0.5),
            steps: match total {
                _ if total < HURRIED => 4,
                _ if is_indicative => 5,
                _ => 9,
            },
            sweep: part(6.0, 0.3),
            confirm: (CONFIRM * factor).clamp(0.6, CONFIRM),
            beyond: (BEYOND * factor).clamp(0.5, BEYOND),
            run: part(8.0, 0.6),
            pairs: if is_indicative {
                (FEWEST_PAIRS, FEWEST_PAIRS)
            } else {
                (FEWEST_PAIRS_OF_PROOF, MOST_PAIRS_OF_PROOF)
            },
            is_indicative,
        }
    }

    /// The time of a measurement with its warm-up, in seconds.
    pub fn whole(seconds: f64) -> f64 {
        seconds + warm_up(seconds)
    }
}

/// The warm-up of a measurement, in seconds.
pub fn warm_up(seconds: f64) -> f64 {
    (seconds * 0.1).max(0.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_are_whole_and_two_are_indicative() {
        assert!(!Times::of(600.0).is_indicative && Times::of(120.0).is_indicative);
        assert_eq!(Times::of(600.0).sweep, 6.0);
        assert!(Times::of(1.0).run >= 0.6);
        let long = Times::of(3_600.0);
        assert_eq!((long.confirm, long.beyond), (60.0, 30.0));
        assert_eq!(Times::whole(10.0), 11.0);
    }
}
