//! A client's socket. A freshly accepted socket is used without the event loop: most of its bytes
//! are there already, and a connection for one request need never be registered. The first read or
//! write that would block registers it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use maitred_os::sockets::acknowledged::acknowledged;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sendmsg, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::net::descriptor_guard::WaryStream;

/// Bytes of one read. The thread has a common buffer for it, and what is kept is as small as the
/// bytes read: most requests are small, and an idle connection holds no buffer.
const READ_BYTES: usize = 16 * 1024;

/// A client's socket.
#[derive(Debug)]
pub enum Socket {
    /// Freshly accepted, not registered with the event loop.
    Fresh(OwnedFd, Family),
    /// Registered, over TCP.
    Tcp(TcpStream),
    /// Registered, a Unix socket.
    Unix(UnixStream),
    /// Registered, a Unix socket whose peer may send descriptors (see
    /// [`WaryStream`](super::descriptor_guard::WaryStream)).
    Wary(WaryStream),
    /// Its registration failed.
    Lost,
}

/// The family of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// TCP.
    Tcp,
    /// A Unix socket.
    Unix,
}

/// `None` for an operation that would block.
fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads available bytes without waiting; none if there are none yet.
fn receive(fd: &OwnedFd, into: &mut BytesMut) -> io::Result<Option<usize>> {
    let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
    match rustix::net::recv(fd, &mut buffer, RecvFlags::empty()) {
        Ok(((bytes, _), _)) => {
            into.extend_from_slice(bytes);
            Ok(Some(bytes.len()))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Socket {
    /// Wraps a newly accepted socket. `is_wary`: its peer may send descriptors, which the kernel
    /// does not refuse.
    ///
    /// # Errors
    /// When it cannot be registered with the event loop.
    pub fn accepted(socket: OwnedFd, family: Family, is_wary: bool) -> io::Result<Socket> {
        match family {
            Family::Unix if is_wary => Ok(Socket::Wary(WaryStream::of_accepted(socket)?)),
            family => Ok(Socket::Fresh(socket, family)),
        }
    }

    /// Whether it is registered with the event loop.
    pub fn is_registered(&self) -> bool {
        matches!(self, Socket::Tcp(_) | Socket::Unix(_) | Socket::Wary(_))
    }

    /// The address the client connected to.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Fresh(fd, _) => Ok(SocketAddr::try_from(rustix::net::getsockname(fd)?)?),
            Socket::Tcp(stream) => stream.local_addr(),
            Socket::Unix(_) | Socket::Wary(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
            Socket::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Performs an operation on the socket; `None` when it would block.
    fn attempt<T>(
        &self,
        interest: Interest,
        act: impl Fn(rustix::fd::BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> io::Result<Option<T>> {
        let whole = |fd: rustix::fd::BorrowedFd<'_>| {
            rustix::io::retry_on_intr(|| act(fd)).map_err(io::Error::from)
        };
        match self {
            Socket::Fresh(fd, _) => unless_blocked(whole(fd.as_fd())),
            Socket::Tcp(stream) => {
                unless_blocked(stream.try_io(interest, || whole(stream.as_fd())))
            }
            Socket::Unix(stream) => {
                unless_blocked(stream.try_io(interest, || whole(stream.as_fd())))
            }
            Socket::Wary(stream) => unless_blocked(stream.try_io(interest, whole)),
            Socket::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends as many bytes as fit into the socket buffer. `more` says that other bytes follow at
    /// once.
    ///
    /// # Errors
    /// When the client has closed the connection.
    pub fn try_send(&self, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more);
        self.attempt(Interest::WRITABLE, |fd| rustix::net::send(fd, bytes, flags))
    }

    /// Sends as many of these bytes and the following ones as fit into the socket buffer.
    ///
    /// # Errors
    /// When the client has closed the connection.
    pub fn try_send_both(&self, first: &[u8], second: &[u8]) -> io::Result<Option<usize>> {
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        self.attempt(Interest::WRITABLE, |fd| {
            let mut nothing_else = SendAncillaryBuffer::default();
            sendmsg(fd, &parts, &mut nothing_else, SendFlags::NOSIGNAL)
        })
    }

    /// Sends as much of a piece of a file as fits into the socket buffer, and returns the bytes
    /// sent.
    ///
    /// # Errors
    /// When the client has closed the connection or the file cannot be read.
    pub fn try_sendfile(&self, file: &OwnedFd, at: u64, count: usize) -> io::Result<Option<usize>> {
        self.attempt(Interest::WRITABLE, |fd| {
            let mut offset = at;
            rustix::fs::sendfile(fd, file, Some(&mut offset), count)
        })
    }

    /// Waits for something to read and appends it to `into`; 0 at the end.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, into)).await
    }

    /// As [`Socket::read`], for one task at a time.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        if let Socket::Fresh(fd, _) = self
            && let Some(count) = receive(fd, into)?
        {
            return Poll::Ready(Ok(count));
        }
        // tokio's `poll_read` knows, unlike `try_read`, that a short read has emptied the socket.
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut buffer);
        ready!(self.poll_read_into(cx, &mut buffer))?;
        into.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// As [`Socket::poll_read`], into a buffer of fixed size.
    pub fn poll_read_into(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.register()? {
            Registered::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Registered::Unix(stream) => Pin::new(stream).poll_read(cx, into),
            Registered::Wary(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }

    /// Sends as much of several pieces as fits into the socket buffer.
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.register()? {
            Registered::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Registered::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Registered::Wary(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    /// As [`Socket::writable`], for one task at a time.
    pub fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.register()? {
            Registered::Tcp(stream) => stream.poll_write_ready(cx),
            Registered::Unix(stream) => stream.poll_write_ready(cx),
            Registered::Wary(stream) => stream.poll_write_ready(cx),
        }
    }

    /// Waits until more can be sent.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn writable(&mut self) -> io::Result<()> {
        match self.register()? {
            Registered::Tcp(stream) => stream.writable().await,
            Registered::Unix(stream) => stream.writable().await,
            Registered::Wary(stream) => poll_fn(|cx| stream.poll_write_ready(cx)).await,
        }
    }

    /// Bytes acknowledged by the client's TCP.
    ///
    /// # Errors
    /// When the connection is broken, or not over TCP.
    pub fn acknowledged(&self) -> io::Result<u64> {
        match self {
            Socket::Fresh(fd, Family::Tcp) => acknowledged(fd),
            Socket::Tcp(stream) => acknowledged(stream),
            Socket::Fresh(..) | Socket::Unix(_) | Socket::Wary(_) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            Socket::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Resets the connection when it is closed: the kernel drops unsent bytes instead of holding
    /// them while the client does not read (nginx's `reset_timedout_connection`).
    pub fn abandon(&self) {
        let abandon = |fd: rustix::fd::BorrowedFd<'_>| {
            // A closed connection has no unsent bytes.
            let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
        };
        match self {
            Socket::Fresh(fd, _) => abandon(fd.as_fd()),
            Socket::Tcp(stream) => abandon(stream.as_fd()),
            Socket::Unix(stream) => abandon(stream.as_fd()),
            // The option exists for TCP only.
            Socket::Wary(_) => {}
            Socket::Lost => {}
        }
    }

    /// Shuts the sending side down.
    pub fn shut_down(&self) {
        let shut_down = |fd: rustix::fd::BorrowedFd<'_>| {
            // A closed peer needs no shutdown.
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
        };
        match self {
            Socket::Fresh(fd, _) => shut_down(fd.as_fd()),
            Socket::Tcp(stream) => shut_down(stream.as_fd()),
            Socket::Unix(stream) => shut_down(stream.as_fd()),
            Socket::Wary(stream) => stream.shut_down(),
            Socket::Lost => {}
        }
    }

    fn register(&mut self) -> io::Result<Registered<'_>> {
        if matches!(self, Socket::Fresh(..))
            && let Socket::Fresh(fd, family) = std::mem::replace(self, Socket::Lost)
        {
            *self = match family {
                Family::Tcp => Socket::Tcp(TcpStream::from_std(fd.into())?),
                Family::Unix => Socket::Unix(UnixStream::from_std(fd.into())?),
            };
        }
        match self {
            Socket::Tcp(stream) => Ok(Registered::Tcp(stream)),
            Socket::Unix(stream) => Ok(Registered::Unix(stream)),
            Socket::Wary(stream) => Ok(Registered::Wary(stream)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// A registered socket.
enum Registered<'a> {
    Tcp(&'a mut TcpStream),
    Unix(&'a mut UnixStream),
    Wary(&'a mut WaryStream),
}
