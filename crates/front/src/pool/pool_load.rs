//! The load of a pool as a part of what it may use here, for autoscalers.

use maitred_sizing::saturation::{PoolCapacity, Saturation};

use crate::pool::Pool;

/// Thousandths of a processor in one.
const THOUSANDTHS: f64 = 1000.0;

impl Pool {
    /// Processors that the supervisor has found for the server, quotas considered; none: it looks
    /// for them only for pools with `pm = auto`.
    pub fn server_cores(&self) -> Option<f64> {
        let has_own = self.settings().confinement.together.cpu_max.is_some();
        self.lock().growth.machine().filter(|_| !has_own).map(|machine| machine.cores)
    }

    /// Its load now.
    pub fn load_now(&self) -> Saturation {
        let mut state = self.lock();
        let max_children = state.queue.max_open();
        let capacity = match state.growth.machine() {
            Some(machine) => {
                PoolCapacity { cores: machine.cores, memory: machine.memory, max_children }
            }
            None => {
                let quota = self.settings().confinement.together.cpu_max;
                let quota = quota.map_or(f64::INFINITY, |quota| f64::from(quota) / THOUSANDTHS);
                PoolCapacity { cores: cores().min(quota), memory: None, max_children }
            }
        };
        state.meter.read(maitred_scoreboard::now(), &capacity)
    }
}

/// Processors that this process may use.
pub fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1, usize::from) as f64
}
