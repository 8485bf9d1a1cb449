//! Opening the listening sockets, and finding out who is in the way.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use maitred_config::{Address, Listening};
use maitred_control::{Clients, ToFront};
use maitred_os::sockets;

use crate::error::Error;
use crate::peer::Peer;

/// `TCP_LISTEN` as the tables of `/proc/net` write it (include/net/tcp_states.h).
const LISTENING: &str = "0A";

/// An address and its sockets, one for each thread of the front.
#[derive(Debug)]
pub struct Listener {
    /// The address as it was asked for.
    pub asked: Address,
    /// The address, with the port the system chose where we left it the choice.
    pub address: Address,
    /// Who comes there.
    pub clients: Clients,
    /// The sockets.
    pub sockets: Vec<OwnedFd>,
}

/// Listens on everything with `threads` sockets each.
///
/// # Errors
/// The first address that cannot be had, and who has it.
pub fn open(listening: &[Listening<'_>], threads: u32) -> Result<Vec<Listener>, Error> {
    open_others(listening, &[], threads)
}

/// Listens on what is not in `known`.
///
/// # Errors
/// As [`open`].
pub fn open_others(
    listening: &[Listening<'_>],
    known: &[Address],
    threads: u32,
) -> Result<Vec<Listener>, Error> {
    let tcp = listening.iter().filter_map(|one| match one.address() {
        Address::Tcp(address) => Some(address),
        Address::Unix(_) => None,
    });
    let tcp: Vec<SocketAddr> = tcp.collect();
    let others = listening
        .iter()
        .filter(|one| !known.contains(&one.address()));
    others
        .map(|&one| match one.address() {
            Address::Tcp(address) => open_tcp(one, address, is_only_ipv6(address, &tcp), threads),
            Address::Unix(path) => open_unix(one, &path, threads),
        })
        .collect()
}

impl Listener {
    /// Tells a front to accept clients here.
    pub fn tell(&self, front: &mut Peer<ToFront>) {
        for (thread, socket) in (0..).zip(&self.sockets) {
            let order = ToFront::Listen {
                thread,
                address: self.address.to_string(),
                clients: self.clients.clone(),
            };
            front.say(order, &[socket.as_fd()]);
        }
    }
}

fn clients_of(listening: Listening<'_>) -> Clients {
    match listening {
        Listening::Http(_) => Clients::Http,
        Listening::Admin(_) => Clients::Admin,
        Listening::Fastcgi(door) => Clients::Fastcgi {
            listen: door.listen.to_string(),
        },
    }
}

/// `[::]` takes the clients of IPv4 too, unless IPv4 has an address of its own on that port.
fn is_only_ipv6(address: SocketAddr, addresses: &[SocketAddr]) -> bool {
    let same_port = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
    address.is_ipv6() && addresses.iter().any(same_port)
}

fn open_tcp(
    asked: Listening<'_>,
    address: SocketAddr,
    only_ipv6: bool,
    threads: u32,
) -> Result<Listener, Error> {
    let opened = sockets::listen_tcp(address, only_ipv6, threads as usize).and_then(|sockets| {
        let address = sockets
            .first()
            .map_or(Ok(address), sockets::local_address)?;
        Ok(Listener {
            asked: asked.address(),
            address: Address::Tcp(address),
            clients: clients_of(asked),
            sockets,
        })
    });
    opened.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => Error::AddressInUse {
            address: Address::Tcp(address),
            holder: holder(address),
        },
        _ => Error::Listen {
            address: Address::Tcp(address),
            source,
        },
    })
}

fn open_unix(asked: Listening<'_>, path: &Path, threads: u32) -> Result<Listener, Error> {
    let opened = sockets::listen_unix(path, threads as usize).map(|sockets| Listener {
        asked: asked.address(),
        address: asked.address(),
        clients: clients_of(asked),
        sockets,
    });
    opened.map_err(|source| Error::Listen {
        address: asked.address(),
        source,
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
        let error = open(&[Listening::Http(address)], 2).unwrap_err();
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
        let listeners = open(&[Listening::Http("127.0.0.1:0".parse().unwrap())], 3).unwrap();
        for socket in &listeners[0].sockets {
            let address = sockets::local_address(socket).unwrap();
            assert_ne!(address.port(), 0);
            assert_eq!(Address::Tcp(address), listeners[0].address);
        }
    }
}
