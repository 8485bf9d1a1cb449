//! Header sections of responses that h2 has and the client has not read. Neither windows nor the
//! end of a request bound them: h2 holds each until the socket takes it.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;

use crate::net::client_memory;

/// Bytes that the header sections of all streams of a connection together may hold. The largest one
/// that a script may send has room, unless it has more than 3,000 headers.
const HEADS_BYTES: usize = 768 * 1024;
/// Bytes of them that have room however much all clients hold. The first section of a connection
/// has room up to [`HEADS_BYTES`], and one of at most [`ORDINARY_BYTES`] beyond that, too.
const OWN_BYTES: usize = 64 * 1024;
/// Bytes of the sections that most responses have. A client that waits for nothing but the bodies
/// of other responses loses none of these.
const ORDINARY_BYTES: usize = 8 * 1024;
/// Bytes that a connection may hold beyond [`HEADS_BYTES`] for such sections: one of each of 128
/// streams. Interim responses and streams that the client has reset reach it.
const ALL_ORDINARY_BYTES: usize = 128 * ORDINARY_BYTES;
/// Bytes of a section that is not accounted for, as most are: a mark on each response would cost
/// more than the memory it bounds. 128 streams have 512 KiB of them.
const SMALL_BYTES: usize = 4 * 1024;
/// Bytes of memory that a header takes besides its name and its value: its places in a map with
/// spare capacity, and two allocations.
const HEADER_BYTES: usize = 160;
/// Bytes of the largest frame of a client that announces no size (RFC 9113 §6.5.2).
const DEFAULT_FRAME_BYTES: usize = 16 * 1024;

/// Why a response is not sent.
pub const NO_ROOM: &str = "the headers of responses that its connection has not read would exceed \
                           768 KiB, or its share of 24 MiB";

/// Bytes of a header section.
#[derive(Debug, Clone, Copy)]
pub struct HeadSize {
    /// Its names and values.
    pub text: usize,
    /// Its memory.
    pub memory: usize,
}

/// The header sections of a connection, in bytes.
#[derive(Debug, Default)]
pub struct UnsentHeads {
    /// Those that are not written.
    unsent: AtomicUsize,
    /// The part of them that h2 has encoded, or dropped with their streams.
    encoded: AtomicUsize,
    /// The longest text of one, beyond [`DEFAULT_FRAME_BYTES`].
    longest: AtomicUsize,
    /// The largest frame that the client has ever accepted; 0 if it has announced none.
    frame: AtomicUsize,
}

impl UnsentHeads {
    /// Accounts for a header section; false if it has no room among `most` bytes.
    pub fn take(&self, size: HeadSize, most: usize) -> bool {
        let HeadSize { text, memory } = size;
        let unsent = self.unsent.load(Ordering::Relaxed);
        let most = match memory {
            ..=ORDINARY_BYTES => HEADS_BYTES + ALL_ORDINARY_BYTES,
            _ if unsent == 0 => HEADS_BYTES,
            _ => most,
        };
        if unsent + memory > most {
            return false;
        }
        self.unsent.fetch_add(memory, Ordering::Relaxed);
        if text > DEFAULT_FRAME_BYTES {
            self.longest.fetch_max(text, Ordering::Relaxed);
        }
        true
    }

    /// Handles the encoding of a section, which h2 holds until it is written.
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

    /// Handles the client's announcement of the largest frame that it accepts.
    pub fn accepts_frames(&self, bytes: usize) {
        self.frame.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Bytes that h2's two buffers hold while nothing waits to be written: each stays as large as a
    /// section that fits into one frame. Those for a frame of the default size are part of any
    /// connection.
    pub fn buffers(&self) -> usize {
        match self.frame.load(Ordering::Relaxed) {
            ..=DEFAULT_FRAME_BYTES => 0,
            frame => 2 * self.longest.load(Ordering::Relaxed).min(frame),
        }
    }
}

/// Bytes that the header sections of a connection may hold now, beyond those that have room in any
/// case.
pub fn limit() -> usize {
    client_memory::limit(HEADS_BYTES).max(OWN_BYTES)
}

/// The size of a header section; none for a small one.
pub fn size(fields: &HeaderMap) -> Option<HeadSize> {
    let texts = fields.iter().map(|(name, value)| name.as_str().len() + value.len());
    let text = texts.sum::<usize>();
    let memory = text + fields.len() * HEADER_BYTES;
    (memory > SMALL_BYTES).then_some(HeadSize { text, memory })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// A section of one long header.
    fn section(bytes: usize) -> HeadSize {
        HeadSize { text: bytes, memory: bytes }
    }

    #[test]
    fn sections_have_room_until_their_client_has_too_many_to_read() {
        const SECTION_BYTES: usize = HEADS_BYTES / 3;
        let heads = UnsentHeads::default();
        let takes = || heads.take(section(SECTION_BYTES), HEADS_BYTES);
        assert_eq!([takes(), takes(), takes(), takes()], [true, true, true, false]);
        heads.encoded(SECTION_BYTES);
        assert!(!takes(), "h2 still has what it has encoded");
        assert_eq!(heads.written(), SECTION_BYTES);
        assert!(takes());
        assert_eq!(heads.written(), 0);
    }

    #[test]
    fn ordinary_sections_and_the_first_one_have_room_however_much_all_clients_hold() {
        let heads = UnsentHeads::default();
        let ordinary = || heads.take(section(6 * 1024), OWN_BYTES);
        assert!((0..20).all(|_| ordinary()));
        assert!(!heads.take(section(ORDINARY_BYTES + 1), OWN_BYTES));

        let heads = UnsentHeads::default();
        assert!(heads.take(section(256 * 1024), OWN_BYTES));
        assert!(!heads.take(section(256 * 1024), OWN_BYTES));
        assert!((0..128).all(|_| heads.take(section(ORDINARY_BYTES), OWN_BYTES)));
        assert!(!UnsentHeads::default().take(section(HEADS_BYTES + 1), OWN_BYTES));
    }

    #[test]
    fn any_number_of_interim_responses_has_bounded_memory() {
        let heads = UnsentHeads::default();
        let count = (0..1000).filter(|_| heads.take(section(ORDINARY_BYTES), OWN_BYTES)).count();
        assert_eq!(count * ORDINARY_BYTES, HEADS_BYTES + ALL_ORDINARY_BYTES);
    }

    #[test]
    fn a_written_section_leaves_buffers_where_its_client_accepts_frames_as_large() {
        const SECTION_BYTES: usize = 256 * 1024;
        const FRAME_BYTES: usize = 100 * 1024;
        let heads = UnsentHeads::default();
        assert!(heads.take(section(SECTION_BYTES), HEADS_BYTES));
        heads.encoded(SECTION_BYTES);
        assert_eq!(heads.written(), SECTION_BYTES);
        assert_eq!(heads.buffers(), 0);
        heads.accepts_frames(DEFAULT_FRAME_BYTES);
        assert_eq!(heads.buffers(), 0);
        heads.accepts_frames(FRAME_BYTES);
        assert_eq!(heads.buffers(), 2 * FRAME_BYTES);
        // The buffers do not become smaller.
        heads.accepts_frames(DEFAULT_FRAME_BYTES);
        assert_eq!(heads.buffers(), 2 * FRAME_BYTES);
        heads.accepts_frames(1 << 24);
        assert_eq!(heads.buffers(), 2 * SECTION_BYTES);
    }

    #[test]
    fn many_short_headers_take_more_memory_than_their_text() {
        let mut fields = HeaderMap::new();
        for number in 0..20 {
            fields.append("x-header", HeaderValue::from(number));
        }
        assert!(size(&fields).is_none());
        for number in 0..20 {
            fields.append("x-header", HeaderValue::from(number));
        }
        let size = size(&fields).expect("they are many");
        assert!(size.memory > 40 * HEADER_BYTES && size.text < 40 * 16);
    }
}
