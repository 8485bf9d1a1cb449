//! Checks between the settings of a pool's confinement.

use toml::de::DeTable;

use crate::mistakes::Fault;
use crate::model::confinement::{GroupLimits, PIDS_BESIDES_WORKERS};
use crate::model::pool::Pool;

/// Checks a pool's confinement. Settings with a fault of their own are reported already.
pub(crate) fn check_confinement(pool: &Pool, settings: &DeTable<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let GroupLimits { memory_max, memory_high, pids_max, .. } = pool.confinement.together;
    if let (Some(max), Some(high)) = (memory_max, memory_high)
        && high > max
    {
        let sentence = format!(
            "`memory_high` is {high} bytes, which is more than `memory_max`, {max}, and would \
             never be reached"
        );
        faults.push(Fault::at(settings, "memory_high", sentence));
    }
    if let (Some(pids), Some(workers)) = (pids_max, pool.max_children)
        && pids < workers.saturating_add(PIDS_BESIDES_WORKERS)
    {
        let least = workers.saturating_add(PIDS_BESIDES_WORKERS);
        let sentence = format!(
            "`pids_max` is the number {pids}, which is too few for `max_children`, {workers}; \
             expected {least} at least, and one more for each program that scripts start"
        );
        faults.push(Fault::at(settings, "pids_max", sentence));
    }
    faults
}
