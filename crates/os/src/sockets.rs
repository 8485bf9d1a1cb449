//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

pub mod acknowledged;
pub(crate) mod acl;
pub mod closer;
pub mod inherited;
pub mod unix;
pub mod waiting;
pub mod wary;

/// Requested length of the queue of completed connections that are not accepted yet. The kernel
/// caps it at `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;

/// As long as the kernel allows (`net/socket.c` compares it without its sign).
pub const LONGEST_BACKLOG: i32 = -1;

/// Opens `count` sockets that share one TCP address, so that each front thread has a queue of its
/// own, of `backlog` connections. `only_ipv6` leaves IPv4 clients to another socket. Accepted
/// connections have Nagle's delay off (Linux copies the option from the listening socket).
///
/// `SO_REUSEPORT` alone would let a second server of the same user take half of the clients
/// unnoticed, so the address is tried without it first.
///
/// # Errors
/// `AddrInUse` when another socket listens there already; otherwise the error of `bind(2)`.
pub fn listen_tcp(
    address: SocketAddr,
    only_ipv6: bool,
    count: usize,
    backlog: i32,
) -> io::Result<Vec<OwnedFd>> {
    let probe = tcp_socket(address, only_ipv6)?;
    sockopt::set_socket_reuseaddr(&probe, true)?;
    rustix::net::bind(&probe, &address)?;
    let address = SocketAddr::try_from(rustix::net::getsockname(&probe)?)?;
    rustix::net::listen(&probe, 1)?;
    drop(probe);
    (0..count)
        .map(|_| {
            let socket = tcp_socket(address, only_ipv6)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            sockopt::set_socket_reuseport(&socket, true)?;
            set_for_requests(&socket)?;
            rustix::net::bind(&socket, &address)?;
            rustix::net::listen(&socket, backlog)?;
            Ok(socket)
        })
        .collect()
}

/// Sets the options of every listening TCP socket here: no delay of small segments, no wake-up for
/// a silent client, and a limit of unsent data in the kernel for a client that does not read.
///
/// # Errors
/// When it is no TCP socket.
pub fn set_for_requests(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    set_number(socket, libc::TCP_DEFER_ACCEPT, DEFER_ACCEPT_SECONDS);
    set_number(socket, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES);
    Ok(())
}

/// Accepts connections of clients that send nothing, which [`set_for_requests`] holds back.
pub fn accept_silent_clients(socket: BorrowedFd<'_>) {
    set_number(&socket, libc::TCP_DEFER_ACCEPT, 0);
}

/// Listens on a bound socket, or changes the length of its queue if it listens already.
///
/// # Errors
/// Errors of `listen(2)`.
pub fn listen(socket: &OwnedFd, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(socket, backlog)?)
}

/// `count` descriptors of one socket.
///
/// # Errors
/// When there are no descriptors left.
pub fn copies(socket: OwnedFd, count: usize) -> io::Result<Vec<OwnedFd>> {
    let copies: io::Result<Vec<OwnedFd>> = (1..count).map(|_| socket.try_clone()).collect();
    let mut sockets = copies?;
    sockets.push(socket);
    Ok(sockets)
}

/// How long, in seconds, the kernel holds a connection back until its client sends something
/// (Apache's default on Linux, too): `accept(2)` returns connections whose first bytes have
/// arrived, with one wake-up instead of two, and none for a silent client.
const DEFER_ACCEPT_SECONDS: libc::c_int = 30;

/// Bytes of a response that the kernel buffers beyond those in flight (tcp(7)). Without a limit it
/// takes megabytes, and two thousand clients that do not read use up the kernel's memory for TCP.
const UNSENT_BYTES: libc::c_int = 256 * 1024;

/// Sets an option that connections inherit from their listening socket. If the kernel refuses, only
/// its benefit is lost.
fn set_number(socket: &impl AsFd, option: libc::c_int, number: libc::c_int) {
    use std::os::fd::AsRawFd;
    // SAFETY: the option value is an int that outlives the call, with its size beside it.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const number).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

fn tcp_socket(address: SocketAddr, only_ipv6: bool) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, only_ipv6)?;
    }
    Ok(socket)
}

/// The address a socket is bound to.
///
/// # Errors
/// When it is not an internet socket.
pub fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(rustix::net::getsockname(socket)?)?)
}

/// Raises this process's limit of open descriptors as far as the system allows, and returns the
/// resulting limit.
///
/// # Errors
/// When the limit cannot be read.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        return Ok(hard);
    }
    Ok(soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_sockets_share_an_address_and_a_second_server_is_refused() {
        let sockets = listen_tcp("127.0.0.1:0".parse().unwrap(), false, 2, BACKLOG).unwrap();
        let address = local_address(&sockets[0]).unwrap();
        assert_eq!(address, local_address(&sockets[1]).unwrap());
        let again = listen_tcp(address, false, 2, BACKLOG).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    }
}
