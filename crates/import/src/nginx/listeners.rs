//! Addresses of `listen`. maitred serves every site at every address.

use super::scope::Scope;
use crate::listen_addresses::Listen;

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
