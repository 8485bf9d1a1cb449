//! Metrics of the page cache, of proxied servers and of clients.

use std::collections::BTreeMap;

use maitred_control::admin::{CachedSite, PageCache, PageTier, ProxyServer};
use maitred_control::nodes::NodeStatus;
use maitred_control::purge_log::{PeerState, PurgeLogState};
use maitred_control::scale::{NodeScale, PoolScale};

use crate::admin::exposition::{MetricFamily, Samples};
use crate::cache::cache_stats::RESULTS as CACHE_RESULTS;
use crate::proxy::stats::RESULTS as PROXY_RESULTS;

/// Metrics of each site with a page cache.
pub const CACHED_SITE: &[MetricFamily<CachedSite>] = &[
    MetricFamily::counter_by(
        "maitred_cache_requests_total",
        "Requests for scripts at sites with a page cache, by result.",
        ("result", &CACHE_RESULTS),
        |site, out| counts(out, "result", &site.requests),
    ),
    MetricFamily::counter_by(
        "maitred_cache_bypasses_total",
        "Requests that bypassed the page cache, by reason.",
        ("reason", &[]),
        |site, out| some(out, "reason", &site.bypasses),
    ),
    MetricFamily::counter_by(
        "maitred_cache_not_stored_total",
        "Responses of scripts that were not stored, by reason.",
        ("reason", &[]),
        |site, out| some(out, "reason", &site.not_stored),
    ),
    MetricFamily::counter(
        "maitred_cache_stored_total",
        "Responses of scripts that were stored.",
        |site, out| out.value(site.stored),
    ),
    MetricFamily::counter(
        "maitred_cache_purges_total",
        "Purges of pages, prefixes, hosts, tags and sites.",
        |site, out| out.value(site.purges),
    ),
    MetricFamily::counter(
        "maitred_cache_saved_bytes_total",
        "Bytes of response bodies that were sent without running a script.",
        |site, out| out.value(site.saved_bytes),
    ),
    MetricFamily::counter(
        "maitred_cache_saved_script_seconds_total",
        "Script time that cached pages saved.",
        |site, out| out.value(site.saved_script_seconds),
    ),
];

/// Metrics of each tier of the page cache.
pub const CACHE_TIER: &[MetricFamily<PageTier>] = &[
    MetricFamily::gauge("maitred_cache_pages", "Cached pages.", |tier, out| {
        out.value(tier.pages);
    }),
    MetricFamily::gauge("maitred_cache_bytes", "Bytes of cached pages.", |tier, out| {
        out.value(tier.bytes);
    }),
    MetricFamily::gauge(
        "maitred_cache_limit_bytes",
        "Bytes that cached pages may take (cache_memory, cache_max_size).",
        |tier, out| out.value(tier.limit_bytes),
    ),
    MetricFamily::counter(
        "maitred_cache_evictions_total",
        "Pages that were evicted for others.",
        |tier, out| out.value(tier.evicted),
    ),
];

/// Metrics of the page cache.
pub const CACHE: &[MetricFamily<PageCache>] = &[
    MetricFamily::gauge(
        "maitred_cache_filling",
        "Pages that are being generated, each for all requests that wait for it.",
        |cache, out| out.value(cache.filling),
    ),
    MetricFamily::gauge(
        "maitred_cache_waiting",
        "Requests that wait for a page that is being generated.",
        |cache, out| out.value(cache.waiting),
    ),
    MetricFamily::gauge(
        "maitred_cache_active_purges",
        "Purges that still apply to cached pages.",
        |cache, out| out.value(cache.active_purges),
    ),
    MetricFamily::counter(
        "maitred_cache_corrupt_files_total",
        "Corrupt files of cached pages.",
        |cache, out| out.value(cache.corrupt_files),
    ),
    MetricFamily::counter(
        "maitred_cache_write_errors_total",
        "Pages that could not be written to the disk or evicted from it.",
        |cache, out| out.value(cache.write_errors),
    ),
];

/// Metrics of each proxied HTTP server.
pub const PROXY: &[MetricFamily<ProxyServer>] = &[
    MetricFamily::counter_by(
        "maitred_proxy_requests_total",
        "Requests to proxied HTTP servers, by result; 1xx are WebSockets.",
        ("result", &PROXY_RESULTS),
        |server, out| counts(out, "result", &server.requests),
    ),
    MetricFamily::counter(
        "maitred_proxy_request_seconds_total",
        "Time that these requests took, without WebSockets.",
        |server, out| out.value(server.request_seconds),
    ),
    MetricFamily::gauge(
        "maitred_proxy_active_requests",
        "Requests in flight, with WebSockets.",
        |server, out| out.value(server.active_requests),
    ),
    MetricFamily::counter(
        "maitred_proxy_connections_total",
        "Connections that were opened to the server.",
        |server, out| out.value(server.connections),
    ),
];

/// Resources used by clients.
pub struct Clients {
    pub memory_bytes: usize,
    pub rejected_requests: u64,
    pub rejected_connections: u64,
    pub spool_bytes: u64,
    /// None: not known before the first file.
    pub spool_limit_bytes: Option<u64>,
}

/// Metrics of all clients together.
pub const CLIENTS: &[MetricFamily<Clients>] = &[
    MetricFamily::gauge(
        "maitred_request_memory_bytes",
        "Memory of requests in flight beyond the fixed buffers of connections.",
        |clients, out| out.value(clients.memory_bytes),
    ),
    MetricFamily::counter(
        "maitred_rejected_requests_total",
        "Requests that were rejected because requests in flight hold too much memory.",
        |clients, out| out.value(clients.rejected_requests),
    ),
    MetricFamily::counter(
        "maitred_rejected_connections_total",
        "Connections that were closed because their client's address has too many.",
        |clients, out| out.value(clients.rejected_connections),
    ),
    MetricFamily::gauge(
        "maitred_spool_bytes",
        "Bytes of request bodies and unread responses in files in spool_dir.",
        |clients, out| out.value(clients.spool_bytes),
    ),
    MetricFamily::gauge(
        "maitred_spool_limit_bytes",
        "Bytes that these files may have (spool_max_size); missing until there is one.",
        |clients, out| {
            if let Some(limit) = clients.spool_limit_bytes {
                out.value(limit);
            }
        },
    ),
];

/// Metrics of traces.
pub const TRACES: &[MetricFamily<[(&str, u64); 4]>] = &[MetricFamily::counter_by(
    "maitred_trace_spans_total",
    "Spans that were to be exported, by result.",
    ("result", &["exported", "rejected", "failed", "dropped"]),
    |spans, out| out.all("result", *spans),
)];

/// Metrics of the purge log.
pub const PURGE_LOG: &[MetricFamily<PurgeLogState>] = &[
    MetricFamily::gauge(
        "maitred_purge_log_connected",
        "1 while Redis is reached, or all peers are.",
        |log, out| out.value(u64::from(log.is_connected)),
    ),
    MetricFamily::gauge(
        "maitred_purge_log_waiting",
        "Purges of this node that other nodes have still to be sent.",
        |log, out| out.value(log.waiting),
    ),
];

/// Metrics of each peer of a purge log without Redis.
pub const PURGE_PEER: &[MetricFamily<PeerState>] = &[
    MetricFamily::gauge(
        "maitred_purge_log_peer_connected",
        "1 while both nodes have reached the other.",
        |peer, out| out.value(u64::from(peer.connected)),
    ),
    MetricFamily::gauge(
        "maitred_purge_log_peer_behind",
        "Purges of this node that the peer has not applied.",
        |peer, out| out.value(peer.behind),
    ),
];

/// Metrics of each node with one purge log, as it announces them.
pub const KNOWN_NODE: &[MetricFamily<NodeStatus>] = &[
    MetricFamily::gauge(
        "maitred_node_announced_seconds",
        "Time since the node has last announced itself; from 15 s on it is silent.",
        |node, out| out.value(node.age_seconds),
    ),
    MetricFamily::gauge(
        "maitred_node_ready",
        "1 if the node has said that it is ready for clients.",
        |node, out| out.value(u64::from(node.ready)),
    ),
    MetricFamily::gauge(
        "maitred_node_saturation",
        "What requests need as a part of the node's nearest limit; 1 is all of it.",
        |node, out| out.value(node.saturation),
    ),
    MetricFamily::gauge(
        "maitred_node_queue_wait_p95_seconds",
        "Time that 95 of a hundred recent requests waited less for a worker, in its worst pool.",
        |node, out| out.value(node.queue_seconds),
    ),
    MetricFamily::gauge(
        "maitred_node_requests_per_minute",
        "Requests to scripts within a minute.",
        |node, out| out.value(node.requests_per_minute),
    ),
    MetricFamily::gauge(
        "maitred_node_failed_per_minute",
        "Requests within a minute that failed or were refused.",
        |node, out| out.value(node.failed_per_minute),
    ),
];

/// The load of the node, for autoscalers.
pub const NODE: &[MetricFamily<NodeScale>] = &[
    MetricFamily::gauge(
        "maitred_saturation",
        "What requests need as a part of the node's nearest limit; 1 is all of it.",
        |node, out| out.value(node.saturation),
    ),
    MetricFamily::gauge(
        "maitred_queue_wait_p95_seconds",
        "Time that 95 of a hundred recent requests waited less for a worker, in the worst pool.",
        |node, out| out.value(node.queue_seconds),
    ),
];

/// The load of each pool, for autoscalers.
pub const LOAD: &[MetricFamily<PoolScale>] = &[
    MetricFamily::gauge(
        "maitred_pool_saturation",
        "What requests need as a part of the pool's nearest limit here; 1 is all of it.",
        |pool, out| out.value(pool.saturation),
    ),
    MetricFamily::gauge_by(
        "maitred_pool_saturation_nearest",
        "1 for the nearest limit.",
        ("limit", &["cpu", "memory", "max_children"]),
        |pool, out| {
            let is_nearest = |limit: &str| u64::from(limit == pool.nearest);
            out.all("limit", ["cpu", "memory", "max_children"].map(|one| (one, is_nearest(one))));
        },
    ),
    MetricFamily::gauge(
        "maitred_pool_queue_wait_p95_seconds",
        "Time that 95 of a hundred requests of the last 15 seconds waited less for a worker.",
        |pool, out| out.value(pool.queue_seconds),
    ),
    MetricFamily::gauge(
        "maitred_pool_waits_downstream",
        "1 while requests wait longer for what all nodes share than they did before.",
        |pool, out| out.value(u64::from(pool.waits_downstream)),
    ),
];

fn counts(out: &mut Samples<'_>, label: &str, counts: &BTreeMap<String, u64>) {
    out.all(label, counts.iter().map(|(name, count)| (name.as_str(), *count)));
}

/// Reasons are many, and most never occur.
fn some(out: &mut Samples<'_>, label: &str, counts: &BTreeMap<String, u64>) {
    let some = counts.iter().filter(|(_, count)| **count > 0);
    out.all(label, some.map(|(name, count)| (name.as_str(), *count)));
}
