//! One client connection: reading heads and bodies off it, writing answers to it, and the
//! time-outs that keep a slow client from holding anything but itself.

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

use crate::net::admin_peer::AdminPeer;
use crate::net::client_rate::{ANSWER_GRACE, Pace, REQUEST_GRACE, Rates, TooSlow};
use crate::net::socket::{Family, Socket};
use crate::net::stream::Stream;
use crate::net::tls::{NoTls, Secured, Tls};
use crate::runtime::thread;
use crate::site::files::{Residency, residency};

/// How long a kept connection may be idle between two requests.
pub const IDLE: Duration = Duration::from_secs(75);
/// How long a client may take until TLS is spoken, from when it was accepted.
pub const HANDSHAKE: Duration = Duration::from_secs(15);
/// How long a client may take for a request's head, from its first byte (Apache's
/// `RequestReadTimeout` starts with as much).
pub const HEAD: Duration = Duration::from_secs(20);
/// Stands for the address of a client that has none.
pub const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Least rate in bytes per second of what web servers send.
const WEB_SERVER_RATE: u32 = 500;
/// How long, and for how many bytes, a connection is listened to after its last answer, so that
/// the answer is not lost to a reset (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1024 * 1024;

/// Bytes a client may send ahead while its request is answered; it is then not read further.
const AHEAD_BYTES: usize = 64 * 1024;
/// Most bytes handed to one `sendfile`, so that one fast client cannot hold the thread.
const SENDFILE_BYTES: u64 = 2 * 1024 * 1024;
/// Room a thread that reads ahead reads into: what it reads is of no interest, only that it is in
/// memory afterwards, and there may be hundreds of such threads.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// One client connection.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// The client's address.
    pub peer: SocketAddr,
    local: Option<SocketAddr>,
    input: BytesMut,
    parser: HeadParser,
    /// Made when it is first waited for.
    timer: Option<Pin<Box<Sleep>>>,
    sent: u64,
    /// How it takes its answers.
    pace: Pace,
    /// Least rate in bytes per second of what it sends.
    request_rate: u32,
    too_slow: Option<TooSlow>,
    /// It came to the admin listener, from this peer.
    pub admin: Option<AdminPeer>,
    /// What TLS says of the client, if it is spoken.
    pub secured: Option<Arc<Secured>>,
}

/// Why no request came.
#[derive(Debug)]
pub enum NoHead {
    /// The client closed the connection, or did nothing with it for too long.
    Closed,
    /// It sent part of a head and then nothing for too long.
    TooSlow,
    /// It sent what is no request.
    Refused(Refusal),
}

impl Connection {
    /// A connection that was just accepted over TCP.
    pub fn new(socket: OwnedFd, peer: SocketAddr, rates: Rates) -> Connection {
        let pace = Pace::new(rates.answer, ANSWER_GRACE);
        let stream = Stream::Plain(Socket::Fresh(socket, Family::Tcp));
        Connection::over(stream, peer, pace, rates.request)
    }

    /// One of the admin listener, which comes over a Unix socket if it has no address.
    pub fn of_admin(
        socket: Socket,
        admin: AdminPeer,
        peer: Option<SocketAddr>,
        rates: Rates,
    ) -> Connection {
        let stream = Stream::Plain(socket);
        let pace = Pace::new(rates.answer, ANSWER_GRACE);
        let peer = peer.unwrap_or(NO_ADDRESS);
        Connection {
            admin: Some(admin),
            ..Connection::over(stream, peer, pace, rates.request)
        }
    }

    /// One of a web server, which comes over a Unix socket if it has no address, and which may leave
    /// an answer untouched for as long as `patience`.
    pub fn of_web_server(
        socket: Socket,
        peer: Option<SocketAddr>,
        patience: Duration,
    ) -> Connection {
        let peer = peer.unwrap_or(NO_ADDRESS);
        let stream = Stream::Plain(socket);
        Connection::over(stream, peer, Pace::new(0, patience), WEB_SERVER_RATE)
    }

    /// One that has been used before, and will not be asked for anything.
    pub fn resumed(stream: Stream, peer: SocketAddr) -> Connection {
        Connection::over(stream, peer, Pace::new(0, ANSWER_GRACE), 0)
    }

    /// The socket, and what was read off it and nobody has used.
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

    /// What the connection ends for, if its client was too slow.
    pub fn too_slow(&self) -> Option<TooSlow> {
        self.too_slow
    }

    /// The pace at which a body has to come that begins now.
    pub fn body_pace(&self) -> Pace {
        Pace::new(self.request_rate, REQUEST_GRACE)
    }

    /// Begins TLS. A client that sends plain HTTP can then be answered as it asked.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn secure(&mut self, tls: &Tls) -> Result<(), NoTls> {
        let Connection {
            stream,
            input,
            timer,
            ..
        } = self;
        let shaken = stream.secure(tls.config.clone(), input);
        let shaken = before(timer, || Instant::now() + HANDSHAKE, shaken).await;
        shaken.unwrap_or(Err(NoTls::TooSlow))?;
        if let Some(stream) = stream.tls() {
            self.secured = Some(tls.secured(stream));
        }
        Ok(())
    }

    /// What the client wants to speak over TLS, of [`crate::net::tls::PROTOCOLS`], if it said so.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.stream.tls()?.protocol()
    }

    /// The connection will end in the middle of an answer, which the client is to notice.
    pub fn break_off(&mut self) {
        self.stream.break_off();
    }

    /// The address the client connected to.
    pub fn local(&mut self) -> SocketAddr {
        let stream = &self.stream;
        *self
            .local
            .get_or_insert_with(|| stream.local_addr().unwrap_or(NO_ADDRESS))
    }

    /// All of it, for what is not HTTP.
    pub fn raw(&mut self) -> crate::http::client::Raw<'_> {
        crate::http::client::Raw {
            stream: &mut self.stream,
            input: &mut self.input,
            sent: &mut self.sent,
        }
    }

    /// What the client has sent and nobody has used yet.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Waits for the next request's head.
    ///
    /// # Errors
    /// When none comes, or what comes is none.
    pub async fn next_head(&mut self, limits: &Limits) -> Result<Head, NoHead> {
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
                self.fill(|| Instant::now() + IDLE).await
            } else {
                let begun = *begun.get_or_insert_with(Instant::now);
                self.fill(|| begun + HEAD).await
            };
            match filled {
                Some(Ok(count)) if count > 0 => {}
                None if begun.is_some() => {
                    self.too_slow = Some(TooSlow::Sending);
                    return Err(NoHead::TooSlow);
                }
                _ => return Err(NoHead::Closed),
            }
        }
    }

    /// Reads more from the client: how many bytes, 0 at the end. `None` when the deadline passed,
    /// which is asked for only if there is something to wait for.
    pub async fn fill(&mut self, deadline: impl FnOnce() -> Instant) -> Option<io::Result<usize>> {
        let Connection {
            stream,
            input,
            timer,
            ..
        } = self;
        before(timer, deadline, stream.read(input)).await
    }

    /// Reads more of a body of which `total` bytes have come: how many bytes, 0 at the end. `None`
    /// when it comes too slowly.
    pub async fn fill_body(&mut self, total: u64, pace: &mut Pace) -> Option<io::Result<usize>> {
        let filled = self.fill(|| pace.wait(total, Instant::now())).await;
        pace.came(Instant::now);
        if filled.is_none() {
            self.too_slow = Some(TooSlow::Sending);
        }
        filled
    }

    /// As [`Connection::fill`], for as long as it takes.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn read(&mut self) -> io::Result<usize> {
        self.stream.read(&mut self.input).await
    }

    /// Returns when it may pay to look whether the client has gone: at once for a connection that is
    /// watched anyway, and for a fresh one when its answer is not there before the thread looks at the clock.
    pub async fn worth_watching(&mut self) {
        if !self.stream.is_registered() {
            thread::tick().await;
        }
    }

    /// As [`Connection::client_gone`], for a client whose answer will be there in a moment: for
    /// most fresh connections, looking for its departure does not pay.
    pub async fn client_gone_later(&mut self) {
        self.worth_watching().await;
        self.client_gone().await;
    }

    /// Returns when the client has gone. What it sends meanwhile is kept for later, up to a
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

    /// Sends bytes without waiting; 0 when the client must read first.
    ///
    /// # Errors
    /// When the client has gone.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.stream.try_send(bytes, false)?.unwrap_or(0);
        self.sent += sent as u64;
        Ok(sent)
    }

    /// Bytes that the client has been sent, heads included.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Waits until the client may be sent more.
    ///
    /// # Errors
    /// When the client has gone or reads too slowly.
    pub async fn sendable(&mut self) -> io::Result<()> {
        // Few clients keep anybody waiting, and every request would hold the room for it.
        Box::pin(self.wait_until_sendable()).await
    }

    async fn wait_until_sendable(&mut self) -> io::Result<()> {
        loop {
            let Connection {
                stream,
                timer,
                pace,
                sent,
                ..
            } = self;
            let deadline = || pace.wait(*sent, Instant::now());
            let writable = before(timer, deadline, stream.writable()).await;
            if let Some(outcome) = writable {
                pace.came(Instant::now);
                return outcome;
            }
            let taken = stream.acknowledged().unwrap_or(0);
            if !pace.goes_on(taken, Instant::now()) {
                stream.abandon();
                self.too_slow = Some(TooSlow::Reading);
                return Err(too_slow());
            }
        }
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// As [`Connection::sendable`].
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send_all(bytes, false).await
    }

    /// Sends an interim answer (RFC 9110 §15.2), which is no part of the answer that counts.
    ///
    /// # Errors
    /// As [`Connection::sendable`].
    pub async fn send_interim(&mut self, bytes: &[u8]) -> io::Result<()> {
        let counted = self.sent;
        let outcome = self.send(bytes).await;
        self.sent = counted;
        outcome
    }

    /// Sends a head that a file follows: the kernel keeps it back to fill a packet.
    ///
    /// # Errors
    /// As [`Connection::sendable`].
    pub async fn send_more(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send_all(bytes, true).await
    }

    /// Sends all of `head`, and then of `body`, without copying them into one.
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

    /// Sends a piece of a file, which the kernel copies by itself. A piece that is not in memory
    /// is first read there by another thread.
    ///
    /// # Errors
    /// As [`Connection::sendable`]; `UnexpectedEof` when the file has become shorter.
    pub async fn send_file(
        &mut self,
        fd: &std::sync::Arc<OwnedFd>,
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let piece = (end - at).min(SENDFILE_BYTES);
            if residency(fd.as_ref(), at, piece) != Residency::Resident {
                read_ahead(fd.clone(), at, piece).await?;
            }
            self.send_resident(fd, at, at + piece).await?;
            at += piece;
        }
        Ok(())
    }

    /// Sends what lies between two places of a file that is in memory.
    ///
    /// # Errors
    /// As [`Connection::send_file`].
    pub async fn send_resident(&mut self, fd: &OwnedFd, mut at: u64, end: u64) -> io::Result<()> {
        while at < end {
            let count = usize::try_from((end - at).min(SENDFILE_BYTES)).unwrap_or(usize::MAX);
            match self.stream.try_sendfile(fd, at, count)? {
                None => self.sendable().await?,
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(sent) => {
                    at += sent as u64;
                    self.sent += sent as u64;
                }
            }
        }
        Ok(())
    }

    /// Ends the connection so that the client gets the answer it was sent last: says that nothing
    /// more comes, and takes what still arrives for a while.
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
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the client did not read its answer",
    )
}

async fn read_ahead(fd: std::sync::Arc<OwnedFd>, offset: u64, length: u64) -> io::Result<()> {
    let read = move || {
        let mut buffer = vec![0; READ_AHEAD_BYTES];
        let (mut at, end) = (offset, offset + length);
        while at < end {
            match rustix::io::pread(fd.as_ref(), &mut buffer, at) {
                Ok(0) => break,
                Ok(count) => at += count as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    Ok(tokio::task::spawn_blocking(read)
        .await
        .map_err(io::Error::other)??)
}

/// What `task` yields, or nothing when the deadline passes first. The timer is set only when
/// there is something to wait for, since setting it costs more than most requests take.
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
