//! Opening the listening sockets, and finding out who is in the way.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use maitred_control::ToFront;
use maitred_os::sockets;

use crate::error::Error;
use crate::peer::Peer;

/// `TCP_LISTEN` as the tables of `/proc/net` write it (include/net/tcp_states.h).
const LISTENING: &str = "0A";

/// An address and its sockets, one for each thread of the front.
#[derive(Debug)]
pub struct Listener {
    /// The address as it was asked for.
    pub asked: SocketAddr,
    /// The address, with the port the system chose where we left it the choice.
    pub address: SocketAddr,
    /// The sockets.
    pub sockets: Vec<OwnedFd>,
}

/// Listens on every address with `threads` sockets.
///
/// # Errors
/// The first address that cannot be had, and who has it.
pub fn open(addresses: &[SocketAddr], threads: u32) -> Result<Vec<Listener>, Error> {
    addresses
        .iter()
        .map(|&address| open_one(address, is_only_ipv6(address, addresses), threads))
        .collect()
}

/// Listens on those of `addresses` that are not in `known`.
///
/// # Errors
/// As [`open`].
pub fn open_others(
    addresses: &[SocketAddr],
    known: &[SocketAddr],
    threads: u32,
) -> Result<Vec<Listener>, Error> {
    let others = addresses.iter().filter(|address| !known.contains(address));
    others
        .map(|&address| open_one(address, is_only_ipv6(address, addresses), threads))
        .collect()
}

impl Listener {
    /// Tells a front to accept clients here, or those of the admin door if this is `admin`.
    pub fn tell(&self, front: &mut Peer<ToFront>, admin: Option<SocketAddr>) {
        for (thread, socket) in (0..).zip(&self.sockets) {
            let address = self.address.to_string();
            let order = ToFront::Listen {
                thread,
                address,
                admin: admin == Some(self.asked),
            };
            front.say(order, &[socket.as_fd()]);
        }
    }
}

/// `[::]` takes the clients of IPv4 too, unless IPv4 has an address of its own on that port.
fn is_only_ipv6(address: SocketAddr, addresses: &[SocketAddr]) -> bool {
    let same_port = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
    address.is_ipv6() && addresses.iter().any(same_port)
}

fn open_one(address: SocketAddr, only_ipv6: bool, threads: u32) -> Result<Listener, Error> {
    let asked = address;
    let opened = sockets::listen_tcp(address, only_ipv6, threads as usize).and_then(|sockets| {
        let address = sockets
            .first()
            .map_or(Ok(address), sockets::local_address)?;
        Ok(Listener {
            asked,
            address,
            sockets,
        })
    });
    opened.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => Error::AddressInUse {
            address,
            holder: holder(address),
        },
        _ => Error::Listen { address, source },
    })
}

/// Who listens on the port of `address`: the process that holds a listening socket there, as far
/// as we may look into other processes.
fn holder(address: SocketAddr) -> Option<String> {
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
    // A supervisor of ours first, then the oldest: a server's first process rather than its last.
    holders.sort();
    let (_, pid, name) = holders.into_iter().next()?;
    Some(match name.starts_with("maitred") {
        true => format!("another maitred (process {pid})"),
        false => format!("{name} (process {pid})"),
    })
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
    fn whoever_holds_the_port_is_named_in_the_error() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        rustix::io::fcntl_setfd(&held, rustix::io::FdFlags::empty()).unwrap();
        let mut holder = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let error = open(&[address], 2).unwrap_err();
        holder.kill().unwrap();
        holder.wait().unwrap();
        let sentence = error.to_string();
        assert!(sentence.starts_with(&address.to_string()), "{sentence}");
        assert!(
            sentence.contains(&format!("sleep (process {})", holder.id())),
            "{sentence}"
        );
    }

    #[test]
    fn ipv6_leaves_ipv4_alone_where_both_are_asked_for() {
        let (four, six) = ("0.0.0.0:80".parse().unwrap(), "[::]:80".parse().unwrap());
        assert!(is_only_ipv6(six, &[four, six]));
        assert!(!is_only_ipv6(six, &[six, "0.0.0.0:81".parse().unwrap()]));
        assert!(!is_only_ipv6(four, &[four, six]));
    }

    #[test]
    fn a_port_left_to_the_system_is_the_same_for_all_threads() {
        let listeners = open(&["127.0.0.1:0".parse().unwrap()], 3).unwrap();
        assert_ne!(listeners[0].address.port(), 0);
        for socket in &listeners[0].sockets {
            assert_eq!(
                sockets::local_address(socket).unwrap(),
                listeners[0].address
            );
        }
    }
}
