//! The settings of the whole server.
//!
//! Sent to the front as JSON, so all text in it is UTF-8.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_rules::IpNet;
use maitred_rules::forwarded::ForwardedHeader;
use serde::{Deserialize, Serialize};

use crate::mistakes::Mistakes;
use crate::model::admin::AdminAccess;
use crate::model::client_limits::ClientLimits;
use crate::model::development::Development;
use crate::model::fpm::Fpm;
use crate::model::front_user::default_user;
use crate::model::job::Job;
use crate::model::listener::{Address, FastcgiListener};
use crate::model::log_format::LogFormat;
use crate::model::log_target::LogTarget;
use crate::model::pool::{MAX_CHILDREN_PER_POOL, Pool, ProcessManager};
use crate::model::private_dir::PrivateDir;
use crate::model::purge_log::PurgeLog;
use crate::model::root_owner::RootOwner;
use crate::model::site::{Destination, Site};
use crate::model::tls::{CertificateFiles, Tls};
use crate::model::trace_export::Traces;
use crate::model::with_defaults::with_defaults;
use crate::on_disk::directory_problem;

/// The pool of a configuration that defines none.
pub(crate) const IMPLICIT_POOL: &str = "www";

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Apache's `MinRate` (mod_reqtimeout), in bytes per second.
const DEFAULT_MIN_RATE: u32 = 500;

with_defaults! {
/// A whole, checked configuration. A field that an older program does not hand over has its
/// default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Addresses for plain HTTP, at least one if there are sites and no TLS. `[::]` means IPv4 as
    /// well.
    pub listen: Vec<SocketAddr> = vec![DEFAULT_LISTEN],
    /// HTTPS settings; none: no HTTPS.
    pub tls: Option<Tls> = None,
    /// The access log; none: off.
    pub access_log: Option<LogTarget> = None,
    /// The format of access log lines.
    pub access_log_format: LogFormat = LogFormat::default(),
    /// Whether responses have an `X-Request-Id` header.
    pub send_request_id: bool = false,
    /// The export of traces; none: requests have no traces.
    pub traces: Option<Traces> = None,
    /// The error log: every message except those of the access log.
    pub error_log: LogTarget = LogTarget::Stderr,
    /// The TCP address of metrics and status; none: off, or a Unix socket. Not in `listen`.
    pub admin: Option<SocketAddr> = None,
    /// The address for HAProxy's agent checks, if there is one.
    pub agent_check: Option<SocketAddr> = None,
    /// Access rights on the admin listener, and its Unix socket.
    pub admin_access: AdminAccess = AdminAccess::default(),
    /// The Unix socket for commands such as `maitred status`: an absolute path, if set.
    pub admin_socket: Option<PathBuf> = None,
    /// Proxies that may set the client's address (nginx's `set_real_ip_from`).
    pub trusted_proxies: Vec<IpNet> = Vec::new(),
    /// The request headers with the client's address (nginx's `real_ip_header`).
    pub trusted_headers: Vec<ForwardedHeader> =
        vec![ForwardedHeader::Addresses("x-forwarded-for".to_owned()), ForwardedHeader::Proto],
    /// Whether trusted addresses in a header are those of further proxies (nginx's
    /// `real_ip_recursive`).
    pub trusted_recursive: bool = true,
    /// Whether connections to `listen` start with the PROXY protocol; requires `trusted_proxies`.
    pub proxy_protocol: bool = false,
    /// Least rate in bytes per second at which clients send a request body; 0 is none.
    pub min_request_rate: u32 = DEFAULT_MIN_RATE,
    /// Least rate in bytes per second at which clients read a response; 0 is none.
    pub min_response_rate: u32 = DEFAULT_MIN_RATE,
    /// Limits of clients.
    pub clients: ClientLimits = ClientLimits::default(),
    /// The user of the front, if the supervisor is root. Empty only in `Config::default()`.
    pub front_user: String = String::new(),
    /// Whether the front and the ACME process run in a sandbox.
    pub front_sandbox: bool = true,
    /// Threads of the front; 0 is one for every two cores.
    pub front_threads: u32 = 0,
    /// Directory for temporary files of large request bodies and responses.
    pub spool_dir: PathBuf = std::env::temp_dir(),
    /// Maximum size in bytes of all files in `spool_dir`; none: three quarters of the free
    /// space.
    pub spool_max_size: Option<u64> = None,
    /// Directory of the folders of pools' users.
    pub private_dir: PrivateDir = PrivateDir::Auto,
    /// Bytes of memory for cached pages.
    pub cache_memory: u64 = 64 << 20,
    /// Directory for cached pages; none: they are in memory only.
    pub cache_dir: Option<PathBuf> = None,
    /// Maximum size in bytes of all files in `cache_dir`.
    pub cache_max_size: u64 = 1 << 30,
    /// Time without a request after which a page is removed from `cache_dir` (nginx's `inactive`).
    pub cache_inactive: Duration = Duration::from_secs(600),
    /// The log through which purges reach other nodes, if there is one.
    pub purge_log: Option<PurgeLog> = None,
    /// Timeout of a shutdown for running requests; zero: it does not wait. The default is below
    /// systemd's `TimeoutStopSec` of 90 seconds (systemd-system.conf(5)).
    pub process_control_timeout: Duration = Duration::from_secs(60),
    /// Time for which a server that is to stop serves clients, so that load balancers notice.
    pub stop_delay: Duration = Duration::ZERO,
    /// Whether a pool that rejects requests for lack of workers makes the node not ready.
    pub ready_sheds: bool = false,
    /// Whether a PHP with known vulnerabilities is refused, not only warned about.
    pub require_fixed_php: bool = false,
    /// Maximum number of `pm = "ondemand"` pools whose zygote stays started without a worker.
    pub spare_zygotes: u32 = 2,
    /// The pools, sorted by name.
    pub pools: Vec<Pool> = Vec::new(),
    /// The owners of the document roots of pools without `user`, by the name of the pool, as they
    /// were when a server read this. They are looked up again at a reload only.
    pub root_owners: BTreeMap<String, RootOwner> = BTreeMap::new(),
    /// The sites, in the order of the file, at least one unless every pool has a FastCGI listener.
    /// Each host is in one of them only.
    pub sites: Vec<Site> = Vec::new(),
    /// The commands and schedules of the pools, by pool.
    pub jobs: Vec<Job> = Vec::new(),
    /// php-fpm's settings without a counterpart above, if the server is started as php-fpm.
    pub fpm: Option<Fpm> = None,
    /// Set for a development server (`maitred serve DIR` on a terminal).
    pub development: Option<Development> = None,
}
}

/// A listening socket and its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening<'a> {
    /// The clients of the sites, over plain HTTP.
    Http(SocketAddr),
    /// The clients of the sites, over TLS.
    Https(SocketAddr),
    /// Administrators and monitoring.
    Admin(SocketAddr),
    /// HAProxy's agent checks.
    AgentCheck(SocketAddr),
    /// Administrators and monitoring, over a Unix socket.
    AdminSocket(&'a FastcgiListener),
    /// Web servers in front of a pool.
    Fastcgi(&'a FastcgiListener),
}

impl Listening<'_> {
    /// Its address.
    pub fn address(self) -> Address {
        match self {
            Listening::Http(address)
            | Listening::Https(address)
            | Listening::Admin(address)
            | Listening::AgentCheck(address) => Address::Tcp(address),
            Listening::Fastcgi(listener) | Listening::AdminSocket(listener) => {
                listener.listen.clone()
            }
        }
    }
}

impl Config {
    /// All defaults, and not yet a site: the directives read into it.
    pub(crate) fn new() -> Config {
        let front_user = default_user().to_owned();
        Config { front_user, ..Config::default() }
    }

    /// The configuration of `maitred serve DIR`: one site for every host with `dir` as its root,
    /// run by one pool. An empty `listen` is 127.0.0.1:8080; without `workers`, `pm` is auto.
    ///
    /// # Errors
    /// `dir` is no directory, or `workers` is not from 1 to [`MAX_CHILDREN_PER_POOL`].
    pub fn for_directory(
        dir: &Path,
        listen: Vec<SocketAddr>,
        workers: Option<u32>,
    ) -> Result<Config, Mistakes> {
        let root = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
        if let Some(problem) = directory_problem(&root) {
            let is_configuration = root.extension().is_some_and(|end| end == "toml");
            let remedy = if root.is_file() && is_configuration {
                ", or a configuration with --config"
            } else {
                ""
            };
            let sentence = format!("the document root {problem}{remedy}");
            return Err(Mistakes::about(dir, sentence));
        }
        let config = Config {
            pools: vec![Pool::named(IMPLICIT_POOL)],
            sites: vec![Site::at(root, Destination::Pool(IMPLICIT_POOL.to_owned()))],
            ..Config::new()
        };
        match workers {
            Some(workers) => config.with_listen(listen).with_workers(workers),
            None => Ok(config.with_listen(listen)),
        }
    }

    /// This configuration with `listen` replaced, unless the argument is empty.
    #[must_use]
    pub fn with_listen(self, mut listen: Vec<SocketAddr>) -> Config {
        let mut seen = std::collections::HashSet::new();
        listen.retain(|address| address.port() == 0 || seen.insert(*address));
        if listen.is_empty() { self } else { Config { listen, ..self } }
    }

    /// This configuration with HTTPS in place of plain HTTP, at the same addresses. An existing
    /// `tls` is replaced.
    #[must_use]
    pub fn with_https(self, certificate: CertificateFiles) -> Config {
        let certificates = vec![certificate];
        let tls = Tls { listen: self.listen, certificates, ..Tls::default() };
        Config { listen: Vec::new(), tls: Some(tls), ..self }
    }

    /// This configuration with `pm = static` and `workers` workers in every pool.
    ///
    /// # Errors
    /// `workers` is not from 1 to [`MAX_CHILDREN_PER_POOL`].
    pub fn with_workers(mut self, workers: u32) -> Result<Config, Mistakes> {
        if !(1..=MAX_CHILDREN_PER_POOL).contains(&workers) {
            let sentence = format!("found {workers}; expected 1 to {MAX_CHILDREN_PER_POOL}");
            return Err(Mistakes::about(Path::new("--workers"), sentence));
        }
        for pool in &mut self.pools {
            pool.pm = ProcessManager::Static;
            pool.max_children = Some(workers);
        }
        Ok(self)
    }

    /// All listeners: HTTP and HTTPS, the admin listener, and the FastCGI listeners of pools.
    pub fn listening(&self) -> Vec<Listening<'_>> {
        let sites = self.listen.iter().copied().map(Listening::Http);
        let tls = self.tls.iter().flat_map(|tls| tls.listen.iter().copied());
        let listeners = self.pools.iter();
        let listeners = listeners
            .flat_map(|pool| [&pool.listener, &pool.status_listener].into_iter().flatten());
        sites
            .chain(tls.map(Listening::Https))
            .chain(self.admin.map(Listening::Admin))
            .chain(self.agent_check.map(Listening::AgentCheck))
            .chain(self.admin_access.socket.iter().map(Listening::AdminSocket))
            .chain(listeners.map(Listening::Fastcgi))
            .collect()
    }

    /// The pool with this name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }
}
