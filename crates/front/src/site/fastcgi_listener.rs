//! What is behind a door: a pool, or its status alone, and who may come in.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use maitred_config::{Config, Door, Pool as Settings};

use crate::backend::Backend;
use crate::logging::pool_access_log::DoorLog;
use crate::pool::Pool;
use crate::site::sites::Resources;

/// A door, as one thread sees it.
pub struct DoorSite {
    /// Where its scripts run: in a pool of ours.
    pub backend: Backend,
    pool: Arc<Pool>,
    /// Folder for temporary files of large bodies and answers.
    pub spool_dir: PathBuf,
    /// Nothing but status and ping is answered.
    pub is_for_status: bool,
    /// Where its requests are logged, if they are.
    pub log: Option<Arc<DoorLog>>,
    allowed: Option<Vec<IpAddr>>,
    /// Messages look as if a php-fpm worker had printed them.
    as_worker: bool,
}

impl DoorSite {
    /// All doors of a configuration, by where they listen.
    pub fn all(config: &Config, resources: Resources<'_>) -> Vec<(String, DoorSite)> {
        let mut all = Vec::new();
        for settings in &config.pools {
            let doors = [(&settings.door, false), (&settings.status_door, true)];
            for (door, is_for_status) in doors {
                if let Some(door) = door {
                    let site = DoorSite::of(config, resources, settings, door, is_for_status);
                    all.push((door.listen.to_string(), site));
                }
            }
        }
        all
    }

    fn of(
        config: &Config,
        resources: Resources<'_>,
        settings: &Settings,
        door: &Door,
        is_for_status: bool,
    ) -> DoorSite {
        // As with php-fpm, whoever asks for the status alone is not logged.
        let is_fpm = config.fpm.is_some();
        let log = resources.door_logs.of(settings, resources.troubles, is_fpm);
        let pool = resources.pools.named(&Arc::new(settings.clone()));
        DoorSite {
            backend: Backend::Pool(pool.clone()),
            pool,
            spool_dir: config.spool_dir.clone(),
            is_for_status,
            log: log.filter(|_| !is_for_status),
            allowed: door.allowed_clients.clone(),
            as_worker: is_fpm && settings.catch_workers_output,
        }
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Whether somebody at this address may come in; over a Unix socket its mode says who may. An
    /// IPv4 address is the same when it comes over IPv6.
    pub fn admits(&self, peer: Option<SocketAddr>) -> bool {
        let (Some(allowed), Some(peer)) = (&self.allowed, peer) else {
            return true;
        };
        let peer = peer.ip().to_canonical();
        allowed.iter().any(|address| address.to_canonical() == peer)
    }

    /// Somebody was not let in. php-fpm's worker says it (`fcgi_accept_request`), so whoever looks
    /// for the line expects it to be a worker's.
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
