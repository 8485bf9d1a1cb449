//! What is said over the admin socket: one JSON object a line, a [`Request`] from the command and
//! an [`Answer`] from the supervisor.
//!
//! The answer's fields are for programs of other people too: they are added to, and not renamed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use maitred_os::users;
use maitred_scoreboard::Counters;
use serde::{Deserialize, Serialize};

use crate::CacheFigures;
use crate::purge::Asked;

/// Longest request in bytes, its line's end included.
pub const MAX_REQUEST_BYTES: usize = 4096;

/// Longest answer in bytes. A thousand pools, each with all the scripts that are shown of it, fit.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Most running scripts that are shown of a pool: those that have run for longest.
pub const MAX_RUNNING_SHOWN: usize = 10;

/// Most running scripts, of all pools that are told of together, whose stacks are shown.
pub const MAX_STACKS_SHOWN: usize = 5;

/// Name of the socket in its folder.
const SOCKET_NAME: &str = "admin.sock";

/// What is asked of a running server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// How it is.
    Status {
        /// The only pool to tell of; all, without.
        #[serde(default)]
        pool: Option<String>,
    },
    /// Read the configuration again, as SIGHUP does. The reply comes when all of it is done, or refused.
    Reload {
        /// Pools to start anew whether they have changed or not.
        #[serde(default)]
        pools: Vec<String>,
    },
    /// As SIGTERM: finish what runs, within its bound, and end; asked again, end at once.
    Stop,
    /// Take no more clients, finish what runs, and end; asked again, the same.
    Drain,
    /// Drop pages that are kept. The reply comes when no request that comes gets one of them any more.
    Purge(Asked),
}

/// What the server says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// How it is.
    Status(Box<ServerStatus>),
    /// A reload is done.
    Reloaded {
        /// One sentence: what was done.
        what: String,
    },
    /// It ends. The connection is closed when it has ended.
    Ending {
        /// Scripts that run now.
        running: u64,
    },
    /// Pages have been dropped.
    Purged {
        /// Which, each in words.
        what: Vec<String>,
    },
    /// It was to be done, and could not be.
    Failed {
        /// One sentence.
        why: String,
    },
    /// It does not do that.
    Refused {
        /// One sentence.
        why: String,
    },
}

/// A server at about one moment.
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
    /// Where it listens.
    pub listen: Vec<String>,
    /// How many fronts there have been; more than one means that fronts have died.
    pub front_epoch: u32,
    /// Process id of the front, if there is one.
    pub front_pid: Option<i32>,
    /// The pools, sorted by name.
    pub pools: Vec<PoolStatus>,
    /// The page cache, if a site has one and the front has told of it.
    #[serde(default)]
    pub page_cache: Option<PageCache>,
    /// The servers behind (`proxy`), sorted by name, if the front has told of them.
    #[serde(default)]
    pub proxies: Vec<ProxyServer>,
    /// The hosts whose certificates are got by ACME, sorted by name.
    #[serde(default)]
    pub certificates: Vec<CertificateStatus>,
}

/// What a front tells of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FrontFigures {
    /// The page cache, if a site has one.
    pub page_cache: Option<PageCache>,
    /// The servers behind, sorted by name.
    pub proxies: Vec<ProxyServer>,
}

/// Another HTTP server, which sites have answer some paths. Its counters begin anew with each front.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxyServer {
    /// The server, as it is written in the configuration.
    pub server: String,
    /// Requests to it that have ended: by the class of its answer (`1xx` for WebSockets, to `5xx`),
    /// `unreachable`, `timeout`, `invalid_response` (none, or half of one), `body_rejected` (the
    /// client's), `client_closed`.
    pub requests: BTreeMap<String, u64>,
    /// Time that they took, without WebSockets.
    pub request_seconds: f64,
    /// Requests to it that are on their way now.
    pub active_requests: u64,
    /// Connections that were opened to it.
    pub connections: u64,
}

/// The page cache. Its counters begin anew with each front.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PageCache {
    /// Pages in memory.
    pub memory: PageTier,
    /// Pages on disk, if there may be any. After a start those are not all known at once.
    pub disk: Option<PageTier>,
    /// Files that were damaged, and were taken away.
    pub corrupt_files: u64,
    /// Pages that could not be written to the disk: it is full, or read-only.
    pub write_errors: u64,
    /// Purges that are remembered until nothing is left of what they were about.
    pub active_purges: u64,
    /// Pages that are being made for all who wait for them.
    pub filling: u64,
    /// Requests that wait for such a page.
    pub waiting: u64,
    /// The sites that have a cache, sorted by name.
    pub sites: Vec<CachedSite>,
}

/// A place where pages are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTier {
    /// How many there are, in all forms in which they are kept.
    pub pages: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Bytes that they may take.
    pub limit_bytes: u64,
    /// Those that had to make room for others.
    pub evicted: u64,
}

/// What is counted of a site's cache.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CachedSite {
    /// The site, by its first host.
    pub site: String,
    /// Requests for scripts, each once: `hit`, `updating` and `stale` were answered with a kept page,
    /// `revalidated` after the script said that it is still good; `miss`, `vary_miss`, `expired` and
    /// `bypass` with what a script said.
    pub requests: BTreeMap<String, u64>,
    /// Those that were none of the cache's, by reason.
    pub bypasses: BTreeMap<String, u64>,
    /// Answers that were kept.
    pub stored: u64,
    /// Answers that were not kept, by reason; those of `bypasses` are not counted again.
    pub not_stored: BTreeMap<String, u64>,
    /// Purges.
    pub purges: u64,
    /// Bytes of bodies that were sent without a script.
    pub saved_bytes: u64,
    /// Time that workers would have needed for them: what each page took when it was made.
    pub saved_script_seconds: f64,
}

/// A host whose certificate is got by ACME.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The host.
    pub name: String,
    /// Until when its certificate is valid, in seconds since 1970; nothing: it has none yet.
    pub expires: Option<u64>,
    /// When the next one is asked for, in seconds since 1970; nothing: that is being done.
    pub next: Option<u64>,
    /// How often that has failed in a row.
    pub failures: u32,
    /// Why it failed last, as one sentence.
    pub error: Option<String>,
}

/// A pool at about one moment. Counters are since the server was started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// How its number of workers is decided: `static`, `dynamic`, `ondemand` or `auto`.
    pub pm: String,
    /// The PHP it runs, once that is known.
    pub php: Option<String>,
    /// Its workers.
    pub workers: Workers,
    /// Its queue.
    pub queue: Queue,
    /// How long requests waited for a worker.
    pub queue_wait: Times,
    /// How long scripts took.
    pub script_time: Times,
    /// Of scripts' time: how long they used a processor.
    #[serde(default)]
    pub cpu_time: Times,
    /// How long they were ready to run and had none; without any where the kernel does not tell.
    #[serde(default)]
    pub core_wait_time: Times,
    /// How long they waited for anything else; without any where `core_wait_time` is.
    #[serde(default)]
    pub blocked_time: Times,
    /// The counters, by their names (crate `scoreboard`, `Counter`).
    #[serde(default)]
    pub counters: Counters,
    /// The most memory that scripts had.
    #[serde(default)]
    pub peak_memory: PeakMemory,
    /// Requests that have ended, however that was.
    pub requests: u64,
    /// The same, by how they ended.
    pub outcomes: BTreeMap<String, u64>,
    /// Requests that were refused or failed, by cause: part of `outcomes`.
    pub failed: BTreeMap<String, u64>,
    /// Memory of its processes.
    pub memory: Memory,
    /// Its OPcache, if it has one and its zygote runs.
    #[serde(default)]
    pub opcache: Option<Opcache>,
    /// How its number of workers was found, with `pm = "auto"`.
    #[serde(default)]
    pub size: Option<Size>,
    /// How many workers `pm = "auto"` would have now, where the number is not found.
    #[serde(default)]
    pub advice: Option<Size>,
    /// How its workers are doing as copies of a booted application, with `mode = "snapshot"`.
    #[serde(default)]
    pub copies: Option<Copies>,
    /// Scripts that run, the longest-running first, at most [`MAX_RUNNING_SHOWN`].
    pub running: Vec<Running>,
}

/// A number of workers, and what it was made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// As many there are to be.
    pub workers: u64,
    /// Which term decides.
    pub binding: String,
    /// How many workers each term allows: `demand`, `cpu`, `memory`, `downstream`, `max_children`; `null`
    /// where it is no limit.
    pub terms: BTreeMap<String, Option<u64>>,
    /// Processors that the pool may use.
    pub cores: f64,
    /// What a request works for a processor, in seconds, once it is known.
    pub cpu_seconds: Option<f64>,
    /// What it waits for anything else, in seconds.
    pub blocked_seconds: f64,
    /// Workers whose script has run for much longer than one takes.
    pub hanging: u64,
}

/// Copies of a booted application.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Copies {
    /// The generation that serves: its number is higher after each boot for new code.
    pub generation: u64,
    /// Copies that are ready and serve nobody.
    pub spare: u64,
    /// How long the forks took.
    pub fork_time: Quantiles,
    /// Times that a copy has gone back to what it was (`rewinds_per_child`).
    pub rewound: u64,
    /// Copies that were to go back and ended instead, by reason.
    pub not_rewound: BTreeMap<String, u64>,
    /// Pages of memory that a copy had for itself at its end, on average; nothing if none was
    /// measured. One copy in 64 measures itself.
    pub private_pages: Option<f64>,
}

/// Workers of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workers {
    /// Those that run a script.
    pub busy: u64,
    /// Those that run none.
    pub idle: u64,
    /// Those that were ordered and are not there yet.
    pub starting: u64,
    /// Most that there may be (`max_children`).
    pub limit: u64,
    /// Most that ever ran a script at once.
    pub max_busy: u64,
    /// Workers that have exited, by reason.
    pub exited: BTreeMap<String, u64>,
}

/// Queue of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Requests that wait now.
    pub now: u64,
    /// Most that ever waited at once.
    pub max: u64,
    /// Most that may (`request_queue_length`).
    pub limit: u64,
}

/// How long something took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Since the server was started.
    pub total: Quantiles,
    /// In the last ten seconds or a little less.
    pub recent: Quantiles,
}

/// How long something took, in seconds. An eighth too long at most; nothing if it never happened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How often it happened.
    pub count: u64,
    /// Half took no longer.
    pub p50_seconds: Option<f64>,
    /// 99 of 100 took no longer.
    pub p99_seconds: Option<f64>,
}

/// The most memory that PHP had for each script, in bytes. An eighth too much at most; nothing if
/// there was no script.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakMemory {
    /// Half had no more.
    pub p50_bytes: Option<u64>,
    /// 99 of 100 had no more.
    pub p99_bytes: Option<u64>,
}

/// Memory of a pool's processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// What each has for itself, of all of them together, in bytes.
    pub private_bytes: u64,
    /// What the one with the most shares with others, in bytes.
    pub shared_bytes: u64,
    /// How it was measured.
    pub measured: Measured,
    /// Processes that it is measured of.
    pub processes: u64,
    /// Processes that could not be measured.
    pub unmeasured: u64,
}

/// The OPcache of a pool's current zygote and its workers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Opcache {
    /// For how long the figures have been known, in seconds.
    pub age_seconds: f64,
    /// The figures. Its counters begin anew with each zygote.
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
    /// For some processes we were not let look at that: resident pages less those of files and
    /// shared memory (`statm`), which takes what was inherited from the zygote for private.
    RssMinusShared,
}

/// A script that runs. All but its pid and its seat is its worker's word.
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
    /// Of that, how long it used a processor, in seconds; nothing, as the next two, where its pool does
    /// not measure it or the kernel does not tell.
    #[serde(default)]
    pub cpu_seconds: Option<f64>,
    /// How long it was ready to run and had no processor.
    #[serde(default)]
    pub core_wait_seconds: Option<f64>,
    /// How long it waited for anything else.
    #[serde(default)]
    pub blocked_seconds: Option<f64>,
    /// Where in the script it is, the innermost call first, each as `function() file:line` with the
    /// place it was called from. Empty when that is not known, or not worth the look: it is told of
    /// the [`MAX_STACKS_SHOWN`] slowest scripts, if they have run for a tenth of a second.
    pub stack: Vec<String>,
}

/// Where a server's admin socket is if nobody says otherwise: `/run/maitred` for root, the user's
/// runtime folder, or else a folder among the temporary files.
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
        let asked = Asked {
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
