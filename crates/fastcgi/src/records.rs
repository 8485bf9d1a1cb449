//! What both readers share: records out of bytes that arrive in any pieces.

use std::fmt;

use crate::record::{HEADER_LEN, Header, VERSION};

/// The other end has broken the protocol. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolError {
    /// A record of this version.
    Version(u8),
    /// A record for this request, which is not on this connection.
    RequestId(u16),
    /// A record of this type where none of it may be.
    Unexpected(u8),
    /// A record of this type whose content does not have the 8 bytes the specification gives it.
    FixedLength(u8),
    /// A request ended with this unknown protocol status.
    ProtocolStatus(u8),
    /// The parameters have more than this many bytes.
    ParamsTooLarge(usize),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(
                    f,
                    "A FastCGI record has version {version}; expected version {VERSION}."
                )
            }
            Self::RequestId(id) => {
                write!(
                    f,
                    "A FastCGI record is for request {id}, which is not on this connection."
                )
            }
            Self::Unexpected(kind) => {
                write!(f, "A FastCGI record of type {kind} came where none may be.")
            }
            Self::FixedLength(kind) => {
                write!(
                    f,
                    "A FastCGI record of type {kind} does not have the 8 bytes it must have."
                )
            }
            Self::ProtocolStatus(status) => {
                write!(
                    f,
                    "A FastCGI request ended with protocol status {status}; expected 0 to 3."
                )
            }
            Self::ParamsTooLarge(max) => {
                write!(f, "The FastCGI parameters have more than {max} bytes.")
            }
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Takes records apart. Content is handed on as it comes, never kept.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    header: [u8; HEADER_LEN],
    header_len: usize,
    content_left: usize,
    padding_left: usize,
    /// Whether the start of the present record has been told and its end has not.
    amid: bool,
}

/// What stands next in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// A record begins.
    Start(Header),
    /// Some content of the present record; never empty.
    Content(&'a [u8]),
    /// The record is over, its padding too.
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

    /// Whether nothing of a record has come since the last one.
    pub(crate) const fn is_between(&self) -> bool {
        !self.amid && self.header_len == 0
    }

    /// Takes the next part off `input`; `None` when it takes more bytes to say what it is.
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

/// The content of a record that has 8 bytes, gathered from pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FixedContent {
    bytes: [u8; 8],
    len: usize,
}

impl FixedContent {
    /// Begins with a record that says it has so many bytes.
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
