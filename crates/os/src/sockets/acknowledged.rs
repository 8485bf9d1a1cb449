//! How much of what a socket was given has reached the other side.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `struct tcp_info` up to and including `tcpi_bytes_acked` (include/uapi/linux/tcp.h), in words of
/// eight bytes. libc's own ends before.
const WORDS: usize = 16;
/// Where `tcpi_bytes_acked` is among them.
const BYTES_ACKED: usize = 15;

/// Bytes that the other side of a TCP connection has acknowledged since it was made (RFC 4898
/// `tcpEStatsAppHCThruOctetsAcked`).
///
/// # Errors
/// When it is no TCP connection, or the kernel is older than Linux 4.1 and does not tell.
pub fn acknowledged(socket: impl AsFd) -> io::Result<u64> {
    let mut info = [0_u64; WORDS];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `info`, and every bit
    // pattern is a number.
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
    if length as usize == size_of_val(&info) {
        Ok(info[BYTES_ACKED])
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_the_other_side_has_is_counted_and_what_it_has_no_room_for_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let before = acknowledged(&socket).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = socket.write(&[0; 1 << 16]) {
            sent += count;
        }
        let stuck = acknowledged(&socket).unwrap() - before;
        assert!(stuck < sent as u64, "{stuck} of {sent}");
        let mut rest = vec![0; sent];
        client.read_exact(&mut rest).unwrap();
        let all = || acknowledged(&socket).unwrap() - before;
        while all() < sent as u64 {
            std::thread::yield_now();
        }
        assert_eq!(all(), sent as u64);
    }

    #[test]
    fn other_sockets_are_refused() {
        let (one, _) = UnixStream::pair().unwrap();
        assert!(acknowledged(&one).is_err());
    }
}
