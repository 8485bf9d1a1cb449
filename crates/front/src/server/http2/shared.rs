//! What the streams of one connection share: whom they are of, and how much they may hold together.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::net::client_addresses::Address;
use crate::net::client_rate::{Rates, TooSlow};
use crate::net::tls::Secured;
use crate::server::http1::connection::Connection;
use crate::server::http2::abuse::Noise;
use crate::server::http2::frames::Seen;
use crate::services::Thread;
use crate::services::lifecycle::ConnectionGuard;

/// Bytes of answers that all streams together may have handed over and not written.
const UNSENT_BYTES: usize = 256 * 1024;
/// Bytes of bodies, and of answers that wait for their clients, that all streams of a connection
/// together may hold in memory before files are used; [`LEAST_SHARE_BYTES`] of each in any case.
const SHARED_BYTES: usize = 512 * 1024;
/// Bytes that all requests of a connection may hold with their heads; one may always be held.
const REQUESTS_BYTES: usize = 2 * 1024 * 1024;
/// Bytes that a request which waits holds beside its head: its tasks, and its stream.
const REQUEST_BYTES: usize = 8 * 1024;
/// Bytes of fields that follow bodies, as they came, for all requests of a connection that are in hand.
const TRAILERS_BYTES: usize = 4 * 1024;
/// Bytes that fields take at most of which more are to come.
const FIELDS_BYTES: usize = 192 * 1024;
/// Bytes that they take for each byte of theirs that has come: one can be a field by its place in a table of
/// HPACK, and a field has a place in a map, which has room for more than are in it.
const UNPACKED: usize = 128;
/// The least of it that a stream is given.
const LEAST_SHARE_BYTES: usize = 8 * 1024;
/// Requests that a client may take back beyond as many as it has taken the answers of.
const TAKEN_BACK: u64 = 100;

/// What the streams of one connection share.
pub struct SharedState {
    guard: ConnectionGuard,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address for which is counted what the requests hold, if it is. It stays the same when the
    /// configuration changes, so that what was counted is given back.
    address: Option<Address>,
    /// The address it connected to.
    pub local: SocketAddr,
    /// What TLS says of it, if it came over that.
    pub secured: Option<Arc<Secured>>,
    /// How slow it may be.
    pub rates: Rates,
    /// A stream was given up because its client takes nothing.
    is_slow: AtomicBool,
    /// What of all it sends is of use.
    pub noise: Noise,
    requests: AtomicUsize,
    /// Bytes that these hold with their heads.
    held: AtomicUsize,
    /// There was no memory for fields that are not complete.
    is_refused: AtomicBool,
    /// Bytes of what these hold that are for fields that are not complete.
    fields: AtomicUsize,
    /// How often fields began to come and were not complete, and how often such became so: odd while some
    /// are open.
    open: AtomicU64,
    /// What has come of fields that follow bodies, by stream, and the sum.
    trailers: Mutex<HashMap<u32, usize>>,
    trailers_bytes: AtomicUsize,
    unsent: AtomicUsize,
    room: Notify,
    answered: AtomicU64,
    taken_back: AtomicU64,
}

impl SharedState {
    /// That of a connection on which nothing has happened.
    pub fn new(guard: ConnectionGuard, connection: &mut Connection) -> SharedState {
        let rates = guard.thread.rates();
        let address = guard.thread.address(connection.peer.ip());
        SharedState {
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
            room: Notify::new(),
            answered: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
        }
    }

    /// The thread that serves it.
    pub fn thread(&self) -> &Arc<Thread> {
        &self.guard.thread
    }

    /// A stream was given up because its client is too slow.
    pub fn too_slow(&self, at: TooSlow) {
        if at == TooSlow::Reading {
            self.is_slow.store(true, Ordering::Relaxed);
        }
        self.thread().shared.troubles.too_slow(self.peer.ip(), at);
    }

    /// Whether a stream was given up because its client takes nothing.
    pub fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// A request has come, with a head of so many bytes. Returns what it counts for until its end.
    ///
    /// # Errors
    /// Why it is refused: heads hold too much memory already.
    pub fn begin(&self, head: usize) -> Result<usize, &'static str> {
        let bytes = head + REQUEST_BYTES;
        let before = self.held.load(Ordering::Relaxed);
        let room = self.take(bytes);
        let why = if before > 0 && before + bytes > REQUESTS_BYTES {
            "its connection's requests would hold more than 2 MiB with their heads"
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

    /// This has come.
    pub fn seen(&self, what: Seen) {
        match what {
            Seen::Trailers(stream, bytes) => self.trailers(stream, bytes),
            Seen::Open(bytes) => self.fields_came(bytes),
            Seen::Complete => self.fields_are_over(),
        }
    }

    /// Frames of so many bytes have come with fields that are not complete.
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

    /// Fields that were not complete are, or are not read any more.
    pub fn fields_are_over(&self) {
        if self.open_fields().is_some() {
            self.open.fetch_add(1, Ordering::Relaxed);
            self.let_go(self.fields.swap(0, Ordering::Relaxed));
        }
    }

    /// A number for the fields that have begun to come and are not complete, if there are some.
    pub fn open_fields(&self) -> Option<u64> {
        let open = self.open.load(Ordering::Relaxed);
        (open % 2 == 1).then_some(open)
    }

    /// So many bytes more are held, and counted whether there is room for them or not.
    fn take(&self, bytes: usize) -> Result<(), &'static str> {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let requests = &self.thread().shared.requests;
        requests.grow(self.address, before, before + bytes)
    }

    /// So many bytes are not held any more.
    fn let_go(&self, bytes: usize) {
        let before = self.held.fetch_sub(bytes, Ordering::Relaxed);
        let requests = &self.thread().shared.requests;
        requests.shrink(self.address, before, before.saturating_sub(bytes));
    }

    /// Fields have come that follow the body of a request, as so many bytes.
    fn trailers(&self, stream: u32, bytes: usize) {
        self.trailers_bytes.fetch_add(bytes, Ordering::Relaxed);
        *self.known_trailers().entry(stream).or_default() += bytes;
    }

    /// Whether more fields have come that follow bodies than a client needs, or there was no memory for
    /// fields that are not complete.
    pub fn has_too_many_fields(&self) -> bool {
        self.trailers_bytes.load(Ordering::Relaxed) > TRAILERS_BYTES
            || self.is_refused.load(Ordering::Relaxed)
    }

    /// The memory of what followed the body of a request is free, and where none is in hand, all of it.
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

    /// A request that counts for so many bytes is done with: it was answered, or its client has taken it
    /// back.
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

    /// Whether requests are being answered.
    pub fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Whether the client takes more requests back than it takes answers, or sends too much that is
    /// no request.
    pub fn asks_too_much(&self) -> bool {
        let answered = self.answered.load(Ordering::Relaxed);
        self.taken_back.load(Ordering::Relaxed) > answered + TAKEN_BACK
            || self.has_too_many_fields()
            || self.noise.is_too_much()
    }

    /// Bytes that one of the requests that are in hand may hold in memory.
    pub fn share(&self) -> usize {
        let requests = self.requests.load(Ordering::Relaxed).max(1);
        (SHARED_BYTES / requests).max(LEAST_SHARE_BYTES)
    }

    /// Bytes that may be handed over now.
    pub fn room(&self) -> usize {
        UNSENT_BYTES.saturating_sub(self.unsent.load(Ordering::Relaxed))
    }

    /// Returns when more may be handed over.
    pub async fn has_room(&self) {
        while self.room() == 0 {
            self.room.notified().await;
        }
    }

    /// `bytes` to hand over, counted until they have been written.
    pub fn hold(self: &Arc<Self>, bytes: Vec<u8>) -> Bytes {
        self.unsent.fetch_add(bytes.len(), Ordering::Relaxed);
        Bytes::from_owner(Held {
            bytes,
            trunk: self.clone(),
        })
    }
}

impl Drop for SharedState {
    fn drop(&mut self) {
        // Fields that never became complete.
        self.let_go(self.held.load(Ordering::Relaxed));
    }
}

/// Bytes that wait to be written.
struct Held {
    bytes: Vec<u8>,
    trunk: Arc<SharedState>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let trunk = &self.trunk;
        let before = trunk.unsent.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        if before >= UNSENT_BYTES {
            trunk.room.notify_waiters();
        }
    }
}
