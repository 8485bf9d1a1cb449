//! Running a script and sending its answer: wait for a worker, give it the request, and pass on
//! what it says as fast as it says it and no faster than the client reads. What form the answer has
//! is its door's business ([`ResponseEncoder`]), and so is how a client shows that it has gone ([`Client`]).

use std::io;
use std::path::Path;

use maitred_fastcgi::{AnswerEvent, AnswerReader};
use tokio::time::Instant;

use crate::backend::encoder::ResponseEncoder;
use crate::backend::error::{Concerned, Failure};
use crate::backend::fastcgi_upstream::Foreign;
use crate::backend::progress::Sent;
use crate::backend::timeouts::{Due, until};
use crate::backend::{Backend, Feeder, Limits, Source};
use crate::http::body::Body;
use crate::http::client::Client;
use crate::http::deadline::Fields;
use crate::http::server_timing;
use crate::http::spool::Spool;
use crate::pool::exchange::{ExchangeEnd, ExchangeEvent, QueueRequest};
use crate::pool::queue::Priority;
use crate::pool::{kind, thread_local};

/// Bytes of an answer after which others have their turn of the thread. To code as many takes br, which
/// takes longest, a millisecond.
const TURN_BYTES: usize = 64 * 1024;

/// One run of a script.
pub struct Run<'a> {
    /// Where it runs.
    pub backend: &'a Backend,
    /// The request's method and target, for log lines.
    pub asked: (&'a str, &'a str),
    /// Its body.
    pub body: &'a Body,
    /// The script's file, for log lines.
    pub script: &'a str,
    /// The id of the request's FastCGI records.
    pub request_id: u16,
    /// The request's id in the logs; empty if we have given it none.
    pub id: &'a str,
    /// Where answers are kept for slow clients.
    pub spool_dir: &'a Path,
    /// Its header, as far as that says how long the answer is wanted.
    pub fields: &'a dyn Fields,
    /// Whom it waits before.
    pub priority: Priority,
}

impl Run<'_> {
    /// Why its pool does not take it, if that is certain before its records are written.
    pub fn is_turned_away(&self) -> Option<Failure> {
        let Backend::Pool(pool) = self.backend else {
            return None;
        };
        if !pool.is_rejecting() {
            return None;
        }
        let limits = self.backend.limits(self.fields);
        if limits.are_over() {
            return Some(Failure::Deadline);
        }
        let why = pool.would_reject(self.queue_request(&limits))?;
        Some(limits.refusal(why))
    }

    fn queue_request(&self, limits: &Limits) -> QueueRequest {
        QueueRequest {
            priority: self.priority,
            max_wait: limits.patience(),
            kind: kind::of(self.script, self.asked.1),
        }
    }

    /// Runs the script and sends its answer. `thread` is the front's, and what asked for the
    /// script `began` then.
    ///
    /// # Errors
    /// Why there is no complete answer; `sent` says what the client got of it.
    pub async fn run<C: Client>(
        &self,
        client: &mut C,
        form: &mut impl ResponseEncoder<Head = C::Head>,
        (thread, began): (u32, std::time::Instant),
        request: Vec<u8>,
        sent: &mut Sent,
    ) -> Result<(), Failure> {
        let begun = Instant::from_std(began);
        let limits = self.backend.limits(self.fields);
        if limits.are_over() {
            return Err(Failure::Deadline);
        }
        let mut source = match self.backend {
            Backend::Pool(pool) => {
                let submitted = pool.submit(thread, request, self.queue_request(&limits));
                Source::Pool(submitted.map_err(|why| limits.refusal(why))?)
            }
            Backend::Upstream(upstream, _) => Source::Foreign(
                Box::pin(Foreign::connect(upstream, request))
                    .await
                    .map_err(Failure::Unreachable)?,
            ),
        };
        self.follow(client, form, &mut source, (begun, &limits), sent)
            .await
    }

    async fn follow<C: Client>(
        &self,
        client: &mut C,
        form: &mut impl ResponseEncoder<Head = C::Head>,
        source: &mut Source,
        (begun, limits): (Instant, &Limits),
        sent: &mut Sent,
    ) -> Result<(), Failure> {
        let deadline = begun.checked_add(limits.patience());
        let waited = self.wait_in_queue(client, source, (deadline, limits)).await;
        sent.held_back = waited.is_err() && source.is_held_back();
        waited?;
        let assignment = source.assigned_at().map_or(begun, Instant::from_std);
        let outcome = self
            .answer(client, form, source, (begun, assignment, limits), sent)
            .await;
        if sent.spent.is_none() {
            // The client's time is not the script's: what counts is when the script was through.
            let through = sent.script_over.unwrap_or_else(Instant::now);
            let script = source.script_time().unwrap_or(through - assignment);
            sent.split(begun, through, script);
        }
        outcome
    }

    async fn wait_in_queue(
        &self,
        client: &mut impl Client,
        source: &mut Source,
        (deadline, limits): (Option<Instant>, &Limits),
    ) -> Result<(), Failure> {
        // A waiting request is told of its worker before anything else can happen to it.
        tokio::select! {
            biased;
            event = source.event() => match event {
                ExchangeEvent::Ended(ExchangeEnd::TakenBack) => Err(limits.failure(Failure::QueueTimeout)),
                ExchangeEvent::Ended(ExchangeEnd::Rejected(why)) => Err(limits.refusal(why)),
                ExchangeEvent::Ended(_) => Err(Failure::WorkerDied),
                _ => Ok(()),
            },
            () = client.gone() => Err(Failure::LeftQueue),
            () = until(deadline) => Err(limits.failure(Failure::QueueTimeout)),
        }
    }

    async fn answer<C: Client>(
        &self,
        client: &mut C,
        form: &mut impl ResponseEncoder<Head = C::Head>,
        source: &mut Source,
        (begun, assignment, limits): (Instant, Instant, &Limits),
        sent: &mut Sent,
    ) -> Result<(), Failure> {
        let spool = Spool::new(self.spool_dir, client.spool_bytes(), limits.spool);
        let mut answering = Answering::new(self, form, (begun, limits), spool, sent);
        let mut feeder = Feeder::new(self.body, self.request_id);
        feeder.feed(source).await.map_err(Failure::Body)?;
        let mut due = Due::new(assignment, limits);
        while !answering.is_over() {
            answering.send(client).await?;
            if answering.is_over() {
                break;
            }
            let wants_more = answering.wants_more();
            let has_unsent = answering.has_unsent();
            tokio::select! {
                biased;
                event = source.event(), if wants_more => match event {
                    ExchangeEvent::Response(bytes) => {
                        answering.take_in_turns(&bytes, source, client).await?;
                    }
                    ExchangeEvent::Room => feeder.feed(source).await.map_err(Failure::Body)?,
                    ExchangeEvent::Ended(ended) => answering.ended(ended, limits, source)?,
                    ExchangeEvent::Assigned => {
                        feeder.restart();
                        feeder.feed(source).await.map_err(Failure::Body)?;
                    }
                },
                ready = sendable(client, has_unsent) => {
                    if ready.is_err() {
                        return Err(Failure::ClientLeft);
                    }
                }
                () = until(due.next()), if !answering.script_is_over() => due.look(source)?,
            }
        }
        Ok(())
    }

    /// Logs what a script says beside its answer, as far as its pool's limit goes. That is asked
    /// first: what is dropped costs little.
    pub fn log(&self, message: &[u8]) {
        for line in message.split(|&byte| byte == b'\n') {
            if line.trim_ascii().is_empty() || !self.backend.may_log(line.len()) {
                continue;
            }
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
            // A carriage return would write over the line's beginning on a terminal.
            let line = line.replace(|c: char| c.is_control() && c != '\t', " ");
            tracing::warn!(
                "{}: {}: {line}{}",
                self.backend,
                self.script,
                self.concerned()
            );
        }
    }

    /// How a line of the log ends that is about this request.
    pub fn concerned(&self) -> Concerned<'_> {
        Concerned(self.id)
    }
}

/// Waits for the client to read if it must, and otherwise for it to leave.
pub(crate) async fn sendable(client: &mut impl Client, has_unsent: bool) -> io::Result<()> {
    if has_unsent {
        return client.sendable().await;
    }
    client.gone_later().await;
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// An answer on its way from script to client.
struct Answering<'a, F> {
    run: &'a Run<'a>,
    form: &'a mut F,
    sent: &'a mut Sent,
    records: AnswerReader,
    spool: Spool<'a>,
    over: bool,
    /// Bytes taken in this turn of the thread's.
    of_turn: usize,
    /// When the request began.
    begun: Instant,
    tells_timing: bool,
}

impl<'a, F: ResponseEncoder> Answering<'a, F> {
    fn new(
        run: &'a Run<'a>,
        form: &'a mut F,
        (begun, limits): (Instant, &Limits),
        spool: Spool<'a>,
        sent: &'a mut Sent,
    ) -> Answering<'a, F> {
        Answering {
            run,
            form,
            sent,
            records: AnswerReader::new(run.request_id),
            spool,
            over: false,
            of_turn: 0,
            begun,
            tells_timing: limits.tells_timing,
        }
    }

    /// The script is through, and the client has everything.
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

    /// Takes what the script has said, in as many turns of the thread's as it takes: whose client reads
    /// as fast as it speaks would otherwise keep everybody else from theirs.
    async fn take_in_turns(
        &mut self,
        mut bytes: &[u8],
        source: &mut Source,
        client: &mut impl Client<Head = F::Head>,
    ) -> Result<(), Failure> {
        loop {
            let all = bytes.len();
            let piece = if self.form.is_laborious() {
                TURN_BYTES
            } else {
                all
            };
            let (now, later) = bytes.split_at(piece.min(all));
            self.take(now, source, client).await?;
            if self.over {
                return Ok(());
            }
            self.of_turn += now.len();
            if self.form.is_laborious() || self.of_turn >= TURN_BYTES {
                self.of_turn = 0;
                thread_local::was_busy();
                tokio::task::yield_now().await;
            }
            bytes = later;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Takes what the script has said, and moves it to the spool in the client's form.
    async fn take(
        &mut self,
        mut bytes: &[u8],
        source: &mut Source,
        client: &mut impl Client<Head = F::Head>,
    ) -> Result<(), Failure> {
        loop {
            match self.records.next(&mut bytes) {
                Ok(None) => break,
                Ok(Some(said @ AnswerEvent::End { .. })) => {
                    self.over = true;
                    self.measured(source);
                    source.detach();
                    self.form.take(said)?;
                    break;
                }
                Ok(Some(said)) => self.form.take(said)?,
                Err(error) => {
                    source.broke_rules("its answer is none in FastCGI");
                    return Err(Failure::Invalid(error.to_string()));
                }
            }
        }
        self.form.settle().await;
        let out = self.form.frame(self.over)?;
        while let Some(head) = self.form.head() {
            self.sent.begun |= self.form.has_begun();
            client.begin(head).map_err(|_| Failure::ClientLeft)?;
        }
        let length = out.len();
        if let Err(error) = self.spool.push(out).await {
            self.tell_unkept(length, &error);
        }
        Ok(())
    }

    /// The script is through: takes down what it took.
    fn measured(&mut self, source: &Source) {
        let through = Instant::now();
        self.sent.script_over = Some(through);
        // In this order: what it has cost by its end is then known if it does not go on.
        self.sent.going_on = source.going_on();
        self.sent.spent = source.spent();
        if let Some(assignment) = source.assigned_at() {
            self.form.took(through - Instant::from_std(assignment));
        }
        let Some(spent) = self.sent.spent else { return };
        self.sent.split(self.begun, through, spent.held);
        if self.tells_timing {
            let queued = self.sent.queued.unwrap_or_default();
            self.form.timed(server_timing::value(queued, &spent));
        }
    }

    fn tell_unkept(&self, length: usize, error: &io::Error) {
        if !self.run.backend.may_log(self.run.script.len()) {
            return;
        }
        tracing::warn!(
            "an answer of {} could not be kept on disk ({length} bytes to {}: {error}); the \
             script waits for its client{}",
            self.run.script,
            self.run.spool_dir.display(),
            self.run.concerned(),
        );
    }

    fn ended(
        &mut self,
        ended: ExchangeEnd,
        limits: &Limits,
        source: &Source,
    ) -> Result<(), Failure> {
        if self.over {
            return Ok(());
        }
        match ended {
            ExchangeEnd::Finished => {
                let how = "it ended without saying so";
                source.broke_rules(how);
                Err(Failure::Invalid(how.to_owned()))
            }
            ExchangeEnd::TakenBack => Err(limits.failure(Failure::QueueTimeout)),
            ExchangeEnd::Rejected(why) => Err(limits.refusal(why)),
            ExchangeEnd::Silent => Err(Failure::Silent),
            ExchangeEnd::Broken | ExchangeEnd::WorkerDied => Err(Failure::WorkerDied),
        }
    }

    /// Sends what the client takes now.
    async fn send(&mut self, client: &mut impl Client) -> Result<(), Failure> {
        loop {
            let front = self.spool.front().await.map_err(|error| {
                let concerned = self.run.concerned();
                tracing::error!("a kept answer could not be read back: {error}{concerned}");
                Failure::ClientLeft
            })?;
            let Some(bytes) = front else { return Ok(()) };
            self.sent.begun |= self.form.has_begun();
            let length = bytes.len();
            match client.try_send(bytes) {
                Ok(0) => {
                    if let Err(error) = self.spool.settle().await {
                        self.tell_unkept(length, &error);
                    }
                    return Ok(());
                }
                Ok(count) => {
                    // Nothing else may follow half of an interim answer.
                    self.sent.begun |= count < length;
                    self.spool.advance(count);
                }
                Err(_) => return Err(Failure::ClientLeft),
            }
        }
    }
}
