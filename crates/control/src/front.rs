//! Messages between the supervisor and the front.

use std::path::PathBuf;
use std::time::Duration;

use maitred_os::thread_stack::ReportForm;
use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

use crate::{Generation, PhpInfo, WorkerId, acme, job_status, nodes, purge, purge_log};

/// Orders from the supervisor to the front.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToFront {
    /// The settings to run with. Descriptor: a file with the configuration as JSON.
    Configure {
        /// Number of this front, from 1; worker replies to an earlier one are discarded.
        epoch: u32,
        /// Number of threads, each with a listening socket per address.
        threads: u32,
        /// User to become before the first client is accepted.
        identity: Option<Identity>,
        /// The server has just started; an upgrade is no start.
        #[serde(default)]
        is_new_server: bool,
    },
    /// A socket to accept clients from. Descriptor: the socket.
    Listen {
        /// The thread that accepts from it.
        thread: u32,
        /// Its address, for messages and [`ToFront::Unlisten`].
        address: String,
        /// Who connects there.
        clients: Clients,
    },
    /// Accept no more clients at an address that the configuration does not have any more.
    Unlisten {
        /// The address, as [`ToFront::Listen`] named it.
        address: String,
    },
    /// Open a generation of a pool. Descriptors: a file with the pool's settings as JSON, its seat
    /// link's memory, one event per front thread, the pool's scoreboard, and the memory of
    /// its application's counters. It gets no request before [`ToFront::Replace`].
    OpenPool {
        /// Its number.
        generation: Generation,
    },
    /// Send the requests for the pool's name to `new` from now on. The generations before it leave:
    /// each gives up a worker for every worker that `new` gets, as soon as one is idle.
    Replace {
        /// The number of the new generation.
        new: Generation,
    },
    /// PHP could not be started for a generation: reject requests while its pool has no worker, for
    /// a moment. It is tried again.
    SuspendPool {
        /// Its number.
        generation: Generation,
    },
    /// A generation leaves without a successor: its pool is not configured any more.
    ClosePool {
        /// Its number.
        generation: Generation,
    },
    /// Use these facts about a generation's PHP in responses and for paths.
    SetPhpInfo {
        /// The generation.
        generation: Generation,
        /// The facts.
        info: PhpInfo,
    },
    /// Limit pools with `pm = auto` to this capacity of processors and memory.
    SetCapacity {
        /// Its generation.
        generation: Generation,
        /// Thousandths of a processor.
        cores: u32,
        /// Workers there is memory for; none: more than the pool may have.
        workers: Option<u32>,
    },
    /// Replace a worker that has grown while memory is short.
    ReplaceWorker {
        /// Its generation.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
    },
    /// Forget a generation whose workers and zygote are gone.
    ForgetPool {
        /// Its number.
        generation: Generation,
    },
    /// Write the access log to this file from now on. Descriptor: the file.
    SetAccessLog,
    /// Write the access logs of pools and sites with this path to this file from now on.
    /// Descriptor: the file.
    SetPoolAccessLog {
        /// The path, as the settings have it.
        path: PathBuf,
    },
    /// Write messages to this file from now on. Descriptor: the file, which replaces standard
    /// error.
    SetErrorLog,
    /// Use these certificates and keys for TLS handshakes from now on. Descriptor: a file with them
    /// as JSON, which holds private keys.
    SetCertificates,
    /// Serve these proofs to certificate authorities, instead of those before. Reply:
    /// [`FromFront::AcmeProofsSet`].
    SetAcmeProofs {
        /// All proofs.
        proofs: Vec<acme::Proof>,
        /// Number of this order, for the report.
        mark: u64,
    },
    /// Report the statistics of the page cache and of upstream servers. Reply:
    /// [`FromFront::StatsWritten`]. Descriptor: an anonymous file, whose contents are replaced by
    /// [`admin::FrontFigures`] as JSON.
    ReportStats,
    /// Drop cached pages. Reply: [`FromFront::Purged`].
    Purge {
        /// Which pages.
        order: purge::PurgeOrder,
        /// Number of this order, for the report.
        mark: u64,
    },
    /// All other fronts, and nodes that were to be waited for, have dropped the pages of a
    /// [`FromFront::PagesDropped`], too.
    ConfirmPurge {
        /// The number of that report.
        mark: u64,
        /// Why other nodes may still serve them, in one clause; none: they do not.
        #[serde(default)]
        complaint: Option<String>,
    },
    /// Serve cached pages until this time, and no longer: other nodes may purge them.
    SetPurgeLease {
        /// Milliseconds since the machine's start ([`maitred_os::clock::since_boot_millis`]).
        until: u64,
    },
    /// Show this state of the purge log in metrics and on the dashboard.
    ShowPurgeLog {
        /// The state.
        state: purge_log::PurgeLogState,
    },
    /// Show the stack of a slow script on the dashboard.
    ShowSlowStack {
        /// The stack.
        stack: SlowStack,
    },
    /// Show on the dashboard why certificates could not be got, in place of those before.
    ShowCertificateFailures {
        /// The hosts without a new certificate.
        failures: CertificateFailures,
    },
    /// Show these commands and schedules on the dashboard, in place of those before.
    ShowJobs {
        /// The jobs.
        jobs: job_status::ShownJobs,
    },
    /// Show the nodes with this purge log on the dashboard and in metrics.
    ShowNodes {
        /// The nodes, or why they are not known.
        outcome: Result<nodes::KnownNodes, String>,
    },
    /// Add names of cookies that a site has set.
    AddCookieNames {
        /// The name of the site's cookies: its first host and a fingerprint of its tenant.
        site_key: String,
        /// Their names, [`COOKIES_PER_MESSAGE`] at most; none: more than are remembered.
        names: Option<Vec<String>>,
    },
    /// Everything has been sent: accept clients.
    Begin,
    /// Use these sites, hosts and limits from now on. Reply: [`FromFront::Reconfigured`].
    /// Descriptors: a file with the configuration as JSON, then the access log if that is a file.
    Reconfigure,
    /// Send requests to a worker that sits in a seat. Descriptor: its pidfd. It gets none as long
    /// as the pool, all its generations together, has `max_children` open seats: an idle worker of
    /// an older generation, or a worn one, has to leave first.
    OpenSeat {
        /// The generation of its pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
        /// Its process id, for messages.
        pid: i32,
    },
    /// Report [`FromFront::Alive`] as soon as each thread has had a turn.
    CheckLiveness,
    /// Report [`FromFront::Settled`] when all earlier orders have taken effect.
    Settle {
        /// Number of this order, for the report.
        mark: u64,
    },
    /// The server stops soon (`stop_delay`): it is not ready for load balancers any more, and each
    /// connection is closed after its next response. Clients are accepted and served as before.
    PrepareStop,
    /// Accept no more clients, finish the requests in flight, then report [`FromFront::Drained`]
    /// and exit.
    Drain,
    /// Another front accepts the clients from now on. As [`ToFront::Drain`], but a keep-alive
    /// connection is closed after its next response instead of at once, and idle workers are given
    /// up as soon as they are not needed.
    HandOver,
}

/// Most names of cookies in one [`ToFront::AddCookieNames`] or [`FromFront::CookiesSeen`]: messages
/// have a size limit.
pub const COOKIES_PER_MESSAGE: usize = 64;

/// Most calls of a [`SlowStack`].
pub const MAX_CALLS_SHOWN: usize = 20;

/// Longest text of a [`SlowStack`] or a [`CertificateFailure`], in characters.
pub const MAX_CHARS_SHOWN: usize = 300;

/// Most entries of [`CertificateFailures`].
pub const MAX_FAILURES_SHOWN: usize = 20;

/// The stack of a script that has run for longer than `request_slowlog_timeout`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowStack {
    /// When it was read, in milliseconds since 1970.
    pub at: u64,
    /// The pool.
    pub pool: String,
    /// The worker.
    pub pid: i32,
    /// The script.
    pub script: String,
    /// The request's id in the logs; empty if it has none.
    pub id: String,
    /// The calls with their places, the innermost first, at most [`MAX_CALLS_SHOWN`].
    pub calls: Vec<String>,
    /// Why there is no stack, or no sound one.
    pub problem: Option<String>,
}

/// The hosts whose certificates could not be got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFailures {
    /// The first [`MAX_FAILURES_SHOWN`].
    pub first: Vec<CertificateFailure>,
    /// How many more there are.
    pub more: usize,
}

impl CertificateFailures {
    /// These, in the order of their urgency.
    pub fn of(mut all: Vec<CertificateFailure>) -> CertificateFailures {
        let more = all.len().saturating_sub(MAX_FAILURES_SHOWN);
        all.truncate(MAX_FAILURES_SHOWN);
        CertificateFailures { first: all, more }
    }
}

/// A host whose certificate could not be got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFailure {
    /// The host.
    pub name: String,
    /// How often, since the last success.
    pub failures: u32,
    /// Why the last time.
    pub error: String,
    /// The next attempt, in seconds since 1970.
    pub next: Option<u64>,
}

/// A text of at most [`MAX_CHARS_SHOWN`] characters, on one line.
pub fn shown(text: &str) -> String {
    let text = text.chars().take(MAX_CHARS_SHOWN);
    text.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The kind of clients of a listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clients {
    /// Clients of the sites, over HTTP.
    Http,
    /// Clients of the sites, over TLS.
    Https,
    /// Administrators, over HTTP: metrics and status only.
    Admin,
    /// HAProxy, which asks for the state and the weight of this node.
    AgentCheck,
    /// Web servers, over FastCGI. Their pool is in the configuration.
    Fastcgi {
        /// The address as the configuration has it.
        listen: String,
    },
}

/// Reports from the front to the supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromFront {
    /// Clients are being accepted.
    Listening,
    /// A worker must be killed: its script exceeded `request_terminate_timeout`, or it violated the
    /// protocol of the seat link.
    WorkerFailed {
        /// The generation of its pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
        /// Why, for the log.
        why: String,
        /// The script that ran too long, if that is why.
        overrun: Option<Overrun>,
        /// It broke the rules of the seat link: what it wrote may harm other workers.
        #[serde(default)]
        broke_rules: bool,
        /// The front logs it, with the request.
        #[serde(default)]
        is_logged: bool,
    },
    /// A worker died while it ran a script, which the supervisor cannot know by itself.
    ScriptDied {
        /// The generation of its pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
        /// The script it ran.
        script: String,
    },
    /// The number of workers that a pool needs. Sent at once if it exceeds the current number, at
    /// most once a second if it is lower, and only when it changes.
    WorkersNeeded {
        /// The generation of its pool.
        generation: Generation,
        /// How many, including those it has.
        workers: u32,
    },
    /// No request has arrived for `pool_idle_timeout`: the pool needs neither workers nor PHP
    /// before the next [`FromFront::WorkersNeeded`].
    PoolIdle {
        /// The generation of its pool.
        generation: Generation,
    },
    /// A worker was idle for long and gets no further request: stop it.
    SeatRetired {
        /// The generation of its pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
    },
    /// A worker has reached a limit on requests or memory: replace it. It serves until then, within
    /// its limits.
    SeatWorn {
        /// The generation of its pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
        /// Why.
        why: Wear,
    },
    /// A generation could not be opened, for lack of descriptors or memory: send it and its workers
    /// again.
    OpenFailed {
        /// Its number.
        generation: Generation,
    },
    /// The OPcache of a generation is full, as reported by its workers. Repeated from time to time.
    OpcacheFilled {
        /// Its number.
        generation: Generation,
    },
    /// A script has run for longer than `request_slowlog_timeout`. Sent once for each run.
    SlowScriptFound {
        /// The generation of its pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
        /// Number of the request of that worker, from 1; it may serve another by now.
        request: u64,
        /// The script, and for how long it has run.
        overrun: Overrun,
        /// The request's id in the logs; empty if it has none.
        #[serde(default)]
        id: String,
    },
    /// The result of a [`ToFront::Reconfigure`].
    Reconfigured {
        /// Why nothing has changed; none: the new configuration is used.
        refused: Option<String>,
    },
    /// All orders before a [`ToFront::Settle`] have taken effect.
    Settled {
        /// The number of that order.
        mark: u64,
    },
    /// The proofs of a [`ToFront::SetAcmeProofs`] are being served.
    AcmeProofsSet {
        /// The number of that order.
        mark: u64,
    },
    /// The reply to [`ToFront::ReportStats`], in any case.
    StatsWritten,
    /// The result of a [`ToFront::Purge`].
    Purged {
        /// The number of the order.
        mark: u64,
        /// Descriptions of what was dropped, or one sentence that says why nothing was.
        outcome: Result<Vec<String>, String>,
    },
    /// Pages have been dropped, which other fronts may have cached, too. Reply:
    /// [`ToFront::ConfirmPurge`].
    PagesDropped {
        /// Which pages.
        dropped: Vec<purge::DroppedPages>,
        /// Number of this report, for the reply.
        mark: u64,
        /// Whether the reply waits for other nodes as well.
        #[serde(default)]
        awaits_nodes: bool,
        /// Whether the method of a client's request alone is the cause (RFC 9111 §4.4), and no
        /// script has named them.
        #[serde(default)]
        by_method: bool,
    },
    /// A site has set cookies that were not known before.
    CookiesSeen {
        /// The name of the site's cookies: its first host and a fingerprint of its tenant.
        site_key: String,
        /// Their names, [`COOKIES_PER_MESSAGE`] at most; none: more than are remembered.
        names: Option<Vec<String>>,
    },
    /// All threads have had a turn since a [`ToFront::CheckLiveness`].
    Alive,
    /// The stack of a thread, which was requested with a signal
    /// ([`maitred_os::thread_stack::STACK_SIGNAL`]).
    StackReported {
        /// The id of the thread.
        thread: i32,
        /// Its calls, the innermost first, as [`maitred_os::thread_stack::absolute`] takes them.
        calls: Vec<i64>,
    },
    /// What the other nodes with this purge log may show of this one.
    NodeFigures {
        /// The figures.
        figures: nodes::NodeFigures,
    },
    /// A client requests metrics: measure the memory of pools and update their scoreboards.
    MetricsRequested,
    /// No request is in flight any more.
    Drained,
}

impl FromFront {
    /// The text of [`FromFront::StackReported`], which a handler of signals writes.
    pub const STACK_FORM: ReportForm =
        ReportForm { begin: "{\"StackReported\":{\"thread\":", middle: ",\"calls\":[", end: "]}}" };

    /// Whether it must not be lost while the supervisor does not read. The others are repeated, or
    /// of use only at once.
    pub fn must_arrive(&self) -> bool {
        match self {
            FromFront::Listening
            | FromFront::WorkerFailed { .. }
            | FromFront::ScriptDied { .. }
            | FromFront::OpenFailed { .. }
            | FromFront::Reconfigured { .. }
            | FromFront::Settled { .. }
            | FromFront::AcmeProofsSet { .. }
            | FromFront::StatsWritten
            | FromFront::Purged { .. }
            | FromFront::PagesDropped { .. }
            | FromFront::CookiesSeen { .. }
            | FromFront::Drained => true,
            FromFront::WorkersNeeded { .. }
            | FromFront::PoolIdle { .. }
            | FromFront::SeatRetired { .. }
            | FromFront::SeatWorn { .. }
            | FromFront::OpcacheFilled { .. }
            | FromFront::SlowScriptFound { .. }
            | FromFront::Alive
            | FromFront::StackReported { .. }
            | FromFront::NodeFigures { .. }
            | FromFront::MetricsRequested => false,
        }
    }

    /// The generation that the report is about; none for reports about the whole front.
    pub fn generation(&self) -> Option<Generation> {
        match self {
            FromFront::WorkerFailed { generation, .. }
            | FromFront::ScriptDied { generation, .. }
            | FromFront::WorkersNeeded { generation, .. }
            | FromFront::PoolIdle { generation }
            | FromFront::SeatRetired { generation, .. }
            | FromFront::SeatWorn { generation, .. }
            | FromFront::OpenFailed { generation }
            | FromFront::OpcacheFilled { generation }
            | FromFront::SlowScriptFound { generation, .. } => Some(*generation),
            FromFront::Listening
            | FromFront::Reconfigured { .. }
            | FromFront::Settled { .. }
            | FromFront::AcmeProofsSet { .. }
            | FromFront::StatsWritten
            | FromFront::Purged { .. }
            | FromFront::PagesDropped { .. }
            | FromFront::CookiesSeen { .. }
            | FromFront::Alive
            | FromFront::StackReported { .. }
            | FromFront::NodeFigures { .. }
            | FromFront::MetricsRequested
            | FromFront::Drained => None,
        }
    }
}

/// A script that exceeds its timeout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrun {
    /// Its run time so far.
    pub ran: Duration,
    /// The script.
    pub script: String,
    /// The request's method and target, without the query.
    pub target: String,
    /// The request's query, without its question mark; it may hold secrets.
    pub query: String,
}

/// Why a worker is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wear {
    /// It has served about `max_requests`.
    Requests,
    /// Its private memory has reached `max_private_memory`.
    Memory,
    /// Its private memory has grown, and memory is short.
    Grown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_stack_that_a_handler_writes_is_read_as_any_other() {
        let ReportForm { begin, middle, end } = FromFront::STACK_FORM;
        let text = format!("{begin}17{middle}-4096,8{end}");
        let report: FromFront = serde_json::from_str(&text).unwrap();
        assert_eq!(report, FromFront::StackReported { thread: 17, calls: vec![-4096, 8] });
        let none = serde_json::from_str(&format!("{begin}17{middle}{end}")).unwrap();
        assert_eq!(report_calls(none), 0);
    }

    fn report_calls(report: FromFront) -> usize {
        match report {
            FromFront::StackReported { calls, .. } => calls.len(),
            _ => usize::MAX,
        }
    }
}
