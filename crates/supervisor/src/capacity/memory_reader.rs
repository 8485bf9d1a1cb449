//! The process that counts the private memory of others (`maitred: memory`). It is started when
//! something is to be counted, and killed when it is late, or has nothing to count for a while; the
//! supervisor never waits for it.

use std::io;

use maitred_control::memory_reader::{FromMemoryReader, ToMemoryReader};
use maitred_os::fork::HowEnded;
use maitred_os::signals::Signal;
use tracing::{error, warn};

use crate::capacity::memory_reads::{MemoryReading, MemoryReads};
use crate::limits::{
    COUNT_TIMEOUT, MEMORY_READER_IDLE, MEMORY_READER_START, Moment, START_BACKOFF_LONGEST,
    UNCOUNTED_FOR,
};
use crate::peer::Peer;
use crate::processes::backoff::Backoff;

/// The argument that makes our program the one that counts.
pub const MEMORY_READER_ROLE: &str = "memory-reader";

/// What the process needs of the rest of the server.
#[derive(Debug, Clone, Copy)]
pub struct ReaderContext<'a> {
    /// The environment of the process.
    pub environment: &'a [(String, String)],
    /// Whether it is sandboxed.
    pub restricted: bool,
    /// Whether it may be started.
    pub may_start: bool,
    /// The time.
    pub now: Moment,
}

/// The process that counts, and what it is to count.
#[derive(Debug, Default)]
pub struct MemoryReader {
    /// What is to be counted.
    pub reads: MemoryReads,
    peer: Option<Peer<ToMemoryReader>>,
    /// When it is to take orders, if it does not yet.
    starts_until: Option<Moment>,
    /// When it ends, if there is nothing to count.
    idle_until: Option<Moment>,
    backoff: Backoff,
    /// When it may be started again.
    start_at: Moment,
}

impl MemoryReader {
    /// The process, if it can report.
    pub fn listening(&self) -> Option<&Peer<ToMemoryReader>> {
        self.peer.as_ref().filter(|peer| !peer.is_closed())
    }

    /// When it is late, or its idle time ends.
    pub fn deadline(&self) -> Option<Moment> {
        self.late_at().or(self.idle_until)
    }

    fn late_at(&self) -> Option<Moment> {
        self.starts_until.or(self.reads.deadline())
    }

    /// Whether this is the process.
    pub fn is_process(&self, pid: i32) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.pid() == pid)
    }

    /// Orders what is to be counted, and kills the process when it is late. Returns the outcome for
    /// processes that are not counted.
    pub fn keep(&mut self, context: ReaderContext<'_>) -> Vec<MemoryReading> {
        let now = context.now;
        let mut readings = self.end_if_late(now);
        if self.peer.is_none() && self.reads.are_waiting() {
            readings.extend(self.start(context));
        }
        let is_ready = self.starts_until.is_none();
        if let Some(peer) = self.peer.as_mut().filter(|_| is_ready) {
            peer.flush();
            if let Some(pids) = self.reads.next_order(now) {
                peer.say(ToMemoryReader::Count { pids }, &[]);
            }
        }
        self.end_if_idle(now);
        readings
    }

    fn end_if_idle(&mut self, now: Moment) {
        let is_idle = self.is_ready() && self.reads.deadline().is_none();
        let until = self.idle_until.unwrap_or(now + MEMORY_READER_IDLE);
        self.idle_until = is_idle.then_some(until);
        if is_idle && until <= now {
            self.end();
        }
    }

    fn end_if_late(&mut self, now: Moment) -> Vec<MemoryReading> {
        if self.late_at().is_none_or(|until| now < until) {
            return Vec::new();
        }
        let is_starting = self.starts_until.is_some();
        self.end();
        if is_starting {
            let limit = MEMORY_READER_START.as_secs();
            return self.failed(&format!("does not take orders within {limit} s"), now);
        }
        let late = self.reads.order_timed_out(now);
        if let Some(pool) = late.uncounted {
            warn!(
                "pool {pool}: the private pages of its processes could not be counted within {} s, \
                 so they are taken for all that are resident and not shared (`statm`) for the next \
                 {} minutes; does a program of the pool hold its memory's lock by a file system in \
                 user space (FUSE)? Deny its user /dev/fuse and user namespaces if that is not \
                 meant to be",
                COUNT_TIMEOUT.as_secs(),
                UNCOUNTED_FOR.as_secs() / 60
            );
        }
        late.readings
    }

    fn start(&mut self, context: ReaderContext<'_>) -> Vec<MemoryReading> {
        let now = context.now;
        if !context.may_start || now < self.start_at {
            return self.reads.give_up();
        }
        match start(context) {
            Ok(peer) => {
                self.peer = Some(peer);
                self.starts_until = Some(now + MEMORY_READER_START);
                Vec::new()
            }
            Err(why) => self.failed(&format!("could not be started: {why}"), now),
        }
    }

    /// Receives the next report. None: there is none.
    pub fn hear(&mut self, now: Moment) -> Option<Vec<MemoryReading>> {
        match self.peer.as_mut()?.hear::<FromMemoryReader>()? {
            FromMemoryReader::Ready => {
                self.starts_until = None;
                Some(Vec::new())
            }
            FromMemoryReader::Counted { memory } => {
                let readings = self.reads.counted(&memory);
                if readings.is_some() {
                    self.backoff.succeeded();
                    return readings;
                }
                self.end();
                Some(self.failed("reports what it was not asked for", now))
            }
        }
    }

    /// The process has ended by itself.
    pub fn process_ended(
        &mut self,
        how: HowEnded,
        is_wanted: bool,
        now: Moment,
    ) -> Vec<MemoryReading> {
        (self.peer, self.starts_until, self.idle_until) = (None, None, None);
        match is_wanted {
            true => self.failed(&how.to_string(), now),
            false => self.reads.give_up(),
        }
    }

    /// Kills the process: the next program does not know it, and starts its own. Nothing is counted
    /// that was asked for.
    pub fn leave(&mut self) -> Vec<MemoryReading> {
        self.end();
        self.reads.give_up()
    }

    /// Whether it counts at once.
    pub fn is_ready(&self) -> bool {
        self.peer.is_some() && self.starts_until.is_none()
    }

    fn end(&mut self) {
        (self.starts_until, self.idle_until) = (None, None);
        if let Some(peer) = self.peer.take() {
            peer.signal(Signal::SIGKILL);
        }
    }

    fn failed(&mut self, what: &str, now: Moment) -> Vec<MemoryReading> {
        self.start_at = self.backoff.failed_within(now, START_BACKOFF_LONGEST);
        error!(
            "the process that counts memory {what}; until it is started again, resident pages that \
             are not shared count (`statm`)"
        );
        self.reads.give_up()
    }
}

fn start(context: ReaderContext<'_>) -> io::Result<Peer<ToMemoryReader>> {
    let mut peer = Peer::start_role("maitred: memory", MEMORY_READER_ROLE, context.environment)?;
    peer.say(ToMemoryReader::Begin { restricted: context.restricted }, &[]);
    Ok(peer)
}
