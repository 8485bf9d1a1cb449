//! The services that requests use: shared by all threads of a front, and by one thread.

pub(crate) mod admin_connections;
pub(crate) mod agent;
pub(crate) mod history;
pub(crate) mod idle_connections;
pub(crate) mod known_nodes;
pub(crate) mod lifecycle;
pub(crate) mod measurements;
pub(crate) mod own_cores;
pub(crate) mod recent_requests;
pub(crate) mod traces;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use maitred_config::Config;
use maitred_control::job_status::ShownJobs;
use maitred_control::purge_log::PurgeLogState;
use maitred_tls::Material;
use tokio::sync::Notify;

use crate::cache::Cache;
use crate::http::hosts::host_name;
use crate::http::request_memory::RequestMemory;
use crate::http::spool_folder::SpoolSpace;
use crate::logging::access_log::AccessLog;
use crate::logging::deferred::CurrentLog;
use crate::logging::log_limit::UpstreamLogs;
use crate::logging::pool_access_log::PoolAccessLogs;
use crate::logging::repeated::RepeatedErrors;
use crate::net::client_addresses::{Address, Addresses};
use crate::net::client_rate::Rates;
use crate::net::handshake_limit::Handshakes;
use crate::net::tls::{Secured, Tls};
use crate::pool::pool_registry::Pools;
use crate::proxy::stats::AllProxyStats;
use crate::runtime::heap::Heap;
use crate::runtime::lookup_turns::AllTurns;
use crate::runtime::supervisor_channel::Supervisor;
use crate::services::admin_connections::AdminConnections;
use crate::services::agent::Agent;
use crate::services::history::History;
use crate::services::idle_connections::{IdleConnections, idle_timeout};
use crate::services::known_nodes::Nodes;
use crate::services::measurements::Measurements;
use crate::services::own_cores::OwnCores;
use crate::services::recent_requests::RecentRequests;
use crate::services::traces::{TraceStats, Traces};
use crate::site::acme_challenges::Proofs;
use crate::site::auth::Authenticator;
use crate::site::compress::Made;
use crate::site::rate_limits::AllLimits;
use crate::site::sites::{Resources, Sites};

/// Idle connections that are closed at once to make room for others.
const LEAVE_AT_ONCE: usize = 16;

/// The part of all connections that is left free: while less is, each new connection closes the
/// oldest idle one (nginx's `ngx_drain_connections`).
const FREE_PART: usize = 16;

/// The size of a front.
#[derive(Debug, Clone, Copy)]
pub struct FrontSize {
    /// Its threads.
    pub threads: u32,
    /// The most connections of all threads together.
    pub max_connections: usize,
    /// Descriptors that the large files of one thread may have.
    pub open_files: usize,
    /// Descriptors that temporary files may have.
    pub spooled_files: u64,
}

/// A certificate, for the dashboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// Its names.
    pub names: Vec<String>,
    /// Its end, in seconds since 1970; none: it has not been issued yet.
    pub until: Option<u64>,
}

/// The ends of these certificates, and the hosts that wait for one.
pub fn expiries(material: &Material) -> Vec<CertificateExpiry> {
    let ends = maitred_tls::expiries(material).into_iter().map(|(names, until)| {
        let until = until.duration_since(UNIX_EPOCH).unwrap_or_default();
        CertificateExpiry { names, until: Some(until.as_secs()) }
    });
    let awaited = material.awaited.iter();
    let awaited = awaited.map(|host| CertificateExpiry { names: vec![host.clone()], until: None });
    ends.chain(awaited).collect()
}

/// The services that all threads share.
#[derive(Debug)]
pub struct Shared {
    /// The pools.
    pub pools: Pools,
    /// The page cache.
    pub cache: Option<Arc<Cache>>,
    /// The access log; none: off.
    pub access_log: CurrentLog,
    /// Traces of requests; none: off.
    pub traces: ArcSwapOption<Traces>,
    /// The certificates in use, and those that are still to be issued.
    pub certificates: ArcSwap<Vec<CertificateExpiry>>,
    /// The state of the purge log, if there is one.
    pub purge_log: ArcSwapOption<PurgeLogState>,
    /// Commands and schedules, for the dashboard; none: the supervisor has not shown them yet.
    pub jobs: ArcSwapOption<ShownJobs>,
    /// The last hour, for the dashboard.
    pub history: History,
    /// The latest slow and failed requests, for the dashboard.
    pub recent_requests: RecentRequests,
    /// The nodes with the same purge log, for the dashboard and the metrics.
    pub nodes: Nodes,
    /// Counters of spans.
    pub trace_stats: Arc<TraceStats>,
    /// The access logs of pools and sites.
    pub pool_access_logs: PoolAccessLogs,
    /// The TLS configuration; none: no HTTPS.
    pub tls: ArcSwapOption<Tls>,
    /// The responses to challenges of ACME authorities.
    pub proofs: Proofs,
    /// TLS handshakes in progress.
    pub handshakes: Handshakes,
    /// The supervisor.
    pub supervisor: Arc<Supervisor>,
    /// Requests to it to measure the pools.
    pub measurements: Measurements,
    /// Repeated errors of the whole front.
    pub troubles: Arc<RepeatedErrors>,
    /// Connections per address.
    pub addresses: Addresses,
    /// The memory of requests in progress.
    pub requests: RequestMemory,
    /// The heap, which returns unused memory to the system.
    pub heap: Arc<Heap>,
    /// The state of the sites' rate limits.
    pub limits: AllLimits,
    /// The turns of lookups in the folders of tenants.
    pub lookups: AllTurns,
    /// Counters of upstream HTTP servers.
    pub proxies: AllProxyStats,
    /// The account of spooled files.
    pub spool: Arc<SpoolSpace>,
    /// Log limits of upstream FastCGI servers.
    pub upstream_logs: UpstreamLogs,
    /// Authentication for the users of sites.
    pub porter: Authenticator,
    /// Threads of the front.
    pub threads: u32,
    /// What HAProxy's agent check reads.
    pub agent: Agent,
    /// The processor time of the front.
    pub own_cores: OwnCores,
    /// Open connections.
    pub connections: AtomicUsize,
    /// Those of the admin listener.
    pub admin: AdminConnections,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Descriptors that the large files of one thread may have.
    open_files: usize,
    /// The idle connections of clients.
    pub idle: IdleConnections,
    /// Idle connections of web servers that are still to be closed.
    to_leave: AtomicUsize,
    /// Notified when there are some.
    room_wanted: Notify,
    /// The server stops soon, and load balancers are to notice.
    prepares_stop: AtomicBool,
    /// Another front accepts the clients.
    handed_over: AtomicBool,
    /// A pool that sheds load makes this node not ready (`ready_sheds`).
    pub ready_sheds: AtomicBool,
    /// The supervisor's commands of before the start are carried out: all pools are known.
    pub is_introduced: AtomicBool,
    /// No pool starts for the first time any more.
    pub has_started: AtomicBool,
    draining: AtomicBool,
    /// Notified when the front prepares to stop, when it starts to stop, and then at the end of
    /// each connection.
    pub changed: Notify,
}

impl Shared {
    /// The services at the start of the front.
    pub fn new(
        pools: Pools,
        access_log: Option<AccessLog>,
        pool_access_logs: PoolAccessLogs,
        supervisor: Arc<Supervisor>,
        troubles: Arc<RepeatedErrors>,
        size: FrontSize,
        cache: Option<Arc<Cache>>,
    ) -> Shared {
        let FrontSize { threads, max_connections, open_files, spooled_files } = size;
        Shared {
            pools,
            cache,
            access_log: Arc::new(ArcSwapOption::new(access_log.map(Arc::new))),
            traces: ArcSwapOption::empty(),
            certificates: ArcSwap::default(),
            purge_log: ArcSwapOption::empty(),
            jobs: ArcSwapOption::empty(),
            recent_requests: RecentRequests::default(),
            nodes: Nodes::default(),
            history: History::default(),
            trace_stats: Arc::default(),
            pool_access_logs,
            tls: ArcSwapOption::empty(),
            proofs: Proofs::default(),
            handshakes: Handshakes::of(max_connections),
            supervisor,
            measurements: Measurements::default(),
            troubles,
            addresses: Addresses::default(),
            requests: RequestMemory::default(),
            heap: Arc::new(Heap::new()),
            limits: AllLimits::default(),
            lookups: AllTurns::default(),
            proxies: AllProxyStats::default(),
            upstream_logs: UpstreamLogs::default(),
            spool: Arc::new(SpoolSpace::of(spooled_files)),
            porter: Authenticator::default(),
            threads,
            agent: Agent::default(),
            own_cores: OwnCores::default(),
            connections: AtomicUsize::new(0),
            admin: AdminConnections::new(threads as usize),
            max_connections,
            open_files,
            idle: IdleConnections::new(threads as usize),
            to_leave: AtomicUsize::new(0),
            room_wanted: Notify::new(),
            prepares_stop: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            ready_sheds: AtomicBool::new(false),
            is_introduced: AtomicBool::new(false),
            has_started: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    fn resources(&self) -> Resources<'_> {
        Resources {
            pools: &self.pools,
            cache: self.cache.as_deref(),
            limits: &self.limits,
            lookups: &self.lookups,
            proxies: &self.proxies,
            pool_access_logs: &self.pool_access_logs,
            upstream_logs: &self.upstream_logs,
            spool: &self.spool,
            troubles: &self.troubles,
            open_files: self.open_files,
        }
    }

    /// Whether the certificate of this host is still to be issued: until then plain HTTP is not
    /// redirected to HTTPS.
    pub fn awaits_certificate(&self, authority: &str) -> bool {
        let tls = self.tls.load();
        tls.as_ref().is_some_and(|tls| tls.awaits(host_name(authority).trim_end_matches('.')))
    }

    /// Whether a connection has to end: client certificates are verified otherwise since a reload.
    pub fn is_outdated(&self, secured: Option<&Arc<Secured>>) -> bool {
        let differs = |secured: &Arc<Secured>| {
            let tls = self.tls.load();
            tls.as_ref().is_some_and(|tls| tls.clients != secured.clients)
        };
        secured.is_some_and(differs)
    }

    /// Whether requests over a connection are refused: it might fail the handshake since a reload.
    pub fn refuses_connection(&self, secured: Option<&Arc<Secured>>) -> bool {
        let refuses = |secured: &Arc<Secured>| {
            let (tls, before) = (self.tls.load(), secured.clients);
            let clients = tls.as_ref().map(|tls| tls.clients);
            clients.is_some_and(|now| now.refuses(before, secured.shows_certificate()))
        };
        secured.is_some_and(refuses)
    }

    /// Closes idle connections, of clients or else of web servers, to make room for others.
    /// `thread` is the front thread, whose own are closed first. Returns whether there were any of
    /// clients.
    pub fn want_room(&self, thread: u32) -> bool {
        if self.idle.close_oldest(thread, LEAVE_AT_ONCE) > 0 {
            return true;
        }
        self.to_leave.store(LEAVE_AT_ONCE, Ordering::Relaxed);
        self.room_wanted.notify_waiters();
        false
    }

    /// Closes the oldest idle connection of a client for a new one, if few are free.
    pub fn make_room(&self, thread: u32) {
        let open = self.connections.load(Ordering::Relaxed);
        if open + self.max_connections / FREE_PART > self.max_connections {
            self.idle.close_oldest(thread, 1);
        }
    }

    /// The keep-alive timeout of a connection that becomes idle now.
    pub fn idle_timeout(&self) -> Duration {
        idle_timeout(self.connections.load(Ordering::Relaxed), self.max_connections)
    }

    /// Waits until an idle connection of a web server is to be closed to make room.
    pub async fn room_is_wanted(&self) {
        loop {
            self.room_wanted.notified().await;
            let less = |left: usize| left.checked_sub(1);
            let to_leave = &self.to_leave;
            if to_leave.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                return;
            }
        }
    }

    /// Counts and logs a request from this address that is refused because headers use too much
    /// memory.
    pub fn refuse_head(&self, peer: IpAddr, why: &str) {
        self.requests.refuse();
        self.troubles.head_refused(peer, why);
    }

    /// Applies the settings of traces. Those in use stay, with their queue, if nothing changes.
    ///
    /// # Errors
    /// As [`Traces::start`].
    pub fn trace(&self, settings: Option<&maitred_config::Traces>) -> Result<(), String> {
        let current = self.traces.load_full();
        if current.as_ref().map(|traces| &traces.settings) == settings {
            return Ok(());
        }
        let start = |settings: &maitred_config::Traces| {
            Traces::start(settings.clone(), self.trace_stats.clone())
        };
        let traces = settings.map(start).transpose()?;
        // The former ones end with their last request.
        self.traces.store(traces.map(Arc::new));
        Ok(())
    }

    /// Writes the buffered lines of the access log, and has those of other logs written.
    pub fn flush_logs(&self) {
        if let Some(log) = &*self.access_log.load() {
            log.flush();
        }
        self.pool_access_logs.flush(&self.troubles);
    }

    /// Whether the front drains: each connection is closed after its current request.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether the front stops and accepts no more clients.
    pub fn is_ending(&self) -> bool {
        self.is_draining() || self.handed_over.load(Ordering::Relaxed)
    }

    /// Whether each connection is closed after its next response: the front stops, or will soon.
    pub fn closes_connections(&self) -> bool {
        self.prepares_stop.load(Ordering::Relaxed) || self.is_ending()
    }

    /// Waits until the front drains.
    pub fn drains(&self) -> impl Future<Output = ()> {
        self.until(Shared::is_draining)
    }

    /// Waits until the front accepts no more clients.
    pub fn takes_no_more(&self) -> impl Future<Output = ()> {
        self.until(Shared::is_ending)
    }

    /// Waits until connections are to be closed after their next response.
    pub fn is_to_close(&self) -> impl Future<Output = ()> {
        self.until(Shared::closes_connections)
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

    /// Whether there are so few free connections that keep-alive is off.
    pub fn is_crowded(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > self.max_connections / 10 * 9
    }

    /// The idle connections of the admin listener, or of clients.
    pub fn idle_of(&self, admin: bool) -> &IdleConnections {
        if admin { &self.admin.idle } else { &self.idle }
    }

    /// Whether the connection limit of the admin listener, or of clients, is reached.
    pub fn is_full(&self, admin: bool) -> bool {
        match admin {
            true => self.admin.is_full(),
            false => self.connections.load(Ordering::Relaxed) >= self.max_connections,
        }
    }

    /// The server stops soon: connections are closed after their next response, and new clients
    /// are still served.
    pub fn prepare_stop(&self) {
        self.prepares_stop.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Starts to stop the front.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Whether another front accepts the clients.
    pub fn has_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Leaves new clients to another front, and stops after the end of the current connections.
    pub fn hand_over(&self) {
        self.handed_over.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }
}

/// The services in one thread.
pub struct Thread {
    /// Its number, from 0.
    pub number: u32,
    /// The services that all threads share.
    pub shared: Arc<Shared>,
    sites: ArcSwap<Sites>,
    /// The sites of a new configuration, until all threads have them.
    prepared: ArcSwapOption<Sites>,
    connections: AtomicUsize,
    /// Notified when the first connection arrives.
    pub first_connection: Notify,
    /// Compressed variants of files.
    pub made: Made,
}

impl Thread {
    /// The sites of a configuration. The caller has their folders opened ([`Thread::open_roots`]).
    ///
    /// # Errors
    /// As [`crate::site::Site::open`].
    pub fn new(number: u32, shared: Arc<Shared>, config: &Config) -> Result<Thread, String> {
        let sites = Sites::open(config, shared.resources(), None)?;
        shared.requests.limit(sites.clients.request_memory);
        shared.spool.configure(sites.spool_max_size);
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

    /// Opens the folders of all sites.
    pub async fn open_roots(&self) {
        self.sites().open_roots().await;
    }

    /// The sites for new requests. A request keeps the sites it started with.
    pub fn sites(&self) -> Arc<Sites> {
        self.sites.load_full()
    }

    /// Whether client connections start with the PROXY protocol.
    pub fn is_proxied(&self) -> bool {
        self.sites.load().is_proxied
    }

    /// The minimum rates for new client connections.
    pub fn rates(&self) -> Rates {
        self.sites.load().rates
    }

    /// Opens the sites of a new configuration, for [`Thread::switch`].
    ///
    /// # Errors
    /// As [`crate::site::Site::open`].
    pub fn prepare(&self, config: &Config) -> Result<(), String> {
        let sites = Sites::open(config, self.shared.resources(), Some(&self.sites.load()))?;
        self.prepared.store(Some(Arc::new(sites)));
        Ok(())
    }

    /// Switches to the sites that were opened.
    pub fn switch(&self) {
        if let Some(sites) = self.prepared.swap(None) {
            self.shared.requests.limit(sites.clients.request_memory);
            self.shared.spool.configure(sites.spool_max_size);
            self.sites.store(sites);
        }
    }

    /// Drops the sites that were opened.
    pub fn discard(&self) {
        self.prepared.store(None);
    }

    /// Counts a connection of the client at this address, unless the address is exempt.
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

    /// The address that is charged for the memory of requests of the client at `peer`; none if it
    /// is exempt.
    pub fn address(&self, peer: IpAddr) -> Option<Address> {
        Address::of(peer, &self.sites.load().trust.proxies)
    }

    /// Whether the peer at this address is one of `trusted_proxies`.
    pub fn is_trusted_proxy(&self, peer: IpAddr) -> bool {
        self.sites.load().trust.proxies.contain(peer)
    }

    /// Counts a new connection, for the admin listener or for clients.
    pub fn count_in(&self, admin: bool) {
        if admin {
            self.shared.admin.enter();
        }
        self.shared.connections.fetch_add(1, Ordering::AcqRel);
        if self.connections.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first_connection.notify_one();
        }
    }

    /// Counts the end of a connection, for the admin listener or for clients.
    pub fn count_out(&self, admin: bool) {
        if admin {
            self.shared.admin.leave();
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
