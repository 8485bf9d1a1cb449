//! The protocol of the admin socket: one JSON object a line, a [`Request`] from the command and an
//! [`Answer`] from the supervisor.
//!
//! Other people's programs read the replies, too: fields are added, and not renamed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use maitred_os::users;
use serde::{Deserialize, Serialize};

use crate::CacheFigures;
use crate::purge::PurgeRequest;

/// Longest request in bytes, including the end of the line.
pub const MAX_REQUEST_BYTES: usize = 4096;

/// Longest reply in bytes. A thousand pools fit, each with all its shown scripts.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Most running scripts that are shown of a pool: those that have run for longest.
pub const MAX_RUNNING_SHOWN: usize = 10;

/// Most running scripts, of all pools in a reply, whose stacks are shown.
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
    /// Read the configuration again, as SIGHUP does. The reply is sent when all of it is done, or
    /// refused.
    Reload {
        /// Pools to restart even if they have not changed.
        #[serde(default)]
        pools: Vec<String>,
    },
    /// As SIGTERM: finish the requests in flight, within a timeout, and exit; repeated, exit at
    /// once.
    Stop,
    /// Accept no more clients, finish the requests in flight, and exit; repeated, the same.
    Drain,
    /// Drop cached pages. The reply is sent when no later request gets one of them.
    Purge(PurgeRequest),
}

/// A reply of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
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
    /// Pages have been dropped.
    Purged {
        /// Descriptions of them.
        what: Vec<String>,
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

/// The status of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its version.
    pub version: String,
    /// Process id of the supervisor.
    pub pid: u32,
    /// `starting`, `serving`, `draining` or `ending`.
    pub phase: String,
    /// Seconds since it was started.
    pub uptime_seconds: f64,
    /// The addresses it listens on.
    pub listen: Vec<String>,
    /// Number of fronts so far; more than one means that fronts have died, or an upgrade.
    pub front_epoch: u32,
    /// Process id of the front, if there is one.
    pub front_pid: Option<i32>,
    /// The pools, sorted by name.
    pub pools: Vec<PoolStatus>,
    /// The page cache, if a site has one and the front has reported it.
    #[serde(default)]
    pub page_cache: Option<PageCache>,
    /// The upstream servers (`proxy`), sorted by name, if the front has reported them.
    #[serde(default)]
    pub proxies: Vec<ProxyServer>,
    /// The hosts with certificates by ACME, sorted by name.
    #[serde(default)]
    pub certificates: Vec<CertificateStatus>,
}

/// The statistics of a front.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FrontFigures {
    /// The page cache, if a site has one.
    pub page_cache: Option<PageCache>,
    /// The upstream servers, sorted by name.
    pub proxies: Vec<ProxyServer>,
}

/// An upstream HTTP server (`proxy`). Its counters start at zero with each front.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxyServer {
    /// The server, as it is written in the configuration.
    pub server: String,
    /// Finished requests to it: by the class of its response (`1xx` for WebSockets, to `5xx`),
    /// `unreachable`, `timeout`, `broken` (no response, or half of one), `refused` (the client's
    /// body), `client_left`.
    pub requests: BTreeMap<String, u64>,
    /// Duration of these, without WebSockets.
    pub seconds: f64,
    /// Requests to it in flight.
    pub active: u64,
    /// Connections opened to it.
    pub connections: u64,
}

/// The page cache. Its counters start at zero with each front.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PageCache {
    /// Pages in memory.
    pub memory: PageTier,
    /// Pages on disk, if that is used. After a start, they are found little by little.
    pub disk: Option<PageTier>,
    /// Damaged files that were removed.
    pub damaged_files: u64,
    /// Pages that could not be written to disk: it is full, or read-only.
    pub write_errors: u64,
    /// Purges that are stored until none of their pages is left.
    pub purges_remembered: u64,
    /// Pages being generated for all requests that wait for them.
    pub filling: u64,
    /// Requests that wait for such a page.
    pub waiting: u64,
    /// The sites that have a cache, sorted by name.
    pub sites: Vec<CachedSite>,
}

/// One tier of the page cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTier {
    /// Cached pages, in all their variants.
    pub pages: u64,
    /// Bytes in use.
    pub bytes: u64,
    /// Most bytes.
    pub limit_bytes: u64,
    /// Pages evicted for others.
    pub evicted: u64,
}

/// Counters of a site's cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CachedSite {
    /// The site, by its first host.
    pub site: String,
    /// Requests for scripts, each once: `hit`, `updating` and `stale` got a cached page,
    /// `revalidated` did after the script confirmed it; `miss`, `vary_miss`, `expired` and `bypass`
    /// got the response of a script.
    pub requests: BTreeMap<String, u64>,
    /// Requests that bypassed the cache, by reason.
    pub bypasses: BTreeMap<String, u64>,
    /// Responses that were stored.
    pub stored: u64,
    /// Responses that were not stored, by reason; those of `bypasses` are not counted again.
    pub not_stored: BTreeMap<String, u64>,
    /// Purges.
    pub purges: u64,
    /// Bytes of bodies sent without a script.
    pub saved_bytes: u64,
    /// Worker time saved: the time that each page took when it was generated.
    pub saved_script_seconds: f64,
}

/// A host with a certificate by ACME.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The host.
    pub name: String,
    /// End of its validity, in seconds since 1970; none: it has none yet.
    pub expires: Option<u64>,
    /// Time of the next order, in seconds since 1970; none: one is running.
    pub next: Option<u64>,
    /// Failures in a row.
    pub failures: u32,
    /// Why it failed last, as one sentence.
    pub error: Option<String>,
}

/// A pool. Counters are since the server was started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its process manager: `static`, `dynamic`, `ondemand` or `auto`.
    pub pm: String,
    /// Its PHP version, once that is known.
    pub php: Option<String>,
    /// Its workers.
    pub workers: Workers,
    /// Its queue.
    pub queue: Queue,
    /// How long requests waited for a worker.
    pub queue_wait: Times,
    /// How long scripts took.
    pub script_time: Times,
    /// Of the time of scripts: processor time.
    #[serde(default)]
    pub cpu_time: Times,
    /// Of the time of scripts: ready to run without a processor; empty where the kernel does not
    /// report it.
    #[serde(default)]
    pub core_wait_time: Times,
    /// Of the time of scripts: the rest; empty where `core_wait_time` is.
    #[serde(default)]
    pub blocked_time: Times,
    /// Processor time of programs started by scripts, in seconds.
    #[serde(default)]
    pub children_cpu_seconds: f64,
    /// Peak memory of scripts.
    #[serde(default)]
    pub peak_memory: PeakMemory,
    /// Finished requests, with whatever result.
    pub requests: u64,
    /// The same, by result.
    pub outcomes: BTreeMap<String, u64>,
    /// Rejected or failed requests, by cause: part of `outcomes`.
    pub refusals: BTreeMap<String, u64>,
    /// Memory of its processes.
    pub memory: Memory,
    /// Its OPcache, if it has one and its zygote runs.
    #[serde(default)]
    pub opcache: Option<Opcache>,
    /// The terms of its number of workers, with `pm = "auto"`.
    #[serde(default)]
    pub size: Option<Size>,
    /// The number of workers that `pm = "auto"` would choose, where it is fixed.
    #[serde(default)]
    pub advice: Option<Size>,
    /// Its workers as copies of a booted application, with `mode = "snapshot"`.
    #[serde(default)]
    pub copies: Option<Copies>,
    /// Running scripts, the longest-running first, at most [`MAX_RUNNING_SHOWN`].
    pub running: Vec<Running>,
}

/// A number of workers, and its terms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Number of workers.
    pub workers: u64,
    /// The term that decides.
    pub binding: String,
    /// Workers that each term allows: `demand`, `cpu`, `memory`, `downstream`, `max_children`;
    /// `null` for no limit.
    pub terms: BTreeMap<String, Option<u64>>,
    /// Processors that the pool may use.
    pub cores: f64,
    /// Processor time of a request, in seconds, once it is known.
    pub cpu_seconds: Option<f64>,
    /// Its time without a processor, in seconds.
    pub blocked_seconds: f64,
    /// Workers whose script has run for much longer than usual.
    pub hanging: u64,
}

/// Copies of a booted application.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Copies {
    /// The generation that serves: its number is higher after each boot for new code.
    pub generation: u64,
    /// Idle copies.
    pub spare: u64,
    /// Duration of the forks.
    pub fork_time: Quantiles,
    /// Times that a copy has returned to its first state (`rewinds_per_child`).
    pub went_back: u64,
    /// Copies that could not return and ended instead, by reason.
    pub stayed: BTreeMap<String, u64>,
    /// Private pages of a copy at its end, on average; none if none was measured. One copy in 64
    /// measures itself.
    pub pages: Option<f64>,
}

/// Workers of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workers {
    /// Workers that run a script.
    pub busy: u64,
    /// Workers that do not.
    pub idle: u64,
    /// Workers being started.
    pub starting: u64,
    /// Most workers (`max_children`).
    pub limit: u64,
    /// Most workers that ever ran a script at once.
    pub max_busy: u64,
    /// Times that a request found all workers busy and no further one allowed.
    pub limit_reached: u64,
    /// Workers started so far.
    pub spawned: u64,
    /// Ended workers, by cause.
    pub ended: BTreeMap<String, u64>,
}

/// Queue of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Waiting requests.
    pub now: u64,
    /// Most requests that ever waited at once.
    pub max: u64,
    /// Its limit (`request_queue_length`).
    pub limit: u64,
}

/// Durations of something.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Since the server was started.
    pub total: Quantiles,
    /// In the last ten seconds or a little less.
    pub recent: Quantiles,
}

/// Quantiles of a duration, in seconds, at most an eighth too long; none if it never happened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How often it happened.
    pub count: u64,
    /// The median.
    pub p50_seconds: Option<f64>,
    /// The 99th percentile.
    pub p99_seconds: Option<f64>,
}

/// Quantiles of the peak memory of scripts, in bytes, at most an eighth too much; none without a
/// script.
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
    /// Sum of the private memory of all processes, in bytes.
    pub private_bytes: u64,
    /// Largest shared memory of a process, in bytes.
    pub shared_bytes: u64,
    /// How it was measured.
    pub measured: Measured,
    /// Measured processes.
    pub processes: u64,
    /// Processes that could not be measured.
    pub unmeasured: u64,
}

/// The OPcache of a pool's current zygote and its workers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Opcache {
    /// Age of the numbers, in seconds.
    pub age_seconds: f64,
    /// The numbers. Counters start at zero with each zygote.
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
    /// For lack of rights for some processes: resident pages less those of files and shared memory
    /// (`statm`), which counts memory inherited from the zygote as private.
    RssMinusShared,
}

/// A running script. All but its pid and seat is reported by its worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// Process id of its worker.
    pub pid: i32,
    /// Seat of its worker.
    pub seat: u32,
    /// How long it has run, in seconds.
    pub seconds: f64,
    /// Method of its request.
    pub method: String,
    /// Target of its request, without the query.
    pub uri: String,
    /// Its file.
    pub script: String,
    /// Of that, processor time, in seconds; none, as the next two, where the pool or the kernel
    /// does not measure it.
    #[serde(default)]
    pub cpu_seconds: Option<f64>,
    /// Time that it was ready to run without a processor.
    #[serde(default)]
    pub core_wait_seconds: Option<f64>,
    /// The rest.
    #[serde(default)]
    pub blocked_seconds: Option<f64>,
    /// Its stack, the innermost call first, each as `function() file:line` with the line it was
    /// called from. Empty when unknown, or not requested: only the [`MAX_STACKS_SHOWN`] slowest
    /// scripts that have run for a tenth of a second have one.
    pub stack: Vec<String>,
}

/// Default path of a server's admin socket: `/run/maitred` for root, the user's runtime folder, or
/// else a folder among the temporary files.
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
    use maitred_pagecache::purge::Thoroughness;

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
            how: Thoroughness::Soft,
            site: None,
        };
        assert_eq!(read(purge), Request::Purge(asked));
        assert!(serde_json::from_str::<Request>(r#"{"do":"dance"}"#).is_err());
        assert!(serde_json::from_str::<Request>(r#"{"do":"status","pol":"www"}"#).is_err());
    }

    #[test]
    fn an_answer_is_one_object_that_names_its_kind() {
        let ending = serde_json::to_string(&Answer::Ending { running: 2 }).unwrap();
        assert_eq!(ending, r#"{"ending":{"running":2}}"#);
        let status = serde_json::to_string(&Answer::Status(Box::default())).unwrap();
        assert!(status.starts_with(r#"{"status":{"version":"#), "{status}");
        assert!(!status.contains('\n'));
    }
}
