use super::*;
use crate::networks::parse_network;

/// What `peer` says, or the words for a client that is unknown.
fn resolve(
    fields: &[&str],
    headers: &[(&str, &[u8])],
    peer: &str,
) -> Result<ForwardedClient, String> {
    let trust = Trust {
        proxies: Networks::new(&[
            parse_network("10.0.0.0/8").unwrap(),
            parse_network("fd00::/8").unwrap(),
        ]),
        fields: fields.iter().filter_map(|name| ForwardedHeader::named(name)).collect(),
        is_recursive: true,
    };
    let heard = trust.resolve(peer.parse().unwrap(), |name| {
        let named = move |(other, _): &&(&str, &[u8])| name.eq_ignore_ascii_case(other);
        headers.iter().filter(named).map(|(_, value)| *value)
    });
    heard.map_err(|unknown| unknown.to_string())
}

/// Who the client is by these lines of a header: an address, `-` for the proxy itself, or `?`.
fn client(field: &str, lines: &[&[u8]]) -> String {
    let headers: Vec<(&str, &[u8])> = lines.iter().map(|line| (field, *line)).collect();
    match resolve(&[field], &headers, "10.0.0.1") {
        Ok(heard) => heard.client.map_or("-".to_owned(), |client| client.to_string()),
        Err(_) => "?".to_owned(),
    }
}

fn by_addresses(line: &[u8]) -> String {
    client("X-Forwarded-For", &[line])
}

fn by_forwarded(line: &[u8]) -> String {
    client("Forwarded", &[line])
}

#[test]
fn the_last_address_that_is_no_proxys_is_the_clients() {
    for (line, expected) in [
        ("192.0.2.1", "192.0.2.1:0"),
        ("198.51.100.9, 192.0.2.1, 10.0.0.2", "192.0.2.1:0"),
        ("198.51.100.9,192.0.2.1\t,10.0.0.2", "192.0.2.1:0"),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3:0"),
        ("192.0.2.1:4711", "192.0.2.1:4711"),
        ("2001:db8::1", "[2001:db8::1]:0"),
        ("[2001:db8::1]:80, fd00::1", "[2001:db8::1]:80"),
        ("[::ffff:192.0.2.1]", "192.0.2.1:0"),
        (",, 192.0.2.1, ,", "192.0.2.1:0"),
    ] {
        assert_eq!(by_addresses(line.as_bytes()), expected, "{line}");
    }
}

#[test]
fn without_recursion_the_last_address_is_the_clients_whatever_it_is() {
    let proxies = Networks::new(&[parse_network("0.0.0.0/0").unwrap()]);
    for (field, line, expected) in [
        ("X-Forwarded-For", "203.0.113.9, 192.0.2.1", Some("192.0.2.1:0")),
        ("X-Forwarded-For", "203.0.113.9", Some("203.0.113.9:0")),
        ("X-Forwarded-For", "203.0.113.9, unknown", None),
        ("Forwarded", "for=203.0.113.9, for=192.0.2.1", Some("192.0.2.1:0")),
    ] {
        let fields = vec![ForwardedHeader::named(field).unwrap()];
        let trust = Trust { proxies: proxies.clone(), fields, is_recursive: false };
        let peer = "10.0.0.1".parse().unwrap();
        let heard = trust.resolve(peer, |_| [line.as_bytes()].into_iter());
        let client = heard.ok().and_then(|heard| heard.client).map(|client| client.to_string());
        assert_eq!(client.as_deref(), expected, "{line}");
    }
}

#[test]
fn what_a_client_writes_in_front_does_not_change_what_its_proxy_appends() {
    for written in [&b"\""[..], b"\xff", b"x=\"", b"(", b"\\", b"unknown", b"10.0.0.5;x=\"", b","] {
        let line = [written, b", 203.0.113.9"].concat();
        assert_eq!(by_addresses(&line), "203.0.113.9:0", "{written:?}");
        let lines = [written, b"203.0.113.9"];
        assert_eq!(client("X-Forwarded-For", &lines), "203.0.113.9:0", "{written:?}");
        let lines = [written, b"for=203.0.113.9"];
        assert_eq!(client("Forwarded", &lines), "203.0.113.9:0", "{written:?}");
    }
}

#[test]
fn a_client_whose_address_cannot_be_read_is_unknown_and_never_the_proxy() {
    for line in [
        &b"\""[..],
        b"\xff",
        b"rubbish",
        b"unknown",
        b"_hidden",
        b"192.0.2.1 192.0.2.2",
        b"192.0.2.1:",
        b"192.0.2.1:99999",
        b"192.0.2.01",
        b"192.0.2.1/24",
        b"\"192.0.2.1\"",
        b"[192.0.2.1]",
        b"[192.0.2.1]:80",
        b"[2001:db8::1",
        b"2001:db8::1%eth0",
        b"[fe80::1%1]:80",
        b"",
        b" , ,",
        b"unix:",
        // A trusted proxy names nothing that can be read: it is not the client in its place.
        b"192.0.2.1, unknown, 10.0.0.2",
        b"192.0.2.1, \", 10.0.0.2",
    ] {
        assert_eq!(by_addresses(line), "?", "{}", line.escape_ascii());
    }
    let none = resolve(&["X-Forwarded-For"], &[], "10.0.0.1").unwrap();
    assert_eq!(none.client, None, "a proxy that names no client asks for itself");
}

#[test]
fn a_way_of_more_proxies_than_anybody_has_is_not_followed() {
    let way = |count: usize| vec!["10.0.0.2"; count].join(", ");
    assert_eq!(by_addresses(way(MAX_HOPS).as_bytes()), "10.0.0.2:0");
    assert_eq!(by_addresses(way(MAX_HOPS + 1).as_bytes()), "?");
    let written = format!("{}, 203.0.113.9", way(10_000));
    assert_eq!(by_addresses(written.as_bytes()), "203.0.113.9:0");
    let elements = |count: usize| vec!["for=203.0.113.9"; count].join(",");
    assert_eq!(by_forwarded(elements(MAX_HOPS).as_bytes()), "203.0.113.9:0");
    assert_eq!(by_forwarded(elements(MAX_HOPS + 1).as_bytes()), "?");
}

#[test]
fn the_first_field_that_is_there_decides() {
    let fields = ["CF-Connecting-IP", "X-Forwarded-For"];
    let both = |first: &'static [u8]| {
        let headers = [("X-Forwarded-For", &b"192.0.2.1"[..]), ("CF-Connecting-IP", first)];
        resolve(&fields, &headers, "10.0.0.1").map(|heard| heard.client.unwrap().to_string())
    };
    assert_eq!(both(b"192.0.2.2"), Ok("192.0.2.2:0".to_owned()));
    assert_eq!(
        both(b"\xff"),
        Err("cf-connecting-ip has something other than an address \
        where the client's is due"
            .to_owned())
    );
    let heard = resolve(&fields, &[("X-Forwarded-For", b"192.0.2.1")], "10.0.0.1").unwrap();
    assert_eq!(heard.client, "192.0.2.1:0".parse().ok());
}

#[test]
fn a_peer_that_is_not_trusted_is_not_believed() {
    let headers = [("X-Forwarded-For", &b"192.0.2.1"[..]), ("X-Forwarded-Proto", b"https")];
    let fields = ["X-Forwarded-For", "X-Forwarded-Proto"];
    assert_eq!(resolve(&fields, &headers, "192.0.2.99"), Ok(ForwardedClient::default()));
    let heard = resolve(&fields, &headers, "::ffff:10.1.1.1").unwrap();
    assert_eq!(heard.is_https, Some(true));
    let heard = resolve(&["X-Forwarded-Proto"], &headers, "10.0.0.1").unwrap();
    assert_eq!(heard.client, None);
    let rubbish = [("X-Forwarded-For", &b"\xff"[..])];
    assert_eq!(resolve(&fields, &rubbish, "192.0.2.99"), Ok(ForwardedClient::default()));
}

#[test]
fn forwarded_says_all_in_one_field() {
    let value = b"for=198.51.100.1;host=evil, For=\"[2001:db8::7]:99\";proto=https;host=a.example";
    let heard = resolve(&["Forwarded"], &[("Forwarded", value)], "10.0.0.1").unwrap();
    assert_eq!(heard.client, "[2001:db8::7]:99".parse().ok());
    assert_eq!((heard.is_https, heard.host.as_deref()), (Some(true), Some("a.example")));
    for (line, expected) in [
        ("for=192.0.2.1", "192.0.2.1:0"),
        ("FOR=\"192.0.2.1:4711\";by=_a; proto=http", "192.0.2.1:4711"),
        ("for=\"192.0.2.1:_port\"", "192.0.2.1:0"),
        ("for=\"192.0.2.\\1\"", "192.0.2.1:0"),
        ("for=\"[::ffff:192.0.2.1]\"", "192.0.2.1:0"),
        ("for=\"_a,for=10.0.0.9\", for=192.0.2.1", "192.0.2.1:0"),
        (";for=192.0.2.1;;", "192.0.2.1:0"),
        (", for=192.0.2.1 , ,", "192.0.2.1:0"),
        ("for=192.0.2.1, for=10.0.0.2;by=10.0.0.1", "192.0.2.1:0"),
    ] {
        assert_eq!(by_forwarded(line.as_bytes()), expected, "{line}");
    }
}

#[test]
fn forwarded_that_is_not_well_formed_names_no_client() {
    for line in [
        "for=10.0.0.5;x=\", for=203.0.113.9",
        "for=10.0.0.5;x=\", for=\"[2001:db8::9]:4711\"",
        "for=10.0.0.5;x=\"\\, for=\"[2001:db8::9]:4711\"",
        "for=10.0.0.5;x=\", for=203.0.113.9;by=\"_p\"",
        "for=10.0.0.5 for=203.0.113.9",
        "for =203.0.113.9",
        "for= 203.0.113.9",
        "for=203.0.113.9;for=203.0.113.9",
        "for=203.0.113.9:80",
        "for=2001:db8::1",
        "for=\"2001:db8::1\"",
        "for=\"203.0.113.9",
        "for=\"203.0.113.9\"x",
        "for=",
        "for",
        "=203.0.113.9",
        "203.0.113.9",
        // Well formed, and no address.
        "for=unknown",
        "for=_hidden;proto=http",
        "for=\"_hidden:80\"",
        "for=\"\"",
        "for=\"203.0.113.9:\"",
        "for=\"203.0.113.9:123456\"",
        "proto=https",
        ";",
        ",",
        "",
        "for=192.0.2.1, proto=http, for=10.0.0.2",
        "for=192.0.2.1, for=unknown, for=10.0.0.2",
    ] {
        assert_eq!(by_forwarded(line.as_bytes()), "?", "{line}");
    }
    let not_text = [b"for=203.0.113.9;x=", &b"\xff"[..]].concat();
    assert_eq!(by_forwarded(&not_text), "?");
}

#[test]
fn scheme_and_host_are_what_the_last_proxy_says_or_nothing() {
    let fields = ["X-Forwarded-Proto", "X-Forwarded-Host"];
    let of = |proto: &[u8], host: &[u8]| {
        let headers = [
            ("X-Forwarded-Proto", &b"https"[..]),
            ("X-Forwarded-Proto", proto),
            ("X-Forwarded-Host", b"evil.example"),
            ("X-Forwarded-Host", host),
        ];
        let heard = resolve(&fields, &headers, "10.0.0.1").unwrap();
        (heard.is_https, heard.host)
    };
    assert_eq!(
        of(b"\", \xff, http", b"\xff, a.example:80"),
        (Some(false), Some("a.example:80".to_owned()))
    );
    for wrong in [&b"a.example/evil"[..], b"\"", b"\xff", b"https, a b"] {
        assert_eq!(of(wrong, wrong), (None, None), "{}", wrong.escape_ascii());
    }
}

#[test]
fn a_name_that_no_header_has_is_no_field() {
    for name in ["", "X Forwarded For", "X-Forwarded-For:", "X-Forwarded_For", "X-Forw\u{e4}rded"] {
        assert_eq!(ForwardedHeader::named(name), None, "{name}");
    }
    let named = ForwardedHeader::named("True-Client-IP");
    assert_eq!(named, Some(ForwardedHeader::Addresses("true-client-ip".to_owned())));
}

#[test]
fn who_trusts_a_network_trusts_someone() {
    assert!(Trust::default().is_empty());
    let proxies = Networks::new(&[parse_network("10.0.0.0/8").unwrap()]);
    assert!(!Trust { proxies, ..Trust::default() }.is_empty());
}

#[test]
fn a_quoted_string_has_no_control_characters() {
    for byte in ["\0", "\n", "\u{1f}", "\u{7f}"] {
        for quoted in [format!("a{byte}b"), format!("a\\{byte}")] {
            let line = format!("for=203.0.113.9;x=\"{quoted}\"");
            assert_eq!(by_forwarded(line.as_bytes()), "?", "{}", line.escape_default());
        }
    }
    assert_eq!(by_forwarded(b"for=203.0.113.9;x=\"a\tb \\\t\\\\\\\"\""), "203.0.113.9:0");
}

#[test]
fn what_follows_an_address_is_a_port_or_it_is_none() {
    for node in ["[2001:db8::7]x", "[2001:db8::7]80", "192.0.2.1:_", "192.0.2.1:_a!", "192.0.2.1:a"]
    {
        let line = format!("for=\"{node}\"");
        assert_eq!(by_forwarded(line.as_bytes()), "?", "{line}");
    }
}

#[test]
fn a_proxy_that_hides_its_client_is_reported_as_such() {
    let words = |line: &'static [u8]| resolve(&["Forwarded"], &[("Forwarded", line)], "10.0.0.1");
    let hidden = "forwarded says that the client's address is unknown or not disclosed";
    for line in [&b"for=unknown"[..], b"for=Unknown", b"for=_hidden", b"proto=http"] {
        assert_eq!(words(line), Err(hidden.to_owned()), "{}", line.escape_ascii());
    }
    for line in [&b"for=_"[..], b"for=\"_a!\"", b"for=unknowns"] {
        assert_ne!(words(line), Err(hidden.to_owned()), "{}", line.escape_ascii());
    }
}

#[test]
fn a_pair_that_has_no_meaning_here_changes_nothing() {
    let value = b"for=192.0.2.1;host=a.example;by=b.example;secret=c.example";
    let heard = resolve(&["Forwarded"], &[("Forwarded", value)], "10.0.0.1").unwrap();
    assert_eq!(heard.host.as_deref(), Some("a.example"));
    assert_eq!((heard.client, heard.is_https), ("192.0.2.1:0".parse().ok(), None));
}
