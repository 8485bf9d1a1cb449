//! Logging the recurring errors of a generation's processes.

use maitred_control::{WorkerId, exit};
use maitred_os::fork::HowEnded;
use tracing::{debug, info, warn};

use crate::limits::Moment;
use crate::processes::generation::BootState;
use crate::processes::running_pool::RunningPool;

impl RunningPool {
    /// Logs that a worker could not be forked, the first time.
    pub fn fork_failed(&mut self, worker: WorkerId, why: &str, now: Moment) {
        let (pool, seat) = (&self.plan.settings.pool, worker.seat);
        let sentence = format!("pool {pool} seat {seat}: no worker could be made: {why}");
        if self.errors.fork_failed(now) {
            warn!("{sentence}; it is tried again");
        } else {
            debug!("{sentence}");
        }
        self.outputs.remove(&worker);
    }

    /// How a worker has ended, as the end of a sentence.
    pub fn describe_end(&self, how: HowEnded, boot: BootState) -> String {
        match boot {
            _ if how == HowEnded::Exited(exit::CUT_OFF) => {
                "has exited, since a script has closed its descriptors".to_owned()
            }
            BootState::Done => how.to_string(),
            BootState::Until(_) => format!("{how} before its script had booted"),
            BootState::Late => {
                let limit = self.plan.pool.boot_timeout.as_secs_f64();
                format!("was ended, for its script has not booted in {limit} s")
            }
        }
    }

    /// Logs what is due about its recurring errors, and about `max_spawn_rate`.
    pub fn log_errors(&mut self, now: Moment) {
        let name = &self.plan.settings.pool;
        let held = self.state.held_back(now);
        let rate = self.plan.pool.max_spawn_rate;
        if self.errors.rate_reached(now, held, rate) {
            warn!(
                "pool {name}: max_spawn_rate = {rate} workers a second is reached, and {held} more \
                 would be started now"
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
