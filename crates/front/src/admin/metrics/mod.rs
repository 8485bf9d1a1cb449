//! `/metrics`: the metrics of the server and of its pools.

use std::time::Duration;

use maitred_control::admin::{FrontFigures, PageCache};
use maitred_control::nodes::NodesStatus;
use maitred_control::purge_log::PurgeLogState;
use maitred_scoreboard::{Counter, Reading};

use crate::admin::application_metrics::{self, APPLICATION};
use crate::admin::exposition::{Format, Text};
use crate::admin::node_load;
use crate::admin::pool_metrics::{COPIES, OPCACHE, POOL, PoolFigures, ROUTE, SIZE};
use crate::admin::server_metrics::{
    CACHE, CACHE_TIER, CACHED_SITE, CLIENTS, Clients, KNOWN_NODE, LOAD, NODE, PROXY, PURGE_LOG,
    PURGE_PEER, TRACES,
};
use crate::backend::Backend;
use crate::pool::status::{StatusPage, View};
use crate::services::Shared;

/// How old metrics of OPcache may be. A zygote that hangs reports no new ones.
const OPCACHE_KNOWN: Duration = Duration::from_secs(60);

/// The page, in the format that the client's `Accept` header asks for.
pub fn page(shared: &Shared, accept: &[u8], view: View) -> StatusPage {
    // Tenants reach a loopback address, and are not shown each other's hosts.
    let shows_tenants = view.shows_tenants();
    let pools = shared.pools.all().into_iter().filter_map(|pool| {
        let settings = pool.settings();
        let metrics = pool.metrics()?;
        Some(PoolFigures {
            name: pool.name.to_string(),
            queue_limit: settings.request_queue_length,
            workers_limit: settings.max_children.unwrap_or(0),
            reading: metrics.page().read(),
            spool_bytes: shared.spool.used_by(&Backend::Pool(pool.clone()).to_string()),
            classes: if shows_tenants { metrics.classes.read() } else { Vec::new() },
            application: metrics.application.load_full().filter(|_| shows_tenants),
        })
    });
    let pools: Vec<PoolFigures> = pools.collect();
    let format = Format::accepted(accept);
    let figures = FrontFigures {
        page_cache: cache_figures(shared, view),
        proxies: if shows_tenants { shared.proxies.read() } else { Vec::new() },
        readiness: None,
        scale: Some(node_load::of(shared)),
        routes: Vec::new(),
    };
    let (spool_bytes, spool_limit_bytes) = shared.spool.read();
    let clients = Clients {
        memory_bytes: shared.requests.common_bytes(),
        rejected_requests: shared.requests.refused(),
        rejected_connections: shared.addresses.refused(),
        spool_bytes,
        spool_limit_bytes,
    };
    let spans = shared.traces.load().as_ref().map(|_| shared.trace_stats.read());
    let mut out = all(&pools, &figures, clients, format);
    if let Some(spans) = spans {
        out.write(TRACES, &[(String::new(), spans)]);
    }
    if let Some(log) = &*shared.purge_log.load()
        && shows_tenants
    {
        of_purge_log(&mut out, log);
    }
    if let Some(nodes) = shared.nodes.status()
        && shows_tenants
    {
        of_nodes(&mut out, &nodes);
    }
    StatusPage::new(format.content_type(), out.finish())
}

/// The figures of the page cache, of sites only for a client that may see their hosts.
pub fn cache_figures(shared: &Shared, view: View) -> Option<PageCache> {
    let mut cache = shared.cache.as_ref()?.figures()?;
    if !view.shows_tenants() {
        cache.sites.clear();
    }
    Some(cache)
}

fn all(pools: &[PoolFigures], figures: &FrontFigures, clients: Clients, format: Format) -> Text {
    let mut out = Text::new(format);
    let (name, version) = ("maitred_info", env!("CARGO_PKG_VERSION"));
    out.declare(name, "gauge", "The running version.");
    out.samples(name, "").labelled("version", version, 1);
    of_pools(&mut out, pools);
    if let Some(cache) = &figures.page_cache {
        let sites = cache.sites.iter();
        let sites: Vec<_> = sites.map(|site| (label("site", &site.site), site)).collect();
        out.write(CACHED_SITE, &sites);
        let disk = cache.disk.iter().map(|tier| ("disk", tier));
        let tiers = [("memory", &cache.memory)].into_iter().chain(disk);
        let tiers: Vec<_> = tiers.map(|(name, tier)| (label("tier", name), tier)).collect();
        out.write(CACHE_TIER, &tiers);
        out.write(CACHE, &[(String::new(), cache)]);
    }
    let servers = figures.proxies.iter();
    let servers: Vec<_> = servers.map(|one| (label("server", &one.server), one)).collect();
    out.write(PROXY, &servers);
    out.write(CLIENTS, &[(String::new(), clients)]);
    if let Some(scale) = &figures.scale {
        out.write(NODE, &[(String::new(), scale)]);
        let pools = scale.pools.iter();
        out.write(LOAD, &pools.map(|(name, pool)| (label("pool", name), pool)).collect::<Vec<_>>());
    }
    out
}

fn of_purge_log(out: &mut Text, log: &PurgeLogState) {
    out.write(PURGE_LOG, &[(String::new(), log)]);
    let peers = log.peers.iter();
    let peers: Vec<_> =
        peers.map(|peer| (label("peer", &peer.address.to_string()), peer)).collect();
    out.write(PURGE_PEER, &peers);
}

/// A name that several nodes have is that of the first one: samples have to differ by their labels.
fn of_nodes(out: &mut Text, nodes: &NodesStatus) {
    let mut all: Vec<_> = nodes.list.iter().map(|node| (label("node", &node.name), node)).collect();
    all.dedup_by(|one, before| one.0 == before.0);
    out.write(KNOWN_NODE, &all);
}

fn of_pools(out: &mut Text, pools: &[PoolFigures]) {
    let named = |pool: &PoolFigures| label("pool", &pool.name);
    let all: Vec<_> = pools.iter().map(|pool| (named(pool), pool)).collect();
    out.write(POOL, &all);
    for counter in Counter::ALL {
        out.declare(counter.metric(), "counter", counter.help());
        for (labels, pool) in &all {
            let value = pool.reading.counters.value(counter);
            out.samples(counter.metric(), labels).value(value);
        }
    }
    let routes = pools.iter().flat_map(|pool| {
        let route = |class: &str| format!("{},{}", named(pool), label("route", class));
        pool.classes.iter().map(move |(class, figures)| (route(class), figures))
    });
    out.write(ROUTE, &routes.collect::<Vec<_>>());
    let now = maitred_scoreboard::now();
    let caches = pools.iter().filter_map(|pool| {
        let (cache, at) = pool.reading.cache?;
        let age = now.saturating_sub(at);
        (age <= OPCACHE_KNOWN).then_some((named(pool), (cache, age)))
    });
    out.write(OPCACHE, &caches.collect::<Vec<_>>());
    let sizes = pools.iter().filter_map(|pool| Some((named(pool), pool.reading.size?)));
    out.write(SIZE, &sizes.collect::<Vec<_>>());
    let copies = pools.iter().filter_map(|pool| {
        let Reading { seated, busy, .. } = pool.reading;
        let copies = pool.reading.copies.as_ref()?;
        Some((named(pool), (copies.clone(), seated.saturating_sub(busy))))
    });
    out.write(COPIES, &copies.collect::<Vec<_>>());
    let applications = pools.iter().filter_map(|pool| {
        let memory = pool.application.as_ref()?;
        Some((pool.name.as_str(), memory))
    });
    let applications: Vec<_> = applications.collect();
    let readings = applications.iter().map(|(name, memory)| (*name, memory.read()));
    let figures = application_metrics::write(out, readings);
    let names = applications.iter().map(|(name, _)| label("pool", name));
    out.write(APPLICATION, &names.zip(figures).collect::<Vec<_>>());
}

/// A label. A server's name may be the path of a Unix socket, with any character in it.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod metrics_reference;
#[cfg(test)]
mod tests;
