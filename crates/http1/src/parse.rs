use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use memchr::{memchr, memchr_iter};

use crate::ascii::is_token_byte;
use crate::diagnose::diagnose;
use crate::framing_headers::FramingHeaders;
use crate::head::{Head, HeaderSpans, Method, Span, Version};
use crate::refusal::Refusal;
use crate::target;

/// Maximum number of headers of a request, whatever [`Limits::max_headers`] is: they fit on the
/// stack (8 KiB).
pub const MAX_HEADERS: usize = 256;

/// Longest method of a request, in bytes: the longest registered one (RFC 4437) has 17, and log
/// lines and spans have the whole method.
pub const MAX_METHOD_BYTES: usize = 64;

/// Empty lines skipped before a request line; RFC 9112 §2.2 requires at least one.
const MAX_EMPTY_LINES: u8 = 2;

/// Bounds of a request header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes from the request line to the empty line, both included. At most 4 GiB are ever
    /// accepted.
    pub max_head_bytes: usize,
    /// Header lines; at most [`MAX_HEADERS`] are ever accepted.
    pub max_headers: usize,
    /// Bytes of the request target. RFC 9112 §3 recommends at least 8000 for the whole request
    /// line.
    pub max_target_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_head_bytes: 64 << 10, max_headers: MAX_HEADERS, max_target_bytes: 16 << 10 }
    }
}

/// Splits request headers off a connection's buffer, one after the other.
///
/// It remembers how far it has scanned, so that a header that arrives byte by byte costs no more
/// than one in a single read. Between two calls bytes may only be appended to the buffer.
#[derive(Clone, Debug, Default)]
pub struct HeadParser {
    /// Bytes of the buffer already scanned.
    scanned: usize,
    /// The start of the unfinished line.
    line_start: usize,
    /// Complete lines.
    lines: usize,
    empty_lines: u8,
}

impl HeadParser {
    /// A parser at the start of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Splits the next header off `buf`; `None` when its end has not arrived.
    ///
    /// # Errors
    /// The reason of the refusal. The connection must be closed after the response.
    pub fn parse(&mut self, buf: &mut BytesMut, limits: &Limits) -> Result<Option<Head>, Refusal> {
        if !self.skip_empty_lines(buf)? {
            return Ok(None);
        }
        let Some(end) = self.find_end(buf, limits)? else {
            return Ok(None);
        };
        let headers = self.lines - 1;
        *self = Self::default();
        read_head(buf.split_to(end).freeze(), headers, limits).map(Some)
    }

    /// Whether a request line starts at the start of the buffer.
    fn skip_empty_lines(&mut self, buf: &mut BytesMut) -> Result<bool, Refusal> {
        loop {
            match **buf {
                [] => return Ok(false),
                [first, ..] if is_token_byte(first) => return Ok(true),
                [b'\n', ..] => return Err(Refusal::BareLineFeed),
                [b'\r', ..] if self.empty_lines == MAX_EMPTY_LINES => {
                    return Err(Refusal::RequestLine);
                }
                [b'\r'] => return Ok(false),
                [b'\r', b'\n', ..] => {
                    buf.advance(2);
                    self.empty_lines += 1;
                }
                [b'\r', ..] => return Err(Refusal::RequestLine),
                _ => return Err(Refusal::MethodToken),
            }
        }
    }

    /// The length of the header, once its empty line has arrived.
    fn find_end(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, Refusal> {
        let max_bytes = limits.max_head_bytes.min(u32::MAX as usize);
        let max_lines = 1 + limits.max_headers.min(MAX_HEADERS);
        let seen = &buf[..buf.len().min(max_bytes)];
        for offset in memchr_iter(b'\n', seen.get(self.scanned..).unwrap_or_default()) {
            let line_feed = self.scanned + offset;
            if line_feed == 0 || seen[line_feed - 1] != b'\r' {
                return Err(Refusal::BareLineFeed);
            }
            if line_feed == self.line_start + 1 {
                return Ok(Some(line_feed + 1));
            }
            self.line_start = line_feed + 1;
            self.lines += 1;
            if self.lines > max_lines {
                return Err(Refusal::TooManyHeaders);
            }
        }
        self.scanned = seen.len();
        match (seen.len() == max_bytes, self.lines) {
            (false, _) => Ok(None),
            (true, 0) => Err(Refusal::TargetTooLong),
            (true, _) => Err(Refusal::HeadTooLarge),
        }
    }
}

/// Parses one whole header section with `headers` lines after the request line.
fn read_head(bytes: Bytes, headers: usize, limits: &Limits) -> Result<Head, Refusal> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(&bytes, &mut slots[..headers.min(MAX_HEADERS)]) {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
        Ok(_) => return Err(Refusal::RequestLine),
        Err(_) => return Err(diagnose(&bytes)),
    }
    let method = request.method.unwrap_or_default();
    let version = if request.version == Some(1) { Version::Http11 } else { Version::Http10 };
    if method.len() > MAX_METHOD_BYTES {
        return Err(Refusal::MethodTooLong);
    }
    let kind = Method::of(method);
    let raw_target = request.path.unwrap_or_default();
    if raw_target.len() > limits.max_target_bytes {
        return Err(Refusal::TargetTooLong);
    }
    let target = target::split(method, kind, raw_target)?;
    let fields = FramingHeaders::survey(request.headers)?;
    let host = target::host(target.authority, fields.host, version)?;
    let body = fields.framing(version)?;
    let span = |part: &[u8]| span_in(&bytes, part);
    let spans = |header: &httparse::Header<'_>| HeaderSpans {
        name: span(header.name.as_bytes()),
        value: span(header.value),
    };
    let head = Head {
        kind,
        method: span(method.as_bytes()),
        target: span(target.origin.as_bytes()),
        path_len: match (memchr(b'?', target.origin.as_bytes()), target.origin.len()) {
            (Some(at), _) => at as u32,
            (None, 0) => 1,
            (None, len) => len as u32,
        },
        version,
        host: span(host),
        headers: request.headers.iter().map(spans).collect(),
        sent_tags: Span::default(),
        upgrade: fields.upgrade && version == Version::Http11,
        body,
        keep_alive: fields.keep_alive(version),
        expects_continue: fields.expects_continue(version, body),
        bytes: Bytes::new(),
    };
    Ok(Head { bytes, ..head })
}

/// The range of `part`, a subslice of `whole`, in it. Any for an empty part.
fn span_in(whole: &[u8], part: &[u8]) -> Span {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    if part.is_empty() {
        return Span::default();
    }
    Span { start: start as u32, len: part.len() as u32 }
}
