//! Parses the frames that a client sends (RFC 9113 §4.1), for limits that h2 does not have:
//! trailers are held in memory until the body of their request is dropped, and incomplete header
//! blocks until they are complete, at up to a hundred times their encoded size. The size of frames
//! that the client accepts is also that of h2's buffers.

/// The connection preface (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame header.
const HEAD_BYTES: usize = 9;
/// Frame types (RFC 9113 §6).
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

/// The flag END_HEADERS of HEADERS and CONTINUATION.
const END_HEADERS: u8 = 4;
/// Bytes of a setting: its identifier and its value (RFC 9113 §6.5.1).
const SETTING_BYTES: usize = 6;
/// The identifier of SETTINGS_MAX_FRAME_SIZE.
const MAX_FRAME_SIZE: [u8; 2] = [0, 5];

/// Largest memory of a header block, in bytes.
const BLOCK_BYTES: usize = 192 * 1024;
/// Its memory for each byte received: an index into HPACK's table takes one byte, and the header it
/// expands to has a slot in a map with spare capacity.
const UNPACKED: usize = 128;

/// Most memory of a header block of which `bytes` have arrived.
pub fn block_memory(bytes: usize) -> usize {
    bytes.saturating_mul(UNPACKED).min(BLOCK_BYTES)
}

/// An event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameEvent {
    /// Trailers of a stream's request, and their size in bytes.
    Trailers(u32, usize),
    /// A header block has started and is incomplete; bytes of its frames so far.
    Open(usize),
    /// The header block is complete.
    Complete,
    /// The client accepts frames of this size, in bytes.
    FrameSize(usize),
}

/// The parser's state for a connection.
#[derive(Debug)]
pub struct Frames {
    /// The header of a frame, as far as it has arrived.
    head: [u8; HEAD_BYTES],
    has: usize,
    /// Bytes before the next frame header.
    skip: usize,
    /// The last stream that was opened.
    last: u32,
    /// The last header block holds trailers.
    is_trailers: bool,
    /// The last header block is not complete.
    is_open: bool,
    /// No CONTINUATION follows.
    is_last: bool,
    /// Bytes of its frames that have arrived: h2 parses complete frames only.
    fields: usize,
    /// Bytes of its current frame.
    length: usize,
    /// An event was emitted for it.
    is_reported: bool,
    /// The current frame is SETTINGS.
    is_settings: bool,
    /// The current setting of it, as far as it has arrived.
    setting: [u8; SETTING_BYTES],
    /// Bytes of that which have arrived.
    setting_length: usize,
}

impl Frames {
    /// A new connection, before the preface.
    pub fn new() -> Frames {
        Frames {
            head: [0; HEAD_BYTES],
            has: 0,
            skip: PREFACE.len(),
            last: 0,
            is_trailers: false,
            is_open: false,
            is_last: false,
            fields: 0,
            length: 0,
            is_reported: false,
            is_settings: false,
            setting: [0; SETTING_BYTES],
            setting_length: 0,
        }
    }

    /// Parses more bytes, and passes the events in them to `report`. A header block that starts and
    /// ends in them is no event.
    pub fn take(&mut self, mut bytes: &[u8], mut report: impl FnMut(FrameEvent)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            if self.is_settings {
                self.settings_came(&bytes[..skipped], &mut report);
            }
            bytes = &bytes[skipped..];
            if self.is_open && self.skip == 0 {
                self.fields_came(&mut report);
            }
            let count = (HEAD_BYTES - self.has).min(bytes.len());
            self.head[self.has..self.has + count].copy_from_slice(&bytes[..count]);
            self.has += count;
            bytes = &bytes[count..];
            if self.has == HEAD_BYTES {
                self.has = 0;
                self.begin(&mut report);
            }
        }
        if self.is_open {
            self.is_reported = true;
            report(FrameEvent::Open(self.fields));
        }
    }

    /// The last stream that the client has opened.
    pub fn last_stream(&self) -> u32 {
        self.last
    }

    /// A frame of an incomplete header block has arrived.
    fn fields_came(&mut self, report: &mut impl FnMut(FrameEvent)) {
        self.fields += std::mem::take(&mut self.length);
        if self.is_last {
            self.is_open = false;
            if std::mem::take(&mut self.is_reported) {
                report(FrameEvent::Complete);
            }
        }
    }

    /// Bytes of SETTINGS have arrived.
    fn settings_came(&mut self, bytes: &[u8], report: &mut impl FnMut(FrameEvent)) {
        for byte in bytes {
            self.setting[self.setting_length] = *byte;
            self.setting_length = (self.setting_length + 1) % SETTING_BYTES;
            let [a, b, value @ ..] = self.setting;
            if self.setting_length == 0 && [a, b] == MAX_FRAME_SIZE {
                report(FrameEvent::FrameSize(u32::from_be_bytes(value) as usize));
            }
        }
    }

    /// A frame starts.
    fn begin(&mut self, report: &mut impl FnMut(FrameEvent)) {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        (self.is_settings, self.setting_length) = (kind == SETTINGS, 0);
        match kind {
            HEADERS => {
                self.is_trailers = stream <= self.last;
                self.last = self.last.max(stream);
            }
            CONTINUATION => {}
            _ => return,
        }
        if self.is_trailers {
            report(FrameEvent::Trailers(stream, self.skip));
        }
        if !self.is_open {
            (self.is_open, self.fields) = (true, 0);
        }
        self.is_last = flags & END_HEADERS != 0;
        self.length = self.skip;
        if self.skip == 0 {
            self.fields_came(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: u8 = 0;

    fn frame(kind: u8, flags: u8, stream: u32, length: usize) -> Vec<u8> {
        let mut bytes = (length as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.resize(HEAD_BYTES + length, b'x');
        bytes
    }

    #[test]
    fn fields_that_follow_a_body_are_seen_however_they_come() {
        let all = [
            PREFACE.to_vec(),
            frame(4, 0, 0, 12),
            frame(HEADERS, 0, 1, 100),
            frame(CONTINUATION, END_HEADERS, 1, 50),
            frame(HEADERS, END_HEADERS, 3, 0),
            frame(DATA, 0, 1, 20_000),
            frame(HEADERS, 0, 1, 7),
            frame(CONTINUATION, END_HEADERS, 1, 8),
            frame(HEADERS, END_HEADERS, 5, 9),
            frame(HEADERS, END_HEADERS, 3, 10),
        ];
        let all = all.concat();
        for piece in [1, 2, 9, 10, 1000, all.len()] {
            let (mut frames, mut seen) = (Frames::new(), Vec::new());
            for bytes in all.chunks(piece) {
                frames.take(bytes, |what| seen.push(what));
            }
            seen.retain(|what| matches!(what, FrameEvent::Trailers(..)));
            let expected = [
                FrameEvent::Trailers(1, 7),
                FrameEvent::Trailers(1, 8),
                FrameEvent::Trailers(3, 10),
            ];
            assert_eq!(seen, expected, "{piece} bytes at a time");
        }
    }

    #[test]
    fn the_size_of_frames_is_reported_however_its_setting_arrives() {
        let settings = |flags, payload: &[u8]| {
            let mut bytes = frame(SETTINGS, flags, 0, payload.len());
            bytes.truncate(HEAD_BYTES);
            [&bytes, payload].concat()
        };
        let all = [
            PREFACE.to_vec(),
            settings(0, &[0, 4, 0, 0, 0, 5, 0, 5, 0, 1, 0, 2]),
            settings(1, &[]),
            // Malformed: h2 closes the connection.
            settings(0, &[0, 5, 0]),
            frame(DATA, 0, 1, 12),
            settings(0, &[0, 5, 0, 0xff, 0xff, 0xff]),
        ];
        let all = all.concat();
        for piece in [1, 5, 9, all.len()] {
            let (mut frames, mut seen) = (Frames::new(), Vec::new());
            all.chunks(piece).for_each(|bytes| frames.take(bytes, |what| seen.push(what)));
            let expected = [0x1_0002, 0xff_ffff].map(FrameEvent::FrameSize);
            assert_eq!(seen, expected, "{piece} bytes at a time");
        }
    }

    /// What is seen in these pieces, of a connection that has begun.
    fn seen(pieces: &[&[u8]]) -> Vec<FrameEvent> {
        let (mut frames, mut seen) = (Frames::new(), Vec::new());
        frames.take(PREFACE, |_| panic!("there are no fields in it"));
        for piece in pieces {
            frames.take(piece, |what| seen.push(what));
        }
        seen
    }

    #[test]
    fn a_block_of_fields_is_open_until_its_last_byte_has_come() {
        let first = frame(HEADERS, 0, 1, 100);
        let second = frame(CONTINUATION, 0, 1, 0);
        let third = frame(CONTINUATION, END_HEADERS, 1, 50);
        let data = frame(DATA, 0, 1, 7);
        let all = [&first[..], &second, &third, &data].concat();
        assert_eq!(seen(&[&all]), [], "what is complete is h2's");
        let apart = seen(&[&first, &second, &third, &data]);
        let expected = [FrameEvent::Open(100), FrameEvent::Open(100), FrameEvent::Complete];
        assert_eq!(apart, expected);
        let (begun, rest) = third.split_at(HEAD_BYTES + 49);
        let late = seen(&[&first[..109], &second, begun, rest]);
        let expected = [expected[0], expected[0], FrameEvent::Open(100), FrameEvent::Complete];
        assert_eq!(late, expected);
        let one = frame(HEADERS, END_HEADERS, 1, 100);
        let halves = seen(&[&one[..50], &one[50..]]);
        assert_eq!(halves, [FrameEvent::Open(0), FrameEvent::Complete]);
    }
}
