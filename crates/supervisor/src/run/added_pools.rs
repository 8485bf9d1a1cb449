//! The steps of a reload for pools that start without a trial: new ones, and those that get another
//! user. No request of the new configuration may reach what runs as the former user, so there is no
//! generation to keep instead.

use super::Supervisor;
use crate::processes::running_pool::RunningPool;
use crate::reload::Reload;
use crate::reload::pool_changes::PoolChanges;

impl Supervisor {
    /// Starts new pools.
    pub(super) fn add_pools(&mut self, reload: &mut Reload) {
        for name in reload.changes.added.clone() {
            self.add_pool(name, reload);
        }
    }

    /// Closes pools that get another user, and starts them as that user. The front uses the new
    /// configuration, and has no workers for their requests until then: it knows a pool by its name
    /// and its user. Where a second reload takes over before the front has replied to the first,
    /// the front uses the first configuration while it prepares the second, and requests to these
    /// pools get a 503 for that long: neither the former user nor the new one may run them yet.
    pub(super) fn change_users(&mut self, reload: &mut Reload) {
        for id in self.pools.current_among(&reload.changes.to_other_users) {
            self.close_pool(id);
        }
        for name in reload.changes.to_other_users.clone() {
            self.add_pool(name, reload);
        }
    }

    fn add_pool(&mut self, name: String, reload: &mut Reload) {
        match self.plan_pool(&name, reload) {
            Ok(plan) => {
                let generation = self.pools.next_generation();
                let running = RunningPool::new(generation, self.fronts.line(), plan);
                let id = self.pools.push(running);
                self.introduce_generation(id);
                reload.replaced.push(name);
            }
            Err(why) => reload.kept.push((name, why)),
        }
    }

    /// Ends the jobs of pools that stop or get another user: nothing may run on as a former user.
    /// The latter have new ones, by the configuration in use.
    pub(super) fn end_jobs_of_former_users(&mut self, changes: &PoolChanges) {
        let PoolChanges { to_other_users, stopped, .. } = changes;
        let now = self.now();
        self.jobs.retire_pools(&(to_other_users | stopped), now);
        self.jobs.follow(&self.plan.config, |name| to_other_users.contains(name), now);
    }
}
