//! A stream of HTTP/2 as a client.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{io, mem};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Response, StatusCode};
use maitred_http1::{Framing, Head, Method};
use tokio::time::{Instant, timeout, timeout_at};

use crate::http::body::{Body, BodyError, Collected, MEMORY_BYTES};
use crate::http::body_stream::Inflow;
use crate::http::client::{After, Client, ClientEvent, Content, HttpClient, Raw, Reply, Written};
use crate::http::headers::{Header, PLAIN, ServerHeaders};
use crate::http::large_file::LargeFile;
use crate::http::request_memory::{HeldMemory, MemoryGrowth, RequestMemory};
use crate::http::spool;
use crate::http::spool_folder::SpoolPlace;
use crate::net::admin_peer::AdminPeer;
use crate::net::client_addresses::Address;
use crate::net::client_rate::TooSlow;
use crate::net::tls::Secured;
use crate::server::http2::connection_state::{ConnectionState, UnsentRoom};
use crate::server::http2::head::{self, Http2, ResponseHead};
use crate::server::http2::pace::StreamPace;
use crate::server::http2::request_body::RequestBody;
use crate::server::http2::stream_accounts::{EndedRequest, RequestEnd};

/// Most bytes handed to h2 at once.
const PIECE_BYTES: usize = 64 * 1024;

/// How long a stream that waits for its file keeps its part of the windows from other streams.
const READ_PATIENCE: Duration = Duration::from_millis(50);

/// Bytes of a response's end below which its rate is not checked.
const SMALL_BYTES: usize = 2 * 1024;

/// A stream.
pub struct Http2Client {
    trunk: Arc<ConnectionState>,
    /// Bytes that the request is accounted for, besides its body.
    held: usize,
    /// Bytes that its body is accounted for.
    body_bytes: usize,
    respond: SendResponse<Bytes>,
    /// The request's body, until it is no longer wanted.
    body: Option<RequestBody>,
    /// The response's body, once it has started.
    stream: Option<SendStream<Bytes>>,
    /// Bytes of it that remain, if known.
    left: Option<u64>,
    is_head: bool,
    /// The whole response has been handed to h2.
    is_complete: bool,
    /// The client has reset the stream before that.
    is_reset: bool,
    /// Bytes of body handed to h2.
    sent: u64,
    /// The rate at which the client reads the response.
    pace: StreamPace,
    /// The rate at which it sends a body that is passed on meanwhile.
    body_pace: Option<StreamPace>,
}

fn lost(_: h2::Error) -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// Waits until the client accepts more of the response.
async fn wait_for_room(
    trunk: &ConnectionState,
    stream: &mut Option<SendStream<Bytes>>,
) -> io::Result<()> {
    trunk.has_room().await;
    let Some(stream) = stream else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    if stream.capacity() > 0 {
        return Ok(());
    }
    stream.reserve_capacity(1);
    match poll_fn(|cx| stream.poll_capacity(cx)).await {
        Some(Ok(_)) => Ok(()),
        Some(Err(error)) => Err(lost(error)),
        None => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

impl Http2Client {
    /// The client of a new request with a header of `bytes`; none if the request is refused.
    pub fn new(
        mut respond: SendResponse<Bytes>,
        body: RecvStream,
        trunk: Arc<ConnectionState>,
        head: usize,
    ) -> Option<Http2Client> {
        let Ok(held) = trunk.begin(respond.stream_id().into(), head) else {
            // Nothing was done for it, so a client may send it again (RFC 9113 §8.7).
            respond.send_reset(Reason::REFUSED_STREAM);
            return None;
        };
        let pace = StreamPace::of_response(&trunk);
        let body = RequestBody::new(body, trunk.clone());
        Some(Http2Client {
            trunk,
            held,
            body_bytes: 0,
            respond,
            body: Some(body),
            stream: None,
            left: None,
            is_head: false,
            is_complete: false,
            is_reset: false,
            sent: 0,
            pace,
            body_pace: None,
        })
    }

    /// Stores the request.
    pub fn asked(&mut self, head: &Head) {
        self.is_head = head.kind() == Method::Head;
        if let Some(body) = &mut self.body {
            body.grow_window(head.body);
        }
    }

    /// Responds to an invalid request.
    ///
    /// # Errors
    /// When the client has disconnected.
    pub async fn refuse(&mut self, status: u16, why: &str) -> io::Result<()> {
        let text = crate::http::error_body::in_words(status, why);
        let length = Some(text.len() as u64);
        let server = ServerHeaders::default();
        let headers: Vec<Header<'_>> = [PLAIN].into_iter().chain(server.all()).collect();
        let response = head::ready(status, &headers, &Bytes::new(), length);
        self.start(response, length)?;
        self.send_copy(text.as_bytes()).await
    }

    /// Ends the stream: an incomplete response is reset, which is how HTTP/2 marks it. An unwanted
    /// body is stopped in the same way (RFC 9113 §8.1), but not at once: some clients that still
    /// send take the reset for the response (curl before 8).
    pub async fn end(mut self, after: After) {
        if !self.is_complete && after == After::Keep && self.left.is_none_or(|left| left == 0) {
            self.is_complete = self.finish().is_ok();
        }
        if !self.is_complete {
            let mut cx = Context::from_waker(Waker::noop());
            self.is_reset = matches!(self.poll_reset(&mut cx), Poll::Ready(Ok(_)));
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        } else if let Some(body) = self.body.take().filter(|body| !body.is_over()) {
            body.discard().await;
        }
    }

    fn finish(&mut self) -> Result<(), h2::Error> {
        match &mut self.stream {
            Some(stream) => stream.send_data(Bytes::new(), true),
            None => Ok(()),
        }
    }

    /// Starts the response, whose body has `length` bytes.
    fn start(&mut self, mut response: Response<()>, length: Option<u64>) -> io::Result<()> {
        self.trunk.hold_head(response.headers_mut()).map_err(io::Error::other)?;
        let length = if self.is_head { Some(0) } else { length };
        let is_all = length == Some(0);
        let stream = self.respond.send_response(response, is_all).map_err(lost)?;
        (self.stream, self.left, self.is_complete) = (Some(stream), length, is_all);
        Ok(())
    }

    /// Bytes that the client accepts now, of `want`.
    fn room(&mut self, want: usize) -> io::Result<usize> {
        let Some(stream) = &mut self.stream else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let want = want.min(PIECE_BYTES);
        if stream.capacity() < want {
            stream.reserve_capacity(want);
        }
        Ok(stream.capacity().min(want))
    }

    /// Room for a piece of at most `want` bytes: none if the client accepts none now, or has enough
    /// to read.
    fn take_room(&mut self, want: usize) -> io::Result<Option<UnsentRoom>> {
        let want = want.min(self.trunk.room());
        let count = self.room(want)?;
        Ok((count > 0).then(|| self.trunk.take_room(count)))
    }

    /// Hands a piece to h2 that fits the window.
    fn hand_over(&mut self, bytes: Bytes) -> io::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let count = bytes.len() as u64;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(count);
        }
        self.is_complete = self.left == Some(0);
        stream.send_data(bytes, self.is_complete).map_err(lost)?;
        self.sent += count;
        self.trunk.accounts.noise.useful(count);
        Ok(())
    }

    /// Sends all of a shared buffer, without a copy.
    async fn send_kept(&mut self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.room(bytes.len())? {
                0 => self.sendable().await?,
                count => self.hand_over(bytes.split_to(count))?,
            }
        }
        Ok(())
    }

    /// Sends all of a borrowed buffer, copied.
    async fn send_copy(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_send(bytes)? {
                0 => self.sendable().await?,
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    /// Sends a piece of a file.
    async fn send_file(
        &mut self,
        file: &Arc<LargeFile>,
        mut at: u64,
        length: u64,
    ) -> io::Result<()> {
        let end = at + length;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX);
            let Some(room) = self.take_room(want)? else {
                self.sendable().await?;
                continue;
            };
            let piece = match file.read_cached(at, room.bytes())? {
                Some(bytes) => Some(room.hold(bytes)),
                None => self.read_elsewhere(file, at, room).await?,
            };
            if let Some(piece) = piece {
                at += piece.len() as u64;
                self.hand_over(piece)?;
            }
        }
        Ok(())
    }

    /// Reads a piece of a file that is not cached, or whose lock a tenant may hold for long: other
    /// streams get the windows meanwhile. None if no byte fits these afterwards.
    async fn read_elsewhere(
        &mut self,
        file: &Arc<LargeFile>,
        at: u64,
        room: UnsentRoom,
    ) -> io::Result<Option<Bytes>> {
        let mut read = pin!(file.read_elsewhere(at, room.bytes()));
        if let Ok(bytes) = timeout(READ_PATIENCE, &mut read).await {
            return Ok(Some(room.hold(bytes?)));
        }
        drop(room);
        if let Some(stream) = &mut self.stream {
            stream.reserve_capacity(0);
        }
        let bytes = read.await?;
        // What does not fit is read again.
        Ok(self.take_room(bytes.len())?.map(|room| room.hold(bytes)))
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reason, h2::Error>> {
        match &mut self.stream {
            Some(stream) => stream.poll_reset(cx),
            None => self.respond.poll_reset(cx),
        }
    }

    /// Counts a piece of a body that is passed on.
    fn take_body(
        &mut self,
        inflow: &mut Inflow,
        data: Option<Result<Bytes, h2::Error>>,
    ) -> Result<Option<Bytes>, BodyError> {
        match data {
            Some(Ok(bytes)) => {
                inflow.take(bytes.len())?;
                Ok(Some(bytes))
            }
            Some(Err(_)) => Err(BodyError::Gone),
            None => {
                inflow.end();
                self.body = None;
                self.trunk.body_is_over(self.respond.stream_id().into());
                Ok(None)
            }
        }
    }

    /// Accounts for a body as it is now.
    fn account(&mut self, collected: &Collected) -> Result<(), &'static str> {
        let after = collected.memory_bytes();
        self.trunk.resize_body(mem::replace(&mut self.body_bytes, after), after)
    }

    /// The next piece of the body; none at its end.
    async fn more_body(
        &mut self,
        collected: &Collected,
        pace: &mut StreamPace,
    ) -> Result<Option<Bytes>, BodyError> {
        let Some(body) = &mut self.body else {
            return Err(BodyError::Gone);
        };
        let (moved, now) = (self.trunk.accounts.noise.has_read(), Instant::now());
        let came = timeout_at(pace.wait(collected.len(), moved, now), body.next()).await;
        pace.came(Instant::now());
        match came {
            Ok(Some(Ok(bytes))) => Ok(Some(bytes)),
            Ok(None) => Ok(None),
            Ok(Some(Err(_))) => Err(BodyError::Gone),
            Err(_) => {
                self.trunk.too_slow(TooSlow::Sending);
                Err(BodyError::TooSlow)
            }
        }
    }
}

impl Drop for Http2Client {
    fn drop(&mut self) {
        let end = match (self.is_complete, self.is_reset) {
            (true, _) => RequestEnd::Complete,
            (false, true) => RequestEnd::ClientReset,
            (false, false) => RequestEnd::ServerReset,
        };
        let (stream, bytes) = (self.respond.stream_id().into(), self.held);
        self.trunk.end(EndedRequest { stream, bytes, body_bytes: self.body_bytes, end });
    }
}

impl Client for Http2Client {
    type Head = ResponseHead;

    async fn gone(&mut self) {
        // The reset itself is the event.
        let _ = poll_fn(|cx| self.poll_reset(cx)).await;
    }

    async fn gone_later(&mut self) {
        self.gone().await;
    }

    fn begin(&mut self, mut head: ResponseHead) -> io::Result<()> {
        if head.response.status().is_informational() {
            self.trunk.hold_head(head.response.headers_mut()).map_err(io::Error::other)?;
            return self.respond.send_informational(head.response).map_err(lost);
        }
        self.start(head.response, head.length)
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let want = bytes.len().min(self.trunk.room());
        let count = self.room(want)?;
        if count > 0 {
            let is_last = self.left == Some(count as u64);
            let bytes = match is_last && count <= SMALL_BYTES {
                true => Bytes::copy_from_slice(&bytes[..count]),
                false => self.trunk.take_room(count).hold(bytes[..count].to_vec()),
            };
            self.hand_over(bytes)?;
        }
        Ok(count)
    }

    async fn sendable(&mut self) -> io::Result<()> {
        let (moved, now) = (self.trunk.accounts.noise.written(), Instant::now());
        let deadline = self.pace.wait(self.sent, moved, now);
        let outcome = timeout_at(deadline, wait_for_room(&self.trunk, &mut self.stream)).await;
        self.pace.came(Instant::now());
        outcome.unwrap_or_else(|_| {
            self.trunk.too_slow(TooSlow::Reading);
            Err(io::ErrorKind::TimedOut.into())
        })
    }

    fn spool_bytes(&self) -> usize {
        self.trunk.accounts.share().min(spool::MEMORY_BYTES)
    }
}

impl HttpClient for Http2Client {
    type HeadWriter = Http2;

    fn peer(&self) -> SocketAddr {
        self.trunk.peer
    }

    fn local(&mut self) -> SocketAddr {
        self.trunk.local
    }

    fn admin(&self) -> Option<AdminPeer> {
        None
    }

    fn secured(&self) -> Option<&Arc<Secured>> {
        self.trunk.secured.as_ref()
    }

    /// A reset marks it ([`Http2Client::end`]).
    fn break_off(&mut self) {}

    /// Bytes of body: headers are compressed together with those of other streams.
    fn sent(&self) -> u64 {
        self.sent
    }

    async fn body(
        &mut self,
        head: &Head,
        limit: u64,
        place: SpoolPlace<'_>,
    ) -> Result<Body, BodyError> {
        match head.body {
            Framing::None => return Ok(Body::Memory(Vec::new())),
            Framing::Length(length) if length > limit => return Err(BodyError::TooLarge),
            _ => {}
        }
        self.invite_body(head).await?;
        let mut collected = Collected::within(limit, self.trunk.accounts.share().min(MEMORY_BYTES));
        let mut pace = StreamPace::of_body(&self.trunk);
        while let Some(bytes) = self.more_body(&collected, &mut pace).await? {
            collected.add(&bytes, place).await?;
            if self.account(&collected).is_err() {
                collected.write(place).await?;
                let _ = self.account(&collected);
            }
        }
        self.body = None;
        self.trunk.body_is_over(self.respond.stream_id().into());
        let body = collected.finish(place).await?;
        if let Body::File(_) = body {
            let _ = self.trunk.resize_body(mem::take(&mut self.body_bytes), 0);
        }
        Ok(body)
    }

    fn hold<'m>(
        &mut self,
        _memory: &'m RequestMemory,
        growth: MemoryGrowth,
        _address: impl FnOnce() -> Option<Address>,
    ) -> Result<Option<HeldMemory<'m>>, &'static str> {
        self.trunk.add(growth.more)?;
        self.held += growth.more;
        Ok(None)
    }

    async fn invite_body(&mut self, head: &Head) -> Result<(), BodyError> {
        if !head.expects_continue {
            return Ok(());
        }
        let mut interim = Response::new(());
        *interim.status_mut() = StatusCode::CONTINUE;
        let sent = self.respond.send_informational(interim);
        sent.map_err(|_| BodyError::Gone)
    }

    async fn next_body(&mut self, inflow: &mut Inflow) -> Result<Option<Bytes>, BodyError> {
        let Some(body) = &mut self.body else {
            return Err(BodyError::Gone);
        };
        let pace = &mut self.body_pace;
        let pace = pace.get_or_insert_with(|| StreamPace::of_body(&self.trunk));
        let (moved, now) = (self.trunk.accounts.noise.has_read(), Instant::now());
        let deadline = pace.wait(inflow.taken(), moved, now);
        let data = timeout_at(deadline, body.next()).await;
        pace.came(Instant::now());
        match data {
            Ok(data) => self.take_body(inflow, data),
            Err(_) => {
                self.trunk.too_slow(TooSlow::Sending);
                Err(BodyError::TooSlow)
            }
        }
    }

    async fn sendable_or_body(&mut self, inflow: &mut Inflow) -> Result<ClientEvent, BodyError> {
        let Http2Client { trunk, stream, body, pace, body_pace, sent, .. } = self;
        let Some(body) = body else {
            return Err(BodyError::Gone);
        };
        let (noise, now) = (&trunk.accounts.noise, Instant::now());
        let body_pace = body_pace.get_or_insert_with(|| StreamPace::of_body(trunk));
        let sending = body_pace.wait(inflow.taken(), noise.has_read(), now);
        let reading = pace.wait(*sent, noise.written(), now);
        let event = async {
            tokio::select! {
                biased;
                data = body.next() => Ok(Some(data)),
                room = wait_for_room(trunk, stream) => room.map(|()| None),
            }
        };
        let event = timeout_at(reading.max(sending), event).await;
        let now = Instant::now();
        body_pace.came(now);
        pace.came(now);
        match event {
            Ok(Ok(Some(data))) => {
                if now <= sending {
                    // While it sends fast enough, its time to read does not run, and the reverse.
                    *pace = StreamPace::of_response(trunk);
                }
                self.take_body(inflow, data).map(ClientEvent::Body)
            }
            Ok(Ok(None)) => {
                if now <= reading {
                    *body_pace = StreamPace::of_body(trunk);
                }
                Ok(ClientEvent::Sendable)
            }
            Ok(Err(_)) => Err(BodyError::Gone),
            Err(_) => {
                trunk.too_slow(TooSlow::Reading);
                Err(BodyError::TooSlow)
            }
        }
    }

    fn raw(&mut self) -> Option<Raw<'_>> {
        None
    }

    fn discard_body(&mut self, _head: &Head) -> After {
        After::Keep
    }

    async fn respond(&mut self, reply: &Reply<'_>, content: Content<'_>) -> Written {
        let response = head::ready(reply.status, reply.headers, reply.lines, reply.length);
        let result = match self.start(response, Some(content.len())) {
            Ok(()) => self.send_content(content).await,
            Err(error) => Err(error),
        };
        Written { status: reply.status, head_bytes: 0, result }
    }
}

impl Http2Client {
    async fn send_content(&mut self, content: Content<'_>) -> io::Result<()> {
        match content {
            Content::Nothing => {}
            Content::Made(bytes) => self.send_copy(bytes).await?,
            Content::Kept(bytes) | Content::Housed(bytes, ..) => {
                self.send_kept(bytes.clone()).await?;
            }
            Content::File(file, slice) => self.send_file(file, slice.offset, slice.len).await?,
            Content::Pieces(file, parts, closing) => {
                for part in parts {
                    self.send_kept(part.head.clone()).await?;
                    self.send_file(file, part.slice.offset, part.slice.len).await?;
                }
                self.send_kept(closing.clone()).await?;
            }
        }
        Ok(())
    }
}
