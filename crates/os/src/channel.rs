//! A message channel between two processes: a `SOCK_SEQPACKET` pair that carries small messages,
//! each with the descriptors that belong to it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Most descriptors one message may carry. The kernel's own limit is 253 (`SCM_MAX_FD`).
pub const MAX_FDS_PER_MESSAGE: usize = 100;

/// Longest message, in bytes. Well below Linux's default socket buffer of 208 KiB.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// One end of a channel.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// What arrived on a channel.
#[derive(Debug)]
pub enum Received {
    /// A message and its descriptors, in the order they were sent.
    Message(Vec<u8>, Vec<OwnedFd>),
    /// Nothing is there now (only on a non-blocking read).
    Nothing,
    /// The other end has gone, and all that it said has been taken.
    Closed,
}

impl Channel {
    /// A connected pair, both ends closed on exec.
    ///
    /// # Errors
    /// When the process or the system is out of descriptors.
    pub fn pair() -> io::Result<(Channel, Channel)> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Channel { socket: a }, Channel { socket: b }))
    }

    /// A channel over a descriptor that was inherited.
    pub fn from_fd(socket: OwnedFd) -> Channel {
        Channel { socket }
    }

    /// Sends one message. Never waits: a peer that does not read fills its buffer, and the
    /// sender gets `WouldBlock`.
    ///
    /// # Errors
    /// `WouldBlock` when the peer's buffer is full, `BrokenPipe` when it has gone, `InvalidInput`
    /// for a message over the limits of this module.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.transmit(message, fds, SendFlags::DONTWAIT)
    }

    /// As [`Channel::send`], and waits for room. For whoever talks with somebody that never waits.
    ///
    /// # Errors
    /// As [`Channel::send`], but for `WouldBlock`.
    pub fn send_waiting(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.transmit(message, fds, SendFlags::empty())
    }

    fn transmit(&self, message: &[u8], fds: &[BorrowedFd<'_>], flags: SendFlags) -> io::Result<()> {
        if message.len() > MAX_MESSAGE_BYTES || fds.len() > MAX_FDS_PER_MESSAGE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "message over the limit",
            ));
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
                SendFlags::NOSIGNAL | flags,
            )
        })?;
        Ok(())
    }

    /// Takes the next message, waiting for it when `wait` is set.
    ///
    /// # Errors
    /// What `recvmsg(2)` reports beside "nothing there" and "other end gone".
    pub fn receive(&self, wait: bool) -> io::Result<Received> {
        let mut buffer = vec![0; MAX_MESSAGE_BYTES];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS_PER_MESSAGE))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
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
        // Linux tells once, and before the messages that have arrived, that the other end was closed
        // with messages that nobody had read there.
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
        Ok(Received::Message(buffer, fds))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (a, b) = Channel::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        a.send(b"hello", &[write.as_fd()]).unwrap();
        drop(write);
        let Received::Message(bytes, mut fds) = b.receive(true).unwrap() else {
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
    fn a_full_channel_refuses_who_does_not_wait_and_loses_nothing_of_who_does() {
        let (a, b) = Channel::pair().unwrap();
        let mut sent = 0;
        while a.send(b"x", &[]).is_ok() {
            sent += 1;
        }
        let sender = std::thread::spawn(move || a.send_waiting(b"last", &[]));
        for _ in 0..sent {
            assert!(matches!(b.receive(true).unwrap(), Received::Message(m, _) if m == b"x"));
        }
        assert!(matches!(b.receive(true).unwrap(), Received::Message(m, _) if m == b"last"));
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn an_empty_channel_says_nothing_and_a_lost_one_says_closed() {
        let (a, b) = Channel::pair().unwrap();
        assert!(matches!(b.receive(false).unwrap(), Received::Nothing));
        drop(a);
        assert!(matches!(b.receive(false).unwrap(), Received::Closed));
    }

    #[test]
    fn the_last_words_of_an_end_that_closes_without_having_listened_arrive() {
        for waits in [false, true] {
            let (a, b) = Channel::pair().unwrap();
            a.send(b"nobody reads this", &[]).unwrap();
            b.send(b"first", &[]).unwrap();
            b.send(b"last", &[]).unwrap();
            drop(b);
            for word in [&b"first"[..], b"last"] {
                let heard = a.receive(waits).unwrap();
                assert!(
                    matches!(&heard, Received::Message(m, _) if m == word),
                    "{heard:?}"
                );
            }
            assert!(matches!(a.receive(waits).unwrap(), Received::Closed));
        }
    }
}
