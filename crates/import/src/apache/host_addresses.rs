//! The addresses of `Listen` and `<VirtualHost>`.

use std::net::IpAddr;

use crate::listen_addresses::Listen;

/// The host and the port of `*:80`, `_default_:443`, `80`, `[::1]:80`, `10.0.0.5` or `*:*`.
fn split(text: &str) -> (&str, Option<&str>) {
    let is_port = |text: &str| text.bytes().all(|letter| letter.is_ascii_digit());
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ if is_port(text) => ("*", Some(text)),
        _ => (text, None),
    };
    let host = if ["0.0.0.0", "_default_", ""].contains(&host) { "*" } else { host };
    (host, port.filter(|port| *port != "*"))
}

/// Whether it names a host, other than `localhost`.
pub(super) fn has_name(text: &str) -> bool {
    let (host, _) = split(text);
    let is_address = host == "*" || host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    !is_address && !host.eq_ignore_ascii_case("localhost")
}

/// Whether it is for all addresses.
pub(super) fn is_for_all(text: &str) -> bool {
    ["*", "[::]"].contains(&split(text).0)
}

/// An address with a port. A name is every address, but for `localhost`.
pub(super) fn address(text: &str) -> Option<Listen> {
    let (host, port) = split(text);
    let host = if has_name(text) { "*".to_owned() } else { host.to_ascii_lowercase() };
    let port = port?.parse().ok()?;
    Some(Listen { host, port, is_tls: false, is_default: false, is_proxied: false })
}

/// The addresses of a `<VirtualHost>`: those of `Listen` that it names, or has for itself at one
/// that is for every address. Without a port, it is served at all ports.
pub(super) fn served_at(text: &str, listens: &[Listen]) -> Vec<Listen> {
    let (own, port) = split(text);
    let own = if has_name(text) { "*".to_owned() } else { own.to_ascii_lowercase() };
    if listens.is_empty() {
        return address(text).into_iter().collect();
    }
    let is_port = |one: &&Listen| port.is_none_or(|port| port.parse() == Ok(one.port));
    let found = listens.iter().filter(is_port).filter_map(|one| {
        let named = Listen { host: own.clone(), ..one.clone() };
        let is_every = ["*", "[::]"].contains(&one.host.as_str());
        let is_same = own == one.host || named.is_loopback() && one.is_loopback();
        match own.as_str() {
            "*" | "[::]" => Some(one.clone()),
            _ if is_every || is_same => Some(named),
            _ => None,
        }
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_host_is_for_all() {
        for (text, is_all) in [
            ("*:80", true),
            ("_default_", true),
            ("[::]:80", true),
            ("0.0.0.0:80", true),
            ("192.0.2.1:80", false),
            ("www.example.com", false),
        ] {
            assert_eq!(is_for_all(text), is_all, "{text}");
        }
    }

    #[test]
    fn virtual_hosts_are_served_at_the_addresses_that_they_name() {
        let of = |listens: &[&str], text: &str| {
            let listens: Vec<Listen> = listens.iter().filter_map(|one| address(one)).collect();
            let found = served_at(text, &listens);
            found.iter().map(Listen::key).collect::<Vec<_>>().join(" ")
        };
        let every = ["80", "443"];
        assert_eq!(of(&every, "*:80"), "*:80");
        assert_eq!(of(&every, "*"), "*:80 *:443");
        assert_eq!(of(&every, "_default_:*"), "*:80 *:443");
        assert_eq!(of(&every, "10.0.0.5"), "10.0.0.5:80 10.0.0.5:443");
        assert_eq!(of(&every, "[::1]"), "[::1]:80 [::1]:443");
        assert_eq!(of(&every, "localhost:80"), "localhost:80");
        assert_eq!(of(&every, "*:81"), "");
        let some = ["127.0.0.1:80", "10.0.0.5:80"];
        assert_eq!(of(&some, "*:80"), "127.0.0.1:80 10.0.0.5:80");
        assert_eq!(of(&some, "10.0.0.6:80"), "");
        assert_eq!(of(&some, "localhost:80"), "localhost:80");
        assert_eq!(of(&["localhost:8080"], "*:8080"), "localhost:8080");
        assert_eq!(of(&["[::]:80"], "192.0.2.1:80"), "192.0.2.1:80");
    }
}
