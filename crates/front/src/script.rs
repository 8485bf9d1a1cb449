//! Running a script and sending its answer: wait for a worker, give it the request, and pass on
//! what it says as fast as it says it and no faster than the client reads.

use std::future::pending;
use std::path::PathBuf;
use std::time::Duration;

use maitred_fastcgi::cgi::{AnswerHead, HeadReader};
use maitred_fastcgi::{AnswerEvent, AnswerReader};
use maitred_http1::{
    Answer, AnswerFraming, CHUNK_END, Head, LAST_CHUNK, answer_framing, carries_body,
    write_chunk_header, write_head,
};
use tokio::time::{Instant, sleep_until};

use crate::access::Answered;
use crate::body::Body;
use crate::clock::http_date;
use crate::connection::Connection;
use crate::params::REQUEST_ID;
use crate::pool::NotTaken;
use crate::pool::exchange::{Ended, Event};
use crate::source::{Backend, Feeder, Source};
use crate::spool::Spool;
use crate::upstream::Foreign;

/// Why a script gave no (complete) answer.
#[derive(Debug)]
pub enum Failure {
    /// As many requests wait as may.
    QueueFull,
    /// The pool has no workers and will not get any.
    NoPool,
    /// It waited for a worker as long as it may.
    QueueTimeout,
    /// The client left before the script began.
    LeftQueue,
    /// The client left.
    ClientLeft,
    /// The script ran longer than `request_terminate_timeout`.
    Terminated,
    /// The worker died. True when it had said nothing before, so that another may try.
    WorkerDied {
        /// Nothing of an answer had come.
        silent: bool,
    },
    /// What the worker said is no answer.
    Invalid(String),
    /// The foreign server could not be reached.
    Unreachable(String),
    /// The foreign server said nothing for too long.
    Silent,
    /// The request's body could not be read back.
    Body(std::io::Error),
}

/// One run of a script.
pub struct Run<'a> {
    /// Where it runs.
    pub backend: &'a Backend,
    /// The request's head.
    pub head: &'a Head,
    /// Its body.
    pub body: &'a Body,
    /// The script's file, for log lines.
    pub script: &'a str,
    /// Where answers are kept for slow clients.
    pub spool_dir: PathBuf,
}

/// What was sent before a failure, if anything: then the connection is of no further use.
#[derive(Debug, Default)]
pub struct Sent {
    /// The answer, for the log.
    pub answered: Answered,
    /// Whether the client has got any of it.
    pub begun: bool,
    /// Whether the connection can be used again.
    pub reusable: bool,
    /// When the script had said everything.
    pub script_over: Option<Instant>,
}

impl Run<'_> {
    /// Runs the script and sends its answer.
    ///
    /// # Errors
    /// Why there is no complete answer; `sent` says what the client got of it.
    pub async fn run(
        &self,
        connection: &mut Connection,
        thread: u32,
        request: Vec<u8>,
        sent: &mut Sent,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut source = match self.backend {
            Backend::Pool(pool) => {
                Source::Pool(pool.submit(thread, request).map_err(|why| match why {
                    NotTaken::QueueFull => Failure::QueueFull,
                    NotTaken::NoPool => Failure::NoPool,
                })?)
            }
            Backend::Upstream(upstream) => Source::Foreign(
                Foreign::connect(upstream, request)
                    .await
                    .map_err(Failure::Unreachable)?,
            ),
        };
        self.wait_in_queue(connection, &mut source, begun).await?;
        let lent = Instant::now();
        let outcome = self.answer(connection, &mut source, lent, sent).await;
        // The client's time is not the script's: what counts is when the script was through.
        let through = sent.script_over.unwrap_or_else(Instant::now);
        let total = through.duration_since(begun);
        let script = source.script_time().unwrap_or(through - lent).min(total);
        sent.answered.script = Some(script);
        sent.answered.queued = Some(total - script);
        outcome
    }

    async fn wait_in_queue(
        &self,
        connection: &mut Connection,
        source: &mut Source,
        begun: Instant,
    ) -> Result<(), Failure> {
        // A waiting request is told of its worker before anything else can happen to it.
        let deadline = begun.checked_add(self.backend.queue_timeout());
        tokio::select! {
            biased;
            event = source.event() => match event {
                Event::Ended(Ended::TakenBack) => Err(Failure::QueueTimeout),
                Event::Ended(Ended::Abandoned) => Err(Failure::NoPool),
                Event::Ended(_) => Err(Failure::WorkerDied { silent: true }),
                _ => Ok(()),
            },
            () = connection.client_gone() => Err(Failure::LeftQueue),
            () = until(deadline) => Err(Failure::QueueTimeout),
        }
    }

    async fn answer(
        &self,
        connection: &mut Connection,
        source: &mut Source,
        lent: Instant,
        sent: &mut Sent,
    ) -> Result<(), Failure> {
        let spool = Spool::new(self.spool_dir.clone(), self.backend.spool_limit());
        let mut answering = Answering::new(self, spool, sent);
        let mut feeder = Feeder::new(self.body);
        feeder.feed(source).await.map_err(Failure::Body)?;
        let mut deadline = self
            .backend
            .terminate_timeout()
            .map(|timeout| lent + timeout);
        let mut slow = self.backend.slow_timeout().map(|timeout| lent + timeout);
        while !answering.is_over() {
            answering.send(connection).await?;
            if answering.is_over() {
                break;
            }
            let wants_more = answering.wants_more();
            let has_unsent = answering.has_unsent();
            tokio::select! {
                biased;
                event = source.event(), if wants_more => match event {
                    Event::Answer(bytes) => answering.take(&bytes, source).await?,
                    Event::Room => feeder.feed(source).await.map_err(Failure::Body)?,
                    Event::Ended(ended) => answering.ended(ended)?,
                    Event::Lent => {
                        feeder.restart();
                        feeder.feed(source).await.map_err(Failure::Body)?;
                    }
                },
                ready = sendable(connection, has_unsent) => {
                    if ready.is_err() {
                        return Err(Failure::ClientLeft);
                    }
                }
                () = until(slow), if !answering.script_is_over() => {
                    slow = later(source, lent, self.backend.slow_timeout());
                    if slow.is_some_and(|slow| slow <= Instant::now()) {
                        slow = None;
                        source.report_slow();
                    }
                }
                () = until(deadline), if !answering.script_is_over() => {
                    deadline = later(source, lent, self.backend.terminate_timeout());
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        source.end_overrun();
                        return Err(Failure::Terminated);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Waits for the client to read if it must, and otherwise for it to leave.
async fn sendable(connection: &mut Connection, has_unsent: bool) -> std::io::Result<()> {
    if has_unsent {
        return connection.sendable().await;
    }
    connection.client_gone_later().await;
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

/// When the script will have run for as long as `timeout`: later than was thought, if it waited
/// behind another. Never when it is over.
fn later(source: &Source, lent: Instant, timeout: Option<Duration>) -> Option<Instant> {
    let began = source.began(lent.into_std()).map(Instant::from_std);
    began.zip(timeout).map(|(began, timeout)| began + timeout)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// An answer on its way from script to client.
struct Answering<'a> {
    run: &'a Run<'a>,
    sent: &'a mut Sent,
    records: AnswerReader,
    head_reader: HeadReader,
    head: Option<AnswerHead>,
    framing: AnswerFraming,
    /// Body bytes that came with the head and are not framed yet, as long as the whole answer
    /// may still come in one piece.
    first: Vec<u8>,
    /// Bytes of body still to come when the script has announced how many.
    announced: Option<u64>,
    spool: Spool,
    framed: bool,
    over: bool,
}

impl<'a> Answering<'a> {
    fn new(run: &'a Run<'a>, spool: Spool, sent: &'a mut Sent) -> Answering<'a> {
        Answering {
            run,
            sent,
            records: AnswerReader::new(REQUEST_ID),
            head_reader: HeadReader::default(),
            head: None,
            framing: AnswerFraming::NoBody,
            first: Vec::new(),
            announced: None,
            spool,
            framed: false,
            over: false,
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

    /// Takes what the script has said.
    async fn take(&mut self, mut bytes: &[u8], source: &mut Source) -> Result<(), Failure> {
        loop {
            match self.records.next(&mut bytes) {
                Ok(None) => break,
                Ok(Some(AnswerEvent::Stdout(content))) => self.take_output(content)?,
                Ok(Some(AnswerEvent::Stderr(content))) => self.log(content),
                Ok(Some(AnswerEvent::Report(_))) => {}
                Ok(Some(AnswerEvent::End { .. })) => {
                    self.over = true;
                    self.sent.script_over = Some(Instant::now());
                    source.detach();
                    break;
                }
                Err(error) => return Err(Failure::Invalid(error.to_string())),
            }
        }
        if self.over && self.head.is_none() {
            return Err(Failure::Invalid(self.head_reader.ended_early().to_string()));
        }
        self.frame().await
    }

    fn take_output(&mut self, mut content: &[u8]) -> Result<(), Failure> {
        if self.head.is_none() {
            match self.head_reader.read(content) {
                Ok(None) => return Ok(()),
                Ok(Some((head, used))) => {
                    self.head = Some(head);
                    content = &content[used..];
                }
                Err(error) => return Err(Failure::Invalid(error.to_string())),
            }
        }
        self.first.extend_from_slice(content);
        Ok(())
    }

    fn log(&self, message: &[u8]) {
        let text = String::from_utf8_lossy(message);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            // A carriage return would write over the line's beginning on a terminal.
            let line = line.replace(|c: char| c.is_control() && c != '\t', " ");
            tracing::warn!("{}: {}: {line}", self.run.backend.name(), self.run.script);
        }
    }

    /// Moves what the script has said so far to the spool, framed for the client.
    async fn frame(&mut self) -> Result<(), Failure> {
        let Some(head) = &self.head else {
            return Ok(());
        };
        let mut out = Vec::new();
        if !self.framed {
            self.framed = true;
            (self.framing, self.announced) = self.choose_framing(head);
            let keep_alive = self.run.head.keep_alive;
            let answer = Answer {
                version: self.run.head.version(),
                status: head.status(),
                reason: head.reason(),
                framing: self.framing,
                keep_alive,
                date: &http_date(),
            };
            out.reserve(512 + self.first.len());
            let for_client = head.headers().filter(|(name, _)| !is_for_us(name));
            let unfit = write_head(&mut out, &answer, for_client);
            if unfit > 0 {
                self.log(format!("{unfit} headers hold forbidden bytes: left out").as_bytes());
            }
            self.sent.answered.status = head.status();
            self.sent.answered.head_bytes = out.len() as u64;
            self.sent.reusable = keep_alive && self.framing != AnswerFraming::UntilClose;
        }
        self.frame_body(&mut out);
        let length = out.len();
        if let Err(error) = self.spool.push(out).await {
            tracing::warn!(
                "an answer of {} could not be kept on disk ({length} bytes to {}: {error}); the \
                 script waits for its client",
                self.run.script,
                self.run.spool_dir.display(),
            );
        }
        Ok(())
    }

    /// A complete answer has a length of our own counting. One that is sent while it is made has
    /// the length that the script announces, if any.
    fn choose_framing(&self, head: &AnswerHead) -> (AnswerFraming, Option<u64>) {
        let is_head = self.run.head.kind() == maitred_http1::Method::Head;
        let announced = head
            .header("content-length")
            .and_then(|value| std::str::from_utf8(value).ok())
            .and_then(|value| value.parse::<u64>().ok());
        let known = match (self.over, is_head) {
            (true, false) => Some(self.first.len() as u64),
            _ => announced,
        };
        let framing = answer_framing(self.run.head.version(), is_head, head.status(), known);
        (framing, known)
    }

    fn frame_body(&mut self, out: &mut Vec<u8>) {
        let mut body = std::mem::take(&mut self.first);
        let status = self.sent.answered.status;
        let is_head = self.run.head.kind() == maitred_http1::Method::Head;
        if !carries_body(is_head, status) {
            return;
        }
        if let Some(left) = &mut self.announced {
            let count = usize::try_from(*left).map_or(body.len(), |left| left.min(body.len()));
            body.truncate(count);
            *left -= count as u64;
        }
        match self.framing {
            AnswerFraming::Chunked => {
                if !body.is_empty() {
                    write_chunk_header(out, body.len());
                    out.extend_from_slice(&body);
                    out.extend_from_slice(CHUNK_END);
                }
                if self.over {
                    out.extend_from_slice(LAST_CHUNK);
                }
            }
            AnswerFraming::Length(_) | AnswerFraming::UntilClose => out.extend_from_slice(&body),
            AnswerFraming::NoBody => {}
        }
        if self.over && self.announced.is_some_and(|left| left > 0) {
            // Fewer bytes than announced: only the end of the connection can say so.
            self.sent.reusable = false;
        }
    }

    fn ended(&mut self, ended: Ended) -> Result<(), Failure> {
        if self.over {
            return Ok(());
        }
        match ended {
            Ended::Finished => Err(Failure::Invalid("it ended without saying so".to_owned())),
            Ended::TakenBack => Err(Failure::QueueTimeout),
            Ended::Abandoned => Err(Failure::NoPool),
            Ended::Silent => Err(Failure::Silent),
            Ended::Broken => Err(Failure::WorkerDied { silent: false }),
            Ended::WorkerDied => Err(Failure::WorkerDied {
                silent: !self.framed,
            }),
        }
    }

    /// Sends what the client takes now.
    async fn send(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        loop {
            let front = self.spool.front().await.map_err(|error| {
                tracing::error!("a kept answer could not be read back: {error}");
                Failure::ClientLeft
            })?;
            let Some(bytes) = front else { return Ok(()) };
            self.sent.begun = true;
            match connection.try_send(bytes) {
                Ok(0) => return Ok(()),
                Ok(count) => self.spool.advance(count),
                Err(_) => return Err(Failure::ClientLeft),
            }
        }
    }
}

/// Headers by which a script speaks to its web server (nginx's `X-Accel-…`).
fn is_for_us(name: &[u8]) -> bool {
    name.get(..8)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
}

/// How long a refused client should wait before it tries again, in whole seconds: as long as it
/// has waited already says how much there is to do.
pub fn retry_after(waited: Duration) -> u64 {
    waited.as_secs().clamp(1, 60)
}
