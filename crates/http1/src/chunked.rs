use crate::ascii::{is_token_byte, is_value_byte};
use crate::refusal::Refusal;

/// Maximum bytes of chunk extensions in one body (RFC 9112 §7.1.1). They have no use, so a body
/// full of extensions is an attack.
pub const MAX_EXTENSION_BYTES: u32 = 16 << 10;

/// Maximum bytes of the trailer section of a body (RFC 9112 §7.1.2).
pub const MAX_TRAILER_BYTES: u32 = 8 << 10;

/// Most digits of a chunk size; leading zeros count.
const MAX_SIZE_DIGITS: u8 = 16;

/// Decodes a chunked request body (RFC 9112 §7.1) incrementally. Extensions and trailers are
/// checked and dropped.
///
/// ```text
/// Size ─;─▶ Extension ─CR─▶ SizeEnd ─LF─▶ Data ─▶ DataCr ─▶ DataLf ─▶ Size
///                              │ size 0
///                              ▼
///                           Trailer ─▶ TrailerName ─:─▶ TrailerValue ─CR─▶ TrailerEnd ─▶ Trailer
///                              │ CR
///                              ▼
///                             Last ─LF─▶ Complete
/// ```
#[derive(Clone, Debug)]
pub struct ChunkedBody {
    state: State,
    /// Remaining bytes of the current chunk.
    size: u64,
    digits: u8,
    extension_bytes: u32,
    trailer_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    /// White space after the size, before an extension only.
    SizeSpace,
    Extension,
    SizeEnd,
    Data,
    DataCr,
    DataLf,
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerEnd,
    Last,
    Complete,
}

/// The result of [`ChunkedBody::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The next bytes of the body; empty if the input contains no more of it.
    pub data: &'a [u8],
    /// Consumed bytes of the input, `data` included.
    pub consumed: usize,
    /// Whether the body has ended; the rest of the input belongs to the next request.
    pub complete: bool,
}

impl Default for ChunkedBody {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkedBody {
    /// A decoder at the start of a body.
    pub const fn new() -> Self {
        Self { state: State::Size, size: 0, digits: 0, extension_bytes: 0, trailer_bytes: 0 }
    }

    /// Decodes up to the end of the next piece of data, or of the input. Call it again with the
    /// rest until all is consumed or the body is complete.
    ///
    /// # Errors
    /// The framing error. The connection must be closed after the response.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, Refusal> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            match self.state {
                State::Complete => break,
                State::Data => {
                    let rest = &input[at..];
                    let len = usize::try_from(self.size).map_or(rest.len(), |n| n.min(rest.len()));
                    self.size -= len as u64;
                    if self.size == 0 {
                        self.state = State::DataCr;
                    }
                    let data = &rest[..len];
                    return Ok(Decoded { data, consumed: at + len, complete: false });
                }
                _ => self.state = self.after(byte)?,
            }
            at += 1;
        }
        Ok(Decoded { data: &[], consumed: at, complete: self.is_complete() })
    }

    /// Whether the body has ended.
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// The state after a byte that is not data.
    fn after(&mut self, byte: u8) -> Result<State, Refusal> {
        match (self.state, byte) {
            (State::Size, _) => self.after_in_size(byte),
            (State::SizeSpace, b' ' | b'\t') => self.extension(State::SizeSpace),
            (State::SizeSpace, b';') => self.extension(State::Extension),
            (State::SizeSpace, _) => Err(Refusal::ChunkSize),
            (State::Extension, b'\r') => Ok(State::SizeEnd),
            (State::Extension, b'\n') => Err(Refusal::ChunkLineEnd),
            (State::Extension, _) if is_value_byte(byte) => self.extension(State::Extension),
            (State::Extension, _) => Err(Refusal::ChunkExtensionForm),
            (State::SizeEnd, b'\n') if self.size == 0 => Ok(State::Trailer),
            (State::SizeEnd, b'\n') => Ok(State::Data),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => {
                self.digits = 0;
                Ok(State::Size)
            }
            (State::DataCr | State::DataLf, _) => Err(Refusal::ChunkEnd),
            (State::Last, b'\n') => Ok(State::Complete),
            (State::SizeEnd | State::Last, _) => Err(Refusal::ChunkLineEnd),
            _ => self.after_in_trailer(byte),
        }
    }

    fn after_in_size(&mut self, byte: u8) -> Result<State, Refusal> {
        if let Some(digit) = char::from(byte).to_digit(16) {
            self.digits += 1;
            self.size = self.size << 4 | u64::from(digit);
            let fits = self.digits <= MAX_SIZE_DIGITS && self.size <= i64::MAX as u64;
            return if fits { Ok(State::Size) } else { Err(Refusal::ChunkTooLarge) };
        }
        match byte {
            _ if self.digits == 0 => Err(Refusal::ChunkSize),
            b'\r' => Ok(State::SizeEnd),
            b'\n' => Err(Refusal::ChunkLineEnd),
            b';' => self.extension(State::Extension),
            b' ' | b'\t' => self.extension(State::SizeSpace),
            _ => Err(Refusal::ChunkSize),
        }
    }

    fn after_in_trailer(&mut self, byte: u8) -> Result<State, Refusal> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > MAX_TRAILER_BYTES {
            return Err(Refusal::TrailersTooLarge);
        }
        match (self.state, byte) {
            (State::Trailer, b'\r') => Ok(State::Last),
            (State::Trailer | State::TrailerName, _) if is_token_byte(byte) => {
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerEnd),
            (State::TrailerValue, _) if is_value_byte(byte) => Ok(State::TrailerValue),
            (State::TrailerEnd, b'\n') => Ok(State::Trailer),
            (State::TrailerEnd, _) | (_, b'\n') => Err(Refusal::ChunkLineEnd),
            _ => Err(Refusal::TrailerForm),
        }
    }

    fn extension(&mut self, next: State) -> Result<State, Refusal> {
        self.extension_bytes += 1;
        if self.extension_bytes > MAX_EXTENSION_BYTES {
            return Err(Refusal::ChunkExtensions);
        }
        Ok(next)
    }
}
