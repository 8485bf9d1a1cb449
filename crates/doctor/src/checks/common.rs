//! Helpers of several checks.

use std::time::Duration;

use maitred_text::humanize;

use crate::facts::{Facts, Pass, PhpServer, Pool, Service, Unknown};
use crate::quantile::quantile;

/// Why a log cannot be attributed to one of several pools.
pub(super) const OF_ALL_POOLS: &str = "the access log is of all pools, and there are several";

/// A worker has the memory of its application only after this many requests.
const SETTLED_AFTER_REQUESTS: u64 = 20;

/// The time of a setting.
pub(super) fn setting_time(time: Duration) -> String {
    humanize::duration(time.as_secs_f64())
}

/// Private memory that 95 of 100 settled workers do not exceed.
pub(super) fn private_p95(pool: &Pool) -> Option<f64> {
    let workers = pool.workers().ok()?;
    let settled = workers.iter().filter(|worker| {
        let requests = worker.requests.as_ref();
        requests.is_ok_and(|requests| *requests >= SETTLED_AFTER_REQUESTS)
    });
    let private = settled.filter_map(|worker| worker.private.as_ref().ok().copied());
    quantile(private.collect(), 0.95)
}

/// Where web servers pass requests to a pool.
pub(super) fn passes_to<'f>(facts: &'f Facts, pool: &Pool) -> Vec<&'f Pass> {
    let Some(listen) = &pool.listen else {
        return Vec::new();
    };
    let nginx = facts.nginx.iter().flat_map(|nginx| &nginx.passes);
    let apache = facts.apache.iter().flat_map(|apache| &apache.passes);
    let all = nginx.chain(apache);
    all.filter(|pass| pass.meets(listen)).collect()
}

/// Why the web server before a pool is unknown, although one is configured here.
pub(super) fn unmet(facts: &Facts, service: &Service, pool: &Pool) -> Option<Unknown> {
    let is_behind = matches!(service.kind, PhpServer::PhpFpm | PhpServer::MaitredFpm);
    let has_web_server = facts.nginx.is_some() || facts.apache.is_some();
    (is_behind && has_web_server && passes_to(facts, pool).is_empty()).then(|| {
        let listen = pool.listen.as_ref();
        let address = listen.map_or("which is not set", |listen| listen.address.as_str());
        Unknown(format!(
            "a web server is configured here, but no place of it is seen to pass requests to the \
             pool's address ({address})"
        ))
    })
}
