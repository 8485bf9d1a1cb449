//! The upload of a request body to an upstream server, no faster than the server reads, so that
//! only a few pieces are in memory.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use maitred_http1::{Framing, Head};
use maitred_rules::settings::Proxy;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::http::body::BodyError;
use crate::http::body_stream::Inflow;
use crate::http::client::{ClientEvent, HttpClient};

/// Pieces that have arrived and that the server has not taken.
const PIECES: usize = 1;

/// A message from the client's side to the server's.
enum BodyPiece {
    Data(Bytes),
    /// The end. Without it the body counts as incomplete.
    End,
}

/// The client's side of a body.
pub struct Upload {
    inflow: Inflow,
    /// A piece that does not fit into the channel yet.
    piece: Option<BodyPiece>,
    /// Start of the time that the server has to take it.
    came: Instant,
    /// None when the server has everything, or wants no more.
    to: Option<mpsc::Sender<BodyPiece>>,
}

/// The server's side of a body.
pub struct UploadBody {
    pieces: Option<mpsc::Receiver<BodyPiece>>,
    length: Option<u64>,
}

/// The client has not sent the whole body.
#[derive(Debug)]
pub struct BrokenOff;

impl fmt::Display for BrokenOff {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the client did not send all of its body")
    }
}

impl std::error::Error for BrokenOff {}

impl Upload {
    /// Both sides of the body after `head`, of at most `limit` bytes.
    ///
    /// # Errors
    /// When `Content-Length` is larger.
    pub fn of(head: &Head, limit: u64) -> Result<(Upload, UploadBody), BodyError> {
        let inflow = Inflow::of(head, limit)?;
        let (to, pieces) = if inflow.is_over() {
            (None, None)
        } else {
            let (to, pieces) = mpsc::channel(PIECES);
            (Some(to), Some(pieces))
        };
        let length = match head.body {
            Framing::Length(length) => Some(length),
            Framing::None => Some(0),
            Framing::Chunked => None,
        };
        let upload = Upload { inflow, piece: None, came: Instant::now(), to };
        Ok((upload, UploadBody { pieces, length }))
    }

    /// Whether the body is complete.
    pub fn is_over(&self) -> bool {
        self.to.is_none()
    }

    /// Whether the client may still send some of the body.
    pub fn is_unread(&self) -> bool {
        !self.inflow.is_over()
    }

    /// Bytes of the body that have arrived.
    pub fn taken(&self) -> u64 {
        self.inflow.taken()
    }

    /// The deadline of the server, which has sent nothing since `silent`; none while the upload
    /// waits for the client. A response does not extend the time to take a piece.
    pub fn deadline(&self, rule: &Proxy, silent: Instant) -> Option<Instant> {
        match (&self.to, &self.piece) {
            (None, _) => Some(silent + rule.read_timeout),
            (Some(_), Some(_)) => Some(self.came + rule.send_timeout),
            (Some(_), None) => None,
        }
    }

    /// Whether the server has taken nothing of the body for too long, though it may respond.
    pub fn is_late(&self, rule: &Proxy) -> bool {
        let is_full = self.to.as_ref().is_some_and(|to| to.capacity() == 0);
        self.piece.is_some() && is_full && self.came.elapsed() >= rule.send_timeout
    }

    /// Gives the server its whole time to take the piece: until now the front has read nothing of
    /// it, or there was no connection to it.
    pub fn restart_timeout(&mut self) {
        self.came = Instant::now();
    }

    fn take(&mut self, data: Option<Bytes>) {
        self.piece = Some(data.map_or(BodyPiece::End, BodyPiece::Data));
        self.came = Instant::now();
    }

    /// Receives a piece from the client, or passes one on. Nothing is lost if the future is
    /// dropped.
    ///
    /// # Errors
    /// When the body is incomplete.
    pub async fn step(&mut self, client: &mut impl HttpClient) -> Result<(), BodyError> {
        if self.piece.is_some() {
            self.pass_on().await;
        } else if !self.is_over() {
            let data = client.next_body(&mut self.inflow).await?;
            self.take(data);
        }
        Ok(())
    }

    /// As [`Upload::step`], or returns when more of the response can be sent to the client. Not for
    /// a body that is complete.
    ///
    /// # Errors
    /// When the body is incomplete, or the client reads too slowly.
    pub async fn step_or_sendable(
        &mut self,
        client: &mut impl HttpClient,
    ) -> Result<(), BodyError> {
        if self.piece.is_some() {
            return tokio::select! {
                biased;
                () = self.pass_on() => Ok(()),
                sendable = client.sendable() => sendable.map_err(|_| BodyError::Gone),
            };
        }
        if let ClientEvent::Body(data) = client.sendable_or_body(&mut self.inflow).await? {
            self.take(data);
        }
        Ok(())
    }

    /// Passes the piece on when the server takes it.
    async fn pass_on(&mut self) {
        let Some(to) = &self.to else { return };
        let is_last = match to.reserve().await {
            Ok(room) => match self.piece.take() {
                Some(piece) => {
                    let is_last = matches!(piece, BodyPiece::End);
                    room.send(piece);
                    is_last
                }
                None => false,
            },
            // The server may have responded all the same, and its response counts.
            Err(_) => true,
        };
        if is_last {
            self.to = None;
        }
    }
}

impl UploadBody {
    /// No body.
    pub fn empty() -> UploadBody {
        UploadBody { pieces: None, length: Some(0) }
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let Some(pieces) = &mut self.pieces else {
            return Poll::Ready(None);
        };
        pieces.poll_recv(cx).map(|piece| match piece {
            Some(BodyPiece::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(BodyPiece::End) => None,
            None => Some(Err(BrokenOff)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or(SizeHint::new(), SizeHint::with_exact)
    }
}
