//! Looks at the frames that a client sends as they pass (RFC 9113 §4.1), for what h2 does not count: fields
//! that follow a body are kept in memory until the stream is over, at up to a hundred times what they came
//! as.

/// What a client begins with (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes in a frame's head.
const HEAD_BYTES: usize = 9;
/// Kinds of frames (RFC 9113 §6).
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

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
        }
    }

    /// More has come. `trailers` is given each stream that fields came for which follow its body, and the
    /// bytes that they came as.
    pub fn take(&mut self, mut bytes: &[u8], mut trailers: impl FnMut(u32, usize)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let count = (HEAD_BYTES - self.has).min(bytes.len());
            self.head[self.has..self.has + count].copy_from_slice(&bytes[..count]);
            self.has += count;
            bytes = &bytes[count..];
            if self.has == HEAD_BYTES {
                self.has = 0;
                self.begin(&mut trailers);
            }
        }
    }

    /// A frame begins.
    fn begin(&mut self, trailers: &mut impl FnMut(u32, usize)) {
        let [a, b, c, kind, _, stream @ ..] = self.head;
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
            trailers(stream, self.skip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: u8 = 0;

    fn frame(kind: u8, stream: u32, length: usize) -> Vec<u8> {
        let mut bytes = (length as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, 0]);
        bytes.extend(stream.to_be_bytes());
        bytes.resize(HEAD_BYTES + length, b'x');
        bytes
    }

    #[test]
    fn fields_that_follow_a_body_are_seen_however_they_come() {
        let all = [
            PREFACE.to_vec(),
            frame(4, 0, 12),
            frame(HEADERS, 1, 100),
            frame(CONTINUATION, 1, 50),
            frame(HEADERS, 3, 0),
            frame(DATA, 1, 20_000),
            frame(HEADERS, 1, 7),
            frame(CONTINUATION, 1, 8),
            frame(HEADERS, 5, 9),
            frame(HEADERS, 3, 10),
        ];
        let all = all.concat();
        for piece in [1, 2, 9, 10, 1000, all.len()] {
            let (mut frames, mut seen) = (Frames::new(), Vec::new());
            for bytes in all.chunks(piece) {
                frames.take(bytes, |stream, length| seen.push((stream, length)));
            }
            assert_eq!(seen, [(1, 7), (1, 8), (3, 10)], "{piece} bytes at a time");
        }
    }
}
