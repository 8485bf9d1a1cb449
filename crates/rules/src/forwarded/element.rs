//! The syntax of one `Forwarded` line (RFC 7239 §4 and §6).
//!
//! `OWS` around a semicolon is accepted, too, as in other headers (RFC 9110 §5.6.6): some proxies
//! send it, and it is unambiguous. Everything else is strict.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Fault, MAX_HOPS, trimmed};

/// The element of one proxy.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Element<'l> {
    /// `for`: the proxy's client.
    pub node: Option<Cow<'l, [u8]>>,
    /// `proto`.
    pub proto: Option<Cow<'l, [u8]>>,
    /// `host`.
    pub host: Option<Cow<'l, [u8]>>,
}

/// The elements of a line, in order. Empty ones do not count (RFC 9110 §5.6.1.2).
///
/// # Errors
/// When the line is malformed, or has too many.
pub fn elements(line: &[u8]) -> Result<Vec<Element<'_>>, Fault> {
    let mut elements = Vec::new();
    let mut rest = line;
    loop {
        let (element, behind) = element(rest)?;
        if let Some(element) = element {
            if elements.len() == MAX_HOPS {
                return Err(Fault::TooLong);
            }
            elements.push(element);
        }
        match behind {
            [b',', behind @ ..] => rest = behind,
            _ => return Ok(elements),
        }
    }
}

/// Parses up to a comma that ends the element, or up to the end of the line.
fn element(line: &[u8]) -> Result<(Option<Element<'_>>, &[u8]), Fault> {
    let mut element = Element::default();
    // A name may occur once (§4).
    let mut names: Vec<&[u8]> = Vec::new();
    let mut rest = trimmed(line);
    loop {
        if !matches!(rest, [] | [b',' | b';', ..]) {
            let (name, behind) = token(rest)?;
            let [b'=', behind @ ..] = behind else {
                return Err(Fault::Malformed);
            };
            let (value, behind) = value(behind)?;
            let is_known = |other: &&[u8]| other.eq_ignore_ascii_case(name);
            if names.iter().any(is_known) || names.len() == MAX_PAIRS {
                return Err(Fault::Malformed);
            }
            names.push(name);
            element.set(name, value);
            rest = behind;
        }
        rest = trimmed(rest);
        match rest {
            [b';', behind @ ..] => rest = trimmed(behind),
            [] | [b',', ..] => return Ok(((!names.is_empty()).then_some(element), rest)),
            _ => return Err(Fault::Malformed),
        }
    }
}

/// Most pairs of one element. RFC 7239 defines four.
const MAX_PAIRS: usize = 16;

impl<'l> Element<'l> {
    fn set(&mut self, name: &[u8], value: Cow<'l, [u8]>) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        match () {
            () if is("for") => self.node = Some(value),
            () if is("proto") => self.proto = Some(value),
            () if is("host") => self.host = Some(value),
            () => {}
        }
    }
}

fn token(text: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let end = text.iter().position(|byte| !is_token_byte(*byte));
    match text.split_at(end.unwrap_or(text.len())) {
        ([], _) => Err(Fault::Malformed),
        split => Ok(split),
    }
}

/// `tchar` of RFC 9110 §5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A token or a quoted string, the latter without its quotes.
fn value(text: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), Fault> {
    let [b'"', inside @ ..] = text else {
        let (token, behind) = token(text)?;
        return Ok((Cow::Borrowed(token), behind));
    };
    let mut value = Cow::Borrowed(&inside[..0]);
    let mut rest = inside;
    loop {
        match rest {
            [b'"', behind @ ..] => return Ok((value, behind)),
            [b'\\', byte, behind @ ..] if is_quotable(*byte) => {
                value.to_mut().push(*byte);
                rest = behind;
            }
            [byte, behind @ ..] if is_quotable(*byte) && *byte != b'\\' => {
                match &mut value {
                    Cow::Borrowed(so_far) => *so_far = &inside[..so_far.len() + 1],
                    Cow::Owned(so_far) => so_far.push(*byte),
                }
                rest = behind;
            }
            _ => return Err(Fault::Malformed),
        }
    }
}

/// The bytes that are allowed after a backslash (RFC 9110 §5.6.4) and, except `"` and the
/// backslash, inside quotes.
fn is_quotable(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// The address of a node (§6): IPv6 is in brackets, and a port may follow.
///
/// # Errors
/// When it is hidden, or no address.
pub fn address(node: &[u8]) -> Result<SocketAddr, Fault> {
    let text = std::str::from_utf8(node).map_err(|_| Fault::NoAddress)?;
    let name_end =
        if text.starts_with('[') { text.find(']').map(|at| at + 1) } else { text.find(':') };
    let (name, rest) = text.split_at(name_end.unwrap_or(text.len()));
    let port = match rest.strip_prefix(':') {
        Some(port) => number(port)?,
        None if rest.is_empty() => 0,
        None => return Err(Fault::NoAddress),
    };
    let inside = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let ip: IpAddr = match inside {
        Some(inside) => {
            let ip = inside.parse::<Ipv6Addr>();
            ip.map_err(|_| Fault::NoAddress)?.into()
        }
        None if name.eq_ignore_ascii_case("unknown") => return Err(Fault::Hidden),
        None if is_obfuscated(name) => return Err(Fault::Hidden),
        None => name.parse::<Ipv4Addr>().map_err(|_| Fault::NoAddress)?.into(),
    };
    Ok(SocketAddr::new(ip.to_canonical(), port))
}

/// A port (§6), 0 if it is obfuscated.
fn number(port: &str) -> Result<u16, Fault> {
    let is_number = (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
    if is_number {
        port.parse().map_err(|_| Fault::NoAddress)
    } else if is_obfuscated(port) {
        Ok(0)
    } else {
        Err(Fault::NoAddress)
    }
}

/// `obfnode` and `obfport` of §6.3.
fn is_obfuscated(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let rest = text.strip_prefix('_');
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(good))
}
