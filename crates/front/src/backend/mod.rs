//! The backends that run scripts: the workers of a pool, or an upstream FastCGI server. Both speak
//! FastCGI, so the layers above need not distinguish them.

pub(crate) mod accounting;
pub(crate) mod attempt;
pub(crate) mod encoder;
pub(crate) mod error;
pub(crate) mod fastcgi_upstream;
pub(crate) mod lookups;
pub(crate) mod progress;
pub(crate) mod run;
pub(crate) mod script_headers;
pub(crate) mod script_timeouts;
pub(crate) mod upstream_sockets;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_config::Development;
use maitred_scoreboard::{Counter, RequestOutcome};
use maitred_seat::Spent;

use crate::backend::fastcgi_upstream::{ForeignRequest, name};
use crate::backend::progress::ScriptProgress;
use crate::http::body::Body;
use crate::http::deadline::{self, Fields};
use crate::logging::log_limit::ScriptLog;
use crate::logging::script_messages::printable;
use crate::pool::Pool;
use crate::pool::exchange::{Exchange, ExchangeEvent};
use crate::pool::overrun::watch_left;

/// Bytes of a large body that are sent to the script at once.
const PIECE_BYTES: usize = 32 * 1024;

/// Bytes of one response of a foreign server that are spooled for a slow client.
const UPSTREAM_SPOOL_BYTES: u64 = 1 << 30;

/// Timeouts and other limits of one request.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    /// `request_queue_timeout`.
    pub queue_timeout: Duration,
    /// The remaining time until the client's own deadline, if the request has one.
    pub budget: Option<Duration>,
    /// `request_terminate_timeout`.
    pub terminate_timeout: Option<Duration>,
    /// `request_slowlog_timeout`.
    pub slow_timeout: Option<Duration>,
    /// Maximum bytes of its response that are spooled for a slow client.
    pub spool: u64,
    /// `server_timing`.
    pub sends_timing: bool,
}

/// The backend of a site's scripts.
#[derive(Debug, Clone)]
pub enum Backend {
    /// A pool of this server.
    Pool(Arc<Pool>),
    /// An upstream FastCGI server, and the limit of its scripts' log lines.
    Upstream(maitred_config::Upstream, ScriptLog),
}

impl RequestLimits {
    /// The longest time that the request waits for a worker. With a client's deadline, half of the
    /// remaining time is reserved for the script.
    pub fn max_wait(&self) -> Duration {
        let own = self.budget.map_or(Duration::MAX, |budget| budget / 2);
        own.min(self.queue_timeout)
    }

    /// Whether the client's deadline has passed.
    pub fn has_expired(&self) -> bool {
        self.budget.is_some_and(|budget| budget.is_zero())
    }

    /// Returns `outcome`, or [`RequestOutcome::Deadline`] if the client's deadline has limited the
    /// wait.
    pub fn outcome(&self, outcome: RequestOutcome) -> RequestOutcome {
        let is_wait = matches!(outcome, RequestOutcome::QueueTimeout | RequestOutcome::WaitTooLong);
        if is_wait && self.max_wait() < self.queue_timeout {
            RequestOutcome::Deadline
        } else {
            outcome
        }
    }
}

impl fmt::Display for Backend {
    /// Its name in log lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Pool(pool) => write!(f, "pool {}", pool.name),
            Backend::Upstream(upstream, _) => write!(f, "upstream {}", name(upstream)),
        }
    }
}

impl Backend {
    /// The limits of a request that starts now, from its headers.
    pub fn limits(&self, fields: &dyn Fields) -> RequestLimits {
        let Backend::Pool(pool) = self else {
            return RequestLimits {
                queue_timeout: Duration::MAX,
                budget: None,
                terminate_timeout: None,
                slow_timeout: None,
                spool: UPSTREAM_SPOOL_BYTES,
                sends_timing: false,
            };
        };
        let settings = pool.settings();
        let unless_zero = |timeout: Duration| Some(timeout).filter(|timeout| !timeout.is_zero());
        let header = settings.request_deadline_header.as_deref();
        let budget = header.and_then(|name| deadline::budget(&fields.field(name)?));
        RequestLimits {
            queue_timeout: settings.request_queue_timeout,
            budget,
            terminate_timeout: unless_zero(settings.request_terminate_timeout),
            slow_timeout: unless_zero(settings.request_slowlog_timeout),
            spool: settings.spool_limit,
            sends_timing: settings.server_timing,
        }
    }

    /// How messages of its scripts are shown, in a development server.
    pub fn development(&self) -> Option<Development> {
        match self {
            Backend::Pool(pool) => pool.settings().development,
            Backend::Upstream(..) => None,
        }
    }

    /// Records a rejected request; `line` is its log line.
    pub fn note_rejection(&self, outcome: RequestOutcome, line: impl FnOnce() -> String) {
        match self {
            Backend::Pool(pool) => pool.saturation.rejected(outcome, line),
            Backend::Upstream(..) => self.log(&line()),
        }
    }

    /// Logs an error of a request to this backend, within the limit of log lines.
    pub fn log(&self, line: &dyn fmt::Display) {
        // The parameters that a web server in front sends may have line ends and escapes in them.
        let line = printable(&line.to_string());
        if self.may_log(line.len()) {
            tracing::error!("{self}: {line}");
        }
    }

    /// Counts an event of a pool.
    pub fn count(&self, counter: Counter) {
        if let Backend::Pool(pool) = self
            && let Some(metrics) = pool.metrics()
        {
            metrics.add(counter);
        }
    }

    /// Whether a line of this many bytes about its requests may be logged.
    pub fn may_log(&self, bytes: usize) -> bool {
        let log = match self {
            Backend::Pool(pool) => &pool.saturation.log,
            Backend::Upstream(_, log) => log,
        };
        let may = log.admits(self, bytes);
        // For a pool, its saturation log reports the dropped lines.
        if may
            && let Backend::Upstream(..) = self
            && let Some(dropped) = log.due()
        {
            tracing::warn!("{self}: {dropped}");
        }
        may
    }

    /// Estimates the `Retry-After` header of a rejected request: the time until a similar request
    /// would get a response; none: unknown.
    pub fn response_estimate(
        &self,
        outcome: RequestOutcome,
        progress: &ScriptProgress,
    ) -> Option<Duration> {
        let has_timed_out = outcome == RequestOutcome::QueueTimeout && !progress.held_back;
        match self {
            Backend::Pool(pool) => pool.response_estimate(has_timed_out),
            Backend::Upstream(..) => None,
        }
    }
}

/// A request that was submitted to a backend.
pub enum Source {
    /// A request in a pool's queue. Dropping it means that the client has left.
    Pool(Arc<Exchange>),
    /// A request to an upstream server.
    Foreign(ForeignRequest),
}

impl Source {
    /// Whether it is held back because requests of its kind hang.
    pub fn is_held_back(&self) -> bool {
        self.exchange().is_some_and(|exchange| exchange.pool.has_held_back(exchange))
    }

    fn exchange(&self) -> Option<&Arc<Exchange>> {
        match self {
            Source::Pool(exchange) => Some(exchange),
            Source::Foreign(_) => None,
        }
    }

    /// The next event.
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

    /// The time when the request was last assigned to a worker; none for an upstream server.
    pub fn assigned_at(&self) -> Option<Instant> {
        self.exchange()?.assigned_at()
    }

    /// The part of its wait in which its worker was starting, if it has waited for that.
    pub fn boot_time(&self) -> Option<Duration> {
        self.exchange()?.boot_time()
    }

    /// The earliest possible start of the script: `assigned`, or later if it waited behind another
    /// in its seat. None when it has ended.
    pub fn began(&self, assigned: Instant) -> Option<Instant> {
        match self {
            Source::Pool(exchange) => exchange.began(),
            Source::Foreign(_) => Some(assigned),
        }
    }

    /// Marks the response as complete; the script may continue.
    pub fn detach(&mut self) {
        if let Source::Pool(exchange) = self {
            exchange.detach();
        }
    }

    /// Kills the worker, because the script exceeded `request_terminate_timeout`. Returns its seat.
    pub fn end_overrun(&self) -> Option<u32> {
        self.exchange()?.end_overrun(true)
    }

    /// Kills the worker for a violation of the seat protocol; `how` is for the log.
    pub fn broke_rules(&self, how: &str) {
        if let Source::Pool(exchange) = self {
            exchange.report_breach(how);
        }
    }

    /// Reports the script as slow, once.
    pub fn report_slow(&self) {
        if let Source::Pool(exchange) = self {
            exchange.report_slow();
        }
    }

    /// The cost of the request up to the complete response, if its worker reports it.
    pub fn spent(&self) -> Option<Spent> {
        self.exchange()?.spent()
    }

    /// The exchange of a script that continues after its complete response.
    pub fn going_on(&self) -> Option<Arc<Exchange>> {
        self.exchange().filter(|exchange| exchange.goes_on()).cloned()
    }

    /// The run time of the script, as reported by its worker.
    pub fn script_time(&self) -> Option<Duration> {
        let micros = self.exchange()?.script_micros();
        (micros > 0).then(|| Duration::from_micros(micros.into()))
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

/// Sends a large request body after the first records, as fast as the script reads it.
pub struct Feeder<'a> {
    body: &'a Body,
    request_id: u16,
    offset: u64,
    records: Vec<u8>,
    fed: usize,
    over: bool,
}

impl<'a> Feeder<'a> {
    /// A feeder at the start of the body of request `request_id`. A body in memory was sent with
    /// the first records.
    pub fn new(body: &'a Body, request_id: u16) -> Feeder<'a> {
        let over = matches!(body, Body::Memory(_));
        Feeder { body, request_id, offset: 0, records: Vec::new(), fed: 0, over }
    }

    /// Starts again from the beginning, for another worker.
    pub fn restart(&mut self) {
        *self = Feeder::new(self.body, self.request_id);
    }

    /// Sends as much as fits.
    ///
    /// # Errors
    /// The body cannot be read back.
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
