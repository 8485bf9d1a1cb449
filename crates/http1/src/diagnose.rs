use memchr::memchr;

use crate::ascii::{is_token, is_value_byte};
use crate::refusal::Refusal;

/// The part of the HTTP/2 connection preface that looks like an HTTP/1 header (RFC 9113 §3.4).
pub const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// The reason why httparse has refused a header. Off the fast path: it parses the header again,
/// line by line.
#[cold]
pub(crate) fn diagnose(head: &[u8]) -> Refusal {
    if head == HTTP2_PREFACE {
        return Refusal::Http2;
    }
    let mut lines = head.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r"));
    if let Some(refusal) = request_line(lines.next().flatten().unwrap_or_default()) {
        return refusal;
    }
    lines.flatten().take_while(|line| !line.is_empty()).find_map(header_line).unwrap_or(
        // Not reached as long as the two parsers agree; refusing is right when they do not.
        Refusal::RequestLine,
    )
}

fn request_line(line: &[u8]) -> Option<Refusal> {
    let mut words = line.split(|&byte| byte == b' ');
    if !words.next().is_some_and(is_token) {
        return Some(Refusal::MethodToken);
    }
    let target = words.next().unwrap_or_default();
    if target.is_empty() || !target.iter().all(|&byte| is_value_byte(byte) && byte != b'\t') {
        return Some(Refusal::RequestLine);
    }
    if std::str::from_utf8(target).is_err() {
        return Some(Refusal::TargetForm);
    }
    match (words.next(), words.next()) {
        (Some(b"HTTP/1.1" | b"HTTP/1.0"), None) => None,
        (Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]), None)
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Some(Refusal::VersionUnknown)
        }
        _ => Some(Refusal::RequestLine),
    }
}

fn header_line(line: &[u8]) -> Option<Refusal> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Some(Refusal::FoldedLine);
    }
    let Some(colon) = memchr(b':', line) else {
        return Some(Refusal::NoColon);
    };
    match &line[..colon] {
        [] => Some(Refusal::EmptyName),
        [.., b' ' | b'\t'] => Some(Refusal::SpaceBeforeColon),
        name if !is_token(name) => Some(Refusal::HeaderName),
        _ if !line[colon + 1..].iter().all(|&byte| is_value_byte(byte)) => {
            Some(Refusal::HeaderValue)
        }
        _ => None,
    }
}
