//! Records from a stream of bytes, for both readers.

use std::fmt;

use crate::record::{HEADER_LEN, Header, VERSION};

/// A protocol violation of the peer. The connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolError {
    /// A record of this version.
    Version(u8),
    /// A record for this request id, which is not on this connection.
    RequestId(u16),
    /// An unexpected record of this type.
    Unexpected(u8),
    /// A record of this type with a content length other than 8.
    FixedLength(u8),
    /// A request ended with this unknown protocol status.
    ProtocolStatus(u8),
    /// The parameters have more than this many bytes.
    ParamsTooLarge(usize),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("A FastCGI ")?;
        match self {
            Self::Version(got) => write!(f, "record has version {got}; expected {VERSION}."),
            Self::RequestId(id) => {
                write!(f, "record is for request {id}, which is not on this connection.")
            }
            Self::Unexpected(kind) => write!(f, "record of type {kind} is unexpected here."),
            Self::FixedLength(kind) => write!(f, "record of type {kind} is not 8 bytes long."),
            Self::ProtocolStatus(got) => {
                write!(f, "request ended with protocol status {got}; expected 0 to 3.")
            }
            Self::ParamsTooLarge(max) => write!(f, "request has parameters over {max} bytes."),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Splits records. Content is passed on as it arrives, never buffered.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    header: [u8; HEADER_LEN],
    header_len: usize,
    content_left: usize,
    padding_left: usize,
    /// Whether the current record has started and not ended.
    amid: bool,
}

/// The next part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// The start of a record.
    Start(Header),
    /// Some content of the current record; never empty.
    Content(&'a [u8]),
    /// The end of the record and its padding.
    End,
}

impl Records {
    pub(crate) const fn new() -> Self {
        Self {
            header: [0; HEADER_LEN],
            header_len: 0,
            content_left: 0,
            padding_left: 0,
            amid: false,
        }
    }

    /// Whether nothing has arrived since the last record.
    pub(crate) const fn is_between(&self) -> bool {
        !self.amid && self.header_len == 0
    }

    /// Takes the next part off `input`; `None` when it needs more bytes.
    pub(crate) fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<Part<'a>>, ProtocolError> {
        if !self.amid {
            return self.start(input);
        }
        if self.content_left > 0 {
            let content = take(input, self.content_left);
            self.content_left -= content.len();
            return Ok((!content.is_empty()).then_some(Part::Content(content)));
        }
        self.padding_left -= take(input, self.padding_left).len();
        if self.padding_left > 0 {
            return Ok(None);
        }
        self.amid = false;
        Ok(Some(Part::End))
    }

    fn start<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Part<'a>>, ProtocolError> {
        let bytes = take(input, HEADER_LEN - self.header_len);
        let filled = self.header_len + bytes.len();
        self.header[self.header_len..filled].copy_from_slice(bytes);
        self.header_len = filled;
        if filled > 0 && self.header[0] != VERSION {
            return Err(ProtocolError::Version(self.header[0]));
        }
        if filled < HEADER_LEN {
            return Ok(None);
        }
        let header = Header::decode(self.header);
        self.header_len = 0;
        self.content_left = header.content_len.into();
        self.padding_left = header.padding_len.into();
        self.amid = true;
        Ok(Some(Part::Start(header)))
    }
}

/// Splits up to `max` bytes off `input`.
fn take<'a>(input: &mut &'a [u8], max: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(max.min(input.len()));
    *input = rest;
    taken
}

/// The 8 bytes of a record's content, gathered from pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FixedContent {
    bytes: [u8; 8],
    len: usize,
}

impl FixedContent {
    /// Starts with a record of this length.
    pub(crate) fn expect(header: Header) -> Result<Self, ProtocolError> {
        if header.content_len == 8 {
            Ok(Self::default())
        } else {
            Err(ProtocolError::FixedLength(header.kind))
        }
    }

    pub(crate) fn add(&mut self, content: &[u8]) {
        for (place, byte) in self.bytes[self.len..].iter_mut().zip(content) {
            *place = *byte;
            self.len += 1;
        }
    }

    pub(crate) fn bytes(self) -> [u8; 8] {
        self.bytes
    }
}
