//! A client for whom an answer is made that is kept: it is made to its end, also when the client has
//! gone.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::http::client::Client;

/// Whether an answer is wanted whether or not its client is still there.
pub type Wanted = Arc<AtomicBool>;

/// A client whose going ends nothing as long as the answer is wanted.
pub struct DetachedClient<'a, C> {
    client: &'a mut C,
    wanted: Option<Wanted>,
    /// It has gone.
    pub has_gone: bool,
    /// It has had its answer: nothing of this one is for it.
    has_answer: bool,
}

impl<'a, C> DetachedClient<'a, C> {
    /// `client`, for an answer that is `wanted`, if anybody else wants it, and by nobody else if the
    /// client `has_answer`.
    pub fn new(
        client: &'a mut C,
        wanted: Option<Wanted>,
        has_answer: bool,
    ) -> DetachedClient<'a, C> {
        DetachedClient {
            client,
            wanted,
            has_gone: has_answer,
            has_answer,
        }
    }

    fn goes_on(&self) -> bool {
        let wanted = self.wanted.as_ref();
        wanted.is_some_and(|wanted| wanted.load(Ordering::Relaxed))
    }

    /// The client has gone, which only counts if nobody else wants the answer.
    fn gone_with(&mut self, error: io::Error) -> io::Result<()> {
        self.has_gone = true;
        let goes_on = self.has_answer || self.goes_on();
        if goes_on { Ok(()) } else { Err(error) }
    }
}

impl<C: Client> Client for DetachedClient<'_, C> {
    type Head = C::Head;

    async fn gone(&mut self) {
        if !self.has_gone {
            self.client.gone().await;
            self.has_gone = true;
        }
        if self.goes_on() {
            pending::<()>().await;
        }
    }

    async fn gone_later(&mut self) {
        if !self.has_gone {
            self.client.gone_later().await;
            self.has_gone = true;
        }
        if self.goes_on() {
            pending::<()>().await;
        }
    }

    fn begin(&mut self, head: C::Head) -> io::Result<()> {
        if self.has_gone {
            return self.gone_with(io::ErrorKind::ConnectionAborted.into());
        }
        let begun = self.client.begin(head);
        begun.or_else(|error| self.gone_with(error))
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = match self.has_gone {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => self.client.try_send(bytes),
        };
        sent.or_else(|error| self.gone_with(error).map(|()| bytes.len()))
    }

    async fn sendable(&mut self) -> io::Result<()> {
        let sendable = match self.has_gone {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => self.client.sendable().await,
        };
        sendable.or_else(|error| self.gone_with(error))
    }

    fn spool_bytes(&self) -> usize {
        self.client.spool_bytes()
    }
}
