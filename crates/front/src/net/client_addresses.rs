//! Connections per client address. Addresses shared by many clients are exempt: this machine,
//! private networks (containers, load balancers) and trusted proxies.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use maitred_rules::networks::{Networks, client_key, is_private};
use maitred_rules::rate::Running;

/// The connections of each address.
#[derive(Debug, Default)]
pub struct Addresses {
    open: Running,
    refused: AtomicU64,
}

/// A counted address: an IPv4 address or an IPv6 /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address(u128);

impl Address {
    /// The address of the client at `peer`; none if it is exempt.
    pub fn of(peer: IpAddr, trusted: &Networks) -> Option<Address> {
        let is_exempt = is_private(peer) || trusted.contain(peer);
        (!is_exempt).then(|| Address(client_key(peer)))
    }
}

impl Addresses {
    /// Counts a connection of the client at `peer`, unless it is exempt; [`Addresses::leave`] ends
    /// that.
    ///
    /// # Errors
    /// When the address has `most` already.
    pub fn enter(
        &self,
        peer: IpAddr,
        most: u32,
        trusted: &Networks,
    ) -> Result<Option<Address>, ()> {
        if most == 0 {
            return Ok(None);
        }
        let Some(address) = Address::of(peer, trusted) else {
            return Ok(None);
        };
        if self.open.enter(address.0, most) {
            return Ok(Some(address));
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(())
    }

    /// Ends a counted connection.
    pub fn leave(&self, address: Address) {
        self.open.leave(address.0);
    }

    /// Connections refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_no_more_connections_than_it_may() {
        let (addresses, trusted) = (Addresses::default(), Networks::default());
        let enter = |text| addresses.enter(address(text), 2, &trusted);
        let first = enter("192.0.2.1").unwrap();
        assert!(first.is_some() && enter("::ffff:192.0.2.1").is_ok());
        assert!(enter("192.0.2.1").is_err() && enter("192.0.2.2").is_ok());
        addresses.leave(first.unwrap());
        assert!(enter("192.0.2.1").is_ok());
        assert!(enter("2001:db8::1").is_ok() && enter("2001:db8::2").is_ok());
        assert!(enter("2001:db8::3").is_err() && enter("2001:db8:0:1::1").is_ok());
        assert_eq!(addresses.refused(), 2);
    }

    #[test]
    fn proxies_and_private_networks_are_not_counted() {
        let addresses = Addresses::default();
        let trusted = Networks::new(&["198.51.100.0/24".parse().unwrap()]);
        let of = |text, most| addresses.enter(address(text), most, &trusted);
        let exempt = [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "10.1.2.3",
            "172.17.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.127.0.1",
            "0.0.0.0",
            "fd00::1",
            "fe80::1",
            "198.51.100.7",
        ];
        for text in exempt {
            assert_eq!(of(text, 1), Ok(None), "{text}");
        }
        assert_eq!(of("192.0.2.1", 0), Ok(None));
        assert!(of("100.128.0.1", 1).unwrap().is_some());
    }
}
