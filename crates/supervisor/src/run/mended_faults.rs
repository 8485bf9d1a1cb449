//! Faults of single sites and pools while the server serves: whether they are mended, and what
//! `maitred status` shows of them.

use std::time::Duration;

use tracing::{error, info};

use super::Supervisor;
use super::folder_lookups::log_refused;
use crate::limits::{FAULTS_CHECKED_FIRST, FAULTS_CHECKED_LONGEST, Moment};
use crate::plan::examined_config::ExaminedConfig;
use crate::plan::folder_lookups::LookupOrder;
use crate::reload::ReloadScope;
use crate::system::faults::{Fault, Faults, Loss};

/// The times of the checks whether faults are mended: a fault that lasts is checked at growing
/// intervals, since each check takes time of the supervisor.
#[derive(Debug, Default)]
pub struct FaultChecks {
    last: Moment,
    /// None: the first.
    pause: Option<Duration>,
}

impl FaultChecks {
    /// A check was done; `is_other`: its faults are others than those before.
    fn done(&mut self, now: Moment, is_other: bool) {
        let pause = self.pause.filter(|_| !is_other);
        let pause = pause.map_or(FAULTS_CHECKED_FIRST, |pause| pause * 2);
        self.pause = Some(pause.min(FAULTS_CHECKED_LONGEST));
        self.last = now;
    }

    fn next(&self) -> Moment {
        self.last + self.pause.unwrap_or(FAULTS_CHECKED_FIRST)
    }
}

impl Supervisor {
    /// Checks whether faults are mended when that is due, in a process of its own.
    pub(super) fn keep_faults(&mut self) {
        let now = self.now();
        if self.faults_deadline().is_none_or(|due| due > now) {
            return;
        }
        if let Err(why) = self.lookups.start(LookupOrder::Faults, &self.plan, now) {
            self.faults_examined(Err(why));
        }
    }

    /// The faults were checked, or could not be. Pools, logs and listeners come back by a reload of
    /// the configuration in use; the front and the certificates find their files themselves.
    pub(super) fn faults_examined(&mut self, outcome: Result<ExaminedConfig, String>) {
        let now = self.now();
        if !self.may_check_faults() {
            return;
        }
        let found = match outcome {
            Ok(examined) => self.plan.faults_by_now(examined),
            Err(why) => {
                error!("whether sites with a fault are mended cannot be checked: {why}");
                return self.fault_checks.done(now, false);
            }
        };
        let (mended, new) = (self.plan.faults.without(&found), found.without(&self.plan.faults));
        for fault in new.iter() {
            error!("{fault}");
        }
        for fault in mended.iter() {
            info!("mended: {}", fault.sentence);
        }
        let is_startable =
            |name: &str| !found.stops_pool(name) && self.pools.current_of(name).is_none();
        // A pool that a reload left as it was, because of a fault, gets its new settings now.
        let compared = self.pools.compared(&self.plan.config);
        let is_late = compared.iter().any(|pool| {
            let was_left = self.plan.faults.stops_pool(pool.name) && pool.differs;
            was_left && !found.stops_pool(pool.name)
        });
        let pools = &self.plan.config.pools;
        let has_pools = is_late || pools.iter().any(|pool| is_startable(&pool.name));
        let is_reopened = |fault: &Fault| matches!(fault.loss, Loss::Log | Loss::Listener(..));
        if !has_pools && !mended.iter().any(is_reopened) {
            self.fault_checks.done(now, !mended.is_empty() || !new.is_empty());
            self.plan.faults = found;
            return;
        }
        // They count until the reload is done: the next check starts it again if it is refused.
        self.fault_checks.done(now, false);
        if let Err(why) = self.reload(ReloadScope::Mended) {
            log_refused(&why, &ReloadScope::Mended);
        }
    }

    fn may_check_faults(&self) -> bool {
        let is_free = !self.reloader.is_going_on() && !self.upgrader.is_going_on();
        // Certificates have checks of their own.
        self.phase.is_serving() && is_free && self.plan.faults.need_checks()
    }

    /// When the faults are checked next.
    pub(super) fn faults_deadline(&self) -> Option<Moment> {
        let is_due = self.may_check_faults() && !self.lookups.are_made();
        is_due.then(|| self.fault_checks.next())
    }

    /// Uses the faults of a new configuration, and logs those that are new.
    pub(super) fn follow_faults(&mut self, faults: Faults) {
        for fault in faults.without(&self.plan.faults).iter() {
            error!("{fault}");
        }
        if faults != self.plan.faults {
            self.fault_checks = FaultChecks::default();
        }
        self.plan.faults = faults;
        self.fault_checks.last = self.now();
    }

    /// One sentence for each fault, the pools whose PHP does not start included.
    pub(super) fn shown_faults(&self) -> Vec<String> {
        let now = self.now();
        let failing = self.pools.current().filter_map(|pool| pool.shown_start_error(now));
        self.plan.faults.shown().into_iter().chain(failing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_lasts_is_looked_at_more_and_more_rarely_and_another_one_soon() {
        let mut checks = FaultChecks::default();
        let mut pauses = Vec::new();
        for is_other in [true, false, false, false, false, false, true, false] {
            let now = checks.next();
            checks.done(now, is_other);
            pauses.push((checks.next() - now).as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60, 5, 10]);
    }
}
