//! An upstream HTTP server, and the idle connections of one thread to it.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{HeaderMap, HeaderName};
use hyper_util::rt::TokioIo;
use maitred_rules::settings::Proxy;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until, timeout};

use crate::backend::fastcgi_upstream::{self, ByteStream};
use crate::http::transfers::{self, Transfer};
use crate::net::client_memory;
use crate::proxy::error::ProxyError;
use crate::proxy::stats::{AllProxyStats, ProxyStats};
use crate::proxy::upload::UploadBody;
use crate::runtime::thread::Paced;

/// Most idle connections of one thread to one server (nginx's `keepalive`).
const MAX_IDLE: usize = 32;
/// How long an idle connection is kept open (nginx's `keepalive_timeout` in `upstream`).
const KEEP: Duration = Duration::from_secs(60);
/// How long a connection may have been idle for a request that cannot be repeated. A server may
/// close an idle connection at any time; if it does so now, it may have taken the request.
const FRESH: Duration = Duration::from_secs(1);
/// Largest response header in bytes, and the most that is read of a body at once, while clients
/// leave memory to others.
const BUFFER_BYTES: usize = 128 * 1024;
/// Most headers of a response. hyper has room for all of them while it parses a header section:
/// 64 KiB.
const MAX_HEADERS: usize = 1024;

/// The upstream server of one `proxy` rule, in one thread.
#[derive(Debug)]
pub struct Server {
    /// The rule.
    pub rule: Proxy,
    /// Its address as configured.
    pub name: Arc<str>,
    /// Its statistics.
    pub stats: Arc<ProxyStats>,
    idle: Arc<Mutex<IdleLinks>>,
}

/// Idle connections.
#[derive(Debug, Default)]
struct IdleLinks {
    links: Vec<IdleLink>,
    /// Whether a task closes those that are idle for too long.
    is_watched: bool,
}

#[derive(Debug)]
struct IdleLink {
    link: Link,
    since: Instant,
    until: Instant,
}

/// A connection to a server, for one request at a time.
#[derive(Debug)]
pub struct Link {
    /// The sender for the request.
    pub sender: SendRequest<UploadBody>,
    /// Observes the bytes of the connection.
    pub tap: Arc<Tap>,
}

/// Byte counts of a connection, observed at its socket.
#[derive(Debug)]
pub struct Tap {
    begun: Instant,
    received: AtomicU64,
    /// The time of the last byte, in milliseconds since the connection was opened.
    moved: AtomicU64,
}

impl Tap {
    /// Bytes that the server has sent.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The time of the last byte.
    pub fn moved(&self) -> Instant {
        self.begun + Duration::from_millis(self.moved.load(Ordering::Relaxed))
    }

    fn stir(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Ordering::Relaxed);
    }
}

impl Server {
    /// The servers of these rules, without connections.
    pub fn all(rules: &[Proxy], stats: &AllProxyStats) -> Vec<Server> {
        let server = |rule: &Proxy| Server {
            rule: rule.clone(),
            name: rule.server().into(),
            stats: stats.of(&rule.server()),
            idle: Arc::default(),
        };
        rules.iter().map(server).collect()
    }

    /// An idle connection, if there is one. For a request that cannot be repeated, only a
    /// connection that became idle a moment ago.
    pub fn take(&self, can_repeat: bool) -> Option<Link> {
        let now = Instant::now();
        let mut idle = lock(&self.idle);
        while let Some(last) = idle.links.last() {
            let is_good = last.until > now && last.link.sender.is_ready();
            if is_good && !can_repeat && last.since + FRESH <= now {
                return None;
            }
            let popped = idle.links.pop();
            if is_good {
                return popped.map(|idle| idle.link);
            }
        }
        None
    }

    /// Returns a connection to the idle ones after a complete response, for this time.
    pub fn release(&self, link: Link, idle_timeout: Duration) {
        let now = Instant::now();
        let until = now + idle_timeout;
        let mut idle = lock(&self.idle);
        let is_over = link.sender.is_closed() || until == now;
        if is_over || idle.links.len() >= MAX_IDLE || !transfers::may_idle() {
            return;
        }
        idle.links.push(IdleLink { link, since: now, until });
        if !std::mem::replace(&mut idle.is_watched, true) {
            tokio::spawn(watch(Arc::downgrade(&self.idle), until));
        }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self) -> Result<Link, ProxyError> {
        let transfer = Transfer::begin(&self.name).ok_or(ProxyError::NoDescriptor)?;
        let opened =
            timeout(self.rule.connect_timeout, fastcgi_upstream::open(&self.rule.to)).await;
        let stream = opened
            .map_err(|_| ProxyError::NotAccepted)?
            .map_err(|error| ProxyError::Unreachable(error.to_string()))?;
        let tap = Arc::new(Tap {
            begun: Instant::now(),
            received: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        });
        let wire = UpstreamStream { stream, tap: tap.clone(), _transfer: transfer };
        let mut builder = Builder::new();
        builder.max_buf_size(BUFFER_BYTES).max_headers(MAX_HEADERS);
        let (sender, connection) = builder
            .handshake(TokioIo::new(wire))
            .await
            .map_err(|error| ProxyError::Broken(describe(&error)))?;
        tokio::spawn(Paced::new(async move {
            // The request that waits for the response gets the error.
            let _ = connection.with_upgrades().await;
        }));
        self.stats.connected();
        Ok(Link { sender, tap })
    }
}

/// The idle timeout of a connection from the server's `Keep-Alive` header, minus a second for the
/// network, and bounded.
pub fn idle_timeout(header: &HeaderMap) -> Duration {
    let says = header.get(HeaderName::from_static("keep-alive"));
    let says = says.and_then(|value| value.to_str().ok());
    let seconds = says.and_then(|text| {
        let mut parts = text.split(',').map(str::trim);
        parts.find_map(|part| part.strip_prefix("timeout=")?.parse::<u64>().ok())
    });
    let says = seconds.map(|seconds| Duration::from_secs(seconds.saturating_sub(1)));
    says.map_or(KEEP, |says| says.min(KEEP))
}

/// Closes connections that are idle for too long, until there are none.
async fn watch(idle: Weak<Mutex<IdleLinks>>, mut next: Instant) {
    loop {
        sleep_until(next).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut idle = lock(&idle);
        let now = Instant::now();
        idle.links.retain(|idle| idle.until > now && !idle.link.sender.is_closed());
        match idle.links.iter().map(|idle| idle.until).min() {
            Some(until) => next = until,
            None => {
                idle.is_watched = false;
                return;
            }
        }
    }
}

fn lock(idle: &Mutex<IdleLinks>) -> MutexGuard<'_, IdleLinks> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error with its cause, as the end of a sentence.
pub fn describe(error: &hyper::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The bytes of a connection, with an observer.
pub struct UpstreamStream {
    stream: Box<dyn ByteStream>,
    /// The observer.
    pub tap: Arc<Tap>,
    _transfer: Transfer,
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let most = client_memory::limit(BUFFER_BYTES);
        if most < into.remaining() {
            // What clients do not read waits in pieces of this size.
            let mut part = ReadBuf::new(into.initialize_unfilled_to(most));
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
            let count = part.filled().len();
            into.advance(count);
        } else {
            ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        }
        let count = into.filled().len() - before;
        self.tap.received.fetch_add(count as u64, Ordering::Relaxed);
        self.tap.stir();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.tap.stir();
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, pieces))?;
        self.tap.stir();
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn a_connection_is_kept_for_less_than_its_server_says() {
        let of = |value: &'static str| {
            let mut header = HeaderMap::new();
            header.insert("keep-alive", HeaderValue::from_static(value));
            idle_timeout(&header).as_secs()
        };
        assert_eq!(of("timeout=5"), 4);
        assert_eq!(of("max=3, timeout=20"), 19);
        assert_eq!(of("timeout=0"), 0);
        assert_eq!(of("timeout=3600"), 60);
        assert_eq!(of("whatever"), 60);
        assert_eq!(idle_timeout(&HeaderMap::new()), KEEP);
    }
}
