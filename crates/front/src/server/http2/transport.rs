//! The transport for h2: bytes that were read before come first, and a client that sends without
//! end does not occupy the thread.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::stream::Stream;
use crate::server::http1::connection::Connection;
use crate::server::http2::connection_state::ConnectionState;
use crate::server::http2::frames::Frames;

/// Bytes read before other connections of the thread get their turn.
const TURN_BYTES: usize = 64 * 1024;

/// A client's socket under HTTP/2.
pub struct Transport {
    stream: Stream,
    /// Bytes read before h2 took over.
    input: BytesMut,
    trunk: Arc<ConnectionState>,
    /// Bytes read in the current turn.
    turn: usize,
    frames: Frames,
}

impl Transport {
    /// A connection with the bytes `input` read before.
    pub fn new(stream: Stream, input: BytesMut, trunk: Arc<ConnectionState>) -> Transport {
        Transport { stream, input, trunk, turn: 0, frames: Frames::new() }
    }

    /// Resets the connection of a client that is too slow, and drops unsent bytes.
    pub fn abandon(self) {
        self.stream.abandon();
    }

    /// Closes the connection so that the client gets the last bytes (nginx's `lingering_close`).
    pub async fn linger(self) {
        Connection::resumed(self.stream, self.trunk.peer).linger().await;
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if !me.input.is_empty() {
            let count = me.input.len().min(buffer.remaining());
            buffer.put_slice(&me.input[..count]);
            let (read, trunk) = (&me.input[..count], &me.trunk);
            me.frames.take(read, |what| trunk.seen(what));
            trunk.accounts.opened(me.frames.last_stream());
            me.input.advance(count);
            me.trunk.accounts.noise.read(count as u64);
            return Poll::Ready(Ok(()));
        }
        if me.turn >= TURN_BYTES {
            me.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut me.stream).poll_read(cx, buffer);
        let count = buffer.filled().len() - before;
        me.turn = match polled {
            Poll::Pending => 0,
            Poll::Ready(_) => me.turn + count,
        };
        me.trunk.accounts.noise.read(count as u64);
        let (read, trunk) = (&buffer.filled()[before..], &me.trunk);
        me.frames.take(read, |what| trunk.seen(what));
        trunk.accounts.opened(me.frames.last_stream());
        if me.trunk.accounts.has_too_many_fields() {
            // No further header block is decoded before the connection is closed.
            me.turn = TURN_BYTES;
        }
        polled
    }
}

impl Transport {
    fn wrote(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = polled {
            self.trunk.accounts.noise.wrote(*count as u64);
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.wrote(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // h2 flushes once its own buffer is empty.
        self.trunk.has_written();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
