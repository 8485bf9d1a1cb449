//! What a site has to hold.

use maitred_measure::slo::Slo;

/// How much longer than alone a request may take among others, where nobody says how long.
const PATIENCE: f64 = 4.0;

/// The shortest limit of that kind, in seconds: people do not notice less.
const SHORTEST: f64 = 0.1;

/// What a goal has to say of errors, where it says nothing of them.
const FEW_ERRORS: &str = "error<0.1%";

/// So many samples have to lie beyond a percentile: if a rate does not hold, it is more (with 95 %, where three
/// are expected there is one). A report's twenty would take minutes for each rate of a slow site.
const BEYOND: f64 = 3.0;

/// Percentiles, and how many requests it takes to judge them at half of the rate at which they come.
const PERCENTILES: [(&str, f64); 4] =
    [("p99", 600.0), ("p95", 120.0), ("p90", 60.0), ("p50", 12.0)];

/// A goal.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// As it was said, or made.
    pub text: String,
    /// To judge by.
    pub slo: Slo,
    /// Whether somebody said it.
    pub is_given: bool,
}

impl Goal {
    /// Reads one.
    ///
    /// # Errors
    /// What was expected.
    pub fn read(text: &str) -> Result<Goal, String> {
        // Nobody means a goal that may be met by refusing most of the requests.
        let text = if text.contains("error") {
            text.to_owned()
        } else {
            format!("{text},{FEW_ERRORS}")
        };
        let slo = Slo::read(&text)?.with_samples_beyond(BEYOND);
        if slo.latency_limit().is_none() {
            return Err(format!(
                "'{text}' bounds no latency; expected a goal such as p99<200ms,error<0.1%"
            ));
        }
        Ok(Goal {
            text,
            slo,
            is_given: true,
        })
    }

    /// One that fits a page that takes so long alone, and that so many requests can show.
    ///
    /// # Errors
    /// Nothing that is known to happen.
    pub fn made(alone: f64, requests: f64) -> Result<Goal, String> {
        let limit = ((alone * PATIENCE).max(SHORTEST) * 1e3).ceil();
        let mut fits = PERCENTILES.iter().filter(|(_, needed)| requests >= *needed);
        let percentile = fits.next().map_or("p50", |(name, _)| name);
        let goal = Goal::read(&format!("{percentile}<{limit}ms,error<0.1%"))?;
        Ok(Goal {
            is_given: false,
            ..goal
        })
    }

    /// Its limit, in seconds.
    pub fn limit(&self) -> f64 {
        self.slo.latency_limit().unwrap_or(f64::INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_nobody_gave_is_one_that_can_be_shown() {
        assert_eq!(
            Goal::made(0.04, 5_000.0).unwrap().text,
            "p99<160ms,error<0.1%"
        );
        assert_eq!(
            Goal::made(0.001, 300.0).unwrap().text,
            "p95<100ms,error<0.1%"
        );
        assert_eq!(Goal::made(1.0, 3.0).unwrap().limit(), 4.0);
        assert!(
            Goal::read("error<1%")
                .unwrap_err()
                .contains("bounds no latency")
        );
        let given = Goal::read("p99<200ms").unwrap();
        assert!(given.is_given && given.text == "p99<200ms,error<0.1%");
        assert_eq!(
            Goal::read("p99<1s,error<2%").unwrap().text,
            "p99<1s,error<2%"
        );
    }
}
