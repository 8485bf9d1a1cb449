//! Metrics of pools. Their names hold letters, digits, `_` and `-`, as do the names of routes, so
//! labels need no escapes. Counters are declared in crate `scoreboard` (`Counter`).

use std::sync::Arc;
use std::time::Duration;

use maitred_scoreboard::{
    ApplicationMemory, Cause, Copies, NOT_REWOUND, OpcacheStats, Reading, RequestOutcome, Size,
};

use crate::admin::exposition::{MetricFamily, Samples};
use crate::pool::route_metrics::{PARTS, POWERS, RouteStats};

/// The data of a pool's metrics.
pub struct PoolFigures {
    pub name: String,
    pub queue_limit: u32,
    pub workers_limit: u32,
    pub reading: Reading,
    pub spool_bytes: u64,
    pub classes: Vec<(String, RouteStats)>,
    /// Read when its metrics are written: what it has may be large, and pools are many.
    pub application: Option<Arc<ApplicationMemory>>,
}

/// Metrics of each pool.
pub const POOL: &[MetricFamily<PoolFigures>] = &[
    MetricFamily::gauge(
        "maitred_pool_queue_length",
        "Requests that wait for a worker.",
        |pool, out| out.value(pool.reading.queued),
    ),
    MetricFamily::gauge(
        "maitred_pool_queue_length_max",
        "Most requests that ever waited at once.",
        |pool, out| out.value(pool.reading.max_queued),
    ),
    MetricFamily::gauge(
        "maitred_pool_queue_length_limit",
        "Requests that may wait (request_queue_length).",
        |pool, out| out.value(pool.queue_limit),
    ),
    MetricFamily::histogram(
        "maitred_pool_queue_wait_seconds",
        "Time that requests waited for a worker.",
        |pool, out| out.times(&pool.reading.total.waits),
    ),
    MetricFamily::histogram("maitred_pool_script_seconds", "Run time of scripts.", |pool, out| {
        out.times(&pool.reading.total.scripts)
    }),
    MetricFamily::histogram(
        "maitred_pool_cpu_seconds",
        "CPU time of requests in their worker.",
        |pool, out| out.times(&pool.reading.total.cpu),
    ),
    MetricFamily::histogram(
        "maitred_pool_core_wait_seconds",
        "Time that requests were runnable in their worker without a CPU.",
        |pool, out| out.times(&pool.reading.total.core_waits),
    ),
    MetricFamily::histogram(
        "maitred_pool_blocked_seconds",
        "Time that scripts were blocked on anything but a CPU.",
        |pool, out| out.times(&pool.reading.total.blocked),
    ),
    MetricFamily::histogram(
        "maitred_pool_peak_memory_bytes",
        "Peak PHP memory of each script.",
        |pool, out| out.kilobytes(&pool.reading.peak_memory),
    ),
    MetricFamily::counter_by(
        "maitred_pool_requests_total",
        "Requests by how they ended.",
        ("outcome", RequestOutcome::NAMES),
        |pool, out| outcomes(pool, out, "outcome", |_| true),
    ),
    MetricFamily::counter_by(
        "maitred_pool_refused_requests_total",
        "Requests that no worker ran, with a 503; part of requests_total.",
        ("reason", &[]),
        |pool, out| outcomes(pool, out, "reason", RequestOutcome::is_rejection),
    ),
    MetricFamily::counter_by(
        "maitred_pool_failed_requests_total",
        "Requests that failed, with a 502, 504 or 500; part of requests_total.",
        ("reason", &[]),
        |pool, out| outcomes(pool, out, "reason", RequestOutcome::is_failure),
    ),
    MetricFamily::gauge_by(
        "maitred_pool_workers",
        "Workers by state.",
        ("state", &["busy", "idle", "starting"]),
        |pool, out| {
            let Reading { busy, seated, coming, .. } = pool.reading;
            // The two are counted by two processes, and may be some moments apart.
            let busy = busy.min(seated);
            let states = [("busy", busy), ("idle", seated - busy), ("starting", coming)];
            out.all("state", states);
        },
    ),
    MetricFamily::gauge(
        "maitred_pool_workers_limit",
        "Workers that there may be (max_children).",
        |pool, out| out.value(pool.workers_limit),
    ),
    MetricFamily::gauge(
        "maitred_pool_workers_busy_max",
        "Most workers that ever ran a script at once.",
        |pool, out| out.value(pool.reading.max_busy),
    ),
    MetricFamily::counter_by(
        "maitred_pool_workers_exited_total",
        "Workers that have exited, by reason.",
        ("reason", Cause::NAMES),
        |pool, out| {
            let all = Cause::ALL.into_iter();
            let ended = |cause: Cause| pool.reading.ended[cause as usize];
            out.all("reason", all.map(|cause| (cause.name(), ended(cause))));
        },
    ),
    MetricFamily::counter_by(
        "maitred_pool_worker_crashes_total",
        "Workers that a signal killed, by its number.",
        ("signal", &[]),
        |pool, out| {
            for (signal, count) in &pool.reading.signals {
                out.labelled("signal", &signal.to_string(), count);
            }
        },
    ),
    MetricFamily::gauge(
        "maitred_pool_private_memory_bytes",
        "Private memory of all the pool's processes together.",
        |pool, out| out.value(pool.reading.private_bytes),
    ),
    MetricFamily::gauge(
        "maitred_pool_shared_memory_bytes",
        "Shared memory of the pool's process with the most.",
        |pool, out| out.value(pool.reading.shared_bytes),
    ),
    MetricFamily::gauge(
        "maitred_pool_spool_bytes",
        "Bytes of the pool's request bodies and unread responses in files in spool_dir.",
        |pool, out| out.value(pool.spool_bytes),
    ),
];

fn outcomes(
    pool: &PoolFigures,
    out: &mut Samples<'_>,
    label: &str,
    shows: fn(RequestOutcome) -> bool,
) {
    let all = RequestOutcome::ALL.into_iter().filter(|outcome| shows(*outcome));
    let count = |outcome: RequestOutcome| pool.reading.outcomes[outcome as usize];
    out.all(label, all.map(|outcome| (outcome.metric_name(), count(outcome))));
}

/// Metrics of each route of a pool.
pub const ROUTE: &[MetricFamily<RouteStats>] = &[
    MetricFamily::histogram(
        "maitred_pool_route_script_seconds",
        "Run time of scripts, by route.",
        |route, out| {
            let mut below = 0;
            let buckets = POWERS.iter().zip(route.below).map(|(power, count)| {
                below += count;
                ((1u64 << power) as f64 / 1e6, below)
            });
            out.buckets(buckets, route.requests, route.script.as_secs_f64());
        },
    ),
    MetricFamily::counter_by(
        "maitred_pool_route_seconds_total",
        "Where the time of requests went, by route.",
        ("part", &PARTS),
        |route, out| {
            for (part, time) in PARTS.iter().zip(route.parts) {
                out.labelled("part", part, time.as_secs_f64());
            }
        },
    ),
];

/// Metrics of the OPcache of each pool, with the age of its statistics.
pub const OPCACHE: &[MetricFamily<(OpcacheStats, Duration)>] = &[
    MetricFamily::gauge_by(
        "maitred_pool_opcache_memory_bytes",
        "Memory of OPcache by use.",
        ("state", &["used", "free", "wasted"]),
        |(cache, _), out| {
            let OpcacheStats { used_bytes, free_bytes, wasted_bytes, .. } = *cache;
            let states = [("used", used_bytes), ("free", free_bytes), ("wasted", wasted_bytes)];
            out.all("state", states);
        },
    ),
    MetricFamily::gauge(
        "maitred_pool_opcache_scripts",
        "Scripts in OPcache.",
        |(cache, _), out| out.value(cache.scripts),
    ),
    MetricFamily::counter(
        "maitred_pool_opcache_hits_total",
        "Lookups that found their script in OPcache.",
        |(cache, _), out| out.value(cache.hits),
    ),
    MetricFamily::counter(
        "maitred_pool_opcache_misses_total",
        "Lookups that did not find their script in OPcache.",
        |(cache, _), out| out.value(cache.misses),
    ),
    MetricFamily::counter_by(
        "maitred_pool_opcache_restarts_total",
        "Restarts of OPcache, by reason.",
        ("reason", &["oom", "hash", "manual"]),
        |(cache, _), out| {
            let OpcacheStats { oom_restarts: oom, hash_restarts: hash, .. } = *cache;
            out.all("reason", [("oom", oom), ("hash", hash), ("manual", cache.manual_restarts)]);
        },
    ),
    MetricFamily::gauge(
        "maitred_pool_opcache_age_seconds",
        "Age of the OPcache metrics.",
        |(_, age), out| out.value(age.as_secs()),
    ),
];

/// Metrics of each pool with `pm = "auto"`.
pub const SIZE: &[MetricFamily<Size>] = &[
    MetricFamily::gauge(
        "maitred_pool_workers_target",
        "Workers that pm = auto wants.",
        |size, out| out.value(size.workers),
    ),
    MetricFamily::gauge_by(
        "maitred_pool_workers_term",
        "Workers that each term allows; terms that are no limit are left out.",
        ("term", &TERMS),
        |size, out| {
            let terms = size.terms().into_iter();
            out.all("term", terms.filter_map(|(term, workers)| Some((term, workers?))));
        },
    ),
    MetricFamily::gauge_by(
        "maitred_pool_workers_binding",
        "1 for the term that decides.",
        ("term", &TERMS),
        |size, out| {
            let decides = |term: &str| u64::from(term == size.binding_name());
            out.all("term", TERMS.map(|term| (term, decides(term))));
        },
    ),
    MetricFamily::gauge("maitred_pool_cores", "CPUs that the pool may use.", |size, out| {
        out.value(size.cores as f64 / 1000.0)
    }),
    MetricFamily::gauge(
        "maitred_pool_workers_hanging",
        "Workers whose script has run far longer than usual.",
        |size, out| out.value(size.hanging),
    ),
];

/// The names of [`Size::terms`].
const TERMS: [&str; 5] = ["demand", "cpu", "memory", "downstream", "max_children"];

/// Metrics of each pool with `mode = "snapshot"`, with its number of idle copies.
pub const COPIES: &[MetricFamily<(Copies, u64)>] = &[
    MetricFamily::gauge(
        "maitred_pool_copies_generation",
        "Generation whose copies serve; each boot for new code adds one.",
        |(copies, _), out| out.value(copies.generation),
    ),
    MetricFamily::gauge(
        "maitred_pool_copies_spare",
        "Copies that are ready and idle.",
        |(_, spare), out| out.value(spare),
    ),
    MetricFamily::counter(
        "maitred_pool_copies_rewound_total",
        "Times that a copy was rewound (rewinds_per_child).",
        |(copies, _), out| out.value(copies.counters.rewound),
    ),
    MetricFamily::counter(
        "maitred_pool_copies_private_pages_total",
        "Private memory pages of copies at their exit, of those that were measured.",
        |(copies, _), out| out.value(copies.counters.pages),
    ),
    MetricFamily::counter(
        "maitred_pool_copies_measured_total",
        "Copies whose memory was measured at their exit.",
        |(copies, _), out| out.value(copies.counters.measured),
    ),
    MetricFamily::counter_by(
        "maitred_pool_copies_not_rewound_total",
        "Copies that exited instead of being rewound, by reason.",
        ("reason", &NOT_REWOUND),
        |(copies, _), out| {
            out.all("reason", NOT_REWOUND.into_iter().zip(copies.counters.not_rewound))
        },
    ),
    MetricFamily::histogram(
        "maitred_pool_copies_fork_seconds",
        "Time to fork a copy.",
        |(copies, _), out| out.times(&copies.forks),
    ),
];
