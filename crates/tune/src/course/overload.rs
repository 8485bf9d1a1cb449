//! What becomes of more requests than the setting can serve (T8).

use serde::Serialize;

use crate::measurement::Measurement;

/// So many times the highest rate is asked for.
pub const TIMES: [f64; 2] = [1.5, 3.0];

/// What was seen beyond the highest rate. Shares are of 1, times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverloadResult {
    /// So many times the highest rate.
    pub times: f64,
    /// Requests a second that were sent.
    pub asked: f64,
    /// What was served in time, of the highest rate.
    pub goodput: f64,
    /// Of the answers that were served.
    pub p99: Option<f64>,
    /// The slowest percentile that the answers carry, where they do not carry that.
    pub slow: Option<f64>,
    /// Requests that were refused (503 or 429), of all.
    pub refused: f64,
    /// Those of them that were told when to come again (`Retry-After`), of the refused ones.
    pub with_retry_after: Option<f64>,
    /// Requests that ended otherwise without their answer, of all: those who had waited for long enough
    /// and went are among them.
    pub failed: f64,
    /// The workers' processor time for each of those answers, in seconds: more than alone where they also work for
    /// those who have gone.
    pub cpu: Option<f64>,
    /// How long after it a request took no longer than twice what it takes alone; nothing: it did not
    /// within the time that was given.
    pub recovery: Option<f64>,
}

/// Loads beyond the highest rate, one after the other.
#[derive(Debug, Clone)]
pub struct Overload {
    highest: f64,
    /// What was seen so far.
    pub beyond: Vec<OverloadResult>,
}

impl Overload {
    /// OverloadResult this rate.
    pub fn of(highest: f64) -> Overload {
        Overload {
            highest,
            beyond: Vec::new(),
        }
    }

    /// The next rate; nothing when it is over.
    pub fn next(&self) -> Option<f64> {
        let times = TIMES.get(self.beyond.len())?;
        Some(self.highest * times)
    }

    /// How many are left.
    pub fn left(&self) -> usize {
        TIMES.len() - self.beyond.len()
    }

    /// What was seen of the next.
    pub fn tried(&mut self, seen: &Measurement) {
        let Some(times) = TIMES.get(self.beyond.len()).copied() else {
            return;
        };
        self.beyond.push(OverloadResult {
            times,
            asked: self.highest * times,
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
        let mut asked = Vec::new();
        while let Some(rate) = overload.next() {
            asked.push(rate);
            overload.tried(&Measurement {
                goodput: 90.0,
                error_share: 0.5,
                refused_share: 0.4,
                p95: Some(0.2),
                ..Measurement::default()
            });
        }
        assert_eq!(asked, [150.0, 300.0]);
        let last = &overload.beyond[1];
        assert!((last.goodput - 0.9).abs() < 1e-9 && (last.failed - 0.1).abs() < 1e-9);
        assert_eq!((last.p99, last.slow), (None, Some(0.2)));
    }
}
