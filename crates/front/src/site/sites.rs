//! All sites, and the lookup of a request's site.

use std::collections::HashMap;
use std::sync::Arc;

use maitred_config::{AdminAccess, ClientLimits, Config};
use maitred_http1::Head;
use maitred_rules::forwarded::Trust;
use maitred_rules::networks::Networks;

use crate::cache::Cache;
use crate::http::hosts::{Hosts, host_name, https_address};
use crate::http::spool_folder::{SpoolFolder, SpoolSpace};
use crate::logging::log_limit::UpstreamLogs;
use crate::logging::pool_access_log::PoolAccessLogs;
use crate::logging::repeated::RepeatedErrors;
use crate::logging::site_log::SiteLog;
use crate::net::admin_peer::AdminPeer;
use crate::net::client_rate::Rates;
use crate::pool::pool_registry::Pools;
use crate::proxy::stats::AllProxyStats;
use crate::runtime::lookup_turns::AllTurns;
use crate::site::conf_memory::CommonMemory;
use crate::site::fastcgi_listener::FastcgiSite;
use crate::site::fastcgi_servers::FastcgiServers;
use crate::site::rate_limits::AllLimits;
use crate::site::resolver::TableLimits;
use crate::site::{SharedBySites, Site};

/// Resources shared between sites and between threads.
#[derive(Clone, Copy)]
pub struct Resources<'a> {
    /// The pools.
    pub pools: &'a Pools,
    /// The page cache; none: off.
    pub cache: Option<&'a Cache>,
    /// The state of the sites' rate limits.
    pub limits: &'a AllLimits,
    /// The counters of upstream HTTP servers.
    pub proxies: &'a AllProxyStats,
    /// The access logs of pools and sites.
    pub pool_access_logs: &'a PoolAccessLogs,
    /// The log limits of upstream FastCGI servers.
    pub upstream_logs: &'a UpstreamLogs,
    /// The repeated errors of the front.
    pub troubles: &'a Arc<RepeatedErrors>,
    /// The turns of lookups in the folders of tenants.
    pub lookups: &'a AllTurns,
    /// The account of spooled files.
    pub spool: &'a Arc<SpoolSpace>,
    /// Descriptors that the large files of one thread may have.
    pub open_files: usize,
}

impl Resources<'_> {
    /// `spool_dir` of a configuration.
    pub fn spool_folder(&self, config: &Config) -> SpoolFolder {
        SpoolFolder { path: config.spool_dir.clone(), space: self.spool.clone() }
    }
}

/// All sites, in one thread.
pub struct Sites {
    /// The trusted proxies.
    pub trust: Trust,
    /// Access to the admin listener.
    pub admin: AdminAccess,
    /// Whether the admin listener has an address.
    is_admin_on_tcp: bool,
    /// Whether responses carry the request id.
    pub sends_request_id: bool,
    /// Connections start with the PROXY protocol.
    pub(crate) is_proxied: bool,
    pub(crate) rates: Rates,
    pub(crate) clients: ClientLimits,
    pub(crate) spool_max_size: Option<u64>,
    hosts: Hosts,
    sites: Vec<Arc<Site>>,
    /// The limits of each of their folders.
    limits: TableLimits,
    conf_memory: CommonMemory,
    servers: Arc<FastcgiServers>,
    /// By listen address.
    listeners: HashMap<String, FastcgiSite>,
    /// The redirect of plain HTTP, if any.
    redirect: Option<Redirect>,
}

/// The redirect of plain HTTP to HTTPS.
pub(crate) struct Redirect {
    status: u16,
    port: u16,
}

impl Sites {
    /// All sites.
    pub fn all(&self) -> &[Arc<Site>] {
        &self.sites
    }

    /// Access to the admin listener for a client that connected as `peer`; none: a reload has
    /// removed the listener.
    pub fn admin_access(&self, peer: AdminPeer) -> Option<&AdminAccess> {
        let has_listener = match peer {
            AdminPeer::Tcp => self.is_admin_on_tcp,
            AdminPeer::Unix(_) => self.admin.socket.is_some(),
        };
        has_listener.then_some(&self.admin)
    }

    /// The site for the authority of a request.
    pub fn site_for(&self, authority: &str) -> Option<&Arc<Site>> {
        self.sites.get(self.hosts.site_for(authority)?)
    }

    /// The redirect of a request to HTTPS (status and URL), if it is redirected.
    pub fn redirect(&self, is_https: bool, host: &str, head: &Head) -> Option<(u16, String)> {
        let redirect = self.redirect.as_ref().filter(|_| !is_https)?;
        let (host, target) = (host_name(host), head.target());
        // A request for the whole server has no path.
        let target = if target == "*" { "/" } else { target };
        Some((redirect.status, https_address(host, redirect.port, target)))
    }

    /// The FastCGI listener at an address.
    pub fn listener(&self, listen: &str) -> Option<&FastcgiSite> {
        self.listeners.get(listen)
    }

    /// Closes the files that are held open and were not requested since the previous call.
    pub(crate) fn close_idle(&self) {
        self.sites.iter().for_each(|site| site.close_idle());
    }

    /// Opens the folders of every site, one after the other.
    pub(crate) async fn open_roots(&self) {
        for site in &self.sites {
            site.open_roots().await;
        }
    }

    /// The sites of a configuration. A site with the same settings as `before` is reused, with
    /// its files in memory.
    pub(crate) fn open(
        config: &Config,
        resources: Resources<'_>,
        before: Option<&Sites>,
    ) -> Result<Sites, String> {
        let count = config.sites.len().max(1);
        let with_htaccess = config.sites.iter().filter(|site| site.rules.htaccess).count().max(1);
        let limits = TableLimits {
            memory: FILE_MEMORY_BYTES / count,
            open_files: open_files_of_each(&config.sites, resources.open_files),
            decisions: (DECISION_MEMORY_BYTES / with_htaccess).max(LEAST_DECISION_BYTES),
            ..TableLimits::default()
        };
        let conf_memory = before.map(|before| before.conf_memory.clone()).unwrap_or_default();
        let servers = FastcgiServers::of(config);
        let servers = match before.filter(|before| *before.servers == servers) {
            Some(before) => Arc::clone(&before.servers),
            None => Arc::new(servers),
        };
        // With another number of sites or folders, each has another share.
        let before = before.filter(|before| before.limits == limits);
        resources.limits.forget_unused();
        let before = before.iter().flat_map(|before| &before.sites);
        let before: HashMap<_, _> = before.map(|site| (&site.settings.hosts, site)).collect();
        let mut sites = Vec::with_capacity(count);
        for settings in &config.sites {
            let same = before
                .get(&settings.hosts)
                .filter(|site| site.settings == *settings && site.spool.path == config.spool_dir)
                .filter(|site| site.has_modes_of(config))
                .filter(|site| site.has_users_of(config))
                .filter(|site| site.has_tenants_of(config, resources.lookups))
                .filter(|site| !settings.rules.htaccess || Arc::ptr_eq(&site.servers, &servers))
                // Its log may have been opened only now.
                .filter(|site| {
                    let log = SiteLog::of(&settings.access_log, resources.pool_access_logs);
                    site.access_log.is_same_as(&log)
                })
                // With another user of its pool, it is another tenant's.
                .filter(|site| {
                    let cache = site.cache.as_ref();
                    cache.is_none_or(|cache| cache.key == settings.key(config))
                });
            sites.push(match same {
                Some(&site) => site.clone(),
                None => {
                    let conf_memory = &conf_memory;
                    let shared = SharedBySites { limits, conf_memory, servers: &servers };
                    Arc::new(Site::open(config, resources, settings, shared)?)
                }
            });
        }
        Ok(Sites {
            trust: Trust {
                proxies: Networks::new(&config.trusted_proxies),
                fields: config.trusted_headers.clone(),
                is_recursive: config.trusted_recursive,
            },
            admin: config.admin_access.clone(),
            is_admin_on_tcp: config.admin.is_some(),
            sends_request_id: config.send_request_id,
            is_proxied: config.proxy_protocol,
            rates: Rates { request: config.min_request_rate, response: config.min_response_rate },
            clients: config.clients.clone(),
            spool_max_size: config.spool_max_size,
            hosts: Hosts::of(&config.sites),
            sites,
            limits,
            conf_memory,
            servers,
            listeners: FastcgiSite::all(config, resources).into_iter().collect(),
            redirect: config.tls.as_ref().and_then(|tls| {
                let (status, port) = (tls.redirect?, tls.port());
                Some(Redirect { status, port })
            }),
        })
    }
}

/// The share of each folder of the sites in the descriptors of a thread. Precompressed files of a
/// folder may have half as many again ([`crate::site::compress::Siblings`]).
fn open_files_of_each(sites: &[maitred_config::Site], open_files: usize) -> usize {
    let folders = |site: &maitred_config::Site| {
        1 + site.rules.aliases.len() + site.output.sendfile_roots.len()
    };
    let folders: usize = sites.iter().map(folders).sum();
    (open_files * 2 / 3 / folders.max(1)).min(TableLimits::default().open_files)
}

/// Memory for decisions by `.htaccess` files, in bytes, for each front thread: divided between the
/// sites with such files, unless [`LEAST_DECISION_BYTES`] of each are more.
const DECISION_MEMORY_BYTES: usize = 32 * 1024 * 1024;

/// A site's part of it at least: some dozens of decisions.
const LEAST_DECISION_BYTES: usize = 256 * 1024;

/// Memory for the contents of small files, in bytes, for each front thread.
pub(crate) const FILE_MEMORY_BYTES: usize = 32 * 1024 * 1024;
