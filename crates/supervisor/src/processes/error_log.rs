//! Logging the recurring errors of a generation's processes.

use tracing::{info, warn};

use crate::limits::Moment;
use crate::processes::running_pool::RunningPool;

impl RunningPool {
    /// Logs what is due about its recurring errors, and about `max_spawn_rate`.
    pub fn log_errors(&mut self, now: Moment) {
        let name = &self.plan.settings.pool;
        let held = self.state.held_back(now);
        let rate = self.plan.pool.max_spawn_rate;
        if self.errors.rate_reached(now, held, rate) {
            warn!(
                "pool {name}: max_spawn_rate = {rate} workers a second is reached; {held} more \
                 workers are wanted now"
            );
        }
        for line in self.errors.due(now) {
            warn!("pool {name}: {line}");
        }
        if let Some(line) = self.errors.grown_due(now) {
            info!("pool {name}: {line}");
        }
    }
}
