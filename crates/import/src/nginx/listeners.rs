//! Addresses of `listen`. maitred serves every site at every address.

use std::collections::BTreeSet;

use super::scope::Scope;

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

/// The addresses of a server, and the values that are no address of this kind.
pub fn of(server: &Scope<'_>) -> (Vec<Listen>, Vec<String>) {
    let (mut found, mut others) = (Vec::new(), Vec::new());
    let mut is_set = false;
    for listen in server.own("listen") {
        is_set = true;
        let has = |flag: &str| listen.arguments.iter().skip(1).any(|one| one == flag);
        if listen.first().starts_with("unix:") || has("quic") {
            others.push(listen.shown());
            continue;
        }
        let text = listen.first();
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse().unwrap_or(80)),
            _ => match text.parse::<u16>() {
                Ok(port) => ("*", port),
                Err(_) => (text, 80),
            },
        };
        let host = if host == "0.0.0.0" { "*" } else { host };
        found.push(Listen {
            host: host.to_owned(),
            port,
            is_tls: has("ssl"),
            is_default: has("default_server") || has("default"),
            is_proxied: has("proxy_protocol"),
        });
    }
    if !is_set {
        let host = "*".to_owned();
        found.push(Listen { host, port: 80, is_tls: false, is_default: false, is_proxied: false });
    }
    (found, others)
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
