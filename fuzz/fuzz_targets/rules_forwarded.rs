//! What a proxy says of its client is an address, a scheme and a host, or nothing; and of a stranger
//! nothing is believed.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use maitred_rules::forwarded::{Field, Heard, Trust};
use maitred_rules::networks::{Networks, client_key, parse_network};

const FIELDS: [&str; 4] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "forwarded",
];

fuzz_target!(|input: &[u8]| {
    let proxies = ["10.0.0.0/8", "fd00::/8"].map(|text| parse_network(text).expect("a network"));
    let trust = Trust {
        proxies: Networks::new(&proxies),
        fields: FIELDS
            .iter()
            .filter_map(|name| Field::named(name))
            .collect(),
    };
    // Each line is a field: the first byte says which.
    let lines: Vec<(&str, &[u8])> = input
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let (which, value) = line.split_first()?;
            Some((FIELDS[usize::from(*which) % FIELDS.len()], value))
        })
        .collect();
    let hear = |peer: Ipv4Addr| {
        trust.hear(IpAddr::V4(peer), |name| {
            let name = name.to_owned();
            let named = move |(other, _): &&(&str, &[u8])| *other == name;
            lines.iter().filter(named).map(|(_, value)| *value)
        })
    };
    assert_eq!(hear(Ipv4Addr::new(192, 0, 2, 1)), Heard::default());
    let heard = hear(Ipv4Addr::new(10, 0, 0, 1));
    if let Some(host) = &heard.host {
        assert!(!host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(!host.contains(['/', '@', '\\', ',', '"']), "{host}");
    }
    if let Some(client) = heard.client {
        let _ = client_key(client.ip());
    }
    for (_, value) in &lines {
        let _ = parse_network(&String::from_utf8_lossy(value));
    }
});
