//! What the supervisor and a pool's zygote say to each other, and what the zygote is told of its pool.

use std::path::PathBuf;
use std::time::Duration;

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

use crate::{WorkerId, stack};

/// Orders from the supervisor to a zygote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToZygote {
    /// The settings to start PHP with, sent once. Descriptors: the pool's shared memory, then one
    /// event per front thread.
    Configure(Box<ZygoteSettings>),
    /// Fork a worker into a seat. Descriptors, if it is not to print where the zygote prints: what
    /// will be its standard output, then its standard error.
    FillSeat {
        /// The worker.
        worker: WorkerId,
    },
    /// Write down which scripts OPcache holds, most used first; answered by
    /// [`FromZygote::ScriptsListed`], after a second at most. Descriptor: an anonymous file, whose
    /// contents are replaced by a list as [`scripts`] has it.
    ListScripts,
    /// Put the scripts of a list into OPcache, as far as they are there and fit; answered by
    /// [`FromZygote::Warmed`], after ten seconds at most. No worker is forked meanwhile. Descriptor:
    /// a file with the list, which is read from its beginning wherever its position is.
    Warm,
    /// Tell how OPcache is doing; answered by [`FromZygote::OpcacheReported`], after a quarter of a
    /// second at most.
    ReportOpcache,
    /// Read the stack of the script that a worker runs, and report [`FromZygote::Traced`].
    Trace {
        /// Number of this order, for the report.
        trace: u64,
        /// The worker.
        worker: WorkerId,
        /// Which request of that worker, from 1.
        request: u64,
        /// Frames that are wanted, at most [`stack::STACK_DEPTH_MAX`].
        depth: u32,
    },
}

/// What has to be known of a pool's PHP to answer in its stead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhpInfo {
    /// What answers say of the PHP that made them (`X-Powered-By`); none: nothing (`expose_php`).
    pub powered_by: Option<String>,
    /// What a web server's request asks for is its path info, if it has one (`cgi.fix_pathinfo = 0`).
    pub by_path_info: bool,
}

/// Reports from a zygote to the supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromZygote {
    /// PHP runs; workers can be forked.
    Started {
        /// PHP's version, as `8.2.35`.
        php: String,
        /// The library carries the fixes of October 2026 (decision 8 of the design).
        fixed: bool,
        /// Answers say which PHP made them (`expose_php`).
        exposed: bool,
        /// What a request asks for is its path info (`cgi.fix_pathinfo = 0`).
        by_path_info: bool,
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
    /// A worker that was forked says itself that its script has booted, and waits for requests.
    Booted {
        /// The worker.
        worker: WorkerId,
    },
    /// What a [`ToZygote::Trace`] came to.
    Traced {
        /// The number of the order.
        trace: u64,
        /// The stack, or one sentence that says why there is none.
        stack: Result<stack::Stack, String>,
    },
    /// No worker could be forked.
    ForkFailed {
        /// The worker.
        worker: WorkerId,
        /// One sentence.
        why: String,
    },
    /// The answer to [`ToZygote::ListScripts`], in any case.
    ScriptsListed {
        /// How many scripts are in the list; none, too, when it could not be made.
        count: u32,
    },
    /// The answer to [`ToZygote::ReportOpcache`], in any case.
    OpcacheReported {
        /// How OPcache is doing; nothing when there is none or it was not told in time.
        figures: Option<CacheFigures>,
    },
    /// The answer to [`ToZygote::Warm`], in any case.
    Warmed {
        /// How many scripts OPcache holds now that it did not before.
        compiled: u32,
    },
}

/// How an OPcache is doing since its zygote started PHP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Memory that holds something, in bytes.
    pub memory_used_bytes: u64,
    /// Memory that is free, in bytes.
    pub memory_free_bytes: u64,
    /// Memory that held what is outdated, in bytes: it is free again after a restart.
    pub memory_wasted_bytes: u64,
    /// Scripts it holds.
    pub cached_scripts: u64,
    /// Scripts that were wanted and there.
    pub hits: u64,
    /// Scripts that were wanted and not there.
    pub misses: u64,
    /// Times it threw everything away because it was out of memory.
    pub oom_restarts: u64,
    /// Times it did because it was out of keys (`opcache.max_accelerated_files`).
    pub hash_restarts: u64,
    /// Times it did because it was asked to (`opcache_reset`).
    pub manual_restarts: u64,
    /// Keys that are in use, of which a script may have several, and how many there are.
    #[serde(default)]
    pub keys: (u64, u64),
    /// Room for strings that is in use, in bytes, and how much there is; it is part of the memory.
    #[serde(default)]
    pub strings_bytes: (u64, u64),
    /// What is wanted next finds no memory, or no key.
    #[serde(default)]
    pub is_full: bool,
    /// Strings find no room of their own any more, and take the memory of scripts.
    #[serde(default)]
    pub strings_are_full: bool,
}

/// How large an OPcache is to be, whatever php.ini says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSize {
    /// All of its memory, in MB (`opcache.memory_consumption`).
    pub memory_mb: u64,
    /// The part of it that strings have, in MB (`opcache.interned_strings_buffer`).
    pub strings_mb: u64,
    /// Its keys (`opcache.max_accelerated_files`).
    pub keys: u64,
}

/// What a zygote needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ZygoteSettings {
    /// Name of the pool.
    pub pool: String,
    /// How its number of workers is decided (`pm`), for the status functions.
    pub process_manager: String,
    /// The supervisor's process id: the workers' parent.
    pub supervisor: i32,
    /// Whom to become before PHP starts.
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
    /// What it may use and where it lives.
    pub confinement: Confinement,
    /// Requests a worker serves before it leaves; 0: no limit.
    pub max_requests: u64,
    /// Bytes of private memory beyond which a worker is to be replaced; 0: it need not measure it.
    pub max_private_memory: u64,
    /// How long a script may run, for the status functions; the front keeps the time.
    pub request_terminate_timeout: Option<Duration>,
    /// Number of seats in the pool.
    pub seats: u32,
    /// The server was started as php-fpm: titles and functions are as there.
    #[serde(default)]
    pub fpm: bool,
    /// What becomes of what workers print and log, as php-fpm has it; none: it goes where the
    /// zygote's goes, and is not cut.
    #[serde(default)]
    pub output: Option<WorkersOutput>,
    /// The processor time of requests is asked for.
    #[serde(default)]
    pub measures_cpu: bool,
    /// What each request costs is measured, and told with its answer.
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
    /// How scripts that a web server names end; empty: no matter how.
    #[serde(default)]
    pub limit_extensions: Vec<String>,
    /// Workers may be inspected and leave core files.
    #[serde(default)]
    pub dumpable: bool,
    /// The AppArmor profile of workers.
    #[serde(default)]
    pub apparmor_hat: Option<String>,
    /// The script that each worker boots and that asks for requests; none: each request has its own.
    #[serde(default)]
    pub worker_script: Option<PathBuf>,
    /// The application that the zygote boots and its workers are copies of; none: they begin with
    /// nothing.
    #[serde(default)]
    pub snapshot: Option<Snapshot>,
    /// How large its OPcache has to be, if the one of a generation before was full.
    #[serde(default)]
    pub cache_size: Option<CacheSize>,
}

/// An application that is booted once and copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The script that boots it.
    pub script: PathBuf,
    /// Requests that each copy serves before it leaves, at least 1.
    pub requests_per_child: u64,
    /// How often each copy goes back to what it was before it leaves.
    #[serde(default)]
    pub rewinds_per_child: u64,
    /// Connections that its boot has left open are closed; otherwise there are no copies then.
    #[serde(default)]
    pub closes_connections: bool,
    /// Paths that are asked for, and their answers dropped, before there are copies for clients.
    pub warm_requests: Vec<String>,
}

/// php-fpm's `catch_workers_output`, and how PHP's messages are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkersOutput {
    /// What workers print is read, message by message.
    pub caught: bool,
    /// Longest message, in bytes (`log_limit`).
    pub limit: usize,
    /// Messages are named as notices, since the log has those (`log_level`).
    pub notices: bool,
}

/// What the processes of a pool may use each, and where they live. What is not set stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The root directory of the scripts; PHP is started outside of it.
    pub chroot: Option<PathBuf>,
    /// Where every request starts, beneath `chroot`.
    pub chdir: Option<PathBuf>,
    /// Open files.
    pub rlimit_files: Option<u64>,
    /// Bytes of a core file; `u64::MAX`: as many as it takes.
    pub rlimit_core: Option<u64>,
    /// The nice value.
    pub process_priority: Option<i32>,
    /// What the kernel's choice of a process to end for its memory is shifted by.
    pub oom_score_adj: Option<i32>,
    /// Programs that are started gain no rights; none: where there is no program that would need to.
    #[serde(default)]
    pub no_new_privileges: Option<bool>,
}
