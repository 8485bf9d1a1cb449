//! Addresses to listen on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Parses an address to listen on: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` (IPv4), and
/// `:80` or `80` for all addresses (`[::]`, IPv4 included, as in php-fpm). With port 0 the system
/// chooses.
///
/// # Errors
/// The reason, as the end of a sentence that starts with `text`.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if text.starts_with('/') || text.starts_with("unix:") {
        return Err("names a Unix socket, and only TCP is supported; expected an address and a \
                    port, such as \"127.0.0.1:8080\""
            .to_owned());
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let address = match host {
        "" => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => None,
    };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|_| digits);
    match (address, port) {
        (Some(address), Some(port)) => Ok(SocketAddr::new(address, port)),
        (_, None) if digits && host_is_plain(host) => {
            Err("has a port beyond 65535; expected a port from 0 to 65535".to_owned())
        }
        (None, Some(_)) if host_is_plain(host) => {
            Err("has a name for an address; expected an IP address and a port, such as \
                 \"127.0.0.1:8080\""
                .to_owned())
        }
        _ => Err("is no address; expected an IP address and a port, such as \"127.0.0.1:8080\", \
                  \"[::]:80\" or \":80\""
            .to_owned()),
    }
}

/// Whether `host` has no further colon: `1:2:3` is a wrong IPv6 address, not a name or a port.
fn host_is_plain(host: &str) -> bool {
    !host.contains([':', '[', ']', ' ']) && host.parse::<IpAddr>().is_err() || host.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_form() {
        let read = |text| parse_listen(text).map(|address| address.to_string());
        assert_eq!(read("127.0.0.1:8080").as_deref(), Ok("127.0.0.1:8080"));
        assert_eq!(read("[::]:80").as_deref(), Ok("[::]:80"));
        assert_eq!(read("[::1]:443").as_deref(), Ok("[::1]:443"));
        assert_eq!(read(":80").as_deref(), Ok("[::]:80"));
        assert_eq!(read("8080").as_deref(), Ok("[::]:8080"));
        assert_eq!(read("localhost:8080").as_deref(), Ok("127.0.0.1:8080"));
        assert_eq!(read("127.0.0.1:0").as_deref(), Ok("127.0.0.1:0"));
    }

    #[test]
    fn a_unix_socket_is_refused_with_its_own_sentence() {
        for text in ["/run/maitred.sock", "unix:/run/maitred.sock"] {
            assert_eq!(
                parse_listen(text).unwrap_err(),
                "names a Unix socket, and only TCP is supported; expected an address and a port, \
                 such as \"127.0.0.1:8080\""
            );
        }
    }

    #[test]
    fn a_name_is_refused_with_its_own_sentence() {
        assert_eq!(
            parse_listen("shop.example.com:80").unwrap_err(),
            "has a name for an address; expected an IP address and a port, such as \
             \"127.0.0.1:8080\""
        );
    }

    #[test]
    fn a_port_beyond_65535_is_refused_with_its_own_sentence() {
        for text in ["65536", ":99999", "localhost:70000"] {
            assert_eq!(
                parse_listen(text).unwrap_err(),
                "has a port beyond 65535; expected a port from 0 to 65535"
            );
        }
    }

    #[test]
    fn anything_else_is_no_address() {
        for text in ["", ":", "127.0.0.1", "::1", "::", "[::1]", "[::1]:", "host:", ":+80", "a b:1"]
        {
            assert_eq!(
                parse_listen(text).unwrap_err(),
                "is no address; expected an IP address and a port, such as \"127.0.0.1:8080\", \
                 \"[::]:80\" or \":80\"",
                "{text}"
            );
        }
    }
}
