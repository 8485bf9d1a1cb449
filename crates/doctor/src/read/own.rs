//! The addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use super::world::World;
use crate::addresses;

/// The kernel's routes, with all its own IPv4 addresses.
const IPV4: &str = "/proc/net/fib_trie";

/// Its own IPv6 addresses.
const IPV6: &str = "/proc/net/if_inet6";

/// Whether this machine has the address of `to`, so that a socket can. Where sockets may have any
/// (`ip_nonlocal_bind`, for shared addresses), the kernel's own lists decide; if they cannot be
/// read, it does not.
pub(super) fn is_own(world: &World, to: &str) -> bool {
    let Some(ip) = addresses::ip(to) else {
        return false;
    };
    let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
    match world.number(&format!("/proc/sys/net/{family}/ip_nonlocal_bind")) {
        Ok(1..) => is_listed(world, ip),
        _ => UdpSocket::bind((ip, 0)).is_ok(),
    }
}

fn is_listed(world: &World, ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => world.read(IPV4).is_ok_and(|text| has_ipv4(&text, ip)),
        IpAddr::V6(ip) => world.read(IPV6).is_ok_and(|text| has_ipv6(&text, ip)),
    }
}

/// Below each address are its routes: a local one leads to this machine.
fn has_ipv4(text: &str, ip: Ipv4Addr) -> bool {
    let mut address = None;
    text.lines().map(str::trim).any(|line| {
        if let Some(found) = line.strip_prefix("|-- ") {
            address = found.parse().ok();
        }
        line == "/32 host LOCAL" && address == Some(ip)
    })
}

/// Each line begins with an address, as 32 digits.
fn has_ipv6(text: &str, ip: Ipv6Addr) -> bool {
    let addresses = text.lines().filter_map(|line| line.split_whitespace().next());
    let mut bits = addresses.filter_map(|digits| u128::from_str_radix(digits, 16).ok());
    bits.any(|bits| bits == ip.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ROUTES: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe \
                          UNICAST\n     +-- 192.0.2.0/24 2 0 2\n        +-- 192.0.2.0/30 2 0 \
                          2\n           |-- 192.0.2.0\n              /24 link UNICAST\n           \
                          |-- 192.0.2.2\n              /32 host LOCAL\n        |-- \
                          192.0.2.255\n           /32 link BROADCAST\nLocal:\n     |-- \
                          192.0.2.9\n        /24 link UNICAST\n        /32 host LOCAL\n";

    const INTERFACES: &str = "20010db8000000000000000000000007 02 40 00 80     eth0\n\
                              00000000000000000000000000000001 01 80 10 80       lo\n";

    #[test]
    fn an_address_that_any_socket_may_have_is_this_machines_only_if_the_kernel_lists_it() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let world = World::new(Some(root.path()), Duration::from_secs(60));
        let may_any = |says: &str| {
            write("proc/sys/net/ipv4/ip_nonlocal_bind", says);
            write("proc/sys/net/ipv6/ip_nonlocal_bind", says);
        };
        may_any("0\n");
        assert!(is_own(&world, "127.0.0.1:9000"), "a socket can have it");
        assert!(!is_own(&world, "198.51.100.1:9000"));
        may_any("1\n");
        assert!(!is_own(&world, "127.0.0.1:9000"), "nothing is listed");
        write("proc/net/fib_trie", ROUTES);
        write("proc/net/if_inet6", INTERFACES);
        for own in ["192.0.2.2:9000", "192.0.2.9:9000", "[2001:db8::7]:9000"] {
            assert!(is_own(&world, own), "{own}");
        }
        for other in [
            "127.0.0.1:9000",
            "192.0.2.0:9000",
            "192.0.2.3:9000",
            "192.0.2.255:9000",
            "[2001:db8::8]:9000",
            "[::1:7]:9000",
            "/run/a.sock",
        ] {
            assert!(!is_own(&world, other), "{other}");
        }
    }

    #[test]
    fn the_kernels_own_lists_are_understood() {
        let world = World::new(None, Duration::from_secs(60));
        assert!(is_listed(&world, Ipv4Addr::LOCALHOST.into()));
        assert!(!is_listed(&world, Ipv4Addr::new(198, 51, 100, 1).into()));
    }
}
