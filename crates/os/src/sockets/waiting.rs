//! Connections of a listening socket that are not accepted yet.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// `SOCK_DIAG_BY_FAMILY` (include/uapi/linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// `UDIAG_SHOW_RQLEN` (include/uapi/linux/unix_diag.h).
const SHOW_LENGTHS: u32 = 0x10;
/// `UNIX_DIAG_RQLEN`, the attribute of the reply.
const LENGTHS: u16 = 4;
/// Any state of a socket: it is named by its inode.
const ALL_STATES: u32 = u32::MAX;
/// Any cookie (`INET_DIAG_NOCOOKIE`).
const ANY_COOKIE: u32 = u32::MAX;
/// `struct nlmsghdr`, `struct unix_diag_msg` and `struct nlattr`, in bytes.
const HEADER: usize = 16;
const MESSAGE: usize = 16;
const ATTRIBUTE: usize = 4;
/// Buffer for the kernel's reply about one socket, in bytes.
const ANSWER_BYTES: usize = 1024;

/// Connections in the queue of a listening socket, by the kernel's count.
///
/// # Errors
/// When it is no listening socket, or the kernel does not report it.
pub fn waiting(socket: impl AsFd) -> io::Result<u32> {
    match sockopt::socket_domain(&socket)? {
        AddressFamily::UNIX => waiting_unix(socket),
        _ => waiting_tcp(socket),
    }
}

/// Longest queue of any socket (`net.core.somaxconn`).
///
/// # Errors
/// When it cannot be read.
pub fn longest_backlog() -> io::Result<u32> {
    let text = std::fs::read_to_string("/proc/sys/net/core/somaxconn")?;
    text.trim().parse().map_err(io::Error::other)
}

/// For a listening socket, the kernel reports the length of its queue as `tcpi_unacked`
/// (net/ipv4/tcp.c `tcp_get_info`).
fn waiting_tcp(socket: impl AsFd) -> io::Result<u32> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `info`.
    let got = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every bit pattern is a `tcp_info`, and fields that the kernel left out are zero.
    Ok(unsafe { info.assume_init() }.tcpi_unacked)
}

/// A Unix socket is queried by its inode, over netlink (sock_diag(7)).
fn waiting_unix(socket: impl AsFd) -> io::Result<u32> {
    let inode = rustix::fs::fstat(&socket)?.st_ino;
    let inode = u32::try_from(inode).map_err(io::Error::other)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kernel = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        flags,
        Some(netlink::SOCK_DIAG),
    )?;
    let to = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&kernel, &question(inode), SendFlags::empty(), &to)?;
    let mut response = [0; ANSWER_BYTES];
    // The kernel has replied when the request has been sent.
    let (_, length) = rustix::net::recv(&kernel, &mut response, RecvFlags::TRUNC)?;
    let none = || io::Error::other("the kernel does not know the socket");
    length_in(response.get(..length).ok_or_else(none)?).ok_or_else(none)
}

/// `struct nlmsghdr` and `struct unix_diag_req`.
fn question(inode: u32) -> Vec<u8> {
    const REQUEST: usize = 24;
    let mut question = Vec::with_capacity(HEADER + REQUEST);
    question.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    question.extend(BY_FAMILY.to_ne_bytes());
    question.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Sequence number and port: there is one request and one requester.
    question.extend([0; 8]);
    question.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    for word in [ALL_STATES, inode, SHOW_LENGTHS, ANY_COOKIE, ANY_COOKIE] {
        question.extend(word.to_ne_bytes());
    }
    question
}

/// The queue's length in the kernel's reply: the first word of `struct unix_diag_rqlen`.
fn length_in(response: &[u8]) -> Option<u32> {
    let kind = response.get(4..6)?.try_into().ok()?;
    if u16::from_ne_bytes(kind) != BY_FAMILY {
        return None;
    }
    let mut rest = response.get(HEADER + MESSAGE..)?;
    loop {
        let length = u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        if kind == LENGTHS {
            let value = rest.get(ATTRIBUTE..ATTRIBUTE + 4)?;
            return Some(u32::from_ne_bytes(value.try_into().ok()?));
        }
        rest = rest.get(length.next_multiple_of(4).max(ATTRIBUTE)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn waiting_connections_of_a_unix_socket_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("php.sock");
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(waiting(&listener).unwrap(), 0);
        let _clients = [(); 3].map(|()| UnixStream::connect(&path).unwrap());
        assert_eq!(waiting(&listener).unwrap(), 3);
        listener.accept().unwrap();
        assert_eq!(waiting(&listener).unwrap(), 2);
    }

    #[test]
    fn waiting_connections_of_a_tcp_socket_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _clients = [(); 2].map(|()| TcpStream::connect(address).unwrap());
        assert_eq!(waiting(&listener).unwrap(), 2);
    }

    #[test]
    fn an_answer_that_breaks_off_is_none() {
        assert_eq!(length_in(&[]), None);
        assert_eq!(length_in(&[0; HEADER + MESSAGE]), None);
        let mut endless = vec![0; ANSWER_BYTES];
        endless[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        assert_eq!(length_in(&endless), None);
    }

    #[test]
    fn the_kernel_has_a_longest_backlog() {
        assert!(longest_backlog().unwrap() > 0);
    }
}
