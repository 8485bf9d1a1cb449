use std::net::Ipv6Addr;

use memchr::memchr;

use crate::head::{Method, Version};
use crate::refusal::Refusal;

/// A split request target (RFC 9112 §3.2).
pub(crate) struct Target<'a> {
    /// The authority of an absolute-form target.
    pub(crate) authority: Option<&'a str>,
    /// Path and query, or `*`; empty for an absolute-form target that ends with its authority.
    pub(crate) origin: &'a str,
}

pub(crate) fn split<'a>(
    method: &str,
    kind: Method,
    target: &'a str,
) -> Result<Target<'a>, Refusal> {
    if kind == Method::Other && method == "CONNECT" {
        return Err(Refusal::Connect);
    }
    if memchr(b'#', target.as_bytes()).is_some() {
        return Err(Refusal::TargetForm);
    }
    if target.starts_with('/') {
        return Ok(Target { authority: None, origin: target });
    }
    if target == "*" {
        return match kind {
            Method::Options => Ok(Target { authority: None, origin: target }),
            _ => Err(Refusal::Asterisk),
        };
    }
    absolute_form(target)
}

fn absolute_form(target: &str) -> Result<Target<'_>, Refusal> {
    let (scheme, rest) = target.split_once("://").ok_or(Refusal::TargetForm)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(Refusal::TargetForm);
    }
    let (authority, origin) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if origin.starts_with('?') || !is_authority(authority.as_bytes()) {
        return Err(Refusal::TargetForm);
    }
    Ok(Target { authority: Some(authority), origin })
}

/// The authority of a request, from its target and its Host header, which must agree (RFC 9112
/// §3.2).
pub(crate) fn host<'a>(
    authority: Option<&'a str>,
    header: Option<&'a [u8]>,
    version: Version,
) -> Result<&'a [u8], Refusal> {
    match header {
        None if version == Version::Http11 => return Err(Refusal::NoHost),
        None | Some(b"") if version == Version::Http10 => {
            return Ok(authority.unwrap_or_default().as_bytes());
        }
        Some(host) if !is_authority(host) => return Err(Refusal::HostForm),
        _ => {}
    }
    let host = header.unwrap_or_default();
    match authority {
        Some(authority) if !authority.as_bytes().eq_ignore_ascii_case(host) => {
            Err(Refusal::HostDisagrees)
        }
        _ => Ok(host),
    }
}

/// Whether `bytes` is `host[:port]` with a non-empty host (RFC 3986 §3.2.2 and §3.2.3; RFC 9110
/// §4.2.1).
pub(crate) fn is_authority(bytes: &[u8]) -> bool {
    if let [b'[', inner @ ..] = bytes {
        return memchr(b']', inner)
            .is_some_and(|end| is_ip_literal(&inner[..end]) && is_port(&inner[end + 1..]));
    }
    let (host, port) = bytes.split_at(memchr(b':', bytes).unwrap_or(bytes.len()));
    !host.is_empty() && is_reg_name(host) && is_port(port)
}

/// Empty, or a colon and a decimal number below 65536; RFC 3986 §3.2.3 allows the number to be
/// missing.
fn is_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] => {
            digits.len() <= 5
                && digits.iter().all(u8::is_ascii_digit)
                && digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')) < 65536
        }
        _ => false,
    }
}

/// The inside of brackets: an IPv6 address. IPvFuture of RFC 3986 is not in use.
fn is_ip_literal(inner: &[u8]) -> bool {
    std::str::from_utf8(inner).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// `reg-name` of RFC 3986 §3.2.2: unreserved, percent-encoded and sub-delims.
fn is_reg_name(name: &[u8]) -> bool {
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        let fine = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => true,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => true,
            b'%' => {
                let mut hex = || bytes.next().is_some_and(u8::is_ascii_hexdigit);
                hex() && hex()
            }
            _ => false,
        };
        if !fine {
            return false;
        }
    }
    true
}
