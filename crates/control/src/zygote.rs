//! Messages between the supervisor and a pool's zygote, and the zygote's settings.

use std::path::PathBuf;
use std::time::Duration;

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

use crate::{WorkerId, stack};

/// Longest time that a zygote looks for scripts that may be preloaded.
pub const PRELOADABLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Orders from the supervisor to a zygote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToZygote {
    /// The settings to start PHP with, sent once. Descriptors: the pool's shared memory, then one
    /// event per front thread, then the memory of the application's counters with
    /// [`counts`](ZygoteSettings), then the list of scripts to preload with
    /// [`preload`](ZygoteSettings), then libphp's code with [`direct_calls`](ZygoteSettings).
    Configure(Box<ZygoteSettings>),
    /// Fork a worker into a seat. Descriptors, unless it uses the zygote's output: its standard
    /// output, then its standard error.
    FillSeat {
        /// The worker.
        worker: WorkerId,
    },
    /// Write the list of scripts in OPcache, most used first. Reply: [`FromZygote::ScriptsListed`],
    /// after a second at most. Descriptor: an anonymous file, whose contents are replaced by a list
    /// in the format of [`scripts`](crate::scripts).
    ListScripts,
    /// Compile the scripts of a list into OPcache, as far as they exist and fit. Reply:
    /// [`FromZygote::Warmed`], after ten seconds at most. No worker is forked meanwhile.
    /// Descriptor: a file with the list, which is read from its start whatever its position.
    Warm,
    /// Write the list of scripts in OPcache that may be preloaded, most used first, and the folders
    /// of all scripts in OPcache, each with a slash at its end. Reply:
    /// [`FromZygote::PreloadableListed`], after [`PRELOADABLE_TIMEOUT`] at most. No worker is
    /// forked meanwhile. Descriptor: as for `ListScripts`.
    ListPreloadable,
    /// Report the state of OPcache. Reply: [`FromZygote::OpcacheReported`], after a quarter of a
    /// second at most.
    ReportOpcache,
    /// Read the stacks of all running scripts at this rate, for a time, and count them. Reply:
    /// [`FromZygote::Profiled`]. Another order of this kind replaces the one before. Descriptor: an
    /// anonymous file for the result, in the format of [`folded`](crate::folded); without one, the
    /// profile before ends without a report.
    Profile {
        /// Number of this order, for the report.
        profile: u64,
        /// Samples per second of each worker, 1 to [`RATE_MAX`](crate::folded::RATE_MAX).
        rate: u32,
        /// How long.
        duration: Duration,
    },
    /// Read the stack of the script that a worker runs, and report [`FromZygote::Traced`].
    Trace {
        /// Number of this order, for the report.
        trace: u64,
        /// The worker.
        worker: WorkerId,
        /// Number of the request of that worker, from 1.
        request: u64,
        /// Most frames, at most [`stack::STACK_DEPTH_MAX`].
        depth: u32,
    },
}

/// Facts about a pool's PHP that the front needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhpInfo {
    /// The value of the `X-Powered-By` header of PHP's responses; none without it (`expose_php`).
    pub powered_by: Option<String>,
    /// Whether the path of a web server's request is its path info, where it has one
    /// (`cgi.fix_pathinfo = 0`).
    pub by_path_info: bool,
    /// Whether php-fpm of this version shows the highest peak memory of a script.
    #[serde(default)]
    pub shows_memory_peak: bool,
}

/// Whether the status of php-fpm has `memory peak` with this version of PHP, such as `8.4.3` or
/// `8.4`.
pub fn shows_memory_peak(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let branch = [numbers.next(), numbers.next()].map(Option::unwrap_or_default);
    branch >= [8, 4]
}

/// Reports from a zygote to the supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromZygote {
    /// PHP runs; workers can be forked.
    Started {
        /// PHP's version, as `8.2.35`.
        php: String,
        /// The version that its program is built with, if that is another patch version.
        #[serde(default)]
        built: Option<String>,
        /// The library has the security fixes of October 2026 (decision 8 of the design).
        fixed: bool,
        /// Responses have a header that names the PHP version (`expose_php`).
        exposed: bool,
        /// The path of a request is its path info (`cgi.fix_pathinfo = 0`).
        by_path_info: bool,
        /// The number of preloaded classes.
        #[serde(default)]
        preloaded: u32,
    },
    /// PHP did not start.
    StartFailed {
        /// One sentence.
        why: String,
    },
    /// A worker was forked. Its parent is the supervisor.
    SeatFilled {
        /// The worker.
        worker: WorkerId,
        /// Its process id.
        pid: i32,
        /// How long the fork took.
        #[serde(default)]
        took: Duration,
    },
    /// The script of a forked worker has booted, and waits for requests.
    Booted {
        /// The worker.
        worker: WorkerId,
    },
    /// The result of a [`ToZygote::Trace`].
    Traced {
        /// The number of the order.
        trace: u64,
        /// The stack, or one sentence that says why there is none.
        stack: Result<stack::Stack, String>,
    },
    /// The reply to [`ToZygote::Profile`].
    Profiled {
        /// The number of the order.
        profile: u64,
        /// The result, or one sentence that says why there is none.
        samples: Result<ProfileSamples, String>,
    },
    /// No worker could be forked.
    ForkFailed {
        /// The worker.
        worker: WorkerId,
        /// One sentence.
        why: String,
    },
    /// The reply to [`ToZygote::ListScripts`], in any case.
    ScriptsListed {
        /// How many scripts are in the list; 0 also when it could not be written.
        count: u32,
    },
    /// The reply to [`ToZygote::ListPreloadable`], in any case.
    PreloadableListed {
        /// How many scripts are in the list, without the folders.
        count: u32,
    },
    /// A file of a preloaded class was saved or removed; sent once.
    PreloadedFileChanged {
        /// Its path.
        file: String,
    },
    /// The reply to [`ToZygote::ReportOpcache`], in any case.
    OpcacheReported {
        /// The state of OPcache; none without one, or when it could not be read in time.
        figures: Option<CacheFigures>,
    },
    /// The reply to [`ToZygote::Warm`], in any case.
    Warmed {
        /// How many scripts OPcache holds that it did not hold before.
        compiled: u32,
    },
}

/// The samples of a profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileSamples {
    /// Looks at all workers.
    pub looks: u64,
    /// Stacks of running scripts.
    pub stacks: u64,
}

/// The state of an OPcache since its zygote started PHP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Memory in use, in bytes.
    pub memory_used_bytes: u64,
    /// Free memory, in bytes.
    pub memory_free_bytes: u64,
    /// Memory of outdated entries, in bytes: it is free again after a restart.
    pub memory_wasted_bytes: u64,
    /// Cached scripts.
    pub cached_scripts: u64,
    /// Lookups that found a script.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Restarts, each of which empties it, for lack of memory.
    pub oom_restarts: u64,
    /// Restarts for lack of keys (`opcache.max_accelerated_files`).
    pub hash_restarts: u64,
    /// Restarts on request (`opcache_reset`).
    pub manual_restarts: u64,
    /// Keys in use, of which a script may have several, and all keys.
    #[serde(default)]
    pub keys: (u64, u64),
    /// Bytes of the string buffer in use, and its size; it is part of the memory.
    #[serde(default)]
    pub strings_bytes: (u64, u64),
    /// Whether no memory or key is left for another script.
    #[serde(default)]
    pub is_full: bool,
    /// Whether the string buffer is full, so that strings use the memory of scripts.
    #[serde(default)]
    pub strings_are_full: bool,
}

/// The size of an OPcache; overrides php.ini.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSize {
    /// All of its memory, in MB (`opcache.memory_consumption`).
    pub memory_mb: u64,
    /// The part of it for strings, in MB (`opcache.interned_strings_buffer`).
    pub strings_mb: u64,
    /// Its keys (`opcache.max_accelerated_files`).
    pub keys: u64,
}

/// The settings of a zygote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ZygoteSettings {
    /// Name of the pool.
    pub pool: String,
    /// The pool's process manager (`pm`), for the status functions.
    pub process_manager: String,
    /// The supervisor's process id: the workers' parent.
    pub supervisor: i32,
    /// User to become before PHP starts.
    pub identity: Option<Identity>,
    /// `php.ini` file or the folder it is in.
    pub php_ini: Option<PathBuf>,
    /// Folder of further `.ini` files.
    pub php_ini_scan_dir: Option<PathBuf>,
    /// `php_value` and `php_flag`: name and value.
    pub php_values: Vec<(String, String)>,
    /// `php_admin_value` and `php_admin_flag`: name and value.
    pub php_admin_values: Vec<(String, String)>,
    /// Environment of the scripts.
    pub env: Vec<(String, String)>,
    /// Resource limits, root directory and privileges.
    pub confinement: Confinement,
    /// The user's folder for temporary files and sessions; none: those of PHP's settings.
    #[serde(default)]
    pub private_folder: Option<PrivateFolder>,
    /// Requests a worker serves before it leaves; 0: no limit.
    pub max_requests: u64,
    /// Bytes of private memory beyond which a worker is to be replaced; 0: it need not measure it.
    pub max_private_memory: u64,
    /// Timeout of a script, for the status functions; the front enforces it.
    pub request_terminate_timeout: Option<Duration>,
    /// Number of seats in the pool.
    pub seats: u32,
    /// Whether the server was started as php-fpm: process titles and PHP functions are php-fpm's.
    #[serde(default)]
    pub fpm: bool,
    /// The format of workers' output and log messages, as in php-fpm; none: they go to the zygote's
    /// output unchanged.
    #[serde(default)]
    pub output: Option<WorkersOutput>,
    /// The processor time of requests is measured.
    #[serde(default)]
    pub measures_cpu: bool,
    /// The cost of each request is measured, and reported with its response.
    #[serde(default)]
    pub accounts: bool,
    /// No php.ini is read.
    #[serde(default)]
    pub no_php_ini: bool,
    /// php.ini entries that come after the files and before `php_values`.
    #[serde(default)]
    pub defines: Vec<(String, String)>,
    /// Extensions to load beside those of php.ini.
    #[serde(default)]
    pub extensions: Vec<String>,
    /// Allowed extensions of scripts that a web server names; empty: any.
    #[serde(default)]
    pub limit_extensions: Vec<String>,
    /// Workers may be inspected and leave core files.
    #[serde(default)]
    pub dumpable: bool,
    /// A list of scripts to preload is among the descriptors.
    #[serde(default)]
    pub preload: bool,
    /// The last descriptor is a copy of libphp's code that calls its own functions directly.
    #[serde(default)]
    pub direct_calls: bool,
    /// The memory in which the application counts is among the descriptors.
    #[serde(default)]
    pub counts: bool,
    /// The AppArmor profile of workers.
    #[serde(default)]
    pub apparmor_hat: Option<String>,
    /// The script that each worker boots, and that handles requests in a loop; none: each request
    /// runs its own script.
    #[serde(default)]
    pub worker_script: Option<PathBuf>,
    /// The application that the zygote boots and its workers are copies of; none: workers start
    /// empty.
    #[serde(default)]
    pub snapshot: Option<Snapshot>,
    /// The result of `php_sapi_name()`; none: php-fpm's.
    #[serde(default)]
    pub sapi_name: Option<String>,
    /// Whether a fatal error of a script is shown in its response to a client on this machine.
    #[serde(default)]
    pub shows_errors: bool,
    /// The size of its OPcache, if that of an earlier generation was full.
    #[serde(default)]
    pub cache_size: Option<CacheSize>,
}

/// A folder that only the pool's user can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateFolder {
    /// Its path.
    pub path: PathBuf,
    /// Whether PHP does not start without it.
    pub is_required: bool,
}

/// An application that is booted once and copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The script that boots it.
    pub script: PathBuf,
    /// Requests that each copy serves before it leaves, at least 1.
    pub requests_per_child: u64,
    /// Number of times that a copy is rewound to its first state before it exits.
    #[serde(default)]
    pub rewinds_per_child: u64,
    /// Connections that are open after the boot are closed; otherwise the boot fails.
    #[serde(default)]
    pub closes_connections: bool,
    /// Paths of rehearsal requests, which run before there are copies for clients. Their responses
    /// are discarded.
    pub warm_requests: Vec<String>,
}

/// php-fpm's `catch_workers_output`, and the format of PHP's messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkersOutput {
    /// The output of workers is read, message by message.
    pub caught: bool,
    /// Longest message, in bytes (`log_limit`).
    pub limit: usize,
    /// Messages are marked as notices, since the log's level includes those (`log_level`).
    pub notices: bool,
}

/// Resource limits of each process of a pool, its root directory and privileges. Unset ones stay
/// unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The root directory of the scripts; PHP is started outside of it.
    pub chroot: Option<PathBuf>,
    /// Working directory of every request, beneath `chroot`.
    pub chdir: Option<PathBuf>,
    /// Most open files.
    pub rlimit_files: Option<u64>,
    /// Largest core file in bytes; `u64::MAX`: no limit.
    pub rlimit_core: Option<u64>,
    /// The nice value.
    pub process_priority: Option<i32>,
    /// Adjustment of the OOM killer's score.
    pub oom_score_adj: Option<i32>,
    /// Whether started programs gain no privileges; none: yes, unless PHP's mail() needs a program
    /// that does.
    #[serde(default)]
    pub no_new_privileges: Option<bool>,
    /// Whether they are to make no holes in the memory that they share with the front, which would
    /// wait for each: there are pools of other users.
    #[serde(default)]
    pub forbids_holes: bool,
    /// The system refuses holes in that memory.
    #[serde(default)]
    pub has_solid_memory: bool,
}
