//! A request's body, piece by piece: pieces are passed on at once, and never stored.

use bytes::{Bytes, BytesMut};
use maitred_http1::{ChunkedBody, Framing, Head};

use crate::http::body::BodyError;
use crate::net::client_rate::Pace;

/// Counts the received and the expected bytes of a body.
pub struct Inflow {
    framing: Framing,
    chunks: ChunkedBody,
    limit: u64,
    taken: u64,
    /// The transfer rate, once the server has waited for the body over HTTP/1.
    pub pace: Option<Pace>,
    is_over: bool,
}

impl Inflow {
    /// The unread body after `head`, of at most `limit` bytes.
    ///
    /// # Errors
    /// When its `Content-Length` header is larger.
    pub fn of(head: &Head, limit: u64) -> Result<Inflow, BodyError> {
        if matches!(head.body, Framing::Length(length) if length > limit) {
            return Err(BodyError::TooLarge);
        }
        Ok(Inflow {
            framing: head.body,
            chunks: ChunkedBody::new(),
            limit,
            taken: 0,
            pace: None,
            is_over: matches!(head.body, Framing::None | Framing::Length(0)),
        })
    }

    /// Whether all of it has arrived.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Marks it as complete.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// Counts received bytes.
    ///
    /// # Errors
    /// When they exceed the limit.
    pub fn take(&mut self, count: usize) -> Result<(), BodyError> {
        self.taken += count as u64;
        match self.taken > self.limit {
            true => Err(BodyError::TooLarge),
            false => Ok(()),
        }
    }

    /// Bytes received.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes the next piece from bytes received over HTTP/1; none if there is none yet, or the body
    /// is complete.
    ///
    /// # Errors
    /// When its framing is invalid, or it exceeds the limit.
    pub fn take_from(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, BodyError> {
        let piece = match self.framing {
            Framing::None => return Ok(None),
            Framing::Length(length) => {
                let left = length - self.taken;
                let count = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
                self.is_over = count as u64 == left;
                input.split_to(count).freeze()
            }
            Framing::Chunked => self.take_chunks(input)?,
        };
        self.take(piece.len())?;
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }

    fn take_chunks(&mut self, input: &mut BytesMut) -> Result<Bytes, BodyError> {
        let mut data = BytesMut::new();
        while !input.is_empty() && !self.is_over {
            let decoded = self.chunks.decode(input).map_err(BodyError::Refused)?;
            data.extend_from_slice(decoded.data);
            self.is_over = decoded.complete;
            let consumed = decoded.consumed;
            drop(input.split_to(consumed));
        }
        Ok(data.freeze())
    }
}
