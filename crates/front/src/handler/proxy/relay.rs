//! Relays the response of an upstream server to the client, piece by piece: as soon as the server
//! sends, and no faster than the client reads.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};
use http::response::Parts;
use hyper::Response;
use hyper::body::{Body, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use maitred_http1::{
    CHUNK_END, Head, LAST_CHUNK, Method, ResponseFraming, ResponseStart, response_framing,
    write_chunk_header,
};
use tokio::time::Instant;

use crate::backend::script_headers::is_for_us;
use crate::handler::context::{RequestContext, RequestCx};
use crate::handler::proxy::outgoing::{Outgoing, members};
use crate::handler::proxy::{busy, until};
use crate::handler::response_headers::ResponseHeaders;
use crate::http::client::{HeadWriter, HttpClient};
use crate::http::headers::Header;
use crate::net::client_memory::ClientMemory;
use crate::proxy::error::{ProxyError, Silence};
use crate::proxy::upload::Upload;
use crate::runtime::clock::http_date;
use crate::site::compress::{PassingEncoder, Plan};

/// Pieces of a response that wait while its client does not read: the one that it gets, the next
/// one, and one that has been read from the server.
const WAITING_PIECES: usize = 3;

/// The reason why a response header is invalid. Ambiguous framing is rejected (RFC 9112 §6.3).
pub fn refuse(parts: &Parts) -> Option<&'static str> {
    let codings = parts.headers.get_all(TRANSFER_ENCODING);
    let mut codings = codings.iter();
    let first = codings.next()?;
    if parts.headers.contains_key(CONTENT_LENGTH) {
        return Some("its response has both Content-Length and Transfer-Encoding");
    }
    let is_chunked = first.as_bytes().eq_ignore_ascii_case(b"chunked");
    (!is_chunked || codings.next().is_some())
        .then_some("its response has a Transfer-Encoding other than chunked")
}

/// Passes a response on. True if the client's connection can be used again.
///
/// # Errors
/// Why the response is incomplete.
pub async fn relay<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    outgoing: &Outgoing<'_>,
    response: Response<Incoming>,
    upload: &mut Upload,
) -> Result<bool, ProxyError> {
    let context = outgoing.context;
    let (parts, mut body) = response.into_parts();
    let status = parts.status.as_u16();
    if context.intercepts(status) {
        let challenges = parts.headers.get_all(WWW_AUTHENTICATE).iter().cloned().collect();
        return Err(ProxyError::Intercepted { status, challenges });
    }
    let headers = cx.response_headers();
    let length = body.size_hint().exact();
    let keep_alive = context.head.keep_alive && !upload.is_unread();
    let mut encoder = ProxyEncoder::of(context, &parts, length, keep_alive);
    let (mut out, apart) = encoder.begin::<C::HeadWriter>(&parts, &headers);
    cx.record.status = status;
    cx.record.head_bytes += out.len() as u64;
    if let Some(apart) = apart {
        cx.client.begin(apart).map_err(|_| ProxyError::ClientLeft)?;
    }
    let ends_with_front =
        is_event_stream(&parts.headers) && !matches!(encoder.framing, ResponseFraming::Length(_));
    // What is framed is counted; the headers that it is made of may be 128 KiB more.
    drop(parts);
    let mut memory = ClientMemory::default();
    // Body bytes that came with the header are sent with it. They are copied, since they are a part
    // of its buffer.
    let first = poll_fn(|cx| Poll::Ready(poll_data(&mut body, cx))).await;
    let mut next = first.map_ok(|data| Bytes::copy_from_slice(&data));
    loop {
        let is_over = match std::mem::replace(&mut next, Poll::Pending) {
            Poll::Ready(Some(Ok(data))) => {
                out = encoder.frame(out, data)?;
                false
            }
            Poll::Ready(Some(Err(error))) => {
                return Err(ProxyError::Broken(crate::proxy::server::describe(&error)));
            }
            Poll::Ready(None) => {
                out = encoder.end(out)?;
                true
            }
            Poll::Pending => false,
        };
        memory.holds(WAITING_PIECES * out.len());
        send_during(cx.client, &mut out, upload).await?;
        memory.holds(0);
        if is_over {
            return Ok(keep_alive && encoder.framing != ResponseFraming::UntilClose);
        }
        if upload.is_late(&outgoing.server.rule) {
            return Err(ProxyError::Deaf);
        }
        while next.is_pending() {
            let deadline = upload.deadline(&outgoing.server.rule, Instant::now());
            let silence = Silence::of(upload);
            tokio::select! {
                biased;
                data = poll_fn(|cx| poll_data(&mut body, cx)) => next = Poll::Ready(data),
                outcome = busy(cx.client, upload) => outcome?,
                () = cx.thread.shared.drains(), if ends_with_front => next = Poll::Ready(None),
                () = until(deadline) => return Err(silence.into()),
            }
        }
    }
}

/// Sends all of `out`.
///
/// # Errors
/// When the client has closed the connection, or reads too slowly.
pub async fn send(client: &mut impl HttpClient, out: &mut Bytes) -> Result<(), ProxyError> {
    while !out.is_empty() {
        match client.try_send(out) {
            Ok(0) => client.sendable().await.map_err(|_| ProxyError::ClientLeft)?,
            Ok(count) => out.advance(count),
            Err(_) => return Err(ProxyError::ClientLeft),
        }
    }
    Ok(())
}

/// As [`send`], while the client may still send its body and the server still takes it.
async fn send_during(
    client: &mut impl HttpClient,
    out: &mut Bytes,
    upload: &mut Upload,
) -> Result<(), ProxyError> {
    while !upload.is_over() && !out.is_empty() {
        match client.try_send(out) {
            Ok(0) => {
                upload.step_or_sendable(client).await.map_err(ProxyError::BodyError)?;
                // A server that waits for its client to read takes nothing meanwhile.
                upload.restart_timeout();
            }
            Ok(count) => out.advance(count),
            Err(_) => return Err(ProxyError::ClientLeft),
        }
    }
    send(client, out).await
}

/// Whether the client reconnects when the response ends, and it may have no end of its own.
fn is_event_stream(fields: &HeaderMap) -> bool {
    let says = fields.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = says.and_then(|value| value.split(';').next());
    media_type.is_some_and(|value| value.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// The next piece of a body; trailers are dropped.
fn poll_data(
    body: &mut Incoming,
    cx: &mut std::task::Context<'_>,
) -> Poll<Option<Result<Bytes, hyper::Error>>> {
    loop {
        match std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
    }
}

/// Frames and compresses a response.
struct ProxyEncoder<'a> {
    request: &'a Head,
    framing: ResponseFraming,
    keep_alive: bool,
    /// Whether and how the body is compressed.
    plan: Plan,
    compressor: Option<PassingEncoder>,
}

impl<'a> ProxyEncoder<'a> {
    fn of(
        context: &RequestContext<'a>,
        parts: &Parts,
        length: Option<u64>,
        keep_alive: bool,
    ) -> ProxyEncoder<'a> {
        let request = context.head;
        let is_head = request.kind() == Method::Head;
        // The response to HEAD has a length and no body.
        let says = parts.headers.get(CONTENT_LENGTH);
        let says = says.and_then(|value| value.to_str().ok()?.parse().ok());
        let length = if is_head { says } else { length };
        let status = parts.status.as_u16();
        let compression = context.site.compression.as_deref();
        let said: Vec<Header<'_>> = headers_of(&parts.headers).collect();
        let mut plan = Plan::make(compression, request, said.iter().copied(), status, length);
        let compressor = plan.coding.filter(|_| !is_head).and_then(PassingEncoder::of_upstream);
        if compressor.is_none() && !is_head {
            plan.give_up();
        }
        let length = length.filter(|_| plan.coding.is_none());
        ProxyEncoder {
            request,
            framing: response_framing(request.version(), is_head, status, length),
            keep_alive,
            plan,
            compressor,
        }
    }

    /// The response header: bytes, or what is sent apart from them.
    fn begin<W: HeadWriter>(
        &self,
        parts: &Parts,
        server: &ResponseHeaders<'_>,
    ) -> (Bytes, Option<W::Head>) {
        let start = ResponseStart {
            version: self.request.version(),
            status: parts.status.as_u16(),
            reason: parts.extensions.get::<ReasonPhrase>().map(AsRef::as_ref),
            framing: self.framing,
            keep_alive: self.keep_alive,
            date: &http_date(),
        };
        let find = |name: &str| parts.headers.get(name).map(|value| value.as_bytes());
        let expiry = server.expiry(start.status, find);
        let has = |name: &[u8]| {
            let name = std::str::from_utf8(name).unwrap_or_default();
            parts.headers.contains_key(name)
        };
        let plan = &self.plan;
        let own = for_client(&parts.headers).filter(|(name, _)| !plan.replaces(name));
        let expiry = expiry.iter().flat_map(|expiry| expiry.headers());
        let all = server.complete(own, has).chain(expiry).chain(plan.fields());
        let mut out = Vec::with_capacity(512);
        let (apart, _) = W::head(&mut out, &start, all);
        (out.into(), apart)
    }

    /// A piece of the body, appended to unsent bytes.
    ///
    /// # Errors
    /// When there is no memory to compress it.
    fn frame(&mut self, unsent: Bytes, data: Bytes) -> Result<Bytes, ProxyError> {
        let data = match &mut self.compressor {
            Some(compressor) if !data.is_empty() => {
                compressor.piece(&data).map_err(not_compressed)?.into()
            }
            _ => data,
        };
        Ok(self.wrap(unsent, data))
    }

    fn wrap(&self, unsent: Bytes, data: Bytes) -> Bytes {
        let is_chunked = self.framing == ResponseFraming::Chunked;
        match self.framing {
            ResponseFraming::NoBody => return unsent,
            _ if data.is_empty() => return unsent,
            _ if unsent.is_empty() && !is_chunked => return data,
            _ => {}
        }
        let mut out = Vec::with_capacity(unsent.len() + data.len() + 16);
        out.extend_from_slice(&unsent);
        if is_chunked {
            write_chunk_header(&mut out, data.len());
        }
        out.extend_from_slice(&data);
        if is_chunked {
            out.extend_from_slice(CHUNK_END);
        }
        out.into()
    }

    /// The end of the body.
    ///
    /// # Errors
    /// When there is no memory to compress it.
    fn end(&mut self, unsent: Bytes) -> Result<Bytes, ProxyError> {
        let unsent = match self.compressor.take() {
            Some(compressor) => {
                let last = compressor.last(b"").map_err(not_compressed)?;
                self.wrap(unsent, last.into())
            }
            None => unsent,
        };
        if self.framing != ResponseFraming::Chunked {
            return Ok(unsent);
        }
        let mut out = BytesMut::from(&unsent[..]);
        out.extend_from_slice(LAST_CHUNK);
        Ok(out.freeze())
    }
}

fn not_compressed(error: io::Error) -> ProxyError {
    ProxyError::Broken(format!("it cannot be compressed: {error}"))
}

/// All headers of a response.
fn headers_of(fields: &HeaderMap) -> impl Iterator<Item = Header<'_>> {
    let fields = fields.iter();
    fields.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

/// The response headers for the client: without those of the upstream connection, as listed in the
/// `Connection` header, and without instructions to this server.
pub fn for_client(fields: &HeaderMap) -> impl Iterator<Item = Header<'_>> {
    let options = fields.get_all(CONNECTION).iter();
    let options: Vec<&[u8]> = options.flat_map(|value| members(value.as_bytes())).collect();
    headers_of(fields).filter(move |(name, _)| {
        !is_for_us(name) && !options.iter().any(|one| one.eq_ignore_ascii_case(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(fields: &[(&'static str, &str)]) -> Parts {
        let mut response = Response::builder();
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap().into_parts().0
    }

    #[test]
    fn an_answer_that_two_could_frame_differently_is_none() {
        let chunked = ("Transfer-Encoding", "chunked");
        assert!(refuse(&parts(&[])).is_none());
        assert!(refuse(&parts(&[("Content-Length", "4")])).is_none());
        assert!(refuse(&parts(&[("Transfer-Encoding", "Chunked")])).is_none());
        for fields in [
            &[chunked, ("Content-Length", "4")][..],
            &[chunked, chunked],
            &[("Transfer-Encoding", "gzip, chunked")],
            &[("Transfer-Encoding", "identity")],
        ] {
            assert!(refuse(&parts(fields)).is_some(), "{fields:?}");
        }
    }

    #[test]
    fn fields_of_the_servers_connection_are_not_for_the_client() {
        let fields = [
            ("Connection", "close, X-Mine"),
            ("X-Mine", "1"),
            ("X-Accel-Redirect", "/secret"),
            ("X-Other", "2"),
        ];
        let parts = parts(&fields);
        let names: Vec<_> = for_client(&parts.headers).map(|(name, _)| name).collect();
        assert_eq!(names, [&b"connection"[..], b"x-other"]);
    }
}
