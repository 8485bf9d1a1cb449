//! Conditions that a run has to meet: `p99<200ms,error<0.1%`.

use serde::Serialize;

use crate::generate::Measured;
use crate::latency::{PERCENTILES, SAMPLES_BEYOND};
use crate::outcome::Class;
use maitred_text::humanize;

/// The metric of a condition.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Metric {
    /// A percentile of the corrected latencies of served requests (100: the longest).
    Percentile(f64),
    Mean,
    /// Requests that were not served, including unsent ones, in percent.
    Errors,
    /// Served requests a second.
    Rate,
}

/// One condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    text: String,
    metric: Metric,
    below: bool,
    limit: f64,
}

/// The conditions that have to hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slo {
    conditions: Vec<Condition>,
    /// How many samples have to be above a percentile for it to be judged.
    beyond: f64,
}

/// The result of a condition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConditionResult {
    /// The condition.
    pub condition: String,
    /// The measured value: seconds, a share of 1, or requests a second; `None` where there are too
    /// few samples.
    pub measured: Option<f64>,
    /// Whether it holds. A condition without a measured value does not.
    pub holds: bool,
}

impl Slo {
    /// Parses conditions, separated by commas.
    ///
    /// # Errors
    /// A message that says what is expected.
    pub fn read(text: &str) -> Result<Slo, String> {
        let conditions = text.split(',').map(|part| condition(part.trim()));
        Ok(Slo { conditions: conditions.collect::<Result<_, _>>()?, beyond: SAMPLES_BEYOND })
    }

    /// Sets how many samples have to be above a percentile: fewer take less time, and are less
    /// certain.
    #[must_use]
    pub fn with_samples_beyond(self, beyond: f64) -> Slo {
        Slo { beyond, ..self }
    }

    /// The lowest limit of a latency, in seconds: slower responses are of no use.
    pub fn latency_limit(&self) -> Option<f64> {
        let latencies = self.conditions.iter().filter(|condition| {
            condition.below && matches!(condition.metric, Metric::Percentile(_) | Metric::Mean)
        });
        latencies.map(|condition| condition.limit).reduce(f64::min)
    }

    /// The number of requests that the percentiles need.
    pub fn samples(&self) -> f64 {
        let samples = self.conditions.iter().map(|condition| match condition.metric {
            Metric::Percentile(percentile) if percentile < 100.0 => {
                self.beyond / (1.0 - percentile / 100.0)
            }
            _ => 0.0,
        });
        samples.fold(0.0, f64::max)
    }

    /// The result of each condition.
    pub fn judge(&self, measured: &Measured) -> Vec<ConditionResult> {
        let verdicts = self.conditions.iter().map(|condition| {
            let found = metric(condition.metric, measured, self.beyond);
            let holds = found.is_some_and(|found| {
                if condition.below { found < condition.limit } else { found > condition.limit }
            });
            ConditionResult { condition: condition.text.clone(), measured: found, holds }
        });
        verdicts.collect()
    }
}

fn metric(metric: Metric, measured: &Measured, beyond: f64) -> Option<f64> {
    let total = &measured.total;
    let served = &total.ended[Class::Served.index()].corrected;
    match metric {
        Metric::Percentile(100.0) => served.max(),
        Metric::Percentile(percentile) => served.carried(percentile, beyond),
        Metric::Mean => served.mean(),
        Metric::Errors => {
            let all = total.all() + total.unsent;
            let errors = all.saturating_sub(total.count(Class::Served));
            (all > 0).then(|| errors as f64 / all as f64)
        }
        Metric::Rate => Some(total.count(Class::Served) as f64 / measured.seconds.max(1e-9)),
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    let wrong = || {
        format!(
            "'{text}' is no condition; expected some such as p99<200ms, mean<50ms, max<2s, \
             error<0.1% or rate>180"
        )
    };
    let at = text.find(['<', '>']).ok_or_else(wrong)?;
    let (name, rest) = text.split_at(at);
    let limit = rest[1..].trim();
    let percentile = |name: &str| {
        let name = name.replace('.', "_");
        let known = PERCENTILES.iter().find(|(known, _)| *known == name);
        known.map(|(_, percentile)| *percentile)
    };
    let metric = match name.trim() {
        "max" => Metric::Percentile(100.0),
        "mean" | "avg" => Metric::Mean,
        "error" | "errors" => Metric::Errors,
        "rate" => Metric::Rate,
        name => Metric::Percentile(percentile(name).ok_or_else(wrong)?),
    };
    let limit = match metric {
        Metric::Errors => humanize::parse_percent(limit)? / 100.0,
        Metric::Rate => limit.trim_end_matches("/s").parse().map_err(|_| wrong())?,
        _ => humanize::parse_duration(limit)?,
    };
    Ok(Condition { text: text.to_owned(), metric, below: rest.starts_with('<'), limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Cause;
    use crate::tally::RequestEnd;

    fn measured(served: u64, failed: u64) -> Measured {
        let mut measured = Measured { seconds: 10.0, ..Measured::default() };
        for number in 0..served + failed {
            measured.total.ended(&RequestEnd {
                cause: (number >= served).then_some(Cause::Status(502)),
                status: Some(200),
                has_retry_after: false,
                body_bytes: 0,
                corrected: 100_000_000,
                service: 100_000_000,
                row: 0,
            });
        }
        measured
    }

    fn holds(slo: &str, measured: &Measured) -> Vec<bool> {
        let slo = Slo::read(slo).expect("conditions");
        slo.judge(measured).into_iter().map(|verdict| verdict.holds).collect()
    }

    #[test]
    fn every_condition_is_judged_by_itself() {
        let run = measured(9_990, 10);
        let slo = "p99<200ms, p99<50ms, error<0.2%, error<0.1%, rate>900, max<1s, mean<90ms";
        assert_eq!(holds(slo, &run), [true, false, true, false, true, true, false]);
    }

    #[test]
    fn what_the_samples_do_not_carry_does_not_hold() {
        assert_eq!(holds("p99.9<10s,p50<10s", &measured(100, 0)), [false, true]);
        assert_eq!(holds("error<1%", &Measured::default()), [false]);
        let few = Slo::read("p99<10s").expect("conditions");
        let judged = few.with_samples_beyond(3.0).judge(&measured(300, 0));
        assert!(judged[0].holds);
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in ["", "p99", "p98<1s", "p99<soon", "error<2", "p99=1s", "error<200%"] {
            let read = Slo::read(text);
            assert!(read.is_err() || text == "error<2", "{text}");
        }
        let slo = Slo::read("p99<200ms,p50<20ms,error<1%").expect("conditions");
        assert_eq!(slo.latency_limit(), Some(0.02));
        assert_eq!(slo.samples().round(), 2_000.0);
    }
}
