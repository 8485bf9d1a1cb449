//! The supervisor's ends of the pipes that code of pools can write to. A program can hold the lock
//! of such a pipe for as long as it likes, and reading and closing take it. So they are polled only
//! (which takes no lock), read by another process (`processes/pipe_reader.rs`), and closed by it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::limits::{Moment, PIPE_REST_BYTES, PIPE_REST_WAIT};
use crate::system::deferred_close::{PoolEnds, close_later};

/// The number of the next pipe.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// An end of a pipe. Dropped, it is closed by the process that reads pipes.
#[derive(Debug)]
pub struct TenantPipe {
    /// The pool whose code can write to it.
    pool: String,
    end: Arc<OwnedFd>,
    number: u64,
    is_ordered: bool,
    is_over: bool,
    rest: Option<PipeRest>,
}

/// The last reads of a pipe whose process has ended. Processes that it has left behind may write on
/// without end.
#[derive(Debug, Clone, Copy)]
struct PipeRest {
    until: Moment,
    bytes: usize,
}

/// A pipe that is to be read.
#[derive(Debug, Clone)]
pub struct PipeRead {
    /// Its number.
    pub number: u64,
    /// The pool whose code can write to it.
    pub pool: String,
    /// The end for reading.
    pub pipe: Arc<OwnedFd>,
}

/// The outcome of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Bytes of it.
    Bytes(Vec<u8>),
    /// It was empty.
    Nothing,
    /// No process can write to it any more.
    End,
    /// It cannot be read, for this reason.
    Failed(String),
}

impl TenantPipe {
    /// This end of a pipe that the code of this pool can write to.
    pub fn new(end: OwnedFd, pool: &str) -> TenantPipe {
        TenantPipe {
            pool: pool.to_owned(),
            end: Arc::new(end),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            is_ordered: false,
            is_over: false,
            rest: None,
        }
    }

    /// Its number: no other pipe has it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The end to poll, unless it is being read or nothing more comes.
    pub fn listening(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_ordered && !self.is_over).then(|| self.end.as_fd())
    }

    /// It is to be read.
    pub fn order(&mut self) -> PipeRead {
        self.is_ordered = true;
        PipeRead { number: self.number, pool: self.pool.clone(), pipe: Arc::clone(&self.end) }
    }

    /// It was read.
    pub fn was_read(&mut self, outcome: &ReadOutcome) {
        self.is_ordered = false;
        match outcome {
            ReadOutcome::Nothing => {}
            ReadOutcome::Bytes(bytes) => {
                if let Some(rest) = &mut self.rest {
                    rest.bytes = rest.bytes.saturating_add(bytes.len());
                }
            }
            ReadOutcome::End | ReadOutcome::Failed(_) => self.is_over = true,
        }
    }

    /// Whether nothing is left to be read of a process that has ended.
    pub fn is_drained(&mut self, now: Moment) -> bool {
        let first = PipeRest { until: now.saturating_add(PIPE_REST_WAIT), bytes: 0 };
        let rest = *self.rest.get_or_insert(first);
        let is_enough = now >= rest.until || rest.bytes >= PIPE_REST_BYTES;
        is_enough || self.is_over || !(self.is_ordered || self.has_input())
    }

    /// When the rest of it has taken too long.
    pub fn deadline(&self) -> Option<Moment> {
        self.rest.map(|rest| rest.until)
    }

    fn has_input(&self) -> bool {
        let mut polled = [PollFd::new(&*self.end, PollFlags::IN)];
        let at_once = Timespec::default();
        poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::IN)
    }
}

impl AsFd for TenantPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl AsRawFd for TenantPipe {
    fn as_raw_fd(&self) -> RawFd {
        self.end.as_raw_fd()
    }
}

impl Drop for TenantPipe {
    fn drop(&mut self) {
        let (pool, ends) = (std::mem::take(&mut self.pool), vec![Arc::clone(&self.end)]);
        close_later(PoolEnds { pool, ends });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::deferred_close::left;

    fn pipe() -> (TenantPipe, std::io::PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        (TenantPipe::new(reader.into(), "www"), writer)
    }

    #[test]
    fn a_pipe_is_polled_unless_it_is_being_read_or_is_over() {
        let (mut pipe, _writer) = pipe();
        assert!(pipe.listening().is_some());
        assert_eq!(pipe.order().number, pipe.number());
        assert!(pipe.listening().is_none());
        pipe.was_read(&ReadOutcome::Nothing);
        assert!(pipe.listening().is_some());
        for outcome in [ReadOutcome::End, ReadOutcome::Failed(String::new())] {
            pipe.was_read(&outcome);
            assert!(pipe.listening().is_none());
        }
    }

    #[test]
    fn the_rest_of_a_pipe_is_read_but_neither_for_ever_nor_without_end() {
        let (mut pipe, writer) = pipe();
        assert!(pipe.is_drained(Moment::ZERO));
        rustix::io::write(&writer, b"last").unwrap();
        assert!(!pipe.is_drained(Moment::ZERO));
        let _read = pipe.order();
        assert!(!pipe.is_drained(Moment::ZERO) && pipe.is_drained(PIPE_REST_WAIT));
        pipe.was_read(&ReadOutcome::Bytes(vec![0; PIPE_REST_BYTES]));
        assert!(pipe.is_drained(Moment::ZERO), "others may write on");
    }

    #[test]
    fn an_end_that_is_dropped_is_still_open_and_waits_for_its_close() {
        let (pipe, writer) = pipe();
        let end = ("www".to_owned(), pipe.as_raw_fd());
        assert!(!left().contains(&end));
        drop(pipe);
        assert!(left().contains(&end));
        assert!(rustix::io::write(&writer, b"x").is_ok());
    }
}
