//! Header sections of responses that h2 has and the client has not read. Neither windows nor the
//! end of a request bound them: h2 holds each until the socket takes it.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;

use crate::net::client_memory;

/// Bytes that the header sections of all streams of a connection together may hold. The largest one
/// that a script may send has room, unless it has more than 3,000 headers.
const HEADS_BYTES: usize = 768 * 1024;
/// Bytes that they may hold in any case, however much all clients hold.
const OWN_BYTES: usize = 64 * 1024;
/// Bytes of a section that is not accounted for, as most are: all streams of a connection have
/// 512 KiB of them at most.
const SMALL_BYTES: usize = 4 * 1024;
/// Bytes of memory that a header takes besides its name and its value: its places in a map with
/// spare capacity, and two allocations.
const HEADER_BYTES: usize = 160;

/// Why a response is not sent.
pub const NO_ROOM: &str = "the headers of responses that its connection has not read would exceed \
                           768 KiB, or its share of 24 MiB";

/// The header sections of a connection, in bytes.
#[derive(Debug, Default)]
pub struct UnsentHeads {
    /// Those that are not written.
    unsent: AtomicUsize,
    /// The part of them that h2 has encoded, or dropped with their streams.
    encoded: AtomicUsize,
    /// The largest one beyond [`OWN_BYTES`]: h2's buffers stay as large as it, where the client
    /// accepts such frames.
    largest: AtomicUsize,
}

impl UnsentHeads {
    /// Accounts for a header section of `bytes`; false if it has no room among `most`.
    pub fn take(&self, bytes: usize, most: usize) -> bool {
        if self.unsent.load(Ordering::Relaxed) + bytes > most {
            return false;
        }
        self.unsent.fetch_add(bytes, Ordering::Relaxed);
        if bytes > OWN_BYTES {
            self.largest.fetch_max(bytes, Ordering::Relaxed);
        }
        true
    }

    /// Handles the encoding of a section, which h2 holds on until it is written.
    pub fn encoded(&self, bytes: usize) {
        self.encoded.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Handles that h2 has written all that it has encoded. Returns the bytes that this releases.
    pub fn written(&self) -> usize {
        if self.encoded.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let bytes = self.encoded.swap(0, Ordering::Relaxed);
        self.unsent.fetch_sub(bytes, Ordering::Relaxed);
        bytes
    }

    /// Bytes that h2's buffers hold while nothing waits to be written.
    pub fn buffers(&self) -> usize {
        self.largest.load(Ordering::Relaxed)
    }
}

/// Most bytes that the header sections of a connection may hold now.
pub fn limit() -> usize {
    client_memory::limit(HEADS_BYTES).max(OWN_BYTES)
}

/// The memory of a header section, in bytes; none for a small one.
pub fn memory_bytes(fields: &HeaderMap) -> Option<usize> {
    let texts = fields.iter().map(|(name, value)| name.as_str().len() + value.len());
    let bytes = texts.sum::<usize>() + fields.len() * HEADER_BYTES;
    (bytes > SMALL_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn sections_have_room_until_their_client_has_too_many_to_read() {
        const SECTION_BYTES: usize = HEADS_BYTES / 3;
        let heads = UnsentHeads::default();
        let takes = || heads.take(SECTION_BYTES, HEADS_BYTES);
        assert_eq!([takes(), takes(), takes(), takes()], [true, true, true, false]);
        heads.encoded(SECTION_BYTES);
        assert!(!takes(), "h2 still has what it has encoded");
        assert_eq!(heads.written(), SECTION_BYTES);
        assert!(takes());
        assert_eq!(heads.written(), 0);
        assert_eq!(heads.buffers(), SECTION_BYTES);
    }

    #[test]
    fn many_short_headers_take_more_memory_than_their_text() {
        let mut fields = HeaderMap::new();
        for number in 0..20 {
            fields.append("x-header", HeaderValue::from(number));
        }
        assert_eq!(memory_bytes(&fields), None);
        for number in 0..20 {
            fields.append("x-header", HeaderValue::from(number));
        }
        assert!(memory_bytes(&fields) > Some(40 * HEADER_BYTES));
    }
}
