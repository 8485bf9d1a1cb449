use memchr::memchr3;

use crate::ascii::is_token;
use crate::head::Version;
use crate::reason::reason_phrase;

/// The interim response to `Expect: 100-continue` (RFC 9110 §15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The CRLF after a chunk's data (RFC 9112 §7.1).
pub const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk and an empty trailer section (RFC 9112 §7.1).
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The framing of a response body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// By Content-Length. The response to HEAD has the header and no body.
    Length(u64),
    /// By the chunked transfer coding; HTTP/1.1 only.
    Chunked,
    /// By closing the connection.
    UntilClose,
    /// By END_STREAM; HTTP/2 only.
    EndOfStream,
    /// No body and no framing header.
    NoBody,
}

/// The parts of a response header in addition to the application's headers.
#[derive(Clone, Copy, Debug)]
pub struct ResponseStart<'a> {
    /// The version of the request. The response is always HTTP/1.1 (RFC 9110 §6.2).
    pub version: Version,
    /// The status, 100 to 999; other values are written as 500.
    pub status: u16,
    /// The reason phrase; if none or invalid: the standard one.
    pub reason: Option<&'a [u8]>,
    /// The framing of the body.
    pub framing: ResponseFraming,
    /// Whether the connection persists (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// The time as an IMF-fixdate (RFC 9110 §5.6.7), for a response without a Date header.
    pub date: &'a [u8; 29],
}

/// The framing of a response with this status to a request of this version; `length` is the length
/// of the body in bytes, if it is known.
pub const fn response_framing(
    version: Version,
    head_request: bool,
    status: u16,
    length: Option<u64>,
) -> ResponseFraming {
    match (length, version) {
        _ if !carries_body(false, status) => ResponseFraming::NoBody,
        (Some(length), _) => ResponseFraming::Length(length),
        (None, _) if head_request => ResponseFraming::NoBody,
        (None, Version::Http11) => ResponseFraming::Chunked,
        (None, Version::Http10) => ResponseFraming::UntilClose,
        (None, Version::Http2) => ResponseFraming::EndOfStream,
    }
}

/// Whether a response with this status has a body (RFC 9112 §6.3, rule 1).
pub const fn carries_body(head_request: bool, status: u16) -> bool {
    !head_request && !matches!(status, 100..=199 | 204 | 304)
}

/// Whether a header is hop-by-hop (RFC 9110 §7.6.1) or part of the framing: the application's
/// header is dropped, and the server writes its own.
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    const NAMES: [&str; 8] = [
        "te",
        "trailer",
        "upgrade",
        "connection",
        "keep-alive",
        "content-length",
        "proxy-connection",
        "transfer-encoding",
    ];
    matches!(name.len(), 2 | 7 | 10 | 14 | 16 | 17)
        && NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Appends a response header section to `out`: status line, the application's headers except those
/// of [`is_hop_by_hop`], then Server, Date, Content-Length or Transfer-Encoding, and Connection as
/// needed.
///
/// Returns the number of invalid `headers` that were left out: with a name that is no token, or
/// with CR, LF or NUL in the value.
pub fn write_head<'h>(
    out: &mut Vec<u8>,
    response: &ResponseStart<'_>,
    headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
) -> usize {
    write_status_line(out, response.status, response.reason);
    let mut unfit = 0;
    let (mut dated, mut served) = (false, false);
    for (name, value) in headers {
        if is_hop_by_hop(name) {
            continue;
        }
        if !is_token(name) || memchr3(b'\r', b'\n', 0, value).is_some() {
            unfit += 1;
            continue;
        }
        dated |= name.eq_ignore_ascii_case(b"date");
        served |= name.eq_ignore_ascii_case(b"server");
        out.reserve(name.len() + value.len() + 4);
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    if !matches!(response.status, 100..=199) {
        if !served {
            out.extend_from_slice(b"Server: maitred\r\n");
        }
        if !dated {
            out.extend_from_slice(b"Date: ");
            out.extend_from_slice(response.date);
            out.extend_from_slice(b"\r\n");
        }
        write_framing(out, response);
        write_connection(out, response);
    }
    out.extend_from_slice(b"\r\n");
    unfit
}

fn write_status_line(out: &mut Vec<u8>, status: u16, reason: Option<&[u8]>) {
    let status = if (100..=999).contains(&status) { status } else { 500 };
    let standard = reason_phrase(status).as_bytes();
    let fits = |reason: &&[u8]| memchr3(b'\r', b'\n', 0, reason).is_none();
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason.filter(fits).unwrap_or(standard));
    out.extend_from_slice(b"\r\n");
}

fn write_framing(out: &mut Vec<u8>, response: &ResponseStart<'_>) {
    match response.framing {
        // RFC 9110 §8.6 and RFC 9112 §6.1: none in a 204.
        _ if response.status == 204 => {}
        ResponseFraming::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        ResponseFraming::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        ResponseFraming::UntilClose | ResponseFraming::EndOfStream | ResponseFraming::NoBody => {}
    }
}

fn write_connection(out: &mut Vec<u8>, response: &ResponseStart<'_>) {
    let stays = response.keep_alive && response.framing != ResponseFraming::UntilClose;
    match (stays, response.version) {
        (true, Version::Http11) | (_, Version::Http2) => {}
        (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
    }
}

/// Appends the chunk-size line of a chunk of `len` bytes (RFC 9112 §7.1); the data and
/// [`CHUNK_END`] follow. Nothing for an empty chunk, which would end the body.
pub fn write_chunk_header(out: &mut Vec<u8>, len: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    if len == 0 {
        return;
    }
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4);
    for place in (0..digits).rev() {
        out.push(DIGITS[len >> (place * 4) & 0xf]);
    }
    out.extend_from_slice(b"\r\n");
}
