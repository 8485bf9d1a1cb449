//! Whoever asks over HTTP, in whichever version: what `handler/request.rs` wants to know of it, and what
//! it is sent. A connection of HTTP/1 implements it ([`crate::server::http1::client`]), and a stream of HTTP/2
//! ([`crate::server::http2`]).

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use maitred_http1::{Answer, Head};

use crate::http::body::{Body, NoBody};
use crate::http::body_stream::Inflow;
use crate::http::content::{AnswerBody, Part, Slice};
use crate::net::admin_peer::AdminPeer;
use crate::net::stream::Stream;
use crate::net::tls::Secured;

/// What becomes of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The next request may come.
    Keep,
    /// It is closed: the client has sent nothing that was not read.
    Close,
    /// It is closed once the client has stopped sending what nobody reads.
    Linger,
}

/// A client over HTTP, with the one request that it is being answered. No method has a body here, as in
/// [`Client`].
pub trait HttpClient: Client {
    /// How a script's answer looks in its version of HTTP.
    type HeadWriter: HeadWriter<Head = Self::Head>;

    /// Its address.
    fn peer(&self) -> SocketAddr;

    /// The address it connected to.
    fn local(&mut self) -> SocketAddr;

    /// Where it comes from, if it came to the admin listener.
    fn admin(&self) -> Option<AdminPeer>;

    /// What TLS says of it, if it came over that.
    fn secured(&self) -> Option<&Arc<Secured>>;

    /// Its answer ends too early, which it is to notice.
    fn break_off(&mut self);

    /// Bytes that it has been sent.
    fn sent(&self) -> u64;

    /// Collects the request's body, of at most `limit` bytes.
    ///
    /// # Errors
    /// Why there is none; no other request can then be read from where this one came.
    async fn body(&mut self, head: &Head, limit: u64, spool_dir: &Path) -> Result<Body, NoBody>;

    /// The request's body is wanted: a client that has asked for permission to send it gets that.
    ///
    /// # Errors
    /// When the client has gone.
    async fn invite_body(&mut self, head: &Head) -> Result<(), NoBody>;

    /// What comes next of the request's body; nothing at its end. Nothing is lost if this is dropped
    /// half-way.
    ///
    /// # Errors
    /// Why there is no more of it; no other request can then be read from where this one came.
    async fn next_body(&mut self, inflow: &mut Inflow) -> Result<Option<Bytes>, NoBody>;

    /// Its connection as it is; none where that is not its alone.
    fn raw(&mut self) -> Option<Raw<'_>>;

    /// A body that nobody wants: one that has arrived is dropped, one that has not is not waited
    /// for.
    fn discard_body(&mut self, head: &Head) -> After;

    /// Sends a whole response.
    async fn answer(&mut self, reply: &Reply<'_>, content: Content<'_>) -> Written;
}

/// What was sent of a response. The access log needs it also of a response that is incomplete.
#[derive(Debug)]
pub struct Written {
    /// The status; 0 if nothing was sent.
    pub status: u16,
    /// How many of the bytes that [`HttpClient::sent`] counts belong to the response head.
    pub head_bytes: u64,
    /// An error if the client has closed the connection or does not read, or the file has become
    /// shorter.
    pub result: io::Result<()>,
}

/// A client's connection, for what is not HTTP.
pub struct Raw<'a> {
    /// What its bytes come and go over.
    pub stream: &'a mut Stream,
    /// What has been read and nobody has used.
    pub input: &'a mut BytesMut,
    /// Counts the bytes that it has been sent.
    pub sent: &'a mut u64,
}

/// The head of an answer that is no script's.
#[derive(Debug)]
pub struct Reply<'a> {
    /// The request.
    pub request: &'a Head,
    /// The status.
    pub status: u16,
    /// Names and values. Server and Date are added.
    pub headers: &'a [(&'a [u8], &'a [u8])],
    /// Lines that are ready-made, each with its CR LF.
    pub lines: &'a Bytes,
    /// The length of the body in bytes; none if the lines say it, or there is nothing to say.
    pub length: Option<u64>,
    /// What becomes of the connection.
    pub after: After,
}

/// The body of an answer that is no script's; what HEAD asks for has none.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// Nothing.
    Nothing,
    /// Bytes that were made for this answer.
    Made(&'a [u8]),
    /// Bytes that are kept, and can be shared.
    Kept(&'a Bytes),
    /// Bytes that are kept, and their place in a file in memory, which nobody changes: what the kernel
    /// may send by itself.
    Housed(&'a Bytes, &'a OwnedFd, u64),
    /// A piece of a file.
    File(&'a Arc<OwnedFd>, Slice),
    /// Pieces of a file, each after a head of its own, and what ends them.
    Pieces(&'a Arc<OwnedFd>, &'a [Part], &'a Bytes),
}

impl<'a> Content<'a> {
    /// The body of an answer with a file.
    pub fn of(body: &'a AnswerBody) -> Content<'a> {
        match body {
            AnswerBody::Empty => Content::Nothing,
            AnswerBody::Memory(bytes) => Content::Kept(bytes),
            AnswerBody::File { fd, slice } => Content::File(fd, *slice),
            AnswerBody::Multipart { fd, parts, closing } => Content::Pieces(fd, parts, closing),
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

    /// What of it is in memory already, and can be sent with the head.
    pub fn at_once(&self) -> &'a [u8] {
        match self {
            Content::Made(bytes) => bytes,
            Content::Kept(bytes) | Content::Housed(bytes, ..) => bytes,
            _ => &[],
        }
    }
}

/// The client of a script. Clients are wrapped by others, so no method has a body here: a wrapper that
/// forgot one would have that in place of its client's.
pub trait Client {
    /// What it is sent apart from bytes, if anything.
    type Head;

    /// Returns when it does not want the answer any more.
    async fn gone(&mut self);

    /// As [`Client::gone`], for one whose answer will be there in a moment.
    async fn gone_later(&mut self);

    /// Sends a head. The bytes that are sent from then on belong to it.
    ///
    /// # Errors
    /// When the client has gone.
    fn begin(&mut self, head: Self::Head) -> io::Result<()>;

    /// Sends bytes without waiting; 0 when the client must read first.
    ///
    /// # Errors
    /// When the client has gone.
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Waits until the client may be sent more.
    ///
    /// # Errors
    /// When the client has gone, or has not read for too long.
    async fn sendable(&mut self) -> io::Result<()>;

    /// Bytes of an answer that may be kept in memory for it.
    fn spool_bytes(&self) -> usize;
}

/// How heads look in a version of HTTP.
pub trait HeadWriter {
    /// What goes to the client apart from bytes, if anything.
    type Head;

    /// Makes the head of an answer, in `out` or apart from it. Returns also how many of `headers`
    /// have been left out because no head can carry them.
    fn head<'h>(
        out: &mut Vec<u8>,
        answer: &Answer<'_>,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> (Option<Self::Head>, usize);

    /// Makes the head of an interim answer of status 103, in `out` or apart from it.
    fn hints<'h>(
        out: &mut Vec<u8>,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> Option<Self::Head>;
}
