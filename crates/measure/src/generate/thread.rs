//! One thread of the generator: the state that its tasks share, and its report every second.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::time::Instant;

use super::closed::Presence;
use super::connection::{Connection, OpenCount};
use super::exchange::{SendError, SerialConnection};
use super::http2::Http2Pool;
use crate::clock::{self, SECOND};
use crate::outcome::Cause;
use crate::plan::{MAX_REDIRECTS, Plan, Protocol};
use crate::request::{EncodedRequest, RequestSpec};
use crate::response::{ReadOptions, ResponseSummary};
use crate::stream::{self, Negotiated, Stream};
use crate::tally::{RequestEnd, Tally};

/// How often a thread checks whether it has to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Most cookies of a user.
const MAX_COOKIES: usize = 200;

/// Index of the measured requests in a pair of tallies, and that of the warm-up's.
pub const MEASURED: usize = 0;
/// See [`MEASURED`].
pub const WARM_UP: usize = 1;

/// The state that threads share.
#[derive(Debug)]
pub struct RunState {
    /// What to send.
    pub plan: Arc<Plan>,
    /// The start ([`clock::now`]).
    pub start: u64,
    /// Set when the run has to end now.
    pub stop: Arc<AtomicBool>,
    /// The number of requests that may still be sent.
    pub quota: AtomicU64,
}

/// A thread's counts for one second.
#[derive(Debug)]
pub struct Interval {
    /// The second since the start; the last interval may be shorter.
    pub second: u64,
    /// Measured and warm-up.
    pub tallies: [Tally; 2],
    /// Requests in flight.
    pub in_flight: u64,
    /// Most of them at once.
    pub most_in_flight: u64,
    /// Requests that wait for a connection.
    pub waiting: u64,
    /// Open connections.
    pub connections: u64,
}

/// A report of a thread.
#[derive(Debug)]
pub enum ThreadReport {
    /// A second is over.
    Second(Box<Interval>),
    /// The thread has ended.
    Over {
        /// Processor time in seconds.
        cpu: f64,
        /// How long it was runnable without a processor, in seconds, where that is known.
        wait: Option<f64>,
        /// When the last request ended ([`clock::now`]); 0 without requests.
        last_end: u64,
        /// How long users were active.
        presence: Presence,
    },
}

/// A request to be sent.
#[derive(Debug)]
pub struct ScheduledRequest {
    /// Its due time ([`clock::now`]).
    pub due: u64,
    /// The index of the plan's request; with `own`, that of its endpoint and of its row in the
    /// tally.
    pub row: usize,
    /// A request that replaces the plan's.
    pub own: Option<Rc<RequestSpec>>,
    /// Whether it had to wait for a connection.
    pub waited: bool,
}

/// A user's cookies.
pub type CookieJar = BTreeMap<String, String>;

/// The state that a thread's tasks share.
#[derive(Debug)]
pub struct Thread {
    /// The state that threads share.
    pub shared: Arc<RunState>,
    /// The index of the thread.
    pub number: usize,
    /// Its random numbers.
    pub random: RefCell<fastrand::Rng>,
    tallies: RefCell<[Tally; 2]>,
    in_flight: Cell<u64>,
    most_in_flight: Cell<u64>,
    /// Requests that wait for a connection.
    pub waiting: Cell<u64>,
    connections: Rc<Cell<u64>>,
    /// HTTP/2 connections to each server.
    pools: Vec<Http2Pool>,
    last_end: Cell<u64>,
    /// The second that is reported next.
    second: Cell<u64>,
    presence: Cell<Presence>,
    /// The same moment on both clocks.
    epoch: (Instant, u64),
}

impl Thread {
    /// For the current runtime.
    pub fn new(shared: Arc<RunState>, number: usize) -> Thread {
        let seed = shared.plan.seed.wrapping_add(number as u64);
        let pools = shared.plan.endpoints.iter().map(|_| Http2Pool::default());
        Thread {
            pools: pools.collect(),
            shared,
            number,
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
            tallies: RefCell::default(),
            in_flight: Cell::new(0),
            most_in_flight: Cell::new(0),
            waiting: Cell::new(0),
            connections: Rc::default(),
            last_end: Cell::new(0),
            second: Cell::new(0),
            presence: Cell::default(),
            epoch: (Instant::now(), clock::now()),
        }
    }

    /// What to send.
    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// A moment on tokio's clock.
    pub fn instant(&self, moment: u64) -> Instant {
        self.epoch.0 + Duration::from_nanos(moment.saturating_sub(self.epoch.1))
    }

    /// Whether a request with this due time is sent.
    pub fn is_time(&self, due: u64) -> bool {
        due < self.shared.start.saturating_add(self.plan().duration)
    }

    fn tally(&self, due: u64, count: impl FnOnce(&mut Tally)) {
        let warm = due < self.shared.start.saturating_add(self.plan().warm_up);
        let which = if warm { WARM_UP } else { MEASURED };
        count(&mut self.tallies.borrow_mut()[which]);
    }

    /// Counts a request that is never sent.
    pub fn unsent(&self, due: u64) {
        self.tally(due, |tally| tally.unsent += 1);
    }

    /// Sends a request, and counts the result.
    pub async fn execute(
        &self,
        job: &ScheduledRequest,
        connection: &mut Option<Connection>,
        jar: Option<&mut CookieJar>,
    ) {
        let sent = clock::now();
        let plan = self.plan();
        let lateness = sent.saturating_sub(job.due);
        self.tally(job.due, |tally| {
            tally.sent(lateness, plan.late_after, job.waited);
        });
        let in_flight = self.in_flight.get() + 1;
        self.in_flight.set(in_flight);
        self.most_in_flight.set(self.most_in_flight.get().max(in_flight));
        let (cause, response) = self.perform(job, sent, connection, jar).await;
        self.in_flight.set(self.in_flight.get() - 1);
        let done = clock::now();
        self.last_end.set(done);
        let end = RequestEnd {
            cause,
            status: response.as_ref().map(|response| response.status),
            has_retry_after: response.as_ref().is_some_and(|response| response.has_retry_after),
            body_bytes: response.map_or(0, |response| response.body_bytes),
            corrected: done.saturating_sub(job.due),
            service: done.saturating_sub(sent),
            row: job.row,
        };
        self.tally(job.due, |tally| tally.ended(&end));
    }

    /// Sends the request, and follows redirects if that is configured.
    async fn perform(
        &self,
        job: &ScheduledRequest,
        sent: u64,
        connection: &mut Option<Connection>,
        mut jar: Option<&mut CookieJar>,
    ) -> (Option<Cause>, Option<ResponseSummary>) {
        let plan = self.plan();
        let Some(request) = plan.requests.get(job.row) else {
            return (Some(Cause::Fault("a request that is not in the list")), None);
        };
        let spec = job.own.as_deref().unwrap_or(&request.spec);
        let deadline = self.instant(sent.saturating_add(plan.timeout));
        let mut path: Option<String> = None;
        for _ in 0..=MAX_REDIRECTS {
            let cookies = jar.as_deref().filter(|jar| !jar.is_empty()).map(cookie_field);
            let rendered;
            let encoded = if job.own.is_none() && path.is_none() && cookies.is_none() {
                &request.encoded
            } else {
                rendered = render(plan, spec, path.as_deref(), cookies.as_deref());
                match &rendered {
                    Ok(encoded) => encoded,
                    Err(_) => {
                        return (Some(Cause::Fault("a request that cannot be encoded")), None);
                    }
                }
            };
            let options = ReadOptions {
                head: spec.method == "HEAD",
                marker: plan.expect.marker.as_ref(),
                cookies: jar.is_some(),
            };
            let repeatable = !matches!(spec.method.as_str(), "POST" | "PATCH");
            let attempt =
                Attempt { due: job.due, endpoint: request.endpoint, deadline, repeatable };
            let response = match self.send(&attempt, encoded, options, connection).await {
                Ok(response) => response,
                Err(cause) => return (Some(cause), None),
            };
            if let Some(jar) = &mut jar {
                keep(jar, &response.cookies);
            }
            let leads = response.location.as_deref().map(|to| spec.url.follow(to));
            let here = leads.as_ref().map(Option::is_some);
            if plan.follow
                && let Some(Some(next)) = leads
            {
                path = Some(next);
                continue;
            }
            let cause = plan.expect.judge(response.status, response.has_marker, here);
            return (cause, Some(response));
        }
        (Some(Cause::TooManyRedirects), None)
    }

    /// Sends a request on the connection, or on a new one. Retries once on a new connection if the
    /// server has just closed the first (RFC 9112, 9.3.1).
    async fn send(
        &self,
        attempt: &Attempt,
        encoded: &EncodedRequest,
        options: ReadOptions<'_>,
        connection: &mut Option<Connection>,
    ) -> Result<ResponseSummary, Cause> {
        let mut may_repeat = attempt.repeatable;
        loop {
            if connection.as_ref().is_none_or(Connection::is_closed) {
                *connection = None;
                *connection = Some(self.connect(attempt).await?);
            }
            let Some(open) = connection else {
                return Err(Cause::Fault("no connection"));
            };
            let response = open.send(encoded, options, attempt.deadline).await;
            if !(self.plan().keep_alive && open.is_reusable(&response)) {
                *connection = None;
            }
            match response {
                Ok(response) => return Ok(response),
                Err(SendError::Stale(_)) if may_repeat => {
                    may_repeat = false;
                    self.tally(attempt.due, |tally| tally.resent += 1);
                }
                Err(SendError::Stale(cause) | SendError::Cause(cause)) => return Err(cause),
            }
        }
    }

    async fn connect(&self, attempt: &Attempt) -> Result<Connection, Cause> {
        let protocol = &self.plan().protocol;
        let deadline = attempt.deadline;
        if let (Protocol::Http2 { streams }, Some(pools)) =
            (protocol, self.pools.get(attempt.endpoint))
        {
            let connect = async || self.open(attempt).await;
            let slot = pools.slot(*streams, deadline, connect).await?;
            return Ok(Connection::Shared(slot));
        }
        let opened = tokio::time::timeout_at(deadline, self.open(attempt)).await;
        let (stream, _, counted) = opened.map_err(|_| Cause::ConnectTimedOut)??;
        let serial = SerialConnection::new(stream, protocol, deadline, counted);
        Ok(Connection::Serial(serial))
    }

    /// Connects, and records how long that took.
    async fn open(&self, attempt: &Attempt) -> Result<(Stream, Negotiated, OpenCount), Cause> {
        let Some(endpoint) = self.plan().endpoints.get(attempt.endpoint) else {
            return Err(Cause::Fault("a server that is not in the list"));
        };
        let began = clock::now();
        let connected = stream::connect(endpoint).await;
        let (stream, negotiated) = connected.map_err(|why| Cause::of_io(&why))?;
        let took = clock::now().saturating_sub(began);
        self.tally(attempt.due, |tally| tally.connects.record(took));
        Ok((stream, negotiated, OpenCount::new(&self.connections)))
    }

    /// Reports every second until the end.
    pub async fn report(&self, to: &Sender<ThreadReport>) {
        loop {
            tokio::time::sleep(LOOK).await;
            if self.shared.stop.load(Ordering::Relaxed) {
                return;
            }
            let passed = clock::now().saturating_sub(self.shared.start) / SECOND;
            while self.second.get() < passed {
                self.flush(to);
            }
        }
    }

    /// Reports the counts since the last report as those of the next second. At the end that may be
    /// less than a second, or more by one check interval.
    pub fn flush(&self, to: &Sender<ThreadReport>) {
        let second = self.second.get();
        self.second.set(second + 1);
        let interval = Interval {
            second,
            tallies: self.tallies.take(),
            in_flight: self.in_flight.get(),
            most_in_flight: self.most_in_flight.replace(self.in_flight.get()),
            waiting: self.waiting.get(),
            connections: self.connections.get(),
        };
        // Fails only if the receiver is gone, and then the report is not needed.
        let _ = to.send(ThreadReport::Second(Box::new(interval)));
    }

    /// Records that a user was active for this many nanoseconds of the measured time.
    pub fn was_present(&self, nanos: u64) {
        let mut presence = self.presence.get();
        presence.add(nanos);
        self.presence.set(presence);
    }

    /// How long users were active.
    pub fn presence(&self) -> Presence {
        self.presence.get()
    }

    /// When the last request ended.
    pub fn last_end(&self) -> u64 {
        self.last_end.get()
    }
}

/// What the attempts of a request share.
struct Attempt {
    due: u64,
    endpoint: usize,
    deadline: Instant,
    /// Whether it may be sent twice.
    repeatable: bool,
}

/// Encodes a request.
///
/// # Errors
/// When the plan's protocol cannot express it.
pub fn render(
    plan: &Plan,
    spec: &RequestSpec,
    path: Option<&str>,
    cookies: Option<&str>,
) -> Result<EncodedRequest, String> {
    let keep = plan.keep_alive;
    match &plan.protocol {
        Protocol::Fastcgi { root } => {
            spec.fastcgi(root, path, cookies, keep).map(EncodedRequest::Bytes)
        }
        Protocol::Http1 => Ok(EncodedRequest::Bytes(spec.http1(path, cookies, keep))),
        Protocol::Http2 { .. } => spec.http2(path, cookies),
    }
}

fn cookie_field(jar: &CookieJar) -> String {
    let pairs: Vec<String> = jar.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("; ")
}

fn keep(jar: &mut CookieJar, cookies: &[String]) {
    for cookie in cookies {
        let Some((name, value)) = cookie.split_once('=') else {
            continue;
        };
        if value.is_empty() {
            jar.remove(name);
        } else if jar.len() < MAX_COOKIES || jar.contains_key(name) {
            jar.insert(name.to_owned(), value.to_owned());
        }
    }
}
