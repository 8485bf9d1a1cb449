//! Histograms of latencies: three significant digits up to an hour, no finer than 64 ns. Histograms
//! can be added.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::clock::{self, SECOND};

/// The lowest latency that is distinguished, in nanoseconds.
const LOWEST: u64 = 100;

/// The highest latency that is distinguished, in nanoseconds.
const HIGHEST: u64 = 3_600 * SECOND;

/// How many samples have to be above a percentile for it to be reported.
pub const SAMPLES_BEYOND: f64 = 20.0;

/// The percentiles of a report, with their names.
pub const PERCENTILES: [(&str, f64); 8] = [
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99_9", 99.9),
    ("p99_99", 99.99),
    ("p99_999", 99.999),
];

/// Latencies. An empty value allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    histogram: Option<Box<Histogram<u64>>>,
}

impl Latencies {
    /// Adds a latency, in nanoseconds. Values outside of the histogram's range are clamped.
    pub fn record(&mut self, nanos: u64) {
        if let Some(histogram) = self.made() {
            histogram.saturating_record(nanos);
        }
    }

    /// Adds all latencies of another.
    pub fn add(&mut self, other: &Latencies) {
        let Some(theirs) = &other.histogram else {
            return;
        };
        if let Some(histogram) = self.made() {
            // Both have the same range, so no value is out of it.
            let _ = histogram.add(theirs.as_ref());
        }
    }

    /// Removes all latencies, and keeps the memory.
    pub fn clear(&mut self) {
        if let Some(histogram) = &mut self.histogram {
            histogram.reset();
        }
    }

    fn made(&mut self) -> Option<&mut Histogram<u64>> {
        if self.histogram.is_none() {
            // The bounds are constants that the histogram accepts.
            let made = Histogram::new_with_bounds(LOWEST, HIGHEST, 3).ok();
            self.histogram = made.map(Box::new);
        }
        self.histogram.as_deref_mut()
    }

    /// The number of latencies.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, |found| found.len())
    }

    /// The longest, in seconds.
    pub fn max(&self) -> Option<f64> {
        self.of(|histogram| clock::seconds(histogram.max()))
    }

    /// The shortest, in seconds.
    pub fn min(&self) -> Option<f64> {
        self.of(|histogram| clock::seconds(histogram.min()))
    }

    /// The mean, in seconds.
    pub fn mean(&self) -> Option<f64> {
        self.of(|histogram| histogram.mean() / SECOND as f64)
    }

    /// The standard deviation, in seconds.
    pub fn deviation(&self) -> Option<f64> {
        self.of(|histogram| histogram.stdev() / SECOND as f64)
    }

    /// The value, in seconds, that `percentile` (0 to 100) of them do not exceed; `None` where
    /// fewer than [`SAMPLES_BEYOND`] are above it, since it would be chance.
    pub fn percentile(&self, percentile: f64) -> Option<f64> {
        self.carried(percentile, SAMPLES_BEYOND)
    }

    /// The same with another minimum of samples above it.
    pub fn carried(&self, percentile: f64, samples: f64) -> Option<f64> {
        let beyond = self.count() as f64 * (100.0 - percentile) / 100.0;
        // 0.1 % of 20 000 is a little less than 20 in floating point.
        if beyond + 1e-6 < samples {
            return None;
        }
        self.at(percentile)
    }

    /// The same without a minimum: for live tables, and for other tools' tables.
    pub fn at(&self, percentile: f64) -> Option<f64> {
        self.of(|histogram| clock::seconds(histogram.value_at_percentile(percentile)))
    }

    /// The number of latencies of at most `limit` seconds.
    pub fn within(&self, limit: f64) -> u64 {
        let found = self.histogram.as_ref();
        found.map_or(0, |found| found.count_between(0, clock::nanos(limit)))
    }

    /// The number of latencies in each range that ends with one of `limits` (seconds, ascending),
    /// and above the last.
    pub fn ranges(&self, limits: &[f64]) -> Vec<u64> {
        let mut before = 0;
        let mut ranges: Vec<u64> = Vec::with_capacity(limits.len() + 1);
        for limit in limits {
            let within = self.within(*limit);
            ranges.push(within.saturating_sub(before));
            before = within;
        }
        ranges.push(self.count().saturating_sub(before));
        ranges
    }

    /// The summary for a report.
    pub fn summary(&self) -> Summary {
        let percentile = |of| self.percentile(of);
        Summary {
            count: self.count(),
            min: self.min(),
            mean: self.mean(),
            deviation: self.deviation(),
            p50: percentile(50.0),
            p75: percentile(75.0),
            p90: percentile(90.0),
            p95: percentile(95.0),
            p99: percentile(99.0),
            p99_9: percentile(99.9),
            p99_99: percentile(99.99),
            p99_999: percentile(99.999),
            max: self.max(),
        }
    }

    fn of<T>(&self, read: impl FnOnce(&Histogram<u64>) -> T) -> Option<T> {
        let found = self.histogram.as_deref();
        found.filter(|found| !found.is_empty()).map(read)
    }
}

/// Latencies in a report, in seconds; `None` where there are too few samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Summary {
    pub count: u64,
    pub min: Option<f64>,
    pub mean: Option<f64>,
    pub deviation: Option<f64>,
    pub p50: Option<f64>,
    pub p75: Option<f64>,
    pub p90: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
    pub p99_9: Option<f64>,
    pub p99_99: Option<f64>,
    pub p99_999: Option<f64>,
    pub max: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nanos: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        nanos.into_iter().for_each(|nanos| latencies.record(nanos));
        latencies
    }

    fn close(found: Option<f64>, wanted: f64) {
        let found = found.expect("a value");
        assert!((found - wanted).abs() <= wanted * 0.001, "{found} {wanted}");
    }

    #[test]
    fn three_digits_are_kept_up_to_an_hour() {
        for nanos in [130_400_u64, 1_270_000, 1_400_000_000, 3_599_000_000_000] {
            close(of([nanos]).at(50.0), clock::seconds(nanos));
        }
        let short = of([1_000]).at(50.0).expect("a value");
        assert!((short - 1e-6).abs() < 65e-9, "{short}");
        assert_eq!(of([u64::MAX]).count(), 1);
    }

    #[test]
    fn a_percentile_is_said_only_where_twenty_samples_lie_beyond_it() {
        let latencies = of((1..=2_000).map(|n| n * 1_000_000));
        close(latencies.percentile(99.0), 1.98);
        assert_eq!(latencies.percentile(99.9), None);
        assert_eq!(of((1..=1_999).map(|n| n * 1_000_000)).percentile(99.0), None);
        assert_eq!(Latencies::default().percentile(50.0), None);
        assert!(of(0..20_000).percentile(99.9).is_some());
    }

    #[test]
    fn what_is_added_up_is_as_if_it_had_been_recorded_together() {
        let mut sum = of((0..500).map(|n| n * 1_000_000));
        sum.add(&of((500..1_000).map(|n| n * 1_000_000)));
        sum.add(&Latencies::default());
        assert_eq!(sum.summary(), of((0..1_000).map(|n| n * 1_000_000)).summary());
        assert_eq!(sum.within(0.0995), 100);
        assert_eq!(sum.ranges(&[0.0995, 0.1995]), [100, 100, 800]);
        sum.clear();
        assert_eq!(sum.summary(), Summary::default());
    }
}
