//! The connection of a web server: reads requests record by record, and notices an abort.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use maitred_fastcgi::{
    AUTHORIZER, FILTER, FOREIGN_MAX_PARAMS_BYTES, ProtocolError, ProtocolStatus, RESPONDER,
    RequestEvent, RequestReader, params, write_end, write_unknown_type, write_values,
};
use tokio::time::Instant;

use crate::http::body::{Body, BodyError, Collected};
use crate::http::client::Client;
use crate::http::spool;
use crate::http::spool_folder::SpoolPlace;
use crate::net::socket::Socket;
use crate::server::http1::connection::Connection;

/// How long a web server may stay silent after it has connected. php-fpm allows 5 s, because a
/// worker waits.
const FIRST: Duration = Duration::from_secs(60);
/// Timeout for a request's parameters, from the first byte.
const HEAD: Duration = Duration::from_secs(20);
/// How long a web server may leave a response unread. It does not read faster than its own client,
/// and no worker waits for it.
const PATIENCE: Duration = Duration::from_secs(600);
/// Largest body: the web server enforces the administrator's limit.
const MAX_BODY_BYTES: u64 = 64 << 30;
/// Bytes of replies to management records that may wait to be sent.
const REPLIES_BYTES: usize = 16 * 1024;
/// The reply to FCGI_MPXS_CONNS, whether a connection may carry several requests at a time (§4.1).
/// php-fpm knows no other.
const NO_MULTIPLEXING: &[u8] = b"\x0f\x01FCGI_MPXS_CONNS0";

/// A web server's connection.
pub struct WebServer {
    connection: Connection,
    reader: RequestReader,
    /// The current request.
    present: Option<BegunRequest>,
    /// Bytes of its body that are not consumed yet.
    body: Vec<u8>,
    takes_body: bool,
    /// Replies to management records.
    replies: Vec<u8>,
    /// When the first byte of the current request arrived.
    since: Option<Instant>,
    /// It has sent a valid record.
    is_known: bool,
    /// It has aborted the request.
    has_aborted: bool,
    /// No further request can be served.
    is_over: bool,
}

/// An FCGI_BEGIN_REQUEST record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BegunRequest {
    /// The request id.
    pub request_id: u16,
    /// The role (§6).
    pub role: u16,
    /// The connection stays open after the response.
    pub keep_conn: bool,
}

/// The reason why there is no request.
#[derive(Debug)]
pub enum NoRequest {
    /// The web server closed the connection, or was idle for too long.
    Closed,
    /// The last request is complete, and the connection is to be closed.
    Over,
    /// The parameters arrived too slowly.
    TooSlow(BegunRequest),
    /// The web server violated the protocol; with the request, if there is one.
    Broken(ProtocolError, Option<BegunRequest>),
}

/// The meaning of a record.
enum ReadStep {
    Begin(BegunRequest),
    Params,
    BodyEnd,
    Abort,
    Other,
}

impl WebServer {
    /// A web server that has just connected.
    pub fn new(socket: Socket, peer: Option<SocketAddr>) -> WebServer {
        WebServer {
            connection: Connection::of_web_server(socket, peer, PATIENCE),
            reader: RequestReader::new(FOREIGN_MAX_PARAMS_BYTES),
            present: None,
            body: Vec::new(),
            takes_body: false,
            replies: Vec::new(),
            since: None,
            is_known: false,
            has_aborted: false,
            is_over: false,
        }
    }

    /// Waits for the parameters of the next request. May be dropped and called again.
    ///
    /// # Errors
    /// When there is no further request, or an invalid one.
    pub async fn next_request(&mut self) -> Result<BegunRequest, NoRequest> {
        loop {
            // The reply to one record is sent before the next record is read.
            self.send_replies().await.map_err(|_| NoRequest::Closed)?;
            if self.is_over {
                return Err(NoRequest::Over);
            }
            let step = self.step();
            let step = step.map_err(|error| NoRequest::Broken(error, self.present))?;
            match (step, self.present) {
                (None, _) => self.read_on().await?,
                (Some(ReadStep::Begin(begun)), _) => self.begin(begun),
                (Some(ReadStep::Params), Some(begun)) => return Ok(begun),
                (Some(ReadStep::Abort), Some(begun)) => {
                    self.refuse(begun, ProtocolStatus::RequestComplete);
                }
                _ => {}
            }
        }
    }

    /// Reads more of a request, or waits for the next one.
    async fn read_on(&mut self) -> Result<(), NoRequest> {
        if self.reader.is_idle() {
            self.since = None;
            // An idle connection holds no buffer.
            *self.connection.input() = BytesMut::new();
        } else {
            self.since.get_or_insert_with(Instant::now);
        }
        let filled = match self.since {
            Some(since) => self.connection.fill(|| since + HEAD).await,
            // It may be idle without a limit, since another request will follow.
            None if self.is_known => Some(self.connection.read().await),
            None => self.connection.fill(|| Instant::now() + FIRST).await,
        };
        match filled {
            Some(Ok(count)) if count > 0 => Ok(()),
            None => match self.present {
                Some(begun) => Err(NoRequest::TooSlow(begun)),
                None => Err(NoRequest::Closed),
            },
            _ => Err(NoRequest::Closed),
        }
    }

    fn begin(&mut self, begun: BegunRequest) {
        self.is_known = true;
        self.present = Some(begun);
        if !matches!(begun.role, RESPONDER | AUTHORIZER | FILTER) {
            self.refuse(begun, ProtocolStatus::UnknownRole);
        }
    }

    /// Ends a request that does not reach a script.
    fn refuse(&mut self, begun: BegunRequest, status: ProtocolStatus) {
        write_end(&mut self.replies, begun.request_id, 0, status);
        self.end_request();
        self.is_over = !begun.keep_conn;
    }

    /// Removes the encoded parameters of the current request, and returns them.
    pub fn take_params(&mut self) -> Vec<u8> {
        self.reader.take_params()
    }

    /// Waits for the body of the current request, of `length` bytes by its parameters. Further
    /// bytes are skipped; a body that ends early is complete (as in php-fpm).
    ///
    /// # Errors
    /// Why there is none; the connection is unusable then.
    pub async fn body(&mut self, length: u64, place: SpoolPlace<'_>) -> Result<Body, BodyError> {
        if length > MAX_BODY_BYTES {
            return Err(BodyError::TooLarge);
        }
        let mut collected = Collected::new(length);
        let mut pace = self.connection.body_pace();
        self.takes_body = length > 0;
        loop {
            let mut complete = false;
            while let Some(step) = self.step().map_err(|_| BodyError::Gone)? {
                match step {
                    ReadStep::BodyEnd => complete = true,
                    ReadStep::Abort => {
                        self.has_aborted = true;
                        return Err(BodyError::Gone);
                    }
                    _ => {}
                }
            }
            let missing = usize::try_from(length - collected.len()).unwrap_or(usize::MAX);
            let bytes = std::mem::take(&mut self.body);
            let count = missing.min(bytes.len());
            collected.add(&bytes[..count], place).await?;
            if complete || collected.len() == length {
                self.takes_body = false;
                return collected.finish(place).await;
            }
            self.send_replies().await.map_err(|_| BodyError::Gone)?;
            match self.connection.fill_body(collected.len(), &mut pace).await {
                Some(Ok(count)) if count > 0 => {}
                None => return Err(BodyError::TooSlow),
                _ => return Err(BodyError::Gone),
            }
        }
    }

    /// Parses the next record, as far as it has arrived.
    fn step(&mut self) -> Result<Option<ReadStep>, ProtocolError> {
        let input = self.connection.input();
        let before = input.len();
        let mut rest = &input[..];
        let event = self.reader.next(&mut rest)?;
        let used = before - rest.len();
        let step = match event {
            None => None,
            Some(RequestEvent::Begin { request_id, role, keep_conn, .. }) => {
                Some(ReadStep::Begin(BegunRequest { request_id, role, keep_conn }))
            }
            Some(RequestEvent::Params) => Some(ReadStep::Params),
            Some(RequestEvent::Stdin(bytes)) => {
                if self.takes_body {
                    self.body.extend_from_slice(bytes);
                }
                Some(ReadStep::Other)
            }
            Some(RequestEvent::StdinEnd) => Some(ReadStep::BodyEnd),
            Some(RequestEvent::Abort) => Some(ReadStep::Abort),
            Some(RequestEvent::Second { request_id }) => {
                let status = ProtocolStatus::CantMultiplex;
                write_end(&mut self.replies, request_id, 0, status);
                Some(ReadStep::Other)
            }
            Some(RequestEvent::Values) => {
                self.is_known = true;
                let mut asked = params(self.reader.values()).flatten();
                let known = asked.any(|(name, _)| name == b"FCGI_MPXS_CONNS");
                let pairs = if known { NO_MULTIPLEXING } else { &[] };
                write_values(&mut self.replies, pairs);
                Some(ReadStep::Other)
            }
            Some(RequestEvent::Management { kind }) => {
                write_unknown_type(&mut self.replies, kind);
                Some(ReadStep::Other)
            }
        };
        input.advance(used);
        Ok(step)
    }

    /// Sends the replies to management records. May be dropped and called again; not while a
    /// response is sent.
    async fn send_replies(&mut self) -> io::Result<()> {
        while !self.replies.is_empty() {
            match self.connection.try_send(&self.replies)? {
                0 => self.connection.sendable().await?,
                count => drop(self.replies.drain(..count)),
            }
        }
        Ok(())
    }

    /// Sends a whole response of the server.
    ///
    /// # Errors
    /// When the web server has closed the connection, or does not read.
    pub async fn send(&mut self, response: &[u8]) -> io::Result<()> {
        self.connection.send(response).await
    }

    /// Number of bytes sent.
    pub fn sent(&self) -> u64 {
        self.connection.sent()
    }

    /// Whether the web server has aborted the request, but is still connected.
    pub fn has_aborted(&self) -> bool {
        self.has_aborted
    }

    /// Ends the current request. True if nothing of it has to be read before the connection can be
    /// closed.
    pub fn end_request(&mut self) -> bool {
        let is_clean = self.reader.is_complete() && self.connection.input().is_empty();
        self.reader.end_request();
        (self.present, self.since, self.has_aborted) = (None, None, false);
        self.body = Vec::new();
        self.takes_body = false;
        is_clean
    }

    /// Whether a request is in progress.
    pub fn is_amid(&self) -> bool {
        !self.reader.is_idle()
    }

    /// Closes the connection so that the last response arrives (nginx's `lingering_close`).
    pub async fn linger(&mut self) {
        self.connection.linger().await;
    }
}

impl Client for WebServer {
    type Head = Infallible;

    async fn gone(&mut self) {
        loop {
            loop {
                match self.step() {
                    Ok(None) => break,
                    Ok(Some(ReadStep::Abort)) => {
                        self.has_aborted = true;
                        return;
                    }
                    Ok(Some(_)) => {}
                    Err(_) => return,
                }
            }
            if self.replies.len() > REPLIES_BYTES {
                // It is not read further before its response.
                return std::future::pending().await;
            }
            match self.connection.read().await {
                Ok(count) if count > 0 => {}
                _ => return,
            }
        }
    }

    async fn gone_later(&mut self) {
        self.connection.worth_watching().await;
        self.gone().await;
    }

    fn begin(&mut self, head: Infallible) -> io::Result<()> {
        match head {}
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.try_send(bytes)
    }

    async fn sendable(&mut self) -> io::Result<()> {
        self.connection.sendable().await
    }

    fn spool_bytes(&self) -> usize {
        spool::MEMORY_BYTES
    }
}

#[cfg(test)]
mod tests;
