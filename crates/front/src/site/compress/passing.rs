//! Encoders of responses that are compressed while they are sent. Each takes about a megabyte for
//! as long as its response needs. The workers of a pool limit their number; those of upstream
//! servers have a limit of their own.

use std::io;

use maitred_rules::content_encoding::ContentEncoding;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::site::compress::encoder::{Effort, Encoder};

/// Responses of upstream servers that are compressed at a time, by all threads together; those
/// beyond are sent as they are.
const UPSTREAM_AT_A_TIME: usize = 128;

static OF_UPSTREAMS: Semaphore = Semaphore::const_new(UPSTREAM_AT_A_TIME);

/// Compresses a response while it is sent.
pub struct PassingEncoder {
    encoder: Encoder,
    _place: Option<SemaphorePermit<'static>>,
}

impl PassingEncoder {
    /// For a response of a pool; none: there is no memory for it.
    pub fn of_pool(coding: ContentEncoding) -> Option<PassingEncoder> {
        let encoder = Encoder::new(coding, Effort::Passing).ok()?;
        Some(PassingEncoder { encoder, _place: None })
    }

    /// For a response of an upstream server; none: there is no memory for it, or there are too many
    /// at a time.
    pub fn of_upstream(coding: ContentEncoding) -> Option<PassingEncoder> {
        let place = OF_UPSTREAMS.try_acquire().ok()?;
        Some(PassingEncoder { _place: Some(place), ..PassingEncoder::of_pool(coding)? })
    }

    /// As [`Encoder::piece`].
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn piece(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.encoder.piece(bytes)
    }

    /// As [`Encoder::last`].
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn last(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.encoder.last(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_of_upstream_servers_beyond_the_limit_are_not_compressed_and_those_of_pools_are() {
        let begin = || PassingEncoder::of_upstream(ContentEncoding::Gzip);
        let mut all: Vec<_> = (0..UPSTREAM_AT_A_TIME).map_while(|_| begin()).collect();
        assert_eq!(all.len(), UPSTREAM_AT_A_TIME);
        assert!(begin().is_none());
        assert!(PassingEncoder::of_pool(ContentEncoding::Gzip).is_some());
        all.pop();
        assert!(begin().is_some());
    }
}
