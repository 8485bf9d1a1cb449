//! Facts about a machine and its servers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::addresses;
use crate::ini_value;
pub use crate::opcache_shortage::Opcache;
use crate::quantile::quantile;

/// The longest duration that is used; longer values in configurations are reduced to it, so that
/// sums cannot overflow.
pub const LONGEST: Duration = Duration::from_secs(i32::MAX as u64);

/// A fact, or the reason why it is unknown.
pub type Fact<T> = Result<T, Unknown>;

/// A fact by reference: its value, or a copy of the reason why it is unknown.
pub fn known<T>(fact: &Fact<T>) -> Fact<&T> {
    fact.as_ref().map_err(Clone::clone)
}

/// The reason why a fact is unknown: a sentence without its full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown(pub String);

impl Unknown {
    /// An unknown fact with this reason.
    pub fn because<T>(why: impl Into<String>) -> Fact<T> {
        Err(Unknown(why.into()))
    }
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// The input of the checks.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The machine.
    pub machine: Machine,
    /// The services that run PHP on this machine.
    pub services: Vec<Service>,
    /// nginx, if it is configured here.
    pub nginx: Option<Nginx>,
    /// Apache, if it is configured here.
    pub apache: Option<Apache>,
    /// Applications with a configuration file in a document root or next to it.
    pub applications: Vec<Application>,
    /// The request rate from the access log. `None` without one.
    pub arrivals: Fact<Option<Arrivals>>,
    /// The databases that run here.
    pub databases: Fact<Vec<Database>>,
    /// Configurations that cannot be read, and the reasons.
    pub broken: Vec<(String, Unknown)>,
    /// The part of `broken` that belongs to web servers.
    pub broken_web: Vec<(String, Unknown)>,
    /// php-fpm, nginx and Apache that do not run, and were not named: they are not examined.
    pub installed: Vec<String>,
}

impl Facts {
    /// All pools, each with its service.
    pub fn pools(&self) -> impl Iterator<Item = (&Service, &Pool)> {
        let services = self.services.iter();
        services.flat_map(|service| service.pools.iter().map(move |pool| (service, pool)))
    }
}

/// The machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its memory.
    pub memory: Fact<Memory>,
    /// Processors that the system has.
    pub processors: Fact<u32>,
    /// Processors that this process may use.
    pub allowed_processors: Fact<u32>,
    /// Tasks stalled for lack of memory.
    pub pressure: Fact<Pressure>,
    /// `vm.swappiness`.
    pub swappiness: Fact<u64>,
    /// Swap devices, and the reason if they are slow.
    pub swaps: Fact<Vec<(String, Option<String>)>>,
    /// Pages read from swap during the check.
    pub swapped_in: Fact<SwappedIn>,
    /// `net.core.somaxconn` of our network namespace.
    pub somaxconn: Fact<u64>,
    /// The kernel's version, its first two numbers.
    pub kernel: Fact<(u32, u32)>,
    /// Open files of the whole system, and their limit.
    pub files: Fact<(u64, u64)>,
    /// Processes and threads of the whole system, and their limit.
    pub tasks: Fact<(u64, u64)>,
    /// Processes that the kernel has killed for lack of memory since the boot.
    pub oom_kills: Fact<u64>,
    /// The last killed process, if the kernel's log still has it.
    pub last_kill: Fact<Option<Killed>>,
    /// Listening sockets.
    pub sockets: Fact<Vec<Socket>>,
    /// Mounts: folder and file system type, the longest folder first.
    pub mounts: Fact<Vec<(String, String)>>,
    /// The file that sets `net.ipv4.tcp_max_syn_backlog`.
    pub syn_backlog_set_in: Option<String>,
}

/// A process killed by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killed {
    /// The time, as text.
    pub when: String,
    /// Its name and number.
    pub who: String,
}

/// The percentile of the gaps between requests.
const MOST_GAPS: f64 = 0.95;

/// The rate of requests for scripts, from an access log.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    /// Number of requests in the log.
    pub requests: u64,
    /// The largest rise from one second to the next, and its time.
    pub rise: f64,
    #[allow(missing_docs)]
    pub rise_at: String,
    /// Requests a second in the busiest hour.
    pub busiest_rate: f64,
    /// Gaps between consecutive requests, in seconds.
    pub gaps: Vec<f64>,
}

impl Arrivals {
    /// The gap that 95 of 100 do not exceed, in seconds.
    pub fn gap_p95(&self) -> f64 {
        quantile(self.gaps.clone(), MOST_GAPS).unwrap_or(0.0)
    }

    /// The share of time with a worker, if the worker stays for this long after each request.
    pub fn awake(&self, idle_timeout: Duration) -> f64 {
        let most = idle_timeout.as_secs_f64();
        let span: f64 = self.gaps.iter().sum();
        let awake: f64 = self.gaps.iter().map(|gap| gap.min(most)).sum();
        // All in one second: no other time is known.
        if span > 0.0 { awake / span } else { 1.0 }
    }
}

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// All of it.
    pub total: f64,
    /// Memory that programs can still get (`MemAvailable`).
    pub available: f64,
    /// Swap.
    pub swap: f64,
}

/// `/proc/pressure/memory`: shares of the last 60 s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pressure {
    /// Some tasks stalled.
    pub some: f64,
    /// All tasks stalled.
    pub full: f64,
    /// Whether this user may set a trigger.
    pub can_watch: bool,
}

/// Pages read from swap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwappedIn {
    /// Pages.
    pub pages: u64,
    /// In this many seconds.
    pub seconds: f64,
}

/// A listening socket.
#[derive(Debug, Clone, PartialEq)]
pub struct Socket {
    /// A path, or an address with its port.
    pub address: String,
    /// Connections not accepted yet.
    pub waiting: u64,
    /// Their maximum.
    pub limit: u64,
}

/// A program that runs PHP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhpServer {
    /// maitred with its own configuration.
    Maitred,
    /// php-fpm.
    PhpFpm,
    /// maitred as a drop-in for php-fpm, with php-fpm's configuration.
    MaitredFpm,
    /// Apache with mod_php.
    ModPhp,
}

/// A service that runs PHP.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Its program.
    pub kind: PhpServer,
    /// Its name in reports, with its configuration.
    pub name: String,
    /// The files of its configuration, the first one first.
    pub files: Vec<String>,
    /// Patterns of further included files.
    pub includes: Vec<String>,
    /// Timeout of a shutdown for running requests; zero: it does not wait.
    pub control_timeout: Duration,
    /// Time for which a stop serves clients before that; only maitred has one.
    pub stop_delay: Duration,
    /// Whether it is one of several nodes (`purge_log`); only maitred knows.
    pub has_other_nodes: bool,
    /// Its systemd unit, if it has one.
    pub unit: Fact<Option<Unit>>,
    /// Its first process.
    pub process: Fact<Process>,
    /// The control groups around it.
    pub group: Group,
    /// Maximum client connections, if it serves clients itself.
    pub connections: Option<u64>,
    /// Its pools.
    pub pools: Vec<Pool>,
}

/// A process.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its `oom_score_adj`.
    pub oom_score_adj: Fact<i64>,
    /// Its soft limit of open files.
    pub open_files: Fact<u64>,
}

/// A systemd unit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// Its settings, the last of each name.
    pub settings: BTreeMap<String, String>,
}

/// A process's control groups and their ancestors.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The process: the server, or this command if the server does not run.
    pub whose: String,
    /// The smallest memory limit, in bytes, and its file.
    pub memory: Fact<Option<(f64, String)>>,
    /// Memory in use of the group with that limit, in bytes, without files that the kernel may
    /// drop.
    pub used: Fact<Option<f64>>,
    /// The smallest quota, in processors, and its file.
    pub cores: Fact<Option<(f64, String)>>,
    /// Number of times that the quota was used up.
    pub throttled: Fact<Option<Throttled>>,
    /// Its processes that were killed for lack of memory.
    pub oom_kills: Fact<Option<u64>>,
    /// The kernel kills all of the group at once.
    pub kills_all: bool,
}

/// How often a quota was used up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttled {
    /// All periods.
    pub periods: u64,
    /// Periods in which the quota was used up.
    pub throttled: u64,
    /// The observed time in seconds; `None`: since the group was created.
    pub seconds: Option<f64>,
}

/// Process manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// `static`.
    Static,
    /// `dynamic`.
    Dynamic,
    /// `ondemand`.
    Ondemand,
    /// The program decides.
    Auto,
    /// `auto`: the load, the processors and the memory determine the number.
    Found,
}

impl Manager {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Manager::Static => "static",
            Manager::Dynamic => "dynamic",
            Manager::Ondemand => "ondemand",
            Manager::Auto | Manager::Found => "auto",
        }
    }
}

/// A pool of workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Its name for people, with its file.
    pub name: String,
    /// Its name in the configuration.
    pub section: String,
    /// The user of its workers, if it is known.
    pub user: Option<u32>,
    /// Its process manager.
    pub manager: Manager,
    /// Most workers.
    pub max_children: u32,
    /// Whether `max_children` is set in the configuration; if not, it is the default.
    pub is_chosen: bool,
    /// Spare servers of a dynamic pool.
    pub spares: Option<Spares>,
    /// Idle timeout of an ondemand pool's workers.
    pub idle_timeout: Duration,
    /// Requests after which a worker is replaced; 0 is never.
    pub max_requests: u64,
    /// Wall-clock limit of a script; zero is none.
    pub wall_limit: Duration,
    /// Whether `wall_limit` also covers work after the response.
    pub tracks_finished: bool,
    /// Its listener for web servers.
    pub listen: Option<Listen>,
    /// The queue inside the server: maximum length and waiting time.
    pub queue: Option<(u64, Duration)>,
    /// The path of its status page.
    pub status_path: Option<String>,
    /// Whether the status page has its own socket.
    pub has_status_listen: bool,
    /// The socket of php-fpm's status page.
    pub status_at: Option<String>,
    /// maitred's sites at which every client may read the status page.
    pub status_shown_at: Vec<String>,
    /// Its php.ini.
    pub ini: Fact<Ini>,
    /// Document roots of its code, as far as known.
    pub roots: Vec<String>,
    /// Stats of a running server.
    pub live: Fact<Live>,
}

impl Pool {
    /// A stat of the running server.
    pub fn stat<T: Clone>(&self, of: fn(&Live) -> &Fact<T>) -> Fact<T> {
        of(known(&self.live)?).clone()
    }

    /// Its running workers.
    pub fn workers(&self) -> Fact<&[Worker]> {
        Ok(known(&known(&self.live)?.workers)?)
    }

    /// Private memory of all its workers, in bytes; one that is not measured has the mean.
    pub fn private_of_all(&self) -> f64 {
        let (workers, live) = (self.workers().unwrap_or_default(), self.live.as_ref());
        let private = workers.iter().filter_map(|worker| worker.private.as_ref().ok().copied());
        let private: Vec<f64> = private.collect();
        let all = workers.len() + live.map_or(0, |live| live.further_workers);
        private.iter().sum::<f64>() * all as f64 / private.len().max(1) as f64
    }
}

/// Spare servers of a dynamic pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spares {
    /// Workers at the start.
    pub start: u32,
    /// Fewest idle ones.
    pub min: u32,
    /// Most idle ones.
    pub max: u32,
}

/// A pool's listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// A path, or an address with its port.
    pub address: String,
    /// The configured backlog; negative: as large as possible.
    pub backlog: i64,
}

impl Listen {
    /// Whether it is a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.address.starts_with(['/', '@'])
    }
}

/// The entries of php.ini and of the pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ini {
    /// Entries by name; a missing one has PHP's default.
    pub entries: BTreeMap<String, String>,
    /// Names of the entries that the pool sets.
    pub of_pool: Vec<String>,
    /// Extensions loaded by `zend_extension`.
    pub zend_extensions: Vec<String>,
    /// The PHP version, such as `8.2`.
    pub version: Option<(u32, u32)>,
}

impl Ini {
    /// An entry, or PHP's default for it.
    pub fn get<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.entries.get(name).map_or(default, String::as_str)
    }

    /// Whether a flag is on, by an entry or PHP's default for it.
    pub fn is_on(&self, name: &str, default: &str) -> bool {
        ini_value::is_yes(self.get(name, default))
    }
}

/// Stats of a pool of a running server.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Its workers.
    pub workers: Fact<Vec<Worker>>,
    /// Workers besides these, which are too many to be measured.
    pub further_workers: usize,
    /// Median time of scripts, in seconds.
    pub script_p50: Fact<f64>,
    /// 99th percentile of the time of scripts, in seconds.
    pub script_p99: Fact<f64>,
    /// 99th percentile of the queueing time, in seconds.
    pub queue_wait_p99: Fact<f64>,
    /// Share of a script's time on a processor.
    pub cpu_share: Fact<f64>,
    /// Seconds of waiting for a processor per second on one.
    pub contention: Fact<f64>,
    /// The term that limits the number of workers of a pool with `pm = auto`.
    pub binding: Fact<Option<String>>,
    /// Number of times that all workers were busy and `max_children` was reached.
    pub limit_reached: Fact<u64>,
    /// Most requests that waited at once.
    pub queue_max: Fact<u64>,
    /// Requests a second since the start.
    pub rate: Fact<f64>,
    /// Its OPcache; `None`: it has none.
    pub opcache: Fact<Option<Opcache>>,
}

/// A worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Worker {
    /// Its process id.
    pub pid: i32,
    /// Private memory, in bytes.
    pub private: Fact<f64>,
    /// Resident memory, in bytes.
    pub resident: Fact<f64>,
    /// Its swapped-out bytes at the start and at the end of the check.
    pub swapped: Fact<(f64, f64)>,
    /// Requests it has served.
    pub requests: Fact<u64>,
    /// Its `oom_score_adj`.
    pub oom_score_adj: Fact<i64>,
    /// Processor time it has used, in seconds.
    pub cpu: Fact<f64>,
}

/// nginx's configuration, as far as the checks need it.
#[derive(Debug, Clone, PartialEq)]
pub struct Nginx {
    /// Its first file.
    pub file: String,
    /// Worker processes; `None`: one for each processor.
    pub workers: Option<u32>,
    /// Connections of a worker.
    pub connections: u64,
    /// Open files of a worker.
    pub open_files: Fact<u64>,
    /// Its `fastcgi_pass` directives.
    pub passes: Vec<Pass>,
    /// Document roots.
    pub roots: Vec<String>,
    /// Positions of `proxy_cache` where nothing is proxied.
    pub idle_proxy_caches: Vec<String>,
    /// Directives of nginx Plus that the free nginx lacks: names and positions.
    pub foreign: Vec<(String, String)>,
    /// Positions of `sendfile off`.
    pub sendfile_off: Vec<String>,
}

/// A directive of a web server that passes requests to a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Pass {
    /// File and line.
    pub place: String,
    /// Addresses of pools.
    pub to: Vec<String>,
    /// Its read timeout.
    pub read_timeout: Duration,
    /// Idle keepalive connections of each worker process.
    pub kept: u64,
    /// The location's pattern.
    pub location: String,
    /// Only some clients have access.
    pub is_restricted: bool,
    /// Its page cache, if it has one.
    pub cache: Option<PassCache>,
}

impl Pass {
    /// Whether the directive passes requests to this listener.
    pub fn meets(&self, listen: &Listen) -> bool {
        let mut to = self.to.iter();
        to.any(|to| addresses::meets(&listen.address, to))
    }
}

/// `fastcgi_cache` and its directives.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PassCache {
    /// The zone.
    pub zone: String,
    /// The hosts of its server block.
    pub hosts: Vec<String>,
    /// `fastcgi_cache_key`.
    pub key: String,
    /// Ignored response headers, in lower case.
    pub ignored: Vec<String>,
    /// Conditions of `fastcgi_cache_bypass` and `fastcgi_no_cache`.
    pub bypasses: Vec<String>,
    /// `fastcgi_cache_methods`, if set.
    pub methods: Vec<String>,
    /// `fastcgi_cache_valid any`.
    pub keeps_any_status: bool,
    /// `fastcgi_cache_lock`.
    pub locks: bool,
    /// Whether a stale page is served during its update (`fastcgi_cache_use_stale updating`).
    pub sends_stale: bool,
}

/// Apache's configuration, as far as the checks need it.
#[derive(Debug, Clone, PartialEq)]
pub struct Apache {
    /// Its first file.
    pub file: String,
    /// `prefork`, `worker` or `event`.
    pub mpm: Fact<String>,
    /// Maximum concurrent clients.
    pub max_request_workers: u64,
    /// Requests after which a child is replaced.
    pub max_connections_per_child: u64,
    /// Threads of a child.
    pub threads_per_child: u64,
    /// Most children.
    pub server_limit: Option<u64>,
    /// Directives with a newer name: old, new, position.
    pub old_names: Vec<(String, String, String)>,
    /// Its directives that pass requests to FastCGI.
    pub passes: Vec<Pass>,
    /// Document roots.
    pub roots: Vec<String>,
}

/// An application's own settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    /// The file.
    pub file: String,
    /// It displays errors in full.
    pub shows_errors: Fact<bool>,
}

/// A database.
#[derive(Debug, Clone, PartialEq)]
pub struct Database {
    /// Its name for people.
    pub name: String,
    /// `max_connections`.
    pub max_connections: u64,
    /// Its file.
    pub place: String,
    /// Its process's `oom_score_adj`.
    pub oom_score_adj: Fact<i64>,
}
