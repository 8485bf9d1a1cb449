//! The lines about the addresses that a server serves on.

use std::net::{IpAddr, SocketAddr};

use maitred_config::Address;
use maitred_control::Clients;

/// What a line says besides the address.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The document roots.
    pub roots: &'a str,
    /// The number of workers, and the PHP versions.
    pub pools: &'a str,
    /// The server is one for development: URLs are those for a browser.
    pub is_development: bool,
}

/// The line about a listener, when the server serves.
pub fn line(clients: &Clients, address: &Address, facts: &Facts<'_>) -> String {
    let Facts { roots, pools, is_development } = facts;
    match (clients, address) {
        (Clients::Admin, Address::Tcp(address)) => {
            format!("metrics and status on http://{address}")
        }
        (Clients::Admin, Address::Unix(path)) => {
            format!("metrics and status on {}", path.display())
        }
        (Clients::AgentCheck, address) => format!("HAProxy's agent checks on {address}"),
        (Clients::Fastcgi { .. }, address) => format!("FastCGI on {address} ({pools})"),
        (Clients::Http | Clients::Https, address) => {
            let on = match address {
                Address::Tcp(address) if *is_development => {
                    let url = for_browser(scheme(clients), *address);
                    let port = address.port();
                    match address.ip().is_unspecified() {
                        true => format!("{url}, and for other machines on port {port}"),
                        false => url,
                    }
                }
                address => format!("{}://{address}", scheme(clients)),
            };
            format!("serving {roots} on {on} ({pools})")
        }
    }
}

/// The URL that a browser on this machine opens for a listener of sites.
pub fn url(clients: &Clients, address: &Address) -> Option<String> {
    match (clients, address) {
        (Clients::Http | Clients::Https, Address::Tcp(address)) => {
            Some(for_browser(scheme(clients), *address))
        }
        _ => None,
    }
}

fn scheme(clients: &Clients) -> &'static str {
    if *clients == Clients::Https { "https" } else { "http" }
}

fn for_browser(scheme: &str, address: SocketAddr) -> String {
    let (ip, port) = (address.ip().to_canonical(), address.port());
    let port = match (scheme, port) {
        ("http", 80) | ("https", 443) => String::new(),
        _ => format!(":{port}"),
    };
    let is_usual = matches!(ip, IpAddr::V4(v4) if v4.octets() == [127, 0, 0, 1])
        || matches!(ip, IpAddr::V6(v6) if v6.is_loopback());
    match ip {
        _ if is_usual || ip.is_unspecified() => format!("{scheme}://localhost{port}"),
        IpAddr::V6(ip) => format!("{scheme}://[{ip}]{port}"),
        IpAddr::V4(ip) => format!("{scheme}://{ip}{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(clients: &Clients, address: &str, is_development: bool) -> String {
        let address = Address::Tcp(address.parse().unwrap());
        line(clients, &address, &Facts { roots: "/srv", pools: "1 worker", is_development })
    }

    #[test]
    fn a_development_server_names_what_a_browser_opens_and_who_else_can() {
        let on = |address| said(&Clients::Http, address, true);
        assert_eq!(on("127.0.0.1:8000"), "serving /srv on http://localhost:8000 (1 worker)");
        assert_eq!(on("[::1]:80"), "serving /srv on http://localhost (1 worker)");
        assert_eq!(
            on("[::]:8000"),
            "serving /srv on http://localhost:8000, and for other machines on port 8000 (1 worker)"
        );
        assert_eq!(on("192.0.2.1:81"), "serving /srv on http://192.0.2.1:81 (1 worker)");
        let https = said(&Clients::Https, "127.0.0.1:443", true);
        assert_eq!(https, "serving /srv on https://localhost (1 worker)");
    }

    #[test]
    fn a_browser_opens_a_listener_of_sites() {
        let address = Address::Tcp("[::]:8000".parse().unwrap());
        assert_eq!(url(&Clients::Https, &address).as_deref(), Some("https://localhost:8000"));
        assert_eq!(url(&Clients::Admin, &address), None);
    }

    #[test]
    fn other_servers_name_the_address_itself() {
        let on = said(&Clients::Http, "[::]:8000", false);
        assert_eq!(on, "serving /srv on http://[::]:8000 (1 worker)");
    }
}
