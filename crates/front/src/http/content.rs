//! Response bodies.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;

/// A piece of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Where it begins.
    pub offset: u64,
    /// How long it is; never 0 in an answer.
    pub len: u64,
}

impl Slice {
    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// The body of an [`Answer`].
#[derive(Debug)]
pub enum AnswerBody {
    /// Nothing.
    Empty,
    /// These bytes.
    Memory(Bytes),
    /// A piece of a file.
    File {
        /// Open for reading.
        fd: Arc<OwnedFd>,
        /// Which piece.
        slice: Slice,
    },
    /// `multipart/byteranges`: each part's head and its piece of the file, then `closing`.
    Multipart {
        /// Open for reading.
        fd: Arc<OwnedFd>,
        /// In the order to send.
        parts: Vec<Part>,
        /// The closing delimiter.
        closing: Bytes,
    },
}

/// One part of a `multipart/byteranges` body.
#[derive(Debug)]
pub struct Part {
    /// Delimiter and header, to the empty line.
    pub head: Bytes,
    /// The piece that follows.
    pub slice: Slice,
}
