//! Checks of a dynamic pool, which are php-fpm's (`fpm_conf_process_all_pools` in `fpm_conf.c`).

use std::ops::Range;

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
    let at = |name: &str| settings.get(name).map(|value| value.span());
    let lacking = NEEDED.into_iter().filter(|name| at(name).is_none());
    let mut faults: Vec<Fault> = lacking.map(|name| lacks(name, at("pm"))).collect();
    let (Some(limit), Some(min), Some(max)) = (
        pool.max_children,
        pool.min_spare_servers,
        pool.max_spare_servers,
    ) else {
        return faults;
    };
    if min == 0 {
        let sentence = "`min_spare_servers` is the number 0; a dynamic pool needs 1 at least; only \
                        `pm = \"auto\"` may have none";
        faults.push(Fault::new(
            at("min_spare_servers").unwrap_or(0..0),
            sentence.to_owned(),
        ));
        return faults;
    }
    let mut check = |name: &str, value: u32, from: (&str, u32), to: (&str, u32)| {
        let beyond = match value {
            _ if value < from.1 => format!("less than `{}`, {}", from.0, from.1),
            _ if value > to.1 => format!("more than `{}`, {}", to.0, to.1),
            _ => return true,
        };
        let sentence = format!("`{name}` is the number {value}, which is {beyond}");
        faults.push(Fault::new(at(name).unwrap_or(0..0), sentence));
        false
    };
    let good = check(
        "max_spare_servers",
        max,
        ("min_spare_servers", min),
        ("max_children", limit),
    );
    let start = *pool
        .start_servers
        .get_or_insert(min + max.saturating_sub(min) / 2);
    if good {
        check(
            "start_servers",
            start,
            ("min_spare_servers", min),
            ("max_spare_servers", max),
        );
    }
    faults
}

fn lacks(name: &str, pm: Option<Range<usize>>) -> Fault {
    let sentence = format!("`pm` is \"dynamic\", which needs `{name}`; add it to the pool");
    Fault::new(pm.unwrap_or(0..0), sentence)
}
