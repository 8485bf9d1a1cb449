//! Guards a Unix stream against descriptors sent by its peer, on a kernel that cannot refuse them.
//! See [`maitred_os::sockets::wary`].

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use maitred_os::sockets::{closer, wary};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{UnixSocket, UnixStream};

/// Interval between two log lines about descriptors.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// A stream that receives no descriptor.
#[derive(Debug)]
pub struct WaryStream {
    /// Present until drop.
    stream: Option<UnixStream>,
    /// The peer has sent a descriptor.
    is_broken: bool,
}

impl WaryStream {
    /// A stream that was just accepted.
    ///
    /// # Errors
    /// When it cannot be registered with the event loop.
    pub fn of_accepted(socket: OwnedFd) -> io::Result<WaryStream> {
        wary::prepare(socket.as_fd());
        Ok(WaryStream::of(UnixStream::from_std(socket.into())?))
    }

    /// Connects to the server at `path`.
    ///
    /// # Errors
    /// The system's error, or that too many streams wait to be closed.
    pub async fn connect(socket: UnixSocket, path: &Path) -> io::Result<WaryStream> {
        if closer::is_full() {
            let why = "too many connections that carried descriptors wait to be closed";
            return Err(io::Error::other(why));
        }
        wary::prepare(socket.as_fd());
        Ok(WaryStream::of(socket.connect(path).await?))
    }

    fn of(stream: UnixStream) -> WaryStream {
        WaryStream { stream: Some(stream), is_broken: false }
    }

    fn there(&self) -> io::Result<&UnixStream> {
        let stream = self.stream.as_ref();
        stream.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn pinned(self: Pin<&mut Self>) -> io::Result<Pin<&mut UnixStream>> {
        let stream = self.get_mut().stream.as_mut();
        let stream = stream.ok_or(io::ErrorKind::NotConnected)?;
        Ok(Pin::new(stream))
    }

    /// Performs an operation other than reading.
    ///
    /// # Errors
    /// Those of the operation; `WouldBlock` when it has to wait.
    pub fn try_io<T>(
        &self,
        interest: Interest,
        act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let stream = self.there()?;
        stream.try_io(interest, || act(stream.as_fd()))
    }

    /// Waits until more can be sent, for one task at a time.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.there()?.poll_write_ready(cx)
    }

    /// Shuts the sending side down.
    pub fn shut_down(&self) {
        // A closed peer needs no shutdown.
        if let Ok(stream) = self.there() {
            let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
        }
    }

    fn read_into(&mut self, into: &mut ReadBuf<'_>) -> io::Result<()> {
        let stream = self.there()?;
        let free = into.initialize_unfilled();
        let received = stream.try_io(Interest::READABLE, || wary::receive(stream.as_fd(), free))?;
        match received {
            wary::StreamRead::Bytes(count) => into.advance(count),
            wary::StreamRead::Descriptors => {
                say_who(stream.as_fd());
                self.is_broken = true;
                return Err(broken());
            }
        }
        Ok(())
    }
}

fn broken() -> io::Error {
    io::Error::other("the peer has sent a descriptor")
}

/// Logs the peer that sends descriptors, at a limited rate.
fn say_who(stream: BorrowedFd<'_>) {
    static LAST: Mutex<Option<Duration>> = Mutex::new(None);
    let now = maitred_scoreboard::now();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_some_and(|last| now < last + LOG_EVERY) {
        return;
    }
    *last = Some(now);
    drop(last);
    let who = sockopt::socket_peercred(stream).map_or_else(
        |_| "a process".to_owned(),
        |peer| {
            let (pid, user) = (peer.pid.as_raw_nonzero(), peer.uid.as_raw());
            format!("process {pid} of user {user}")
        },
    );
    tracing::warn!(
        "{who} has sent an open file over a Unix socket and its connection is closed: neither web \
         servers nor upstream servers do so; further such lines are suppressed for {} s",
        LOG_EVERY.as_secs()
    );
}

impl Drop for WaryStream {
    fn drop(&mut self) {
        // A stream that cannot leave the event loop is closed by it.
        if let Some(Ok(stream)) = self.stream.take().map(UnixStream::into_std) {
            wary::close(stream.into());
        }
    }
}

impl AsyncRead for WaryStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_broken {
            return Poll::Ready(Err(broken()));
        }
        loop {
            ready!(this.there()?.poll_read_ready(cx))?;
            match this.read_into(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return Poll::Ready(read),
            }
        }
    }
}

impl AsyncWrite for WaryStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pinned()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pinned()?.poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned()?.poll_shutdown(cx)
    }
}

#[cfg(test)]
pub(crate) mod tests;
