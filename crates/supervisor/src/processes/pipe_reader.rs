//! The process that reads and closes the pipes that code of pools can write to (`maitred: pipes`).
//! It is started when there is something to read, and killed when it is late, or has nothing to do
//! for a while; the supervisor never waits for it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use maitred_control::pipe_reader::{
    FromPipeReader, PIPES_TAKEN_AT_ONCE, PipeOutcome, ToPipeReader,
};
use maitred_os::fork::HowEnded;
use maitred_os::proc::Stat;
use maitred_os::signals::Signal;
use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};
use tracing::{error, warn};

use crate::limits::{
    Moment, PIPE_LAST_WAIT, PIPE_READER_IDLE, PIPE_READER_START, PIPE_READERS_STUCK, PIPE_TIMEOUT,
    START_BACKOFF_LONGEST, UNREAD_FOR,
};
use crate::logging::tenant_pipe::{PipeRead, ReadOutcome};
use crate::peer::Peer;
use crate::processes::backoff::Backoff;
use crate::processes::pipe_orders::{LatePipeOrder, PipeOrders};
use crate::system::deferred_close::{self, PoolEnds};

/// The argument that makes our program the one that reads pipes.
pub const PIPE_READER_ROLE: &str = "pipe-reader";

/// Why a lock is held, and what to do.
const LOCK_CAUSES: &str = "Either its memory_high is used up, or a program holds the pipe's lock \
                           by FUSE (deny its user /dev/fuse and user namespaces)";

/// What the process needs of the rest of the server.
#[derive(Debug, Clone, Copy)]
pub struct PipeReaderContext<'a> {
    /// The environment of the process.
    pub environment: &'a [(String, String)],
    /// Its user; none: ours.
    pub identity: Option<&'a Identity>,
    /// Whether it is sandboxed.
    pub restricted: bool,
    /// The time.
    pub now: Moment,
}

/// A process that was killed, and waits in the kernel for the lock of a pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckPipeReader {
    pid: i32,
    /// The pool whose code can hold the lock.
    pool: String,
}

/// The process that reads pipes, and its orders.
#[derive(Debug, Default)]
pub struct PipeReader {
    /// Its orders.
    pub orders: PipeOrders,
    peer: Option<Peer<ToPipeReader>>,
    /// When it is to take orders, if it does not yet.
    starts_until: Option<Moment>,
    /// When it ends, if there is nothing to do.
    idle_until: Option<Moment>,
    /// Ends that it has got and that are still open here. It closes them later than we do, so that
    /// ours is never the last close.
    taken: Option<PoolEnds>,
    stuck: Vec<StuckPipeReader>,
    backoff: Backoff,
    /// When it may be started again.
    start_at: Moment,
    /// The server ends, and all was read.
    is_retired: bool,
    /// When the server ends, whatever is to be closed.
    last_until: Option<Moment>,
}

impl PipeReader {
    /// The former program has left these processes.
    pub fn new(stuck: Vec<StuckPipeReader>) -> PipeReader {
        let reader = PipeReader { stuck, ..PipeReader::default() };
        reader.block();
        reader
    }

    /// The processes that wait for locks, for the next program.
    pub fn stuck(&self) -> &[StuckPipeReader] {
        &self.stuck
    }

    /// Blocks the pools for which too many processes wait, and no other.
    fn block(&self) {
        let mut waits = BTreeMap::<&str, usize>::new();
        for stuck in &self.stuck {
            *waits.entry(&stuck.pool).or_default() += 1;
        }
        let blocked = waits.into_iter().filter(|(_, count)| *count >= PIPE_READERS_STUCK);
        deferred_close::block(blocked.map(|(pool, _)| pool.to_owned()).collect());
    }

    /// A pipe is to be read.
    pub fn want(&mut self, read: PipeRead, now: Moment) {
        match deferred_close::is_blocked(&read.pool) {
            true => self.orders.refuse(&read),
            false => self.orders.want(read, now),
        }
    }

    /// The process, if it can report.
    pub fn listening(&self) -> Option<&Peer<ToPipeReader>> {
        self.peer.as_ref().filter(|peer| !peer.is_closed())
    }

    /// When something is due without a report.
    pub fn deadline(&self) -> Option<Moment> {
        if self.orders.have_reports() {
            return Some(Moment::ZERO);
        }
        let due = self.starts_until.or(self.orders.deadline()).or(self.idle_until);
        let due =
            due.or_else(|| (self.peer.is_none() && self.is_wanted()).then_some(self.start_at));
        [due, self.last_until.filter(|_| !self.is_retired)].into_iter().flatten().min()
    }

    /// The processes: the one that works, and those that are stuck.
    pub fn pids(&self) -> Vec<i32> {
        let stuck = self.stuck.iter().map(|stuck| stuck.pid);
        self.peer.iter().map(Peer::pid).chain(stuck).collect()
    }

    /// Whether the server, whose processes have all ended, may end: nothing is left to be closed,
    /// or that takes too long. What is left is closed by the server's end, which waits for it.
    pub fn may_retire(&mut self, now: Moment) -> bool {
        let until = *self.last_until.get_or_insert(now.saturating_add(PIPE_LAST_WAIT));
        self.is_idle() || self.is_retired || now >= until
    }

    /// Ends it for good, since the server ends and all was read. Whether there was one.
    pub fn retire(&mut self) -> bool {
        let is_working = self.peer.is_some();
        self.is_retired = true;
        self.end();
        is_working
    }

    /// Whether nothing waits to be read or closed, but what is of a blocked pool.
    pub fn is_idle(&self) -> bool {
        self.orders.are_done() && self.taken.is_none() && !deferred_close::are_waiting()
    }

    fn is_wanted(&self) -> bool {
        let has_work = self.orders.are_waiting() || self.taken.is_some();
        !self.is_retired && (has_work || deferred_close::are_waiting())
    }

    /// Sends what is to be read and closed, and kills the process when it is late.
    pub fn keep(&mut self, context: PipeReaderContext<'_>) {
        let now = context.now;
        self.end_if_late(now);
        if self.peer.is_none() && self.is_wanted() && now >= self.start_at {
            match start(context) {
                Ok(peer) => {
                    self.peer = Some(peer);
                    self.starts_until = Some(now + PIPE_READER_START);
                }
                Err(why) => self.failed(&format!("could not be started: {why}"), now),
            }
        }
        self.send(now);
        self.end_if_idle(now);
    }

    fn send(&mut self, now: Moment) {
        let is_ready = self.starts_until.is_none();
        let Some(peer) = self.peer.as_mut().filter(|peer| is_ready && !peer.is_closed()) else {
            return;
        };
        peer.flush();
        while !peer.is_behind()
            && let Some(read) = self.orders.next_read(now)
        {
            peer.say(ToPipeReader::Read, &[read.pipe.as_fd()]);
        }
        self.close(now);
    }

    /// Has ends closed: the process gets them, then ours are closed, then the process closes its
    /// own.
    fn close(&mut self, now: Moment) {
        let Some(peer) = &mut self.peer else { return };
        if self.taken.is_none() && self.orders.have_room() && !peer.is_behind() {
            self.taken = deferred_close::take(PIPES_TAKEN_AT_ONCE);
            let Some(taken) = &self.taken else { return };
            let ends: Vec<BorrowedFd<'_>> = taken.ends.iter().map(AsFd::as_fd).collect();
            peer.say(ToPipeReader::Take, &ends);
        }
        // An order that is queued has duplicates of its own.
        if let Some(taken) = self.taken.take_if(|_| !peer.is_behind()) {
            drop(taken.ends);
            peer.say(ToPipeReader::Close, &[]);
            self.orders.close_sent(taken.pool, now);
        }
    }

    fn end_if_idle(&mut self, now: Moment) {
        let is_idle = self.peer.is_some() && self.starts_until.is_none() && self.is_idle();
        let until = self.idle_until.unwrap_or(now + PIPE_READER_IDLE);
        self.idle_until = is_idle.then_some(until);
        if is_idle && until <= now {
            self.end();
        }
    }

    fn end_if_late(&mut self, now: Moment) {
        let late = self.starts_until.or(self.orders.deadline());
        let Some(peer) = self.peer.as_ref().filter(|_| late.is_some_and(|until| until <= now))
        else {
            return;
        };
        if self.starts_until.is_some() {
            let limit = PIPE_READER_START.as_secs();
            self.end();
            return self.failed(&format!("does not take orders within {limit} s"), now);
        }
        // One that was stopped, or gets no processor, is no fault of the pipe.
        let waits_in_kernel = Stat::of(peer.pid()).and_then(|stat| stat.state()) == Some('D');
        let pid = peer.pid();
        if waits_in_kernel && let Some(late) = self.orders.give_up_first(now) {
            self.note_stuck(pid, late);
        }
        self.end();
    }

    /// A process waits for a lock of a pool.
    fn note_stuck(&mut self, pid: i32, late: LatePipeOrder) {
        let took = PIPE_TIMEOUT.as_secs();
        let pool = match late {
            LatePipeOrder::Read(pool) => {
                warn!(
                    "pool {pool}: reading the output of its processes took more than {took} s; it \
                     is not read for {} minutes. {LOCK_CAUSES}. After that time, `maitred reload \
                     {pool}` has it read again",
                    UNREAD_FOR.as_secs() / 60
                );
                pool
            }
            LatePipeOrder::Close(pool) => {
                warn!(
                    "pool {pool}: closing the output of its processes took more than {took} s. \
                     {LOCK_CAUSES}"
                );
                pool
            }
        };
        self.stuck.push(StuckPipeReader { pid, pool: pool.clone() });
        self.block();
        if deferred_close::is_blocked(&pool) {
            self.orders.refuse_all(&pool);
            error!(
                "pool {pool}: the locks of {PIPE_READERS_STUCK} pipes of its processes are held: \
                 no output of it is read, and neither its PHP nor a command of it is started, \
                 until one is released"
            );
        }
    }

    /// Receives the next report. False: there is none.
    pub fn hear(&mut self, now: Moment) -> bool {
        let Some(report) = self.peer.as_mut().and_then(Peer::hear::<FromPipeReader>) else {
            return false;
        };
        let was_due = match report {
            FromPipeReader::Ready => self.starts_until.take().is_some(),
            FromPipeReader::Read { outcome } => self.orders.read(outcome_of(outcome), now),
            FromPipeReader::Closed => self.orders.closed(now),
        };
        if was_due {
            self.backoff.succeeded();
        } else {
            self.end();
            self.failed("reports what it was not asked for", now);
        }
        true
    }

    /// A process has ended by itself, or was stuck.
    pub fn process_ended(&mut self, pid: i32, how: HowEnded, now: Moment) {
        if self.peer.as_ref().is_some_and(|peer| peer.pid() == pid) {
            self.forget();
            self.failed(&how.to_string(), now);
        }
        self.stuck.retain(|stuck| stuck.pid != pid);
        self.block();
    }

    /// Kills the process: the next program starts its own.
    pub fn end(&mut self) {
        if let Some(peer) = &self.peer {
            peer.signal(Signal::SIGKILL);
        }
        self.forget();
    }

    /// The process has gone. What it had no time for is for the next one.
    fn forget(&mut self) {
        (self.peer, self.starts_until, self.idle_until) = (None, None, None);
        self.orders.take_back();
        if let Some(taken) = self.taken.take() {
            deferred_close::close_later(taken);
        }
    }

    fn failed(&mut self, what: &str, now: Moment) {
        self.start_at = self.backoff.failed_within(now, START_BACKOFF_LONGEST);
        error!(
            "the process that reads the output of pools {what}; it is restarted, and no output is \
             lost"
        );
    }
}

fn outcome_of(outcome: PipeOutcome) -> ReadOutcome {
    match outcome {
        PipeOutcome::Bytes(text) => ReadOutcome::Bytes(text.bytes()),
        PipeOutcome::Nothing => ReadOutcome::Nothing,
        PipeOutcome::End => ReadOutcome::End,
        PipeOutcome::Failed { why } => ReadOutcome::Failed(why),
    }
}

fn start(context: PipeReaderContext<'_>) -> io::Result<Peer<ToPipeReader>> {
    let mut peer = Peer::start_role("maitred: pipes", PIPE_READER_ROLE, context.environment)?;
    let begin = ToPipeReader::Begin {
        supervisor: i32::try_from(std::process::id()).unwrap_or(0),
        identity: context.identity.cloned(),
        restricted: context.restricted,
    };
    peer.say(begin, &[]);
    Ok(peer)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_server_ends_when_what_tenants_can_lock_is_closed_but_waits_no_longer_than_a_limit() {
        let mut reader = PipeReader::default();
        let (end, _other) = std::io::pipe().unwrap();
        let ends = vec![Arc::new(end.into())];
        reader.taken = Some(PoolEnds { pool: "www".to_owned(), ends });
        assert!(!reader.may_retire(Moment::ZERO));
        assert!(reader.deadline().is_some_and(|due| due <= PIPE_LAST_WAIT));
        assert!(reader.may_retire(PIPE_LAST_WAIT));
        assert!(!reader.retire() && reader.may_retire(Moment::ZERO), "it closes nothing more");
    }

    #[test]
    fn a_pool_is_blocked_while_too_many_processes_wait_for_its_locks_and_no_other_is() {
        let stuck = |pid, pool: &str| StuckPipeReader { pid, pool: pool.to_owned() };
        let most = i32::try_from(PIPE_READERS_STUCK).unwrap();
        let mut all: Vec<_> = (0..most).map(|pid| stuck(pid, "of-many-locks")).collect();
        all.push(stuck(most, "of-one-lock"));
        let mut reader = PipeReader::new(all);
        let is_blocked = || deferred_close::is_blocked("of-many-locks");
        assert!(is_blocked() && !deferred_close::is_blocked("of-one-lock"));
        reader.process_ended(0, HowEnded::Signaled(9), Moment::ZERO);
        assert!(!is_blocked());
    }
}
