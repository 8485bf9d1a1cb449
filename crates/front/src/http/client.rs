//! A client over any version of HTTP: the data that `handler/request.rs` needs, and the operations
//! to respond. A connection of HTTP/1 implements it ([`crate::server::http1::client`]), and a
//! stream of HTTP/2 ([`crate::server::http2`]).

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use maitred_http1::{Head, ResponseStart};

use crate::http::body::{Body, BodyError};
use crate::http::body_stream::Inflow;
use crate::http::content::{Part, ResponseBody, Slice};
use crate::http::large_file::LargeFile;
use crate::http::request_memory::{HeldMemory, MemoryGrowth, RequestMemory};
use crate::http::spool_folder::SpoolPlace;
use crate::net::admin_peer::AdminPeer;
use crate::net::client_addresses::Address;
use crate::net::stream::Stream;
use crate::net::tls::Secured;

/// The state of the connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Open for the next request.
    Keep,
    /// Closed: the client has sent nothing unread.
    Close,
    /// Closed once the client has stopped sending.
    Linger,
}

/// What a client does first whose response and request body are both incomplete.
#[derive(Debug)]
pub enum ClientEvent {
    /// It has read: more can be sent.
    Sendable,
    /// It has sent a piece of the body; none at its end.
    Body(Option<Bytes>),
}

/// A client over HTTP, with its current request. No method has a default implementation, as in
/// [`Client`].
pub trait HttpClient: Client {
    /// Writes the headers of scripts' responses in its version of HTTP.
    type HeadWriter: HeadWriter<Head = Self::Head>;

    /// The client's address.
    fn peer(&self) -> SocketAddr;

    /// The address it connected to.
    fn local(&mut self) -> SocketAddr;

    /// The peer, on the admin listener.
    fn admin(&self) -> Option<AdminPeer>;

    /// The TLS data of the connection, if it is under TLS.
    fn secured(&self) -> Option<&Arc<Secured>>;

    /// Marks the response as truncated, which the client has to notice.
    fn break_off(&mut self);

    /// Bytes sent to it.
    fn sent(&self) -> u64;

    /// Collects the request's body, of at most `limit` bytes, in memory or in `place`.
    ///
    /// # Errors
    /// Why there is none; no further request can be read from the connection then.
    async fn body(
        &mut self,
        head: &Head,
        limit: u64,
        place: SpoolPlace<'_>,
    ) -> Result<Body, BodyError>;

    /// Accounts for more memory of the request: until drop of the result, or without one, until the
    /// end of the request. `growth` is that of a connection with this request only.
    ///
    /// # Errors
    /// Which limit is exceeded.
    fn hold<'m>(
        &mut self,
        memory: &'m RequestMemory,
        growth: MemoryGrowth,
        address: impl FnOnce() -> Option<Address>,
    ) -> Result<Option<HeldMemory<'m>>, &'static str>;

    /// Accepts the request's body: sends `100 Continue` to a client that expects it.
    ///
    /// # Errors
    /// When the client has disconnected.
    async fn invite_body(&mut self, head: &Head) -> Result<(), BodyError>;

    /// The next piece of the request's body; none at its end. Cancel-safe.
    ///
    /// # Errors
    /// Why there is no more of it; no further request can be read from the connection then.
    async fn next_body(&mut self, inflow: &mut Inflow) -> Result<Option<Bytes>, BodyError>;

    /// Waits until more can be sent or the next piece of the request's body has arrived: a client
    /// may send its whole body before it reads. Cancel-safe.
    ///
    /// # Errors
    /// As [`HttpClient::next_body`], or when the client neither sends nor reads fast enough.
    async fn sendable_or_body(&mut self, inflow: &mut Inflow) -> Result<ClientEvent, BodyError>;

    /// Its raw connection; none where it shares the connection with others.
    fn raw(&mut self) -> Option<Raw<'_>>;

    /// Discards an unwanted body: one that has arrived is dropped, one that has not closes the
    /// connection.
    fn discard_body(&mut self, head: &Head) -> After;

    /// Sends a whole response.
    async fn respond(&mut self, reply: &Reply<'_>, content: Content<'_>) -> Written;
}

/// The sent part of a response. The access log needs it also for an incomplete response.
#[derive(Debug)]
pub struct Written {
    /// The status; 0 if nothing was sent.
    pub status: u16,
    /// Bytes of the response header, as part of [`HttpClient::sent`].
    pub head_bytes: u64,
    /// An error if the client has closed the connection or does not read, or the file has become
    /// shorter.
    pub result: io::Result<()>,
}

/// A client's raw connection, for a protocol other than HTTP.
pub struct Raw<'a> {
    /// Its byte stream.
    pub stream: &'a mut Stream,
    /// Bytes that were received and not consumed.
    pub input: &'a mut BytesMut,
    /// The counter of sent bytes.
    pub sent: &'a mut u64,
}

/// The header of a response that no script has created.
#[derive(Debug)]
pub struct Reply<'a> {
    /// The request.
    pub request: &'a Head,
    /// The status.
    pub status: u16,
    /// Names and values. Server and Date are added.
    pub headers: &'a [(&'a [u8], &'a [u8])],
    /// Prepared lines, each with its CR LF.
    pub lines: &'a Bytes,
    /// The length of the body in bytes; none if the lines contain it, or there is no body.
    pub length: Option<u64>,
    /// The state of the connection afterwards.
    pub after: After,
}

/// The body of a response that no script has created; never sent for HEAD.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// Nothing.
    Nothing,
    /// Bytes created for this response.
    Made(&'a [u8]),
    /// Shared bytes in memory.
    Kept(&'a Bytes),
    /// Shared bytes with their position in an immutable memfd, for `sendfile`.
    Housed(&'a Bytes, &'a OwnedFd, u64),
    /// A piece of a file.
    File(&'a Arc<LargeFile>, Slice),
    /// Pieces of a file, each with a part header, and the closing delimiter.
    Pieces(&'a Arc<LargeFile>, &'a [Part], &'a Bytes),
}

impl<'a> Content<'a> {
    /// The body of a file response.
    pub fn of(body: &'a ResponseBody) -> Content<'a> {
        match body {
            ResponseBody::Empty => Content::Nothing,
            ResponseBody::Memory(bytes) => Content::Kept(bytes),
            ResponseBody::File { file, slice } => Content::File(file, *slice),
            ResponseBody::Multipart { file, parts, closing } => {
                Content::Pieces(file, parts, closing)
            }
        }
    }

    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Content::Nothing => 0,
            Content::Made(bytes) => bytes.len() as u64,
            Content::Kept(bytes) | Content::Housed(bytes, ..) => bytes.len() as u64,
            Content::File(_, slice) => slice.len,
            Content::Pieces(_, parts, closing) => {
                let parts = parts.iter();
                let parts = parts.map(|part| part.head.len() as u64 + part.slice.len);
                parts.sum::<u64>() + closing.len() as u64
            }
        }
    }

    /// The part in memory, which can be sent together with the header.
    pub fn at_once(&self) -> &'a [u8] {
        match self {
            Content::Made(bytes) => bytes,
            Content::Kept(bytes) | Content::Housed(bytes, ..) => bytes,
            _ => &[],
        }
    }
}

/// The client of a script. Wrappers implement it, too. No method has a default implementation, so
/// that a wrapper cannot forget to forward one.
pub trait Client {
    /// The part of a header that is sent separately from the bytes, if any.
    type Head;

    /// Returns when it has disconnected, or aborted the request.
    async fn gone(&mut self);

    /// As [`Client::gone`], for a client whose response is due soon.
    async fn gone_later(&mut self);

    /// Sends a header. The bytes sent from then on belong to it.
    ///
    /// # Errors
    /// When the client has disconnected.
    fn begin(&mut self, head: Self::Head) -> io::Result<()>;

    /// Sends bytes without waiting; 0 when the client must read first.
    ///
    /// # Errors
    /// When the client has disconnected.
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Whether TLS has encrypted bytes that the socket has not taken yet: only these bytes may be
    /// sent next.
    fn has_promised(&self) -> bool {
        false
    }

    /// Waits until more can be sent.
    ///
    /// # Errors
    /// When the client has disconnected, or has not read for too long.
    async fn sendable(&mut self) -> io::Result<()>;

    /// Bytes of a response that may be buffered in memory for it.
    fn spool_bytes(&self) -> usize;
}

/// Writes headers in a version of HTTP.
pub trait HeadWriter {
    /// The part that is sent separately from the bytes, if any.
    type Head;

    /// Writes the header section of a response, to `out` or separately. Also returns how many of
    /// `headers` are left out because they are invalid.
    fn head<'h>(
        out: &mut Vec<u8>,
        response: &ResponseStart<'_>,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> (Option<Self::Head>, usize);

    /// Writes the header of an interim response of status 103, to `out` or separately.
    fn hints<'h>(
        out: &mut Vec<u8>,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> Option<Self::Head>;
}
