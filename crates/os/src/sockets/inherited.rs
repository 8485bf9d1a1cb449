//! Listening sockets inherited from the process that started this one.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::net::{AddressFamily, SocketAddrUnix};

use crate::spawn;

/// Takes descriptor `fd` over, if it is a listening stream socket. Call it once for a number,
/// before this process listens itself. Its type and its other listeners stay as they are; only
/// `accept` never waits.
///
/// # Errors
/// When it is not open, or something else.
pub fn take(fd: RawFd) -> io::Result<OwnedFd> {
    let asked = |option| int_option(fd, option);
    if asked(libc::SO_TYPE)? != libc::SOCK_STREAM || asked(libc::SO_ACCEPTCONN)? == 0 {
        return Err(io::Error::other("it is no listening stream socket"));
    }
    let socket = spawn::inherited_fd(fd)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// The path that a Unix socket is bound to; none for other sockets and for abstract names.
pub fn path_of(socket: &OwnedFd) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let name = rustix::net::getsockname(socket).ok()?;
    if name.address_family() != AddressFamily::UNIX {
        return None;
    }
    let name = SocketAddrUnix::try_from(name).ok()?;
    let path = name.path()?;
    Some(std::ffi::OsStr::from_bytes(path.to_bytes()).into())
}

fn int_option(fd: RawFd, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `value`; querying any
    // number for a socket is harmless.
    let got = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, option, (&raw mut value).cast(), &raw mut length)
    };
    match got {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_a_listening_socket_is_taken() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(take(udp.as_raw_fd()).is_err());
        assert!(take(file.as_raw_fd()).is_err());
        assert!(take(-1).is_err());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(take(listener.into_raw_fd()).is_ok());
    }

    #[test]
    fn a_unix_socket_tells_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("php.sock");
        let unix: OwnedFd = UnixListener::bind(&path).unwrap().into();
        assert_eq!(path_of(&unix), Some(path));
        let tcp: OwnedFd = TcpListener::bind("127.0.0.1:0").unwrap().into();
        assert_eq!(path_of(&tcp), None);
    }
}
