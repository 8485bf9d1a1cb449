//! A connection as those who send have it: one of their own, or a stream's place on one that they
//! share with others.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::exchange::{Single, Trouble};
use super::http2::Place;
use crate::answer::{Answer, Asked};
use crate::outcome::Cause;
use crate::request::Said;

/// A connection that is open, as long as this is kept.
#[derive(Debug)]
pub struct Counted(Rc<Cell<u64>>);

impl Counted {
    /// One more of those that are counted there.
    pub fn new(open: &Rc<Cell<u64>>) -> Counted {
        open.set(open.get() + 1);
        Counted(open.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// What carries one request at a time.
#[derive(Debug)]
pub enum Connection {
    /// A connection of one's own.
    Single(Single),
    /// A place on a connection of HTTP/2.
    Shared(Place),
}

impl Connection {
    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask(
        &mut self,
        said: &Said,
        asked: Asked<'_>,
        deadline: Instant,
    ) -> Result<Answer, Trouble> {
        match (self, said) {
            (Connection::Single(single), Said::Bytes(bytes)) => {
                single.ask(bytes, asked, deadline).await
            }
            (Connection::Shared(place), Said::Fields(head, body)) => {
                place.ask(head, body, asked, deadline).await
            }
            _ => Err(Trouble::Cause(Cause::Fault(
                "a request of another protocol",
            ))),
        }
    }

    /// Whether it can carry another request after it has carried one with this end.
    pub fn keeps(&self, answer: &Result<Answer, Trouble>) -> bool {
        match self {
            Connection::Single(_) => answer.as_ref().is_ok_and(|answer| answer.keeps),
            // A stream that fails leaves the others alone. One that hangs may not be alone.
            Connection::Shared(place) => {
                let timed_out = Err(Trouble::Cause(Cause::TimedOut));
                !place.is_gone() && *answer != timed_out
            }
        }
    }

    /// Whether it is known that it carries nothing any more.
    pub fn is_gone(&self) -> bool {
        match self {
            Connection::Single(_) => false,
            Connection::Shared(place) => place.is_gone(),
        }
    }

    /// Ready when an idle connection is of no use any more. That of a shared one shows when it is
    /// needed.
    pub fn poll_useless(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Connection::Single(single) => single.poll_useless(cx),
            Connection::Shared(_) => Poll::Pending,
        }
    }
}
