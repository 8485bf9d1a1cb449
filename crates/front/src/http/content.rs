//! Response bodies.

use std::sync::Arc;

use bytes::Bytes;

use crate::http::large_file::LargeFile;

/// A piece of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first byte.
    pub offset: u64,
    /// Its length; never 0 in a response.
    pub len: u64,
}

impl Slice {
    /// The offset after its last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// The body of a file's response.
#[derive(Debug)]
pub enum ResponseBody {
    /// Nothing.
    Empty,
    /// These bytes.
    Memory(Bytes),
    /// A piece of a file.
    File {
        /// The file.
        file: Arc<LargeFile>,
        /// Which piece.
        slice: Slice,
    },
    /// `multipart/byteranges`: each part's header and its piece of the file, then `closing`.
    Multipart {
        /// The file.
        file: Arc<LargeFile>,
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
