//! What all requests of a front share, and what those of one thread share.

pub(crate) mod lifecycle;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use maitred_config::Config;
use tokio::sync::Notify;

use crate::cache::Cache;
use crate::http::hosts::host_name;
use crate::http::request_memory::RequestMemory;
use crate::logging::access_log::AccessLog;
use crate::logging::deferred::CurrentLog;
use crate::logging::log_limit::UpstreamLogs;
use crate::logging::pool_access_log::DoorLogs;
use crate::logging::repeated::RepeatedErrors;
use crate::net::client_addresses::{Address, Addresses};
use crate::net::client_rate::Rates;
use crate::net::handshake_limit::Handshakes;
use crate::net::tls::Tls;
use crate::pool::pools::Pools;
use crate::proxy::stats::AllProxyStats;
use crate::runtime::heap::Heap;
use crate::runtime::supervisor_channel::Supervisor;
use crate::site::acme_challenges::Proofs;
use crate::site::auth::Authenticator;
use crate::site::compress::Made;
use crate::site::rate_limits::AllLimits;
use crate::site::sites::{Resources, Sites};

/// Most connections of the admin door at once. They need no room among those of clients.
const ADMIN_CONNECTIONS: usize = 64;

/// Web servers' idle connections that are closed at once to make room for others.
const LEAVE_AT_ONCE: usize = 16;

/// What all threads share.
#[derive(Debug)]
pub struct Shared {
    /// The pools.
    pub pools: Pools,
    /// The pages that are kept.
    pub cache: Option<Arc<Cache>>,
    /// The access log, if there is one.
    pub access_log: CurrentLog,
    /// The access logs of doors.
    pub door_logs: DoorLogs,
    /// What TLS begins with, if it is spoken.
    pub tls: ArcSwapOption<Tls>,
    /// What authorities look for that issue certificates.
    pub proofs: Proofs,
    /// Handshakes that are under way.
    pub handshakes: Handshakes,
    /// The supervisor.
    pub supervisor: Arc<Supervisor>,
    /// What is said of the front as a whole.
    pub troubles: Arc<RepeatedErrors>,
    /// How many connections addresses have.
    pub addresses: Addresses,
    /// What requests in hand hold.
    pub requests: RequestMemory,
    /// The memory that may be given back.
    pub heap: Arc<Heap>,
    /// What clients have used of the limits of sites.
    pub limits: AllLimits,
    /// What is counted of servers behind.
    pub proxies: AllProxyStats,
    /// What foreign FastCGI servers may have logged.
    pub upstream_logs: UpstreamLogs,
    /// Whoever knows the users of sites.
    pub porter: Authenticator,
    /// Connections that are open now.
    pub connections: AtomicUsize,
    /// How many of them came through the admin door.
    admin_connections: AtomicUsize,
    /// Most connections at once.
    pub max_connections: usize,
    /// How many of the web servers that keep a connection without a request are to close it.
    to_leave: AtomicUsize,
    /// Told when there are some.
    room_wanted: Notify,
    /// Another front takes the clients that come.
    handed_over: AtomicBool,
    draining: AtomicBool,
    /// Told when the front begins to end, and when a connection ends while it lasts.
    pub changed: Notify,
}

impl Shared {
    /// Everything that is known at start.
    pub fn new(
        pools: Pools,
        (access_log, door_logs): (Option<AccessLog>, DoorLogs),
        supervisor: Arc<Supervisor>,
        troubles: Arc<RepeatedErrors>,
        max_connections: usize,
        cache: Option<Arc<Cache>>,
    ) -> Shared {
        Shared {
            pools,
            cache,
            access_log: Arc::new(ArcSwapOption::new(access_log.map(Arc::new))),
            door_logs,
            tls: ArcSwapOption::empty(),
            proofs: Proofs::default(),
            handshakes: Handshakes::of(max_connections),
            supervisor,
            troubles,
            addresses: Addresses::default(),
            requests: RequestMemory::default(),
            heap: Arc::new(Heap::new()),
            limits: AllLimits::default(),
            proxies: AllProxyStats::default(),
            upstream_logs: UpstreamLogs::default(),
            porter: Authenticator::default(),
            connections: AtomicUsize::new(0),
            admin_connections: AtomicUsize::new(0),
            max_connections,
            to_leave: AtomicUsize::new(0),
            room_wanted: Notify::new(),
            handed_over: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    fn resources(&self) -> Resources<'_> {
        Resources {
            pools: &self.pools,
            cache: self.cache.as_deref(),
            limits: &self.limits,
            proxies: &self.proxies,
            door_logs: &self.door_logs,
            upstream_logs: &self.upstream_logs,
            troubles: &self.troubles,
        }
    }

    /// Whether the certificate of this host has not been issued yet: it is not sent to HTTPS.
    pub fn awaits_certificate(&self, authority: &str) -> bool {
        let tls = self.tls.load();
        tls.as_ref()
            .is_some_and(|tls| tls.awaits(host_name(authority).trim_end_matches('.')))
    }

    /// Has some of the web servers' connections closed that are kept for requests to come: somebody
    /// else needs the room.
    pub fn want_room(&self) {
        self.to_leave.store(LEAVE_AT_ONCE, Ordering::Relaxed);
        self.room_wanted.notify_waiters();
    }

    /// Returns when a web server's connection without a request is to be closed, which others need
    /// the room of.
    pub async fn room_is_wanted(&self) {
        loop {
            self.room_wanted.notified().await;
            let less = |left: usize| left.checked_sub(1);
            let to_leave = &self.to_leave;
            if to_leave
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok()
            {
                return;
            }
        }
    }

    /// A request from this address is refused because heads hold too much memory.
    pub fn refuse_head(&self, peer: IpAddr, why: &str) {
        self.requests.refuse();
        self.troubles.head_refused(peer, why);
    }

    /// Writes the lines of access logs that were collected.
    pub fn flush_logs(&self) {
        if let Some(log) = &*self.access_log.load() {
            log.flush();
        }
        self.door_logs.flush(&self.troubles);
    }

    /// Whether the front is to end soon: no connection outlives its present request.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether the front is to end: no connection is kept after its next answer.
    pub fn is_ending(&self) -> bool {
        self.is_draining() || self.handed_over.load(Ordering::Relaxed)
    }

    /// Returns when no connection is to outlive its present request.
    pub fn drains(&self) -> impl Future<Output = ()> {
        self.until(Shared::is_draining)
    }

    /// Returns when no more clients are to be accepted.
    pub fn takes_no_more(&self) -> impl Future<Output = ()> {
        self.until(Shared::is_ending)
    }

    async fn until(&self, is_so: fn(&Shared) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }

    /// Whether there are so many connections that none is kept after its answer.
    pub fn is_crowded(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > self.max_connections / 10 * 9
    }

    /// Whether no further connection can be taken, of the admin door or of clients. Who looks after
    /// the server gets in also when clients have taken all the room, but not without bounds.
    pub fn is_full(&self, admin: bool) -> bool {
        match admin {
            true => self.admin_connections.load(Ordering::Relaxed) >= ADMIN_CONNECTIONS,
            false => self.connections.load(Ordering::Relaxed) >= self.max_connections,
        }
    }

    /// Lets the front come to an end.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Whether another front takes the clients that come.
    pub fn has_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Leaves the clients that come to another front, and ends once the present ones have gone.
    pub fn hand_over(&self) {
        self.handed_over.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }
}

/// What the requests of one thread share.
pub struct Thread {
    /// Its number, from 0.
    pub number: u32,
    /// What it shares with the others.
    pub shared: Arc<Shared>,
    sites: ArcSwap<Sites>,
    /// What a new configuration comes to, until all threads have it.
    prepared: ArcSwapOption<Sites>,
    connections: AtomicUsize,
    /// Told when a connection comes and there was none.
    pub first_connection: Notify,
    /// Files in codings that were made of them.
    pub made: Made,
}

impl Thread {
    /// Opens every site's document root.
    ///
    /// # Errors
    /// One sentence that names the root that cannot be opened.
    pub fn new(number: u32, shared: Arc<Shared>, config: &Config) -> Result<Thread, String> {
        let sites = Sites::open(config, shared.resources(), None)?;
        shared.requests.limit(sites.clients.request_memory);
        Ok(Thread {
            number,
            shared,
            sites: ArcSwap::from_pointee(sites),
            prepared: ArcSwapOption::empty(),
            connections: AtomicUsize::new(0),
            first_connection: Notify::new(),
            made: Made::default(),
        })
    }

    /// The sites that requests are answered from now. A request keeps those it began with.
    pub fn sites(&self) -> Arc<Sites> {
        self.sites.load_full()
    }

    /// Whether clients' connections begin with the PROXY protocol.
    pub fn is_proxied(&self) -> bool {
        self.sites.load().is_proxied
    }

    /// How slow clients may be whose connections begin now.
    pub fn rates(&self) -> Rates {
        self.sites.load().rates
    }

    /// Opens what a new configuration needs. Nothing of it is used before [`Thread::switch`].
    ///
    /// # Errors
    /// One sentence that names the root that cannot be opened.
    pub fn prepare(&self, config: &Config) -> Result<(), String> {
        let sites = Sites::open(config, self.shared.resources(), Some(&self.sites.load()))?;
        self.prepared.store(Some(Arc::new(sites)));
        Ok(())
    }

    /// Uses what was prepared.
    pub fn switch(&self) {
        if let Some(sites) = self.prepared.swap(None) {
            self.shared.requests.limit(sites.clients.request_memory);
            self.sites.store(sites);
        }
    }

    /// Forgets what was prepared.
    pub fn discard(&self) {
        self.prepared.store(None);
    }

    /// Counts a connection of the client at this address, if such are counted.
    ///
    /// # Errors
    /// When the address has as many as it may.
    pub fn admit(&self, peer: IpAddr) -> Result<Option<Address>, ()> {
        let (shared, sites) = (&self.shared, self.sites.load());
        let most = sites.clients.connections_per_address;
        let admitted = shared.addresses.enter(peer, most, &sites.trust.proxies);
        if admitted.is_err() {
            shared.troubles.too_many_of(peer, most);
        }
        admitted
    }

    /// The address for which is counted what the requests of the client at `peer` hold, if it is.
    pub fn address(&self, peer: IpAddr) -> Option<Address> {
        Address::of(peer, &self.sites.load().trust.proxies)
    }

    /// A connection has begun, of the admin door or of a client.
    pub fn count_in(&self, admin: bool) {
        if admin {
            let admins = &self.shared.admin_connections;
            admins.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.connections.fetch_add(1, Ordering::AcqRel);
        if self.connections.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first_connection.notify_one();
        }
    }

    /// A connection has ended, of the admin door or of a client.
    pub fn count_out(&self, admin: bool) {
        if admin {
            let admins = &self.shared.admin_connections;
            admins.fetch_sub(1, Ordering::Relaxed);
        }
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.connections.fetch_sub(1, Ordering::AcqRel);
        if self.shared.is_ending() {
            self.shared.changed.notify_waiters();
        }
    }

    /// Whether this thread has connections.
    pub fn has_connections(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }
}
