//! A Unix stream whose peer may send descriptors, on a kernel that cannot refuse them. None is ever
//! received: see [`maitred_os::sockets::wary`].

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

/// How long nothing more is logged after a line about descriptors.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// A stream of which no descriptor is received.
#[derive(Debug)]
pub struct WaryStream {
    /// There until this is dropped.
    stream: Option<UnixStream>,
    /// Its peer has sent a descriptor.
    is_broken: bool,
}

impl WaryStream {
    /// One that was just accepted.
    ///
    /// # Errors
    /// When the event loop has no room for it.
    pub fn of_accepted(socket: OwnedFd) -> io::Result<WaryStream> {
        wary::prepare(socket.as_fd());
        Ok(WaryStream::of(UnixStream::from_std(socket.into())?))
    }

    /// Connects to the server at `path`.
    ///
    /// # Errors
    /// What the system says, or that too many streams wait to be closed.
    pub async fn connect(socket: UnixSocket, path: &Path) -> io::Result<WaryStream> {
        if closer::is_full() {
            let why = "too many connections wait to be closed that descriptors came over";
            return Err(io::Error::other(why));
        }
        wary::prepare(socket.as_fd());
        Ok(WaryStream::of(socket.connect(path).await?))
    }

    fn of(stream: UnixStream) -> WaryStream {
        WaryStream {
            stream: Some(stream),
            is_broken: false,
        }
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

    /// Does something else than reading that may have to wait.
    ///
    /// # Errors
    /// What it says; `WouldBlock` when it has to wait.
    pub fn try_io<T>(
        &self,
        interest: Interest,
        act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let stream = self.there()?;
        stream.try_io(interest, || act(stream.as_fd()))
    }

    /// Waits until more may be sent, for one task at a time.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.there()?.poll_write_ready(cx)
    }

    /// Says that nothing more will be sent.
    pub fn shut_down(&self) {
        // A peer that has gone need not be told.
        if let Ok(stream) = self.there() {
            let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
        }
    }

    fn read_into(&mut self, into: &mut ReadBuf<'_>) -> io::Result<()> {
        let stream = self.there()?;
        let free = into.initialize_unfilled();
        let received = stream.try_io(Interest::READABLE, || wary::receive(stream.as_fd(), free))?;
        match received {
            wary::Received::Bytes(count) => into.advance(count),
            wary::Received::Descriptors => {
                say_who(stream.as_fd());
                self.is_broken = true;
                return Err(broken());
            }
        }
        Ok(())
    }
}

fn broken() -> io::Error {
    io::Error::other("the other side has sent a descriptor")
}

/// Logs who sends descriptors, now and then.
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
         servers nor servers behind this one do so; more such lines are left out for {} s",
        LOG_EVERY.as_secs()
    );
}

impl Drop for WaryStream {
    fn drop(&mut self) {
        // What cannot be taken off the event loop is closed by it.
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
