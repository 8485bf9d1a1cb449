//! What all requests of a front share, and what those of one thread share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use maitred_config::{Config, Destination};
use maitred_control::Generation;
use tokio::sync::Notify;

use crate::access::AccessLog;
use crate::pool::{Pool, local};
use crate::route::{Limits, Resolver, Route, SiteFiles};
use crate::sites::Hosts;
use crate::source::Backend;
use crate::supervisor::Supervisor;

/// Memory for the contents of small files, in bytes, for each front thread.
const FILE_MEMORY_BYTES: usize = 32 * 1024 * 1024;

/// What all threads share.
#[derive(Debug)]
pub struct Shared {
    /// The configuration.
    pub config: Config,
    /// Which site a host belongs to.
    pub hosts: Hosts,
    /// The pools, in no particular order.
    pub pools: Vec<Arc<Pool>>,
    /// The access log, if there is one.
    pub access_log: Option<AccessLog>,
    /// The supervisor.
    pub supervisor: Arc<Supervisor>,
    /// Connections that are open now.
    pub connections: AtomicUsize,
    /// Most connections at once.
    pub max_connections: usize,
    draining: AtomicBool,
    /// Told when draining begins, and when a connection ends while it lasts.
    pub changed: Notify,
}

impl Shared {
    /// Everything that is known at start.
    pub fn new(
        config: Config,
        pools: Vec<Arc<Pool>>,
        access_log: Option<AccessLog>,
        supervisor: Arc<Supervisor>,
        max_connections: usize,
    ) -> Shared {
        Shared {
            hosts: Hosts::of(&config.sites),
            config,
            pools,
            access_log,
            supervisor,
            connections: AtomicUsize::new(0),
            max_connections,
            draining: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Whether the front is about to end: no connection outlives its present request.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether there are so many connections that none is kept after its answer.
    pub fn is_crowded(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > self.max_connections / 10 * 9
    }

    /// Whether no further connection can be taken.
    pub fn is_full(&self) -> bool {
        self.connections.load(Ordering::Relaxed) >= self.max_connections
    }

    /// Lets the front come to an end.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// The pool of this number.
    pub fn pool(&self, generation: Generation) -> Option<&Arc<Pool>> {
        let mut pools = self.pools.iter();
        pools.find(|pool| pool.generation == generation)
    }

    fn backend(&self, destination: &Destination) -> Option<Backend> {
        match destination {
            Destination::Upstream(upstream) => Some(Backend::Upstream(upstream.clone())),
            Destination::Pool(name) => {
                let mut pools = self.pools.iter();
                let pool = pools.find(|pool| pool.settings.name == *name);
                pool.cloned().map(Backend::Pool)
            }
        }
    }
}

/// A site, as one thread sees it.
pub struct Site {
    /// Its settings.
    pub settings: maitred_config::Site,
    /// Where its scripts run.
    pub backend: Backend,
    resolver: Mutex<Resolver>,
}

impl Site {
    /// What a path stands for.
    pub fn resolve(&self, path: &str, query: Option<&str>) -> Route {
        // Only this thread ever takes the lock; it is there because tasks may move by their type.
        let mut resolver = self.resolver.lock().unwrap_or_else(PoisonError::into_inner);
        resolver.set_moment(local::moment());
        resolver.resolve(path, query)
    }
}

/// What the requests of one thread share.
pub struct Thread {
    /// Its number, from 0.
    pub number: u32,
    /// What it shares with the others.
    pub shared: Arc<Shared>,
    sites: Vec<Site>,
    connections: AtomicUsize,
    /// Told when a connection comes and there was none.
    pub first_connection: Notify,
}

impl Thread {
    /// A connection has begun.
    pub fn count_in(&self) {
        self.shared.connections.fetch_add(1, Ordering::AcqRel);
        if self.connections.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first_connection.notify_one();
        }
    }

    /// A connection has ended.
    pub fn count_out(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.connections.fetch_sub(1, Ordering::AcqRel);
        if self.shared.is_draining() {
            self.shared.changed.notify_waiters();
        }
    }

    /// Whether this thread has connections.
    pub fn has_connections(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }

    /// Opens every site's document root.
    ///
    /// # Errors
    /// One sentence that names the root that cannot be opened.
    pub fn new(number: u32, shared: Arc<Shared>) -> Result<Thread, String> {
        let count = shared.config.sites.len().max(1);
        let limits = Limits {
            memory: FILE_MEMORY_BYTES / count,
            ..Limits::default()
        };
        let sites = shared
            .config
            .sites
            .iter()
            .map(|settings| open_site(&shared, settings, limits))
            .collect::<Result<Vec<Site>, String>>()?;
        Ok(Thread {
            number,
            shared,
            sites,
            connections: AtomicUsize::new(0),
            first_connection: Notify::new(),
        })
    }

    /// The site for the authority of a request.
    pub fn site_for(&self, authority: &str) -> Option<&Site> {
        self.sites.get(self.shared.hosts.site_for(authority)?)
    }
}

fn open_site(
    shared: &Shared,
    settings: &maitred_config::Site,
    limits: Limits,
) -> Result<Site, String> {
    let files = SiteFiles {
        root: settings.root.clone(),
        index: settings.index.clone(),
        front_controller: settings.front_controller.clone(),
    };
    let root = settings.root.display();
    let resolver = Resolver::new(files, limits)
        .map_err(|error| format!("the document root {root} cannot be opened: {error}"))?;
    let backend = shared
        .backend(&settings.destination)
        .ok_or_else(|| format!("the site at {root} names a pool that does not exist"))?;
    Ok(Site {
        settings: settings.clone(),
        backend,
        resolver: Mutex::new(resolver),
    })
}
