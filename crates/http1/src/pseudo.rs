use memchr::memchr;

use crate::ascii::is_value;
use crate::framing_headers::{content_length, once};
use crate::head::{Framing, Head, HeaderSpans, Method, Span, Version};
use crate::parse::{Limits, MAX_HEADERS, MAX_METHOD_BYTES};
use crate::refusal::Refusal;
use crate::target;

/// The pseudo-headers of an HTTP/2 request (RFC 9113 §8.3.1).
#[derive(Clone, Copy, Debug)]
pub struct Pseudo<'a> {
    /// `:method`.
    pub method: &'a str,
    /// `:path`.
    pub path: &'a str,
    /// `:authority`.
    pub authority: Option<&'a str>,
}

/// Initial capacity for a header, in bytes.
const USUAL_BYTES: usize = 512;
/// Length of values that are compared with earlier headers, in bytes: HPACK repeats one in a byte.
const LONG_BYTES: usize = 128;
/// Number of earlier headers that are compared.
const COMPARED_HEADERS: usize = 32;

impl Head {
    /// The header section of an HTTP/2 request from its headers (RFC 9113 §8.3), each with a name
    /// in lower case. `is_all`: there is no body. The framing layer has already refused
    /// connection-specific headers (§8.2.2) and header sections beyond [`Limits::max_head_bytes`].
    ///
    /// # Errors
    /// The reason of the refusal. The connection can be used further.
    pub fn of_fields<'a>(
        pseudo: &Pseudo<'a>,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        is_all: bool,
        limits: &Limits,
    ) -> Result<Head, Refusal> {
        if pseudo.method.len() > MAX_METHOD_BYTES {
            return Err(Refusal::MethodTooLong);
        }
        let (kind, path) = (Method::of(pseudo.method), pseudo.path);
        if path.len() > limits.max_target_bytes {
            return Err(Refusal::TargetTooLong);
        }
        if target::split(pseudo.method, kind, path)?.authority.is_some() {
            // §8.3.1: `:path` is a path, never a URL.
            return Err(Refusal::TargetForm);
        }
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        let method = put(&mut bytes, pseudo.method.as_bytes());
        let target = put(&mut bytes, path.as_bytes());
        let mut found = DecisiveHeaders::default();
        let mut headers = Vec::with_capacity(fields.size_hint().0);
        for (name, value) in fields {
            if headers.len() == limits.max_headers.min(MAX_HEADERS) {
                return Err(Refusal::TooManyHeaders);
            }
            found.take(name, value)?;
            let name = match repeated(&headers, &bytes, name, |header| header.name) {
                Some(span) => span,
                None => put(&mut bytes, name),
            };
            let value = match repeated(&headers, &bytes, value, |header| header.value) {
                Some(span) => span,
                None => put(&mut bytes, value),
            };
            headers.push(HeaderSpans { name, value });
        }
        let host = put(&mut bytes, found.authority(pseudo.authority)?);
        give_back_unused(&mut bytes);
        let body = match (found.length, is_all) {
            (Some(length), _) => Framing::Length(content_length(length)?),
            (None, true) => Framing::None,
            (None, false) => Framing::Chunked,
        };
        Ok(Head {
            bytes: bytes.into(),
            kind,
            method,
            target,
            path_len: memchr(b'?', path.as_bytes()).unwrap_or(path.len()) as u32,
            version: Version::Http2,
            host,
            headers,
            sent_tags: Span::default(),
            upgrade: false,
            body,
            keep_alive: true,
            expects_continue: found.continues && !is_all,
        })
    }
}

/// The range of a long name or value that an earlier header has already: a client that repeats an
/// entry of HPACK's table sends one byte for it, and must not cause a copy each time.
fn repeated(
    headers: &[HeaderSpans],
    bytes: &[u8],
    part: &[u8],
    of: impl Fn(&HeaderSpans) -> Span,
) -> Option<Span> {
    if part.len() < LONG_BYTES {
        return None;
    }
    let spans = headers.iter().rev().take(COMPARED_HEADERS).map(of);
    let mut same_length = spans.filter(|span| span.len as usize == part.len());
    same_length.find(|span| span.of(bytes) == part)
}

/// What most requests leave unused is not worth another allocation.
fn give_back_unused(bytes: &mut Vec<u8>) {
    if bytes.capacity() - bytes.len() > USUAL_BYTES {
        bytes.shrink_to_fit();
    }
}

fn put(bytes: &mut Vec<u8>, part: &[u8]) -> Span {
    let start = bytes.len() as u32;
    bytes.extend_from_slice(part);
    Span { start, len: part.len() as u32 }
}

/// The headers that decide about host and body.
#[derive(Default)]
struct DecisiveHeaders<'a> {
    host: Option<&'a [u8]>,
    length: Option<&'a [u8]>,
    continues: bool,
}

impl<'a> DecisiveHeaders<'a> {
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Refusal> {
        if !is_value(value) {
            return Err(Refusal::HeaderValue);
        }
        match name {
            b"host" => once(&mut self.host, value, Refusal::SeveralHosts),
            b"content-length" => once(&mut self.length, value, Refusal::SeveralLengths),
            b"expect" if !value.eq_ignore_ascii_case(b"100-continue") => Err(Refusal::Expectation),
            b"expect" => {
                self.continues = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The authority of the request: `:authority`, or Host, which must agree (§8.3.1).
    fn authority(&self, pseudo: Option<&'a str>) -> Result<&'a [u8], Refusal> {
        let authority = match (pseudo.map(str::as_bytes), self.host) {
            (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
                return Err(Refusal::HostDisagrees);
            }
            (Some(authority), _) | (None, Some(authority)) => authority,
            (None, None) => return Err(Refusal::NoHost),
        };
        if target::is_authority(authority) { Ok(authority) } else { Err(Refusal::HostForm) }
    }
}
