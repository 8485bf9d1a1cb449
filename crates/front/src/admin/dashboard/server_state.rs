//! The state of the server as JSON, for the dashboard. Computed only while one is open.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use maitred_control::purge_log::PeerState;
use maitred_scoreboard::{Cause, Histogram, Reading, RequestHistograms, RequestOutcome};
use maitred_seat::WorkerState;
use serde_json::{Map, Value, json};

use crate::admin::dashboard::merge_patch::without_nulls;
use crate::admin::dashboard::{certificate_rows, node_rows};
use crate::admin::metrics::cache_figures;
use crate::admin::{node_load, readiness};
use crate::pool::Pool;
use crate::pool::route_metrics::RouteStats;
use crate::pool::status::View;
use crate::runtime::clock;
use crate::services::{Shared, Thread};

/// Most pools that are shown: those with the most requests.
const MAX_POOLS: usize = 200;

/// Most seats of a pool, sites, routes of a pool and running scripts that are shown.
const MAX_SEATS: usize = 128;
const MAX_SITES: usize = 200;
const MAX_ROUTES: usize = 12;
const MAX_RUNNING: usize = 40;

/// Most slow and failed requests that are shown.
const MAX_REQUESTS: usize = 25;

/// A script is shown once it has run this long.
const SHOWN_AFTER: Duration = Duration::from_millis(200);

/// Starts of scripts are rounded to this, in milliseconds: the clock is read twice.
const START_MS: u64 = 100;

/// Pools after which other tasks of the thread have their turn.
const TURN: usize = 8;

/// A script that runs.
struct LongScript {
    pool: Arc<str>,
    worker: WorkerState,
}

/// The state of the server for a client with this view. `selected` is the pool whose routes are
/// shown besides those of the busiest ones.
pub async fn state(thread: &Thread, view: View, selected: Option<&str>) -> Value {
    let shared = &*thread.shared;
    let mut pools: Vec<(Arc<Pool>, Reading)> =
        shared.pools.all().into_iter().filter_map(with_reading).collect();
    let hidden = pools.len().saturating_sub(MAX_POOLS);
    pools.sort_by(|(a, one), (b, other)| {
        let requests = |reading: &Reading| reading.outcomes.iter().sum::<u64>();
        requests(other).cmp(&requests(one)).then_with(|| a.name.cmp(&b.name))
    });
    pools.truncate(MAX_POOLS);
    let load = node_load::of(shared);
    let mut running = Vec::new();
    let mut all = Map::new();
    for (index, (pool, reading)) in pools.iter().enumerate() {
        let mut of_pool = pool_state(pool, reading, &mut running);
        of_pool["load"] = json!(load.pools.get(&*pool.name));
        let is_selected = selected == Some(&*pool.name);
        if view.shows_tenants() && (index == 0 || is_selected) {
            of_pool["routes"] = routes(pool);
        }
        all.insert(pool.name.to_string(), of_pool);
        if index % TURN == TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    // Tenants reach a loopback address, and are not shown each other's hosts.
    let shows_tenants = view.shows_tenants();
    let mut state = json!({
        "server": server(shared, &load, view, hidden),
        "purges": thread.sites().admin.purge_token.is_some(),
        "sites": shows_tenants.then(|| sites(thread)),
        "pools": all,
        "running": scripts(running, view),
        "requests": shows_tenants.then(|| requests(shared)),
        "stacks": (view == View::Whole).then(|| stacks(shared)),
        "cache": cache_figures(shared, view),
        "purge_log": shows_tenants.then(|| purge_log(shared)),
        "proxies": shows_tenants.then(|| shared.proxies.read()),
        "spans": shared.traces.load().as_ref().map(|_| spans(shared)),
        "changes": shared.history.changes(),
        "jobs": shows_tenants.then(|| shared.jobs.load_full()).flatten().as_deref(),
        "nodes": shows_tenants.then(|| shared.nodes.status()).flatten().map(|nodes| {
            node_rows::nodes(&nodes)
        }),
    });
    if shows_tenants {
        let (all, failures) = (shared.certificates.load(), shared.recent_requests.failures());
        certificate_rows::add_to(&mut state, &all, &failures);
    }
    without_nulls(&mut state);
    state
}

fn with_reading(pool: Arc<Pool>) -> Option<(Arc<Pool>, Reading)> {
    let reading = pool.metrics()?.page().read();
    Some((pool, reading))
}

fn server(
    shared: &Shared,
    load: &maitred_control::scale::NodeScale,
    view: View,
    hidden: usize,
) -> Value {
    let readiness = readiness::of(shared);
    let view = match view {
        View::Whole => "whole",
        View::WithoutQueries => "without queries",
        View::WithoutRequests => "without requests",
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ready": readiness.ready,
        "reason": readiness.reason,
        "states": readiness.pools,
        "view": view,
        "connections": shared.connections.load(Ordering::Relaxed),
        "max_connections": shared.max_connections,
        "threads": shared.threads,
        "saturation": rounded(load.saturation, 100.0),
        "nearest": load.nearest,
        "cores": rounded(load.cores, 100.0),
        "hidden_pools": hidden,
    })
}

fn pool_state(pool: &Arc<Pool>, reading: &Reading, running: &mut Vec<LongScript>) -> Value {
    let settings = pool.settings();
    let board = pool.snapshot();
    let mut seats: String =
        board.processes.iter().map(|worker| if worker.running { 'b' } else { 'i' }).collect();
    seats.extend((0..reading.coming.min(MAX_SEATS as u64)).map(|_| 's'));
    seats.truncate(MAX_SEATS);
    let is_long = |worker: &WorkerState| {
        worker.running && Duration::from_micros(worker.duration) >= SHOWN_AFTER
    };
    let long = board.processes.into_iter().filter(is_long);
    running.extend(long.map(|worker| LongScript { pool: pool.name.clone(), worker }));
    let outcomes = RequestOutcome::ALL.into_iter().zip(reading.outcomes);
    let counts = |is: fn(RequestOutcome) -> bool| -> Map<String, Value> {
        let some = outcomes.clone().filter(|(outcome, count)| is(*outcome) && *count > 0);
        some.map(|(outcome, count)| (outcome.metric_name().to_owned(), count.into())).collect()
    };
    let ends = Cause::ALL.into_iter().zip(reading.ended).filter(|(_, count)| *count > 0);
    let ends: Map<String, Value> =
        ends.map(|(cause, count)| (cause.name().to_owned(), count.into())).collect();
    json!({
        "pm": settings.pm.name(),
        "limit": settings.max_children,
        "queue_limit": settings.request_queue_length,
        "generation": pool.current_generation(),
        "since": board.start_time,
        "seats": seats,
        "workers": reading.seated,
        "busy": reading.busy,
        "coming": reading.coming,
        "queued": reading.queued,
        "requests": reading.outcomes.iter().sum::<u64>(),
        "refused": counts(RequestOutcome::is_rejection),
        "failed": counts(RequestOutcome::is_failure),
        "left": counts(|outcome| outcome.metric_name().starts_with("client_closed")),
        "ends": ends,
        "slow": board.slow,
        "recent": recent(&reading.recent),
        "waits": reading.waits.main().map(|main| json!({
            "for": main.name(), "found": reading.waits.of(main), "of": reading.waits.all(),
        })),
        "memory": [reading.private_bytes >> 10, kilobytes(&reading.peak_memory, 0.5),
            kilobytes(&reading.peak_memory, 0.99)],
        "opcache": reading.cache.map(|(cache, _)| json!({
            "used": cache.used_bytes >> 20, "free": cache.free_bytes >> 20,
            "wasted": cache.wasted_bytes >> 20, "scripts": cache.scripts,
            "restarts": cache.oom_restarts + cache.hash_restarts,
        })),
        "size": reading.size.map(|size| json!({
            "workers": size.workers, "binding": size.binding_name(),
            "terms": size.terms().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "hanging": size.hanging,
        })),
    })
}

/// Times of the last seconds in milliseconds: p50 and p99 in the queue and of scripts, and the
/// parts of an average script: on a processor, waiting for one, blocked.
fn recent(times: &RequestHistograms) -> Value {
    let quantile = |times: &Histogram, of: f64| times.quantile(of).map(milliseconds);
    let mean = |times: &Histogram| {
        let count = u32::try_from(times.count()).unwrap_or(u32::MAX);
        times.sum().checked_div(count).map(milliseconds)
    };
    json!({
        "count": times.scripts.count(),
        "wait": [quantile(&times.waits, 0.5), quantile(&times.waits, 0.99)],
        "script": [quantile(&times.scripts, 0.5), quantile(&times.scripts, 0.99)],
        "parts": [mean(&times.cpu), mean(&times.core_waits), mean(&times.blocked)],
    })
}

/// The routes with the most time: requests; milliseconds in all, in the queue, on a processor,
/// waiting for one, blocked; kilobytes of the script with the most memory.
fn routes(pool: &Pool) -> Value {
    let Some(metrics) = pool.metrics() else {
        return Value::Null;
    };
    let mut routes: Vec<(String, RouteStats)> = metrics.classes.read();
    routes.sort_by(|a, b| b.1.script.cmp(&a.1.script).then_with(|| a.0.cmp(&b.0)));
    routes.truncate(MAX_ROUTES);
    let row = |stats: &RouteStats| {
        let ms = |time: Duration| time.as_millis() as u64;
        let [queue, cpu, core_wait, blocked, _] = stats.parts;
        json!([
            stats.requests,
            ms(stats.script),
            ms(queue),
            ms(cpu),
            ms(core_wait),
            ms(blocked),
            stats.peak_memory >> 10
        ])
    };
    routes.iter().map(|(name, stats)| (name.clone(), row(stats))).collect::<Map<_, _>>().into()
}

/// The scripts that have run longest.
fn scripts(mut running: Vec<LongScript>, view: View) -> Vec<Value> {
    running.sort_by_key(|script| Reverse(script.worker.duration));
    running.truncate(MAX_RUNNING);
    let now = clock::since_1970();
    let script = |LongScript { pool, worker }: LongScript| {
        let begun = now.saturating_sub(Duration::from_micros(worker.duration));
        let begun = begun.as_millis() as u64 / START_MS * START_MS;
        let mut script = json!({ "pool": &*pool, "pid": worker.pid, "begun": begun });
        if view != View::WithoutRequests {
            let query = match view {
                _ if worker.query.is_empty() => String::new(),
                View::Whole => format!("?{}", worker.query),
                _ => "?***".to_owned(),
            };
            script["request"] = format!("{} {}{query}", worker.method, worker.uri).into();
        }
        script
    };
    running.into_iter().map(script).collect()
}

/// The latest slow and failed requests by number: start, pool, request, status and milliseconds.
fn requests(shared: &Shared) -> Map<String, Value> {
    let latest = shared.recent_requests.latest(MAX_REQUESTS).into_iter();
    latest
        .map(|(number, one)| {
            let row = json!([one.at, one.pool, one.request, one.status, one.took.round()]);
            (number.to_string(), row)
        })
        .collect()
}

/// The latest stacks of slow scripts by time and process: pool, script, request id, calls and
/// what is wrong with them.
fn stacks(shared: &Shared) -> Map<String, Value> {
    let latest = shared.recent_requests.stacks().into_iter();
    latest
        .map(|one| {
            let row = json!([one.at, one.pool, one.script, one.id, one.calls, one.problem]);
            (format!("{}.{}", one.at, one.pid), row)
        })
        .collect()
}

fn sites(thread: &Thread) -> Vec<Value> {
    let sites = thread.sites();
    let all = sites.all().iter().take(MAX_SITES);
    let site = |site: &Arc<crate::site::Site>| {
        let hosts: Vec<String> =
            site.settings.hosts.iter().take(4).map(ToString::to_string).collect();
        json!({ "hosts": hosts, "runs": site.backend.to_string(), "cached": site.cache.is_some() })
    };
    all.map(site).collect()
}

fn purge_log(shared: &Shared) -> Value {
    let log = shared.purge_log.load();
    let Some(log) = log.as_ref() else { return Value::Null };
    let peer = |peer: &PeerState| {
        json!({
            "address": peer.address,
            "connected": peer.connected,
            "behind": peer.behind,
        })
    };
    json!({
        "connected": log.is_connected,
        "waiting": log.waiting,
        "nodes": log.node_count,
        "peers": log.peers.iter().map(peer).collect::<Vec<_>>(),
    })
}

fn spans(shared: &Shared) -> Map<String, Value> {
    let read = shared.trace_stats.read().into_iter();
    read.map(|(result, count)| (result.to_owned(), count.into())).collect()
}

fn kilobytes(histogram: &Histogram, of: f64) -> Option<u64> {
    histogram.quantile(of).and_then(|kilobytes| u64::try_from(kilobytes.as_micros()).ok())
}

fn milliseconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3, 100.0)
}

fn rounded(number: f64, digits: f64) -> f64 {
    (number * digits).round() / digits
}
