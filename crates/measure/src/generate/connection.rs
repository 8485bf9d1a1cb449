//! A connection as those who send have it: one of their own, or a stream's place on one that they
//! share with others.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::exchange::{SendError, SerialConnection};
use super::http2::StreamSlot;
use crate::outcome::Cause;
use crate::request::EncodedRequest;
use crate::response::{ReadOptions, ResponseSummary};

/// A connection that is open, as long as this is kept.
#[derive(Debug)]
pub struct OpenCount(Rc<Cell<u64>>);

impl OpenCount {
    /// One more of those that are counted there.
    pub fn new(open: &Rc<Cell<u64>>) -> OpenCount {
        open.set(open.get() + 1);
        OpenCount(open.clone())
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// What carries one request at a time.
#[derive(Debug)]
pub enum Connection {
    /// A connection of one's own.
    SerialConnection(SerialConnection),
    /// A place on a connection of HTTP/2.
    Shared(StreamSlot),
}

impl Connection {
    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask(
        &mut self,
        encoded: &EncodedRequest,
        options: ReadOptions<'_>,
        deadline: Instant,
    ) -> Result<ResponseSummary, SendError> {
        match (self, encoded) {
            (Connection::SerialConnection(single), EncodedRequest::Bytes(bytes)) => {
                single.ask(bytes, options, deadline).await
            }
            (Connection::Shared(place), EncodedRequest::Fields(head, body)) => {
                place.ask(head, body, options, deadline).await
            }
            _ => Err(SendError::Cause(Cause::Fault(
                "a request of another protocol",
            ))),
        }
    }

    /// Whether it can carry another request after it has carried one with this end.
    pub fn is_reusable(&self, answer: &Result<ResponseSummary, SendError>) -> bool {
        match self {
            Connection::SerialConnection(_) => {
                answer.as_ref().is_ok_and(|answer| answer.keep_alive)
            }
            // A stream that fails leaves the others alone. One that hangs may not be alone.
            Connection::Shared(place) => {
                let timed_out = Err(SendError::Cause(Cause::TimedOut));
                !place.is_gone() && *answer != timed_out
            }
        }
    }

    /// Whether it is known that it carries nothing any more.
    pub fn is_gone(&self) -> bool {
        match self {
            Connection::SerialConnection(_) => false,
            Connection::Shared(place) => place.is_gone(),
        }
    }

    /// Ready when an idle connection is of no use any more. That of a shared one shows when it is
    /// needed.
    pub fn poll_useless(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Connection::SerialConnection(single) => single.poll_useless(cx),
            Connection::Shared(_) => Poll::Pending,
        }
    }
}
