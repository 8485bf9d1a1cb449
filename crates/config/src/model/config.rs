//! Checked settings: what the rest of the program is told.
//!
//! Sent to the front as JSON, so all text in it is UTF-8.

use crate::model::log_target::LogTarget;
use crate::model::pool::{MAX_CHILDREN_PER_POOL, Pool, ProcessManager};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_rules::IpNet;
use maitred_rules::forwarded::Field;
use serde::{Deserialize, Serialize};

use crate::mistakes::Mistakes;
use crate::model::admin::AdminAccess;
use crate::model::client_limits::ClientLimits;
use crate::model::fpm::Fpm;
use crate::model::front;
use crate::model::listener::{Address, Door};
use crate::model::log_format::LogFormat;
use crate::model::site::outside_of_chroot;
use crate::model::site::{Destination, Site};
use crate::model::tls::Tls;
use crate::on_disk::directory_problem;

/// The pool of sites that name none in a configuration that defines none.
pub(crate) const IMPLICIT_POOL: &str = "www";

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// Apache's `MinRate` (mod_reqtimeout), in bytes per second.
const DEFAULT_MIN_RATE: u32 = 500;
/// Below the 90 seconds after which systemd loses patience (`TimeoutStopSec`, systemd-system.conf(5)).
const DEFAULT_PROCESS_CONTROL_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_CACHE_MEMORY_BYTES: u64 = 64 << 20;
const DEFAULT_CACHE_MAX_SIZE_BYTES: u64 = 1 << 30;
const DEFAULT_CACHE_INACTIVE: Duration = Duration::from_secs(600);
const DEFAULT_SPARE_ZYGOTES: u32 = 2;

/// A whole configuration in which nothing is left to check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Addresses for plain HTTP, at least one if there are sites and no TLS. `[::]` means IPv4 as
    /// well.
    pub listen: Vec<SocketAddr>,
    /// How clients are served over TLS, if they are.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// Where requests are logged, if they are.
    pub access_log: Option<LogTarget>,
    /// How requests are logged.
    pub access_log_format: LogFormat,
    /// Whether answers carry the request's id.
    #[serde(default)]
    pub send_request_id: bool,
    /// Where everything else is logged.
    pub error_log: LogTarget,
    /// Where metrics and status are answered over HTTP and TCP, if they are; not in `listen`.
    pub admin: Option<SocketAddr>,
    /// Who may read what there, and the Unix socket if there is one.
    #[serde(default)]
    pub admin_access: AdminAccess,
    /// Where the commands reach the server: an absolute path, if one is set.
    pub admin_socket: Option<PathBuf>,
    /// Proxies that are believed what they say of their clients.
    #[serde(default)]
    pub trusted_proxies: Vec<IpNet>,
    /// By what header fields they say it.
    #[serde(default)]
    pub trusted_headers: Vec<Field>,
    /// Whether connections to `listen` begin with the PROXY protocol; then there are
    /// `trusted_proxies`.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Least rate in bytes per second at which clients send a body; 0 is none.
    #[serde(default = "default_min_rate")]
    pub min_request_rate: u32,
    /// Least rate in bytes per second at which clients take an answer; 0 is none.
    #[serde(default = "default_min_rate")]
    pub min_answer_rate: u32,
    /// What clients may take.
    #[serde(default)]
    pub clients: ClientLimits,
    /// The user of the front, if the supervisor is root.
    pub front_user: String,
    /// Whether the front, and the process that gets certificates, are restricted to what they need.
    #[serde(default = "front::default_sandbox")]
    pub front_sandbox: bool,
    /// Threads of the front; 0 is one for every two cores.
    pub front_threads: u32,
    /// Folder for temporary files of large request bodies and answers.
    pub spool_dir: PathBuf,
    /// Bytes of memory for pages that are kept.
    #[serde(default = "default_cache_memory")]
    pub cache_memory: u64,
    /// Folder for pages that are kept; none: they are in memory only.
    #[serde(default)]
    pub cache_dir: Option<PathBuf>,
    /// Bytes of all files in that folder.
    #[serde(default = "default_cache_max_size")]
    pub cache_max_size: u64,
    /// After how long a page in that folder goes that nobody asked for.
    #[serde(default = "default_cache_inactive")]
    pub cache_inactive: Duration,
    /// How long a stop waits for requests that run; zero is not at all.
    pub process_control_timeout: Duration,
    /// Whether a PHP with known vulnerabilities is refused, not only warned about.
    pub require_fixed_php: bool,
    /// Most pools with `pm = "ondemand"` whose PHP stays started while they have no worker.
    #[serde(default = "default_spare_zygotes")]
    pub spare_zygotes: u32,
    /// The pools, sorted by name.
    pub pools: Vec<Pool>,
    /// The sites, in the order of the file, at least one unless every pool has a door. No host is in
    /// two of them.
    pub sites: Vec<Site>,
    /// What php-fpm's own configuration says beside, if the server is started as php-fpm.
    pub fpm: Option<Fpm>,
}

/// For what an older program hands over, which does not know of caches.
fn default_cache_memory() -> u64 {
    DEFAULT_CACHE_MEMORY_BYTES
}

fn default_cache_max_size() -> u64 {
    DEFAULT_CACHE_MAX_SIZE_BYTES
}

fn default_cache_inactive() -> Duration {
    DEFAULT_CACHE_INACTIVE
}

fn default_spare_zygotes() -> u32 {
    DEFAULT_SPARE_ZYGOTES
}

/// For what an older program hands over, which does not know of rates.
fn default_min_rate() -> u32 {
    DEFAULT_MIN_RATE
}

/// Something that is listened on, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening<'a> {
    /// The clients of the sites, over plain HTTP.
    Http(SocketAddr),
    /// The clients of the sites, over TLS.
    Https(SocketAddr),
    /// Whoever looks after the server.
    Admin(SocketAddr),
    /// The same, over a Unix socket.
    AdminSocket(&'a Door),
    /// Web servers in front of a pool.
    Fastcgi(&'a Door),
}

impl Listening<'_> {
    /// Where.
    pub fn address(self) -> Address {
        match self {
            Listening::Http(address) | Listening::Https(address) | Listening::Admin(address) => {
                Address::Tcp(address)
            }
            Listening::Fastcgi(door) | Listening::AdminSocket(door) => door.listen.clone(),
        }
    }
}

impl Default for Config {
    /// All defaults, and not yet a site: what the directives are read into.
    fn default() -> Config {
        Config {
            listen: vec![DEFAULT_LISTEN],
            tls: None,
            access_log: None,
            access_log_format: LogFormat::default(),
            send_request_id: false,
            error_log: LogTarget::Stderr,
            admin: None,
            admin_access: AdminAccess::default(),
            admin_socket: None,
            trusted_proxies: Vec::new(),
            trusted_headers: vec![Field::Addresses("x-forwarded-for".to_owned()), Field::Proto],
            proxy_protocol: false,
            min_request_rate: DEFAULT_MIN_RATE,
            min_answer_rate: DEFAULT_MIN_RATE,
            clients: ClientLimits::default(),
            front_user: front::default_user().to_owned(),
            front_sandbox: front::default_sandbox(),
            front_threads: 0,
            spool_dir: std::env::temp_dir(),
            cache_memory: DEFAULT_CACHE_MEMORY_BYTES,
            cache_dir: None,
            cache_max_size: DEFAULT_CACHE_MAX_SIZE_BYTES,
            cache_inactive: DEFAULT_CACHE_INACTIVE,
            process_control_timeout: DEFAULT_PROCESS_CONTROL_TIMEOUT,
            require_fixed_php: false,
            spare_zygotes: DEFAULT_SPARE_ZYGOTES,
            pools: Vec::new(),
            sites: Vec::new(),
            fpm: None,
        }
    }
}

impl Config {
    /// The configuration of `maitred serve DIR`: one site for every host with `dir` as its root,
    /// run by one pool. An empty `listen` is 127.0.0.1:8080; without `workers` it finds how many it needs.
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
            let remedy = match root.is_file() && is_configuration {
                true => ", or a configuration with --config",
                false => "",
            };
            let sentence = format!("the document root {problem}{remedy}");
            return Err(Mistakes::about(dir, sentence));
        }
        let config = Config {
            pools: vec![Pool::named(IMPLICIT_POOL)],
            sites: vec![Site::at(root, Destination::Pool(IMPLICIT_POOL.to_owned()))],
            ..Config::default()
        };
        match workers {
            Some(workers) => config.with_listen(listen).with_workers(workers),
            None => Ok(config.with_listen(listen)),
        }
    }

    /// This configuration, listening on `listen` instead, unless that is empty.
    #[must_use]
    pub fn with_listen(self, mut listen: Vec<SocketAddr>) -> Config {
        let mut seen = std::collections::HashSet::new();
        listen.retain(|address| address.port() == 0 || seen.insert(*address));
        if listen.is_empty() {
            self
        } else {
            Config { listen, ..self }
        }
    }

    /// This configuration with `workers` workers in every pool, always.
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

    /// All that is listened on: the addresses of the sites, plain and with TLS, the admin door, the
    /// doors of the pools.
    pub fn listening(&self) -> Vec<Listening<'_>> {
        let sites = self.listen.iter().copied().map(Listening::Http);
        let tls = self.tls.iter().flat_map(|tls| tls.listen.iter().copied());
        let doors = self.pools.iter();
        let doors = doors.flat_map(|pool| [&pool.door, &pool.status_door].into_iter().flatten());
        sites
            .chain(tls.map(Listening::Https))
            .chain(self.admin.map(Listening::Admin))
            .chain(self.admin_access.socket.iter().map(Listening::AdminSocket))
            .chain(doors.map(Listening::Fastcgi))
            .collect()
    }

    /// The pool with this name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// What is wrong with the first site that lies outside of its pool's `chroot`, if there is one.
    /// A configuration that was read has none; one whose pools were changed since may.
    pub fn site_outside_of_chroot(&self) -> Option<String> {
        self.sites.iter().find_map(|site| {
            let mut pools = site.pools();
            pools.find_map(|name| outside_of_chroot(site, self.pool(name)?))
        })
    }
}
