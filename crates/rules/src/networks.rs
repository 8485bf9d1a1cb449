//! Sets of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A set of networks; a lookup takes logarithmic time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks {
    v4: Vec<Ipv4Net>,
    v6: Vec<Ipv6Net>,
}

impl Networks {
    /// The set of these networks.
    pub fn new(networks: &[IpNet]) -> Networks {
        let v4 = networks.iter().filter_map(|net| match net {
            IpNet::V4(net) => Some(*net),
            IpNet::V6(_) => None,
        });
        let v6 = networks.iter().filter_map(|net| match net {
            IpNet::V6(net) => Some(*net),
            IpNet::V4(_) => None,
        });
        // Aggregated networks are sorted and disjoint.
        Networks { v4: Ipv4Net::aggregate(&v4.collect()), v6: Ipv6Net::aggregate(&v6.collect()) }
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Whether `address` is in the set. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contain(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let above = |net: &Ipv4Net| net.network() <= address;
                let at = self.v4.partition_point(above).checked_sub(1);
                at.is_some_and(|at| self.v4[at].contains(&address))
            }
            IpAddr::V6(address) => {
                let above = |net: &Ipv6Net| net.network() <= address;
                let at = self.v6.partition_point(above).checked_sub(1);
                at.is_some_and(|at| self.v6[at].contains(&address))
            }
        }
    }
}

/// Parses an address (`192.0.2.1`) or a network (`192.0.2.0/24`).
///
/// # Errors
/// What is wrong with `text`, as the end of a sentence that begins with it.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(match address.to_canonical() {
            IpAddr::V4(address) => Ipv4Net::from(address).into(),
            IpAddr::V6(address) => Ipv6Net::from(address).into(),
        });
    }
    let net: IpNet = text.parse().map_err(|_| {
        "is no address and no network; expected one such as \"192.0.2.1\" or \"192.0.2.0/24\""
            .to_owned()
    })?;
    if net.addr() != net.network() {
        let meant = net.trunc();
        return Err(format!("has bits beyond its prefix; expected \"{meant}\""));
    }
    Ok(net)
}

/// The network in which a NAT64 translator maps IPv4 addresses for an IPv6-only server (RFC 6052
/// §2.1), without their 32 bits.
const TRANSLATED: u128 = 0x0064_ff9b << 96;

/// The key that identifies a client for limits: its IPv4 address, or the /64 of an IPv6 subscriber.
/// Behind NAT64 all of IPv4 is in one /64, so there the IPv4 address counts.
pub fn client_key(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(Ipv4Addr::to_bits(address)),
        IpAddr::V6(address) => match Ipv6Addr::to_bits(address) {
            bits if bits >> 32 << 32 == TRANSLATED => bits ^ TRANSLATED,
            bits => bits >> 64 << 64 | 1,
        },
    }
}

/// Whether an address is not of the public Internet: of this machine, of a private network, or
/// none. An IPv4-mapped IPv6 address counts as IPv4.
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || address.is_unspecified()
                || is_shared(address)
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || address.is_unspecified()
        }
    }
}

/// 100.64.0.0/10, for machines of a provider (RFC 6598) or of a virtual private network.
fn is_shared(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 100 && second & 0xc0 == 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_among_many_networks() {
        let texts = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7", "2001:db8::/32", "::1"];
        let nets: Vec<IpNet> = texts.iter().map(|text| parse_network(text).unwrap()).collect();
        let networks = Networks::new(&nets);
        let contain = |text: &str| networks.contain(text.parse().unwrap());
        for inside in
            ["10.255.0.1", "10.1.2.3", "192.0.2.7", "::ffff:10.0.0.1", "2001:db8:1::", "::1"]
        {
            assert!(contain(inside), "{inside}");
        }
        for outside in ["11.0.0.0", "9.255.255.255", "192.0.2.8", "2001:db9::", "::2"] {
            assert!(!contain(outside), "{outside}");
        }
        assert!(!Networks::default().contain("::1".parse().unwrap()));
    }

    #[test]
    fn a_network_with_bits_too_many_is_refused_with_what_was_meant() {
        assert_eq!(
            parse_network("10.1.2.3/8").unwrap_err(),
            "has bits beyond its prefix; expected \"10.0.0.0/8\""
        );
        assert!(parse_network("10.0.0").unwrap_err().starts_with("is no address"));
    }

    #[test]
    fn one_subscriber_of_ipv6_is_one_client() {
        let key = |text: &str| client_key(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff"));
        assert_ne!(key("2001:db8:0:1::1"), key("2001:db8::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    }

    #[test]
    fn clients_of_ipv4_behind_a_translator_are_told_apart() {
        let key = |text: &str| client_key(text.parse().unwrap());
        assert_ne!(key("64:ff9b::192.0.2.1"), key("64:ff9b::192.0.2.2"));
        assert_eq!(key("64:ff9b::192.0.2.1"), key("192.0.2.1"));
        assert_eq!(key("64:ff9b::1:c000:201"), key("64:ff9b::1:c000:202"));
        assert_eq!(key("64:ff9b:1::1"), key("64:ff9b:1::2"));
    }

    #[test]
    fn an_address_is_private_up_to_the_last_one_of_its_network() {
        for text in [
            "10.0.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "127.0.0.1",
            "169.254.1.1",
            "100.64.0.0",
            "100.127.255.255",
            "0.0.0.0",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "fdff::1",
            "febf::1",
        ] {
            assert!(is_private(text.parse().unwrap()), "{text}");
        }
        for text in [
            "172.32.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "169.255.0.0",
            "::ffff:203.0.113.1",
            "2001:db8::1",
            "fe00::1",
            "fec0::1",
        ] {
            assert!(!is_private(text.parse().unwrap()), "{text}");
        }
    }
}
