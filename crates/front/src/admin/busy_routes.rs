//! The routes with the most script time, for `maitred top`.

use maitred_control::admin::{MAX_ROUTES_SHOWN, RouteFigures};

use crate::pool::Pool;
use crate::services::Shared;

/// The routes of all pools, as far as they are counted.
pub fn of(shared: &Shared) -> Vec<RouteFigures> {
    let mut all: Vec<RouteFigures> =
        shared.pools.all().iter().flat_map(|pool| of_pool(pool)).collect();
    all.sort_by(|a, b| b.script_seconds.total_cmp(&a.script_seconds));
    all.truncate(MAX_ROUTES_SHOWN);
    all
}

fn of_pool(pool: &Pool) -> Vec<RouteFigures> {
    let Some(metrics) = pool.metrics() else {
        return Vec::new();
    };
    let figures = metrics.classes.counted().into_iter().map(|(route, stats)| {
        let [queue, cpu, core_wait, blocked, _] = stats.parts.map(|part| part.as_secs_f64());
        RouteFigures {
            pool: pool.name.to_string(),
            route,
            requests: stats.requests,
            script_seconds: stats.script.as_secs_f64(),
            queue_seconds: queue,
            cpu_seconds: cpu,
            core_wait_seconds: core_wait,
            blocked_seconds: blocked,
            peak_memory_bytes: stats.peak_memory,
        }
    });
    figures.collect()
}
