//! A FastCGI listener: its pool, or only the pool's status, and the allowed clients.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use maitred_config::{Config, FastcgiListener, Pool as Settings};

use crate::backend::Backend;
use crate::http::spool_folder::{SpoolFolder, SpoolPlace};
use crate::logging::pool_access_log::PoolAccessLog;
use crate::pool::Pool;
use crate::runtime::lookup_turns::Tenant;
use crate::site::sites::Resources;
use crate::site::tenant_of_pool;

/// A FastCGI listener, for one thread.
pub struct FastcgiSite {
    /// The pool that runs its scripts.
    pub backend: Backend,
    pool: Arc<Pool>,
    /// Folder for temporary files of large bodies and responses.
    pub spool: SpoolFolder,
    /// Whether it serves only status page and ping.
    pub is_for_status: bool,
    /// Its access log, if any.
    pub log: Option<Arc<PoolAccessLog>>,
    allowed: Option<Vec<IpAddr>>,
    /// Messages look like those of a php-fpm worker.
    as_worker: bool,
    /// The tenant of the pool, which counts as served.
    _tenant: Arc<Tenant>,
}

impl FastcgiSite {
    /// All FastCGI listeners of a configuration, by their addresses.
    pub fn all(config: &Config, resources: Resources<'_>) -> Vec<(String, FastcgiSite)> {
        let mut all = Vec::new();
        for settings in &config.pools {
            let listeners = [(&settings.listener, false), (&settings.status_listener, true)];
            for (listener, is_for_status) in listeners {
                if let Some(listener) = listener {
                    let site =
                        FastcgiSite::of(config, resources, settings, listener, is_for_status);
                    all.push((listener.listen.to_string(), site));
                }
            }
        }
        all
    }

    fn of(
        config: &Config,
        resources: Resources<'_>,
        settings: &Settings,
        listener: &FastcgiListener,
        is_for_status: bool,
    ) -> FastcgiSite {
        // As with php-fpm, requests for the status alone are not logged.
        let is_fpm = config.fpm.is_some();
        let log = resources.pool_access_logs.of(settings, resources.troubles, is_fpm);
        let pool = resources.pools.named(&Arc::new(settings.clone()));
        FastcgiSite {
            backend: Backend::Pool(pool.clone()),
            pool,
            spool: resources.spool_folder(config),
            is_for_status,
            log: log.filter(|_| !is_for_status),
            allowed: listener.allowed_clients.clone(),
            as_worker: is_fpm && settings.catch_workers_output,
            _tenant: resources.lookups.of(&tenant_of_pool(settings)),
        }
    }

    /// Where it spools for its pool.
    pub fn place(&self) -> SpoolPlace<'_> {
        SpoolPlace { folder: &self.spool, owner: &self.backend }
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Whether this address may connect; over a Unix socket its mode decides. An IPv4-mapped IPv6
    /// address counts as IPv4.
    pub fn admits(&self, peer: Option<SocketAddr>) -> bool {
        let (Some(allowed), Some(peer)) = (&self.allowed, peer) else {
            return true;
        };
        let peer = peer.ip().to_canonical();
        allowed.iter().any(|address| address.to_canonical() == peer)
    }

    /// Logs a rejected client as a line of a worker: in php-fpm a worker logs it
    /// (`fcgi_accept_request`).
    pub fn tell_refused(&self, peer: IpAddr) {
        let words = format!(
            "Connection disallowed: IP address '{}' has been dropped.",
            peer.to_canonical()
        );
        if !self.backend.may_log(words.len()) {
            return;
        }
        if self.as_worker {
            let (pool, pid) = (&self.pool.name, std::process::id());
            tracing::warn!("[pool {pool}] child {pid} said into stderr: \"ERROR: {words}\"");
        } else {
            tracing::error!("{words}");
        }
    }
}
