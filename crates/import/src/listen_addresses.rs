//! Addresses that sites are served at. maitred serves every site at every address.

use std::collections::BTreeSet;

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
        self.host.starts_with("127.") || self.host == "[::1]" || self.host == "localhost"
    }

    /// The address and the port, for comparison.
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
    let usual = |one: &&Listen| ![80, 443].contains(&one.port) || one.is_loopback();
    let unusual = others().filter(usual).chain(own.iter().filter(usual));
    let differs = unusual.map(Listen::key).any(|key| {
        all.iter().any(|one| {
            let its: BTreeSet<String> = one.iter().map(Listen::key).collect();
            its.contains(&key) != keys.contains(&key)
        })
    });
    match differs {
        false => Reach::All,
        true => Reach::Some(format!(
            "every site is served at every address, and this one was at {} only: restrict it with \
             `allow`, or serve it with a second maitred",
            keys.into_iter().collect::<Vec<_>>().join(", ")
        )),
    }
}
