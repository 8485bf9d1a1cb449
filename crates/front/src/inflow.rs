//! A request's body as it comes, piece by piece: what is passed on at once is never kept.

use bytes::{Bytes, BytesMut};
use maitred_http1::{ChunkedBody, Framing, Head};
use tokio::time::{Duration, Instant};

use crate::body::NoBody;

/// How long a sender may take for a body, beside the time it gets for its size.
const GRACE: Duration = Duration::from_secs(20);
/// Least rate of a body in bytes per second: each gives its sender more time.
const LEAST_RATE: u64 = 500;

/// How much of a body has come, and may still come.
pub struct Inflow {
    framing: Framing,
    chunks: ChunkedBody,
    limit: u64,
    taken: u64,
    /// How long its sender has been waited for.
    waited: Duration,
    is_over: bool,
}

impl Inflow {
    /// The body after `head`, of which nothing has been read and which may have `limit` bytes.
    ///
    /// # Errors
    /// When it is said to be larger.
    pub fn of(head: &Head, limit: u64) -> Result<Inflow, NoBody> {
        if matches!(head.body, Framing::Length(length) if length > limit) {
            return Err(NoBody::TooLarge);
        }
        Ok(Inflow {
            framing: head.body,
            chunks: ChunkedBody::new(),
            limit,
            taken: 0,
            waited: Duration::ZERO,
            is_over: matches!(head.body, Framing::None | Framing::Length(0)),
        })
    }

    /// Whether all of it has come.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// It has come to its end.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// More of it has come.
    ///
    /// # Errors
    /// When it is too much.
    pub fn take(&mut self, count: usize) -> Result<(), NoBody> {
        self.taken += count as u64;
        match self.taken > self.limit {
            true => Err(NoBody::TooLarge),
            false => Ok(()),
        }
    }

    /// How long its sender may still be waited for: only the time that it takes itself counts, and
    /// not the time in which nobody wanted more.
    pub fn patience(&self) -> Duration {
        let allowed = GRACE + Duration::from_secs(self.taken / LEAST_RATE);
        allowed.saturating_sub(self.waited)
    }

    /// Counts the time until what this returns is dropped.
    pub fn wait(&mut self) -> Waiting<'_> {
        Waiting(&mut self.waited, Instant::now())
    }

    /// Takes what it can of bytes that came over HTTP/1; none if there is nothing, or all has come.
    ///
    /// # Errors
    /// When they are no body, or too many.
    pub fn take_from(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, NoBody> {
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

    fn take_chunks(&mut self, input: &mut BytesMut) -> Result<Bytes, NoBody> {
        let mut data = BytesMut::new();
        while !input.is_empty() && !self.is_over {
            let decoded = self.chunks.decode(input).map_err(NoBody::Refused)?;
            data.extend_from_slice(decoded.data);
            self.is_over = decoded.complete;
            let consumed = decoded.consumed;
            drop(input.split_to(consumed));
        }
        Ok(data.freeze())
    }
}

/// Somebody waits for the sender of a body.
pub struct Waiting<'a>(&'a mut Duration, Instant);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        *self.0 += self.1.elapsed();
    }
}
