//! One thread of the generator: what its requests share, and how it reports every second.

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

/// How often a thread looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Most cookies of a user.
const MAX_COOKIES: usize = 200;

/// The place of measured requests in a pair of tallies, and that of the warm-up's.
pub const MEASURED: usize = 0;
/// See [`MEASURED`].
pub const WARM_UP: usize = 1;

/// What threads share.
#[derive(Debug)]
pub struct RunState {
    /// What is to be done.
    pub plan: Arc<Plan>,
    /// When it begins ([`clock::now`]).
    pub start: u64,
    /// Whether it has to end now.
    pub stop: Arc<AtomicBool>,
    /// How many requests may still be sent.
    pub quota: AtomicU64,
}

/// What a thread counted up to the end of a second.
#[derive(Debug)]
pub struct Interval {
    /// Which second since the start; the last one may be shorter.
    pub second: u64,
    /// Measured and warm-up.
    pub tallies: [Tally; 2],
    /// Requests on their way.
    pub in_flight: u64,
    /// Most of them at once.
    pub most_in_flight: u64,
    /// Requests that wait for a connection.
    pub waiting: u64,
    /// Connections that are open.
    pub connections: u64,
}

/// What a thread says.
#[derive(Debug)]
pub enum ThreadReport {
    /// A second is over.
    Second(Box<Interval>),
    /// All is over.
    Over {
        /// Processor time in seconds.
        cpu: f64,
        /// Time in which it could have run and got no processor, in seconds, where that is known.
        wait: Option<f64>,
        /// When the last request ended ([`clock::now`]); 0 if none did.
        last_end: u64,
        /// How long users were there.
        presence: Presence,
    },
}

/// A request to be sent.
#[derive(Debug)]
pub struct ScheduledRequest {
    /// When it is due ([`clock::now`]).
    pub due: u64,
    /// Which of the plan's requests; with `own`: whose endpoint and row it has.
    pub row: usize,
    /// What is options instead.
    pub own: Option<Rc<RequestSpec>>,
    /// Whether it had to wait for a connection.
    pub waited: bool,
}

/// A user's cookies.
pub type CookieJar = BTreeMap<String, String>;

/// What a thread's tasks share.
#[derive(Debug)]
pub struct Thread {
    /// What threads share.
    pub shared: Arc<RunState>,
    /// Which of the threads it is.
    pub number: usize,
    /// Chance.
    pub random: RefCell<fastrand::Rng>,
    tallies: RefCell<[Tally; 2]>,
    in_flight: Cell<u64>,
    most_in_flight: Cell<u64>,
    /// Requests that wait for a connection.
    pub waiting: Cell<u64>,
    connections: Rc<Cell<u64>>,
    /// Those of HTTP/2 to each server.
    pools: Vec<Http2Pool>,
    last_end: Cell<u64>,
    /// The second that is to be encoded next.
    second: Cell<u64>,
    presence: Cell<Presence>,
    /// The same moment on both clocks.
    epoch: (Instant, u64),
}

impl Thread {
    /// Of the current runtime.
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

    /// What is to be done.
    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// A moment on tokio's clock.
    pub fn instant(&self, moment: u64) -> Instant {
        self.epoch.0 + Duration::from_nanos(moment.saturating_sub(self.epoch.1))
    }

    /// Whether a request that is due then is sent.
    pub fn is_time(&self, due: u64) -> bool {
        due < self.shared.start.saturating_add(self.plan().duration)
    }

    fn tally(&self, due: u64, count: impl FnOnce(&mut Tally)) {
        let warm = due < self.shared.start.saturating_add(self.plan().warm_up);
        let which = if warm { WARM_UP } else { MEASURED };
        count(&mut self.tallies.borrow_mut()[which]);
    }

    /// A request that was due then is never sent.
    pub fn unsent(&self, due: u64) {
        self.tally(due, |tally| tally.unsent += 1);
    }

    /// Sends a request, and counts what becomes of it.
    pub async fn carry_out(
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
        self.most_in_flight
            .set(self.most_in_flight.get().max(in_flight));
        let (cause, answer) = self.talk(job, sent, connection, jar).await;
        self.in_flight.set(self.in_flight.get() - 1);
        let done = clock::now();
        self.last_end.set(done);
        let end = RequestEnd {
            cause,
            status: answer.as_ref().map(|answer| answer.status),
            has_retry_after: answer.as_ref().is_some_and(|answer| answer.has_retry_after),
            body_bytes: answer.map_or(0, |answer| answer.body_bytes),
            corrected: done.saturating_sub(job.due),
            service: done.saturating_sub(sent),
            row: job.row,
        };
        self.tally(job.due, |tally| tally.ended(&end));
    }

    /// Asks, and asks again where a redirect leads, if that is wanted.
    async fn talk(
        &self,
        job: &ScheduledRequest,
        sent: u64,
        connection: &mut Option<Connection>,
        mut jar: Option<&mut CookieJar>,
    ) -> (Option<Cause>, Option<ResponseSummary>) {
        let plan = self.plan();
        let Some(request) = plan.requests.get(job.row) else {
            return (
                Some(Cause::Fault("a request that is not in the list")),
                None,
            );
        };
        let spec = job.own.as_deref().unwrap_or(&request.spec);
        let deadline = self.instant(sent.saturating_add(plan.timeout));
        let mut path: Option<String> = None;
        for _ in 0..=MAX_REDIRECTS {
            let cookies = jar
                .as_deref()
                .filter(|jar| !jar.is_empty())
                .map(cookie_field);
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
            let attempt = Attempt {
                due: job.due,
                endpoint: request.endpoint,
                deadline,
                repeatable,
            };
            let answer = match self.ask(&attempt, encoded, options, connection).await {
                Ok(answer) => answer,
                Err(cause) => return (Some(cause), None),
            };
            if let Some(jar) = &mut jar {
                keep(jar, &answer.cookies);
            }
            let leads = answer.location.as_deref().map(|to| spec.url.follow(to));
            let here = leads.as_ref().map(Option::is_some);
            if plan.follow
                && let Some(Some(next)) = leads
            {
                path = Some(next);
                continue;
            }
            let cause = plan.expect.judge(answer.status, answer.has_marker, here);
            return (cause, Some(answer));
        }
        (Some(Cause::TooManyRedirects), None)
    }

    /// Sends a request on the connection, or on a new one; on a second one if the server has just
    /// closed the first (RFC 9112, 9.3.1).
    async fn ask(
        &self,
        attempt: &Attempt,
        encoded: &EncodedRequest,
        options: ReadOptions<'_>,
        connection: &mut Option<Connection>,
    ) -> Result<ResponseSummary, Cause> {
        let mut may_repeat = attempt.repeatable;
        loop {
            if connection.as_ref().is_none_or(Connection::is_gone) {
                *connection = None;
                *connection = Some(self.connect(attempt).await?);
            }
            let Some(open) = connection else {
                return Err(Cause::Fault("no connection"));
            };
            let answer = open.ask(encoded, options, attempt.deadline).await;
            if !(self.plan().keep_alive && open.is_reusable(&answer)) {
                *connection = None;
            }
            match answer {
                Ok(answer) => return Ok(answer),
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
            let place = pools.place(*streams, deadline, connect).await?;
            return Ok(Connection::Shared(place));
        }
        let opened = tokio::time::timeout_at(deadline, self.open(attempt)).await;
        let (stream, _, counted) = opened.map_err(|_| Cause::ConnectTimedOut)??;
        let single = SerialConnection::new(stream, protocol, deadline, counted);
        Ok(Connection::SerialConnection(single))
    }

    /// Connects, and notes how long that took.
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

    /// Reports every second until all is to stop.
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

    /// Says what was counted since the last time: in the next second, of which there may be less, or
    /// up to a look more, at the end.
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
        // Who does not listen any more needs nothing.
        let _ = to.send(ThreadReport::Second(Box::new(interval)));
    }

    /// A user was there for so many nanoseconds of the measured time.
    pub fn was_present(&self, nanos: u64) {
        let mut presence = self.presence.get();
        presence.add(nanos);
        self.presence.set(presence);
    }

    /// How long users were there.
    pub fn presence(&self) -> Presence {
        self.presence.get()
    }

    /// When the last request ended.
    pub fn last_end(&self) -> u64 {
        self.last_end.get()
    }
}

/// What a request's attempts share.
struct Attempt {
    due: u64,
    endpoint: usize,
    deadline: Instant,
    /// Whether it may be sent twice.
    repeatable: bool,
}

/// How a request is encoded.
///
/// # Errors
/// Where it cannot be encoded in the plan's protocol.
pub fn render(
    plan: &Plan,
    spec: &RequestSpec,
    path: Option<&str>,
    cookies: Option<&str>,
) -> Result<EncodedRequest, String> {
    let keep = plan.keep_alive;
    match &plan.protocol {
        Protocol::Fastcgi { root } => spec
            .fastcgi(root, path, cookies, keep)
            .map(EncodedRequest::Bytes),
        Protocol::Http1 => Ok(EncodedRequest::Bytes(spec.http1(path, cookies, keep))),
        Protocol::Http2 { .. } => spec.http2(path, cookies),
    }
}

fn cookie_field(jar: &CookieJar) -> String {
    let pairs: Vec<String> = jar
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
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
