//! Small messages between two processes, each with the descriptors that belong to it: a
//! `SOCK_SEQPACKET` pair.
//!
//! Descriptors are dangerous to their receiver: the kernel closes unwanted ones in the context of
//! the receiver, and closing may block for as long as the sender likes (a TCP socket with
//! `SO_LINGER`, a file of FUSE). They are received only from processes that are trusted at least as
//! much as the receiver.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};

/// Most descriptors one message may carry. The kernel's own limit is 253 (`SCM_MAX_FD`).
pub const MAX_FDS_PER_MESSAGE: usize = 100;

/// Longest message, in bytes. Well below Linux's default socket buffer of 208 KiB.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// One end of a socket pair.
#[derive(Debug)]
pub struct Packets {
    socket: OwnedFd,
}

/// The result of a receive.
#[derive(Debug)]
pub enum Received {
    /// A message and its descriptors, in the order they were sent.
    Message(Vec<u8>, Vec<OwnedFd>),
    /// No message is there now (only on a non-blocking read).
    Nothing,
    /// The other end has closed, and all its messages were received.
    Closed,
}

impl Packets {
    /// A connected pair, both ends closed on exec.
    ///
    /// # Errors
    /// When the process or the system is out of descriptors.
    pub fn pair() -> io::Result<(Packets, Packets)> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Packets { socket: a }, Packets { socket: b }))
    }

    /// A pair of which the first end only sends. The kernel refuses messages to it, so its queue is
    /// always empty: not even the end of that socket closes a descriptor of another process.
    ///
    /// # Errors
    /// As [`Packets::pair`].
    pub fn one_way() -> io::Result<(Packets, Packets)> {
        let (sends, receives) = Packets::pair()?;
        rustix::net::shutdown(&sends.socket, Shutdown::Read)?;
        Ok((sends, receives))
    }

    /// An inherited end.
    pub fn from_fd(socket: OwnedFd) -> Packets {
        Packets { socket }
    }

    /// Sends one message. Never waits: a peer that does not read fills its buffer, and the sender
    /// gets `WouldBlock`.
    ///
    /// # Errors
    /// `WouldBlock` when the peer's buffer is full, `BrokenPipe` when it has closed or only sends,
    /// `InvalidInput` for a message over the limits of this module.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        if message.len() > MAX_MESSAGE_BYTES || fds.len() > MAX_FDS_PER_MESSAGE {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "message over the limit"));
        }
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS_PER_MESSAGE))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(
                &self.socket,
                &[IoSlice::new(message)],
                &mut ancillary,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            )
        })?;
        Ok(())
    }

    /// The next message; waits for it when `wait` is set. It may have up to `most` descriptors.
    /// Some are missing if this process has no free numbers (`EMFILE`).
    ///
    /// # Errors
    /// Errors of `recvmsg(2)` other than an empty queue and a closed peer; `InvalidData` for a
    /// message with more descriptors.
    pub fn receive(&self, wait: bool, most: usize) -> io::Result<Received> {
        let mut buffer = vec![0; MAX_MESSAGE_BYTES];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS_PER_MESSAGE))];
        let most = most.clamp(1, MAX_FDS_PER_MESSAGE);
        let space = &mut space[..rustix::cmsg_space!(ScmRights(most))];
        let mut ancillary = RecvAncillaryBuffer::new(space);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        if !wait {
            flags |= RecvFlags::DONTWAIT;
        }
        let mut take = || {
            rustix::io::retry_on_intr(|| {
                rustix::net::recvmsg(
                    &self.socket,
                    &mut [IoSliceMut::new(&mut buffer)],
                    &mut ancillary,
                    flags,
                )
            })
        };
        // Linux reports once, and before the messages that have arrived, that the other end was
        // closed with unread messages there.
        let received = match take() {
            Err(rustix::io::Errno::CONNRESET) => take(),
            received => received,
        };
        let length = match received {
            Ok(message) if message.bytes == 0 => return Ok(Received::Closed),
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::AGAIN) => return Ok(Received::Nothing),
            Err(rustix::io::Errno::CONNRESET) => return Ok(Received::Closed),
            Err(error) => return Err(error.into()),
        };
        buffer.truncate(length);
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        // The space for one holds a few.
        if fds.len() > most {
            return Err(too_many());
        }
        Ok(Received::Message(buffer, fds))
    }
}

fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message has more descriptors than it may")
}

impl From<Packets> for OwnedFd {
    fn from(packets: Packets) -> OwnedFd {
        packets.socket
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (a, b) = Packets::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        a.send(b"hello", &[write.as_fd()]).unwrap();
        drop(write);
        let Received::Message(bytes, mut fds) = b.receive(true, 1).unwrap() else {
            panic!("expected a message");
        };
        assert_eq!(bytes, b"hello");
        let write = fds.pop().unwrap();
        rustix::io::write(&write, b"x").unwrap();
        let mut byte = [0];
        rustix::io::read(&read, &mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn a_message_with_more_descriptors_than_it_may_have_is_an_error_and_leaves_none() {
        let (a, b) = Packets::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        a.send(b"four", &[write.as_fd(); 4]).unwrap();
        drop(write);
        let error = b.receive(true, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(rustix::io::read(&read, &mut [0; 1]), Ok(0), "all are closed");
    }

    #[test]
    fn nothing_can_be_sent_to_an_end_that_only_sends() {
        let (sends, receives) = Packets::one_way().unwrap();
        let error = receives.send(b"x", &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        sends.send(b"order", &[]).unwrap();
        let heard = receives.receive(true, 1).unwrap();
        assert!(matches!(heard, Received::Message(m, _) if m == b"order"));
        drop(sends);
        let heard = receives.receive(true, 1).unwrap();
        assert!(matches!(heard, Received::Closed));
    }

    #[test]
    fn the_last_words_of_an_end_that_closes_without_having_listened_arrive() {
        for waits in [false, true] {
            let (a, b) = Packets::pair().unwrap();
            a.send(b"it is not read", &[]).unwrap();
            b.send(b"first", &[]).unwrap();
            b.send(b"last", &[]).unwrap();
            drop(b);
            for word in [&b"first"[..], b"last"] {
                let heard = a.receive(waits, 1).unwrap();
                assert!(matches!(&heard, Received::Message(m, _) if m == word), "{heard:?}");
            }
            assert!(matches!(a.receive(waits, 1).unwrap(), Received::Closed));
        }
    }
}
