//! The state that the streams of a connection share: the client, and limits over all streams.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use maitred_http1::Framing;
use tokio::sync::Notify;

use crate::http::request_memory::RequestMemory;
use crate::net::client_memory::{self, ClientMemory};
use crate::net::client_rate::{Rates, TooSlow};
use crate::net::tls::Secured;
use crate::server::http1::connection::Connection;
use crate::server::http2::STREAM_WINDOW;
use crate::server::http2::frames::FrameEvent;
use crate::server::http2::stream_accounts::{EndedRequest, PeerKind, StreamAccounts};
use crate::server::http2::unsent_heads::{self, UnsentHeads};
use crate::services::Thread;
use crate::services::lifecycle::ConnectionGuard;

/// Bytes of responses that all streams together may have handed to h2 and not written.
const UNSENT_BYTES: usize = 256 * 1024;

/// The state that the streams of a connection share.
pub struct ConnectionState {
    guard: ConnectionGuard,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address the client connected to.
    pub local: SocketAddr,
    /// The TLS data of the connection, if it is under TLS.
    pub secured: Option<Arc<Secured>>,
    /// The minimum rates of the client.
    pub rates: Rates,
    /// A stream was given up because its client reads nothing.
    is_slow: AtomicBool,
    /// The memory of requests, and the signs of abuse.
    pub accounts: StreamAccounts,
    /// Bytes handed to h2 and not written, with those of `heads`.
    unsent: AtomicUsize,
    heads: UnsentHeads,
    /// Those among the bytes of all clients.
    unsent_memory: Mutex<ClientMemory>,
    room: Notify,
}

impl ConnectionState {
    /// The state of a new connection.
    pub fn new(guard: ConnectionGuard, connection: &mut Connection) -> ConnectionState {
        let rates = guard.thread.rates();
        let address = guard.thread.address(connection.peer.ip());
        let kind = match guard.thread.is_trusted_proxy(connection.peer.ip()) {
            true => PeerKind::TrustedProxy,
            false => PeerKind::Client,
        };
        ConnectionState {
            guard,
            rates,
            is_slow: AtomicBool::new(false),
            peer: connection.peer,
            local: connection.local(),
            secured: connection.secured.clone(),
            accounts: StreamAccounts::new(address, kind),
            unsent: AtomicUsize::new(0),
            heads: UnsentHeads::default(),
            unsent_memory: Mutex::default(),
            room: Notify::new(),
        }
    }

    /// The thread that serves it.
    pub fn thread(&self) -> &Arc<Thread> {
        &self.guard.thread
    }

    /// Logs that a stream is reset because its client is too slow.
    pub fn too_slow(&self, at: TooSlow) {
        if at == TooSlow::Reading {
            self.is_slow.store(true, Ordering::Relaxed);
        }
        self.thread().shared.troubles.too_slow(self.peer.ip(), at);
    }

    /// Whether a stream was reset because its client reads nothing.
    pub fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// The memory of all clients' requests.
    fn memory(&self) -> &RequestMemory {
        &self.thread().shared.requests
    }

    /// Accounts for a request of `stream` with a header of `bytes`. Returns the bytes to release at
    /// its end.
    ///
    /// # Errors
    /// Why it is refused: requests hold too much memory already.
    pub fn begin(&self, stream: u32, head: usize) -> Result<usize, &'static str> {
        self.accounts.begin(self.memory(), stream, head).inspect_err(|why| self.refuse_head(why))
    }

    /// Accounts for `more` bytes of a request, besides its header and its body.
    ///
    /// # Errors
    /// Why it is refused: requests hold too much memory already.
    pub fn add(&self, more: usize) -> Result<(), &'static str> {
        self.accounts.add(self.memory(), more)
    }

    /// Accounts for a request's body that had `before` bytes in memory, and has `after` now.
    ///
    /// # Errors
    /// There is no memory for it: the caller writes it to a file.
    pub fn resize_body(&self, before: usize, after: usize) -> Result<(), &'static str> {
        self.accounts.resize_body(self.memory(), before, after)
    }

    /// Grows the connection's window by what a body may have there before it is read, until it is
    /// dropped. None: the body shares the window with others.
    pub fn grow_window(self: &Arc<Self>, body: Framing) -> Option<BodyWindow> {
        let bytes = match body {
            Framing::None => return None,
            Framing::Length(length) => length.min(u64::from(STREAM_WINDOW)) as usize,
            Framing::Chunked => STREAM_WINDOW as usize,
        };
        let grows = self.accounts.grow_window(self.memory(), bytes);
        grows.then(|| BodyWindow { bytes, trunk: self.clone() })
    }

    /// Ends a request, and releases its bytes.
    pub fn end(&self, request: EndedRequest) {
        self.accounts.end(self.memory(), request);
    }

    /// Releases the trailers of a request, whose body has ended.
    pub fn body_is_over(&self, stream: u32) {
        self.accounts.body_is_over(self.memory(), stream);
    }

    /// Handles an event of the frame parser.
    pub fn seen(&self, what: FrameEvent) {
        if let FrameEvent::FrameSize(bytes) = what {
            self.heads.accepts_frames(bytes);
        }
        if let Err(why) = self.accounts.seen(self.memory(), what) {
            self.refuse_head(why);
        }
    }

    /// Handles the end of header blocks: they are complete, or are not read further.
    pub fn fields_are_over(&self) {
        self.accounts.fields_are_over(self.memory());
    }

    fn refuse_head(&self, why: &str) {
        self.thread().shared.refuse_head(self.peer.ip(), why);
    }

    /// Number of bytes that may be passed to h2 now: fewer where many clients do not read.
    pub fn room(&self) -> usize {
        let most = client_memory::limit(UNSENT_BYTES);
        most.saturating_sub(self.unsent.load(Ordering::Relaxed))
    }

    /// Whether h2 has bytes that are not written.
    pub fn has_unsent(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) > 0
    }

    /// Waits until more bytes may be passed to h2.
    pub async fn has_room(&self) {
        while self.room() == 0 {
            self.room.notified().await;
        }
    }

    /// Takes room for bytes that are passed to h2, of what [`ConnectionState::room`] says.
    pub fn take_room(self: &Arc<Self>, bytes: usize) -> UnsentRoom {
        self.fill_room(bytes);
        UnsentRoom { bytes, trunk: self.clone() }
    }

    /// Accounts for a header section that is passed to h2, until it is written. Its first value
    /// marks when h2 drops it: as a sensitive one, it stays out of the table of HPACK, which would
    /// hold on to it.
    ///
    /// # Errors
    /// The client has too many to read: this one is not to be sent.
    pub fn hold_head(self: &Arc<Self>, fields: &mut HeaderMap) -> Result<(), &'static str> {
        let Some(size) = unsent_heads::size(fields) else {
            return Ok(());
        };
        if !self.heads.take(size, unsent_heads::limit()) {
            self.refuse_head(unsent_heads::NO_ROOM);
            return Err(unsent_heads::NO_ROOM);
        }
        self.fill_room(size.memory);
        if let Some(value) = fields.values_mut().next() {
            let marked =
                UnsentHead { bytes: size.memory, value: value.clone(), trunk: self.clone() };
            if let Ok(marked) = HeaderValue::from_maybe_shared(Bytes::from_owner(marked)) {
                *value = marked;
                value.set_sensitive(true);
            }
        }
        Ok(())
    }

    /// Handles that h2 has written all that it has encoded.
    pub fn has_written(&self) {
        let bytes = self.heads.written();
        if bytes > 0 {
            self.release_room(bytes);
        }
    }

    fn fill_room(&self, bytes: usize) {
        let before = self.unsent.fetch_add(bytes, Ordering::Relaxed);
        self.account(before, before + bytes);
    }

    /// Gives room back.
    fn release_room(&self, bytes: usize) {
        let before = self.unsent.fetch_sub(bytes, Ordering::Relaxed);
        self.account(before, before.saturating_sub(bytes));
        self.room.notify_waiters();
    }

    /// Accounts for a change from `before` to `after` unsent bytes.
    fn account(&self, before: usize, after: usize) {
        if before.max(after) > client_memory::LEAST_BYTES {
            let memory = self.unsent_memory.lock();
            let held = after.max(self.heads.buffers());
            memory.unwrap_or_else(PoisonError::into_inner).holds(held);
        }
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.accounts.close(self.memory());
    }
}

/// Room for bytes that are passed to h2, until it is dropped.
pub struct UnsentRoom {
    bytes: usize,
    trunk: Arc<ConnectionState>,
}

impl UnsentRoom {
    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes for h2, which are accounted for until they are written: those that have room.
    pub fn hold(mut self, mut bytes: Vec<u8>) -> Bytes {
        bytes.truncate(self.bytes);
        bytes.shrink_to_fit();
        let unused = self.bytes - bytes.len();
        if unused > 0 {
            self.bytes = bytes.len();
            self.trunk.release_room(unused);
        }
        Bytes::from_owner(HeldBytes { bytes, _room: self })
    }
}

impl Drop for UnsentRoom {
    fn drop(&mut self) {
        self.trunk.release_room(self.bytes);
    }
}

/// A part of the connection's window for the body of one request.
pub struct BodyWindow {
    bytes: usize,
    trunk: Arc<ConnectionState>,
}

impl Drop for BodyWindow {
    fn drop(&mut self) {
        self.trunk.accounts.shrink_window(self.trunk.memory(), self.bytes);
    }
}

/// Bytes that wait to be written.
struct HeldBytes {
    bytes: Vec<u8>,
    _room: UnsentRoom,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A header section that h2 has not encoded, until this value of it is dropped.
struct UnsentHead {
    bytes: usize,
    value: HeaderValue,
    trunk: Arc<ConnectionState>,
}

impl Drop for UnsentHead {
    fn drop(&mut self) {
        self.trunk.heads.encoded(self.bytes);
    }
}

impl AsRef<[u8]> for UnsentHead {
    fn as_ref(&self) -> &[u8] {
        self.value.as_bytes()
    }
}
