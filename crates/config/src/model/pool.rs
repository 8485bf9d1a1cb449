//! The checked settings of a pool.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::confinement::{Confinement, PIDS_BESIDES_WORKERS};
use crate::model::development::Development;
use crate::model::listener::FastcgiListener;
use crate::model::log_target::LogTarget;
use crate::model::mode::{BootConnections, DEFAULT_BOOT_TIMEOUT, Mode};
use crate::model::pool_user::PoolUser;
use crate::model::with_defaults::with_defaults;

/// Most workers of one pool. Each has slots in the pool's shared memory.
pub const MAX_CHILDREN_PER_POOL: u32 = 10_000;

/// Default of `max_children` per core.
const WORKERS_PER_CORE: u32 = 2;

/// The same for `pm = "auto"`, which hardly ever reaches it.
const AUTO_WORKERS_PER_CORE: u32 = 64;

/// Its bound for all cores: MySQL and MariaDB accept 151 connections by default.
const AUTO_WORKERS_MOST: u32 = 128;

/// The process manager of a pool (`pm`): the policy for its number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessManager {
    /// Always `max_children` workers.
    Static,
    /// The busy workers and `min_spare_servers` more.
    Dynamic,
    /// Only the busy workers.
    Ondemand,
    /// As many as the load needs and memory allows, by the measured cost of requests.
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

with_defaults! {
/// A set of workers with one configuration. A field that an older program does not hand over has
/// its default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pool {
    /// Name: letters, digits, `_` and `-`, at most 32.
    pub name: String = String::new(),
    /// The process manager (`pm`).
    pub pm: ProcessManager = ProcessManager::Auto,
    /// The mode of its workers.
    pub mode: Mode = Mode::Classic,
    /// The script that boots the application: an absolute path; set unless `mode` is classic.
    pub script: Option<PathBuf> = None,
    /// Timeout of the boot of `script`.
    pub boot_timeout: Duration = DEFAULT_BOOT_TIMEOUT,
    /// Most workers; `None`: [by the machine](Pool::most_workers).
    pub max_children: Option<u32> = None,
    /// Workers of a dynamic pool at its start; always set once a dynamic pool has been checked.
    pub start_servers: Option<u32> = None,
    /// Fewest idle workers of a dynamic pool; set as `start_servers` is.
    pub min_spare_servers: Option<u32> = None,
    /// Most idle workers of a dynamic pool; set as `start_servers` is.
    pub max_spare_servers: Option<u32> = None,
    /// Most workers that a dynamic or ondemand pool starts per second.
    pub max_spawn_rate: u32 = 32,
    /// Idle time after which a worker of an ondemand pool ends.
    pub process_idle_timeout: Duration = Duration::from_secs(10),
    /// Time without a request after which an auto pool ends its last worker, and its PHP; zero is
    /// never.
    pub pool_idle_timeout: Duration = Duration::from_secs(3600),
    /// User of the zygote and the workers, by name or number, if set.
    pub user: Option<String> = None,
    /// Group of the zygote and the workers, by name or number, if set.
    pub group: Option<String> = None,
    /// The user that `user`, or else the document root, led to when a server read this.
    pub runs_as: PoolUser = PoolUser::OfServer,
    /// The PHP version to run, such as `8.2`, if set.
    pub php: Option<String> = None,
    /// The php.ini to read, if set.
    pub php_ini: Option<PathBuf> = None,
    /// The directory of further INI files, if set.
    pub php_ini_scan_dir: Option<PathBuf> = None,
    /// INI values that a script may change: `php_value` and, as `1` and `0`, `php_flag`.
    pub php_value: BTreeMap<String, String> = BTreeMap::new(),
    /// INI values that no script may change: `php_admin_value` and `php_admin_flag`.
    pub php_admin_value: BTreeMap<String, String> = BTreeMap::new(),
    /// Environment variables of the workers, in their order, without duplicates.
    pub env: Vec<(String, String)> = Vec::new(),
    /// Resource limits, root directory and privileges.
    pub confinement: Confinement = Confinement::default(),
    /// Requests served by one copy of a booted application.
    pub requests_per_child: u32 = 1,
    /// Number of times that a copy is rewound to its state after the fork, each time to serve as
    /// many requests again.
    pub rewinds_per_child: u32 = 0,
    /// Connections left open by the boot: an error, or closed.
    pub boot_connections: BootConnections = BootConnections::Refuse,
    /// The name of the server API for scripts of a booted application.
    pub sapi_name: String = "fpm-fcgi".to_owned(),
    /// Whether a saved file of a booted application starts a new boot.
    pub watch: bool = false,
    /// Bytes to which a full OPcache of a booted application may grow; 0: it never grows. The
    /// default is PHP's own, 128 MB, doubled twice.
    pub opcache_memory_max: u64 = 512 << 20,
    /// Paths requested before a booted application is copied; each starts with a slash.
    pub warm_requests: Vec<String> = Vec::new(),
    /// Requests after which a worker is replaced; 0 is never.
    pub max_requests: u64 = 0,
    /// Bytes of private memory beyond which a worker is replaced; 0 is never.
    pub max_private_memory: u64 = 0,
    /// Timeout of a running script; zero is none.
    pub request_terminate_timeout: Duration = Duration::ZERO,
    /// Run time after which the stack of a script is written to `slowlog`; zero is never.
    pub request_slowlog_timeout: Duration = Duration::ZERO,
    /// Maximum number of frames in such a stack.
    pub request_slowlog_trace_depth: u32 = 20,
    /// Whether the cost of each request is measured.
    pub request_accounting: bool = true,
    /// Whether responses have a `Server-Timing` header.
    pub server_timing: bool = false,
    /// The slow log; always set if `request_slowlog_timeout` is.
    pub slowlog: Option<LogTarget> = None,
    /// Longest wait of a request for a worker; zero: requests do not wait.
    pub request_queue_timeout: Duration = Duration::from_secs(10),
    /// Most requests that wait for a worker.
    pub request_queue_length: u32 = 1000,
    /// The request header with the client's deadline; none: not used.
    pub request_deadline_header: Option<String> = None,
    /// Workers reserved for urgent requests.
    pub reserved_workers: u32 = 0,
    /// Bytes of a response that are buffered for a slow client before the script has to wait.
    pub spool_limit: u64 = 1 << 30,
    /// The path of the status page, if set.
    pub status_path: Option<String> = None,
    /// The path that responds with `ping_response`, if set.
    pub ping_path: Option<String> = None,
    /// The response of `ping_path`; not empty.
    pub ping_response: String = "pong".to_owned(),
    /// The FastCGI listener for web servers; none: no listener.
    pub listener: Option<FastcgiListener> = None,
    /// The FastCGI listener for the status page only; none: no listener.
    pub status_listener: Option<FastcgiListener> = None,
    /// Allowed file extensions of scripts at the FastCGI listener, each with its dot; empty: all.
    /// The default is that of php-fpm's `security.limit_extensions`.
    pub limit_extensions: Vec<String> = vec![".php".to_owned(), ".phar".to_owned()],
    /// The access log of the FastCGI listener, in php-fpm's format; none: off.
    pub pool_access_log: Option<PoolAccessLog> = None,
    /// Whether the output of workers is logged. If not, and the server was started as php-fpm, it
    /// is discarded.
    pub catch_workers_output: bool = true,
    /// Whether lines of that output get a prefix with pool and worker.
    pub decorate_workers_output: bool = true,
    /// Names of variables of the server's own environment that workers get; `*` stands for any
    /// characters.
    pub pass_env: Vec<String> = Vec::new(),
    /// Whether workers get none of the server's own environment.
    pub clear_env: bool = true,
    /// Extensions to load in addition to those of php.ini (`php_admin_value[extension]`).
    pub extensions: Vec<String> = Vec::new(),
    /// php.ini entries read after the files and before `php_value` (`-d` of php-fpm).
    pub defines: Vec<(String, String)> = Vec::new(),
    /// Whether no php.ini is read at all (`-n` of php-fpm).
    pub no_php_ini: bool = false,
    /// Whether `request_terminate_timeout` applies after fastcgi_finish_request(), too.
    pub request_terminate_timeout_track_finished: bool = false,
    /// Whether workers may be traced and leave core files (`process.dumpable`).
    pub process_dumpable: bool = false,
    /// Whether libphp calls its own functions directly.
    pub direct_calls: bool = true,
    /// Whether PHP preloads the classes that the pool uses.
    pub preload: bool = false,
    /// Set in a development server: a fatal error of a script is shown in its response to a client
    /// on this machine, and its messages are for a terminal.
    pub development: Option<Development> = None,
    /// The AppArmor profile its workers change to, if any.
    pub apparmor_hat: Option<String> = None,
}
}

/// Starts of the names of variables for maitred itself: its own, and those of systemd for a service
/// (systemd.exec(5)).
const OWN_VARIABLES: [&str; 9] = [
    "MAITRED_",
    "NOTIFY_SOCKET",
    "LISTEN_",
    "WATCHDOG_",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_",
    "CREDENTIALS_DIRECTORY",
    "STATE_DIRECTORY",
];

/// The access log of a FastCGI listener: php-fpm's `access.log`, `access.format` and
/// `access.suppress_path`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolAccessLog {
    /// The file: an absolute path.
    pub path: PathBuf,
    /// The format of a line, checked.
    pub format: String,
    /// Paths whose successful GET and HEAD requests without a query are not logged.
    pub suppress_path: Vec<String>,
}

impl Pool {
    /// Whether this variable of the server's environment is passed to PHP.
    pub fn passes(&self, name: &str) -> bool {
        let is_own = OWN_VARIABLES.iter().any(|own| name.starts_with(own));
        let matches = |pattern: &String| {
            glob::Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(name))
        };
        !is_own && self.pass_env.iter().any(matches)
    }

    /// Maximum number of workers on a machine with `cores` cores: `max_children`, or the default,
    /// limited by `pids_max`.
    pub fn most_workers(&self, cores: u32) -> u32 {
        let two_each = cores.saturating_mul(WORKERS_PER_CORE);
        let by_default = if self.pm == ProcessManager::Auto {
            let many = cores.saturating_mul(AUTO_WORKERS_PER_CORE);
            many.min(AUTO_WORKERS_MOST).max(two_each)
        } else {
            two_each
        };
        let processes = self.confinement.together.pids_max.unwrap_or(u32::MAX);
        let forked = processes.saturating_sub(PIDS_BESIDES_WORKERS).max(1);
        self.max_children.unwrap_or(by_default.min(forked))
    }

    /// Minimum number of workers with `pm = "auto"`.
    pub fn fewest_found(&self) -> u32 {
        u32::from(self.min_spare_servers != Some(0))
    }

    /// Time without a request after which a pool with `pm = "auto"` ends its last worker, and its
    /// PHP. None: never, since it has no such worker, or is configured to have one.
    pub fn rests_after(&self) -> Option<Duration> {
        let may_rest = self.pm == ProcessManager::Auto && self.min_spare_servers.is_none();
        may_rest.then_some(self.pool_idle_timeout).filter(|timeout| !timeout.is_zero())
    }

    /// A pool with this name and default settings.
    pub fn named(name: &str) -> Pool {
        let name = name.to_owned();
        Pool { name, ..Pool::default() }
    }

    /// The path of the script that boots the application, inside the pool's `chroot`.
    pub fn booted_script(&self) -> Option<PathBuf> {
        let script = self.script.as_ref().filter(|_| self.mode != Mode::Classic)?;
        let inside = self.confinement.chroot.as_ref();
        let inside = inside.and_then(|chroot| script.strip_prefix(chroot).ok());
        Some(inside.map_or_else(|| script.clone(), |rest| Path::new("/").join(rest)))
    }
}
