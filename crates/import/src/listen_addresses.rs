//! Addresses that sites are served at. maitred serves every site at every address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use maitred_rules::networks::is_private;

/// An address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The host: `*`, `[::]`, or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether it is for TLS.
    pub is_tls: bool,
    /// Whether `default_server` is set.
    pub is_default: bool,
    /// Whether connections start with the PROXY protocol.
    pub is_proxied: bool,
}

impl Listen {
    /// Whether only this machine reaches it.
    pub fn is_loopback(&self) -> bool {
        let is_own = |address: IpAddr| address.to_canonical().is_loopback();
        self.host == "localhost" || self.address().is_some_and(is_own)
    }

    /// The address; none for `*` and for a name.
    fn address(&self) -> Option<IpAddr> {
        self.host.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }

    /// Where clients reach it: `*` is every address of IPv6, too, and the ports of HTTP and HTTPS
    /// are one.
    fn reached(&self) -> (&str, u16) {
        let host = if self.host == "[::]" { "*" } else { &self.host };
        (host, if self.port == 443 { 80 } else { self.port })
    }

    /// Whether the whole Internet can reach it.
    fn is_public(&self) -> bool {
        self.address().is_some_and(|address| !is_private(address))
    }

    /// The address and the port, as written.
    pub fn key(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// The addresses to listen on, as maitred writes them: one that another covers is left out.
pub fn addresses<'l>(all: impl Iterator<Item = &'l Listen>) -> Vec<String> {
    let all: BTreeSet<(u16, String)> = all.map(|one| (one.port, one.host.clone())).collect();
    let has = |port: u16, host: &str| all.contains(&(port, host.to_owned()));
    let mut found = Vec::new();
    for (port, host) in &all {
        let address = match host.as_str() {
            "*" if has(*port, "[::]") => continue,
            "[::]" => format!("[::]:{port}"),
            "*" => format!("0.0.0.0:{port}"),
            _ if has(*port, "*") || has(*port, "[::]") => continue,
            "localhost" => format!("127.0.0.1:{port}"),
            host => format!("{host}:{port}"),
        };
        found.push(address);
    }
    found
}

/// Who reaches a site with maitred.
pub enum Reach {
    /// The same clients.
    All,
    /// Other servers have public addresses, and it has none: the site has to allow this machine
    /// alone.
    ThisMachine,
    /// More clients may, for this reason.
    Some(String),
}

/// Who reaches a site with these addresses, beside the addresses of all sites.
pub fn reach(own: &[Listen], all: &[&[Listen]]) -> Reach {
    let others = || all.iter().flat_map(|one| one.iter());
    if own.iter().all(Listen::is_loopback) && !others().all(Listen::is_loopback) {
        return Reach::ThisMachine;
    }
    let keys: BTreeSet<String> = own.iter().map(Listen::key).collect();
    let reached: BTreeSet<(&str, u16)> = own.iter().map(Listen::reached).collect();
    let public: BTreeSet<u16> =
        own.iter().filter(|one| one.is_public()).map(|one| one.reached().1).collect();
    // Clients of a public address of the site reach it today, and this machine does.
    let is_new = |one: &Listen| {
        let (host, port) = one.reached();
        !one.is_loopback()
            && !public.contains(&port)
            && !reached.contains(&(host, port))
            && !reached.contains(&("*", port))
    };
    match others().any(is_new) {
        false => Reach::All,
        true => Reach::Some(format!(
            "every site is served at every address, and this one was at {} only: restrict it with \
             `allow`, or serve it with a second maitred",
            keys.into_iter().collect::<Vec<_>>().join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(host: &str, port: u16) -> Listen {
        let host = host.to_owned();
        Listen { host, port, is_tls: port == 443, is_default: false, is_proxied: false }
    }

    #[test]
    fn a_site_is_reached_by_more_clients_if_another_one_has_a_new_address_or_port() {
        let is_more =
            |own: &[Listen], other: &[Listen]| matches!(reach(own, &[own, other]), Reach::Some(_));
        let inner = [listen("10.0.0.5", 443)];
        for (other, more) in [
            (vec![listen("203.0.113.1", 443)], true),
            (vec![listen("*", 443)], true),
            (vec![listen("[::]", 80)], true),
            (vec![listen("10.0.0.5", 80)], false),
            (vec![listen("10.0.0.5", 8443)], true),
        ] {
            assert_eq!(is_more(&inner, &other), more, "{other:?}");
        }
        for private in [
            "100.101.102.103",
            "169.254.1.1",
            "[fd00::1]",
            "[FE80::1]",
            "[fe80::1%eth0]",
            "[::ffff:10.0.0.5]",
        ] {
            assert!(is_more(&[listen(private, 443)], &[listen("*", 443)]), "{private}");
        }
        let public = listen("203.0.113.1", 443);
        for other in [
            listen("203.0.113.2", 443),
            listen("[2001:db8::1]", 443),
            listen("*", 80),
            listen("127.0.0.1", 8080),
        ] {
            assert!(!is_more(std::slice::from_ref(&public), &[other]));
        }
        assert!(is_more(std::slice::from_ref(&public), &[listen("*", 8080)]));
        for other in [vec![listen("*", 80)], vec![listen("[::]", 443)], inner.to_vec()] {
            assert!(!is_more(&[listen("*", 443)], &other), "{other:?}");
        }
    }

    #[test]
    fn this_machine_has_addresses_of_several_spellings() {
        for (host, is_own) in [
            ("127.0.0.1", true),
            ("127.1.2.3", true),
            ("[::1]", true),
            ("[0:0::1]", true),
            ("[::ffff:127.0.0.1]", true),
            ("localhost", true),
            ("*", false),
            ("10.0.0.5", false),
            ("[::]", false),
        ] {
            assert_eq!(listen(host, 80).is_loopback(), is_own, "{host}");
        }
    }
}
