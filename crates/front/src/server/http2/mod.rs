//! HTTP/2 (RFC 9113): the concurrent requests of one connection. The crate h2 implements the
//! protocol; this module has the server's part: which requests are served, with which limits and
//! timeouts.

pub(crate) mod abuse;
pub(crate) mod client;
pub(crate) mod connection_state;
pub(crate) mod frames;
pub(crate) mod head;
pub(crate) mod header_timeout;
pub(crate) mod pace;
pub(crate) mod request_body;
pub(crate) mod stream_accounts;
pub(crate) mod trailers;
pub(crate) mod transport;
pub(crate) mod unsent_heads;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use maitred_http1::{HTTP2_PREFACE, Head, Limits, Pseudo};
use tokio::time::{Instant, Sleep};

use crate::handler::request;
use crate::http::client::{After, HttpClient};
use crate::net::client_rate::{ANSWER_GRACE, TooSlow};
use crate::runtime::thread::{self, Paced};
use crate::server::http1::connection::Connection;
use crate::server::http2::client::Http2Client;
use crate::server::http2::connection_state::ConnectionState;
use crate::server::http2::header_timeout::OpenFields;
use crate::server::http2::stream_accounts::StreamAccounts;
use crate::server::http2::transport::Transport;
use crate::services::Shared;
use crate::services::idle_connections::{IDLE, IdleConnection};
use crate::services::lifecycle::ConnectionGuard;

/// Most concurrent requests of a connection (nginx's `http2_max_concurrent_streams`).
const MAX_STREAMS: u32 = 128;
/// Flow-control window of a stream in bytes.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Flow-control window of a connection in bytes. That of a trusted proxy grows with its bodies, by
/// at most [`STREAM_WINDOW`] for each of [`MAX_STREAMS`].
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Bytes by which the pieces of bodies that are not read may be smaller than 256 bytes each: what
/// they cost in memory besides.
const SMALL_PIECES_BYTES: usize = 512 * 1024;
/// Bytes of one response that wait to be written.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// Requests that a client may reset before they are served (CVE-2023-44487).
const PENDING_RESETS: usize = 20;
/// The same for a trusted proxy, which passes on those of many clients: as many as one read of the
/// transport may have.
const PROXY_PENDING_RESETS: usize = 1024;
/// Streams that may end in an error of the client, in the whole life of a connection: h2 does not
/// limit the resets that wait to be written otherwise (RUSTSEC-2024-0003).
const ERROR_RESETS: usize = 256;
/// The same for a trusted proxy, whose connection gets GOAWAY before
/// ([`StreamAccounts::has_failed_often`]). h2 holds less than a kilobyte for each. It remembers as
/// many for a second, since each frame of a body counts as an error on a stream that it has
/// forgotten.
const PROXY_ERROR_RESETS: usize = 2 * 1024;
/// Why a flood closes a connection.
const FLOOD: &str = "its client floods it with resets or useless frames (ENHANCE_YOUR_CALM)";
/// Why a malformed header closes the connection of a trusted proxy: h2 has no error of the stream
/// alone for it.
const PROXY_MALFORMED: &str = "one of trusted_proxies passes on a malformed header or frame, \
                               which ends all requests of the connection; have it use HTTP/1.1 \
                               with this server";
/// How long a client may take to acknowledge GOAWAY, without a stream.
const GOODBYE: Duration = Duration::from_secs(2);

/// The settings of h2.
fn builder(limits: &Limits, accounts: &StreamAccounts) -> server::Builder {
    let (resets, errors) = match accounts.is_of_proxy() {
        true => (PROXY_PENDING_RESETS, PROXY_ERROR_RESETS),
        false => (PENDING_RESETS, ERROR_RESETS),
    };
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .data_frame_budget(SMALL_PIECES_BYTES)
        .max_header_list_size(u32::try_from(limits.max_head_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(resets)
        .max_local_error_reset_streams(Some(errors));
    if accounts.is_of_proxy() {
        builder.max_concurrent_reset_streams(errors);
    }
    builder
}

/// Serves a connection that starts with the preface of HTTP/2; its first bytes have been read.
pub async fn converse_after_preface(mut connection: Connection, guard: ConnectionGuard) {
    let input = connection.input();
    let rest = input.split();
    input.extend_from_slice(HTTP2_PREFACE);
    input.unsplit(rest);
    converse(connection, guard).await;
}

/// Serves the requests of a connection.
pub async fn converse(mut connection: Connection, guard: ConnectionGuard) {
    let peer = connection.peer;
    let trunk = Arc::new(ConnectionState::new(guard, &mut connection));
    let (stream, input) = connection.into_parts();
    let mut transport = Transport::new(stream, input, trunk.clone());
    let outcome = serve(&mut transport, &trunk).await;
    // Requests may outlive the connection.
    trunk.fields_are_over();
    match outcome {
        // A client that has closed, or lost, its connection gets nothing more.
        Ok(()) if trunk.is_slow() => transport.abandon(),
        Ok(()) => {}
        Err(error) if error.is_io() => {}
        Err(error) => {
            if let Some(why) = cause(&error, &trunk.accounts) {
                trunk.thread().shared.troubles.http2_cut(peer.ip(), why);
            }
            tracing::debug!("{peer}: HTTP/2: {error}");
            transport.linger().await;
        }
    }
}

/// Why the log reports that this error has closed a connection.
fn cause(error: &h2::Error, accounts: &StreamAccounts) -> Option<&'static str> {
    if error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
        return Some(FLOOD);
    }
    (error.is_library() && accounts.is_of_proxy()).then_some(PROXY_MALFORMED)
}

/// The next step of a connection's task.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for every request, and there is one step at a time"
)]
enum NextStep {
    Request(Request<RecvStream>, SendResponse<Bytes>),
    /// GOAWAY is due.
    Leave,
    /// The connection is idle, and others need its place.
    MakeRoom,
    /// The client is abusive.
    Cut,
    /// A header block has timed out.
    TooSlow,
    Closed,
}

async fn serve(transport: &mut Transport, trunk: &Arc<ConnectionState>) -> Result<(), h2::Error> {
    let limits = Limits::default();
    let shared = &trunk.thread().shared;
    let mut place = shared.idle.connection(trunk.thread().number);
    let handshake = builder(&limits, &trunk.accounts).handshake::<_, Bytes>(transport);
    let Some(connection) = begun(handshake, &mut place, shared).await else {
        return Ok(());
    };
    let mut connection = connection?;
    let mut ending = pin!(shared.takes_no_more());
    // A new client gets its first request served before the server stops: one that has GOAWAY
    // before it sends one would only come again.
    let mut closing = pin!(shared.is_to_close());
    let mut has_asked = false;
    let mut idle = Idle::new();
    let mut fields = OpenFields::default();
    let mut leaving = false;
    let mut window = 0;
    loop {
        let step = poll_fn(|cx| {
            match connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    thread::note_arrival();
                    return Poll::Ready(Ok(NextStep::Request(request, respond)));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(NextStep::Closed)),
                Poll::Pending => {}
            }
            grow_window(&mut connection, &mut window, trunk.accounts.window_bytes());
            if trunk.accounts.asks_too_much() {
                return Poll::Ready(Ok(NextStep::Cut));
            }
            if fields.poll(cx, trunk.accounts.open_fields()).is_ready() {
                return Poll::Ready(Ok(NextStep::TooSlow));
            }
            if !leaving
                && (trunk.accounts.has_failed_often()
                    || ending.as_mut().poll(cx).is_ready()
                    || has_asked && closing.as_mut().poll(cx).is_ready())
            {
                return Poll::Ready(Ok(NextStep::Leave));
            }
            if connection.has_streams() || trunk.accounts.has_requests() {
                place.leave();
            } else if place.poll_closed(cx).is_ready() {
                return Poll::Ready(Ok(NextStep::MakeRoom));
            }
            let activity = Activity::of(trunk, connection.has_streams());
            match idle.poll(cx, &activity, leaving, || shared.idle_timeout()) {
                Poll::Ready(()) if leaving => Poll::Ready(Ok(NextStep::Closed)),
                Poll::Ready(()) => Poll::Ready(Ok(NextStep::Leave)),
                Poll::Pending => Poll::Pending,
            }
        });
        match step.await? {
            NextStep::Request(request, respond) => {
                place.leave();
                has_asked = true;
                idle.request_came();
                // Before the response: a client that has it sends the next request elsewhere.
                if !leaving && shared.is_outdated(trunk.secured.as_ref()) {
                    leaving = true;
                    leave(&mut connection, &mut idle, trunk);
                }
                begin(serve_request(request, respond, trunk.clone(), limits)).await;
            }
            NextStep::Leave => {
                leaving = true;
                leave(&mut connection, &mut idle, trunk);
            }
            NextStep::MakeRoom => return cut(connection, Reason::NO_ERROR).await,
            NextStep::Cut => {
                shared.troubles.http2_cut(trunk.peer.ip(), FLOOD);
                return cut(connection, Reason::ENHANCE_YOUR_CALM).await;
            }
            NextStep::TooSlow => {
                trunk.too_slow(TooSlow::Sending);
                // As nginx does.
                return cut(connection, Reason::PROTOCOL_ERROR).await;
            }
            NextStep::Closed => return Ok(()),
        }
    }
}

/// The connection once its client has sent the preface. None: it has sent none in time, or others
/// need its place. Until then the connection counts as idle.
async fn begun<C>(
    handshake: impl Future<Output = C>,
    place: &mut IdleConnection<'_>,
    shared: &Shared,
) -> Option<C> {
    let ending = async {
        shared.takes_no_more().await;
        tokio::time::sleep(GOODBYE).await;
    };
    tokio::select! {
        biased;
        connection = handshake => Some(connection),
        () = place.closed() => None,
        () = ending => None,
        () = tokio::time::sleep(shared.idle_timeout()) => None,
    }
}

/// Makes the connection's window `bytes` larger than that of one client, unless it is already.
fn grow_window(
    connection: &mut server::Connection<&mut Transport, Bytes>,
    window: &mut usize,
    bytes: usize,
) {
    if *window != bytes {
        *window = bytes;
        let all = CONNECTION_WINDOW.saturating_add(u32::try_from(bytes).unwrap_or(0));
        connection.set_target_window_size(all);
    }
}

/// Sends GOAWAY: requests in progress get their responses.
fn leave(
    connection: &mut server::Connection<&mut Transport, Bytes>,
    idle: &mut Idle,
    trunk: &ConnectionState,
) {
    idle.leave(&Activity::of(trunk, connection.has_streams()));
    connection.graceful_shutdown();
}

/// Ends a connection with an error code, unless its client reads nothing.
async fn cut(
    mut connection: server::Connection<&mut Transport, Bytes>,
    reason: Reason,
) -> Result<(), h2::Error> {
    connection.abrupt_shutdown(reason);
    let closed = poll_fn(|cx| connection.poll_closed(cx));
    let closed = tokio::time::timeout(GOODBYE, closed).await;
    closed.unwrap_or(Ok(()))
}

/// Serves a request: at once if it does not wait, as with most files, and otherwise by a task of
/// its own.
async fn begin(served: impl Future<Output = ()> + Send + 'static) {
    let mut served = Box::pin(Paced::new(served));
    let first = poll_fn(|cx| Poll::Ready(served.as_mut().poll(cx)));
    if first.await.is_pending() {
        tokio::spawn(served);
    }
}

/// Serves one request.
async fn serve_request(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    trunk: Arc<ConnectionState>,
    limits: Limits,
) {
    let (parts, body) = request.into_parts();
    let pseudo = Pseudo {
        method: parts.method.as_str(),
        path: parts.uri.path_and_query().map_or("", |path| path.as_str()),
        authority: parts.uri.authority().map(|authority| authority.as_str()),
    };
    let fields = parts.headers.iter();
    let fields = fields.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let head = Head::of_fields(&pseudo, fields, body.is_end_stream(), &limits);
    drop(parts);
    let bytes = head.as_ref().map_or(0, Head::memory_bytes);
    let Some(mut client) = Http2Client::new(respond, body, trunk.clone(), bytes) else {
        return;
    };
    let after = match head {
        Ok(head) => {
            trunk.accounts.noise.useful(head.len_bytes() as u64);
            client.asked(&head);
            request::serve(&mut client, &head, trunk.thread()).await
        }
        Err(refusal) => {
            tracing::debug!("{}: refused: {}", trunk.peer, refusal.reason());
            let outcome = client.refuse(refusal.status(), refusal.reason()).await;
            if let Some(log) = &*trunk.thread().shared.access_log.load() {
                log.write_refused(client.peer().ip(), refusal.status(), client.sent());
            }
            outcome.map_or(After::Close, |()| After::Keep)
        }
    };
    client.end(after).await;
}

/// What a connection has to do.
#[derive(Debug, Clone, Copy)]
struct Activity {
    has_requests: bool,
    /// Responses are not written yet. A request is over when h2 has the last bytes of its response,
    /// which may wait for the client.
    is_sending: bool,
    /// Bytes written so far.
    written: u64,
    /// `min_response_rate`, in bytes a second.
    min_rate: u32,
}

impl Activity {
    fn of(trunk: &ConnectionState, has_streams: bool) -> Activity {
        Activity {
            has_requests: trunk.accounts.has_requests(),
            is_sending: has_streams || trunk.has_unsent(),
            written: trunk.accounts.noise.written(),
            min_rate: trunk.rates.response,
        }
    }

    /// How long the connection waits after GOAWAY while nothing is written: as long as any response
    /// does, and without one, for the client's acknowledgement.
    fn wait_to_leave(&self) -> Duration {
        if self.is_sending { ANSWER_GRACE } else { GOODBYE }
    }
}

/// The idle timeout of a connection. The timer is set once in a while, and not for every request.
struct Idle {
    timer: Pin<Box<Sleep>>,
    /// A request has arrived since the timer was set.
    asked: bool,
    /// Bytes written when it was set.
    written: u64,
    /// Its duration.
    wait: Duration,
}

impl Idle {
    fn new() -> Idle {
        Idle { timer: Box::pin(tokio::time::sleep(IDLE)), asked: false, written: 0, wait: IDLE }
    }

    fn request_came(&mut self) {
        self.asked = true;
    }

    /// Sets the timeout of a connection to which GOAWAY was sent.
    fn leave(&mut self, now: &Activity) {
        (self.wait, self.written) = (now.wait_to_leave(), now.written);
        self.timer.as_mut().reset(Instant::now() + self.wait);
    }

    /// Ready when the connection has been idle for the timeout. `timeout`: the next one, before
    /// GOAWAY.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now: &Activity,
        leaving: bool,
        timeout: impl Fn() -> Duration,
    ) -> Poll<()> {
        if leaving && self.wait != now.wait_to_leave() {
            self.leave(now);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let least = self.wait.as_secs() * u64::from(now.min_rate.max(1));
            let moves = now.written - self.written >= least;
            let quiet = !(now.has_requests || now.is_sending && moves);
            if quiet && (leaving || !self.asked) {
                return Poll::Ready(());
            }
            (self.asked, self.written) = (false, now.written);
            if !leaving {
                self.wait = timeout();
            }
            self.timer.as_mut().reset(Instant::now() + self.wait);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_response_has_its_time_after_goaway_and_a_connection_without_one_has_less() {
        let stalled =
            Activity { has_requests: false, is_sending: true, written: 7000, min_rate: 0 };
        let mut idle = Idle::new();
        idle.leave(&stalled);
        let begun = Instant::now();
        poll_fn(|cx| idle.poll(cx, &stalled, true, || IDLE)).await;
        assert_eq!(begun.elapsed().as_secs(), ANSWER_GRACE.as_secs());

        // The client has read it all, later than it may take for GOAWAY alone.
        let mut idle = Idle::new();
        idle.leave(&stalled);
        let stall = poll_fn(|cx| idle.poll(cx, &stalled, true, || IDLE));
        assert!(tokio::time::timeout(2 * GOODBYE, stall).await.is_err());
        let begun = Instant::now();
        let over = Activity { is_sending: false, written: 9000, ..stalled };
        poll_fn(|cx| idle.poll(cx, &over, true, || IDLE)).await;
        assert_eq!(begun.elapsed().as_secs(), GOODBYE.as_secs());
    }
}
