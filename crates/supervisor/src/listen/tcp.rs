//! Which process uses a TCP address.

use std::net::SocketAddr;

use maitred_os::proc::{self, listeners};

/// `[::]` accepts IPv4 clients too, unless there is an IPv4 listener on that port.
pub fn is_only_ipv6(address: SocketAddr, addresses: &[SocketAddr]) -> bool {
    let same_port = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
    address.is_ipv6() && addresses.iter().any(same_port)
}

/// The process that listens on the port of `address`, unless that is a maitred, which may be the
/// server itself.
pub fn other_program_on(address: SocketAddr) -> Option<String> {
    holder(address).filter(|holder| !holder.starts_with(ANOTHER_MAITRED))
}

/// The process that listens on the port of `address`, as far as we may read other processes.
pub fn holder(address: SocketAddr) -> Option<String> {
    let listeners = listeners::tcp_listeners(address.port()).into_iter();
    let own = i32::try_from(std::process::id()).ok();
    let named = listeners.filter(|pid| Some(*pid) != own).filter_map(|pid| {
        let name = proc::read(pid, "comm")?;
        let is_ours = name.starts_with("maitred: superv");
        Some((!is_ours, pid, name.trim().to_owned()))
    });
    let mut holders: Vec<(bool, i32, String)> = named.collect();
    // A supervisor first, then the oldest process: the first process of a server.
    holders.sort();
    let (_, pid, name) = holders.into_iter().next()?;
    Some(describe(&name, pid))
}

const ANOTHER_MAITRED: &str = "another maitred";

/// A process, described for the operator.
pub fn describe(name: &str, pid: i32) -> String {
    match name.starts_with("maitred") {
        true => format!("{ANOTHER_MAITRED} (process {pid})"),
        false => format!("{name} (process {pid})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_leaves_ipv4_alone_where_both_are_asked_for() {
        let (four, six) = ("0.0.0.0:80".parse().unwrap(), "[::]:80".parse().unwrap());
        assert!(is_only_ipv6(six, &[four, six]));
        assert!(!is_only_ipv6(six, &[six, "0.0.0.0:81".parse().unwrap()]));
        assert!(!is_only_ipv6(four, &[four, six]));
    }
}
