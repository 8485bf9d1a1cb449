//! The header of a CGI response (RFC 3875 §6), at the start of STDOUT.

use std::fmt;

use memchr::{memchr, memchr2};

/// Initial capacity for a header, in bytes.
const FIRST_ROOM_BYTES: usize = 1024;

/// Most bytes of an invalid line that an error quotes.
const MAX_EXCERPT_BYTES: usize = 60;

/// Bounds of a response header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes up to and including the empty line. At most 4 GiB are ever accepted.
    pub max_bytes: usize,
    /// Header lines, Status included.
    pub max_headers: usize,
}

/// nginx bounds the same by `fastcgi_buffer_size`: 4 or 8 KiB by default, and 256 KiB where that is
/// raised for large cookies.
impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 256 << 10, max_headers: 16_384 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start + self.len as usize).unwrap_or_default()
    }
}

/// The checked header of a script's response: names are tokens, values have no CR, LF or NUL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgiHeaders {
    bytes: Vec<u8>,
    status: Option<u16>,
    reason: Span,
    has_location: bool,
    /// Names and values.
    headers: Vec<(Span, Span)>,
}

impl CgiHeaders {
    /// The status, 200 to 999. Without a Status line it is 302 if there is a Location, else 200
    /// (RFC 3875 §6.2).
    pub fn status(&self) -> u16 {
        self.status.unwrap_or(if self.has_location { 302 } else { 200 })
    }

    /// The reason phrase of the Status line, if it has one.
    pub fn reason(&self) -> Option<&[u8]> {
        Some(self.reason.of(&self.bytes)).filter(|reason| !reason.is_empty())
    }

    /// All headers except Status, in order; values without surrounding white space.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
        self.headers.iter().map(|(name, value)| (name.of(&self.bytes), value.of(&self.bytes)))
    }

    /// The values of all headers called `name`, case-insensitively.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.headers()
            .filter(move |(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// The value of the first header called `name`, case-insensitively.
    pub fn header<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        self.values(name).next()
    }
}

/// Reads a response header incrementally. Lines may end in LF or CRLF.
#[derive(Clone, Debug)]
pub struct HeadReader {
    limits: Limits,
    head: CgiHeaders,
    /// The last Content-Type.
    content_type: Option<(Span, Span)>,
    line_start: usize,
    lines: usize,
}

impl Default for HeadReader {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl HeadReader {
    /// A reader at the start of a response.
    pub fn new(limits: Limits) -> Self {
        Self { limits, head: CgiHeaders::default(), content_type: None, line_start: 0, lines: 0 }
    }

    /// Reads `input`. When the header is complete, returns it and the number of bytes of `input`
    /// that belong to it: the rest is body. The reader is then ready for the next response.
    ///
    /// # Errors
    /// The fault and its line.
    pub fn read(&mut self, input: &[u8]) -> Result<Option<(CgiHeaders, usize)>, HeadError> {
        let mut at = 0;
        while let Some(line_feed) = memchr(b'\n', &input[at..]) {
            self.keep(&input[at..=at + line_feed])?;
            at += line_feed + 1;
            if self.take_line()? {
                let next = Self::new(self.limits);
                return Ok(Some((std::mem::replace(self, next).head, at)));
            }
        }
        self.keep(&input[at..])?;
        Ok(None)
    }

    /// The error if the response ends before its header is complete.
    pub fn ended_early(&self) -> HeadError {
        match self.head.bytes.len() {
            0 => self.error(Fault::Empty),
            _ => self.error(Fault::Unfinished),
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), HeadError> {
        let kept = &mut self.head.bytes;
        let max_bytes = self.limits.max_bytes.min(u32::MAX as usize);
        if bytes.len() > max_bytes - kept.len() {
            let (fault, line) = (Fault::TooLarge(max_bytes), self.lines + 1);
            return Err(HeadError { fault, line, excerpt: String::new() });
        }
        if kept.is_empty() {
            kept.reserve(FIRST_ROOM_BYTES.min(max_bytes));
        }
        kept.extend_from_slice(bytes);
        Ok(())
    }

    /// Reads the line that has just been completed; true if it is the empty line at the end of the
    /// header.
    fn take_line(&mut self) -> Result<bool, HeadError> {
        let line = &self.head.bytes[self.line_start..self.head.bytes.len() - 1];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            self.head.headers.extend(self.content_type.take());
            return Ok(true);
        }
        let end = self.line_start + line.len();
        let colon = match name_len(line) {
            Ok(len) => Some(self.line_start + len),
            Err(_) if is_left_out(line) => None,
            Err(fault) => return Err(self.error(fault)),
        };
        if self.lines == self.limits.max_headers {
            return Err(self.error(Fault::TooManyHeaders(self.limits.max_headers)));
        }
        if let Some(colon) = colon {
            self.take_header(colon, end).map_err(|fault| self.error(fault))?;
        }
        self.line_start = self.head.bytes.len();
        self.lines += 1;
        Ok(false)
    }

    fn take_header(&mut self, colon: usize, end: usize) -> Result<(), Fault> {
        let head = &mut self.head;
        let name = &head.bytes[self.line_start..colon];
        let value = trim(&head.bytes, colon + 1, end);
        if name.eq_ignore_ascii_case(b"Status") {
            if head.status.is_some() {
                return Err(Fault::SecondStatus);
            }
            head.status = Some(status_of(value.of(&head.bytes)).ok_or(Fault::Status)?);
            let value_end = (value.start + value.len) as usize;
            head.reason = trim(&head.bytes, value.start as usize + 3, value_end);
            return Ok(());
        }
        head.has_location |= name.eq_ignore_ascii_case(b"Location") && value.len > 0;
        let is_type = name.eq_ignore_ascii_case(b"Content-Type");
        let name = Span { start: self.line_start as u32, len: name.len() as u32 };
        match is_type {
            // As with nginx, the last one counts, and an empty one is none.
            true => self.content_type = (value.len > 0).then_some((name, value)),
            false => head.headers.push((name, value)),
        }
        Ok(())
    }

    #[cold]
    fn error(&self, fault: Fault) -> HeadError {
        let line = self.head.bytes.get(self.line_start..).unwrap_or_default();
        let excerpt = &line[..line.len().min(MAX_EXCERPT_BYTES)];
        HeadError {
            fault,
            line: self.lines + 1,
            excerpt: excerpt.trim_ascii_end().escape_ascii().to_string(),
        }
    }
}

/// The length of the name in a valid header line.
fn name_len(line: &[u8]) -> Result<usize, Fault> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Fault::FoldedLine);
    }
    let colon = memchr(b':', line).ok_or(Fault::NoColon)?;
    if colon == 0 || !line[..colon].iter().all(|&byte| is_token_byte(byte)) {
        return Err(Fault::Name);
    }
    if memchr2(b'\r', 0, &line[colon..]).is_some() {
        return Err(Fault::Value);
    }
    Ok(colon)
}

/// Whether a line is left out of the response: the word alone of `header('word')` in PHP, or a name
/// with bytes above 0x7f. Anything else without a valid name is no header at all.
fn is_left_out(line: &[u8]) -> bool {
    let colon = memchr(b':', line);
    let name = &line[..colon.unwrap_or(line.len())];
    let is_word = |&byte: &u8| is_token_byte(byte) || byte > 0x7f;
    let has_value = colon.is_none_or(|colon| memchr2(b'\r', 0, &line[colon..]).is_none());
    !name.is_empty() && name.iter().all(is_word) && has_value && name_len(line).is_err()
}

/// `bytes[start..end]` without the spaces and tabs at both ends.
fn trim(bytes: &[u8], mut start: usize, mut end: usize) -> Span {
    while start < end && matches!(bytes[start], b' ' | b'\t') {
        start += 1;
    }
    while start < end && matches!(bytes[end - 1], b' ' | b'\t') {
        end -= 1;
    }
    Span { start: start as u32, len: end.saturating_sub(start) as u32 }
}

/// The number at the start of a Status (RFC 3875 §6.3.3). A script's response cannot have an
/// interim status.
fn status_of(value: &[u8]) -> Option<u16> {
    let (digits, rest) = value.split_at_checked(3)?;
    let number: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let ends = matches!(rest.first(), None | Some(b' ' | b'\t'));
    (ends && digits[0].is_ascii_digit() && number >= 200).then_some(number)
}

/// Whether `byte` is a token character (RFC 9110 §5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Why a response header is invalid. The client gets a 502; this goes to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadError {
    /// The fault.
    pub fault: Fault,
    /// The line, counted from 1.
    pub line: usize,
    /// The start of the line, control characters escaped; empty if the header is too large.
    pub excerpt: String,
}

/// A fault in a response header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no response at all.
    Empty,
    /// The response ends before the empty line of its header.
    Unfinished,
    /// The header has more than this many bytes.
    TooLarge(usize),
    /// The header section has more than this many headers.
    TooManyHeaders(usize),
    /// A line starts with white space.
    FoldedLine,
    /// A line has no colon.
    NoColon,
    /// A name is empty, or no token.
    Name,
    /// A value has CR or NUL in it.
    Value,
    /// Status is not a number from 200 to 999, with an optional reason.
    Status,
    /// There is a second Status (RFC 3875 §6.3: no header may be repeated).
    SecondStatus,
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, line, excerpt } = self;
        match fault {
            Fault::Empty => {
                return f.write_str("The script ended without a response, not even headers.");
            }
            Fault::TooLarge(max) => {
                return write!(f, "The script's headers have more than {max} bytes.");
            }
            Fault::TooManyHeaders(max) => {
                return write!(f, "The script sent more than {max} headers.");
            }
            Fault::Unfinished => write!(f, "The script's response ends within its headers")?,
            Fault::FoldedLine => write!(f, "A header of the script starts with white space")?,
            Fault::NoColon => write!(f, "A header of the script has no colon")?,
            Fault::Name => write!(f, "A header of the script has no valid name")?,
            Fault::Value => write!(f, "A header of the script has a CR or NUL")?,
            Fault::Status => write!(f, "The script's Status is not a number from 200 to 999")?,
            Fault::SecondStatus => write!(f, "The script sent a second Status")?,
        }
        write!(f, " (line {line}: \"{excerpt}\"); expected `Name: value`, then an empty line.")
    }
}

impl std::error::Error for HeadError {}
