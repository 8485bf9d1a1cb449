//! What a client's bytes come and go over: its socket, as it is or under TLS.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::socket::Socket;
use crate::net::tls;
use crate::net::tls::{NoTls, TlsStream};

/// What a client's bytes come and go over.
#[derive(Debug)]
pub enum Stream {
    /// Its socket.
    Plain(Socket),
    /// Its socket under TLS.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Begins TLS on a plain stream of which nothing has been read.
    ///
    /// # Errors
    /// When it does not come about. What a client that speaks plain HTTP has sent is in `input`
    /// then, and the stream is as it was.
    pub async fn secure(
        &mut self,
        config: Arc<ServerConfig>,
        input: &mut BytesMut,
    ) -> Result<(), NoTls> {
        let Stream::Plain(socket) = self else {
            return Ok(());
        };
        let mut first = BytesMut::new();
        if socket.read(&mut first).await? == 0 {
            return Err(NoTls::Closed);
        }
        if tls::is_plain_http(&first) {
            *input = first;
            return Err(NoTls::PlainHttp);
        }
        let socket = std::mem::replace(socket, Socket::Lost);
        let mut stream = Box::new(TlsStream::new(socket, first, config)?);
        stream.handshake().await?;
        *self = Stream::Tls(stream);
        Ok(())
    }

    /// TLS, if it is spoken.
    pub fn tls(&self) -> Option<&TlsStream> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => Some(stream),
        }
    }

    /// Whether the event loop knows it.
    pub fn is_registered(&self) -> bool {
        match self {
            Stream::Plain(socket) => socket.is_registered(),
            Stream::Tls(stream) => stream.socket().is_registered(),
        }
    }

    /// The address the client connected to.
    ///
    /// # Errors
    /// When the connection is no more.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Plain(socket) => socket.local_addr(),
            Stream::Tls(stream) => stream.socket().local_addr(),
        }
    }

    /// Sends what finds room now. `more` says that other bytes follow at once. After `None` the next
    /// to be sent must be the same bytes: under TLS they are sealed already.
    ///
    /// # Errors
    /// When the client has gone.
    pub fn try_send(&mut self, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
        match self {
            Stream::Plain(socket) => socket.try_send(bytes, more),
            Stream::Tls(stream) => stream.try_send(bytes, more),
        }
    }

    /// As [`Stream::try_send`], with bytes that follow these.
    ///
    /// # Errors
    /// When the client has gone.
    pub fn try_send_both(&mut self, first: &[u8], second: &[u8]) -> io::Result<Option<usize>> {
        match self {
            Stream::Plain(socket) => socket.try_send_both(first, second),
            Stream::Tls(stream) => stream.try_send(first, true),
        }
    }

    /// Sends a piece of a file as far as there is room, and says how many bytes went. After `None`
    /// the next to be sent must be the same piece.
    ///
    /// # Errors
    /// When the client has gone or the file cannot be read.
    pub fn try_sendfile(
        &mut self,
        file: &OwnedFd,
        at: u64,
        count: usize,
    ) -> io::Result<Option<usize>> {
        match self {
            Stream::Plain(socket) => socket.try_sendfile(file, at, count),
            Stream::Tls(stream) => stream.try_sendfile(file, at, count),
        }
    }

    /// Waits for something to read and appends it to `into`; 0 at the end.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(into).await,
            Stream::Tls(stream) => std::future::poll_fn(|cx| stream.poll_read(cx, into)).await,
        }
    }

    /// Waits until more may be sent.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn writable(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.writable().await,
            Stream::Tls(stream) => stream.socket_mut().writable().await,
        }
    }

    /// Bytes that the client's system has said it has.
    ///
    /// # Errors
    /// When the connection is broken, or is none over TCP.
    pub fn acknowledged(&self) -> io::Result<u64> {
        match self {
            Stream::Plain(socket) => socket.acknowledged(),
            Stream::Tls(stream) => stream.socket().acknowledged(),
        }
    }

    /// Has the connection end with a reset; what the client has not taken is thrown away.
    pub fn abandon(&self) {
        match self {
            Stream::Plain(socket) => socket.abandon(),
            Stream::Tls(stream) => stream.socket().abandon(),
        }
    }

    /// Says that nothing more will be sent.
    pub fn shut_down(&mut self) {
        match self {
            Stream::Plain(socket) => socket.shut_down(),
            Stream::Tls(stream) => stream.shut_down(),
        }
    }

    /// The connection will end in the middle of an answer: a client over TLS must not take it for
    /// the end of that.
    pub fn break_off(&mut self) {
        if let Stream::Tls(stream) = self {
            stream.break_off();
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => socket.poll_read_into(cx, into),
            Stream::Tls(stream) => stream.poll_read_into(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => loop {
                if let Some(count) = socket.try_send(bytes, false)? {
                    return Poll::Ready(Ok(count));
                }
                ready!(socket.poll_writable(cx))?;
            },
            Stream::Tls(stream) => stream.poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => socket.poll_write_vectored(cx, pieces),
            Stream::Tls(stream) => stream.poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => stream.poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        self.shut_down();
        Poll::Ready(Ok(()))
    }
}
