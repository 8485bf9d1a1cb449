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
    Serial(SerialConnection),
    /// A stream slot on a connection of HTTP/2.
    Shared(StreamSlot),
}

impl Connection {
    /// Sends a request and reads the response.
    ///
    /// # Errors
    /// Why there is no response.
    pub async fn send(
        &mut self,
        encoded: &EncodedRequest,
        options: ReadOptions<'_>,
        deadline: Instant,
    ) -> Result<ResponseSummary, SendError> {
        match (self, encoded) {
            (Connection::Serial(serial), EncodedRequest::Bytes(bytes)) => {
                serial.send(bytes, options, deadline).await
            }
            (Connection::Shared(slot), EncodedRequest::Http2(request)) => {
                slot.send(request, options, deadline).await
            }
            _ => Err(SendError::Cause(Cause::Fault("a request of another protocol"))),
        }
    }

    /// Whether it can carry another request after this result.
    pub fn is_reusable(&self, response: &Result<ResponseSummary, SendError>) -> bool {
        match self {
            Connection::Serial(_) => response.as_ref().is_ok_and(|response| response.keep_alive),
            // A failed stream does not affect the others. A timeout may affect all of them.
            Connection::Shared(slot) => {
                let timed_out = Err(SendError::Cause(Cause::TimedOut));
                !slot.is_closed() && *response != timed_out
            }
        }
    }

    /// Whether the connection is known to be closed.
    pub fn is_closed(&self) -> bool {
        match self {
            Connection::Serial(_) => false,
            Connection::Shared(slot) => slot.is_closed(),
        }
    }

    /// Ready when an idle connection can no longer be used. A shared connection shows that when it
    /// is needed.
    pub fn poll_useless(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Connection::Serial(serial) => serial.poll_useless(cx),
            Connection::Shared(_) => Poll::Pending,
        }
    }
}
