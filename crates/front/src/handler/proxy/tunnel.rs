//! The tunnel of a WebSocket: after the handshake, bytes are passed both ways unchanged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::response::Parts;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::UPGRADE;
use hyper_util::rt::TokioIo;
use maitred_http1::{ResponseFraming, ResponseStart, write_head};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional};
use tokio::time::{sleep_until, timeout};

use crate::handler::context::RequestCx;
use crate::handler::proxy::outgoing::Outgoing;
use crate::handler::proxy::relay::for_client;
use crate::http::client::{HttpClient, Raw};
use crate::proxy::error::ProxyError;
use crate::proxy::server::{Tap, UpstreamStream};
use crate::runtime::clock::http_date;

/// How long either side may take to close the connection when the front shuts down.
const GOODBYE: Duration = Duration::from_secs(1);

/// Sends the client the server's handshake, and then passes bytes both ways until either side
/// closes.
///
/// # Errors
/// Why the handshake has failed.
pub async fn run<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    outgoing: &Outgoing<'_>,
    mut response: Response<Incoming>,
) -> Result<(), ProxyError> {
    let Outgoing { server, .. } = outgoing;
    let upgraded = hyper::upgrade::on(&mut response);
    let (parts, _) = response.into_parts();
    let is_websocket =
        |value: &hyper::header::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    if !outgoing.is_websocket || !parts.headers.get(UPGRADE).is_some_and(is_websocket) {
        let why = "it switches to a protocol that was not requested";
        return Err(ProxyError::Broken(why.to_owned()));
    }
    let lost = |why: String| ProxyError::Broken(why);
    let upgraded = timeout(server.rule.read_timeout, upgraded).await;
    let upgraded = upgraded.map_err(|_| ProxyError::Silent)?;
    let upgraded = upgraded.map_err(|error| lost(crate::proxy::server::describe(&error)))?;
    let upgraded = upgraded.downcast::<TokioIo<UpstreamStream>>();
    let upgraded = upgraded.map_err(|_| lost("its connection cannot be used".to_owned()))?;
    let Some(Raw { stream, input, sent }) = cx.client.raw() else {
        return Err(lost("the client's connection cannot be used".to_owned()));
    };
    let wire = upgraded.io.into_inner();
    let tap = wire.tap.clone();
    let head = handshake(&parts);
    (cx.record.status, cx.record.head_bytes) = (101, head.len() as u64);
    let mut near = TunnelSide::of(stream, input.split().freeze());
    let mut far = TunnelSide::of(wire, upgraded.read_buf);
    let written = timeout(server.rule.send_timeout, near.write_all(&head)).await;
    if !matches!(written, Ok(Ok(()))) {
        return Err(ProxyError::ClientLeft);
    }
    tokio::select! {
        biased;
        _ = copy_bidirectional(&mut near, &mut far) => {}
        () = idle_for(&tap, server.rule.read_timeout) => {
            tracing::debug!("{}: a WebSocket was idle for read_timeout", server.name);
        }
        () = cx.thread.shared.drains() => {}
    }
    // Shuts down the side that is still open.
    let _ = timeout(GOODBYE, far.shutdown()).await;
    *sent += near.written;
    Ok(())
}

/// Returns when a connection has carried no bytes for as long as `limit`.
async fn idle_for(tap: &Tap, limit: Duration) {
    loop {
        let moved = tap.moved();
        sleep_until(moved + limit).await;
        if tap.moved() == moved {
            return;
        }
    }
}

/// The response header of the handshake (RFC 6455 §4.2.2).
fn handshake(parts: &Parts) -> Vec<u8> {
    let start = ResponseStart {
        version: maitred_http1::Version::Http11,
        status: 101,
        reason: None,
        framing: ResponseFraming::NoBody,
        keep_alive: true,
        date: &http_date(),
    };
    let mut out = Vec::with_capacity(256);
    write_head(&mut out, &start, for_client(&parts.headers));
    // These two belong to the connection, and are written before the empty line.
    out.truncate(out.len() - 2);
    out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    out
}

/// One side, with the bytes that were read from it already.
struct TunnelSide<S> {
    stream: S,
    first: Bytes,
    written: u64,
}

impl<S> TunnelSide<S> {
    fn of(stream: S, first: Bytes) -> TunnelSide<S> {
        TunnelSide { stream, first, written: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TunnelSide<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, into);
        }
        let count = into.remaining().min(self.first.len());
        into.put_slice(&self.first[..count]);
        self.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TunnelSide<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.written += count as u64;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
