//! What the streams of a connection hold and cost: their memory within the shared memory of
//! requests, and the signs of an abusive client.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::http::request_memory::RequestMemory;
use crate::net::client_addresses::Address;
use crate::server::http2::abuse::Noise;
use crate::server::http2::frames::FrameEvent;
use crate::server::http2::trailers::Trailers;

/// Bytes of bodies, and of responses to slow clients, that all streams of a connection together may
/// hold in memory before files are used; [`LEAST_SHARE_BYTES`] of each in any case.
const SHARED_BYTES: usize = 512 * 1024;
/// Bytes that all requests of a connection may hold before one more begins; one is always allowed.
const REQUESTS_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that a waiting request holds besides its header: its tasks, and its stream.
const REQUEST_BYTES: usize = 8 * 1024;
/// Bytes of trailers, as received, for all requests of a connection that are in progress.
const TRAILERS_BYTES: usize = 4 * 1024;
/// The same for a trusted proxy, whose connection has the requests of many clients: 16 KiB for each
/// of 128 requests.
const PROXY_TRAILERS_BYTES: usize = 2 * 1024 * 1024;
/// Largest memory of incomplete header blocks, in bytes.
const FIELDS_BYTES: usize = 192 * 1024;
/// Their memory for each byte received: an index into HPACK's table takes one byte, and the header
/// it expands to has a slot in a map with spare capacity.
const UNPACKED: usize = 128;
/// The least share of a stream.
const LEAST_SHARE_BYTES: usize = 8 * 1024;
/// Requests that a client may reset beyond the number of responses it has read.
const TAKEN_BACK: u64 = 100;

/// Who shares a connection. A client that a trusted proxy serves must not end the requests of the
/// others; the proxy limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// One client.
    Client,
    /// All clients of a proxy in `trusted_proxies`.
    TrustedProxy,
}

/// The accounts of a connection.
#[derive(Debug)]
pub struct StreamAccounts {
    /// The address that the requests' memory is accounted to, if it is accounted. It stays the same
    /// when the configuration changes, so that the account balances.
    address: Option<Address>,
    /// Likewise.
    peer: PeerKind,
    /// The share of received bytes that belongs to requests.
    pub noise: Noise,
    requests: AtomicUsize,
    /// Bytes that requests hold.
    held: AtomicUsize,
    /// The part of them for bodies in memory.
    bodies: AtomicUsize,
    /// There was no memory for an incomplete header block.
    is_refused: AtomicBool,
    /// The part of `held` for incomplete header blocks.
    fields: AtomicUsize,
    /// How often a header block became incomplete or complete: odd while one is incomplete.
    open: AtomicU64,
    trailers: Trailers,
    answered: AtomicU64,
    taken_back: AtomicU64,
}

/// How a request ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedRequest {
    /// Its stream.
    pub stream: u32,
    /// The bytes that [`StreamAccounts::begin`] has returned, and those of
    /// [`StreamAccounts::add`].
    pub bytes: usize,
    /// Bytes of its body in memory.
    pub body_bytes: usize,
    /// The client has reset it before its response was complete.
    pub is_taken_back: bool,
}

impl StreamAccounts {
    /// Those of a new connection of a client with this address.
    pub fn new(address: Option<Address>, peer: PeerKind) -> StreamAccounts {
        StreamAccounts {
            address,
            peer,
            noise: Noise::default(),
            requests: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            bodies: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
            fields: AtomicUsize::new(0),
            open: AtomicU64::new(0),
            trailers: Trailers::default(),
            answered: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
        }
    }

    /// Accounts for a request of `stream` with a header of `bytes`. Returns the bytes to release at
    /// its end.
    ///
    /// # Errors
    /// Why it is refused: requests hold too much memory already.
    pub fn begin(
        &self,
        memory: &RequestMemory,
        stream: u32,
        head: usize,
    ) -> Result<usize, &'static str> {
        self.trailers.begin(stream);
        let bytes = head + REQUEST_BYTES;
        let before = self.held.load(Ordering::Relaxed);
        let room = self.take(memory, bytes);
        let why = if before > 0 && before + bytes > REQUESTS_BYTES {
            "its connection's requests would exceed 4 MiB"
        } else if let Err(why) = room {
            why
        } else {
            self.requests.fetch_add(1, Ordering::Relaxed);
            return Ok(bytes);
        };
        self.let_go(memory, bytes);
        self.trailers.end(stream);
        Err(why)
    }

    /// Accounts for `more` bytes of a request, besides its header and its body.
    ///
    /// # Errors
    /// Why it is refused: requests hold too much memory already.
    pub fn add(&self, memory: &RequestMemory, more: usize) -> Result<(), &'static str> {
        self.take(memory, more).inspect_err(|_| self.let_go(memory, more))
    }

    /// Accounts for a request's body that had `before` bytes in memory, and has `after` now. They
    /// count even on an error.
    ///
    /// # Errors
    /// There is no memory for it: the caller writes it to a file.
    pub fn resize_body(
        &self,
        memory: &RequestMemory,
        before: usize,
        after: usize,
    ) -> Result<(), &'static str> {
        let Some(more) = after.checked_sub(before) else {
            self.bodies.fetch_sub(before - after, Ordering::Relaxed);
            self.let_go(memory, before - after);
            return Ok(());
        };
        let bodies = self.bodies.fetch_add(more, Ordering::Relaxed) + more;
        let held = self.held.fetch_add(more, Ordering::Relaxed);
        memory.grow_body(self.address, held, held + more)?;
        match bodies > SHARED_BYTES && after > LEAST_SHARE_BYTES {
            true => Err("the bodies of its connection's requests would exceed 512 KiB"),
            false => Ok(()),
        }
    }

    /// Ends a request, and releases its bytes.
    pub fn end(&self, memory: &RequestMemory, request: EndedRequest) {
        let _ = self.resize_body(memory, request.body_bytes, 0);
        self.let_go(memory, request.bytes);
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.trailers.end(request.stream);
        let counter = match request.is_taken_back {
            true => &self.taken_back,
            false => &self.answered,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Releases all that the connection still holds, at its end: header blocks that never became
    /// complete.
    pub fn close(&self, memory: &RequestMemory) {
        self.let_go(memory, self.held.load(Ordering::Relaxed));
    }

    /// Handles an event of the frame parser.
    ///
    /// # Errors
    /// There is no memory for an incomplete header block.
    pub fn seen(&self, memory: &RequestMemory, what: FrameEvent) -> Result<(), &'static str> {
        match what {
            FrameEvent::Trailers(stream, bytes) => self.trailers.came(stream, bytes),
            FrameEvent::Open(bytes) => return self.fields_came(memory, bytes),
            FrameEvent::Complete => self.fields_are_over(memory),
            FrameEvent::FrameSize(_) => {}
        }
        Ok(())
    }

    /// Accounts for frames of an incomplete header block.
    fn fields_came(&self, memory: &RequestMemory, bytes: usize) -> Result<(), &'static str> {
        if self.open.load(Ordering::Relaxed).is_multiple_of(2) {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
        let bytes = bytes.saturating_mul(UNPACKED).min(FIELDS_BYTES);
        let more = bytes.saturating_sub(self.fields.load(Ordering::Relaxed));
        self.fields.fetch_add(more, Ordering::Relaxed);
        self.take(memory, more).inspect_err(|_| {
            self.fields.fetch_sub(more, Ordering::Relaxed);
            self.let_go(memory, more);
            self.is_refused.store(true, Ordering::Relaxed);
        })
    }

    /// Handles the end of header blocks: they are complete, or are not read further.
    pub fn fields_are_over(&self, memory: &RequestMemory) {
        if self.open_fields().is_some() {
            self.open.fetch_add(1, Ordering::Relaxed);
            self.let_go(memory, self.fields.swap(0, Ordering::Relaxed));
        }
    }

    /// The number of the incomplete header block; none: all are complete.
    pub fn open_fields(&self) -> Option<u64> {
        let open = self.open.load(Ordering::Relaxed);
        (open % 2 == 1).then_some(open)
    }

    /// Accounts for more bytes, whether the limit allows them or not.
    fn take(&self, memory: &RequestMemory, bytes: usize) -> Result<(), &'static str> {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        memory.grow(self.address, before, before + bytes)
    }

    /// Releases bytes.
    fn let_go(&self, memory: &RequestMemory, bytes: usize) {
        let before = self.held.fetch_sub(bytes, Ordering::Relaxed);
        memory.shrink(self.address, before, before.saturating_sub(bytes));
    }

    /// Whether the trailers exceed their limit, or there is no memory for an incomplete header
    /// block.
    pub fn has_too_many_fields(&self) -> bool {
        let most = if self.is_of_proxy() { PROXY_TRAILERS_BYTES } else { TRAILERS_BYTES };
        self.trailers.bytes() > most || self.is_refused.load(Ordering::Relaxed)
    }

    /// Whether the connection has the requests of many clients.
    pub fn is_of_proxy(&self) -> bool {
        self.peer == PeerKind::TrustedProxy
    }

    /// Whether requests are in progress.
    pub fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Whether the client is abusive: it resets more requests than it reads responses, or sends too
    /// many bytes that belong to no request. A trusted proxy passes on the resets of many clients.
    pub fn asks_too_much(&self) -> bool {
        let answered = self.answered.load(Ordering::Relaxed);
        let takes_back = self.taken_back.load(Ordering::Relaxed) > answered + TAKEN_BACK;
        takes_back && !self.is_of_proxy() || self.has_too_many_fields() || self.noise.is_too_much()
    }

    /// Memory limit of each request in progress, in bytes.
    pub fn share(&self) -> usize {
        let requests = self.requests.load(Ordering::Relaxed).max(1);
        (SHARED_BYTES / requests).max(LEAST_SHARE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accounts of which `count` requests have ended.
    fn ended(peer: PeerKind, count: u32, is_taken_back: bool) -> StreamAccounts {
        let (memory, accounts) = (RequestMemory::default(), StreamAccounts::new(None, peer));
        for stream in (1..2 * count).step_by(2) {
            let bytes = accounts.begin(&memory, stream, 100).unwrap();
            accounts.end(&memory, EndedRequest { stream, bytes, body_bytes: 0, is_taken_back });
        }
        accounts
    }

    #[test]
    fn requests_that_the_server_resets_or_a_proxys_clients_take_back_are_no_abuse() {
        const MANY: u32 = 1 + TAKEN_BACK as u32;
        assert!(ended(PeerKind::Client, MANY, true).asks_too_much());
        assert!(!ended(PeerKind::Client, MANY, false).asks_too_much());
        assert!(!ended(PeerKind::TrustedProxy, MANY, true).asks_too_much());
    }

    #[test]
    fn bodies_of_a_connection_share_its_memory_and_give_it_back() {
        const BODY_BYTES: usize = 64 * 1024;
        let memory = RequestMemory::default();
        memory.limit(64 << 20);
        let accounts = StreamAccounts::new(None, PeerKind::Client);
        let body = |stream| {
            let bytes = accounts.begin(&memory, stream, 100).unwrap();
            let fits = accounts.resize_body(&memory, 0, BODY_BYTES).is_ok();
            (fits, EndedRequest { stream, bytes, body_bytes: BODY_BYTES, is_taken_back: false })
        };
        let all: Vec<_> = (1..20).step_by(2).map(body).collect();
        let fitting = all.iter().filter(|(fits, _)| *fits).count();
        assert_eq!(fitting, SHARED_BYTES / BODY_BYTES);
        assert!(memory.common_bytes() > 0);
        all.into_iter().for_each(|(_, ended)| accounts.end(&memory, ended));
        assert_eq!(memory.common_bytes(), 0);
        assert_eq!(accounts.bodies.load(Ordering::Relaxed), 0);
    }
}
