//! The behaviour under overload (T8).

use serde::Serialize;

use crate::measurement::Measurement;

/// Overload, as multiples of the highest rate.
pub const TIMES: [f64; 2] = [1.5, 3.0];

/// The result of one overload. Shares are of 1, times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverloadResult {
    /// The multiple of the highest rate.
    pub times: f64,
    /// The request rate.
    pub rate: f64,
    /// Requests served in time, as a share of the highest rate.
    pub goodput: f64,
    /// Latency of served requests.
    pub p99: Option<f64>,
    /// The highest percentile with enough samples.
    pub slow: Option<f64>,
    /// Requests that were rejected (503 or 429), of all.
    pub refused: f64,
    /// Rejected requests whose response has the `Retry-After` header, of the rejected ones.
    pub with_retry_after: Option<f64>,
    /// Requests that failed otherwise, of all, including those whose clients timed out.
    pub failed: f64,
    /// The workers' processor time for each served request, in seconds. It is higher than alone if
    /// workers also serve clients that have left.
    pub cpu: Option<f64>,
    /// How long it took until a request took no longer than twice its time alone; `None` if that
    /// did not happen in the given time.
    pub recovery: Option<f64>,
}

/// Loads beyond the highest rate, one after another.
#[derive(Debug, Clone)]
pub struct Overload {
    highest: f64,
    /// The results so far.
    pub beyond: Vec<OverloadResult>,
}

impl Overload {
    /// Overload relative to this rate.
    pub fn of(highest: f64) -> Overload {
        Overload { highest, beyond: Vec::new() }
    }

    /// The next rate; `None` at the end.
    pub fn next(&self) -> Option<f64> {
        let times = TIMES.get(self.beyond.len())?;
        Some(self.highest * times)
    }

    /// The number of remaining loads.
    pub fn left(&self) -> usize {
        TIMES.len() - self.beyond.len()
    }

    /// Takes the next result.
    pub fn tried(&mut self, seen: &Measurement) {
        let Some(times) = TIMES.get(self.beyond.len()).copied() else {
            return;
        };
        self.beyond.push(OverloadResult {
            times,
            rate: self.highest * times,
            goodput: seen.goodput / self.highest.max(1e-9),
            p99: seen.p99,
            slow: seen.p99.or(seen.p95).or(seen.p90).or(seen.p50),
            refused: seen.refused_share,
            with_retry_after: seen.with_retry_after,
            failed: (seen.error_share - seen.refused_share).max(0.0),
            cpu: seen.cpu,
            recovery: seen.recovery,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_as_much_more_and_three_times_as_much_are_asked() {
        let mut overload = Overload::of(100.0);
        let mut rates = Vec::new();
        while let Some(rate) = overload.next() {
            rates.push(rate);
            overload.tried(&Measurement {
                goodput: 90.0,
                error_share: 0.5,
                refused_share: 0.4,
                p95: Some(0.2),
                ..Measurement::default()
            });
        }
        assert_eq!(rates, [150.0, 300.0]);
        let last = &overload.beyond[1];
        assert!((last.goodput - 0.9).abs() < 1e-9 && (last.failed - 0.1).abs() < 1e-9);
        assert_eq!((last.p99, last.slow), (None, Some(0.2)));
    }
}
