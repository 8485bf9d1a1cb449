//! The load of this node: `/scale` and `/scale/POOL` of the admin listener, for autoscalers, and
//! the metrics of the same.

use maitred_control::scale::{NodeScale, PoolScale};
use maitred_sizing::saturation::Saturation;

use crate::pool::pool_load::cores;
use crate::pool::status::StatusPage;
use crate::services::Shared;

/// Digits after the point of a number in JSON, as a factor.
const DIGITS: f64 = 1e4;

/// Processors of a node, and what its front uses of them.
#[derive(Debug, Clone, Copy)]
struct NodeCores {
    here: f64,
    front: f64,
    /// Threads of the front: it can use no more processors than those.
    threads: f64,
}

/// The load of a node: the nearest limit of those that pools share, and of each pool.
fn node(pools: Vec<(String, Saturation)>, cores: NodeCores) -> NodeScale {
    let used = pools.iter().map(|(_, pool)| pool.cores).sum::<f64>() + cores.front;
    let here = cores.here.max(f64::MIN_POSITIVE);
    let all = [(used / here, "cpu"), (cores.front / cores.threads, "front")];
    let of_pools = pools.iter().map(|(_, pool)| (pool.value, pool.nearest.name()));
    let nearest = all.into_iter().chain(of_pools).max_by(|a, b| a.0.total_cmp(&b.0));
    let (saturation, nearest) = nearest.unwrap_or((0.0, "cpu"));
    let queue_wait = pools.iter().map(|(_, pool)| pool.queue_wait).max().unwrap_or_default();
    NodeScale {
        saturation: rounded(saturation),
        nearest: nearest.to_owned(),
        queue_seconds: rounded(queue_wait.as_secs_f64()),
        cores: rounded(used),
        pools: pools.into_iter().map(|(name, pool)| (name, of_pool(&pool))).collect(),
    }
}

fn of_pool(pool: &Saturation) -> PoolScale {
    PoolScale {
        saturation: rounded(pool.value),
        nearest: pool.nearest.name().to_owned(),
        queue_seconds: rounded(pool.queue_wait.as_secs_f64()),
        cores: rounded(pool.cores),
        workers: rounded(pool.workers),
        waits_downstream: pool.waits_downstream,
    }
}

fn rounded(number: f64) -> f64 {
    (number * DIGITS).round() / DIGITS
}

/// The load of this node now.
pub fn of(shared: &Shared) -> NodeScale {
    let pools = shared.pools.all();
    let found = pools.iter().filter_map(|pool| pool.server_cores());
    let here = found.fold(None, |most: Option<f64>, cores| Some(cores.max(most.unwrap_or(0.0))));
    let here = here.unwrap_or_else(cores);
    let pools = pools.iter().map(|pool| (pool.name.to_string(), pool.load_now()));
    let threads = f64::from(shared.threads);
    node(pools.collect(), NodeCores { here, front: shared.own_cores.read(), threads })
}

/// `/scale`.
pub fn node_page(shared: &Shared) -> StatusPage {
    page(serde_json::to_string(&of(shared)))
}

/// `/scale/POOL`; none: there is no such pool.
pub fn pool_page(shared: &Shared, name: &str) -> Option<StatusPage> {
    let pool = shared.pools.all().into_iter().find(|pool| *pool.name == *name)?;
    Some(page(serde_json::to_string(&of_pool(&pool.load_now()))))
}

fn page(json: Result<String, serde_json::Error>) -> StatusPage {
    StatusPage::new("application/json", json.unwrap_or_default() + "\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use maitred_sizing::saturation::Nearest;

    fn pool(value: f64, cores: f64) -> Saturation {
        Saturation {
            value,
            nearest: Nearest::MaxChildren,
            cores,
            workers: 3.0,
            waits_downstream: false,
            queue_wait: Duration::from_millis((value * 100.0) as u64),
        }
    }

    #[test]
    fn the_node_has_the_nearest_limit_of_all_and_the_processors_of_all_pools_together() {
        let cores = NodeCores { here: 4.0, front: 0.2, threads: 2.0 };
        let both = |one: Saturation, other: Saturation| {
            node(vec![("a".to_owned(), one), ("b".to_owned(), other)], cores)
        };
        let by_cpu = both(pool(0.4, 1.4), pool(0.5, 1.6));
        assert_eq!((by_cpu.saturation, by_cpu.nearest.as_str()), (0.8, "cpu"));
        assert_eq!((by_cpu.cores, by_cpu.queue_seconds), (3.2, 0.05));
        let by_pool = both(pool(0.4, 0.1), pool(0.9, 0.1));
        assert_eq!((by_pool.saturation, by_pool.nearest.as_str()), (0.9, "max_children"));
        let by_front = node(Vec::new(), NodeCores { front: 1.8, ..cores });
        assert_eq!((by_front.saturation, by_front.nearest.as_str()), (0.9, "front"));
    }
}
