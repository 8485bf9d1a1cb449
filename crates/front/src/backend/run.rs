//! Runs a script and sends its response: waits for a worker, hands the request over, and passes on
//! the output as fast as it arrives and no faster than the client reads. The form of the response
//! depends on the listener ([`ResponseEncoder`]), and so does the detection of a client that has
//! left ([`Client`]).

use std::io;
use std::time::Instant;

use maitred_fastcgi::{ResponseEvent, ResponseReader};
use maitred_scoreboard::{Counter, RequestOutcome};
use maitred_trace::TraceId;

use crate::backend::encoder::ResponseEncoder;
use crate::backend::error::{Failure, LogSuffix};
use crate::backend::fastcgi_upstream::ForeignRequest;
use crate::backend::progress::ScriptProgress;
use crate::backend::script_timeouts::{ScriptTimeouts, until};
use crate::backend::{Backend, Feeder, RequestLimits, Source};
use crate::http::body::Body;
use crate::http::client::Client;
use crate::http::deadline::Fields;
use crate::http::server_timing;
use crate::http::spool::Spool;
use crate::http::spool_folder::{SpoolFolder, SpoolPlace};
use crate::logging::request_lines::RequestLines;
use crate::logging::script_messages::{printable, records};
use crate::logging::terminal_lines;
use crate::pool::exchange::{ExchangeEvent, QueueRequest};
use crate::pool::queue::Priority;
use crate::pool::{crash_limit, kind, thread_local};

/// Bytes of one response after which other tasks of the thread have their turn. Brotli, the slowest
/// encoder, takes a millisecond for them.
const TURN_BYTES: usize = 64 * 1024;

/// One run of a script.
pub struct Run<'a> {
    /// The backend.
    pub backend: &'a Backend,
    /// The request's method, for log lines.
    pub method: &'a str,
    /// The request's target.
    pub target: &'a str,
    /// Its body.
    pub body: &'a Body,
    /// The script's file, for log lines.
    pub script: &'a str,
    /// The id of the request's FastCGI records.
    pub request_id: u16,
    /// The request's id in the logs; empty if it has none.
    pub id: &'a str,
    /// Its trace, if requests have traces.
    pub trace: Option<TraceId>,
    /// The directory for responses that slow clients have not read.
    pub spool: &'a SpoolFolder,
    /// Its headers, for `request_deadline_header`.
    pub fields: &'a dyn Fields,
    /// Its queue priority.
    pub priority: Priority,
    /// The log lines about it.
    pub lines: RequestLines,
}

impl Run<'_> {
    /// The rejection of the request, if it is certain before the records are encoded.
    pub fn would_be_rejected(&self) -> Option<RequestOutcome> {
        let Backend::Pool(pool) = self.backend else {
            return None;
        };
        if !pool.is_rejecting() {
            return None;
        }
        let limits = self.backend.limits(self.fields);
        if limits.has_expired() {
            return Some(RequestOutcome::Deadline);
        }
        let outcome = pool.would_reject(self.queue_request(&limits))?;
        Some(limits.outcome(outcome))
    }

    fn queue_request(&self, limits: &RequestLimits) -> QueueRequest {
        QueueRequest {
            priority: self.priority,
            max_wait: limits.max_wait(),
            kind: kind::of(self.script, self.target),
            route: crash_limit::route_of(self.script, self.target),
        }
    }

    /// Runs the script and sends its response. `thread` is the front thread.
    ///
    /// # Errors
    /// There is no complete response; `progress` says what the client has got of it.
    pub async fn run<C: Client>(
        &self,
        client: &mut C,
        encoder: &mut impl ResponseEncoder<Head = C::Head>,
        thread: u32,
        request: Vec<u8>,
        progress: &mut ScriptProgress,
    ) -> Result<(), Failure> {
        let limits = self.backend.limits(self.fields);
        if limits.has_expired() {
            return Err(RequestOutcome::Deadline.into());
        }
        let mut source = match self.backend {
            Backend::Pool(pool) => {
                let submitted = pool.submit(thread, request, self.queue_request(&limits));
                Source::Pool(submitted.map_err(|outcome| limits.outcome(outcome))?)
            }
            Backend::Upstream(upstream, _) => {
                Source::Foreign(Box::pin(ForeignRequest::connect(upstream, request)).await?)
            }
        };
        let waited = self.wait_in_queue(client, &mut source, &limits, progress).await;
        progress.held_back = waited.is_err() && source.is_held_back();
        waited?;
        let assigned = source.assigned_at().unwrap_or(progress.began);
        let result = self.relay(client, encoder, &mut source, &limits, progress).await;
        progress.boot = source.boot_time();
        if progress.spent.is_none() {
            // Without the time in which the client read the rest.
            let ended = progress.script_over.unwrap_or_else(Instant::now);
            let script = source.script_time().unwrap_or(ended - assigned);
            progress.split(ended, script);
        }
        result
    }

    async fn wait_in_queue(
        &self,
        client: &mut impl Client,
        source: &mut Source,
        limits: &RequestLimits,
        progress: &ScriptProgress,
    ) -> Result<(), RequestOutcome> {
        let deadline = progress.began.checked_add(limits.max_wait());
        // The assignment of a worker comes before any other event.
        tokio::select! {
            biased;
            event = source.event() => match event {
                ExchangeEvent::Ended(Err(outcome)) => Err(limits.outcome(outcome)),
                ExchangeEvent::Ended(Ok(())) => Err(RequestOutcome::WorkerDied),
                _ => Ok(()),
            },
            () = client.gone() => Err(RequestOutcome::LeftQueue),
            () = until(deadline) => Err(limits.outcome(RequestOutcome::QueueTimeout)),
        }
    }

    /// Sends the request to the script, and its output to the client.
    async fn relay<C: Client>(
        &self,
        client: &mut C,
        encoder: &mut impl ResponseEncoder<Head = C::Head>,
        source: &mut Source,
        limits: &RequestLimits,
        progress: &mut ScriptProgress,
    ) -> Result<(), Failure> {
        let assigned = source.assigned_at().unwrap_or(progress.began);
        let place = SpoolPlace { folder: self.spool, owner: self.backend };
        let spool = Spool::new(place, client.spool_bytes(), limits.spool);
        let mut relay = Relay::new(self, encoder, limits, spool, progress);
        let mut feeder = Feeder::new(self.body, self.request_id);
        feeder.feed(source).await.map_err(Failure::body_lost)?;
        let mut timeouts = ScriptTimeouts::new(assigned, limits);
        while !relay.is_over() {
            relay.send(client).await?;
            if relay.is_over() {
                break;
            }
            // The timer below gets no turn while a script writes, or a client reads, without a
            // pause.
            if !relay.script_is_over() {
                timeouts.check(source)?;
            }
            let wants_more = relay.wants_more();
            let has_unsent = relay.has_unsent();
            tokio::select! {
                biased;
                event = source.event(), if wants_more => match event {
                    ExchangeEvent::Response(bytes) => {
                        relay.take_in_turns(&bytes, source, client).await?;
                    }
                    ExchangeEvent::Room => feeder.feed(source).await.map_err(Failure::body_lost)?,
                    ExchangeEvent::Ended(result) => {
                        relay.ended(result.map_err(|outcome| limits.outcome(outcome)), source)?;
                    }
                    ExchangeEvent::Assigned => {
                        feeder.restart();
                        feeder.feed(source).await.map_err(Failure::body_lost)?;
                    }
                },
                ready = sendable(client, has_unsent) => {
                    if ready.is_err() {
                        return Err(RequestOutcome::ClientLeft.into());
                    }
                }
                () = relay.spool.space(), if !wants_more && !relay.over => {
                    // It may be ready again at once.
                    tokio::task::yield_now().await;
                }
                () = until(timeouts.next()), if !relay.script_is_over() => {}
            }
        }
        Ok(())
    }

    /// Logs the messages of a script, within its pool's limit: errors that end it as errors, all
    /// others as warnings.
    pub fn log(&self, message: &[u8]) {
        if let Some(development) = self.backend.development() {
            return terminal_lines::write(message, development);
        }
        let (backend, script, suffix) = (self.backend, self.script, self.log_suffix());
        for record in records(message, |bytes| backend.may_log(bytes)) {
            let text = record.text(&suffix);
            self.lines.add(|| record.text(&""));
            match record.is_fatal {
                true => tracing::error!("{backend}: {script}: {text}"),
                false => tracing::warn!("{backend}: {script}: {text}"),
            }
        }
    }

    /// The end of a log line about this request.
    pub fn log_suffix(&self) -> LogSuffix<'_> {
        LogSuffix { id: self.id, trace: self.trace }
    }
}

/// Waits for the client to read if it must, and otherwise for it to leave.
async fn sendable(client: &mut impl Client, has_unsent: bool) -> io::Result<()> {
    if has_unsent {
        return client.sendable().await;
    }
    client.gone_later().await;
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// A response between script and client.
struct Relay<'a, F> {
    run: &'a Run<'a>,
    encoder: &'a mut F,
    progress: &'a mut ScriptProgress,
    records: ResponseReader,
    spool: Spool<'a>,
    over: bool,
    /// It has waited for space in `spool_dir`.
    has_lacked_space: bool,
    /// Bytes taken in this turn of the thread.
    turn_bytes: usize,
    /// `server_timing`.
    sends_timing: bool,
}

impl<'a, F: ResponseEncoder> Relay<'a, F> {
    fn new(
        run: &'a Run<'a>,
        encoder: &'a mut F,
        limits: &RequestLimits,
        spool: Spool<'a>,
        progress: &'a mut ScriptProgress,
    ) -> Relay<'a, F> {
        Relay {
            run,
            encoder,
            progress,
            records: ResponseReader::new(run.request_id),
            spool,
            over: false,
            has_lacked_space: false,
            turn_bytes: 0,
            sends_timing: limits.sends_timing,
        }
    }

    /// The output is complete, and the client has all of it.
    fn is_over(&self) -> bool {
        self.over && self.spool.is_empty()
    }

    fn script_is_over(&self) -> bool {
        self.over
    }

    fn wants_more(&self) -> bool {
        !self.over && self.spool.has_room()
    }

    fn has_unsent(&self) -> bool {
        !self.spool.is_empty()
    }

    /// Takes output of the script in several turns of the thread: a client that reads as fast as
    /// the script writes would starve the others.
    async fn take_in_turns(
        &mut self,
        mut bytes: &[u8],
        source: &mut Source,
        client: &mut impl Client<Head = F::Head>,
    ) -> Result<(), Failure> {
        loop {
            let all = bytes.len();
            let piece = if self.encoder.needs_yield() { TURN_BYTES } else { all };
            let (now, later) = bytes.split_at(piece.min(all));
            self.take(now, source, client).await?;
            if self.over {
                return Ok(());
            }
            self.turn_bytes += now.len();
            if self.encoder.needs_yield() || self.turn_bytes >= TURN_BYTES {
                self.turn_bytes = 0;
                thread_local::was_busy();
                tokio::task::yield_now().await;
            }
            bytes = later;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Takes output of the script, and moves it to the spool in the client's form.
    async fn take(
        &mut self,
        mut bytes: &[u8],
        source: &mut Source,
        client: &mut impl Client<Head = F::Head>,
    ) -> Result<(), Failure> {
        loop {
            match self.records.next(&mut bytes) {
                Ok(None) => break,
                Ok(Some(end @ ResponseEvent::End { .. })) => {
                    self.over = true;
                    self.record_end(source);
                    source.detach();
                    self.encoder.take(end)?;
                    break;
                }
                Ok(Some(output)) => self.encoder.take(output)?,
                Err(error) => {
                    source.broke_rules("its output is not valid FastCGI");
                    return Err(Failure::invalid(error));
                }
            }
        }
        self.encoder.settle().await;
        let out = self.encoder.frame(self.over)?;
        while let Some(head) = self.encoder.head() {
            self.progress.has_sent |= self.encoder.has_begun();
            client.begin(head).map_err(|_| RequestOutcome::ClientLeft)?;
        }
        let length = out.len();
        if let Err(error) = self.spool.push(out).await {
            self.log_spool_error(length, &error);
        }
        if !self.has_lacked_space && self.spool.lacks_space() {
            self.has_lacked_space = true;
            self.run.backend.count(Counter::SpoolWaits);
        }
        Ok(())
    }

    /// Records the times of a script whose output is complete.
    fn record_end(&mut self, source: &Source) {
        let ended = Instant::now();
        self.progress.script_over = Some(ended);
        // In this order: if it does not continue, its cost is final.
        self.progress.going_on = source.going_on();
        self.progress.spent = source.spent();
        if let Some(assigned) = source.assigned_at() {
            self.encoder.record_duration(ended - assigned);
        }
        let Some(spent) = self.progress.spent else {
            return;
        };
        self.progress.split(ended, spent.held);
        if self.sends_timing {
            let queued = self.progress.queued.unwrap_or_default();
            self.encoder.timed(server_timing::value(queued, &spent));
        }
    }

    fn log_spool_error(&self, length: usize, error: &io::Error) {
        let (run, folder) = (self.run, self.run.spool.path.display());
        let line = format!(
            "a response of {} could not be spooled to disk ({length} bytes to {folder}: {error}); \
             the script waits for its client{}",
            run.script,
            run.log_suffix(),
        );
        // A web server in front sends decoded paths, which may have line ends and escapes in them.
        let line = printable(&line);
        if run.backend.may_log(line.len()) {
            tracing::warn!("{line}");
        }
    }

    /// The exchange has ended.
    fn ended(
        &mut self,
        result: Result<(), RequestOutcome>,
        source: &Source,
    ) -> Result<(), Failure> {
        if self.over {
            return Ok(());
        }
        result?;
        let how = "its output has no end record";
        source.broke_rules(how);
        Err(Failure::invalid(how))
    }

    /// Sends as much as the client takes now.
    async fn send(&mut self, client: &mut impl Client) -> Result<(), Failure> {
        loop {
            let front = self.spool.front().await.map_err(|error| {
                let suffix = self.run.log_suffix();
                tracing::error!("a spooled response could not be read back: {error}{suffix}");
                RequestOutcome::ClientLeft
            })?;
            let Some(bytes) = front else {
                // After a complete interim response, any response may follow.
                self.progress.has_sent = self.encoder.has_begun();
                return Ok(());
            };
            self.progress.has_sent |= self.encoder.has_begun();
            let length = bytes.len();
            match client.try_send(bytes) {
                Ok(0) => {
                    self.progress.has_sent |= client.has_promised();
                    if let Err(error) = self.spool.settle().await {
                        self.log_spool_error(length, &error);
                    }
                    return Ok(());
                }
                Ok(count) => {
                    // Only the rest may follow a part of an interim response.
                    self.progress.has_sent |= count < length;
                    self.spool.advance(count);
                }
                Err(_) => return Err(RequestOutcome::ClientLeft.into()),
            }
        }
    }
}
