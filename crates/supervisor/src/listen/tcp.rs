//! Which process uses a TCP address.

use std::net::SocketAddr;
use std::path::Path;

/// `TCP_LISTEN` in the tables of `/proc/net` (include/net/tcp_states.h).
const LISTENING: &str = "0A";

/// `[::]` accepts IPv4 clients too, unless there is an IPv4 listener on that port.
pub fn is_only_ipv6(address: SocketAddr, addresses: &[SocketAddr]) -> bool {
    let same_port = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
    address.is_ipv6() && addresses.iter().any(same_port)
}

/// The process that listens on the port of `address`, as far as we may read other processes.
pub fn holder(address: SocketAddr) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| listening_inodes(&table, address.port()))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let mut holders: Vec<(bool, u32, String)> = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            (pid != std::process::id()).then_some(())?;
            holds_any(&entry.path(), &inodes).then_some(())?;
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            Some((
                !name.starts_with("maitred: superv"),
                pid,
                name.trim().to_owned(),
            ))
        })
        .collect();
    // A supervisor first, then the oldest process: the first process of a server.
    holders.sort();
    let (_, pid, name) = holders.into_iter().next()?;
    Some(describe(&name, pid))
}

/// A process, described for the operator.
pub fn describe(name: &str, pid: u32) -> String {
    match name.starts_with("maitred") {
        true => format!("another maitred (process {pid})"),
        false => format!("{name} (process {pid})"),
    }
}

/// Inodes of the sockets that listen on `port`, from a table like `/proc/net/tcp` (proc(5)).
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    let port = format!(":{port:04X}");
    let fields = table
        .lines()
        .skip(1)
        .map(|line| line.split_ascii_whitespace());
    fields
        .filter_map(|mut fields| {
            let local = fields.nth(1)?;
            let state = fields.nth(1)?;
            let inode = fields.nth(5)?;
            (local.ends_with(&port) && state == LISTENING).then(|| inode.to_owned())
        })
        .collect()
}

fn holds_any(process: &Path, inodes: &[String]) -> bool {
    let Ok(fds) = std::fs::read_dir(process.join("fd")) else {
        return false;
    };
    fds.flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .any(|target| {
            inodes
                .iter()
                .any(|inode| target.as_os_str() == inode.as_str())
        })
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
