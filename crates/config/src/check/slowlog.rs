//! Checks of the slow log, which are php-fpm's (`fpm_conf_process_all_pools` in `fpm_conf.c`).

use toml::de::DeTable;

use crate::mistakes::Fault;
use crate::model::pool::Pool;

/// The setting that turns the slow log on.
const TIMEOUT: &str = "request_slowlog_timeout";

/// Checks the settings of a pool's slow log. A slow log without a timeout stays empty, and that is
/// no fault.
pub(crate) fn check_slowlog(pool: &Pool, settings: &DeTable<'_>) -> Vec<Fault> {
    let timeout = pool.request_slowlog_timeout;
    if timeout.is_zero() {
        return Vec::new();
    }
    let mut faults = Vec::new();
    // A wrong `slowlog` is reported already.
    if pool.slowlog.is_none() && !settings.contains_key("slowlog") {
        let sentence = format!("`{TIMEOUT}` needs `slowlog`; add it to the pool");
        faults.push(Fault::at(settings, TIMEOUT, sentence));
    }
    let limit = pool.request_terminate_timeout;
    if !limit.is_zero() && timeout > limit {
        let sentence = format!(
            "`{TIMEOUT}` is {timeout:?}, which is more than `request_terminate_timeout`, \
             {limit:?}: no script runs for so long"
        );
        faults.push(Fault::at(settings, TIMEOUT, sentence));
    }
    faults
}
