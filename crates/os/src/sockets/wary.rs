//! Reads a Unix stream whose peer may send descriptors, where the kernel cannot refuse them
//! ([`refuse_descriptors`](super::unix::refuse_descriptors)).
//!
//! A received descriptor has to be closed, which blocks for as long as its sender likes. So none is
//! received: bytes are peeked at first (`MSG_PEEK`). The kernel then reports whether descriptors
//! come with them, and leaves those in the queue.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recv, recvmsg, shutdown, sockopt,
};

use super::closer;

/// Most reads that drain a stream's queue before the stream is closed. One with more goes to the
/// closer.
const LAST_READS: usize = 16;
/// Bytes of one of them.
const LAST_READ_BYTES: usize = 16 * 1024;
/// `SO_PASSPIDFD` of unix(7), as most architectures number it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const SO_PASSPIDFD: libc::c_int = 76;

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamRead {
    /// This many bytes; 0 at the end.
    Bytes(usize),
    /// Descriptors come with the next bytes. Both stay in the queue, and the stream has to be
    /// closed by [`close`].
    Descriptors,
}

/// Prepares a stream for [`receive`]; call it before the first.
pub fn prepare(stream: BorrowedFd<'_>) {
    // The kernel drops urgent data that it reaches elsewhere, and closes its descriptors.
    let _ = sockopt::set_socket_oobinline(stream, true);
    // A listening socket of systemd may pass these on, and each read would look as if descriptors
    // had come.
    let _ = sockopt::set_socket_passcred(stream, false);
    set_off(stream, libc::SO_PASSSEC);
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    set_off(stream, SO_PASSPIDFD);
}

fn set_off(stream: BorrowedFd<'_>, option: libc::c_int) {
    let off: libc::c_int = 0;
    // SAFETY: the option's value is a number, which lives during the call. A kernel that does not
    // know the option does not set it either.
    let _ = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const off).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// Reads available bytes, without waiting and without receiving a descriptor.
///
/// # Errors
/// Errors of recvmsg(2): `WouldBlock` if nothing is available.
pub fn receive(stream: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<StreamRead> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let seen =
        recvmsg(stream, &mut [IoSliceMut::new(into)], &mut RecvAncillaryBuffer::default(), flags)?;
    if seen.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(StreamRead::Descriptors);
    }
    if seen.bytes == 0 {
        return Ok(StreamRead::Bytes(0));
    }
    // Exactly these: later bytes may have descriptors.
    let (count, _) = recv(stream, &mut into[..seen.bytes], RecvFlags::DONTWAIT)?;
    Ok(StreamRead::Bytes(count))
}

/// Closes a stream without waiting: the closer waits for descriptors in its queue, which the kernel
/// closes with it.
pub fn close(stream: OwnedFd) {
    if !is_free_to_close(stream.as_fd()) {
        closer::close(stream);
    }
}

/// Ends a stream, drops what its queue holds, and says whether a close does not wait: no
/// descriptors are in the queue. It must not be read after this.
pub fn is_free_to_close(stream: BorrowedFd<'_>) -> bool {
    // Nothing more can be sent to it from here on.
    let shut = shutdown(stream, Shutdown::Read);
    matches!(shut, Ok(()) | Err(Errno::NOTCONN)) && is_empty_soon(stream)
}

/// Drains the queue. True when it is empty.
fn is_empty_soon(stream: BorrowedFd<'_>) -> bool {
    let mut buffer = [0; LAST_READ_BYTES];
    for _ in 0..LAST_READS {
        match receive(stream, &mut buffer) {
            Ok(StreamRead::Bytes(0)) => return true,
            Ok(StreamRead::Bytes(_)) => {}
            // The peer has closed, which is reported once and before its bytes.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Ok(StreamRead::Descriptors) | Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::closer::tests::{lingering, send_descriptor};
    use rustix::net::SendFlags;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn pair() -> (UnixStream, UnixStream) {
        let (theirs, ours) = UnixStream::pair().unwrap();
        prepare(ours.as_fd());
        theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (theirs, ours)
    }

    fn next(ours: &UnixStream) -> StreamRead {
        receive(ours.as_fd(), &mut [0; 64]).unwrap()
    }

    #[test]
    fn bytes_are_read_and_a_descriptor_that_comes_with_them_is_not_received() {
        let (mut theirs, ours) = pair();
        let mut buffer = [0; 64];
        let nothing = receive(ours.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        theirs.write_all(b"abc").unwrap();
        assert_eq!(receive(ours.as_fd(), &mut buffer).unwrap(), StreamRead::Bytes(3));
        assert_eq!(&buffer[..3], b"abc");
        theirs.write_all(b"def").unwrap();
        send_descriptor(&theirs, &lingering(), SendFlags::NOSIGNAL);
        assert_eq!(next(&ours), StreamRead::Descriptors);
        assert_eq!(next(&ours), StreamRead::Descriptors);
        close(ours.into());
        ends(theirs);
    }

    #[test]
    fn a_descriptor_of_urgent_data_is_seen_too() {
        let (theirs, ours) = pair();
        let flags = SendFlags::NOSIGNAL | SendFlags::OOB;
        send_descriptor(&theirs, &lingering(), flags);
        assert_eq!(next(&ours), StreamRead::Descriptors);
        close(ours.into());
        ends(theirs);
    }

    #[test]
    fn a_listener_that_hands_credentials_down_is_no_trouble() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        sockopt::set_socket_passcred(&ours, true).unwrap();
        prepare(ours.as_fd());
        theirs.write_all(b"abc").unwrap();
        assert_eq!(next(&ours), StreamRead::Bytes(3));
        drop(theirs);
        assert_eq!(next(&ours), StreamRead::Bytes(0));
        close(ours.into());
    }

    #[test]
    fn a_descriptor_behind_what_was_not_read_is_left_to_the_closer() {
        let (mut theirs, ours) = pair();
        theirs.write_all(&[0; LAST_READ_BYTES]).unwrap();
        send_descriptor(&theirs, &lingering(), SendFlags::NOSIGNAL);
        close(ours.into());
        ends(theirs);
    }

    /// Waits until the other end is closed.
    fn ends(mut stream: UnixStream) {
        match stream.read_to_end(&mut Vec::new()) {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("{other:?}"),
        }
    }
}
