//! The state that the streams of a connection share: the client, and limits over all streams.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::net::client_addresses::Address;
use crate::net::client_memory::{self, ClientMemory};
use crate::net::client_rate::{Rates, TooSlow};
use crate::net::tls::Secured;
use crate::server::http1::connection::Connection;
use crate::server::http2::abuse::Noise;
use crate::server::http2::frames::FrameEvent;
use crate::services::Thread;
use crate::services::lifecycle::ConnectionGuard;

/// Bytes of responses that all streams together may have handed to h2 and not written.
const UNSENT_BYTES: usize = 256 * 1024;
/// Bytes of bodies, and of responses to slow clients, that all streams of a connection together may
/// hold in memory before files are used; [`LEAST_SHARE_BYTES`] of each in any case.
const SHARED_BYTES: usize = 512 * 1024;
/// Bytes that the headers of all requests of a connection may hold; one request is always allowed.
const REQUESTS_BYTES: usize = 2 * 1024 * 1024;
/// Bytes that a waiting request holds besides its header: its tasks, and its stream.
const REQUEST_BYTES: usize = 8 * 1024;
/// Bytes of trailers, as received, for all requests of a connection that are in progress.
const TRAILERS_BYTES: usize = 4 * 1024;
/// Largest memory of incomplete header blocks, in bytes.
const FIELDS_BYTES: usize = 192 * 1024;
/// Their memory for each byte received: an index into HPACK's table takes one byte, and the header
/// it expands to has a slot in a map with spare capacity.
const UNPACKED: usize = 128;
/// The least share of a stream.
const LEAST_SHARE_BYTES: usize = 8 * 1024;
/// Requests that a client may reset beyond the number of responses it has read.
const TAKEN_BACK: u64 = 100;

/// The state that the streams of a connection share.
pub struct ConnectionState {
    guard: ConnectionGuard,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address that the requests' memory is accounted to, if it is accounted. It stays the same
    /// when the configuration changes, so that the account balances.
    address: Option<Address>,
    /// The address the client connected to.
    pub local: SocketAddr,
    /// The TLS data of the connection, if it is under TLS.
    pub secured: Option<Arc<Secured>>,
    /// The minimum rates of the client.
    pub rates: Rates,
    /// A stream was given up because its client reads nothing.
    is_slow: AtomicBool,
    /// The share of received bytes that belongs to requests.
    pub noise: Noise,
    requests: AtomicUsize,
    /// Bytes that headers of requests hold.
    held: AtomicUsize,
    /// There was no memory for an incomplete header block.
    is_refused: AtomicBool,
    /// The part of them for incomplete header blocks.
    fields: AtomicUsize,
    /// How often a header block became incomplete or complete: odd while one is incomplete.
    open: AtomicU64,
    /// Bytes of trailers, by stream, and their sum.
    trailers: Mutex<HashMap<u32, usize>>,
    trailers_bytes: AtomicUsize,
    unsent: AtomicUsize,
    /// Those among the bytes of all clients.
    unsent_memory: Mutex<ClientMemory>,
    room: Notify,
    answered: AtomicU64,
    taken_back: AtomicU64,
}

impl ConnectionState {
    /// The state of a new connection.
    pub fn new(guard: ConnectionGuard, connection: &mut Connection) -> ConnectionState {
        let rates = guard.thread.rates();
        let address = guard.thread.address(connection.peer.ip());
        ConnectionState {
            guard,
            rates,
            is_slow: AtomicBool::new(false),
            peer: connection.peer,
            address,
            local: connection.local(),
            secured: connection.secured.clone(),
            noise: Noise::default(),
            requests: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
            fields: AtomicUsize::new(0),
            open: AtomicU64::new(0),
            trailers: Mutex::default(),
            trailers_bytes: AtomicUsize::new(0),
            unsent: AtomicUsize::new(0),
            unsent_memory: Mutex::default(),
            room: Notify::new(),
            answered: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
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

    /// Accounts for a request with a header of `bytes`. Returns the bytes to release at its end.
    ///
    /// # Errors
    /// Why it is refused: headers hold too much memory already.
    pub fn begin(&self, head: usize) -> Result<usize, &'static str> {
        let bytes = head + REQUEST_BYTES;
        let before = self.held.load(Ordering::Relaxed);
        let room = self.take(bytes);
        let why = if before > 0 && before + bytes > REQUESTS_BYTES {
            "the headers of its connection's requests would exceed 2 MiB"
        } else if let Err(why) = room {
            why
        } else {
            self.requests.fetch_add(1, Ordering::Relaxed);
            return Ok(bytes);
        };
        self.let_go(bytes);
        self.thread().shared.refuse_head(self.peer.ip(), why);
        Err(why)
    }

    /// Handles an event of the frame parser.
    pub fn seen(&self, what: FrameEvent) {
        match what {
            FrameEvent::Trailers(stream, bytes) => self.trailers(stream, bytes),
            FrameEvent::Open(bytes) => self.fields_came(bytes),
            FrameEvent::Complete => self.fields_are_over(),
        }
    }

    /// Accounts for frames of an incomplete header block.
    fn fields_came(&self, bytes: usize) {
        if self.open.load(Ordering::Relaxed).is_multiple_of(2) {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
        let bytes = bytes.saturating_mul(UNPACKED).min(FIELDS_BYTES);
        let more = bytes.saturating_sub(self.fields.load(Ordering::Relaxed));
        self.fields.fetch_add(more, Ordering::Relaxed);
        if let Err(why) = self.take(more) {
            self.fields.fetch_sub(more, Ordering::Relaxed);
            self.let_go(more);
            self.is_refused.store(true, Ordering::Relaxed);
            self.thread().shared.refuse_head(self.peer.ip(), why);
        }
    }

    /// Handles the end of header blocks: they are complete, or are not read further.
    pub fn fields_are_over(&self) {
        if self.open_fields().is_some() {
            self.open.fetch_add(1, Ordering::Relaxed);
            self.let_go(self.fields.swap(0, Ordering::Relaxed));
        }
    }

    /// The number of the incomplete header block; none: all are complete.
    pub fn open_fields(&self) -> Option<u64> {
        let open = self.open.load(Ordering::Relaxed);
        (open % 2 == 1).then_some(open)
    }

    /// Accounts for more bytes, whether the limit allows them or not.
    fn take(&self, bytes: usize) -> Result<(), &'static str> {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let requests = &self.thread().shared.requests;
        requests.grow(self.address, before, before + bytes)
    }

    /// Releases bytes.
    fn let_go(&self, bytes: usize) {
        let before = self.held.fetch_sub(bytes, Ordering::Relaxed);
        let requests = &self.thread().shared.requests;
        requests.shrink(self.address, before, before.saturating_sub(bytes));
    }

    /// Accounts for trailers of a request.
    fn trailers(&self, stream: u32, bytes: usize) {
        self.trailers_bytes.fetch_add(bytes, Ordering::Relaxed);
        *self.known_trailers().entry(stream).or_default() += bytes;
    }

    /// Whether the trailers exceed their limit, or there is no memory for an incomplete header
    /// block.
    pub fn has_too_many_fields(&self) -> bool {
        self.trailers_bytes.load(Ordering::Relaxed) > TRAILERS_BYTES
            || self.is_refused.load(Ordering::Relaxed)
    }

    /// Releases the memory of a request's trailers, and all of it when no request is in progress.
    fn forget_trailers(&self, stream: u32) {
        if self.trailers_bytes.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut known = self.known_trailers();
        if self.has_requests() {
            let bytes = known.remove(&stream).unwrap_or(0);
            self.trailers_bytes.fetch_sub(bytes, Ordering::Relaxed);
        } else {
            known.clear();
            self.trailers_bytes.store(0, Ordering::Relaxed);
        }
    }

    fn known_trailers(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.trailers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a request, which was served or reset, and releases its bytes.
    pub fn end(&self, stream: u32, bytes: usize, answered: bool) {
        self.let_go(bytes);
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.forget_trailers(stream);
        let counter = match answered {
            true => &self.answered,
            false => &self.taken_back,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether requests are in progress.
    pub fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Whether the client is abusive: it resets more requests than it reads responses, or sends too
    /// many bytes that belong to no request.
    pub fn asks_too_much(&self) -> bool {
        let answered = self.answered.load(Ordering::Relaxed);
        self.taken_back.load(Ordering::Relaxed) > answered + TAKEN_BACK
            || self.has_too_many_fields()
            || self.noise.is_too_much()
    }

    /// Memory limit of each request in progress, in bytes.
    pub fn share(&self) -> usize {
        let requests = self.requests.load(Ordering::Relaxed).max(1);
        (SHARED_BYTES / requests).max(LEAST_SHARE_BYTES)
    }

    /// Number of bytes that may be passed to h2 now: fewer where many clients do not read.
    pub fn room(&self) -> usize {
        let most = client_memory::limit(UNSENT_BYTES);
        most.saturating_sub(self.unsent.load(Ordering::Relaxed))
    }

    /// Waits until more bytes may be passed to h2.
    pub async fn has_room(&self) {
        while self.room() == 0 {
            self.room.notified().await;
        }
    }

    /// Passes `bytes` to h2; they are accounted for until they are written.
    pub fn hold(self: &Arc<Self>, bytes: Vec<u8>) -> Bytes {
        let unsent = self.unsent.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        self.account(unsent.saturating_sub(bytes.len()), unsent);
        Bytes::from_owner(HeldBytes { bytes, trunk: self.clone() })
    }

    /// Accounts for a change from `before` to `after` unsent bytes.
    fn account(&self, before: usize, after: usize) {
        if before.max(after) > client_memory::LEAST_BYTES {
            let memory = self.unsent_memory.lock();
            memory.unwrap_or_else(PoisonError::into_inner).holds(after);
        }
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        // Header blocks that never became complete.
        self.let_go(self.held.load(Ordering::Relaxed));
    }
}

/// Bytes that wait to be written.
struct HeldBytes {
    bytes: Vec<u8>,
    trunk: Arc<ConnectionState>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let trunk = &self.trunk;
        let before = trunk.unsent.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        trunk.account(before, before.saturating_sub(self.bytes.len()));
        trunk.room.notify_waiters();
    }
}
