//! Checked settings: what the rest of the program is told.
//!
//! Sent to the front as JSON, so all text in it is UTF-8.

mod clients;
mod site;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_rules::IpNet;
use maitred_rules::forwarded::ForwardedHeader;
pub use maitred_rules::settings::Upstream;
use serde::{Deserialize, Serialize};

use crate::admin::AdminAccess;
use crate::collector::Collector;
use crate::confinement::{Confinement, PIDS_BESIDES_WORKERS, outside_of_chroot};
use crate::door::{Address, Door};
use crate::fpm::Fpm;
use crate::front;
use crate::log_format::LogFormat;
use crate::mistakes::Mistakes;
use crate::mode::{BootConnections, DEFAULT_BOOT_TIMEOUT, Mode, default_boot_timeout};
use crate::tls::Tls;
use crate::value::directory_problem;
pub use clients::ClientLimits;
pub use site::{Cache, Destination, Site, SiteLog};

/// Most workers one pool may have. Each has slots in the pool's shared memory.
pub const MAX_CHILDREN_PER_POOL: u32 = 10_000;

/// The pool of sites that name none in a configuration that defines none.
pub(crate) const IMPLICIT_POOL: &str = "www";

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// Apache's `MinRate` (mod_reqtimeout), in bytes per second.
const DEFAULT_MIN_RATE: u32 = 500;
/// Below the 90 seconds after which systemd loses patience (`TimeoutStopSec`, systemd-system.conf(5)).
const DEFAULT_PROCESS_CONTROL_TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const DEFAULT_MAX_SPAWN_RATE: u32 = 32;
const DEFAULT_PROCESS_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_SLOWLOG_TRACE_DEPTH: u32 = 20;
const DEFAULT_REQUEST_QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_REQUEST_QUEUE_LENGTH: u32 = 1000;
const DEFAULT_SPOOL_LIMIT_BYTES: u64 = 1 << 30;
/// php-fpm's `security.limit_extensions`.
const DEFAULT_LIMIT_EXTENSIONS: [&str; 2] = [".php", ".phar"];
const DEFAULT_PING_RESPONSE: &str = "pong";
const DEFAULT_CACHE_MEMORY_BYTES: u64 = 64 << 20;
const DEFAULT_CACHE_MAX_SIZE_BYTES: u64 = 1 << 30;
/// Where PHP's own default is 128 MB, what two doublings make of it.
pub(crate) const DEFAULT_OPCACHE_MEMORY_MAX_BYTES: u64 = 512 << 20;
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
    pub trusted_headers: Vec<ForwardedHeader>,
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

/// Where a log goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogTarget {
    /// The standard error output of the supervisor.
    Stderr,
    /// A file, appended to; an absolute path.
    File(PathBuf),
    /// The system's log, as [`Fpm`] says.
    Syslog,
    /// Somebody who collects logs.
    Collector(Collector),
}

impl std::fmt::Display for LogTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogTarget::Stderr => f.write_str("stderr"),
            LogTarget::Syslog => f.write_str("syslog"),
            LogTarget::File(path) => path.display().fmt(f),
            LogTarget::Collector(collector) => collector.fmt(f),
        }
    }
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

/// How a pool decides how many workers it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessManager {
    /// Always `max_children` of them.
    Static,
    /// As many as have something to do, and `min_spare_servers` more.
    Dynamic,
    /// As many as have something to do.
    Ondemand,
    /// As many as are needed and there is room for, by what requests cost.
    Auto,
}

impl ProcessManager {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            ProcessManager::Static => "static",
            ProcessManager::Dynamic => "dynamic",
            ProcessManager::Ondemand => "ondemand",
            ProcessManager::Auto => "auto",
        }
    }
}

impl std::fmt::Display for ProcessManager {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

/// For what an older program hands over, which does not know of copies.
fn default_requests_per_child() -> u32 {
    1
}

/// For what an older program hands over, which makes no OPcache larger.
fn default_opcache_memory_max() -> u64 {
    DEFAULT_OPCACHE_MEMORY_MAX_BYTES
}

/// A set of workers with one configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Name: letters, digits, `_` and `-`, at most 32.
    pub name: String,
    /// How the number of workers is decided.
    pub pm: ProcessManager,
    /// How its workers run an application.
    #[serde(default)]
    pub mode: Mode,
    /// The script that is booted: an absolute path; set unless `mode` is classic.
    #[serde(default)]
    pub script: Option<PathBuf>,
    /// Longest that booting it may take.
    #[serde(default = "default_boot_timeout")]
    pub boot_timeout: Duration,
    /// Most workers; `None` is [as many](Pool::most_workers) as the machine suggests.
    pub max_children: Option<u32>,
    /// Workers of a dynamic pool at its start; always set once a dynamic pool has been checked.
    pub start_servers: Option<u32>,
    /// Fewest idle workers of a dynamic pool; set as `start_servers` is.
    pub min_spare_servers: Option<u32>,
    /// Most idle workers of a dynamic pool; set as `start_servers` is.
    pub max_spare_servers: Option<u32>,
    /// Most workers that a dynamic or ondemand pool starts within any one second.
    pub max_spawn_rate: u32,
    /// How long a worker of an ondemand pool stays that has nothing to do.
    pub process_idle_timeout: Duration,
    /// User of the zygote and the workers, by name or number, if set.
    pub user: Option<String>,
    /// Group of the zygote and the workers, by name or number, if set.
    pub group: Option<String>,
    /// The PHP version to run, such as `8.2`, if set.
    pub php: Option<String>,
    /// The php.ini to read, if set.
    pub php_ini: Option<PathBuf>,
    /// The folder of further INI files, if set.
    pub php_ini_scan_dir: Option<PathBuf>,
    /// INI values that a script may change: `php_value` and, as `1` and `0`, `php_flag`.
    pub php_value: BTreeMap<String, String>,
    /// INI values that no script may change: `php_admin_value` and `php_admin_flag`.
    pub php_admin_value: BTreeMap<String, String>,
    /// Environment variables of the workers, in their order; each name is there once.
    pub env: Vec<(String, String)>,
    /// What it may use and where it lives.
    pub confinement: Confinement,
    /// Requests that a copy of a booted application serves.
    #[serde(default = "default_requests_per_child")]
    pub requests_per_child: u32,
    /// How often a copy goes back to what it was when it was forked, and serves as many again.
    #[serde(default)]
    pub rewinds_per_child: u32,
    /// What becomes of connections that its boot has left open.
    #[serde(default)]
    pub boot_connections: BootConnections,
    /// A booted application is booted anew when one of its files is saved.
    #[serde(default)]
    pub watch: bool,
    /// Bytes that OPcache is given at most when it is full in a pool that boots an application; 0: it is
    /// never made larger.
    #[serde(default = "default_opcache_memory_max")]
    pub opcache_memory_max: u64,
    /// Paths asked for before a booted application is copied; each begins with a slash.
    #[serde(default)]
    pub warm_requests: Vec<String>,
    /// Requests after which a worker is replaced; 0 is never.
    pub max_requests: u64,
    /// Bytes of private memory beyond which a worker is replaced; 0 is never.
    pub max_private_memory: u64,
    /// How long a script may run; zero is for ever.
    pub request_terminate_timeout: Duration,
    /// How long a script may run before its stack is written to `slowlog`; zero is for ever.
    pub request_slowlog_timeout: Duration,
    /// Most frames of such a stack.
    pub request_slowlog_trace_depth: u32,
    /// What each request costs is measured.
    pub request_accounting: bool,
    /// Answers have a `Server-Timing` field.
    pub server_timing: bool,
    /// Where stacks of slow scripts are written, if they are; set if `request_slowlog_timeout` is.
    pub slowlog: Option<LogTarget>,
    /// How long a request may wait for a worker; zero is not at all.
    pub request_queue_timeout: Duration,
    /// How many requests may wait for a worker.
    pub request_queue_length: u32,
    /// The header that says how long an answer is waited for, if there is one.
    pub request_deadline_header: Option<String>,
    /// Workers that urgent requests alone may have.
    pub reserved_workers: u32,
    /// Bytes of one answer that are kept for a slow client before the script has to wait.
    pub spool_limit: u64,
    /// The path that answers with the pool's status, if set.
    pub status_path: Option<String>,
    /// The path that answers with `ping_response`, if set.
    pub ping_path: Option<String>,
    /// What `ping_path` answers; not empty.
    pub ping_response: String,
    /// Where web servers reach it over FastCGI, if they do.
    pub door: Option<Door>,
    /// Where its status is answered over FastCGI apart from its requests, if it is.
    pub status_door: Option<Door>,
    /// How scripts that come through the door end; empty: no matter how. Each begins with a dot.
    pub limit_extensions: Vec<String>,
    /// The access log of the door's requests, in php-fpm's format, if there is one.
    pub door_log: Option<DoorLog>,
    /// What its workers print is logged; otherwise it is lost, if the server was started as php-fpm.
    pub catch_workers_output: bool,
    /// What they print is logged with the pool and the worker it is from.
    pub decorate_workers_output: bool,
    /// Workers get none of the server's own environment.
    pub clear_env: bool,
    /// Extensions to load beside those of php.ini (`php_admin_value[extension]`).
    pub extensions: Vec<String>,
    /// php.ini entries that come after the files and before `php_value` (`-d` of php-fpm).
    pub defines: Vec<(String, String)>,
    /// No php.ini is read at all (`-n` of php-fpm).
    pub no_php_ini: bool,
    /// `request_terminate_timeout` binds a script after fastcgi_finish_request(), too.
    pub request_terminate_timeout_track_finished: bool,
    /// Workers may be inspected and leave core files (`process.dumpable`).
    pub process_dumpable: bool,
    /// The AppArmor profile its workers change to, if any.
    pub apparmor_hat: Option<String>,
}

/// php-fpm's `access.log`, `access.format` and `access.suppress_path`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorLog {
    /// The file: an absolute path.
    pub path: PathBuf,
    /// The form of a line, checked.
    pub format: String,
    /// Paths whose plain and successful requests are not logged.
    pub suppress_path: Vec<String>,
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
            trusted_headers: vec![
                ForwardedHeader::Addresses("x-forwarded-for".to_owned()),
                ForwardedHeader::Proto,
            ],
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

/// Workers of a pool that does not say how many, for each core.
const WORKERS_PER_CORE: u32 = 2;

/// The same of one that finds how many it needs, which it hardly ever reaches.
const AUTO_WORKERS_PER_CORE: u32 = 64;

/// And for all cores: MySQL and MariaDB take 151 connections where nobody has said otherwise.
const AUTO_WORKERS_MOST: u32 = 128;

impl Pool {
    /// Most workers on a machine of so many cores: what is set, or as many as suit it and `pids_max` has room for.
    pub fn most_workers(&self, cores: u32) -> u32 {
        let two_each = cores.saturating_mul(WORKERS_PER_CORE);
        let by_default = match self.pm {
            ProcessManager::Auto => {
                let many = cores.saturating_mul(AUTO_WORKERS_PER_CORE);
                many.min(AUTO_WORKERS_MOST).max(two_each)
            }
            ProcessManager::Static | ProcessManager::Dynamic | ProcessManager::Ondemand => two_each,
        };
        let processes = self.confinement.together.pids_max.unwrap_or(u32::MAX);
        let forked = processes.saturating_sub(PIDS_BESIDES_WORKERS).max(1);
        self.max_children.unwrap_or(by_default.min(forked))
    }

    /// Fewest workers of one that finds how many it needs.
    pub fn fewest_found(&self) -> u32 {
        u32::from(self.min_spare_servers != Some(0))
    }

    /// A pool in which every setting has its default.
    pub fn named(name: &str) -> Pool {
        Pool {
            name: name.to_owned(),
            pm: ProcessManager::Auto,
            mode: Mode::Classic,
            script: None,
            boot_timeout: DEFAULT_BOOT_TIMEOUT,
            max_children: None,
            start_servers: None,
            min_spare_servers: None,
            max_spare_servers: None,
            max_spawn_rate: DEFAULT_MAX_SPAWN_RATE,
            process_idle_timeout: DEFAULT_PROCESS_IDLE_TIMEOUT,
            user: None,
            group: None,
            php: None,
            php_ini: None,
            php_ini_scan_dir: None,
            php_value: BTreeMap::new(),
            php_admin_value: BTreeMap::new(),
            env: Vec::new(),
            confinement: Confinement::default(),
            requests_per_child: 1,
            rewinds_per_child: 0,
            boot_connections: BootConnections::Refuse,
            watch: false,
            opcache_memory_max: DEFAULT_OPCACHE_MEMORY_MAX_BYTES,
            warm_requests: Vec::new(),
            max_requests: 0,
            max_private_memory: 0,
            request_terminate_timeout: Duration::ZERO,
            request_slowlog_timeout: Duration::ZERO,
            request_slowlog_trace_depth: DEFAULT_SLOWLOG_TRACE_DEPTH,
            request_accounting: true,
            server_timing: false,
            slowlog: None,
            request_queue_timeout: DEFAULT_REQUEST_QUEUE_TIMEOUT,
            request_queue_length: DEFAULT_REQUEST_QUEUE_LENGTH,
            request_deadline_header: None,
            reserved_workers: 0,
            spool_limit: DEFAULT_SPOOL_LIMIT_BYTES,
            status_path: None,
            ping_path: None,
            ping_response: DEFAULT_PING_RESPONSE.to_owned(),
            door: None,
            status_door: None,
            limit_extensions: DEFAULT_LIMIT_EXTENSIONS.map(str::to_owned).to_vec(),
            door_log: None,
            catch_workers_output: true,
            decorate_workers_output: true,
            clear_env: true,
            extensions: Vec::new(),
            defines: Vec::new(),
            no_php_ini: false,
            request_terminate_timeout_track_finished: false,
            process_dumpable: false,
            apparmor_hat: None,
        }
    }
}
