//! An upstream FastCGI server in place of a pool, such as php-fpm on a socket.

use crate::backend::error::Failure;
use crate::backend::{lookups, upstream_sockets};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use maitred_config::Upstream;
use maitred_scoreboard::RequestOutcome;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::http::transfers::Transfer;
use crate::pool::exchange::ExchangeEvent;

/// Connect timeout.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout between two reads or writes (nginx's `fastcgi_read_timeout`).
pub const SILENCE: Duration = Duration::from_secs(60);
/// Bytes taken from the server in one read.
const READ_BYTES: usize = 64 * 1024;

/// A connection to a server.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// One request to an upstream FastCGI server, over a separate connection.
pub struct ForeignRequest {
    stream: Box<dyn ByteStream>,
    _transfer: Transfer,
    /// The unsent part of the request.
    unsent: Vec<u8>,
    sent: usize,
    assignment_sent: bool,
    wants_room: bool,
    /// It reads no more of the request.
    has_stopped_reading: bool,
    /// Ends when it has been silent for too long.
    silence: Pin<Box<Sleep>>,
    is_silent: bool,
}

impl ForeignRequest {
    /// Connects and starts to send `request`.
    ///
    /// # Errors
    /// When the server has as many connections as it may, or cannot be reached.
    pub async fn connect(upstream: &Upstream, request: Vec<u8>) -> Result<ForeignRequest, Failure> {
        let name = name(upstream);
        let transfer = Transfer::begin(&name.as_str().into());
        let transfer = transfer.ok_or(RequestOutcome::UpstreamFull)?;
        let unreachable = |why| Failure::detailed(RequestOutcome::Unreachable, why);
        let stream = tokio::time::timeout(CONNECT, open(upstream))
            .await
            .map_err(|_| unreachable(format!("{name} did not accept a connection in 5 s")))?
            .map_err(|error| unreachable(format!("{name} cannot be reached: {error}")))?;
        Ok(ForeignRequest {
            stream,
            _transfer: transfer,
            unsent: request,
            sent: 0,
            assignment_sent: false,
            wants_room: false,
            has_stopped_reading: false,
            silence: Box::pin(tokio::time::sleep(SILENCE)),
            is_silent: false,
        })
    }

    /// The next event.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ExchangeEvent> {
        if !self.assignment_sent {
            self.assignment_sent = true;
            return Poll::Ready(ExchangeEvent::Assigned);
        }
        if !self.has_stopped_reading && self.write(cx).is_err() {
            // It may have responded before it had read everything, and its response counts.
            self.has_stopped_reading = true;
        }
        if self.wants_room && self.unsent.is_empty() {
            self.wants_room = false;
            return Poll::Ready(ExchangeEvent::Room);
        }
        let mut bytes = vec![0; READ_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
            Poll::Pending => self.poll_silence(cx),
            // A complete response has an end record of its own.
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                Poll::Ready(ExchangeEvent::Ended(Err(RequestOutcome::WorkerDied)))
            }
            Poll::Ready(Ok(())) => {
                let count = buffer.filled().len();
                bytes.truncate(count);
                self.is_silent = false;
                Poll::Ready(ExchangeEvent::Response(bytes))
            }
            Poll::Ready(Err(_)) => {
                Poll::Ready(ExchangeEvent::Ended(Err(RequestOutcome::WorkerDied)))
            }
        }
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<ExchangeEvent> {
        if !self.is_silent {
            self.is_silent = true;
            self.silence.as_mut().reset(Instant::now() + SILENCE);
        }
        ready!(self.silence.as_mut().poll(cx));
        Poll::Ready(ExchangeEvent::Ended(Err(RequestOutcome::UpstreamTimeout)))
    }

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            let rest = &self.unsent[self.sent..];
            match Pin::new(&mut self.stream).poll_write(cx, rest)? {
                Poll::Ready(count) => {
                    self.sent += count;
                    self.is_silent = false;
                }
                Poll::Pending => return Ok(()),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }

    /// Accepts more of the request if the last part has been sent, and returns the number of
    /// accepted bytes. Unless that is all, an [`ExchangeEvent::Room`] follows.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        self.wants_room = !bytes.is_empty();
        if !self.unsent.is_empty() {
            return 0;
        }
        self.unsent.extend_from_slice(bytes);
        bytes.len()
    }
}

/// Connects.
///
/// # Errors
/// The system's error.
pub async fn open(upstream: &Upstream) -> io::Result<Box<dyn ByteStream>> {
    Ok(match upstream {
        Upstream::Unix(path) => upstream_sockets::connect(path).await?,
        Upstream::Tcp { host, port } => {
            let addresses = lookups::addresses(host, *port).await?;
            let stream = TcpStream::connect(&addresses[..]).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
    })
}

/// The server's name as in the configuration.
pub fn name(upstream: &Upstream) -> String {
    match upstream {
        Upstream::Unix(path) => format!("unix:{}", path.display()),
        Upstream::Tcp { host, port } => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_os::sockets::unix::refuse_descriptors;
    use std::future::poll_fn;
    use std::os::fd::AsFd;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixListener;

    fn listen(folder: &tempfile::TempDir) -> (UnixListener, Upstream) {
        let path = folder.path().join("server.sock");
        (UnixListener::bind(&path).unwrap(), Upstream::Unix(path))
    }

    async fn next(foreign: &mut ForeignRequest) -> ExchangeEvent {
        poll_fn(|cx| foreign.poll_event(cx)).await
    }

    #[tokio::test]
    async fn an_answer_given_before_the_body_was_read_still_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (listener, upstream) = listen(&folder);
        let request = vec![0; 4 * 1024 * 1024];
        let mut foreign = ForeignRequest::connect(&upstream, request).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        assert!(matches!(next(&mut foreign).await, ExchangeEvent::Assigned));
        server.write_all(b"too large").await.unwrap();
        drop(server);
        let response = next(&mut foreign).await;
        assert!(matches!(response, ExchangeEvent::Response(bytes) if bytes == b"too large"));
        assert!(matches!(
            next(&mut foreign).await,
            ExchangeEvent::Ended(Err(RequestOutcome::WorkerDied))
        ));
    }

    #[tokio::test]
    async fn a_server_can_send_no_descriptor_where_the_kernel_can_refuse_it() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let folder = tempfile::tempdir().unwrap();
        let (listener, upstream) = listen(&folder);
        if refuse_descriptors(listener.as_fd()).is_err() {
            return eprintln!("skipped: this kernel is older than Linux 6.16");
        }
        let _foreign = ForeignRequest::connect(&upstream, vec![0; 8]).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let sent = std::fs::File::open(folder.path()).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut more = SendAncillaryBuffer::new(&mut space);
        let fds = [sent.as_fd()];
        more.push(SendAncillaryMessage::ScmRights(&fds));
        let bytes = [io::IoSlice::new(b"x")];
        let refused = sendmsg(&server, &bytes, &mut more, SendFlags::NOSIGNAL);
        assert_eq!(refused, Err(rustix::io::Errno::PERM));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_for_too_long_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let (listener, upstream) = listen(&folder);
        let mut foreign = ForeignRequest::connect(&upstream, vec![0; 8]).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        assert!(matches!(next(&mut foreign).await, ExchangeEvent::Assigned));
        for _ in 0..2 {
            // Each word gives it the whole time again.
            tokio::time::advance(SILENCE / 2).await;
            server.write_all(b"word").await.unwrap();
            assert!(matches!(next(&mut foreign).await, ExchangeEvent::Response(_)));
        }
        let heard = Instant::now();
        assert!(matches!(
            next(&mut foreign).await,
            ExchangeEvent::Ended(Err(RequestOutcome::UpstreamTimeout))
        ));
        assert!(heard.elapsed() >= SILENCE);
    }
}
