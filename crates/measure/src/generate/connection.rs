//! A connection as senders see it: a connection of their own, or a stream slot on a shared one.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::exchange::{SendError, SerialConnection};
use super::http2::StreamSlot;
use crate::outcome::Cause;
use crate::request::EncodedRequest;
use crate::response::{ReadOptions, ResponseSummary};

/// Counts an open connection as long as it exists.
#[derive(Debug)]
pub struct OpenCount(Rc<Cell<u64>>);

impl OpenCount {
    /// Counts one more connection.
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

/// Carries one request at a time.
#[derive(Debug)]
pub enum Connection {
    /// A connection of its own.
    SerialConnection(SerialConnection),
    /// A stream slot on a connection of HTTP/2.
    Shared(StreamSlot),
}

impl Connection {
    /// Sends a request and reads the response.
    ///
    /// # Errors
    /// Why there is no response.
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
            (Connection::Shared(slot), EncodedRequest::Http2(request)) => {
                slot.ask(request, options, deadline).await
            }
            _ => Err(SendError::Cause(Cause::Fault(
                "a request of another protocol",
            ))),
        }
    }

    /// Whether it can carry another request after this result.
    pub fn is_reusable(&self, answer: &Result<ResponseSummary, SendError>) -> bool {
        match self {
            Connection::SerialConnection(_) => {
                answer.as_ref().is_ok_and(|answer| answer.keep_alive)
            }
            // A failed stream does not affect the others. A timeout may affect all of them.
            Connection::Shared(place) => {
                let timed_out = Err(SendError::Cause(Cause::TimedOut));
                !place.is_gone() && *answer != timed_out
            }
        }
    }

    /// Whether the connection is known to be closed.
    pub fn is_gone(&self) -> bool {
        match self {
            Connection::SerialConnection(_) => false,
            Connection::Shared(place) => place.is_gone(),
        }
    }

    /// Ready when an idle connection can no longer be used. A shared connection shows that when it
    /// is needed.
    pub fn poll_useless(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Connection::SerialConnection(single) => single.poll_useless(cx),
            Connection::Shared(_) => Poll::Pending,
        }
    }
}
