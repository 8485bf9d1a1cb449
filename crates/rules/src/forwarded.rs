//! Who a client is when a proxy that is trusted says so: `X-Forwarded-For` and its like, and
//! `Forwarded` (RFC 7239).

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::networks::Networks;

/// Most addresses of one field that are looked at, from its end.
const MAX_HOPS: usize = 64;

/// A header field by which a proxy speaks of its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Field {
    /// `X-Forwarded-For`, or another name with addresses in the same form (`CF-Connecting-IP`).
    Addresses(String),
    /// `X-Forwarded-Proto`: `http` or `https`.
    Proto,
    /// `X-Forwarded-Host`.
    Host,
    /// `Forwarded`: all of this in one field.
    Forwarded,
}

impl Field {
    /// The field of this name; none if it cannot be one.
    pub fn named(name: &str) -> Option<Field> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        match name {
            _ if is("x-forwarded-proto") => Some(Field::Proto),
            _ if is("x-forwarded-host") => Some(Field::Host),
            _ if is("forwarded") => Some(Field::Forwarded),
            _ if !name.is_empty() && name.bytes().all(plain) => {
                Some(Field::Addresses(name.to_ascii_lowercase()))
            }
            _ => None,
        }
    }
}

/// Which proxies are believed, and what they are believed by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// Their addresses.
    pub proxies: Networks,
    /// The fields that they set, or take away, on every request.
    pub fields: Vec<Field>,
}

/// What is known of a client once its proxy was heard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heard {
    /// Its address; port 0 where none was said.
    pub client: Option<SocketAddr>,
    /// Whether it speaks TLS with the proxy.
    pub is_https: Option<bool>,
    /// The host it asked for.
    pub host: Option<String>,
}

impl Trust {
    /// Whether nothing is believed, so that there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.proxies.is_empty()
    }

    /// What `peer` says of its client, by `values`: all values of the field with a name in lower
    /// case, in their order. Nothing if it is not to be believed.
    pub fn hear<'h, V: Iterator<Item = &'h [u8]>>(
        &'h self,
        peer: IpAddr,
        mut values: impl FnMut(&'h str) -> V,
    ) -> Heard {
        let mut heard = Heard::default();
        if !self.proxies.contain(peer) {
            return heard;
        }
        for field in &self.fields {
            match field {
                Field::Addresses(name) => {
                    let client = self.client(items(values(name)).rev().map(address));
                    heard.client = heard.client.or(client);
                }
                Field::Proto => {
                    let last = items(values("x-forwarded-proto")).next_back();
                    heard.is_https = heard.is_https.or(last.and_then(is_https));
                }
                Field::Host => {
                    let last = items(values("x-forwarded-host")).next_back();
                    heard.host = heard.host.take().or_else(|| last.and_then(host));
                }
                Field::Forwarded => self.forwarded(values("forwarded"), &mut heard),
            }
        }
        heard
    }

    /// The last address that is no trusted proxy's, from the end of the way; the first one if all
    /// are. What cannot be read ends the way there (nginx's `real_ip_recursive`).
    fn client(&self, way: impl Iterator<Item = Option<SocketAddr>>) -> Option<SocketAddr> {
        let mut client = None;
        for hop in way.take(MAX_HOPS) {
            let Some(hop) = hop else { break };
            client = Some(hop);
            if !self.proxies.contain(hop.ip()) {
                break;
            }
        }
        client
    }

    fn forwarded<'h>(&self, values: impl Iterator<Item = &'h [u8]>, heard: &mut Heard) {
        let elements: Vec<&str> = items(values).collect();
        let of = |element: &&'h str, name: &str| pair(element, name);
        let way = elements
            .iter()
            .rev()
            .map(|element| of(element, "for").and_then(address));
        heard.client = heard.client.or(self.client(way));
        // The last proxy is the one that is trusted; what it says stands last.
        if let Some(last) = elements.last() {
            heard.is_https = heard.is_https.or(of(last, "proto").and_then(is_https));
            heard.host = heard
                .host
                .take()
                .or_else(|| of(last, "host").and_then(host));
        }
    }
}

/// The members of a list that may be spread over several fields (RFC 9110 §5.6.1). A comma in
/// quotes is part of its member.
fn items<'h>(values: impl Iterator<Item = &'h [u8]>) -> std::vec::IntoIter<&'h str> {
    let mut items = Vec::new();
    for value in values {
        let Ok(text) = std::str::from_utf8(value) else {
            continue;
        };
        items.extend(split_unquoted(text, ',').map(str::trim));
    }
    items.retain(|item| !item.is_empty());
    items.into_iter()
}

fn split_unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        quoted ^= c == '"';
        c == separator && !quoted
    })
}

/// The value of a pair of a `Forwarded` element, without its quotes.
fn pair<'e>(element: &'e str, name: &str) -> Option<&'e str> {
    split_unquoted(element, ';').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        let value = value.trim();
        let unquoted = value
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        key.trim()
            .eq_ignore_ascii_case(name)
            .then_some(unquoted.unwrap_or(value))
    })
}

/// An address with or without a port; one of IPv6 with a port is in brackets.
fn address(text: &str) -> Option<SocketAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip.to_canonical(), 0));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(SocketAddr::new(address.ip().to_canonical(), address.port()));
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let ip: IpAddr = inner.parse().ok()?;
    Some(SocketAddr::new(ip.to_canonical(), 0))
}

fn is_https(text: &str) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case("https") => Some(true),
        _ if text.eq_ignore_ascii_case("http") => Some(false),
        _ => None,
    }
}

/// A host as `Host` may have it: nothing else gets past to where a host is trusted to be one.
fn host(text: &str) -> Option<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    (!text.is_empty() && text.len() <= 260 && text.bytes().all(good)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::parse_network;

    fn hear(fields: &[&str], headers: &[(&str, &str)], peer: &str) -> Heard {
        let trust = Trust {
            proxies: Networks::new(&[
                parse_network("10.0.0.0/8").unwrap(),
                parse_network("fd00::/8").unwrap(),
            ]),
            fields: fields
                .iter()
                .filter_map(|name| Field::named(name))
                .collect(),
        };
        trust.hear(peer.parse().unwrap(), |name| {
            let name = name.to_owned();
            let named = move |(other, _): &&(&str, &str)| name.eq_ignore_ascii_case(other);
            headers
                .iter()
                .filter(named)
                .map(|(_, value)| value.as_bytes())
        })
    }

    fn client(value: &str) -> Option<String> {
        let headers = [("X-Forwarded-For", value)];
        let heard = hear(&["X-Forwarded-For"], &headers, "10.0.0.1");
        heard.client.map(|client| client.to_string())
    }

    #[test]
    fn the_last_address_that_is_no_proxys_is_the_clients() {
        assert_eq!(client("192.0.2.1").as_deref(), Some("192.0.2.1:0"));
        assert_eq!(
            client("198.51.100.9, 192.0.2.1, 10.0.0.2").as_deref(),
            Some("192.0.2.1:0")
        );
        assert_eq!(client("10.0.0.3, 10.0.0.2").as_deref(), Some("10.0.0.3:0"));
        assert_eq!(client("192.0.2.1:4711").as_deref(), Some("192.0.2.1:4711"));
        assert_eq!(client("2001:db8::1").as_deref(), Some("[2001:db8::1]:0"));
        assert_eq!(
            client("[2001:db8::1]:80, fd00::1").as_deref(),
            Some("[2001:db8::1]:80")
        );
        assert_eq!(
            client("192.0.2.1, unknown, 10.0.0.2").as_deref(),
            Some("10.0.0.2:0")
        );
        assert_eq!(client("[::ffff:192.0.2.1]").as_deref(), Some("192.0.2.1:0"));
        assert_eq!(client("rubbish"), None);
    }

    #[test]
    fn who_is_not_trusted_is_not_believed() {
        let headers = [
            ("X-Forwarded-For", "192.0.2.1"),
            ("X-Forwarded-Proto", "https"),
        ];
        let fields = ["X-Forwarded-For", "X-Forwarded-Proto"];
        assert_eq!(hear(&fields, &headers, "192.0.2.99"), Heard::default());
        let heard = hear(&fields, &headers, "::ffff:10.1.1.1");
        assert_eq!(heard.is_https, Some(true));
        assert_eq!(
            hear(&["X-Forwarded-Proto"], &headers, "10.0.0.1").client,
            None
        );
    }

    #[test]
    fn forwarded_says_all_in_one_field() {
        let value =
            "for=198.51.100.1;host=evil, For=\"[2001:db8::7]:99\";proto=https;host=a.example";
        let heard = hear(&["Forwarded"], &[("Forwarded", value)], "10.0.0.1");
        assert_eq!(heard.client, "[2001:db8::7]:99".parse().ok());
        assert_eq!(
            (heard.is_https, heard.host.as_deref()),
            (Some(true), Some("a.example"))
        );
        let heard = hear(
            &["Forwarded"],
            &[("Forwarded", "for=_hidden;proto=http")],
            "10.0.0.1",
        );
        assert_eq!((heard.client, heard.is_https), (None, Some(false)));
    }

    #[test]
    fn a_host_that_is_none_is_left_out() {
        let headers = [("X-Forwarded-Host", "a.example/evil")];
        assert_eq!(hear(&["X-Forwarded-Host"], &headers, "10.0.0.1").host, None);
    }
}
