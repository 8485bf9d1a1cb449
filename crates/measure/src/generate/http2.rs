//! Connections of HTTP/2 (RFC 9113), each with slots for a number of concurrent streams. The crate
//! h2 implements the protocol.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use tokio::sync::OnceCell;
use tokio::time::{Instant, Sleep};

use super::connection::OpenCount;
use super::exchange::SendError;
use crate::marker::MarkerSearch;
use crate::outcome::Cause;
use crate::response::{MAX_HEAD_BYTES, ReadOptions, ResponseSummary};
use crate::stream::{Negotiated, Stream};

/// Flow-control window of a stream, in bytes. Data is read as it arrives, so this much is never
/// buffered.
const STREAM_WINDOW: u32 = 16 * 1024 * 1024;

/// Flow-control window of a connection.
const CONNECTION_WINDOW: u32 = 256 * 1024 * 1024;

/// The ALPN name of HTTP/2 (RFC 9113, 3.2).
pub const PROTOCOL: &[u8] = b"h2";

/// An established connection, or why there is none.
type Opened = Result<(SendRequest<Bytes>, OpenCount), Cause>;

/// A connection, and how many of its slots are taken.
#[derive(Debug, Default)]
struct PooledConnection {
    opened: OnceCell<Opened>,
    taken: Cell<usize>,
    /// A slot was returned, whose owner had a reason not to use it again.
    is_given_up: Cell<bool>,
    is_closed: Rc<Cell<bool>>,
    /// Whether it has carried a request.
    is_used: Cell<bool>,
}

/// The connections of a thread to one server.
#[derive(Debug, Default)]
pub struct Http2Pool {
    /// A connection is closed with its last slot.
    open: RefCell<Vec<Weak<PooledConnection>>>,
}

impl Http2Pool {
    /// A slot on a connection with fewer than `streams` taken, or on a new connection from
    /// `connect`.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn slot(
        &self,
        streams: usize,
        deadline: Instant,
        connect: impl AsyncFnOnce() -> Result<(Stream, Negotiated, OpenCount), Cause>,
    ) -> Result<StreamSlot, Cause> {
        let taken = SlotGuard::of(self.with_room(streams));
        let pooled = &taken.0;
        let is_closed = pooled.is_closed.clone();
        let opening = pooled.opened.get_or_init(|| async {
            let (stream, negotiated, counted) = connect().await?;
            if matches!(negotiated, Negotiated::Alpn(chosen) if chosen.as_deref() != Some(PROTOCOL))
            {
                return Err(Cause::Fault("the server chose another protocol than HTTP/2 (ALPN)"));
            }
            Ok((begin(stream, is_closed).await?, counted))
        });
        let opened = tokio::time::timeout_at(deadline, opening).await;
        let opened = opened.map_err(|_| Cause::ConnectTimedOut)?;
        let sender = match opened {
            Ok((sender, _)) => sender.clone(),
            Err(cause) => return Err(*cause),
        };
        Ok(StreamSlot {
            sender,
            taken,
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            search: MarkerSearch::default(),
        })
    }

    fn with_room(&self, streams: usize) -> Rc<PooledConnection> {
        let mut open = self.open.borrow_mut();
        open.retain(|pooled| pooled.strong_count() > 0);
        let mut alive = open.iter().filter_map(Weak::upgrade);
        let has_room = |pooled: &Rc<PooledConnection>| {
            pooled.taken.get() < streams && !pooled.is_given_up.get() && !pooled.is_closed.get()
        };
        if let Some(pooled) = alive.find(has_room) {
            return pooled;
        }
        let pooled = Rc::<PooledConnection>::default();
        open.push(Rc::downgrade(&pooled));
        pooled
    }
}

/// Starts HTTP/2 on a connection, which lives until its last slot is returned.
async fn begin(stream: Stream, is_closed: Rc<Cell<bool>>) -> Result<SendRequest<Bytes>, Cause> {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX));
    let (sender, connection) = builder.handshake(stream).await.map_err(|why| cause(&why))?;
    tokio::task::spawn_local(async move {
        // The streams report the error.
        let _ = connection.await;
        is_closed.set(true);
    });
    Ok(sender)
}

/// A taken slot; it is returned on drop.
#[derive(Debug)]
struct SlotGuard(Rc<PooledConnection>);

impl SlotGuard {
    fn of(pooled: Rc<PooledConnection>) -> SlotGuard {
        pooled.taken.set(pooled.taken.get() + 1);
        SlotGuard(pooled)
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.0.taken.set(self.0.taken.get().saturating_sub(1));
        self.0.is_given_up.set(true);
    }
}

/// A slot on a connection, which carries one stream at a time.
#[derive(Debug)]
pub struct StreamSlot {
    sender: SendRequest<Bytes>,
    taken: SlotGuard,
    /// Created once and then only reset.
    timer: Pin<Box<Sleep>>,
    search: MarkerSearch,
}

impl StreamSlot {
    /// Whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.taken.0.is_closed.get()
    }

    /// Sends a request and reads the response.
    ///
    /// # Errors
    /// Why there is no response.
    pub async fn send(
        &mut self,
        request: &Request<Bytes>,
        options: ReadOptions<'_>,
        deadline: Instant,
    ) -> Result<ResponseSummary, SendError> {
        self.timer.as_mut().reset(deadline);
        self.search.begin(options.marker);
        let mut has_begun = false;
        let exchanging =
            exchange(&mut self.sender, request, options, &mut self.search, &mut has_begun);
        let summary = tokio::select! {
            biased;
            summary = exchanging => summary,
            () = &mut self.timer => return Err(SendError::Cause(Cause::TimedOut)),
        };
        let pooled = &self.taken.0;
        let was_used = pooled.is_used.replace(true);
        summary.map_err(|why| {
            // Any error but a stream reset ends the whole connection.
            if !why.is_reset() {
                pooled.is_closed.set(true);
            }
            let never_seen = why.reason() == Some(Reason::REFUSED_STREAM)
                || was_used && why.is_remote() && why.reason() == Some(Reason::NO_ERROR)
                || was_used && (why.is_io() || why.reason().is_none());
            if never_seen && !has_begun {
                SendError::Stale(cause(&why))
            } else {
                SendError::Cause(cause(&why))
            }
        })
    }
}

async fn exchange(
    sender: &mut SendRequest<Bytes>,
    request: &Request<Bytes>,
    options: ReadOptions<'_>,
    search: &mut MarkerSearch,
    has_begun: &mut bool,
) -> Result<ResponseSummary, h2::Error> {
    poll_fn(|cx| sender.poll_ready(cx)).await?;
    let (head, body) = request.clone().into_parts();
    let head = Request::from_parts(head, ());
    let (response, stream) = sender.send_request(head, body.is_empty())?;
    let mut upload = Upload { stream, rest: body };
    let response = response_head(response, &mut upload).await?;
    *has_begun = true;
    let mut summary = summary_of(&response, options);
    let mut body = response.into_body();
    while let Some(part) = next_part(&mut body, &mut upload).await {
        let part = part?;
        summary.body_bytes += part.len() as u64;
        search.see(&part);
        body.flow_control().release_capacity(part.len())?;
    }
    summary.has_marker = search.found();
    Ok(summary)
}

/// A server may reject a request before it has read the body, so both are polled.
async fn response_head(
    mut response: ResponseFuture,
    upload: &mut Upload,
) -> Result<Response<RecvStream>, h2::Error> {
    poll_fn(|cx| {
        upload.poll(cx);
        Pin::new(&mut response).poll(cx)
    })
    .await
}

async fn next_part(body: &mut RecvStream, upload: &mut Upload) -> Option<Result<Bytes, h2::Error>> {
    poll_fn(|cx| {
        upload.poll(cx);
        body.poll_data(cx)
    })
    .await
}

/// A request body that is being sent.
struct Upload {
    stream: SendStream<Bytes>,
    rest: Bytes,
}

impl Upload {
    /// Sends as much as flow control allows. If the server takes no more, the response says why.
    fn poll(&mut self, cx: &mut Context<'_>) {
        while !self.rest.is_empty() {
            self.stream.reserve_capacity(self.rest.len());
            let room = self.stream.capacity().min(self.rest.len());
            if room > 0 {
                let part = self.rest.split_to(room);
                let is_last = self.rest.is_empty();
                if self.stream.send_data(part, is_last).is_err() {
                    self.rest.clear();
                }
                continue;
            }
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => self.rest.clear(),
                Poll::Pending => return,
            }
        }
    }
}

fn summary_of<T>(response: &Response<T>, options: ReadOptions<'_>) -> ResponseSummary {
    let mut summary = ResponseSummary {
        status: response.status().as_u16(),
        keep_alive: true,
        ..ResponseSummary::default()
    };
    for (name, value) in response.headers() {
        summary.take_header(name.as_str(), value.as_bytes(), options.cookies);
    }
    summary
}

/// Translates an error of h2.
fn cause(why: &h2::Error) -> Cause {
    match (why.get_io().map(io::Error::kind), why.reason()) {
        (Some(io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof), _) => {
            Cause::Fault("closed without a response")
        }
        (Some(io::ErrorKind::ConnectionReset), _) => {
            Cause::Io(nix::errno::Errno::ECONNRESET as i32)
        }
        (Some(_), _) => Cause::Fault("the connection failed; with TLS: the handshake or a record"),
        (None, Some(reason)) => Cause::Http2 { code: reason.into(), by_server: why.is_remote() },
        (None, None) => Cause::Fault("the connection takes no more requests"),
    }
}
