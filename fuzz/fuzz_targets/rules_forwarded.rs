//! What a proxy says of its client is an address, a scheme and a host, or nothing; and of a
//! stranger nothing is believed.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use maitred_rules::forwarded::{ForwardedClient, ForwardedHeader, Trust};
use maitred_rules::networks::{Networks, client_key, parse_network};

const FIELDS: [&str; 4] = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];

fuzz_target!(|input: &[u8]| {
    let proxies = ["10.0.0.0/8", "fd00::/8"].map(|text| parse_network(text).expect("a network"));
    let trust = Trust {
        proxies: Networks::new(&proxies),
        fields: FIELDS.iter().filter_map(|name| ForwardedHeader::named(name)).collect(),
        is_recursive: true,
    };
    // Each line is a header: the first byte says which.
    let lines: Vec<(&str, &[u8])> = input
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let (which, value) = line.split_first()?;
            Some((FIELDS[usize::from(*which) % FIELDS.len()], value))
        })
        .collect();
    let hear = |peer: Ipv4Addr| {
        trust.resolve(IpAddr::V4(peer), |name| {
            let named = move |(other, _): &&(&str, &[u8])| *other == name;
            lines.iter().filter(named).map(|(_, value)| *value)
        })
    };
    assert_eq!(hear(Ipv4Addr::new(192, 0, 2, 1)), Ok(ForwardedClient::default()));
    let is_there = |field: &str| lines.iter().any(|(name, _)| *name == field);
    match hear(Ipv4Addr::new(10, 0, 0, 1)) {
        Ok(heard) => {
            if let Some(host) = &heard.host {
                assert!(!host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic()));
                assert!(!host.contains(['/', '@', '\\', ',', '"']), "{host}");
            }
            // There is a client exactly where a header names one.
            let is_named = is_there("x-forwarded-for") || is_there("forwarded");
            assert_eq!(heard.client.is_some(), is_named);
            if let Some(client) = heard.client {
                let _ = client_key(client.ip());
            }
        }
        Err(unknown) => assert!(is_there(unknown.field), "{unknown}"),
    }
    // What a proxy appends means the same, whatever its client has written.
    appended(&trust, &lines);
    for (_, value) in &lines {
        let _ = parse_network(&String::from_utf8_lossy(value));
    }
});

/// The trusted proxy appends its client's address to the last line, as nginx does, or in a line of
/// its own, as HAProxy does.
fn appended(trust: &Trust, lines: &[(&str, &[u8])]) {
    let client = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
    let proxy = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    for (field, own) in
        [("x-forwarded-for", &b"203.0.113.9"[..]), ("forwarded", b"for=203.0.113.9")]
    {
        let only = Trust {
            fields: ForwardedHeader::named(field).into_iter().collect(),
            proxies: trust.proxies.clone(),
            is_recursive: true,
        };
        let of = lines.iter().filter(|(name, _)| *name == field);
        let mut written: Vec<Vec<u8>> = of.map(|(_, value)| value.to_vec()).collect();
        let hear = |written: &[Vec<u8>]| {
            let heard = only.resolve(proxy, |_| written.iter().map(Vec::as_slice));
            heard.map(|heard| heard.client.map(|client| client.ip())).ok()
        };
        let mut joined = written.clone();
        written.push(own.to_vec());
        assert_eq!(hear(&written), Some(Some(client)));
        if let Some(last) = joined.last_mut() {
            last.extend_from_slice(b", ");
            last.extend_from_slice(own);
            let heard = hear(&joined);
            let is_strict = field == "forwarded" && heard.is_none();
            assert!(heard == Some(Some(client)) || is_strict, "{heard:?}");
        }
    }
}
