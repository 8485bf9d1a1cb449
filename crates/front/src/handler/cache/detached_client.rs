//! A client whose request fills the cache: the response is fetched to its end, also when the client
//! has closed the connection.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::http::client::Client;

/// Whether the response is still wanted after the client has disconnected.
#[derive(Debug, Clone, Default)]
pub struct WantedFlag(Arc<WantedParts>);

#[derive(Debug, Default)]
struct WantedParts {
    /// The response, by other requests.
    page: AtomicBool,
    /// The header, once a script runs: it says which pages the request has changed.
    header: AtomicBool,
}

impl WantedFlag {
    /// Other requests wait for the response.
    pub fn want_page(&self) {
        self.0.page.store(true, Ordering::Relaxed);
    }

    /// The script may change what is cached.
    pub fn want_header(&self) {
        self.0.header.store(true, Ordering::Relaxed);
    }

    /// The header is there.
    pub fn have_header(&self) {
        self.0.header.store(false, Ordering::Relaxed);
    }

    /// The client alone wants the rest.
    pub fn clear(&self) {
        self.0.page.store(false, Ordering::Relaxed);
        self.0.header.store(false, Ordering::Relaxed);
    }

    fn has_page(&self) -> bool {
        self.0.page.load(Ordering::Relaxed)
    }

    fn has_any(&self) -> bool {
        self.has_page() || self.0.header.load(Ordering::Relaxed)
    }
}

/// A client whose disconnect does not cancel the request while the response is wanted (nginx's
/// `proxy_ignore_client_abort`).
pub struct DetachedClient<'a, C> {
    client: &'a mut C,
    wanted: Option<WantedFlag>,
    /// Whether the client has closed the connection.
    pub has_gone: bool,
    /// The client has got another response, and none of this one.
    has_response: bool,
}

impl<'a, C> DetachedClient<'a, C> {
    /// Wraps `client` for a response that may be `wanted` without it. With `has_response`,
    /// the client already has a response and gets nothing of this one.
    pub fn new(
        client: &'a mut C,
        wanted: Option<WantedFlag>,
        has_response: bool,
    ) -> DetachedClient<'a, C> {
        DetachedClient { client, wanted, has_gone: has_response, has_response }
    }

    fn is_wanted(&self) -> bool {
        self.wanted.as_ref().is_some_and(WantedFlag::has_any)
    }

    /// Notes that the client has closed the connection. An error only if nothing but the client
    /// wants the response.
    fn client_gone(&mut self, error: io::Error) -> io::Result<()> {
        self.has_gone = true;
        let is_wanted = self.has_response || self.is_wanted();
        if is_wanted { Ok(()) } else { Err(error) }
    }
}

impl<C: Client> Client for DetachedClient<'_, C> {
    type Head = C::Head;

    async fn gone(&mut self) {
        if !self.has_gone {
            self.client.gone().await;
            self.has_gone = true;
        }
        // No script has run: there is nothing yet that its header could say.
        if self.wanted.as_ref().is_some_and(WantedFlag::has_page) {
            pending::<()>().await;
        }
    }

    async fn gone_later(&mut self) {
        if !self.has_gone {
            self.client.gone_later().await;
            self.has_gone = true;
        }
        if self.is_wanted() {
            pending::<()>().await;
        }
    }

    fn begin(&mut self, head: C::Head) -> io::Result<()> {
        if self.has_gone {
            return self.client_gone(io::ErrorKind::ConnectionAborted.into());
        }
        let begun = self.client.begin(head);
        begun.or_else(|error| self.client_gone(error))
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = if self.has_gone {
            Err(io::ErrorKind::ConnectionAborted.into())
        } else {
            self.client.try_send(bytes)
        };
        sent.or_else(|error| self.client_gone(error).map(|()| bytes.len()))
    }

    fn has_promised(&self) -> bool {
        self.client.has_promised()
    }

    async fn sendable(&mut self) -> io::Result<()> {
        let sendable = if self.has_gone {
            Err(io::ErrorKind::ConnectionAborted.into())
        } else {
            self.client.sendable().await
        };
        sendable.or_else(|error| self.client_gone(error))
    }

    fn spool_bytes(&self) -> usize {
        self.client.spool_bytes()
    }
}
