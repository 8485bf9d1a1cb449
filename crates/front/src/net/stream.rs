//! The byte stream of a client: its socket, plain or under TLS.

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

/// The byte stream of a client.
#[derive(Debug)]
pub enum Stream {
    /// Its socket.
    Plain(Socket),
    /// Its socket under TLS.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Starts TLS on a plain stream that has not been read from.
    ///
    /// # Errors
    /// When the handshake fails. For a client that speaks plain HTTP, its bytes are in `input`
    /// then, and the stream stays plain.
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

    /// The TLS stream, if it is one.
    pub fn tls(&self) -> Option<&TlsStream> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => Some(stream),
        }
    }

    /// Whether it is registered with the event loop.
    pub fn is_registered(&self) -> bool {
        match self {
            Stream::Plain(socket) => socket.is_registered(),
            Stream::Tls(stream) => stream.socket().is_registered(),
        }
    }

    /// The address the client connected to.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Plain(socket) => socket.local_addr(),
            Stream::Tls(stream) => stream.socket().local_addr(),
        }
    }

    /// Sends as many bytes as fit into the socket buffer. `more` says that other bytes follow at
    /// once. After `None` the next bytes must be the same: TLS has encrypted them already.
    ///
    /// # Errors
    /// When the client has closed the connection.
    pub fn try_send(&mut self, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
        match self {
            Stream::Plain(socket) => socket.try_send(bytes, more),
            Stream::Tls(stream) => stream.try_send(bytes, more),
        }
    }

    /// As [`Stream::try_send`], with bytes that follow these.
    ///
    /// # Errors
    /// When the client has closed the connection.
    pub fn try_send_both(&mut self, first: &[u8], second: &[u8]) -> io::Result<Option<usize>> {
        match self {
            Stream::Plain(socket) => socket.try_send_both(first, second),
            Stream::Tls(stream) => stream.try_send(first, true),
        }
    }

    /// Sends as much of a piece of a file as fits into the socket buffer, and returns the bytes
    /// sent. After `None` the next piece must be the same.
    ///
    /// # Errors
    /// When the client has closed the connection or the file cannot be read.
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
        std::future::poll_fn(|cx| self.poll_read(cx, into)).await
    }

    /// As [`Stream::read`], for one task at a time.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(socket) => socket.poll_read(cx, into),
            Stream::Tls(stream) => stream.poll_read(cx, into),
        }
    }

    /// Waits until more can be sent.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn writable(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.writable().await,
            Stream::Tls(stream) => stream.socket_mut().writable().await,
        }
    }

    /// As [`Stream::writable`], for one task at a time.
    pub fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(socket) => socket.poll_writable(cx),
            Stream::Tls(stream) => stream.socket_mut().poll_writable(cx),
        }
    }

    /// Bytes acknowledged by the client's TCP.
    ///
    /// # Errors
    /// When the connection is broken, or not over TCP.
    pub fn acknowledged(&self) -> io::Result<u64> {
        match self {
            Stream::Plain(socket) => socket.acknowledged(),
            Stream::Tls(stream) => stream.socket().acknowledged(),
        }
    }

    /// Resets the connection when it is closed; unsent bytes are dropped.
    pub fn abandon(&self) {
        match self {
            Stream::Plain(socket) => socket.abandon(),
            Stream::Tls(stream) => stream.socket().abandon(),
        }
    }

    /// Shuts the sending side down.
    pub fn shut_down(&mut self) {
        match self {
            Stream::Plain(socket) => socket.shut_down(),
            Stream::Tls(stream) => stream.shut_down(),
        }
    }

    /// Ends the connection in the middle of a response, so that a TLS client does not take this for
    /// the end of the response.
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
