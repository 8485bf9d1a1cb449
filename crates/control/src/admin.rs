//! Messages over the admin socket: one JSON object per line, a [`Request`] from the command and an
//! [`Reply`] from the supervisor.
//!
//! Other programs read the replies, too: fields are added, and not renamed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use maitred_os::users;
use maitred_scoreboard::Counters;
use serde::{Deserialize, Serialize};

use crate::job_status::JobStatus;
use crate::launch::ForegroundLaunch;
use crate::log_place::FoundLog;
pub use crate::proxy_figures::ProxyServer;
use crate::purge::PurgeRequest;
pub use crate::realpath_cache::RealpathCache;
pub use crate::route_figures::{MAX_ROUTES_SHOWN, RouteFigures};
pub use crate::running_script::Running;
use crate::scale::NodeScale;
use crate::{CacheFigures, ProfileSamples};

/// Longest request in bytes, including the end of the line.
pub const MAX_REQUEST_BYTES: usize = 4096;

/// Longest reply in bytes. A thousand pools fit, each with all its shown scripts.
pub const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Most running scripts per pool in a reply: the longest-running ones.
pub const MAX_RUNNING_SHOWN: usize = 10;

/// Most running scripts in a reply with a stack, of all pools together.
pub const MAX_STACKS_SHOWN: usize = 5;

/// Name of the socket in its folder.
const SOCKET_NAME: &str = "admin.sock";

/// A request to a running server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Report the status.
    Status {
        /// The only pool to report; none: all.
        #[serde(default)]
        pool: Option<String>,
    },
    /// Read the configuration again, as SIGHUP does. The reply is sent when the reload is complete
    /// or refused.
    Reload {
        /// Pools to restart even if unchanged.
        #[serde(default)]
        pools: Vec<String>,
    },
    /// As SIGTERM: finish the requests in flight, within a timeout, and exit; repeated, exit at
    /// once.
    Stop,
    /// Accept no more clients, finish the requests in flight, and exit; repeated, the same.
    Drain,
    /// Report what a command or a schedule is started with, for `maitred run`.
    Launch {
        /// The pool.
        pool: String,
        /// The name.
        name: String,
    },
    /// Report where the error log goes, for `maitred logs`.
    FindLog,
    /// Drop cached pages. The reply is sent when no later request gets one of them.
    Purge(PurgeRequest),
    /// Count the stacks of a pool's running scripts for a time. The reply is sent at its end.
    Profile {
        /// The pool.
        pool: String,
        /// Samples per second of each worker.
        rate: u32,
        /// How long, in seconds.
        seconds: u32,
    },
}

/// A reply of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The status.
    Status(Box<ServerStatus>),
    /// A reload is done.
    Reloaded {
        /// One sentence that says what was done.
        what: String,
    },
    /// The server stops. The connection is closed when it has exited.
    Ending {
        /// Running scripts.
        running: u64,
    },
    /// What a command is started with.
    Launch(Box<ForegroundLaunch>),
    /// Where the error log goes.
    Log(FoundLog),
    /// Pages have been dropped.
    Purged {
        /// Descriptions of them.
        what: Vec<String>,
    },
    /// A profile is complete.
    Profiled {
        /// Its samples.
        samples: ProfileSamples,
        /// The [folded](crate::folded) stacks.
        stacks: String,
    },
    /// Pages have been dropped here, but other nodes may still serve them.
    PurgedHere {
        /// Descriptions of them.
        what: Vec<String>,
        /// Which nodes, in one clause.
        why: String,
    },
    /// The request was started, and failed.
    Failed {
        /// One sentence.
        why: String,
    },
    /// The request was refused.
    Refused {
        /// One sentence.
        why: String,
    },
}

/// The status of a server at about one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its version.
    pub version: String,
    /// Process id of the supervisor.
    pub pid: u32,
    /// `starting`, `serving`, `stopping` (`stop_delay`), `draining` or `ending`.
    pub phase: String,
    /// Seconds since it was started.
    pub uptime_seconds: f64,
    /// Its listen addresses.
    pub listen: Vec<String>,
    /// Number of fronts so far; more than one means that fronts have crashed.
    pub front_epoch: u32,
    /// Process id of the front; none: it does not run.
    pub front_pid: Option<i32>,
    /// The pools, sorted by name.
    pub pools: Vec<PoolStatus>,
    /// The page cache, if a site has one and the front has reported it.
    #[serde(default)]
    pub page_cache: Option<PageCache>,
    /// Proxied servers (`proxy`), sorted by name, if the front has reported them.
    #[serde(default)]
    pub proxies: Vec<ProxyServer>,
    /// Hosts with certificates by ACME, sorted by name.
    #[serde(default)]
    pub certificates: Vec<CertificateStatus>,
    /// The purge log, if there is one and its process has reported.
    #[serde(default)]
    pub purge_log: Option<crate::purge_log::PurgeLogStatus>,
    /// The nodes with that purge log, once they have announced themselves.
    #[serde(default)]
    pub nodes: Option<crate::nodes::NodesStatus>,
    /// What single sites and pools lack, one sentence each.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Whether the server is ready for the requests of a load balancer.
    #[serde(default)]
    pub readiness: Readiness,
    /// Its load, if the front has reported it.
    #[serde(default)]
    pub scale: Option<NodeScale>,
    /// Commands and schedules, by pool in the order of the file.
    #[serde(default)]
    pub jobs: Vec<JobStatus>,
    /// The routes with the most script time, at most [`MAX_ROUTES_SHOWN`]. They are counted from
    /// the first reading of the metrics or the dashboard on.
    #[serde(default)]
    pub routes: Vec<RouteFigures>,
}

/// Whether a server is ready for the requests of a load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// It is.
    pub ready: bool,
    /// Why it is not, in a few words.
    pub reason: Option<String>,
    /// The state of each pool: `serving`, `resting` (no worker, and none needed before the next
    /// request), `booting`, `no worker` or `failed`.
    #[serde(default)]
    pub pools: BTreeMap<String, String>,
}

impl Readiness {
    /// A server that is not ready, for this reason.
    pub fn not(reason: &str) -> Readiness {
        Readiness { reason: Some(reason.to_owned()), ..Readiness::default() }
    }
}

/// The stats of a front.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FrontFigures {
    /// The page cache, if a site has one.
    pub page_cache: Option<PageCache>,
    /// Proxied servers, sorted by name.
    pub proxies: Vec<ProxyServer>,
    /// Whether the front is ready for the requests of a load balancer.
    #[serde(default)]
    pub readiness: Option<Readiness>,
    /// The load of the node.
    #[serde(default)]
    pub scale: Option<NodeScale>,
    /// The routes with the most script time, if they are counted.
    #[serde(default)]
    pub routes: Vec<RouteFigures>,
}

/// The page cache. Its counters restart with each front.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PageCache {
    /// Pages in memory.
    pub memory: PageTier,
    /// Pages on disk, if configured. After a start they are counted gradually.
    pub disk: Option<PageTier>,
    /// Corrupt files, which were removed.
    pub corrupt_files: u64,
    /// Pages that could not be written to disk: full, or read-only.
    pub write_errors: u64,
    /// Purges that still apply to cached pages.
    pub active_purges: u64,
    /// Pages that are being generated.
    pub filling: u64,
    /// Requests that wait for one of those pages.
    pub waiting: u64,
    /// Sites with a cache, sorted by name.
    pub sites: Vec<CachedSite>,
}

/// A tier of the page cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTier {
    /// Cached pages, in all their variants.
    pub pages: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Their maximum size in bytes.
    pub limit_bytes: u64,
    /// Evicted pages.
    pub evicted: u64,
}

/// The counters of a site's cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CachedSite {
    /// The site, by its first host.
    pub site: String,
    /// Requests for scripts, each once: `hit`, `updating` and `stale` got a cached page,
    /// `revalidated` after the script confirmed it; `miss`, `vary_miss`, `expired` and `bypass` got
    /// a script's response.
    pub requests: BTreeMap<String, u64>,
    /// Requests that bypassed the cache, by reason.
    pub bypasses: BTreeMap<String, u64>,
    /// Stored responses.
    pub stored: u64,
    /// Responses that were not stored, by reason, without requests that bypassed the cache.
    pub not_stored: BTreeMap<String, u64>,
    /// Purges.
    pub purges: u64,
    /// Bytes of response bodies sent without running a script.
    pub saved_bytes: u64,
    /// Script time saved: what each sent page took to generate.
    pub saved_script_seconds: f64,
}

/// A host with a certificate by ACME.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The host.
    pub name: String,
    /// Expiry of its certificate, in seconds since 1970; `None`: it has none yet.
    pub expires: Option<u64>,
    /// Time of the next request for one, in seconds since 1970; `None`: now.
    pub next: Option<u64>,
    /// Failures in a row.
    pub failures: u32,
    /// The last error, as one sentence.
    pub error: Option<String>,
}

/// The status of a pool at about one moment. Counters start with the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its process manager: `static`, `dynamic`, `ondemand` or `auto`.
    pub pm: String,
    /// Its PHP version, once known.
    pub php: Option<String>,
    /// Its workers.
    pub workers: Workers,
    /// Its queue.
    pub queue: Queue,
    /// Time in the queue.
    pub queue_wait: Times,
    /// Run time of scripts.
    pub script_time: Times,
    /// Part of it: CPU time.
    #[serde(default)]
    pub cpu_time: Times,
    /// Part of it: runnable without a CPU; empty if the kernel does not report it.
    #[serde(default)]
    pub core_wait_time: Times,
    /// Part of it: blocked on anything else; empty if `core_wait_time` is.
    #[serde(default)]
    pub blocked_time: Times,
    /// The counters, by their names (crate `scoreboard`, `Counter`).
    #[serde(default)]
    pub counters: Counters,
    /// Peak PHP memory of scripts.
    #[serde(default)]
    pub peak_memory: PeakMemory,
    /// Finished requests.
    pub requests: u64,
    /// Finished requests by outcome (`RequestOutcome`).
    pub outcomes: BTreeMap<String, u64>,
    /// Refused requests by reason: part of `outcomes`. No worker ran them; clients got a 503.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// Failed requests by reason: part of `outcomes`. Clients got a 502 or a 504, or a 500 where
    /// the request's body was lost.
    pub failed: BTreeMap<String, u64>,
    /// Memory of its processes.
    pub memory: Memory,
    /// Its OPcache, if enabled and its zygote runs.
    #[serde(default)]
    pub opcache: Option<Opcache>,
    /// PHP's cache of real paths, once a worker has run a script.
    #[serde(default)]
    pub realpath_cache: Option<RealpathCache>,
    /// The state of preloading, with `preload = true`.
    #[serde(default)]
    pub preloading: Option<Preloading>,
    /// How `pm = "auto"` chose the number of workers.
    #[serde(default)]
    pub size: Option<Size>,
    /// What is left to its commands and schedules, where `pm` is `auto` and there are any.
    #[serde(default)]
    pub beside: Option<crate::job_status::Beside>,
    /// The number of workers that `pm = "auto"` would choose, for a pool with another `pm`.
    #[serde(default)]
    pub advice: Option<Size>,
    /// The copies of a booted application, with `mode = "snapshot"`.
    #[serde(default)]
    pub copies: Option<Copies>,
    /// Number of running scripts.
    #[serde(default)]
    pub scripts: u64,
    /// Running scripts, the longest-running first, at most [`MAX_RUNNING_SHOWN`].
    pub running: Vec<Running>,
}

/// The state of preloading.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preloading {
    /// `on`, or why it is not.
    pub state: String,
    /// The number of preloaded classes.
    pub classes: u32,
}

/// The number of workers that `pm = "auto"` chooses, and its terms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Workers the pool is to have.
    pub workers: u64,
    /// The term that decides.
    pub binding: String,
    /// Workers that each term allows: `demand`, `cpu`, `memory`, `downstream`, `max_children`;
    /// `null` if it is no limit.
    pub terms: BTreeMap<String, Option<u64>>,
    /// CPUs that the pool may use.
    pub cores: f64,
    /// CPU time of a request, in seconds, once known.
    pub cpu_seconds: Option<f64>,
    /// Time a request is blocked on anything else, in seconds.
    pub blocked_seconds: f64,
    /// Workers whose script has run much longer than its kind usually does.
    pub hanging: u64,
}

/// Copies of a booted application.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Copies {
    /// The generation that serves; each boot for new code adds one.
    pub generation: u64,
    /// Copies that are ready and idle.
    pub spare: u64,
    /// Time to fork a copy.
    pub fork_time: Quantiles,
    /// Times that a copy was rewound (`rewinds_per_child`).
    pub rewound: u64,
    /// Copies that exited instead of being rewound, by reason.
    pub not_rewound: BTreeMap<String, u64>,
    /// Average private memory pages of a copy at its exit; `None` if none was measured. One copy in
    /// 64 measures itself.
    pub private_pages: Option<f64>,
}

/// Workers of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workers {
    /// Workers that run a script.
    pub busy: u64,
    /// Workers that run none.
    pub idle: u64,
    /// Workers that are being started.
    pub starting: u64,
    /// Maximum of workers (`max_children`).
    pub limit: u64,
    /// Most workers that ever ran a script at once.
    pub max_busy: u64,
    /// Workers that have exited, by reason.
    pub exited: BTreeMap<String, u64>,
}

/// Queue of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Requests in the queue.
    pub now: u64,
    /// Most requests that ever were in the queue at once.
    pub max: u64,
    /// Maximum of requests in the queue (`request_queue_length`).
    pub limit: u64,
}

/// Durations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Since the server's start.
    pub total: Quantiles,
    /// In the last ten seconds or a little less.
    pub recent: Quantiles,
}

/// Quantiles of durations, in seconds, at most an eighth too long; `None` without durations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of durations.
    pub count: u64,
    /// The median.
    pub p50_seconds: Option<f64>,
    /// The 99th percentile.
    pub p99_seconds: Option<f64>,
}

/// Quantiles of the peak PHP memory of scripts, in bytes, at most an eighth too large, if any ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakMemory {
    /// The median.
    pub p50_bytes: Option<u64>,
    /// The 99th percentile.
    pub p99_bytes: Option<u64>,
}

/// Memory of a pool's processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Private memory of all of them together, in bytes.
    pub private_bytes: u64,
    /// Shared memory of the process with the most, in bytes.
    pub shared_bytes: u64,
    /// The method of measurement.
    pub measured: Measured,
    /// Measured processes.
    pub processes: u64,
    /// Processes that could not be measured.
    pub unmeasured: u64,
}

/// The OPcache of a pool's current zygote and its workers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Opcache {
    /// Age of the figures, in seconds.
    pub age_seconds: f64,
    /// The statistics. Counters restart with each zygote.
    #[serde(flatten)]
    pub figures: CacheFigures,
}

/// How memory was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    /// Not at all: there is no process.
    #[default]
    Nothing,
    /// By the kernel's count of private pages (`Private_*` of `smaps_rollup`).
    Private,
    /// Without permission for that: resident pages less shared ones, also those of the zygote.
    RssMinusShared,
    /// The same, since the pages of at least one process were not counted in time.
    RssMinusSharedLate,
}

/// The default admin socket: in `/run/maitred` for root, in the user's runtime folder, or else in a
/// temporary folder.
pub fn default_socket() -> PathBuf {
    if users::is_root() {
        return PathBuf::from("/run/maitred").join(SOCKET_NAME);
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|folder| folder.is_absolute() && folder.is_dir());
    let folder = match runtime {
        Some(folder) => folder.join("maitred"),
        None => std::env::temp_dir().join(format!("maitred-{}", users::current().uid)),
    };
    folder.join(SOCKET_NAME)
}

#[cfg(test)]
mod tests {
    use maitred_pagecache::purge::PurgeMode;

    use super::*;
    use crate::purge::Target;

    #[test]
    fn requests_are_as_the_guide_shows_them() {
        let read = |text| serde_json::from_str::<Request>(text).unwrap();
        let all = Request::Status { pool: None };
        assert_eq!(read(r#"{"do":"status"}"#), all);
        assert_eq!(read(r#"{"do":"status","pool":null}"#), all);
        let reload = Request::Reload { pools: Vec::new() };
        assert_eq!(read(r#"{"do":"reload"}"#), reload);
        assert_eq!(read(r#"{"do":"drain"}"#), Request::Drain);
        let purge = r#"{"do":"purge","targets":[{"tag":"news"},"everything"],"how":"soft"}"#;
        let asked = PurgeRequest {
            targets: vec![Target::Tag("news".to_owned()), Target::Everything],
            how: PurgeMode::Soft,
            site: None,
        };
        assert_eq!(read(purge), Request::Purge(asked));
        assert!(serde_json::from_str::<Request>(r#"{"do":"dance"}"#).is_err());
        assert!(serde_json::from_str::<Request>(r#"{"do":"status","pol":"www"}"#).is_err());
    }

    #[test]
    fn an_answer_is_one_object_that_names_its_kind() {
        let ending = serde_json::to_string(&Reply::Ending { running: 2 }).unwrap();
        assert_eq!(ending, r#"{"ending":{"running":2}}"#);
        let status = serde_json::to_string(&Reply::Status(Box::default())).unwrap();
        assert!(status.starts_with(r#"{"status":{"version":"#), "{status}");
        assert!(!status.contains('\n'));
    }
}
