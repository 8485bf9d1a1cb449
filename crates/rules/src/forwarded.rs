//! The client's address behind trusted proxies: `X-Forwarded-For` and similar headers, and
//! `Forwarded` (RFC 7239).
//!
//! A proxy appends to its client's header, on the same line or on a new line. Lines and their
//! elements are therefore parsed from the end, each on its own: a client cannot influence how the
//! end is parsed. If the address from a trusted proxy cannot be parsed, the client is unknown; the
//! proxy's own address is never used instead.

mod element;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::networks::Networks;
use element::Element;

/// Most addresses of one header that are read, from its end, and most elements of one `Forwarded`
/// line.
pub const MAX_HOPS: usize = 64;

/// Longest host in bytes: a name (RFC 1035 §2.3.4) with its port.
const MAX_HOST_BYTES: usize = 260;

/// A header in which a proxy describes its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForwardedHeader {
    /// The `X-Forwarded-For` header, or another name with addresses in the same format
    /// (`CF-Connecting-IP`).
    Addresses(String),
    /// `X-Forwarded-Proto`: `http` or `https`.
    Proto,
    /// The `X-Forwarded-Host` header.
    Host,
    /// The `Forwarded` header: all of it in one header.
    Forwarded,
}

impl ForwardedHeader {
    /// The header with this name; `None` if the name is invalid.
    pub fn named(name: &str) -> Option<ForwardedHeader> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        match name {
            _ if is("x-forwarded-proto") => Some(ForwardedHeader::Proto),
            _ if is("x-forwarded-host") => Some(ForwardedHeader::Host),
            _ if is("forwarded") => Some(ForwardedHeader::Forwarded),
            _ if !name.is_empty() && name.bytes().all(plain) => {
                Some(ForwardedHeader::Addresses(name.to_ascii_lowercase()))
            }
            _ => None,
        }
    }
}

/// The trusted proxies, and the headers that they set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// Their addresses.
    pub proxies: Networks,
    /// The headers that they set or remove on every request.
    pub fields: Vec<ForwardedHeader>,
    /// Whether a trusted address in a header is that of a further proxy. If not, the last address
    /// is the client's.
    pub is_recursive: bool,
}

/// The client as described by its proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForwardedClient {
    /// Its address, with port 0 if none is given; `None` if there is no address header, so that the
    /// request is the proxy's own.
    pub client: Option<SocketAddr>,
    /// Whether it uses TLS to the proxy.
    pub is_https: Option<bool>,
    /// The requested host.
    pub host: Option<String>,
}

/// A trusted proxy sends an address header that cannot be parsed: the client is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownClient<'h> {
    /// The name of the header.
    pub field: &'h str,
    /// What is wrong with it.
    pub why: Fault,
}

impl fmt::Display for UnknownClient<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownClient { field, why } = self;
        write!(out, "{field} {}", why.words())
    }
}

/// What is wrong with an address header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It has no element.
    Empty,
    /// A relevant element is no address.
    NoAddress,
    /// The proxy does not know or does not disclose the address (RFC 7239 §6.2, §6.3).
    Hidden,
    /// A line violates the syntax of RFC 7239 §4.
    Malformed,
    /// It lists more proxies than are plausible.
    TooLong,
}

impl Fault {
    /// The fault, as the end of a sentence that begins with the header's name.
    pub fn words(self) -> &'static str {
        match self {
            Fault::Empty => "is empty",
            Fault::NoAddress => "has something other than an address where the client's is due",
            Fault::Hidden => "says that the client's address is unknown or not disclosed",
            Fault::Malformed => "is not formed as RFC 7239 says",
            Fault::TooLong => "names more than 64 proxies",
        }
    }
}

impl Trust {
    /// Whether no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.proxies.is_empty()
    }

    /// The description of `peer`'s client; `values` returns all values of the header with a
    /// lower-case name, in order. Empty if `peer` is not trusted. The first address header that is
    /// present determines the address, whether it can be parsed or not.
    ///
    /// # Errors
    /// When an address header is present, but the client's address cannot be parsed.
    pub fn resolve<'h, V: DoubleEndedIterator<Item = &'h [u8]>>(
        &'h self,
        peer: IpAddr,
        mut values: impl FnMut(&'h str) -> V,
    ) -> Result<ForwardedClient, UnknownClient<'h>> {
        let mut heard = ForwardedClient::default();
        if !self.proxies.contain(peer) {
            return Ok(heard);
        }
        for field in &self.fields {
            match field {
                ForwardedHeader::Addresses(name) if heard.client.is_none() => {
                    let unknown = |why| UnknownClient { field: name, why };
                    heard.client = self.client(addresses(values(name))).map_err(unknown)?;
                }
                ForwardedHeader::Addresses(_) => {}
                ForwardedHeader::Proto => {
                    let last = elements(values("x-forwarded-proto")).next();
                    heard.is_https = heard.is_https.or(last.and_then(is_https));
                }
                ForwardedHeader::Host => {
                    let last = elements(values("x-forwarded-host")).next();
                    heard.host = heard.host.take().or_else(|| last.and_then(host));
                }
                ForwardedHeader::Forwarded => self.forwarded(&mut values, &mut heard)?,
            }
        }
        Ok(heard)
    }

    /// The last address that is no trusted proxy's, from the end of the path; the first one if all
    /// are trusted (nginx's `real_ip_recursive on`), or the last one. `None` if there is no header.
    fn client(
        &self,
        way: impl Iterator<Item = Result<SocketAddr, Fault>>,
    ) -> Result<Option<SocketAddr>, Fault> {
        let mut client = None;
        for (before, hop) in way.enumerate() {
            if before == MAX_HOPS {
                return Err(Fault::TooLong);
            }
            let hop = hop?;
            client = Some(hop);
            if !self.is_recursive || !self.proxies.contain(hop.ip()) {
                break;
            }
        }
        Ok(client)
    }

    fn forwarded<'h, V: DoubleEndedIterator<Item = &'h [u8]>>(
        &self,
        values: &mut impl FnMut(&'h str) -> V,
        heard: &mut ForwardedClient,
    ) -> Result<(), UnknownClient<'static>> {
        const NAME: &str = "forwarded";
        if heard.client.is_none() {
            let way = or_empty(values(NAME), forwarded_hops);
            heard.client = self.client(way).map_err(|why| UnknownClient { field: NAME, why })?;
        }
        // The last proxy is the trusted one; its element is the last.
        let mut lines = values(NAME).rev().map(element::elements);
        let is_said = |line: &Result<Vec<Element<'h>>, Fault>| {
            !line.as_ref().is_ok_and(|elements| elements.is_empty())
        };
        let last = lines.find(is_said).and_then(|line| line.ok()?.pop());
        if let Some(last) = last {
            let (proto, name) = (last.proto.as_deref(), last.host.as_deref());
            heard.is_https = heard.is_https.or(proto.and_then(is_https));
            heard.host = heard.host.take().or_else(|| name.and_then(host));
        }
        Ok(())
    }
}

/// The addresses of the hops in address lines, from the end.
fn addresses<'h>(
    lines: impl DoubleEndedIterator<Item = &'h [u8]>,
) -> impl Iterator<Item = Result<SocketAddr, Fault>> {
    or_empty(lines, |line| line_elements(line).map(|text| address(text).ok_or(Fault::NoAddress)))
}

/// The addresses of the hops in one `Forwarded` line, from the end.
fn forwarded_hops(line: &[u8]) -> impl Iterator<Item = Result<SocketAddr, Fault>> {
    let (elements, fault) = match element::elements(line) {
        Ok(elements) => (elements, None),
        Err(fault) => (Vec::new(), Some(Err(fault))),
    };
    let hop = |element: Element<'_>| match element.node {
        Some(node) => element::address(&node),
        None => Err(Fault::Hidden),
    };
    fault.into_iter().chain(elements.into_iter().rev().map(hop))
}

/// The hops of all lines, from the last line; [`Fault::Empty`] if there are lines without hops.
fn or_empty<'h, I: Iterator<Item = Result<SocketAddr, Fault>>>(
    lines: impl DoubleEndedIterator<Item = &'h [u8]>,
    hops: impl FnMut(&'h [u8]) -> I,
) -> impl Iterator<Item = Result<SocketAddr, Fault>> {
    let mut lines = lines.rev().peekable();
    let is_there = lines.peek().is_some();
    let mut all = lines.flat_map(hops).peekable();
    let empty = (is_there && all.peek().is_none()).then_some(Err(Fault::Empty));
    all.chain(empty)
}

/// The elements of a list over several lines, from the last. Empty ones do not count (RFC 9110
/// §5.6.1.2).
fn elements<'h>(
    lines: impl DoubleEndedIterator<Item = &'h [u8]>,
) -> impl Iterator<Item = &'h [u8]> {
    lines.rev().flat_map(line_elements)
}

fn line_elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let all = line.rsplit(|byte| *byte == b',').map(trimmed);
    all.filter(|element| !element.is_empty())
}

/// Without surrounding white space (RFC 9110 §5.6.3).
fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// An address with an optional port; IPv6 with a port is in brackets. A zone (RFC 4007) is only
/// valid on the proxy's machine.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if text.contains('%') {
        return None;
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip.to_canonical(), 0));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(SocketAddr::new(address.ip().to_canonical(), address.port()));
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let ip: std::net::Ipv6Addr = inner.parse().ok()?;
    Some(SocketAddr::new(ip.to_canonical(), 0))
}

fn is_https(text: &[u8]) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case(b"https") => Some(true),
        _ if text.eq_ignore_ascii_case(b"http") => Some(false),
        _ => None,
    }
}

/// A host in the syntax of the `Host` header: the value is trusted later on.
fn host(text: &[u8]) -> Option<String> {
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(byte);
    let is_host = !text.is_empty() && text.len() <= MAX_HOST_BYTES && text.iter().all(good);
    is_host.then(|| String::from_utf8_lossy(text).into_owned())
}
