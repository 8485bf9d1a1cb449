//! Runs of schedules with `one_node`: each is claimed in the purge log before it begins, so that
//! one node has it. Pure.

use std::time::Duration;

use maitred_config::Job;
use maitred_control::purge_log::ToPurgeLog;

use crate::limits::{CLAIM_LIFETIME, CLAIM_TIMEOUT, Moment};

/// How much longer than the process of the purge log we wait for its report: it may have ended.
const GRACE: Duration = Duration::from_secs(1);

/// A run whose node is not decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedRun {
    /// The pool of its schedule.
    pub pool: String,
    /// The name of its schedule.
    pub name: String,
    /// When it was due, in seconds since 1970.
    pub due: i64,
    number: u64,
    until: Moment,
}

impl ClaimedRun {
    /// Whether it is one of this job.
    pub fn is_of(&self, job: &Job) -> bool {
        self.pool == job.pool && self.name == job.name
    }
}

/// All claims that are not decided: at most one of each schedule.
#[derive(Debug, Default)]
pub struct Claims {
    last_number: u64,
    undecided: Vec<ClaimedRun>,
    orders: Vec<ToPurgeLog>,
    /// The last claim was not decided in time.
    is_lost: bool,
}

impl Claims {
    /// Claims a run that is due. Whether it was: not while another one of the schedule is
    /// undecided.
    pub fn claim(&mut self, job: &Job, due: i64, now: Moment) -> bool {
        if self.undecided.iter().any(|run| run.is_of(job)) {
            return false;
        }
        self.last_number += 1;
        let number = self.last_number;
        let jitter = job.schedule.as_ref().map_or(Duration::ZERO, |schedule| schedule.jitter);
        self.orders.push(ToPurgeLog::Claim {
            number,
            run: format!("{}/{}:{due}", job.pool, job.name),
            lifetime: CLAIM_LIFETIME.saturating_add(jitter),
            timeout: CLAIM_TIMEOUT,
        });
        let until = now.saturating_add(CLAIM_TIMEOUT).saturating_add(GRACE);
        let (pool, name) = (job.pool.clone(), job.name.clone());
        self.undecided.push(ClaimedRun { pool, name, due, number, until });
        true
    }

    /// The orders for the process of the purge log.
    pub fn take_orders(&mut self) -> Vec<ToPurgeLog> {
        std::mem::take(&mut self.orders)
    }

    /// A claim is decided: the run, if it was waited for.
    pub fn decided(&mut self, number: u64) -> Option<ClaimedRun> {
        let at = self.undecided.iter().position(|run| run.number == number)?;
        Some(self.undecided.swap_remove(at))
    }

    /// The runs that were not decided in time.
    pub fn overdue(&mut self, now: Moment) -> Vec<ClaimedRun> {
        let (overdue, rest): (Vec<_>, _) =
            std::mem::take(&mut self.undecided).into_iter().partition(|run| run.until <= now);
        self.undecided = rest;
        // The process of the purge log has not taken them: it does not run.
        let is_overdue = |number: u64| overdue.iter().any(|run| run.number == number);
        self.orders.retain(
            |order| !matches!(order, ToPurgeLog::Claim { number, .. } if is_overdue(*number)),
        );
        overdue
    }

    /// No claim is waited for any more.
    pub fn forget(&mut self) {
        self.orders.clear();
        self.undecided.clear();
    }

    /// The undecided run of a schedule.
    pub fn of(&self, job: &Job) -> Option<&ClaimedRun> {
        self.undecided.iter().find(|run| run.is_of(job))
    }

    /// When [`Claims::overdue`] returns something.
    pub fn deadline(&self) -> Option<Moment> {
        self.undecided.iter().map(|run| run.until).min()
    }

    /// Notes whether a claim was decided. Whether that is another state than before.
    pub fn note(&mut self, is_lost: bool) -> bool {
        std::mem::replace(&mut self.is_lost, is_lost) != is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn job(name: &str) -> Job {
        Job { pool: "shop".to_owned(), name: name.to_owned(), ..Job::default() }
    }

    #[test]
    fn a_schedule_has_one_undecided_run_which_ends_by_a_report_or_in_time() {
        let mut claims = Claims::default();
        assert!(claims.claim(&job("report"), 60, SECOND));
        assert!(!claims.claim(&job("report"), 120, SECOND));
        assert!(claims.claim(&job("mails"), 60, SECOND));
        let orders = claims.take_orders();
        assert_eq!((orders.len(), claims.take_orders().len()), (2, 0));
        let ToPurgeLog::Claim { number, run, .. } = &orders[0] else { panic!("{orders:?}") };
        assert_eq!(run, "shop/report:60");
        assert_eq!(claims.of(&job("report")).map(|run| run.due), Some(60));
        assert_eq!(claims.decided(*number).unwrap().name, "report");
        assert_eq!(claims.decided(*number), None);
        assert_eq!(claims.overdue(CLAIM_TIMEOUT), []);
        let late = claims.deadline().unwrap();
        assert_eq!(claims.overdue(late).len(), 1);
        assert_eq!(claims.deadline(), None);
        assert!(claims.claim(&job("mails"), 120, late));
        assert!(claims.deadline().is_some());
        claims.forget();
        assert_eq!(claims.deadline(), None);
        assert_eq!([true, true, false].map(|is_lost| claims.note(is_lost)), [true, false, true]);
    }
}
