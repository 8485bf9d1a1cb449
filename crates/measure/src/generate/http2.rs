//! Connections of HTTP/2 (RFC 9113), each with places for so many requests at a time. The crate h2
//! speaks the protocol.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response, header};
use tokio::sync::OnceCell;
use tokio::time::{Instant, Sleep};

use super::connection::OpenCount;
use super::exchange::SendError;
use crate::outcome::Cause;
use crate::response::{MAX_COOKIES, MAX_HEAD_BYTES, MarkerSearch, ReadOptions, ResponseSummary};
use crate::stream::{Negotiated, Stream};

/// How much may be on its way to us on a stream before we say that it has come, in bytes. It is
/// read as it comes, so nothing holds as much.
const STREAM_WINDOW: u32 = 16 * 1024 * 1024;

/// The same for a connection.
const CONNECTION_WINDOW: u32 = 256 * 1024 * 1024;

/// How HTTP/2 is called in a handshake of TLS (RFC 9113, 3.2).
pub const PROTOCOL: &[u8] = b"h2";

/// How a connection is made.
type Opened = Result<(SendRequest<Bytes>, OpenCount), Cause>;

/// A connection and how many of its places are taken.
#[derive(Debug, Default)]
struct PooledConnection {
    opened: OnceCell<Opened>,
    taken: Cell<usize>,
    /// Whoever gave a place back had a reason not to take it again.
    is_given_up: Cell<bool>,
    is_gone: Rc<Cell<bool>>,
    /// Whether it has carried a request.
    is_used: Cell<bool>,
}

/// The connections of a thread to one server.
#[derive(Debug, Default)]
pub struct Http2Pool {
    /// A connection ends with the last that has a place on it.
    open: RefCell<Vec<Weak<PooledConnection>>>,
}

impl Http2Pool {
    /// A place on a connection with less than `streams` others, or on a new one that `connect`
    /// makes.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn place(
        &self,
        streams: usize,
        deadline: Instant,
        connect: impl AsyncFnOnce() -> Result<(Stream, Negotiated, OpenCount), Cause>,
    ) -> Result<StreamSlot, Cause> {
        let taken = SlotGuard::of(self.with_room(streams));
        let pooled = &taken.0;
        let is_gone = pooled.is_gone.clone();
        let opening = pooled.opened.get_or_init(|| async {
            let (stream, negotiated, counted) = connect().await?;
            if matches!(negotiated, Negotiated::Alpn(chosen) if chosen.as_deref() != Some(PROTOCOL))
            {
                return Err(Cause::Fault(
                    "the server chose another protocol than HTTP/2 (ALPN)",
                ));
            }
            Ok((begin(stream, is_gone).await?, counted))
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
            pooled.taken.get() < streams && !pooled.is_given_up.get() && !pooled.is_gone.get()
        };
        if let Some(pooled) = alive.find(has_room) {
            return pooled;
        }
        let pooled = Rc::<PooledConnection>::default();
        open.push(Rc::downgrade(&pooled));
        pooled
    }
}

/// Begins to speak on a connection, which works until nobody has a place on it.
async fn begin(stream: Stream, is_gone: Rc<Cell<bool>>) -> Result<SendRequest<Bytes>, Cause> {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX));
    let (sender, connection) = builder.handshake(stream).await.map_err(|why| cause(&why))?;
    tokio::task::spawn_local(async move {
        // Those who have options are told.
        let _ = connection.await;
        is_gone.set(true);
    });
    Ok(sender)
}

/// A place that is taken, as long as this is kept.
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

/// A place on a connection, which carries one request at a time.
#[derive(Debug)]
pub struct StreamSlot {
    sender: SendRequest<Bytes>,
    taken: SlotGuard,
    /// Armed once and then only moved on.
    timer: Pin<Box<Sleep>>,
    search: MarkerSearch,
}

impl StreamSlot {
    /// Whether its connection has ended.
    pub fn is_gone(&self) -> bool {
        self.taken.0.is_gone.get()
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask(
        &mut self,
        head: &Request<()>,
        body: &Bytes,
        options: ReadOptions<'_>,
        deadline: Instant,
    ) -> Result<ResponseSummary, SendError> {
        self.timer.as_mut().reset(deadline);
        self.search.begin(options.marker);
        let mut began = false;
        let talking = talk(
            &mut self.sender,
            (head, body),
            options,
            &mut self.search,
            &mut began,
        );
        let answer = tokio::select! {
            biased;
            answer = talking => answer,
            () = &mut self.timer => return Err(SendError::Cause(Cause::TimedOut)),
        };
        let pooled = &self.taken.0;
        let was_used = pooled.is_used.replace(true);
        answer.map_err(|why| {
            // Anything but the end of this one stream is the end of all.
            if !why.is_reset() {
                pooled.is_gone.set(true);
            }
            let never_seen = why.reason() == Some(Reason::REFUSED_STREAM)
                || was_used && why.is_remote() && why.reason() == Some(Reason::NO_ERROR)
                || was_used && (why.is_io() || why.reason().is_none());
            if never_seen && !began {
                SendError::Stale(cause(&why))
            } else {
                SendError::Cause(cause(&why))
            }
        })
    }
}

async fn talk(
    sender: &mut SendRequest<Bytes>,
    (head, body): (&Request<()>, &Bytes),
    options: ReadOptions<'_>,
    search: &mut MarkerSearch,
    began: &mut bool,
) -> Result<ResponseSummary, h2::Error> {
    poll_fn(|cx| sender.poll_ready(cx)).await?;
    let (response, stream) = sender.send_request(head.clone(), body.is_empty())?;
    let mut upload = Upload {
        stream,
        rest: body.clone(),
    };
    let response = answered(response, &mut upload).await?;
    *began = true;
    let mut answer = answer_of(&response, options);
    let mut body = response.into_body();
    while let Some(part) = part_of(&mut body, &mut upload).await {
        let part = part?;
        answer.body_bytes += part.len() as u64;
        search.see(&part);
        body.flow_control().release_capacity(part.len())?;
    }
    answer.has_marker = search.found();
    Ok(answer)
}

/// Who refuses a body says so before it has come, so both are waited for.
async fn answered(
    mut response: ResponseFuture,
    upload: &mut Upload,
) -> Result<Response<RecvStream>, h2::Error> {
    poll_fn(|cx| {
        upload.poll(cx);
        Pin::new(&mut response).poll(cx)
    })
    .await
}

async fn part_of(body: &mut RecvStream, upload: &mut Upload) -> Option<Result<Bytes, h2::Error>> {
    poll_fn(|cx| {
        upload.poll(cx);
        body.poll_data(cx)
    })
    .await
}

/// A request's body on its way.
struct Upload {
    stream: SendStream<Bytes>,
    rest: Bytes,
}

impl Upload {
    /// Sends as much as the server takes. Where it takes no more, the answer says why.
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

fn answer_of<T>(response: &Response<T>, options: ReadOptions<'_>) -> ResponseSummary {
    let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let fields = response.headers();
    let location = fields.get(header::LOCATION);
    let location = location.filter(|_| response.status().is_redirection());
    let cookies = fields.get_all(header::SET_COOKIE).into_iter();
    let cookies = cookies.take(if options.cookies { MAX_COOKIES } else { 0 });
    let pair = |cookie: String| {
        let pair = cookie.split(';').next().unwrap_or_default();
        pair.trim().to_owned()
    };
    ResponseSummary {
        status: response.status().as_u16(),
        keep_alive: true,
        location: location.map(text),
        cookies: cookies.map(|cookie| pair(text(cookie))).collect(),
        has_retry_after: fields.contains_key(header::RETRY_AFTER),
        ..ResponseSummary::default()
    }
}

/// What an error of h2's says.
fn cause(why: &h2::Error) -> Cause {
    match (why.get_io().map(io::Error::kind), why.reason()) {
        (Some(io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof), _) => {
            Cause::Fault("closed without an answer")
        }
        (Some(io::ErrorKind::ConnectionReset), _) => {
            Cause::Io(nix::errno::Errno::ECONNRESET as i32)
        }
        (Some(_), _) => Cause::Fault("the connection failed; with TLS: the handshake or a record"),
        (None, Some(reason)) => Cause::Http2 {
            code: reason.into(),
            by_server: why.is_remote(),
        },
        (None, None) => Cause::Fault("the connection takes no more requests"),
    }
}
