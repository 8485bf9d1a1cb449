//! Outcomes of requests, and the faults that excuse failures.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kind::Kind;
use crate::plan::Allowance;

/// How a request ended, where the response was not wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The right response, whole.
    Right,
    /// An honest error: a status 5xx.
    Refused(u16),
    /// A purge is done here, and other nodes have not confirmed it. That is said, so it needs no
    /// excuse; but it is not right, either.
    Unconfirmed,
    /// The connection ended before the response did.
    Cut,
    /// No connection.
    Unconnected,
}

/// A request that has ended. Times count from the start of the run.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Its kind.
    pub kind: Kind,
    /// When it began.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// How.
    pub outcome: Outcome,
}

/// A fault, from its start until everything is served again.
#[derive(Debug)]
struct Excuse {
    from: Duration,
    until: Option<Duration>,
    allowance: Allowance,
    failures: u64,
}

impl Excuse {
    fn covers(&self, request: &Ended) -> bool {
        let overlaps =
            request.ended >= self.from && self.until.is_none_or(|until| request.began <= until);
        let kinds = self.allowance.kinds;
        overlaps && (kinds.is_empty() || kinds.contains(&request.kind))
    }
}

/// How many excuses are remembered: a request outlasts few faults.
const EXCUSES_MAX: usize = 16;

/// Counts outcomes. A failure that no fault excuses is a violation.
#[derive(Debug, Default)]
pub struct Ledger {
    excuses: Vec<Excuse>,
    outcomes: BTreeMap<Kind, BTreeMap<Outcome, u64>>,
    /// When the last right response of each kind began.
    right: BTreeMap<Kind, Duration>,
}

impl Ledger {
    /// A fault begins.
    pub fn begin(&mut self, from: Duration, allowance: Allowance) {
        if self.excuses.len() == EXCUSES_MAX {
            self.excuses.remove(0);
        }
        self.excuses.push(Excuse { from, until: None, allowance, failures: 0 });
    }

    /// Everything is served again. Returns the number of requests that failed by the fault so far.
    pub fn end(&mut self, until: Duration) -> u64 {
        self.excuses.last_mut().map_or(0, |excuse| {
            excuse.until = Some(until);
            excuse.failures
        })
    }

    /// A request has ended.
    ///
    /// # Errors
    /// A sentence, if it failed and no fault excuses that.
    pub fn record(&mut self, request: &Ended) -> Result<(), String> {
        let of_kind = self.outcomes.entry(request.kind).or_default();
        *of_kind.entry(request.outcome).or_default() += 1;
        if request.outcome == Outcome::Right {
            let last = self.right.entry(request.kind).or_default();
            *last = request.began.max(*last);
            return Ok(());
        }
        if request.outcome == Outcome::Unconfirmed {
            return Ok(());
        }
        let excuse =
            self.excuses.iter_mut().rev().find(|excuse| {
                excuse.covers(request) && excuse.failures < excuse.allowance.failures
            });
        let Some(excuse) = excuse else {
            let (kind, outcome) = (request.kind.name(), request.outcome);
            return Err(format!(
                "{kind}: {outcome:?} of a request from {:.3} s to {:.3} s, which no fault excuses",
                request.began.as_secs_f64(),
                request.ended.as_secs_f64()
            ));
        };
        excuse.failures += 1;
        Ok(())
    }

    /// Those of these kinds of which no request, begun after this time, had the right response.
    pub fn not_right_since(&self, time: Duration, kinds: &[Kind]) -> Vec<Kind> {
        let is_right = |kind: &Kind| self.right.get(kind).is_some_and(|began| *began >= time);
        kinds.iter().copied().filter(|kind| !is_right(kind)).collect()
    }

    /// Outcomes by kind.
    pub fn outcomes(&self) -> &BTreeMap<Kind, BTreeMap<Outcome, u64>> {
        &self.outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: Kind, began: u64, ended: u64, outcome: Outcome) -> Ended {
        let seconds = Duration::from_secs;
        Ended { kind, began: seconds(began), ended: seconds(ended), outcome }
    }

    fn with_fault(failures: u64, kinds: &'static [Kind]) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.begin(Duration::from_secs(10), Allowance { kinds, failures });
        ledger.end(Duration::from_secs(12));
        ledger
    }

    #[test]
    fn a_failure_without_a_fault_is_a_violation() {
        let mut ledger = Ledger::default();
        assert!(ledger.record(&request(Kind::Page, 0, 1, Outcome::Right)).is_ok());
        assert!(ledger.record(&request(Kind::Page, 0, 1, Outcome::Cut)).is_err());
    }

    #[test]
    fn a_fault_excuses_as_many_failures_as_it_allows() {
        let mut ledger = with_fault(2, &[]);
        for allowed in [true, true, false] {
            let recorded = ledger.record(&request(Kind::Page, 11, 12, Outcome::Refused(502)));
            assert_eq!(recorded.is_ok(), allowed);
        }
    }

    #[test]
    fn a_fault_excuses_only_requests_that_were_in_flight_during_it() {
        let times = [((0, 9), false), ((0, 10), true), ((12, 14), true), ((13, 14), false)];
        for ((began, ended), excused) in times {
            let mut ledger = with_fault(9, &[]);
            let recorded = ledger.record(&request(Kind::Page, began, ended, Outcome::Cut));
            assert_eq!(recorded.is_ok(), excused, "{began} to {ended}");
        }
    }

    #[test]
    fn a_fault_excuses_only_the_kinds_that_it_is_about() {
        let mut ledger = with_fault(9, &[Kind::Upload]);
        assert!(ledger.record(&request(Kind::Page, 11, 11, Outcome::Cut)).is_err());
        assert!(ledger.record(&request(Kind::Upload, 11, 11, Outcome::Cut)).is_ok());
    }

    #[test]
    fn an_unconfirmed_purge_needs_no_excuse_and_is_not_right() {
        let mut ledger = Ledger::default();
        assert!(ledger.record(&request(Kind::Purge, 6, 7, Outcome::Unconfirmed)).is_ok());
        let kinds = [Kind::Purge];
        assert_eq!(ledger.not_right_since(Duration::ZERO, &kinds), kinds);
    }

    #[test]
    fn all_is_right_once_each_kind_has_a_right_response_begun_since() {
        let kinds = [Kind::Page, Kind::File];
        let mut ledger = Ledger::default();
        let since = Duration::from_secs(5);
        ledger.record(&request(Kind::Page, 6, 7, Outcome::Right)).expect("right");
        ledger.record(&request(Kind::File, 4, 7, Outcome::Right)).expect("right");
        assert_eq!(ledger.not_right_since(since, &kinds), [Kind::File]);
        ledger.record(&request(Kind::File, 5, 7, Outcome::Right)).expect("right");
        assert!(ledger.not_right_since(since, &kinds).is_empty());
    }
}
