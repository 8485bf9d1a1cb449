//! What the processes of maitred say to each other, one message a frame, over a
//! [`maitred_os::channel::Channel`]. Orders are imperative, reports are in the past tense.
//!
//! The supervisor talks with the front ([`ToFront`], [`FromFront`]) and with each zygote
//! ([`ToZygote`], [`FromZygote`]). Workers say nothing here: they and the front share a seat link.

pub mod acme;
pub mod admin;
pub mod episode;
pub mod exit;
pub mod purge;
pub mod scripts;
pub mod stack;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use maitred_os::channel::{Channel, Received};
use maitred_os::users::Identity;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Number of a seat within its pool, from 0.
pub type Seat = u32;

/// Which of the workers that have sat in a seat over time, from 1. An offer names it, so that a
/// new worker never takes what was meant for its predecessor.
pub type Incarnation = u32;

/// A pool from one reload to the next: its seat link, its zygote and its workers. Every generation of
/// every pool has a number of its own, from 1, that is never used again while the server runs.
pub type Generation = u32;

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
    Manner {
        /// The generation.
        generation: Generation,
        /// What it has to know.
        manner: Manner,
    },
    /// What the processes of a pool with `pm = auto` may use now.
    Room {
        /// Its generation.
        generation: Generation,
        /// Thousandths of a processor.
        cores: u32,
        /// Workers there is memory for; nothing: more than there may be anyway.
        workers: Option<u32>,
    },
    /// Nothing is left of a generation.
    ForgetPool {
        /// Its number.
        generation: Generation,
    },
    /// Where the lines of the access log go from now on. Descriptor: the file.
    AccessLog,
    /// Where the lines of the doors go from now on that log to this path. Descriptor: the file.
    DoorLog {
        /// The path, as the pools' settings have it.
        path: PathBuf,
    },
    /// Where messages go from now on. Descriptor: the file that takes the place of standard error.
    ErrorLog,
    /// What handshakes of TLS are held with from now on. Descriptor: a file with it as JSON, which
    /// holds private keys.
    Certificates,
    /// What authorities are to find that look whether a host is ours, instead of what was told
    /// before; answered by [`FromFront::ProofsTaken`].
    Proofs {
        /// All of it.
        proofs: Vec<acme::Proof>,
        /// Number of this order, for the report.
        mark: u64,
    },
    /// Tell how page cache and servers behind are doing; answered by [`FromFront::Figures`].
    /// Descriptor: an anonymous file, whose contents are replaced by [`admin::FrontFigures`] as JSON.
    Figures,
    /// What becomes of kept pages; answered by [`FromFront::Purged`].
    Purge {
        /// What.
        order: purge::Order,
        /// Number of this order, for the report.
        mark: u64,
    },
    /// What a [`FromFront::Purging`] told of is gone in all other fronts, too.
    PurgedElsewhere {
        /// The number of that report.
        mark: u64,
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
        /// Its seat.
        seat: Seat,
        /// Which worker of that seat.
        incarnation: Incarnation,
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
    EndWorker {
        /// Its generation of the pool.
        generation: Generation,
        /// Its seat.
        seat: Seat,
        /// Which worker of that seat; another one there now is left alone.
        incarnation: Incarnation,
        /// Why, for the log.
        why: String,
        /// What it ran for too long, if that is why.
        overrun: Option<Overrun>,
    },
    /// A worker died while it ran a script: what the supervisor cannot know by itself.
    ScriptDied {
        /// Its generation of the pool.
        generation: Generation,
        /// Its seat.
        seat: Seat,
        /// Which worker of that seat.
        incarnation: Incarnation,
        /// The script it ran.
        script: String,
    },
    /// How many workers a pool needs now that may grow. Said at once when it needs more than it
    /// has, at most once a second when it needs fewer; nothing is said while the last word holds.
    Wanted {
        /// Its generation of the pool.
        generation: Generation,
        /// How many, those included that it has.
        workers: u32,
    },
    /// A seat's worker has had nothing to do for long and gets no further request: it is to end.
    SeatRetired {
        /// Its generation of the pool.
        generation: Generation,
        /// Its seat.
        seat: Seat,
        /// Which worker of that seat; another one there now is left alone.
        incarnation: Incarnation,
    },
    /// A worker has served about as much as it may, or has grown as large as it may: another is to
    /// take its place. It goes on serving until then, as far as it may.
    SeatWorn {
        /// Its generation of the pool.
        generation: Generation,
        /// Its seat.
        seat: Seat,
        /// Which worker of that seat.
        incarnation: Incarnation,
        /// Why.
        why: Wear,
    },
    /// A generation could not be opened a while ago, for lack of descriptors or memory: it and its
    /// workers are to be told of once more.
    NotOpened {
        /// Its number.
        generation: Generation,
    },
    /// A script has run for longer than `request_slowlog_timeout`. Said once for each run.
    SlowScript {
        /// Its generation of the pool.
        generation: Generation,
        /// Its seat.
        seat: Seat,
        /// Which worker of that seat.
        incarnation: Incarnation,
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
    /// What a [`ToFront::Proofs`] told is shown to whoever asks for it.
    ProofsTaken {
        /// The number of that order.
        mark: u64,
    },
    /// The answer to [`ToFront::Figures`], in any case.
    Figures,
    /// What came of a [`ToFront::Purge`].
    Purged {
        /// The number of the order.
        mark: u64,
        /// What is gone, each in words, or one sentence that says why nothing is.
        outcome: Result<Vec<String>, String>,
    },
    /// Pages have been dropped, and others may have them, too; answered by
    /// [`ToFront::PurgedElsewhere`].
    Purging {
        /// Which.
        dropped: Vec<purge::Dropped>,
        /// Number of this report, for the answer.
        mark: u64,
    },
    /// Somebody asks for metrics: the pools' memory is to be measured and shown on their
    /// scoreboards.
    MemoryAsked,
    /// Nothing is in hand any more.
    Drained,
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
}

/// Orders from the supervisor to a zygote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToZygote {
    /// The settings to start PHP with, sent once. Descriptors: the pool's shared memory, then one
    /// event per front thread.
    Configure(Box<ZygoteSettings>),
    /// Fork a worker into a seat. Descriptors, if it is not to print where the zygote prints: what
    /// will be its standard output, then its standard error.
    FillSeat {
        /// The seat.
        seat: Seat,
        /// Which worker of that seat it will be.
        incarnation: Incarnation,
    },
    /// Write down which scripts OPcache holds, most used first; answered by
    /// [`FromZygote::ScriptsListed`], after a second at most. Descriptor: an anonymous file, whose
    /// contents are replaced by a list as [`scripts`] has it.
    ListScripts,
    /// Put the scripts of a list into OPcache, as far as they are there and fit; answered by
    /// [`FromZygote::Warmed`], after ten seconds at most. No worker is forked meanwhile. Descriptor:
    /// a file with the list, which is read from its beginning wherever its position is.
    Warm,
    /// Tell how OPcache is doing; answered by [`FromZygote::CacheFigures`], after a quarter of a
    /// second at most.
    CacheFigures,
    /// Read the stack of the script that a worker runs, and report [`FromZygote::Traced`].
    Trace {
        /// Number of this order, for the report.
        trace: u64,
        /// The worker's seat.
        seat: Seat,
        /// Which worker of that seat.
        incarnation: Incarnation,
        /// Which request of that worker, from 1.
        request: u64,
        /// Frames that are wanted, at most [`stack::STACK_DEPTH_MAX`].
        depth: u32,
    },
}

/// What has to be known of a pool's PHP to answer in its stead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
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
        /// The seat.
        seat: Seat,
        /// Which worker of that seat it is.
        incarnation: Incarnation,
        /// Its process id.
        pid: i32,
        /// How long the fork took.
        #[serde(default)]
        took: Duration,
    },
    /// A worker that was forked says itself that its script has booted, and waits for requests.
    Booted {
        /// Its seat.
        seat: Seat,
        /// Which worker of that seat it is.
        incarnation: Incarnation,
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
        /// The seat that stays empty.
        seat: Seat,
        /// Which worker of that seat it would have been.
        incarnation: Incarnation,
        /// One sentence.
        why: String,
    },
    /// The answer to [`ToZygote::ListScripts`], in any case.
    ScriptsListed {
        /// How many scripts are in the list; none, too, when it could not be made.
        count: u32,
    },
    /// The answer to [`ToZygote::CacheFigures`], in any case.
    CacheFigures {
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
}

/// A message that arrived.
#[derive(Debug)]
pub enum Heard<M> {
    /// A message with its descriptors.
    Message(M, Vec<OwnedFd>),
    /// Nothing is there now.
    Nothing,
    /// The other process has gone.
    Closed,
}

/// Sends one message.
///
/// # Errors
/// As [`Channel::send`]; a message that cannot be written as JSON is `InvalidData`.
pub fn say<M: Serialize>(channel: &Channel, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    channel.send(&serde_json::to_vec(message)?, fds)
}

/// Sends one message, waiting for room: what a zygote says is said once, and must not be lost on a
/// supervisor that is busy. The supervisor never waits for a zygote.
///
/// # Errors
/// As [`Channel::send_waiting`]; a message that cannot be written as JSON is `InvalidData`.
pub fn say_waiting<M: Serialize>(channel: &Channel, message: &M) -> io::Result<()> {
    channel.send_waiting(&serde_json::to_vec(message)?, &[])
}

/// Takes the next message, waiting for it when `wait` is set.
///
/// # Errors
/// As [`Channel::receive`]; bytes that are no message of the expected kind are `InvalidData`.
pub fn hear<M: DeserializeOwned>(channel: &Channel, wait: bool) -> io::Result<Heard<M>> {
    match channel.receive(wait)? {
        Received::Message(bytes, fds) => Ok(Heard::Message(serde_json::from_slice(&bytes)?, fds)),
        Received::Nothing => Ok(Heard::Nothing),
        Received::Closed => Ok(Heard::Closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_heard_as_it_was_said() {
        let (a, b) = Channel::pair().unwrap();
        let said = FromZygote::SeatFilled {
            seat: 3,
            incarnation: 7,
            pid: 4711,
            took: Duration::from_micros(900),
        };
        say(&a, &said, &[]).unwrap();
        match hear::<FromZygote>(&b, true).unwrap() {
            Heard::Message(heard, fds) => {
                assert_eq!(heard, said);
                assert!(fds.is_empty());
            }
            other => panic!("expected a message, got {other:?}"),
        }
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error_and_not_a_panic() {
        let (a, b) = Channel::pair().unwrap();
        a.send(b"{\"FillSeat\":{}}", &[]).unwrap();
        assert!(hear::<ToZygote>(&b, true).is_err());
    }
}
