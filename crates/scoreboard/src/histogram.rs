//! Times in buckets that grow with the time: eight for each doubling, from 1 µs to 71 minutes. A
//! time that is read back is an eighth too long at most.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Buckets for each doubling, as a power of two.
const STEP_BITS: u32 = 3;
/// Buckets for each doubling.
const STEPS: usize = 1 << STEP_BITS;
/// Times of 2 to the power of this in microseconds and longer are all in the last bucket.
const LAST_POWER: u32 = 32;

/// Buckets of a histogram.
pub const BUCKETS: usize = (LAST_POWER as usize - STEP_BITS as usize + 1) * STEPS;

/// Words of a histogram in shared memory: its buckets, and the sum of all times.
pub(crate) const WORDS: usize = BUCKETS + 1;

/// The bucket of a time in microseconds.
fn bucket(micros: u64) -> usize {
    let micros = micros.min((1 << LAST_POWER) - 1);
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let power = micros.ilog2();
    let step = (micros >> (power - STEP_BITS)) as usize % STEPS;
    (power - STEP_BITS + 1) as usize * STEPS + step
}

/// All times in bucket `index` are below this, in microseconds; but for the last bucket.
pub fn upper_bound(index: usize) -> u64 {
    if index < STEPS {
        return index as u64 + 1;
    }
    let power = index / STEPS - 1;
    ((STEPS + index % STEPS + 1) as u64) << power
}

/// Adds a time to a histogram in shared memory.
pub(crate) fn add(words: &[AtomicU64], took: Duration) {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if let Some(word) = words.get(bucket(micros)) {
        word.fetch_add(1, Relaxed);
    }
    if let Some(sum) = words.get(BUCKETS) {
        sum.fetch_add(micros, Relaxed);
    }
}

/// A histogram as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    sum_micros: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: vec![0; BUCKETS], sum_micros: 0 }
    }
}

impl Histogram {
    /// Adds a histogram in shared memory.
    pub(crate) fn read(&mut self, words: &[AtomicU64]) {
        for (ours, theirs) in self.buckets.iter_mut().zip(words) {
            *ours = ours.wrapping_add(theirs.load(Relaxed));
        }
        if let Some(sum) = words.get(BUCKETS) {
            self.sum_micros = self.sum_micros.wrapping_add(sum.load(Relaxed));
        }
    }

    /// The number of times.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.wrapping_add(*bucket))
    }

    /// The sum of all times.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_micros)
    }

    /// The time that the share `quantile` (0 to 1) of all times do not exceed, an eighth too long
    /// at most; nothing without any.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count);
        let mut seen: u64 = 0;
        let reaches = |bucket: &u64| {
            seen = seen.wrapping_add(*bucket);
            seen >= rank
        };
        let index = self.buckets.iter().position(reaches);
        Some(Duration::from_micros(upper_bound(index.unwrap_or(BUCKETS - 1))))
    }

    /// The number of times below 2 to the power of `power` microseconds, from 3 to 32.
    pub fn below_power(&self, power: u32) -> u64 {
        let end = (power.clamp(STEP_BITS, LAST_POWER) - STEP_BITS + 1) as usize * STEPS;
        self.buckets[..end].iter().fold(0, |sum, bucket| sum.wrapping_add(*bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(micros: &[u64]) -> Histogram {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        for &micros in micros {
            add(&words, Duration::from_micros(micros));
        }
        let mut times = Histogram::default();
        times.read(&words);
        times
    }

    proptest! {
        #[test]
        fn every_time_is_in_the_bucket_whose_bounds_hold_it(micros in 0u64..1 << 32) {
            let index = bucket(micros);
            prop_assert!(micros < upper_bound(index));
            prop_assert!(index == 0 || micros >= upper_bound(index - 1));
            prop_assert!(upper_bound(index) - micros <= micros / 8 + 1, "an eighth at most");
        }

        #[test]
        fn a_quantile_is_never_too_short_and_an_eighth_too_long_at_most(
            mut micros in prop::collection::vec(0u64..1 << 31, 1..200),
            share in 0.0f64..=1.0,
        ) {
            let read = times(&micros).quantile(share).unwrap().as_micros() as u64;
            micros.sort_unstable();
            let rank = ((micros.len() as f64 * share).ceil() as usize).clamp(1, micros.len());
            let exact = micros[rank - 1];
            prop_assert!(read > exact && read - exact <= exact / 8 + 1, "{read} for {exact}");
        }
    }

    #[test]
    fn a_time_beyond_all_bounds_is_in_the_last_bucket() {
        let endless = times(&[u64::MAX, 1 << 32]);
        assert_eq!(endless.buckets[BUCKETS - 1], 2);
        assert_eq!(upper_bound(BUCKETS - 1), 1 << LAST_POWER);
    }

    #[test]
    fn powers_of_two_are_the_bounds_of_buckets() {
        let times = times(&[7, 8, 1023, 1024, 1025]);
        assert_eq!(times.below_power(3), 1);
        assert_eq!(times.below_power(10), 3);
        assert_eq!(times.below_power(11), 5);
        assert_eq!(times.sum(), Duration::from_micros(7 + 8 + 1023 + 1024 + 1025));
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
