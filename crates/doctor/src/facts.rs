//! What is known of a machine and the servers on it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::addresses;
use crate::quantile::quantile;

/// The longest time that is read anywhere; longer ones count as this. Times are added up later.
pub const LONGEST: Duration = Duration::from_secs(i32::MAX as u64);

/// What is known, or why it is not.
pub type Fact<T> = Result<T, Unknown>;

/// Why something is not known: a sentence without its full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown(pub String);

impl Unknown {
    /// For this reason.
    pub fn because<T>(why: impl Into<String>) -> Fact<T> {
        Err(Unknown(why.into()))
    }
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// All that the checks look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The machine.
    pub machine: Machine,
    /// What runs PHP here.
    pub services: Vec<Service>,
    /// nginx, if it is configured here.
    pub nginx: Option<Nginx>,
    /// Apache, if it is configured here.
    pub apache: Option<Apache>,
    /// Applications that have a file of their own settings in a document root or beside it.
    pub applications: Vec<Application>,
    /// How requests come, by the access log that was named; nothing: none was.
    pub arrivals: Fact<Option<Arrivals>>,
    /// The databases that run here.
    pub databases: Fact<Vec<Database>>,
    /// Configurations that cannot be read: which, and why.
    pub broken: Vec<(String, Unknown)>,
    /// Those of `broken` that are a web server's.
    pub broken_web: Vec<(String, Unknown)>,
}

impl Facts {
    /// All pools, each with what runs it.
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
    /// Tasks stalled for want of memory.
    pub pressure: Fact<Pressure>,
    /// `vm.swappiness`.
    pub swappiness: Fact<u64>,
    /// What is swapped to, and why that is slow, if it is.
    pub swaps: Fact<Vec<(String, Option<String>)>>,
    /// What came back from swap while we looked.
    pub swapped_in: Fact<SwappedIn>,
    /// `net.core.somaxconn` of our network namespace.
    pub somaxconn: Fact<u64>,
    /// The kernel's version, its first two numbers.
    pub kernel: Fact<(u32, u32)>,
    /// Open files of the whole system, and how many there may be.
    pub files: Fact<(u64, u64)>,
    /// Processes and threads of the whole system, and how many there may be.
    pub tasks: Fact<(u64, u64)>,
    /// Processes that the kernel has killed for want of memory since it started.
    pub oom_kills: Fact<u64>,
    /// The last of them, as far as the kernel's log still has it.
    pub last_kill: Fact<Option<Killed>>,
    /// Sockets that are listened on.
    pub sockets: Fact<Vec<Socket>>,
    /// What is mounted where: folder and kind, the longest folder first.
    pub mounts: Fact<Vec<(String, String)>>,
    /// `net.ipv4.tcp_max_syn_backlog` is set in a file, which is named.
    pub syn_backlog_set_in: Option<String>,
}

/// A process that the kernel has killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killed {
    /// The moment, as text.
    pub when: String,
    /// Its name and number.
    pub who: String,
}

/// The share of the gaps between requests that is looked at.
const MOST_GAPS: f64 = 0.95;

/// How requests for scripts come, by an access log.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    /// How many it has.
    pub requests: u64,
    /// By how many more they came in a second than in the one before, at most, and when.
    pub rise: f64,
    #[allow(missing_docs)]
    pub rise_at: String,
    /// Requests a second in the busiest hour.
    pub busiest_rate: f64,
    /// How long after the one before each but the first came, in seconds.
    pub gaps: Vec<f64>,
}

impl Arrivals {
    /// 95 of 100 come no later after the one before, in seconds.
    pub fn gap_p95(&self) -> f64 {
        quantile(self.gaps.clone(), MOST_GAPS).unwrap_or(0.0)
    }

    /// The share of the time in which a worker that stays for so long after each request is there.
    pub fn awake(&self, idle_timeout: Duration) -> f64 {
        let most = idle_timeout.as_secs_f64();
        let span: f64 = self.gaps.iter().sum();
        let awake: f64 = self.gaps.iter().map(|gap| gap.min(most)).sum();
        // All in one second: nothing is known of any other time.
        if span > 0.0 { awake / span } else { 1.0 }
    }
}

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// All of it.
    pub total: f64,
    /// What may still be had.
    pub available: f64,
    /// Swap.
    pub swap: f64,
}

/// `/proc/pressure/memory`: shares of the last 60 s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pressure {
    /// Some task stood still.
    pub some: f64,
    /// All tasks stood still.
    pub full: f64,
    /// Whether we could have the kernel tell us.
    pub can_watch: bool,
}

/// What was read from swap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwappedIn {
    /// Pages.
    pub pages: u64,
    /// Over so many seconds.
    pub seconds: f64,
}

/// A socket that is listened on.
#[derive(Debug, Clone, PartialEq)]
pub struct Socket {
    /// A path, or an address with its port.
    pub address: String,
    /// Connections that nobody has accepted yet.
    pub waiting: u64,
    /// Most of them.
    pub limit: u64,
}

/// Which program runs PHP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhpServer {
    /// maitred with its own configuration.
    Maitred,
    /// php-fpm.
    PhpFpm,
    /// maitred in php-fpm's place, with php-fpm's configuration.
    MaitredFpm,
    /// Apache with PHP inside.
    ModPhp,
}

/// What runs PHP.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Which program.
    pub kind: PhpServer,
    /// Its name for people, with its configuration.
    pub name: String,
    /// The files of its configuration, the first one first.
    pub files: Vec<String>,
    /// Patterns of further files that they include.
    pub includes: Vec<String>,
    /// How long a stop waits for requests that run; zero is not at all.
    pub control_timeout: Duration,
    /// Its unit of systemd's, if it has one.
    pub unit: Fact<Option<Unit>>,
    /// Its first process.
    pub process: Fact<Process>,
    /// The control groups around it.
    pub group: Group,
    /// Clients that may be connected at a time, if it serves clients itself.
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

/// What a unit of systemd's says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// Its settings, the last of each name.
    pub settings: BTreeMap<String, String>,
}

/// Control groups around a process, each with those around it.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Whose they are: the server's, or ours where that does not run.
    pub whose: String,
    /// The smallest limit of memory, in bytes, and where it is set.
    pub memory: Fact<Option<(f64, String)>>,
    /// What the group with that limit has in use, in bytes, without the files that the kernel may drop.
    pub used: Fact<Option<f64>>,
    /// The smallest quota, in processors, and where it is set.
    pub cores: Fact<Option<(f64, String)>>,
    /// How often the quota was used up.
    pub throttled: Fact<Option<Throttled>>,
    /// Processes of it that were killed for want of memory.
    pub oom_kills: Fact<Option<u64>>,
    /// The kernel is told to kill all of it at once.
    pub kills_all: bool,
}

/// How often a quota was used up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttled {
    /// Periods that there were.
    pub periods: u64,
    /// Those in which it was.
    pub throttled: u64,
    /// Over so many seconds; nothing: since the group was made.
    pub seconds: Option<f64>,
}

/// How the number of workers is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// Always the same.
    Static,
    /// Between bounds.
    Dynamic,
    /// As many as are asked for.
    Ondemand,
    /// As the server sees fit.
    Auto,
    /// As many as requests need, and processors and memory have room for (maitred's `pm = "auto"`).
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

/// A set of workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Its name for people, with its file.
    pub name: String,
    /// Its name in the configuration.
    pub section: String,
    /// How the number of workers is decided.
    pub manager: Manager,
    /// Most workers.
    pub max_children: u32,
    /// Whether that is somebody's number, and not the program's choice.
    pub is_chosen: bool,
    /// Workers at the start, fewest and most idle ones, of a dynamic pool.
    pub spares: Option<Spares>,
    /// How long an idle worker of an ondemand pool stays.
    pub idle_timeout: Duration,
    /// Requests after which a worker is replaced; 0 is never.
    pub max_requests: u64,
    /// How long a script may run by the clock on the wall; zero is for ever.
    pub wall_limit: Duration,
    /// That binds what a script does after its answer, too.
    pub tracks_finished: bool,
    /// Where web servers reach it.
    pub listen: Option<Listen>,
    /// What waits for a worker inside the server: most, and how long at most.
    pub queue: Option<(u64, Duration)>,
    /// The path of its status page.
    pub status_path: Option<String>,
    /// That has a socket of its own.
    pub has_status_listen: bool,
    /// Where php-fpm is asked for it.
    pub status_at: Option<String>,
    /// Sites of maitred's at which every client may read the status page.
    pub status_shown_at: Vec<String>,
    /// The entries of php.ini that hold for it, by name; what is absent has PHP's default.
    pub ini: Fact<Ini>,
    /// Folders that its code is in, as far as that is known.
    pub roots: Vec<String>,
    /// What a running server tells of it.
    pub live: Fact<Live>,
}

/// Bounds of a dynamic pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spares {
    /// Workers at the start.
    pub start: u32,
    /// Fewest idle ones.
    pub min: u32,
    /// Most idle ones.
    pub max: u32,
}

/// Where a pool is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// A path, or an address with its port.
    pub address: String,
    /// The backlog that is asked for; below zero: as large as may be.
    pub backlog: i64,
}

impl Listen {
    /// Whether it is a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.address.starts_with(['/', '@'])
    }
}

/// php.ini and what a pool adds to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ini {
    /// Entries by name.
    pub entries: BTreeMap<String, String>,
    /// Names of those that the pool sets.
    pub of_pool: Vec<String>,
    /// What is loaded by `zend_extension`.
    pub zend_extensions: Vec<String>,
    /// The PHP it is of, such as `8.2`.
    pub version: Option<(u32, u32)>,
}

impl Ini {
    /// An entry, or PHP's default for it.
    pub fn get<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.entries.get(name).map_or(default, String::as_str)
    }
}

/// What a running server tells of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Its workers.
    pub workers: Fact<Vec<Worker>>,
    /// How long half of the scripts took at most, in seconds.
    pub script_p50: Fact<f64>,
    /// How long nearly all took, in seconds.
    pub script_p99: Fact<f64>,
    /// How long 99 of 100 requests waited for a worker, in seconds.
    pub queue_wait_p99: Fact<f64>,
    /// Which part of a script's own time is a processor's.
    pub cpu_share: Fact<f64>,
    /// Waiting for a processor, in seconds for each second on one.
    pub contention: Fact<f64>,
    /// What decides how many workers there are, of a pool that finds its size.
    pub binding: Fact<Option<String>>,
    /// How often all workers were busy and no further one was allowed.
    pub limit_reached: Fact<u64>,
    /// Requests that waited at once, at most.
    pub queue_max: Fact<u64>,
    /// Requests a second since the start.
    pub rate: Fact<f64>,
    /// Its OPcache; nothing: it has none.
    pub opcache: Fact<Option<Opcache>>,
}

/// A worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Worker {
    /// Its process id.
    pub pid: i32,
    /// Memory of its own, in bytes.
    pub private: Fact<f64>,
    /// Resident memory, in bytes.
    pub resident: Fact<f64>,
    /// Of it in swap: bytes when we began to look, and when we ended.
    pub swapped: Fact<(f64, f64)>,
    /// Requests it has served.
    pub requests: Fact<u64>,
    /// Its `oom_score_adj`.
    pub oom_score_adj: Fact<i64>,
    /// Processor time it has used, in seconds.
    pub cpu: Fact<f64>,
}

/// An OPcache.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Opcache {
    /// Bytes in use.
    pub used: f64,
    /// Bytes that are free.
    pub free: f64,
    /// Bytes that are wasted until a restart.
    pub wasted: f64,
    /// Restarts for want of memory or keys.
    pub forced_restarts: u64,
    /// Keys in use, and how many there may be; nothing: not known.
    pub keys: Option<(u64, u64)>,
    /// Bytes of the buffer of strings that are free; nothing: not known.
    pub free_strings: Option<f64>,
}

/// nginx's configuration, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
pub struct Nginx {
    /// Its first file.
    pub file: String,
    /// Worker processes; nothing: one for each processor.
    pub workers: Option<u32>,
    /// Connections of a worker.
    pub connections: u64,
    /// Open files of a worker.
    pub open_files: Fact<u64>,
    /// Where it passes requests to FastCGI.
    pub passes: Vec<Pass>,
    /// Document roots.
    pub roots: Vec<String>,
    /// `proxy_cache` where nothing is proxied: places.
    pub idle_proxy_caches: Vec<String>,
    /// Directives that the free nginx does not know: names and places.
    pub foreign: Vec<(String, String)>,
    /// Places of `sendfile off`.
    pub sendfile_off: Vec<String>,
}

/// A place of a web server's configuration that passes requests to a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Pass {
    /// File and line.
    pub place: String,
    /// Addresses of pools.
    pub to: Vec<String>,
    /// How long it waits between two reads.
    pub read_timeout: Duration,
    /// Idle connections that each worker process keeps.
    pub kept: u64,
    /// The location's pattern.
    pub location: String,
    /// Only some clients are let in.
    pub is_restricted: bool,
    /// Its page cache, if it has one.
    pub cache: Option<PassCache>,
}

impl Pass {
    /// Whether it passes requests to who listens there.
    pub fn meets(&self, listen: &Listen) -> bool {
        let mut to = self.to.iter();
        to.any(|to| addresses::meets(&listen.address, to))
    }
}

/// `fastcgi_cache` and what goes with it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PassCache {
    /// The zone.
    pub zone: String,
    /// The hosts of its server block.
    pub hosts: Vec<String>,
    /// `fastcgi_cache_key`.
    pub key: String,
    /// Header fields of answers that it does not obey, in small letters.
    pub ignored: Vec<String>,
    /// Conditions of `fastcgi_cache_bypass` and `fastcgi_no_cache`.
    pub bypasses: Vec<String>,
    /// `fastcgi_cache_methods`, if set.
    pub methods: Vec<String>,
    /// `fastcgi_cache_valid any`.
    pub keeps_any_status: bool,
    /// One request at a time makes a page.
    pub locks: bool,
    /// A stale page is sent while a new one is made.
    pub sends_stale: bool,
}

/// Apache's configuration, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
pub struct Apache {
    /// Its first file.
    pub file: String,
    /// `prefork`, `worker` or `event`.
    pub mpm: Fact<String>,
    /// Clients that are served at a time.
    pub max_request_workers: u64,
    /// Requests after which a child is replaced.
    pub max_connections_per_child: u64,
    /// Threads of a child.
    pub threads_per_child: u64,
    /// Most children.
    pub server_limit: Option<u64>,
    /// Names of directives that have newer ones: old, new, place.
    pub old_names: Vec<(String, String, String)>,
    /// Where it passes requests to FastCGI.
    pub passes: Vec<Pass>,
    /// Document roots.
    pub roots: Vec<String>,
}

/// An application's own settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    /// The file.
    pub file: String,
    /// It says that errors are shown, with all there is to know of them.
    pub shows_errors: Fact<bool>,
}

/// A database.
#[derive(Debug, Clone, PartialEq)]
pub struct Database {
    /// Its name for people.
    pub name: String,
    /// Connections it takes.
    pub max_connections: u64,
    /// Where that is set.
    pub place: String,
    /// Its process's `oom_score_adj`.
    pub oom_score_adj: Fact<i64>,
}
