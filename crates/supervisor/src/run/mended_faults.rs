//! Faults of single sites and pools while the server serves: whether they are mended, and what
//! `maitred status` shows of them.

use tracing::{error, info};

use super::Supervisor;
use crate::limits::{FAULTS_CHECKED_EVERY, Moment};
use crate::plan;
use crate::reload::ReloadScope;
use crate::system::faults::{Faults, Loss};
use crate::tls::certificates::Certificates;

impl Supervisor {
    /// Checks whether faults are mended when that is due. Pools and logs come back by a reload of
    /// the configuration in use; the front and the certificates find their files themselves.
    pub(super) fn keep_faults(&mut self) {
        let now = self.now();
        if self.faults_deadline().is_none_or(|due| due > now) {
            return;
        }
        self.faults_checked = now;
        let (config, file) = (&self.plan.config, self.plan.source.file());
        let mut found = plan::examine_again(config, file, &self.plan.programs).faults;
        found.extend(self.plan.certificates.iter().flat_map(Certificates::faults));
        let (mended, new) = (self.plan.faults.without(&found), found.without(&self.plan.faults));
        for fault in new.iter() {
            error!("{fault}");
        }
        for fault in mended.iter() {
            info!("mended: {}", fault.sentence);
        }
        let is_startable =
            |name: &str| !found.stops_pool(name) && self.pools.current_of(name).is_none();
        let has_pools = config.pools.iter().any(|pool| is_startable(&pool.name));
        let has_logs = mended.iter().any(|fault| fault.loss == Loss::Log);
        self.plan.faults = found;
        if (has_pools || has_logs)
            && let Err(why) = self.reload_to(self.plan.config.clone(), &ReloadScope::Changed)
        {
            error!("the mended sites need a reload, which is refused: {why}");
        }
    }

    /// When the faults are checked next.
    pub(super) fn faults_deadline(&self) -> Option<Moment> {
        let is_free = !self.reloader.is_going_on() && !self.upgrader.is_going_on();
        let is_checked = self.phase.is_serving() && is_free && !self.plan.faults.is_empty();
        is_checked.then(|| self.faults_checked + FAULTS_CHECKED_EVERY)
    }

    /// Uses the faults of a new configuration, and logs those that are new.
    pub(super) fn follow_faults(&mut self, faults: Faults) {
        for fault in faults.without(&self.plan.faults).iter() {
            error!("{fault}");
        }
        self.plan.faults = faults;
        self.faults_checked = self.now();
    }

    /// One sentence for each fault, the pools whose PHP does not start included.
    pub(super) fn shown_faults(&self) -> Vec<String> {
        let now = self.now();
        let failing = self.pools.current().filter_map(|pool| pool.shown_start_error(now));
        self.plan.faults.shown().into_iter().chain(failing).collect()
    }
}
