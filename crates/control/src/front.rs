//! What the supervisor and the front say to each other.

use std::path::PathBuf;
use std::time::Duration;

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

use crate::{Generation, PhpInfo, WorkerId, acme, purge};

/// Orders from the supervisor to the front.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToFront {
    /// The settings to run with. Descriptor: a file with the configuration as JSON.
    Configure {
        /// Number of this front, from 1; answers meant for an earlier one are discarded.
        epoch: u32,
        /// Number of threads, each with a listening socket per address.
        threads: u32,
        /// Whom to become before the first client is accepted.
        identity: Option<Identity>,
    },
    /// A socket to accept clients from. Descriptor: the socket.
    Listen {
        /// Thread that accepts from it.
        thread: u32,
        /// Its address, for messages and [`ToFront::Unlisten`].
        address: String,
        /// Who comes there.
        clients: Clients,
    },
    /// No more clients are accepted at an address that no listener of the configuration has any
    /// more.
    Unlisten {
        /// The address, as [`ToFront::Listen`] named it.
        address: String,
    },
    /// A generation of a pool. Descriptors: a file with the pool's settings as JSON, its seat link's
    /// memory, one event per front thread, and the pool's scoreboard. No request goes to it before
    /// [`ToFront::Replace`].
    OpenPool {
        /// Its number.
        generation: Generation,
    },
    /// From now on the requests for the pool's name go to `new`. The generations before it are
    /// leaving: each gives a worker up for every one that `new` gets, as soon as it has an idle one.
    Replace {
        /// The number of the generation that is used from now on.
        new: Generation,
    },
    /// A generation is leaving and nothing takes its place: its pool is configured no more.
    ClosePool {
        /// Its number.
        generation: Generation,
    },
    /// What the front has to know of a generation's PHP to answer in its stead.
    SetPhpInfo {
        /// The generation.
        generation: Generation,
        /// What it has to know.
        info: PhpInfo,
    },
    /// What the processes of a pool with `pm = auto` may use now.
    SetCapacity {
        /// Its generation.
        generation: Generation,
        /// Thousandths of a processor.
        cores: u32,
        /// Workers there is memory for; nothing: more than there may be anyway.
        workers: Option<u32>,
    },
    /// A worker has grown, and memory is short: another is to take its place.
    ReplaceWorker {
        /// Its generation.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
    },
    /// Nothing is left of a generation.
    ForgetPool {
        /// Its number.
        generation: Generation,
    },
    /// Where the lines of the access log go from now on. Descriptor: the file.
    SetAccessLog,
    /// Where the lines of the doors go from now on that log to this path. Descriptor: the file.
    SetPoolAccessLog {
        /// The path, as the pools' settings have it.
        path: PathBuf,
    },
    /// Where messages go from now on. Descriptor: the file that takes the place of standard error.
    SetErrorLog,
    /// What handshakes of TLS are held with from now on. Descriptor: a file with it as JSON, which
    /// holds private keys.
    SetCertificates,
    /// What authorities are to find that look whether a host is ours, instead of what was told
    /// before; answered by [`FromFront::AcmeProofsSet`].
    SetAcmeProofs {
        /// All of it.
        proofs: Vec<acme::Proof>,
        /// Number of this order, for the report.
        mark: u64,
    },
    /// Tell how page cache and servers behind are doing; answered by [`FromFront::StatsWritten`].
    /// Descriptor: an anonymous file, whose contents are replaced by [`admin::FrontFigures`] as JSON.
    ReportStats,
    /// What becomes of kept pages; answered by [`FromFront::Purged`].
    Purge {
        /// What.
        order: purge::Order,
        /// Number of this order, for the report.
        mark: u64,
    },
    /// What a [`FromFront::PagesDropped`] told of is gone in all other fronts, too.
    ConfirmPurge {
        /// The number of that report.
        mark: u64,
    },
    /// Cookies that a site sets, beside those that are known already.
    AddCookieNames {
        /// The site's first host.
        site: String,
        /// Their names; none: more than are remembered.
        names: Option<Vec<String>>,
    },
    /// Everything has been said: accept clients.
    Begin,
    /// Sites, hosts and limits to use from now on; answered by [`FromFront::Reconfigured`].
    /// Descriptors: a file with the configuration as JSON, then the access log if that is a file.
    Reconfigure,
    /// A worker sits in a seat and may be offered requests. Descriptor: its pidfd. It is offered none
    /// as long as the pool, all its generations together, has `max_children` open seats: an idle
    /// worker of an older generation or one that is worn has to leave first.
    OpenSeat {
        /// Its generation of the pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
        /// Its process id, for messages.
        pid: i32,
    },
    /// Report [`FromFront::Settled`] when every order before this one has had its effect.
    Settle {
        /// Number of this order, for the report.
        mark: u64,
    },
    /// Accept no more clients, finish what runs, then report [`FromFront::Drained`] and end.
    Drain,
    /// Another front accepts the clients from now on. As [`ToFront::Drain`], but a connection that
    /// is kept is closed after its next answer instead of at once, and idle workers are given up as
    /// soon as nothing needs them.
    HandOver,
}

/// Who comes to a listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clients {
    /// Clients of the sites, over HTTP.
    Http,
    /// Clients of the sites, over TLS.
    Https,
    /// Whoever looks after the server, over HTTP: metrics and status are answered, and no site.
    Admin,
    /// Web servers, over FastCGI. Which pool they mean says the configuration.
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
    /// A worker must be ended: its script outlived `request_terminate_timeout`, or it broke the
    /// rules of the seat link.
    WorkerFailed {
        /// Its generation of the pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
        /// Why, for the log.
        why: String,
        /// What it ran for too long, if that is why.
        overrun: Option<Overrun>,
        /// It broke the rules of the seat link: others may have to suffer from what it wrote.
        #[serde(default)]
        broke_rules: bool,
    },
    /// A worker died while it ran a script: what the supervisor cannot know by itself.
    ScriptDied {
        /// Its generation of the pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
        /// The script it ran.
        script: String,
    },
    /// How many workers a pool needs now that may grow. Said at once when it needs more than it
    /// has, at most once a second when it needs fewer; nothing is said while the last word holds.
    WorkersNeeded {
        /// Its generation of the pool.
        generation: Generation,
        /// How many, those included that it has.
        workers: u32,
    },
    /// A seat's worker has had nothing to do for long and gets no further request: it is to end.
    SeatRetired {
        /// Its generation of the pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
    },
    /// A worker has served about as much as it may, or has grown as large as it may: another is to
    /// take its place. It goes on serving until then, as far as it may.
    SeatWorn {
        /// Its generation of the pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
        /// Why.
        why: Wear,
    },
    /// A generation could not be opened a while ago, for lack of descriptors or memory: it and its
    /// workers are to be told of once more.
    OpenFailed {
        /// Its number.
        generation: Generation,
    },
    /// The OPcache of a generation is full, its workers say. Said again now and then.
    OpcacheFilled {
        /// Its number.
        generation: Generation,
    },
    /// A script has run for longer than `request_slowlog_timeout`. Said once for each run.
    SlowScriptFound {
        /// Its generation of the pool.
        generation: Generation,
        /// The worker.
        worker: WorkerId,
        /// Which request of that worker, from 1; it may serve another by now.
        request: u64,
        /// What has run for how long.
        overrun: Overrun,
        /// The request's id in the logs; empty if it has none.
        #[serde(default)]
        id: String,
    },
    /// What became of a [`ToFront::Reconfigure`].
    Reconfigured {
        /// Why everything is as it was; nothing: the new configuration is used.
        refused: Option<String>,
    },
    /// Every order before a [`ToFront::Settle`] has had its effect.
    Settled {
        /// The number of that order.
        mark: u64,
    },
    /// What a [`ToFront::SetAcmeProofs`] told is shown to whoever asks for it.
    AcmeProofsSet {
        /// The number of that order.
        mark: u64,
    },
    /// The answer to [`ToFront::ReportStats`], in any case.
    StatsWritten,
    /// What came of a [`ToFront::Purge`].
    Purged {
        /// The number of the order.
        mark: u64,
        /// What is gone, each in words, or one sentence that says why nothing is.
        outcome: Result<Vec<String>, String>,
    },
    /// Pages have been dropped, and others may have them, too; answered by
    /// [`ToFront::ConfirmPurge`].
    PagesDropped {
        /// Which.
        dropped: Vec<purge::Dropped>,
        /// Number of this report, for the answer.
        mark: u64,
    },
    /// A site has set cookies that were not known before.
    CookiesSeen {
        /// The site's first host.
        site: String,
        /// Their names; none: more than are remembered.
        names: Option<Vec<String>>,
    },
    /// Somebody asks for metrics: the pools' memory is to be measured and shown on their
    /// scoreboards.
    MetricsRequested,
    /// Nothing is in hand any more.
    Drained,
}

impl FromFront {
    /// The generation of a pool that it is about, if it is about one.
    pub fn generation(&self) -> Option<Generation> {
        match self {
            FromFront::WorkerFailed { generation, .. }
            | FromFront::ScriptDied { generation, .. }
            | FromFront::WorkersNeeded { generation, .. }
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
            | FromFront::MetricsRequested
            | FromFront::Drained => None,
        }
    }
}

/// A script that runs for longer than it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrun {
    /// For how long it has run.
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
    /// Its private memory has grown, and there is little left.
    Grown,
}
