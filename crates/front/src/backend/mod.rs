//! Who runs a script: a worker of a pool of ours, or a foreign FastCGI server. Both speak FastCGI
//! records, so the rest of the front does not care.

pub(crate) mod accounting;
pub(crate) mod attempt;
pub(crate) mod encoder;
pub(crate) mod error;
pub(crate) mod fastcgi_upstream;
pub(crate) mod progress;
pub(crate) mod run;
pub(crate) mod script_headers;
pub(crate) mod timeouts;
pub(crate) mod upstream_sockets;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_scoreboard::RequestOutcome;
use maitred_seat::Spent;

use crate::backend::error::Failure;
use crate::backend::fastcgi_upstream::Foreign;
use crate::backend::progress::Sent;
use crate::http::body::Body;
use crate::http::deadline::{self, Fields};
use crate::logging::log_limit::ScriptLog;
use crate::pool::exchange::{Exchange, ExchangeEvent};
use crate::pool::overrun::watch_left;

/// Bytes of a large body that are on their way to the script at once.
const PIECE_BYTES: usize = 32 * 1024;

/// Bytes of one answer of a foreign server that are kept for a slow client.
const UPSTREAM_SPOOL_BYTES: u64 = 1 << 30;

/// What one request is allowed.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long it may wait for a worker.
    pub queue_timeout: Duration,
    /// How long its client wants the answer, if it says so.
    pub budget: Option<Duration>,
    /// How long its script may run; none: for ever.
    pub terminate_timeout: Option<Duration>,
    /// How long its script may run before it counts as slow; none: for ever.
    pub slow_timeout: Option<Duration>,
    /// Bytes of its answer that are kept for a slow client.
    pub spool: u64,
    /// Its answer says where its time went.
    pub tells_timing: bool,
}

/// Where a site's scripts run.
#[derive(Debug, Clone)]
pub enum Backend {
    /// In a pool of ours.
    Pool(Arc<crate::pool::Pool>),
    /// In a foreign FastCGI server, with what it may have logged.
    Upstream(maitred_config::Upstream, ScriptLog),
}

impl Limits {
    /// How long the request waits for a worker. Half of the time that its client gives it is its
    /// script's.
    pub fn patience(&self) -> Duration {
        let own = self.budget.map_or(Duration::MAX, |budget| budget / 2);
        own.min(self.queue_timeout)
    }

    /// Its client does not want the answer any more.
    pub fn are_over(&self) -> bool {
        self.budget.is_some_and(|budget| budget.is_zero())
    }

    /// Why there is no answer if it waits in vain; `or`: if that is not for its client's deadline.
    pub fn failure(&self, or: Failure) -> Failure {
        match self.budget {
            Some(budget) if budget / 2 < self.queue_timeout => Failure::Deadline,
            _ => or,
        }
    }

    /// What it is to the request that its pool does not take it, or does not keep it.
    pub fn refusal(&self, why: RequestOutcome) -> Failure {
        match why {
            RequestOutcome::QueueFull => Failure::QueueFull,
            RequestOutcome::NoPool => Failure::NoPool,
            RequestOutcome::Shed => Failure::Passed,
            _ => self.failure(Failure::Hopeless),
        }
    }
}

impl fmt::Display for Backend {
    /// As log lines name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Pool(pool) => write!(f, "pool {}", pool.name),
            Backend::Upstream(upstream, _) => {
                write!(
                    f,
                    "upstream {}",
                    crate::backend::fastcgi_upstream::name(upstream)
                )
            }
        }
    }
}

impl Backend {
    /// What a request is allowed that begins now and has this header.
    pub fn limits(&self, fields: &dyn Fields) -> Limits {
        let Backend::Pool(pool) = self else {
            return Limits {
                queue_timeout: Duration::MAX,
                budget: None,
                terminate_timeout: None,
                slow_timeout: None,
                spool: UPSTREAM_SPOOL_BYTES,
                tells_timing: false,
            };
        };
        let settings = pool.settings();
        let unless_zero = |timeout: Duration| Some(timeout).filter(|timeout| !timeout.is_zero());
        let header = settings.request_deadline_header.as_deref();
        let budget = header.and_then(|name| deadline::budget(&fields.field(name)?));
        Limits {
            queue_timeout: settings.request_queue_timeout,
            budget,
            terminate_timeout: unless_zero(settings.request_terminate_timeout),
            slow_timeout: unless_zero(settings.request_slowlog_timeout),
            spool: settings.spool_limit,
            tells_timing: settings.server_timing,
        }
    }

    /// A request got no worker; `words` say which and why, if somebody wants to know.
    pub fn refused(&self, failure: &Failure, words: impl FnOnce() -> String) {
        let why = match failure {
            Failure::QueueFull => RequestOutcome::QueueFull,
            Failure::NoPool => RequestOutcome::NoPool,
            Failure::Hopeless => RequestOutcome::WaitTooLong,
            Failure::Passed => RequestOutcome::Shed,
            Failure::Deadline => RequestOutcome::Deadline,
            _ => RequestOutcome::QueueTimeout,
        };
        if let Backend::Pool(pool) = self {
            pool.saturation.rejected(why, words);
        }
    }

    /// Logs a line about one of its requests, or what a script says, unless those are too many.
    pub fn log(&self, line: &dyn fmt::Display) {
        let line = line.to_string();
        if self.may_log(line.len()) {
            tracing::error!("{self}: {line}");
        }
    }

    /// Whether a line of this many bytes about its requests may be logged.
    pub fn may_log(&self, bytes: usize) -> bool {
        let log = match self {
            Backend::Pool(pool) => &pool.saturation.log,
            Backend::Upstream(_, log) => log,
        };
        let may = log.admits(self, bytes);
        // Of a pool, its watch reports it.
        if may
            && let Backend::Upstream(..) = self
            && let Some(told) = log.due()
        {
            tracing::warn!("{self}: {told}");
        }
        may
    }

    /// How long a request takes that comes again to where this one was refused after so long, as far
    /// as that can be known.
    pub fn takes(&self, failure: &Failure, sent: &Sent) -> Option<Duration> {
        let in_vain = matches!(failure, Failure::QueueTimeout) && !sent.held_back;
        match self {
            Backend::Pool(pool) => pool.response_estimate(in_vain),
            Backend::Upstream(..) => None,
        }
    }
}

/// A request on its way to a script.
pub enum Source {
    /// Through a pool's queue. Dropping it means that nobody wants the answer.
    Pool(Arc<Exchange>),
    /// To a foreign server.
    Foreign(Foreign),
}

impl Source {
    /// Whether it waits until others have ended that ask for the same.
    pub fn is_held_back(&self) -> bool {
        match self {
            Source::Pool(exchange) => exchange.pool.has_held_back(exchange),
            Source::Foreign(_) => false,
        }
    }

    /// What happens next.
    pub async fn event(&mut self) -> ExchangeEvent {
        poll_fn(|cx| match self {
            Source::Pool(exchange) => exchange.poll_event(cx),
            Source::Foreign(foreign) => foreign.poll_event(cx),
        })
        .await
    }

    fn feed(&mut self, bytes: &[u8]) -> usize {
        match self {
            Source::Pool(exchange) => exchange.feed(bytes),
            Source::Foreign(foreign) => foreign.feed(bytes),
        }
    }

    /// When a worker was last given the request; nothing of a foreign server.
    pub fn assigned_at(&self) -> Option<Instant> {
        match self {
            Source::Pool(exchange) => exchange.assigned_at(),
            Source::Foreign(_) => None,
        }
    }

    /// When the script began, at the earliest: `assignment`, or later if it waited behind another in
    /// its seat. Nothing when it is over.
    pub fn began(&self, assignment: Instant) -> Option<Instant> {
        match self {
            Source::Pool(exchange) => exchange.began(),
            Source::Foreign(_) => Some(assignment),
        }
    }

    /// The answer is complete; the script may still run.
    pub fn detach(&mut self) {
        if let Source::Pool(exchange) = self {
            exchange.detach();
        }
    }

    /// Has the worker ended that runs the script for longer than `request_terminate_timeout`.
    pub fn end_overrun(&self) {
        if let Source::Pool(exchange) = self {
            exchange.end_overrun();
        }
    }

    /// Has the worker ended that breaks the rules of the seat link, in words.
    pub fn broke_rules(&self, how: &str) {
        if let Source::Pool(exchange) = self {
            exchange.report_breach(how);
        }
    }

    /// Tells, once, that the script is slow.
    pub fn report_slow(&self) {
        if let Source::Pool(exchange) = self {
            exchange.report_slow();
        }
    }

    /// What the request has cost until its answer was complete, if its worker says so.
    pub fn spent(&self) -> Option<Spent> {
        match self {
            Source::Pool(exchange) => exchange.spent(),
            Source::Foreign(_) => None,
        }
    }

    /// The exchange of a script that goes on though its answer is complete.
    pub fn going_on(&self) -> Option<Arc<Exchange>> {
        match self {
            Source::Pool(exchange) if exchange.goes_on() => Some(exchange.clone()),
            Source::Pool(_) | Source::Foreign(_) => None,
        }
    }

    /// How long the script took, by the word of its worker.
    pub fn script_time(&self) -> Option<Duration> {
        match self {
            Source::Pool(exchange) => {
                let took = Duration::from_micros(exchange.script_micros().into());
                Some(took).filter(|took| !took.is_zero())
            }
            Source::Foreign(_) => None,
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Source::Pool(exchange) = self {
            exchange.leave();
            watch_left(exchange.clone());
        }
    }
}

/// Sends a large body after the head, as the script takes it.
pub struct Feeder<'a> {
    body: &'a Body,
    request_id: u16,
    offset: u64,
    records: Vec<u8>,
    fed: usize,
    over: bool,
}

impl<'a> Feeder<'a> {
    /// A feeder at the start of the body of request `request_id`. A body in memory has gone with the
    /// head.
    pub fn new(body: &'a Body, request_id: u16) -> Feeder<'a> {
        let over = matches!(body, Body::Memory(_));
        Feeder {
            body,
            request_id,
            offset: 0,
            records: Vec::new(),
            fed: 0,
            over,
        }
    }

    /// Begins anew: another worker has the request.
    pub fn restart(&mut self) {
        *self = Feeder::new(self.body, self.request_id);
    }

    /// Sends what finds room.
    ///
    /// # Errors
    /// When the body cannot be read back.
    pub async fn feed(&mut self, source: &mut Source) -> std::io::Result<()> {
        loop {
            if self.fed == self.records.len() {
                if self.over {
                    source.feed(&[]);
                    return Ok(());
                }
                self.next_records().await?;
            }
            let count = source.feed(&self.records[self.fed..]);
            self.fed += count;
            if self.fed < self.records.len() {
                return Ok(());
            }
        }
    }

    async fn next_records(&mut self) -> std::io::Result<()> {
        self.records.clear();
        self.fed = 0;
        if self.offset < self.body.len() {
            let piece = self.body.piece(self.offset, PIECE_BYTES).await?;
            self.offset += piece.len() as u64;
            maitred_fastcgi::write_stdin(&mut self.records, self.request_id, &piece);
        }
        if self.offset == self.body.len() {
            maitred_fastcgi::write_stdin_end(&mut self.records, self.request_id);
            self.over = true;
        }
        Ok(())
    }
}
