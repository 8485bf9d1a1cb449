//! Checks of a dynamic pool, which are php-fpm's (`fpm_conf_process_all_pools` in `fpm_conf.c`).

use toml::de::DeTable;

use crate::mistakes::Fault;
use crate::model::pool::{Pool, ProcessManager};

/// Required settings of a dynamic pool.
const NEEDED: [&str; 3] = ["max_children", "min_spare_servers", "max_spare_servers"];

/// Checks the spare workers of a dynamic pool and sets `start_servers`. Settings with a fault of
/// their own are reported already.
pub(crate) fn settle_spare_servers(pool: &mut Pool, settings: &DeTable<'_>) -> Vec<Fault> {
    if pool.pm != ProcessManager::Dynamic {
        return Vec::new();
    }
    let lacking = NEEDED.into_iter().filter(|name| !settings.contains_key(*name));
    let lacks = |name| {
        let sentence = format!("`pm` is \"dynamic\", which needs `{name}`; add it to the pool");
        Fault::at(settings, "pm", sentence)
    };
    let mut faults: Vec<Fault> = lacking.map(lacks).collect();
    let limits = (pool.max_children, pool.min_spare_servers, pool.max_spare_servers);
    let (Some(limit), Some(min), Some(max)) = limits else {
        return faults;
    };
    if min == 0 {
        let sentence = "`min_spare_servers` is the number 0; a dynamic pool needs 1 at least; \
                        only `pm = \"auto\"` may have none";
        faults.push(Fault::at(settings, "min_spare_servers", sentence));
        return faults;
    }
    let check = |name: &str, value: u32, most: u32, most_name: &str| {
        let beyond = match value {
            _ if value < min => format!("less than `min_spare_servers`, {min}"),
            _ if value > most => format!("more than `{most_name}`, {most}"),
            _ => return None,
        };
        let sentence = format!("`{name}` is the number {value}, which is {beyond}");
        Some(Fault::at(settings, name, sentence))
    };
    let middle = min + max.saturating_sub(min) / 2;
    let start = *pool.start_servers.get_or_insert(middle);
    let of_max = check("max_spare_servers", max, limit, "max_children");
    let of_start = || check("start_servers", start, max, "max_spare_servers");
    faults.extend(of_max.or_else(of_start));
    faults
}
