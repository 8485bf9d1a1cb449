//! A client's socket under TLS. An idle connection holds no buffer: encrypted bytes go to the
//! socket at once, and received bytes are decrypted as soon as they arrive.

use std::cell::RefCell;
use std::collections::HashSet;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use maitred_tls::{Material, Server, Variables};
use rustls::ServerConfig;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError,
    UnbufferedStatus, WriteTraffic,
};
use tokio::io::ReadBuf;

use crate::net::client_memory::{self, ClientMemory};
use crate::net::client_verification::ClientVerification;
use crate::net::socket::Socket;

/// The protocols offered by ALPN (RFC 7301), the best first. A client that wants another is
/// refused, as by nginx.
pub const PROTOCOLS: &[&[u8]] = &[HTTP2, b"http/1.1", b"http/1.0"];

/// The ALPN name of HTTP/2 (RFC 9113 §3.2).
pub const HTTP2: &[u8] = b"h2";

/// Most bytes of a response that are encrypted and sent in one go: four records.
const PIECE_BYTES: usize = 64 * 1024;

/// Largest overhead of a record in bytes: header, nonce, tag and content type.
const OVERHEAD_BYTES: usize = 5 + 8 + 16 + 1;

/// Bytes of replies to TLS messages that may wait for the client to read. A client that sends
/// messages without end and reads nothing is disconnected.
const MAX_UNREAD_BYTES: usize = 64 * 1024;

/// The first byte of a handshake record (RFC 8446 §5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// Buffers that all connections of a thread share.
struct Scratch {
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        plain: vec![0; PIECE_BYTES],
        sealed: vec![0; PIECE_BYTES + (PIECE_BYTES / (16 * 1024) + 1) * OVERHEAD_BYTES],
    });
}

/// The reason why a TLS handshake failed.
#[derive(Debug)]
pub enum NoTls {
    /// The client closed the connection.
    Closed,
    /// The handshake timed out.
    TooSlow,
    /// The client speaks plain HTTP.
    PlainHttp,
    /// The connection broke, or client and server have no version, key or certificate in common.
    Failed(io::Error),
}

impl std::fmt::Display for NoTls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoTls::Closed => out.write_str("the client has left"),
            NoTls::TooSlow => out.write_str("the client took too long"),
            NoTls::PlainHttp => out.write_str("the client speaks plain HTTP"),
            NoTls::Failed(why) => why.fmt(out),
        }
    }
}

impl From<io::Error> for NoTls {
    fn from(error: io::Error) -> NoTls {
        NoTls::Failed(error)
    }
}

/// The TLS configuration of new connections.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The configuration: certificates, versions, tickets.
    pub config: Arc<ServerConfig>,
    /// The same without the certificates of ACME validation.
    usual: Arc<ServerConfig>,
    /// Hosts whose certificates have not been issued yet.
    awaited: Arc<HashSet<String>>,
    /// Which client certificates the server requests.
    pub clients: ClientVerification,
    /// The data of most connections, which are alike.
    plain: Arc<Secured>,
}

impl Tls {
    /// Builds the configuration from material that the supervisor has checked.
    ///
    /// # Errors
    /// Its fault.
    pub fn new(material: &Material) -> Result<Tls, String> {
        let server = Server::new(material, PROTOCOLS).map_err(|why| why.to_string())?;
        Ok(Tls {
            usual: server.config.clone(),
            config: server.config,
            awaited: Arc::new(material.awaited.iter().cloned().collect()),
            clients: ClientVerification::of(material.clients.as_ref()),
            plain: Arc::new(Secured {
                hsts: material.transport_security().map(Arc::from),
                ..Secured::default()
            }),
        })
    }

    /// This configuration with the certificates for ACME challenges: each host with the SHA-256
    /// digest to present.
    pub fn with_proofs(&self, proofs: &[(String, [u8; 32])]) -> Tls {
        let config = maitred_tls::with_proofs(&self.usual, proofs).unwrap_or_else(|why| {
            tracing::error!("{why}");
            self.usual.clone()
        });
        Tls { config, ..self.clone() }
    }

    /// Whether the certificate of this host is still to be issued.
    pub fn awaits(&self, host: &str) -> bool {
        !self.awaited.is_empty() && self.awaited.contains(&host.to_ascii_lowercase())
    }

    /// The TLS data of a connection.
    pub fn secured(&self, stream: &TlsStream) -> Arc<Secured> {
        let variables = match self.clients.is_on() {
            true => {
                let shown = stream.session.peer_certificates();
                maitred_tls::variables(shown.and_then(<[_]>::first))
            }
            false => Variables::new(),
        };
        let version = stream.session.protocol_version();
        let suite = stream.session.negotiated_cipher_suite();
        Arc::new(Secured {
            variables,
            protocol: version.map_or("", maitred_tls::names::protocol),
            cipher: suite.map_or("", |suite| maitred_tls::names::cipher(suite.suite())),
            hsts: self.plain.hsts.clone(),
            clients: self.clients,
        })
    }
}

/// The TLS data of a connection for request handlers.
#[derive(Debug, Default)]
pub struct Secured {
    /// Variables for PHP about the client certificate, if the server requests one.
    pub variables: Variables,
    /// The TLS version, in OpenSSL's spelling; empty if unknown.
    pub protocol: &'static str,
    /// The cipher suite, in OpenSSL's spelling; empty if unknown.
    pub cipher: &'static str,
    /// The value of the `Strict-Transport-Security` header, if the response carries it.
    pub hsts: Option<Arc<str>>,
    /// Which client certificates its handshake accepted.
    pub clients: ClientVerification,
}

impl Secured {
    /// Whether the client has presented a valid certificate.
    pub fn shows_certificate(&self) -> bool {
        let is_shown =
            |(name, value): &(_, String)| *name == "SSL_CLIENT_VERIFY" && value == "SUCCESS";
        self.variables.iter().any(is_shown)
    }
}

/// A client's socket under TLS.
pub struct TlsStream {
    socket: Socket,
    session: UnbufferedServerConnection,
    /// Received bytes of an incomplete record.
    incoming: BytesMut,
    /// Decrypted bytes that are not consumed yet.
    opened: BytesMut,
    /// Encrypted bytes that the socket has not taken.
    outgoing: BytesMut,
    unsent: ClientMemory,
    /// Bytes of a response that are encrypted and not counted as sent.
    promised: usize,
    /// The client has closed its sending side.
    ended: bool,
    /// Nothing more is sent to the client, not even close_notify.
    is_over: bool,
}

impl std::fmt::Debug for TlsStream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("TlsStream").field(&self.socket).finish()
    }
}

/// Whether these are the first bytes of a request over plain HTTP: a method is letters (RFC 9110
/// §9.1 has them all in upper case).
pub fn is_plain_http(first: &[u8]) -> bool {
    let byte = first.first().copied().unwrap_or(HANDSHAKE_RECORD);
    byte != HANDSHAKE_RECORD && byte.is_ascii_uppercase()
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn exhausted(error: EncryptError) -> io::Error {
    io::Error::other(error.to_string())
}

impl TlsStream {
    /// A connection with its first received bytes.
    ///
    /// # Errors
    /// When `config` is invalid.
    pub fn new(
        socket: Socket,
        first: BytesMut,
        config: Arc<ServerConfig>,
    ) -> io::Result<TlsStream> {
        Ok(TlsStream {
            socket,
            session: UnbufferedServerConnection::new(config).map_err(invalid)?,
            incoming: first,
            opened: BytesMut::new(),
            outgoing: BytesMut::new(),
            unsent: ClientMemory::default(),
            promised: 0,
            ended: false,
            is_over: false,
        })
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The socket, to wait for space in its buffer.
    pub fn socket_mut(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// The protocol negotiated by ALPN, one of [`PROTOCOLS`]; none: the client does not use ALPN.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.session.alpn_protocol()
    }

    /// Performs the handshake.
    ///
    /// # Errors
    /// When it fails, or the connection breaks.
    pub async fn handshake(&mut self) -> io::Result<()> {
        loop {
            let mut opened = std::mem::take(&mut self.opened);
            let outcome = self.drive(&mut opened, |_| ());
            self.opened = opened;
            // An alert says what is wrong.
            let flushed = poll_fn(|cx| self.poll_flush(cx)).await;
            outcome?;
            flushed?;
            if !self.session.is_handshaking() {
                return Ok(());
            }
            let TlsStream { socket, incoming, .. } = self;
            if self.ended || socket.read(incoming).await? == 0 {
                self.is_over = true;
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Decrypts all complete records into `into`, and encrypts replies to TLS messages. Calls
    /// `write` when a response may be sent.
    fn drive<T>(
        &mut self,
        into: &mut BytesMut,
        write: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>) -> T,
    ) -> io::Result<Option<T>> {
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.session.process_tls_records(&mut self.incoming);
            match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(record) = records.next_record() {
                        let record = record.map_err(invalid)?;
                        discard += record.discard;
                        into.extend_from_slice(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut self.outgoing)?,
                // It is in `outgoing`, before the bytes that follow.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.ended = true,
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let written = write(&mut traffic);
                    self.incoming.advance(discard);
                    return Ok(Some(written));
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => {
                    self.incoming.advance(discard);
                    return Ok(None);
                }
                // Early data is not enabled.
                Ok(_) => return Err(io::ErrorKind::Unsupported.into()),
                Err(error) => {
                    self.seal_alert();
                    return Err(invalid(error));
                }
            }
            self.incoming.advance(discard);
        }
    }

    /// Encrypts the alert for an error; nothing can be sent after it.
    fn seal_alert(&mut self) {
        self.is_over = true;
        while let Ok(state) = self.session.process_tls_records(&mut []).state {
            match state {
                ConnectionState::EncodeTlsData(data) => {
                    if encode(data, &mut self.outgoing).is_err() {
                        return;
                    }
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                _ => return,
            }
        }
    }

    /// Sends encrypted bytes as far as the socket takes them. True when none are left.
    fn flush(&mut self) -> io::Result<bool> {
        while !self.outgoing.is_empty() {
            match self.socket.try_send(&self.outgoing, false)? {
                Some(count) => self.outgoing.advance(count),
                None => return Ok(false),
            }
        }
        self.outgoing = BytesMut::new();
        self.unsent.holds(0);
        Ok(true)
    }

    /// As [`TlsStream::flush`], until nothing is left.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.flush()? {
            ready!(self.socket.poll_writable(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads available bytes; 0 at the end.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let before = into.len();
        if !self.opened.is_empty() {
            into.extend_from_slice(&std::mem::take(&mut self.opened));
        }
        while into.len() == before && !self.ended {
            if self.incoming.is_empty() {
                self.incoming = BytesMut::new();
            }
            let read = self.socket.poll_read(cx, &mut self.incoming);
            if ready!(read)? == 0 {
                // Some clients close without close_notify; HTTP shows whether bytes are missing.
                self.ended = true;
            }
            let outcome = self.drive(into, |_| ());
            // The reply to a TLS message is sent with the next bytes at the latest.
            self.flush()?;
            outcome?;
            if self.outgoing.len() > MAX_UNREAD_BYTES + PIECE_BYTES {
                self.is_over = true;
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        Poll::Ready(Ok(into.len() - before))
    }

    /// As [`TlsStream::poll_read`], into a buffer of fixed size.
    pub fn poll_read_into(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.opened.is_empty() {
            let mut opened = BytesMut::new();
            let read = self.poll_read(cx, &mut opened);
            self.opened = opened;
            ready!(read)?;
        }
        let count = self.opened.len().min(into.remaining());
        into.put_slice(&self.opened[..count]);
        self.opened.advance(count);
        if self.opened.is_empty() {
            self.opened = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Sends as many bytes as fit into the socket buffer. Bytes count as sent when the socket has
    /// taken all encrypted data. After `None` the next bytes must be the same, but may be fewer.
    pub fn try_send(&mut self, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
        SCRATCH.with_borrow_mut(|scratch| match self.paid(bytes.len())? {
            Some(0) => self.send_sealed(bytes, more, &mut scratch.sealed),
            counted => Ok(counted),
        })
    }

    /// Whether bytes were taken that do not count as sent yet.
    pub fn has_promised(&self) -> bool {
        self.promised > 0
    }

    /// As [`TlsStream::try_send`] with a piece of a file; 0 at its end.
    pub fn try_sendfile(
        &mut self,
        file: &OwnedFd,
        at: u64,
        count: usize,
    ) -> io::Result<Option<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            match self.paid(count)? {
                Some(0) => {}
                counted => return Ok(counted),
            }
            let room = &mut scratch.plain[..count.min(PIECE_BYTES)];
            let length = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut room[..], at))?;
            let more = length < count;
            self.send_sealed(&scratch.plain[..length], more, &mut scratch.sealed)
        })
    }

    /// Sends bytes that were encrypted before, and counts them: no more than the caller asks to
    /// send. `None`: the socket is still full; 0: there were none.
    fn paid(&mut self, asked: usize) -> io::Result<Option<usize>> {
        if !self.outgoing.is_empty() && !self.flush()? {
            return Ok(None);
        }
        let counted = self.promised.min(asked);
        self.promised -= counted;
        Ok(Some(counted))
    }

    fn send_sealed(
        &mut self,
        bytes: &[u8],
        more: bool,
        room: &mut Vec<u8>,
    ) -> io::Result<Option<usize>> {
        let count = bytes.len().min(client_memory::limit(PIECE_BYTES));
        let sealed = self.seal(&bytes[..count], room)?;
        let mut rest = &room[..sealed];
        while self.outgoing.is_empty() && !rest.is_empty() {
            match self.socket.try_send(rest, more)? {
                Some(sent) => rest = &rest[sent..],
                None => break,
            }
        }
        if rest.is_empty() {
            return Ok(Some(count));
        }
        self.outgoing.extend_from_slice(rest);
        self.unsent.holds(self.outgoing.len());
        self.promised = count;
        self.paid(count)
    }

    /// Encrypts bytes into `room`; returns the encrypted length.
    fn seal(&mut self, bytes: &[u8], room: &mut Vec<u8>) -> io::Result<usize> {
        let mut opened = std::mem::take(&mut self.opened);
        let sealed = self.drive(&mut opened, |traffic| match traffic.encrypt(bytes, room) {
            Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
                room.resize(required_size, 0);
                traffic.encrypt(bytes, room)
            }
            other => other,
        });
        self.opened = opened;
        match sealed? {
            Some(sealed) => sealed.map_err(exhausted),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Takes bytes over, and sends them as soon as the socket allows.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let sent = SCRATCH.with_borrow_mut(|scratch| {
            let count = bytes.len().min(client_memory::limit(PIECE_BYTES));
            let sent = self.send_sealed(&bytes[..count], false, &mut scratch.sealed)?;
            // Bytes that do not fit yet are sent before any others.
            self.promised = 0;
            io::Result::Ok(sent.unwrap_or(count))
        })?;
        Poll::Ready(Ok(sent))
    }

    /// As [`TlsStream::poll_write`], with several pieces that become one record where they fit.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [piece] = pieces {
            return self.poll_write(cx, piece);
        }
        ready!(self.poll_flush(cx))?;
        let sent = SCRATCH.with_borrow_mut(|Scratch { plain, sealed }| {
            let mut count = 0;
            for piece in pieces {
                let taken = piece.len().min(PIECE_BYTES - count);
                plain[count..count + taken].copy_from_slice(&piece[..taken]);
                count += taken;
            }
            let sent = self.send_sealed(&plain[..count], false, sealed)?;
            self.promised = 0;
            io::Result::Ok(sent.unwrap_or(count))
        })?;
        Poll::Ready(Ok(sent))
    }

    /// Sends close_notify, so that a truncated response is detected (RFC 8446 §6.1).
    fn say_goodbye(&mut self) {
        if std::mem::replace(&mut self.is_over, true) || self.session.is_handshaking() {
            return;
        }
        let mut room = [0; 64];
        let mut opened = BytesMut::new();
        let alert = self.drive(&mut opened, |traffic| traffic.queue_close_notify(&mut room));
        if let Ok(Some(Ok(length))) = alert {
            self.outgoing.extend_from_slice(&room[..length]);
            // A closed client needs no notification.
            let _ = self.flush();
        }
    }

    /// Shuts the sending side down, in TLS and in TCP.
    pub fn shut_down(&mut self) {
        self.say_goodbye();
        self.socket.shut_down();
    }

    /// Ends the connection in the middle of a response, so that the client notices.
    pub fn break_off(&mut self) {
        self.is_over = true;
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.say_goodbye();
    }
}

/// Appends a handshake message to the outgoing bytes.
fn encode(
    mut data: EncodeTlsData<'_, ServerConnectionData>,
    outgoing: &mut BytesMut,
) -> io::Result<()> {
    let length = match data.encode(&mut []) {
        Ok(_) => return Ok(()),
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            required_size
        }
        Err(error) => return Err(io::Error::other(error.to_string())),
    };
    let at = outgoing.len();
    outgoing.resize(at + length, 0);
    let encoded = data.encode(&mut outgoing[at..]);
    encoded.map_err(|error| io::Error::other(error.to_string()))?;
    Ok(())
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
