//! What the streams of a connection hold and cost: their memory within the shared memory of
//! requests, and the signs of an abusive client.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::http::request_memory::RequestMemory;
use crate::net::client_addresses::Address;
use crate::server::http2::abuse::Noise;
use crate::server::http2::frames::{self, FrameEvent};
use crate::server::http2::trailers::Trailers;

/// Bytes of bodies, and of responses to slow clients, that all streams of a connection together may
/// hold in memory before files are used; [`LEAST_SHARE_BYTES`] of each in any case.
const SHARED_BYTES: usize = 512 * 1024;
/// Bytes that all requests of a client's connection may hold before one more begins; one is always
/// allowed.
const REQUESTS_BYTES: usize = 4 * 1024 * 1024;
/// `request_memory` divided by the part that those of a trusted proxy's connection may hold, of
/// many clients, where it is more than [`REQUESTS_BYTES`]: a proxy opens another connection for
/// many streams, and not for large ones.
const PROXY_REQUESTS_PARTS: usize = 4;
/// `request_memory` divided by the part that the window of a trusted proxy's connection may hold,
/// whether the bodies come or not. It leaves the other connections most of the memory for bodies.
const PROXY_WINDOW_PARTS: usize = 8;
/// Bytes that a waiting request holds besides its header: its tasks, and its stream.
const REQUEST_BYTES: usize = 8 * 1024;
/// Bytes of trailers, as received, for all requests of a connection whose bodies are not over.
const TRAILERS_BYTES: usize = 4 * 1024;
/// The same for a trusted proxy, whose connection has the requests of many clients: 16 KiB for each
/// of 128 requests. Their memory is limited with that of requests.
const PROXY_TRAILERS_BYTES: usize = 2 * 1024 * 1024;
/// The least share of a stream.
const LEAST_SHARE_BYTES: usize = 8 * 1024;
/// Requests that a client may reset beyond the number of complete responses.
const RESETS: u64 = 100;
/// Streams of a trusted proxy's connection without a complete response after which the proxy is to
/// open another one.
const PROXY_FAILED_STREAMS: u64 = 1024;

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
    /// Who shares the connection. It stays the same when the configuration changes.
    peer: PeerKind,
    /// The share of received bytes that belongs to requests.
    pub noise: Noise,
    requests: AtomicUsize,
    /// Bytes that requests hold.
    held: AtomicUsize,
    /// The part of them for bodies in memory.
    bodies: AtomicUsize,
    /// The part of them that bodies may have in the connection's window before they are read.
    window: AtomicUsize,
    /// There was no memory for trailers, or an incomplete header block.
    is_refused: AtomicBool,
    /// The part of `held` for incomplete header blocks.
    fields: AtomicUsize,
    /// How often a header block became incomplete or complete: odd while one is incomplete.
    open: AtomicU64,
    /// The part of `held` for trailers, and their size.
    trailers: Trailers,
    /// Streams that the client has opened, as the number of the last one says.
    opened: AtomicU64,
    /// Requests with a complete response.
    complete: AtomicU64,
    /// Requests that the client has reset before.
    reset: AtomicU64,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// Its whole response was passed to h2.
    Complete,
    /// The client has reset it before.
    ClientReset,
    /// The server has reset it before, which says nothing about the client.
    ServerReset,
}

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedRequest {
    /// Its stream.
    pub stream: u32,
    /// The bytes that [`StreamAccounts::begin`] has returned, and those of
    /// [`StreamAccounts::add`].
    pub bytes: usize,
    /// Bytes of its body in memory.
    pub body_bytes: usize,
    /// How it ended.
    pub end: RequestEnd,
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
            window: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
            fields: AtomicUsize::new(0),
            open: AtomicU64::new(0),
            trailers: Trailers::default(),
            opened: AtomicU64::new(0),
            complete: AtomicU64::new(0),
            reset: AtomicU64::new(0),
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
        self.let_go(memory, self.trailers.begin(stream));
        let bytes = head + REQUEST_BYTES;
        let before = self.held.load(Ordering::Relaxed);
        let room = self.take(memory, bytes);
        let (most, full) = match self.peer {
            PeerKind::Client => (REQUESTS_BYTES, "its connection's requests would exceed 4 MiB"),
            PeerKind::TrustedProxy => (
                memory.part(PROXY_REQUESTS_PARTS).max(REQUESTS_BYTES),
                "its connection's requests would exceed 4 MiB and a quarter of `request_memory`",
            ),
        };
        let why = if before > 0 && before + bytes > most {
            full
        } else if let Err(why) = room {
            why
        } else {
            self.requests.fetch_add(1, Ordering::Relaxed);
            return Ok(bytes);
        };
        self.let_go(memory, bytes + self.trailers.end(stream));
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

    /// Accounts for `bytes` that a request's body may have in the connection's window before they
    /// are read. Only a trusted proxy's window grows: the unread bodies of one client would stop
    /// those of all others. False where it does not: the body shares it with others.
    pub fn grow_window(&self, memory: &RequestMemory, bytes: usize) -> bool {
        let window = self.window_bytes() + bytes;
        if !self.is_of_proxy() || window > memory.part(PROXY_WINDOW_PARTS) {
            return false;
        }
        let held = self.held.fetch_add(bytes, Ordering::Relaxed);
        let has_room = memory.grow_body(self.address, held, held + bytes).is_ok();
        if has_room {
            self.window.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.let_go(memory, bytes);
        }
        has_room
    }

    /// Releases what [`StreamAccounts::grow_window`] accounts for.
    pub fn shrink_window(&self, memory: &RequestMemory, bytes: usize) {
        self.window.fetch_sub(bytes, Ordering::Relaxed);
        self.let_go(memory, bytes);
    }

    /// Bytes of the connection's window beyond that of one client.
    pub fn window_bytes(&self) -> usize {
        self.window.load(Ordering::Relaxed)
    }

    /// Ends a request, and releases its bytes.
    pub fn end(&self, memory: &RequestMemory, request: EndedRequest) {
        let _ = self.resize_body(memory, request.body_bytes, 0);
        self.let_go(memory, request.bytes + self.trailers.end(request.stream));
        self.requests.fetch_sub(1, Ordering::Relaxed);
        let counter = match request.end {
            RequestEnd::Complete => &self.complete,
            RequestEnd::ClientReset => &self.reset,
            RequestEnd::ServerReset => return,
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
    /// There is no memory for trailers, or an incomplete header block.
    pub fn seen(&self, memory: &RequestMemory, what: FrameEvent) -> Result<(), &'static str> {
        match what {
            FrameEvent::Trailers(stream, bytes) => {
                return self.trailers_came(memory, stream, bytes);
            }
            FrameEvent::Open(bytes) => return self.fields_came(memory, bytes),
            FrameEvent::Complete => self.fields_are_over(memory),
            FrameEvent::FrameSize(_) => {}
        }
        Ok(())
    }

    /// Accounts for a frame of trailers.
    fn trailers_came(
        &self,
        memory: &RequestMemory,
        stream: u32,
        bytes: usize,
    ) -> Result<(), &'static str> {
        let more = self.trailers.came(stream, bytes);
        self.take(memory, more).inspect_err(|_| {
            self.let_go(memory, self.trailers.forget(stream));
            self.is_refused.store(true, Ordering::Relaxed);
        })
    }

    /// The body of a request has ended: h2 has dropped its trailers.
    pub fn body_is_over(&self, memory: &RequestMemory, stream: u32) {
        self.let_go(memory, self.trailers.forget(stream));
    }

    /// Accounts for frames of an incomplete header block.
    fn fields_came(&self, memory: &RequestMemory, bytes: usize) -> Result<(), &'static str> {
        if self.open.load(Ordering::Relaxed).is_multiple_of(2) {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
        let more = frames::block_memory(bytes).saturating_sub(self.fields.load(Ordering::Relaxed));
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

    /// Whether the trailers exceed their limit, or there is no memory for them, or for an
    /// incomplete header block.
    pub fn has_too_many_fields(&self) -> bool {
        let most = if self.is_of_proxy() { PROXY_TRAILERS_BYTES } else { TRAILERS_BYTES };
        self.trailers.bytes() > most || self.is_refused.load(Ordering::Relaxed)
    }

    /// Handles that `stream` is the last one that the client has opened. Its streams have odd
    /// numbers (RFC 9113 §5.1.1).
    pub fn opened(&self, stream: u32) {
        self.opened.store(u64::from(stream).div_ceil(2), Ordering::Relaxed);
    }

    /// Whether a trusted proxy is to open another connection, as too many streams of this one had
    /// no complete response: h2 never forgets a malformed request, and closes the connection for
    /// all clients after some.
    pub fn has_failed_often(&self) -> bool {
        let complete = self.complete.load(Ordering::Relaxed);
        let failed = self.opened.load(Ordering::Relaxed).saturating_sub(complete);
        self.is_of_proxy() && failed > PROXY_FAILED_STREAMS
    }

    /// Whether the connection has the requests of many clients.
    pub fn is_of_proxy(&self) -> bool {
        self.peer == PeerKind::TrustedProxy
    }

    /// Whether requests are in progress.
    pub fn has_requests(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Whether the client is abusive: it resets more requests than it gets complete responses, or
    /// sends too many bytes that belong to no request. A trusted proxy passes on the resets of many
    /// clients, and their malformed requests with the bodies.
    pub fn asks_too_much(&self) -> bool {
        let complete = self.complete.load(Ordering::Relaxed);
        let resets_many = self.reset.load(Ordering::Relaxed) > complete + RESETS;
        let is_abusive = resets_many || self.noise.is_too_much();
        is_abusive && !self.is_of_proxy() || self.has_too_many_fields()
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

    /// Ends `count` requests.
    fn end_requests(accounts: &StreamAccounts, count: u32, end: RequestEnd) {
        let memory = RequestMemory::default();
        for stream in (1..2 * count).step_by(2) {
            let bytes = accounts.begin(&memory, stream, 100).unwrap();
            accounts.end(&memory, EndedRequest { stream, bytes, body_bytes: 0, end });
        }
    }

    #[test]
    fn requests_that_the_server_or_a_proxys_clients_reset_are_no_abuse() {
        const MANY: u32 = 1 + RESETS as u32;
        let is_abuse = |peer, end| {
            let accounts = StreamAccounts::new(None, peer);
            end_requests(&accounts, MANY, end);
            accounts.asks_too_much()
        };
        assert!(is_abuse(PeerKind::Client, RequestEnd::ClientReset));
        assert!(!is_abuse(PeerKind::Client, RequestEnd::ServerReset));
        assert!(!is_abuse(PeerKind::TrustedProxy, RequestEnd::ClientReset));
    }

    #[test]
    fn a_proxy_is_to_open_another_connection_after_many_streams_without_a_response() {
        const MANY: u32 = 2 + PROXY_FAILED_STREAMS as u32;
        let has_failed = |peer, complete| {
            let accounts = StreamAccounts::new(None, peer);
            accounts.opened(2 * MANY - 1);
            end_requests(&accounts, complete, RequestEnd::Complete);
            accounts.has_failed_often()
        };
        assert!(has_failed(PeerKind::TrustedProxy, 1));
        assert!(!has_failed(PeerKind::TrustedProxy, 2));
        assert!(!has_failed(PeerKind::Client, 1));
    }

    #[test]
    fn complete_responses_allow_as_many_resets_and_those_of_the_server_none() {
        const MANY: u32 = 1 + RESETS as u32;
        let accounts = StreamAccounts::new(None, PeerKind::Client);
        end_requests(&accounts, 1, RequestEnd::Complete);
        end_requests(&accounts, MANY, RequestEnd::ClientReset);
        assert!(!accounts.asks_too_much());
        end_requests(&accounts, MANY, RequestEnd::ServerReset);
        end_requests(&accounts, 1, RequestEnd::ClientReset);
        assert!(accounts.asks_too_much());
    }

    #[test]
    fn large_requests_of_a_client_behind_a_proxy_leave_room_to_those_of_the_others() {
        const HEAD_BYTES: usize = 60 * 1024;
        const STREAMS: u32 = 128;
        let memory = RequestMemory::default();
        memory.limit(64 << 20);
        let fitting = |peer| {
            let accounts = StreamAccounts::new(None, peer);
            let fits = |stream: &u32| {
                accounts.begin(&memory, *stream, HEAD_BYTES).is_ok()
                    && accounts.add(&memory, HEAD_BYTES).is_ok()
            };
            let fitting = (1..2 * STREAMS).step_by(2).take_while(fits).count();
            accounts.close(&memory);
            fitting
        };
        assert_eq!(fitting(PeerKind::TrustedProxy), STREAMS as usize);
        assert_eq!(fitting(PeerKind::Client), REQUESTS_BYTES / (2 * HEAD_BYTES + REQUEST_BYTES));
        memory.limit(32 << 20);
        let most = (8 << 20) / (2 * HEAD_BYTES + REQUEST_BYTES);
        assert_eq!(fitting(PeerKind::TrustedProxy), most, "a quarter is for a connection");
        memory.limit(4 << 20);
        assert!(fitting(PeerKind::TrustedProxy) < 40, "`request_memory` is its limit");
    }

    #[test]
    fn trailers_of_a_proxy_are_part_of_the_memory_of_requests_until_their_requests_end() {
        // An index into HPACK's table, over and over.
        const RECEIVED_BYTES: usize = 1900;
        let memory = RequestMemory::default();
        memory.limit(2 << 20);
        let accounts = StreamAccounts::new(None, PeerKind::TrustedProxy);
        let came = |stream| accounts.seen(&memory, FrameEvent::Trailers(stream, RECEIVED_BYTES));
        let begin = |stream| (stream, accounts.begin(&memory, stream, 100).unwrap());
        let requests: Vec<_> = (1..61).step_by(2).map(begin).collect();
        let fitting = requests.iter().take_while(|(stream, _)| came(*stream).is_ok()).count();
        assert!((5..15).contains(&fitting), "{fitting}");
        assert!(accounts.has_too_many_fields());
        assert!(memory.common_bytes() <= 2 << 20);
        for (stream, bytes) in requests {
            let end = RequestEnd::Complete;
            accounts.end(&memory, EndedRequest { stream, bytes, body_bytes: 0, end });
        }
        assert_eq!(accounts.held.load(Ordering::Relaxed), 0);
        // h2 drops those of a body that has ended, while the request goes on.
        begin(63);
        let without = accounts.held.load(Ordering::Relaxed);
        assert_eq!(came(63), Ok(()));
        assert!(accounts.held.load(Ordering::Relaxed) > without);
        accounts.body_is_over(&memory, 63);
        assert_eq!(accounts.held.load(Ordering::Relaxed), without);
        // Those of a request that never begins.
        assert_eq!(came(101), Ok(()));
        begin(103);
        accounts.close(&memory);
        assert_eq!(memory.common_bytes(), 0);
    }

    #[test]
    fn the_window_of_a_proxy_grows_with_its_bodies_within_the_memory_of_requests() {
        const WINDOW_BYTES: usize = 256 * 1024;
        let memory = RequestMemory::default();
        memory.limit(16 << 20);
        let accounts = StreamAccounts::new(None, PeerKind::TrustedProxy);
        let grow = || accounts.grow_window(&memory, WINDOW_BYTES);
        let windows = std::iter::repeat_with(grow).take_while(|grows| *grows).count();
        assert_eq!(windows, (2 << 20) / WINDOW_BYTES, "an eighth is for a connection");
        assert_eq!(accounts.window_bytes(), windows * WINDOW_BYTES);
        let others: Vec<_> =
            (0..9).map(|_| StreamAccounts::new(None, PeerKind::TrustedProxy)).collect();
        let count = |accounts: &StreamAccounts| {
            let grow = || accounts.grow_window(&memory, WINDOW_BYTES);
            std::iter::repeat_with(grow).take_while(|grows| *grows).count()
        };
        let all = windows + others.iter().map(count).sum::<usize>();
        let own = others.len() + 1;
        assert!(all * WINDOW_BYTES <= (8 << 20) + own * 96 * 1024, "half is for bodies");
        assert!(all >= 4 * windows, "{all}");
        others.iter().for_each(|accounts| accounts.close(&memory));
        (0..windows).for_each(|_| accounts.shrink_window(&memory, WINDOW_BYTES));
        assert_eq!((accounts.window_bytes(), memory.common_bytes()), (0, 0));
        let client = StreamAccounts::new(None, PeerKind::Client);
        assert!(!client.grow_window(&memory, 1));
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
            let end = RequestEnd::Complete;
            (fits, EndedRequest { stream, bytes, body_bytes: BODY_BYTES, end })
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
