//! A client's socket. One that was just accepted is used as it is: most of what it brings is
//! there already, and a connection for one request need never be registered with the event loop.
//! The first time there is nothing to read or no room to write, it is.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use bytes::BytesMut;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Bytes taken from a fresh connection in one read.
const FIRST_READ_BYTES: usize = 8 * 1024;

/// A client's socket.
#[derive(Debug)]
pub enum Stream {
    /// As it was accepted.
    Fresh(OwnedFd),
    /// Known to the event loop.
    Registered(TcpStream),
    /// Lost while it was being registered.
    Lost,
}

/// What a socket says when it has to be waited for.
fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads what is there without waiting; none if there is nothing yet.
fn receive(fd: &OwnedFd, into: &mut BytesMut) -> io::Result<Option<usize>> {
    let mut buffer = [MaybeUninit::uninit(); FIRST_READ_BYTES];
    match rustix::net::recv(fd, &mut buffer, RecvFlags::empty()) {
        Ok(((bytes, _), _)) => {
            into.extend_from_slice(bytes);
            Ok(Some(bytes.len()))
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Stream {
    /// Whether the event loop knows it.
    pub fn is_registered(&self) -> bool {
        matches!(self, Stream::Registered(_))
    }

    /// The address the client connected to.
    ///
    /// # Errors
    /// When the connection is no more.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Fresh(fd) => Ok(SocketAddr::try_from(rustix::net::getsockname(fd)?)?),
            Stream::Registered(stream) => stream.local_addr(),
            Stream::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Does something to the socket that may have to wait; `None` when it has to.
    fn attempt<T>(
        &self,
        interest: Interest,
        act: impl Fn(rustix::fd::BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> io::Result<Option<T>> {
        let whole = |fd| rustix::io::retry_on_intr(|| act(fd)).map_err(io::Error::from);
        match self {
            Stream::Fresh(fd) => unless_blocked(whole(fd.as_fd())),
            Stream::Registered(stream) => {
                unless_blocked(stream.try_io(interest, || whole(stream.as_fd())))
            }
            Stream::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends what finds room now. `more` says that other bytes follow at once.
    ///
    /// # Errors
    /// When the client has gone.
    pub fn try_send(&self, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more);
        self.attempt(Interest::WRITABLE, |fd| rustix::net::send(fd, bytes, flags))
    }

    /// Sends a piece of a file as far as there is room, and says how many bytes went.
    ///
    /// # Errors
    /// When the client has gone or the file cannot be read.
    pub fn try_sendfile(&self, file: &OwnedFd, at: u64, count: usize) -> io::Result<Option<usize>> {
        self.attempt(Interest::WRITABLE, |fd| {
            let mut offset = at;
            rustix::fs::sendfile(fd, file, Some(&mut offset), count)
        })
    }

    /// Reads what is there, up to the spare room of `into`; 0 at the end.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn read(&mut self, into: &mut BytesMut, room: usize) -> io::Result<usize> {
        use tokio::io::AsyncReadExt;
        if let Stream::Fresh(fd) = self
            && let Some(count) = receive(fd, into)?
        {
            return Ok(count);
        }
        let stream = self.register()?;
        stream.readable().await?;
        // An idle connection holds no buffer, so room is made only now. tokio's `poll_read`
        // knows, unlike `try_read`, that a short read has emptied the socket.
        into.reserve(room);
        stream.read_buf(into).await
    }

    /// Waits until more may be sent.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn writable(&mut self) -> io::Result<()> {
        self.register()?.writable().await
    }

    /// Says that nothing more will be sent.
    pub fn shut_down(&self) {
        let shut_down = |fd: rustix::fd::BorrowedFd<'_>| {
            // A client that has gone need not be told.
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
        };
        match self {
            Stream::Fresh(fd) => shut_down(fd.as_fd()),
            Stream::Registered(stream) => shut_down(stream.as_fd()),
            Stream::Lost => {}
        }
    }

    fn register(&mut self) -> io::Result<&mut TcpStream> {
        if let Stream::Fresh(_) = self
            && let Stream::Fresh(fd) = std::mem::replace(self, Stream::Lost)
        {
            *self = Stream::Registered(TcpStream::from_std(fd.into())?);
        }
        match self {
            Stream::Registered(stream) => Ok(stream),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
