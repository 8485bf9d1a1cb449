//! What is made of the `X-Forwarded-For` and `Forwarded` headers, beside an independent model:
//! lines joined to one list and taken apart from the left, and the grammar of RFC 7239 as regular
//! expressions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use maitred_rules::forwarded::{ForwardedHeader, MAX_HOPS, Trust};
use maitred_rules::networks::{Networks, parse_network};
use proptest::prelude::*;
use regex::bytes::Regex;

/// Cases of each property.
const CASES: u32 = 4096;

#[derive(Debug, PartialEq, Eq)]
enum Client {
    /// There is no header: the proxy asks for itself.
    Proxy,
    At(IpAddr),
    Unknown,
}

fn is_trusted(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.octets()[0] == 0xfd,
    }
}

fn ours(field: &str, lines: &[Vec<u8>]) -> Client {
    let networks = ["10.0.0.0/8", "fd00::/8"].map(|text| parse_network(text).expect("a network"));
    let trust = Trust {
        proxies: Networks::new(&networks),
        fields: vec![ForwardedHeader::named(field).expect("a field")],
        is_recursive: true,
    };
    match trust.resolve(Ipv4Addr::new(10, 0, 0, 1).into(), |_| lines.iter().map(Vec::as_slice)) {
        Ok(heard) => heard.client.map_or(Client::Proxy, |client| Client::At(client.ip())),
        Err(_) => Client::Unknown,
    }
}

/// The client by the hops of all lines, from the first proxy's word to the last one's.
fn walked(hops: Vec<Option<IpAddr>>) -> Client {
    for (at, hop) in hops.iter().rev().enumerate() {
        match hop {
            _ if at == MAX_HOPS => return Client::Unknown,
            None => return Client::Unknown,
            Some(address) if !is_trusted(*address) => return Client::At(*address),
            Some(_) => {}
        }
    }
    match hops.first() {
        Some(Some(first)) => Client::At(*first),
        _ => Client::Unknown,
    }
}

static FORMS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    [
        r"(?-u)^([0-9.]+)(?::([0-9]+))?$",
        r"(?-u)^([0-9a-fA-F:.]+)()$",
        r"(?-u)^\[([0-9a-fA-F:.]+)\](?::([0-9]+))?$",
    ]
    .map(|form| Regex::new(form).expect("an expression"))
});

/// An address by a regular expression that takes its port and its brackets off.
fn address(text: &[u8]) -> Option<IpAddr> {
    for (at, form) in FORMS.iter().enumerate() {
        let Some(found) = form.captures(text) else {
            continue;
        };
        let port = found.get(2).map_or(&b""[..], |port| port.as_bytes());
        let port = String::from_utf8_lossy(port);
        if !port.is_empty() && port.parse::<u16>().is_err() {
            continue;
        }
        let ip = String::from_utf8_lossy(&found[1]).into_owned();
        let parsed = match at {
            0 => ip.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            _ => ip.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        };
        if let Some(ip) = parsed {
            return Some(ip.to_canonical());
        }
    }
    None
}

fn of_addresses(lines: &[Vec<u8>]) -> Client {
    if lines.is_empty() {
        return Client::Proxy;
    }
    let joined = lines.join(&b","[..]);
    let elements = joined.split(|byte| *byte == b',').map(|element| {
        let from = element.iter().position(|byte| !b" \t".contains(byte));
        let to = element.iter().rposition(|byte| !b" \t".contains(byte));
        from.zip(to).map_or(&b""[..], |(from, to)| &element[from..=to])
    });
    walked(elements.filter(|element| !element.is_empty()).map(address).collect())
}

const TOKEN: &str = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+";
const QUOTED: &str = r#""(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*""#;

static LINE: LazyLock<Regex> = LazyLock::new(|| {
    let pair = format!("{TOKEN}=(?:{TOKEN}|{QUOTED})");
    let element = format!("(?:{pair})?(?:[ \t]*;[ \t]*(?:{pair})?)*");
    let whole = format!(r"(?-u)^[ \t]*{element}[ \t]*(?:,[ \t]*{element}[ \t]*)*$");
    Regex::new(&whole).expect("an expression")
});

static PARTS: LazyLock<Regex> = LazyLock::new(|| {
    let parts = format!("(?-u)(?:(?<name>{TOKEN})=(?<value>{TOKEN}|{QUOTED}))|(?<end>,)");
    Regex::new(&parts).expect("an expression")
});

static NODE: LazyLock<Regex> = LazyLock::new(|| {
    let form = r"(?-u)^([0-9.]+|\[[0-9a-fA-F:.]+\])(?::([0-9]{1,5}|_[A-Za-z0-9._-]+))?$";
    Regex::new(form).expect("an expression")
});

/// The hops of a line; none if RFC 7239 does not know such lines.
fn forwarded_line(line: &[u8]) -> Option<Vec<Option<IpAddr>>> {
    if !LINE.is_match(line) {
        return None;
    }
    // Separators in quotes are part of a pair, which is matched first.
    let mut elements: Vec<Vec<(Vec<u8>, Vec<u8>)>> = vec![Vec::new()];
    for part in PARTS.captures_iter(line) {
        if part.name("end").is_some() {
            elements.push(Vec::new());
            continue;
        }
        let pairs = elements.last_mut().expect("there is one");
        let name = part["name"].to_ascii_lowercase();
        if pairs.iter().any(|(other, _)| *other == name) {
            return None;
        }
        pairs.push((name, unquoted(&part["value"])));
    }
    elements.retain(|pairs| !pairs.is_empty());
    if elements.len() > MAX_HOPS {
        return None;
    }
    let hop = |pairs: &Vec<(Vec<u8>, Vec<u8>)>| {
        let node = pairs.iter().find(|(name, _)| name == b"for");
        node.and_then(|(_, node)| forwarded_node(node))
    };
    Some(elements.iter().map(hop).collect())
}

static PAIR: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s-u)\\(.)").expect("an expression"));

fn unquoted(value: &[u8]) -> Vec<u8> {
    let Some(inside) = value.strip_prefix(b"\"") else {
        return value.to_vec();
    };
    let inside = &inside[..inside.len() - 1];
    PAIR.replace_all(inside, &b"$1"[..]).into_owned()
}

fn forwarded_node(node: &[u8]) -> Option<IpAddr> {
    let found = NODE.captures(node)?;
    if let Some(port) = found.get(2).filter(|port| port.as_bytes()[0] != b'_') {
        String::from_utf8_lossy(port.as_bytes()).parse::<u16>().ok()?;
    }
    let name = String::from_utf8_lossy(&found[1]).into_owned();
    match name.strip_prefix('[') {
        Some(ip) => Some(ip.trim_end_matches(']').parse::<Ipv6Addr>().ok()?.to_canonical()),
        None => name.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

fn of_forwarded(lines: &[Vec<u8>]) -> Client {
    if lines.is_empty() {
        return Client::Proxy;
    }
    let line = |line: &Vec<u8>| forwarded_line(line).unwrap_or_else(|| vec![None]);
    walked(lines.iter().flat_map(line).collect())
}

/// Pieces that lines are made of: those that mean something, and any bytes.
fn lines(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let known = proptest::sample::select(pieces).prop_map(|piece| piece.as_bytes().to_vec());
    let odd = proptest::collection::vec(any::<u8>(), 0..3);
    let piece = prop_oneof![12 => known, 1 => odd];
    let line = proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    proptest::collection::vec(line, 0..4)
}

const ADDRESSES: &[&str] = &[
    "10.0.0.2",
    "10.1.2.3",
    "fd00::1",
    "203.0.113.9",
    "2001:db8::9",
    "[2001:db8::9]",
    ":80",
    ":99999",
    "[fd00::2]:80",
    "::ffff:10.0.0.9",
    ",",
    ", ",
    ", ",
    ",",
    " ",
    "\t",
    "\"",
    "unknown",
    "_x",
    "%1",
    ";",
];

const PAIRS: &[&str] = &[
    "for=10.0.0.2",
    "for=203.0.113.9",
    "for=\"[fd00::1]\"",
    "For=\"[2001:db8::9]:80\"",
    "for=unknown",
    "for=_x",
    "for=\"203.0.113.7:_p\"",
    "proto=http",
    "host=\"a,b;c\"",
    "by=\"_\\\"x\"",
    "for=",
    "x",
    ",",
    ", ",
    ", ",
    ";",
    ";",
    "; ",
    " ",
    "\"",
    "\\",
    "=",
    "\t",
];

/// Elements as proxies write them, so that many lines are well formed.
fn proxied() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let node = proptest::sample::select(vec![
        "for=10.0.0.2",
        "for=203.0.113.9",
        "for=\"[fd00::1]\";proto=http",
        "by=_x;for=198.51.100.4",
        "For=\"10.0.0.3:80\"",
        "for=\"198.51.100.9:_p\"",
        "for=unknown",
        "proto=https",
        "host=\"a\\\",b\";for=10.0.0.8",
        "",
    ]);
    let line = proptest::collection::vec(node, 0..6).prop_map(|nodes| nodes.join(", ").into());
    proptest::collection::vec(line, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn addresses_mean_what_the_model_says(lines in lines(ADDRESSES)) {
        prop_assert_eq!(ours("X-Forwarded-For", &lines), of_addresses(&lines));
    }

    #[test]
    fn forwarded_means_what_the_model_says(lines in prop_oneof![lines(PAIRS), proxied()]) {
        prop_assert_eq!(ours("Forwarded", &lines), of_forwarded(&lines));
    }

    #[test]
    fn nothing_that_a_client_writes_changes_the_address_that_its_proxy_appends(
        written in proptest::collection::vec(any::<u8>(), 0..40),
        known in lines(ADDRESSES),
    ) {
        for written in [written, known.concat()] {
            let appended = [&written[..], b", 203.0.113.9"].concat();
            let expected = Client::At(Ipv4Addr::new(203, 0, 113, 9).into());
            prop_assert_eq!(ours("X-Forwarded-For", &[appended]), expected);
        }
    }

    #[test]
    fn a_client_behind_forwarded_is_who_its_proxy_says_or_unknown(
        written in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            lines(PAIRS).prop_map(|lines| lines.concat()),
        ],
        appended in proptest::sample::select(vec![
            ", for=203.0.113.9",
            ", for=\"203.0.113.9:80\"",
            ", for=203.0.113.9;proto=https;host=\"a:80\"",
        ]),
    ) {
        let line = [&written[..], appended.as_bytes()].concat();
        let client = ours("Forwarded", &[line]);
        let named = Client::At(Ipv4Addr::new(203, 0, 113, 9).into());
        prop_assert!(client == named || client == Client::Unknown, "{:?}", client);
        let lines = [written, appended.as_bytes()[2..].to_vec()];
        prop_assert_eq!(ours("Forwarded", &lines), named);
    }
}

/// A socket's address is only looked at for its IP: the port is the proxy's word.
#[test]
fn the_port_is_what_the_proxy_says() {
    let trust = Trust {
        proxies: Networks::new(&[parse_network("10.0.0.0/8").expect("a network")]),
        fields: vec![ForwardedHeader::named("Forwarded").expect("a field")],
        is_recursive: true,
    };
    let line = b"for=\"203.0.113.9:4711\"".to_vec();
    let heard = trust.resolve(Ipv4Addr::new(10, 0, 0, 1).into(), |_| [&line[..]].into_iter());
    let expected: Option<SocketAddr> = "203.0.113.9:4711".parse().ok();
    assert_eq!(heard.expect("it is read").client, expected);
}
