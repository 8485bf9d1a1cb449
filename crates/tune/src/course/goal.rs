//! The goal of a tuning.

use maitred_measure::slo::Slo;

/// The default latency limit, as a multiple of the latency of one user alone.
const PATIENCE: f64 = 4.0;

/// The lowest default limit, in seconds: users do not notice less.
const SHORTEST: f64 = 0.1;

/// The error condition that is added to a goal without one.
const FEW_ERRORS: &str = "error<0.1%";

/// How many samples have to be above a percentile: where three are expected there is at least one
/// with a probability of 95 %, so a rate that does not hold is detected. The twenty of a report
/// would take minutes for each rate of a slow site.
const BEYOND: f64 = 3.0;

/// Percentiles, and the number of requests that it takes to judge them at half of the rate.
const PERCENTILES: [(&str, f64); 4] =
    [("p99", 600.0), ("p95", 120.0), ("p90", 60.0), ("p50", 12.0)];

/// A goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// Its conditions as text.
    pub text: String,
    /// Its conditions.
    pub slo: Slo,
    /// Whether the user gave it.
    pub is_given: bool,
}

impl Goal {
    /// Parses a goal.
    ///
    /// # Errors
    /// A message that says what is expected.
    pub fn read(text: &str) -> Result<Goal, String> {
        // A goal must not be met by rejecting most requests.
        let text =
            if text.contains("error") { text.to_owned() } else { format!("{text},{FEW_ERRORS}") };
        let slo = Slo::read(&text)?.with_samples_beyond(BEYOND);
        if slo.latency_limit().is_none() {
            return Err(format!(
                "'{text}' bounds no latency; expected a goal such as p99<200ms,error<0.1%"
            ));
        }
        Ok(Goal { text, slo, is_given: true })
    }

    /// A default goal for a page with this latency alone, that this many requests can show.
    ///
    /// # Errors
    /// None that is known to happen.
    pub fn made(alone: f64, requests: f64) -> Result<Goal, String> {
        let limit = ((alone * PATIENCE).max(SHORTEST) * 1e3).ceil();
        let mut fits = PERCENTILES.iter().filter(|(_, needed)| requests >= *needed);
        let percentile = fits.next().map_or("p50", |(name, _)| name);
        let goal = Goal::read(&format!("{percentile}<{limit}ms,error<0.1%"))?;
        Ok(Goal { is_given: false, ..goal })
    }

    /// Its latency limit, in seconds.
    pub fn limit(&self) -> f64 {
        self.slo.latency_limit().unwrap_or(f64::INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_goal_can_be_shown() {
        assert_eq!(Goal::made(0.04, 5_000.0).unwrap().text, "p99<160ms,error<0.1%");
        assert_eq!(Goal::made(0.001, 300.0).unwrap().text, "p95<100ms,error<0.1%");
        assert_eq!(Goal::made(1.0, 3.0).unwrap().limit(), 4.0);
        assert!(Goal::read("error<1%").unwrap_err().contains("bounds no latency"));
        let given = Goal::read("p99<200ms").unwrap();
        assert!(given.is_given && given.text == "p99<200ms,error<0.1%");
        assert_eq!(Goal::read("p99<1s,error<2%").unwrap().text, "p99<1s,error<2%");
    }
}
