//! A client connection: reads request headers and bodies, writes responses, and enforces the
//! timeouts for slow clients.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use maitred_http1::{Head, HeadParser, Limits, Refusal};
use tokio::time::{Instant, Sleep};

use crate::http::large_file::LargeFile;
use crate::net::admin_peer::AdminPeer;
use crate::net::client_rate::{ANSWER_GRACE, Pace, REQUEST_GRACE, Rates, TooSlow};
use crate::net::socket::{Family, Socket};
use crate::net::stream::Stream;
use crate::net::tls::{NoTls, Secured, Tls, TlsStream};
use crate::runtime::thread;
use crate::site::files::{Residency, residency};

/// Timeout for the TLS handshake, from the accept.
pub const HANDSHAKE: Duration = Duration::from_secs(15);
/// Timeout for a request header, from its first byte (nginx's `client_header_timeout`).
pub const HEAD: Duration = Duration::from_secs(20);
/// The address of a client over a Unix socket.
pub const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Least rate in bytes per second at which web servers send.
const WEB_SERVER_RATE: u32 = 500;
/// Time, and bytes, that a connection is read after its last response, so that no reset destroys
/// the response (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1024 * 1024;

/// Bytes of pipelined requests that are read while a request is served.
const AHEAD_BYTES: usize = 64 * 1024;
/// Most bytes of one `sendfile`, so that one fast client cannot occupy the thread.
const SENDFILE_BYTES: u64 = 2 * 1024 * 1024;
/// Bytes of a file that are read and sent at a time where `sendfile` is not possible.
const READ_BYTES: u64 = 64 * 1024;

/// A client connection.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// The client's address.
    pub peer: SocketAddr,
    local: Option<SocketAddr>,
    input: BytesMut,
    parser: HeadParser,
    /// Created at the first wait.
    timer: Option<Pin<Box<Sleep>>>,
    sent: u64,
    /// The rate at which the client reads responses.
    pace: Pace,
    /// Least rate in bytes per second at which it sends.
    request_rate: u32,
    too_slow: Option<TooSlow>,
    /// The peer, on the admin listener.
    pub admin: Option<AdminPeer>,
    /// The TLS data of the connection, if it is under TLS.
    pub secured: Option<Arc<Secured>>,
}

/// The reason why there is no request.
#[derive(Debug)]
pub enum NoHead {
    /// The client closed the connection, or was idle for too long.
    Closed,
    /// The header is incomplete, and its timeout has passed.
    TooSlow,
    /// The request is invalid.
    Refused(Refusal),
}

impl Connection {
    /// A connection that was just accepted over TCP.
    pub fn new(socket: OwnedFd, peer: SocketAddr, rates: Rates) -> Connection {
        let pace = Pace::new(rates.response, ANSWER_GRACE);
        let stream = Stream::Plain(Socket::Fresh(socket, Family::Tcp));
        Connection::over(stream, peer, pace, rates.request)
    }

    /// A connection of the admin listener; without an address it is a Unix socket.
    pub fn of_admin(
        socket: Socket,
        admin: AdminPeer,
        peer: Option<SocketAddr>,
        rates: Rates,
    ) -> Connection {
        let stream = Stream::Plain(socket);
        let pace = Pace::new(rates.response, ANSWER_GRACE);
        let peer = peer.unwrap_or(NO_ADDRESS);
        Connection { admin: Some(admin), ..Connection::over(stream, peer, pace, rates.request) }
    }

    /// A connection of a web server; without an address it is a Unix socket. A response may stay
    /// unread for `patience`.
    pub fn of_web_server(
        socket: Socket,
        peer: Option<SocketAddr>,
        patience: Duration,
    ) -> Connection {
        let peer = peer.unwrap_or(NO_ADDRESS);
        let stream = Stream::Plain(socket);
        Connection::over(stream, peer, Pace::new(0, patience), WEB_SERVER_RATE)
    }

    /// A used connection, from which nothing more is read.
    pub fn resumed(stream: Stream, peer: SocketAddr) -> Connection {
        Connection::over(stream, peer, Pace::new(0, ANSWER_GRACE), 0)
    }

    /// The stream, and the bytes that were read and not consumed.
    pub fn into_parts(self) -> (Stream, BytesMut) {
        (self.stream, self.input)
    }

    fn over(stream: Stream, peer: SocketAddr, pace: Pace, request_rate: u32) -> Connection {
        let (input, parser) = (BytesMut::new(), HeadParser::new());
        Connection {
            stream,
            peer,
            local: None,
            input,
            parser,
            timer: None,
            sent: 0,
            pace,
            request_rate,
            too_slow: None,
            admin: None,
            secured: None,
        }
    }

    /// The reason why the connection ends, if its client is too slow.
    pub fn too_slow(&self) -> Option<TooSlow> {
        self.too_slow
    }

    /// The transfer rate limit of a body that starts now.
    pub fn body_pace(&self) -> Pace {
        Pace::new(self.request_rate, REQUEST_GRACE)
    }

    /// Performs the TLS handshake. A client that sends plain HTTP can get a response in plain HTTP
    /// afterwards.
    ///
    /// # Errors
    /// Why there is no TLS.
    pub async fn secure(&mut self, tls: &Tls) -> Result<(), NoTls> {
        let Connection { stream, input, timer, .. } = self;
        let shaken = stream.secure(tls.config.clone(), input);
        let shaken = before(timer, || Instant::now() + HANDSHAKE, shaken).await;
        shaken.unwrap_or(Err(NoTls::TooSlow))?;
        if let Some(stream) = stream.tls() {
            self.secured = Some(tls.secured(stream));
        }
        Ok(())
    }

    /// The ALPN protocol, of [`crate::net::tls::PROTOCOLS`], if the client uses ALPN.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.stream.tls()?.protocol()
    }

    /// Ends the connection in the middle of a response, so that the client notices.
    pub fn break_off(&mut self) {
        self.stream.break_off();
    }

    /// The address the client connected to.
    pub fn local(&mut self) -> SocketAddr {
        let stream = &self.stream;
        *self.local.get_or_insert_with(|| stream.local_addr().unwrap_or(NO_ADDRESS))
    }

    /// The raw connection, for a protocol other than HTTP.
    pub fn raw(&mut self) -> crate::http::client::Raw<'_> {
        crate::http::client::Raw {
            stream: &mut self.stream,
            input: &mut self.input,
            sent: &mut self.sent,
        }
    }

    /// Bytes that were received and not consumed.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Waits for the header of the next request, for `idle_timeout` as long as nothing of it has
    /// arrived.
    ///
    /// # Errors
    /// When there is no further request, or an invalid one.
    pub async fn next_head(
        &mut self,
        limits: &Limits,
        idle_timeout: impl Fn() -> Duration,
    ) -> Result<Head, NoHead> {
        let mut begun = None;
        loop {
            match self.parser.parse(&mut self.input, limits) {
                Ok(Some(head)) => {
                    self.pace.begin();
                    return Ok(head);
                }
                Ok(None) => {}
                Err(refusal) => return Err(NoHead::Refused(refusal)),
            }
            let filled = if self.input.is_empty() && begun.is_none() {
                // An idle connection holds no buffer.
                self.input = BytesMut::new();
                self.fill(|| Instant::now() + idle_timeout()).await
            } else {
                let begun = *begun.get_or_insert_with(Instant::now);
                self.fill(|| begun + HEAD).await
            };
            match filled {
                Some(Ok(count)) if count > 0 => thread::note_arrival(),
                None if begun.is_some() => {
                    self.too_slow = Some(TooSlow::Sending);
                    return Err(NoHead::TooSlow);
                }
                _ => return Err(NoHead::Closed),
            }
        }
    }

    /// Reads more from the client. Returns the number of bytes, 0 at the end, or `None` when the
    /// deadline has passed; the deadline is computed only if there is a wait.
    pub async fn fill(&mut self, deadline: impl FnOnce() -> Instant) -> Option<io::Result<usize>> {
        let Connection { stream, input, timer, .. } = self;
        before(timer, deadline, stream.read(input)).await
    }

    /// Reads more of a body after `total` bytes. Returns the number of bytes, 0 at the end, or
    /// `None` if it arrives too slowly.
    pub async fn fill_body(&mut self, total: u64, pace: &mut Pace) -> Option<io::Result<usize>> {
        let filled = self.fill(|| pace.wait(total, Instant::now())).await;
        pace.came(Instant::now);
        if filled.is_none() {
            self.too_slow = Some(TooSlow::Sending);
        }
        filled
    }

    /// As [`Connection::fill`], without a deadline.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn read(&mut self) -> io::Result<usize> {
        self.stream.read(&mut self.input).await
    }

    /// Waits until a check for a disconnect pays: at once for a connection in the event loop, and
    /// for a fresh one at the thread's next tick.
    pub async fn worth_watching(&mut self) {
        if !self.stream.is_registered() {
            thread::tick().await;
        }
    }

    /// As [`Connection::client_gone`], for a client with a response due soon: for most fresh
    /// connections a check does not pay.
    pub async fn client_gone_later(&mut self) {
        self.worth_watching().await;
        self.client_gone().await;
    }

    /// Waits until the client has disconnected. Bytes that arrive meanwhile are buffered, up to a
    /// limit.
    pub async fn client_gone(&mut self) {
        while self.input.len() < AHEAD_BYTES {
            match self.stream.read(&mut self.input).await {
                Ok(count) if count > 0 => {}
                _ => return,
            }
        }
        std::future::pending().await
    }

    /// Sends bytes without waiting. Returns 0 if the socket buffer is full.
    ///
    /// # Errors
    /// When the client has disconnected.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.stream.try_send(bytes, false)?.unwrap_or(0);
        self.sent += sent as u64;
        Ok(sent)
    }

    /// Whether TLS has encrypted bytes that count as sent later.
    pub fn has_promised(&self) -> bool {
        self.stream.tls().is_some_and(TlsStream::has_promised)
    }

    /// Bytes sent to the client, headers included.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Waits until more can be sent.
    ///
    /// # Errors
    /// When the client has disconnected or reads too slowly.
    pub async fn sendable(&mut self) -> io::Result<()> {
        // Few requests have to wait, and every request would hold the memory of this future.
        Box::pin(self.wait_until_sendable()).await
    }

    async fn wait_until_sendable(&mut self) -> io::Result<()> {
        loop {
            let Connection { stream, timer, pace, sent, .. } = self;
            let deadline = || pace.wait(*sent, Instant::now());
            let writable = before(timer, deadline, stream.writable()).await;
            if let Some(outcome) = writable {
                pace.came(Instant::now);
                return outcome;
            }
            if !self.goes_on_reading() {
                return Err(too_slow());
            }
        }
    }

    /// At the deadline of a response: whether the client reads it fast enough nevertheless.
    fn goes_on_reading(&mut self) -> bool {
        let taken = self.stream.acknowledged().unwrap_or(0);
        let goes_on = self.pace.goes_on(taken, Instant::now());
        if !goes_on {
            self.stream.abandon();
            self.too_slow = Some(TooSlow::Reading);
        }
        goes_on
    }

    /// Waits until more can be sent, or reads more of a body after `total` bytes: then returns the
    /// number of bytes, 0 at the end. `None` if the client neither sends nor reads fast enough.
    pub async fn sendable_or_fill(
        &mut self,
        total: u64,
        body_pace: &mut Pace,
    ) -> Option<io::Result<Option<usize>>> {
        loop {
            let Connection { stream, input, timer, pace, sent, .. } = self;
            let now = Instant::now();
            let sending = body_pace.wait(total, now);
            let reading = pace.wait(*sent, now);
            let event = poll_fn(|cx| match stream.poll_read(cx, input) {
                Poll::Ready(read) => Poll::Ready(read.map(Some)),
                Poll::Pending => stream.poll_writable(cx).map_ok(|()| None),
            });
            let event = before(timer, || reading.max(sending), event).await;
            let now = Instant::now();
            body_pace.came(|| now);
            pace.came(|| now);
            match &event {
                // While it sends fast enough, its time to read does not run, and the reverse.
                Some(Ok(Some(_))) if now <= sending => pace.begin(),
                Some(Ok(None)) if now <= reading => body_pace.begin(),
                None if self.goes_on_reading() => continue,
                _ => {}
            }
            return event;
        }
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// As [`Connection::sendable`].
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send_all(bytes, false).await
    }

    /// Sends an interim response (RFC 9110 §15.2).
    ///
    /// # Errors
    /// As [`Connection::sendable`].
    pub async fn send_interim(&mut self, bytes: &[u8]) -> io::Result<()> {
        let counted = self.sent;
        let outcome = self.send(bytes).await;
        self.sent = counted;
        outcome
    }

    /// Sends a header before a file: the kernel delays it to fill a packet (`MSG_MORE`).
    ///
    /// # Errors
    /// As [`Connection::sendable`].
    pub async fn send_more(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send_all(bytes, true).await
    }

    /// Sends all of `head`, and then all of `body`, without copying.
    ///
    /// # Errors
    /// As [`Connection::sendable`].
    pub async fn send_both(&mut self, mut head: &[u8], mut body: &[u8]) -> io::Result<()> {
        while !head.is_empty() {
            match self.stream.try_send_both(head, body)? {
                None => self.sendable().await?,
                Some(sent) => {
                    let of_head = sent.min(head.len());
                    head = &head[of_head..];
                    body = &body[sent - of_head..];
                    self.sent += sent as u64;
                }
            }
        }
        self.send(body).await
    }

    async fn send_all(&mut self, mut bytes: &[u8], more: bool) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.try_send(bytes, more)? {
                None => self.sendable().await?,
                Some(sent) => {
                    bytes = &bytes[sent..];
                    self.sent += sent as u64;
                }
            }
        }
        Ok(())
    }

    /// Sends a piece of a file, with `sendfile` where no tenant can have that wait. If it is not in
    /// the page cache, another thread reads it first.
    ///
    /// # Errors
    /// As [`Connection::sendable`] and [`LargeFile::read`]; `UnexpectedEof` when the file has
    /// become shorter.
    pub async fn send_file(
        &mut self,
        file: &Arc<LargeFile>,
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let piece = (end - at).min(SENDFILE_BYTES);
            if residency(file.fd(), at, piece) != Residency::Resident {
                file.read_ahead(at, piece).await?;
            }
            let piece_end = at + piece;
            while at < piece_end {
                let Some(fd) = file.for_sendfile() else {
                    return self.send_read(file, at, end).await;
                };
                at += self.send_some(fd, at, piece_end - at).await?;
            }
        }
        Ok(())
    }

    /// Reads and sends a range of a file. No bytes are held while the client reads slowly: what it
    /// does not take is read again.
    async fn send_read(&mut self, file: &Arc<LargeFile>, mut at: u64, end: u64) -> io::Result<()> {
        let mut without_wait = 0;
        while at < end {
            let count = usize::try_from((end - at).min(READ_BYTES)).unwrap_or(usize::MAX);
            let bytes = file.read(at, count).await?;
            let sent = self.stream.try_send(&bytes, at + (bytes.len() as u64) < end)?;
            drop(bytes);
            let Some(sent) = sent else {
                without_wait = 0;
                self.sendable().await?;
                continue;
            };
            at += sent as u64;
            self.sent += sent as u64;
            without_wait += sent as u64;
            // One fast client cannot occupy the thread.
            if without_wait >= SENDFILE_BYTES {
                without_wait = 0;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends a range of a file from the page cache.
    ///
    /// # Errors
    /// As [`Connection::send_file`].
    pub async fn send_resident(&mut self, fd: &OwnedFd, mut at: u64, end: u64) -> io::Result<()> {
        while at < end {
            at += self.send_some(fd, at, end - at).await?;
        }
        Ok(())
    }

    /// Sends some bytes of a file from the page cache, or waits until the client takes more.
    async fn send_some(&mut self, fd: &OwnedFd, at: u64, most: u64) -> io::Result<u64> {
        let count = usize::try_from(most.min(SENDFILE_BYTES)).unwrap_or(usize::MAX);
        match self.stream.try_sendfile(fd, at, count)? {
            None => {
                self.sendable().await?;
                Ok(0)
            }
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(sent) => {
                self.sent += sent as u64;
                Ok(sent as u64)
            }
        }
    }

    /// Closes the connection so that the client gets its last response (nginx's `lingering_close`):
    /// shuts the sending side down, and discards further input for a while.
    pub async fn linger(&mut self) {
        self.stream.shut_down();
        let deadline = Instant::now() + LINGER;
        let mut taken = 0;
        while taken < LINGER_BYTES {
            self.input.clear();
            match self.fill(|| deadline).await {
                Some(Ok(count)) if count > 0 => taken += count,
                _ => return,
            }
        }
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client did not read the response")
}

/// The result of `task`, or none when the deadline passes first. The timer is set only when there
/// is a wait, since setting it costs more than most requests take.
async fn before<T>(
    timer: &mut Option<Pin<Box<Sleep>>>,
    deadline: impl FnOnce() -> Instant,
    task: impl Future<Output = T>,
) -> Option<T> {
    let mut task = pin!(task);
    let mut deadline = Some(deadline);
    poll_fn(|cx| {
        if let Poll::Ready(value) = task.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        let set = deadline.take().map(|deadline| deadline());
        let timer = match (timer.as_mut(), set) {
            (Some(timer), None) => timer,
            (Some(timer), Some(deadline)) => {
                timer.as_mut().reset(deadline);
                timer
            }
            (None, set) => {
                let deadline = set.unwrap_or_else(Instant::now);
                timer.insert(Box::pin(tokio::time::sleep_until(deadline)))
            }
        };
        timer.as_mut().poll(cx).map(|()| None)
    })
    .await
}
