//! The body of a response on its way into the cache, as a part of [`FillMemory`].
//!
//! [`FillMemory`]: crate::cache::fill_memory::FillMemory

use maitred_pagecache::admit::NotStored;

use crate::backend::Backend;
use crate::cache::SiteCache;

/// Bytes of each body of a pool that do not count: a worker has as much in its buffers, and most
/// pages take no lock. An upstream server may have any number of requests.
const UNCOUNTED_BYTES: usize = 64 * 1024;

/// A body that is being collected.
pub struct FillBody<'a> {
    of: &'a SiteCache,
    bytes: Vec<u8>,
    uncounted: usize,
    counted: usize,
}

impl<'a> FillBody<'a> {
    /// An empty body of a page of this site.
    pub fn new(of: &'a SiteCache, backend: &Backend) -> FillBody<'a> {
        let uncounted = match backend {
            Backend::Pool(_) => UNCOUNTED_BYTES,
            Backend::Upstream(..) => 0,
        };
        FillBody { of, bytes: Vec::new(), uncounted, counted: 0 }
    }

    /// Appends a piece; the whole has at most `largest` bytes.
    ///
    /// # Errors
    /// When it is too large, or there is no memory for it. The body is empty then.
    pub fn append(&mut self, piece: &[u8], largest: u64) -> Result<(), NotStored> {
        let length = self.bytes.len() + piece.len();
        if length as u64 > largest {
            self.clear();
            return Err(NotStored::TooLarge);
        }
        if length > self.bytes.capacity() {
            let capacity = grown(self.bytes.capacity(), length, largest);
            if !self.count(capacity) {
                self.clear();
                return Err(NotStored::NoMemory);
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// The whole body. It counts until [`FillBody::clear`]: it may have to wait for its place.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Drops the bytes, and gives their memory back.
    pub fn clear(&mut self) {
        self.bytes = Vec::new();
        if self.counted > 0 {
            self.of.fill_memory.release(&self.of.key, self.counted as u64);
            self.counted = 0;
        }
    }

    fn count(&mut self, capacity: usize) -> bool {
        let counted = capacity.saturating_sub(self.uncounted).max(self.counted);
        let more = (counted - self.counted) as u64;
        if more > 0 && !self.of.fill_memory.take(&self.of.key, more) {
            return false;
        }
        self.counted = counted;
        true
    }
}

impl Drop for FillBody<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The next capacity of a buffer for `length` bytes: it doubles, up to the largest body.
fn grown(capacity: usize, length: usize, largest: u64) -> usize {
    let largest = usize::try_from(largest).unwrap_or(usize::MAX);
    length.max(capacity.saturating_mul(2).min(largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_doubles_up_to_the_largest_body() {
        assert_eq!(grown(0, 100, 1000), 100);
        assert_eq!(grown(100, 101, 1000), 200);
        assert_eq!(grown(100, 300, 1000), 300);
        assert_eq!(grown(600, 700, 1000), 1000);
        assert_eq!(grown(usize::MAX / 2 + 1, 1, u64::MAX), usize::MAX);
    }
}
