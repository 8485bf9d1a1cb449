//! Address matching: a web server passes requests to one address, and a pool listens on another.

use std::net::IpAddr;

/// Whether a connection to `to` reaches a listener on `listen`: it is the same address, or `listen`
/// is the wildcard address and `to` is a loopback address. (Addresses of this machine only are
/// added by the reader of the facts, see [`all`].)
pub(crate) fn meets(listen: &str, to: &str) -> bool {
    if listen == to {
        return true;
    }
    let (Some((host, port)), Some((to_host, to_port))) = (parts(listen), parts(to)) else {
        return false;
    };
    port == to_port && is_all(host) && (is_all(to_host) || is_loopback(to_host))
}

/// The wildcard address with the port of `to`. `None` for a path.
pub(crate) fn all(to: &str) -> Option<String> {
    parts(to).map(|(_, port)| format!("0.0.0.0:{port}"))
}

/// The IP address in `to`. `None` for a path or a name.
pub(crate) fn ip(to: &str) -> Option<IpAddr> {
    bare(parts(to)?.0).parse().ok()
}

fn parts(address: &str) -> Option<(&str, &str)> {
    let is_path = address.starts_with(['/', '@']);
    address.rsplit_once(':').filter(|_| !is_path)
}

fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn is_all(host: &str) -> bool {
    host == "*" || bare(host).parse().is_ok_and(|ip: IpAddr| ip.is_unspecified())
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || bare(host).parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_on_all_addresses_is_met_on_those_of_this_machine() {
        for listen in ["0.0.0.0:9000", "[::]:9000", "*:9000"] {
            for to in
                ["127.0.0.1:9000", "127.0.0.2:9000", "[::1]:9000", "localhost:9000", "0.0.0.0:9000"]
            {
                assert!(meets(listen, to), "{listen} {to}");
            }
            for to in ["127.0.0.1:9001", "192.0.2.1:9000", "php:9000", "/run/a:9000"] {
                assert!(!meets(listen, to), "{listen} {to}");
            }
        }
        assert!(meets("/run/a.sock", "/run/a.sock") && meets("php:9000", "php:9000"));
        assert!(
            !meets("127.0.0.1:9000", "127.0.0.2:9000") && !meets("127.0.0.1:9000", "[::]:9000")
        );
    }

    #[test]
    fn paths_and_names_are_no_numbers() {
        assert_eq!(ip("[::1]:9000"), "::1".parse().ok());
        assert_eq!((ip("php:9000"), ip("/run/a:1")), (None, None));
        assert_eq!(all("192.0.2.1:9000"), Some("0.0.0.0:9000".to_owned()));
        assert_eq!(all("/run/a:1"), None);
    }
}
