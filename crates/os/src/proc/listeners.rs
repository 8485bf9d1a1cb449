//! Processes that listen on a socket: the tables of `/proc/net` and the descriptors of each
//! process.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// The state LISTEN in the column `st` of `/proc/net/tcp` (Linux, include/net/tcp_states.h).
const TCP_LISTEN: &str = "0A";

/// The flag of a listening socket in `/proc/net/unix` (Linux, include/linux/socket.h,
/// `__SO_ACCEPTCON`).
const UNIX_LISTENS: &str = "00010000";

/// The processes that listen on a TCP port, on any address, as far as this user may see.
pub fn tcp_listeners(port: u16) -> Vec<i32> {
    let read = |table| super::text(table).unwrap_or_default();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(read);
    holders(tables.iter().flat_map(|table| tcp_inodes(table, port)))
}

/// The processes that listen on a Unix socket, as far as this user may see.
pub fn unix_listeners(path: &Path) -> Vec<i32> {
    let table = super::text("/proc/net/unix").unwrap_or_default();
    holders(unix_inodes(&table, path))
}

fn holders<'t>(inodes: impl Iterator<Item = &'t str>) -> Vec<i32> {
    let links: HashSet<String> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    if links.is_empty() {
        return Vec::new();
    }
    let holds_one = |pid: &i32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
        let targets = descriptors.flatten().flatten();
        let mut targets = targets.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.any(|target| target.to_str().is_some_and(|name| links.contains(name)))
    };
    super::pids().filter(holds_one).collect()
}

fn tcp_inodes(table: &str, port: u16) -> impl Iterator<Item = &str> {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let mut columns = line.split_ascii_whitespace();
        let (address, state, inode) = (columns.nth(1)?, columns.nth(1)?, columns.nth(5)?);
        (address.ends_with(&wanted) && state == TCP_LISTEN).then_some(inode)
    })
}

fn unix_inodes<'t>(table: &'t str, path: &Path) -> impl Iterator<Item = &'t str> {
    table.lines().skip(1).filter_map(move |line| {
        let mut columns = line.split_ascii_whitespace();
        let (flags, inode, bound) = (columns.nth(3)?, columns.nth(2)?, columns.next()?);
        (flags == UNIX_LISTENS && Path::new(bound) == path).then_some(inode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_process_that_listens_is_found_and_nobody_once_it_is_closed() {
        let own = i32::try_from(std::process::id()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // Any user may have a socket with such a name.
        let odd = std::ffi::OsStr::from_bytes(b"\xff");
        let _odd = UnixListener::bind(folder.path().join(odd)).unwrap();
        let (tcp, unix) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
        let port = tcp.local_addr().unwrap().port();
        assert!(tcp_listeners(port).contains(&own));
        assert!(unix_listeners(&path).contains(&own));
        drop((tcp, unix));
        assert!(unix_listeners(&path).is_empty());
    }
}
