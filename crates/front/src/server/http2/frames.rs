//! Looks at the frames that a client sends as they pass (RFC 9113 §4.1), for what h2 does not count: fields
//! that follow a body are kept in memory until the stream is over, and fields that are not complete until they
//! are, at up to a hundred times what they came as.

/// What a client begins with (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes in a frame's head.
const HEAD_BYTES: usize = 9;
/// Kinds of frames (RFC 9113 §6).
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// The flag of HEADERS and CONTINUATION that no more of their fields follow.
const END_HEADERS: u8 = 4;

/// What a connection is to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Fields that follow the body of a stream's request, as so many bytes.
    Trailers(u32, usize),
    /// A block of fields has begun to come and is not complete; its frames have so many bytes by now.
    Open(usize),
    /// These are complete.
    Complete,
}

/// Where the bytes of a connection are in its frames.
#[derive(Debug)]
pub struct Frames {
    /// The head of a frame, as far as it has come.
    head: [u8; HEAD_BYTES],
    has: usize,
    /// Bytes that come before the next head.
    skip: usize,
    /// The last stream that was begun.
    last: u32,
    /// The last block of fields is one that follows a body.
    is_trailers: bool,
    /// The last block of fields is not complete.
    is_open: bool,
    /// No other frame of it follows.
    is_last: bool,
    /// Bytes of those of its frames that have come: h2 does not look at one before.
    fields: usize,
    /// Bytes of the frame of it that comes.
    length: usize,
    /// The connection knows that it is open.
    is_told: bool,
}

impl Frames {
    /// A connection of which nothing has come, not even the preface.
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
            is_told: false,
        }
    }

    /// More has come; `tell` is given what is in it. A block of fields that is all in it is none to tell of.
    pub fn take(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Seen)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if self.is_open && self.skip == 0 {
                self.fields_came(&mut tell);
            }
            let count = (HEAD_BYTES - self.has).min(bytes.len());
            self.head[self.has..self.has + count].copy_from_slice(&bytes[..count]);
            self.has += count;
            bytes = &bytes[count..];
            if self.has == HEAD_BYTES {
                self.has = 0;
                self.begin(&mut tell);
            }
        }
        if self.is_open {
            self.is_told = true;
            tell(Seen::Open(self.fields));
        }
    }

    /// A frame has come with fields of a block that was not complete.
    fn fields_came(&mut self, tell: &mut impl FnMut(Seen)) {
        self.fields += std::mem::take(&mut self.length);
        if self.is_last {
            self.is_open = false;
            if std::mem::take(&mut self.is_told) {
                tell(Seen::Complete);
            }
        }
    }

    /// A frame begins.
    fn begin(&mut self, tell: &mut impl FnMut(Seen)) {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        match kind {
            HEADERS => {
                self.is_trailers = stream <= self.last;
                self.last = self.last.max(stream);
            }
            CONTINUATION => {}
            _ => return,
        }
        if self.is_trailers {
            tell(Seen::Trailers(stream, self.skip));
        }
        if !self.is_open {
            (self.is_open, self.fields) = (true, 0);
        }
        self.is_last = flags & END_HEADERS != 0;
        self.length = self.skip;
        if self.skip == 0 {
            self.fields_came(tell);
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
            seen.retain(|what| matches!(what, Seen::Trailers(..)));
            let expected = [
                Seen::Trailers(1, 7),
                Seen::Trailers(1, 8),
                Seen::Trailers(3, 10),
            ];
            assert_eq!(seen, expected, "{piece} bytes at a time");
        }
    }

    /// What is seen in these pieces, of a connection that has begun.
    fn seen(pieces: &[&[u8]]) -> Vec<Seen> {
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
        let expected = [Seen::Open(100), Seen::Open(100), Seen::Complete];
        assert_eq!(apart, expected);
        let (begun, rest) = third.split_at(HEAD_BYTES + 49);
        let late = seen(&[&first[..109], &second, begun, rest]);
        let expected = [expected[0], expected[0], Seen::Open(100), Seen::Complete];
        assert_eq!(late, expected);
        let one = frame(HEADERS, END_HEADERS, 1, 100);
        let halves = seen(&[&one[..50], &one[50..]]);
        assert_eq!(halves, [Seen::Open(0), Seen::Complete]);
    }
}
