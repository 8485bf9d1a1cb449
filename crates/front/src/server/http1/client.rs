//! An HTTP/1 connection as a client, for one request after the other.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use maitred_http1::{Framing, Head, ResponseFraming, ResponseStart, Version, write_head};

use crate::http::body::{Body, BodyError};
use crate::http::body_stream::Inflow;
use crate::http::client::{
    After, Client, ClientEvent, Content, HeadWriter, HttpClient, Raw, Reply, Written,
};
use crate::http::request_memory::{HeldMemory, MemoryGrowth, RequestMemory};
use crate::http::spool;
use crate::http::spool_folder::SpoolPlace;
use crate::net::admin_peer::AdminPeer;
use crate::net::client_addresses::Address;
use crate::net::tls::Secured;
use crate::runtime::clock::http_date;
use crate::server::http1::connection::Connection;

/// Bytes of a cached body up to which it is copied behind the header: cheaper than to send two
/// pieces.
const COPIED_MOST: usize = 2048;

/// Responses of HTTP/1: header and body are one sequence of bytes.
pub struct Http1;

impl HeadWriter for Http1 {
    type Head = Infallible;

    fn head<'h>(
        out: &mut Vec<u8>,
        response: &ResponseStart<'_>,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> (Option<Infallible>, usize) {
        (None, write_head(out, response, headers))
    }

    fn hints<'h>(
        out: &mut Vec<u8>,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> Option<Infallible> {
        let response = ResponseStart {
            version: Version::Http11,
            status: 103,
            reason: None,
            framing: ResponseFraming::NoBody,
            keep_alive: true,
            date: &http_date(),
        };
        write_head(out, &response, headers);
        None
    }
}

impl Client for Connection {
    type Head = Infallible;

    async fn gone(&mut self) {
        self.client_gone().await;
    }

    async fn gone_later(&mut self) {
        self.client_gone_later().await;
    }

    fn begin(&mut self, head: Infallible) -> io::Result<()> {
        match head {}
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Connection::try_send(self, bytes)
    }

    fn has_promised(&self) -> bool {
        Connection::has_promised(self)
    }

    async fn sendable(&mut self) -> io::Result<()> {
        Connection::sendable(self).await
    }

    fn spool_bytes(&self) -> usize {
        spool::MEMORY_BYTES
    }
}

impl HttpClient for Connection {
    type HeadWriter = Http1;

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&mut self) -> SocketAddr {
        Connection::local(self)
    }

    fn admin(&self) -> Option<AdminPeer> {
        self.admin
    }

    fn secured(&self) -> Option<&Arc<Secured>> {
        self.secured.as_ref()
    }

    fn break_off(&mut self) {
        Connection::break_off(self);
    }

    fn sent(&self) -> u64 {
        Connection::sent(self)
    }

    async fn body(
        &mut self,
        head: &Head,
        limit: u64,
        place: SpoolPlace<'_>,
    ) -> Result<Body, BodyError> {
        crate::server::http1::body::collect(self, head, limit, place).await
    }

    fn hold<'m>(
        &mut self,
        memory: &'m RequestMemory,
        growth: MemoryGrowth,
        address: impl FnOnce() -> Option<Address>,
    ) -> Result<Option<HeldMemory<'m>>, &'static str> {
        memory.hold_more(growth, address).map(Some)
    }

    async fn invite_body(&mut self, head: &Head) -> Result<(), BodyError> {
        if !head.expects_continue || !self.input().is_empty() {
            return Ok(());
        }
        let sent = self.send_interim(maitred_http1::CONTINUE).await;
        sent.map_err(|_| BodyError::Gone)
    }

    async fn next_body(&mut self, inflow: &mut Inflow) -> Result<Option<bytes::Bytes>, BodyError> {
        loop {
            if let Some(piece) = inflow.take_from(self.input())? {
                return Ok(Some(piece));
            }
            if inflow.is_over() {
                return Ok(None);
            }
            let total = inflow.taken();
            let pace = inflow.pace.get_or_insert_with(|| self.body_pace());
            let filled = self.fill_body(total, pace).await;
            match filled {
                Some(Ok(count)) if count > 0 => {}
                None => return Err(BodyError::TooSlow),
                _ => return Err(BodyError::Gone),
            }
        }
    }

    async fn sendable_or_body(&mut self, inflow: &mut Inflow) -> Result<ClientEvent, BodyError> {
        loop {
            if let Some(piece) = inflow.take_from(self.input())? {
                return Ok(ClientEvent::Body(Some(piece)));
            }
            if inflow.is_over() {
                return Ok(ClientEvent::Body(None));
            }
            let total = inflow.taken();
            let pace = inflow.pace.get_or_insert_with(|| self.body_pace());
            match self.sendable_or_fill(total, pace).await {
                Some(Ok(None)) => return Ok(ClientEvent::Sendable),
                Some(Ok(Some(count))) if count > 0 => {}
                None => return Err(BodyError::TooSlow),
                _ => return Err(BodyError::Gone),
            }
        }
    }

    fn raw(&mut self) -> Option<Raw<'_>> {
        Some(Connection::raw(self))
    }

    /// A body that has not arrived closes the connection, which is cheaper than to read it.
    fn discard_body(&mut self, head: &Head) -> After {
        match head.body {
            Framing::None => After::Keep,
            Framing::Length(length) => {
                let input = self.input();
                match usize::try_from(length) {
                    Ok(length) if length <= input.len() => {
                        drop(input.split_to(length));
                        After::Keep
                    }
                    _ => After::Linger,
                }
            }
            Framing::Chunked => After::Linger,
        }
    }

    async fn respond(&mut self, reply: &Reply<'_>, content: Content<'_>) -> Written {
        let content = match content {
            // TLS has to read it to encrypt it.
            Content::Housed(body, ..) if self.secured.is_some() => Content::Kept(body),
            content => content,
        };
        let at_once = match content {
            Content::Kept(body) if body.len() > COPIED_MOST => &[],
            Content::Housed(..) => &[],
            _ => content.at_once(),
        };
        let mut out = Vec::with_capacity(512 + reply.lines.len() + at_once.len());
        write_reply(&mut out, reply);
        let head_bytes = out.len() as u64;
        out.extend_from_slice(at_once);
        Written { status: reply.status, head_bytes, result: self.send_content(&out, content).await }
    }
}

impl Connection {
    /// Sends `out`, which ends with the part of the content that is copied, and the rest of it.
    async fn send_content(&mut self, out: &[u8], content: Content<'_>) -> io::Result<()> {
        match content {
            Content::Kept(body) if body.len() > COPIED_MOST => self.send_both(out, body).await,
            Content::Nothing | Content::Made(_) | Content::Kept(_) => self.send(out).await,
            Content::Housed(body, fd, at) => {
                self.send_more(out).await?;
                self.send_resident(fd, at, at + body.len() as u64).await
            }
            Content::File(file, slice) => {
                self.send_more(out).await?;
                self.send_file(file, slice.offset, slice.len).await
            }
            Content::Pieces(file, parts, closing) => {
                self.send_more(out).await?;
                for part in parts {
                    self.send_more(&part.head).await?;
                    self.send_file(file, part.slice.offset, part.slice.len).await?;
                }
                self.send(closing).await
            }
        }
    }
}

fn write_reply(out: &mut Vec<u8>, reply: &Reply<'_>) {
    let response = ResponseStart {
        version: reply.request.version(),
        status: reply.status,
        reason: None,
        framing: match reply.length {
            Some(length) => ResponseFraming::Length(length),
            None => ResponseFraming::NoBody,
        },
        keep_alive: reply.request.keep_alive && reply.after == After::Keep,
        date: &http_date(),
    };
    write_head(out, &response, reply.headers.iter().copied());
    // The prepared header lines precede the empty line.
    out.truncate(out.len() - 2);
    out.extend_from_slice(reply.lines);
    out.extend_from_slice(b"\r\n");
}
