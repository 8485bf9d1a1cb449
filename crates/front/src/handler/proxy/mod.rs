//! Requests that an upstream HTTP server serves (`proxy`): a Node process, a WebSocket server. The
//! crate hyper speaks HTTP/1.1 to it; this module decides what is sent and passed on, and the
//! timeouts. Bodies are streamed both ways: neither side is read faster than the other takes it.

pub(crate) mod early;
pub(crate) mod outgoing;
pub(crate) mod relay;
pub(crate) mod tunnel;

use std::future::pending;
use std::io;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Request, Response, StatusCode};
use maitred_http1::{Head, Version};
use maitred_rules::settings::Proxy;
use tokio::time::{Instant, sleep_until};

use crate::handler::context::{RequestContext, RequestCx};
use crate::handler::proxy::early::EarlyHints;
use crate::handler::proxy::outgoing::{Outgoing, members};
use crate::handler::respond::TextResponse;
use crate::http::client::{After, HttpClient};
use crate::http::transfers::RETRY_SECONDS;
use crate::proxy::error::{ProxyError, Silence};
use crate::proxy::server::{self, Link, Server};
use crate::proxy::upload::{Upload, UploadBody};

pub use crate::handler::proxy::outgoing::is_websocket;

/// The message of a 501 for a WebSocket at a path without an upstream server.
pub const NO_WEBSOCKET: &str = "No server takes WebSocket connections here: the site has no \
                                `proxy` for this path.";

/// The status of a request whose client has left, for the log (nginx's).
const CLIENT_LEFT: u16 = 499;

/// Proxies a request to an upstream server; `path` is decoded and normalised.
///
/// # Errors
/// When the client has closed the connection, or the response is incomplete.
pub async fn serve<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    server: &Server,
    path: &[u8],
) -> io::Result<After> {
    let mut begun = server.stats.begin();
    let (mut upload, body) = match Upload::of(context.head, context.max_body_size) {
        Ok(both) => both,
        Err(body_error) => return cx.refuse_body(context, body_error).await,
    };
    let outgoing = Outgoing {
        context,
        server,
        path,
        id: cx.record.id(),
        trace: cx.record.trace.clone(),
        early: (context.head.version() != Version::Http10).then(EarlyHints::default),
        is_websocket: is_websocket(context.head),
    };
    let outcome = match outgoing.request(body) {
        None => {
            let why =
                "The path of the address is ambiguous, or has characters that no address may have.";
            let after = after_upload(context.head, &upload, After::Keep);
            return cx.respond(TextResponse::new(400, why), after).await;
        }
        Some(request) => follow(cx, &outgoing, request, &mut upload).await,
    };
    begun.ended(&outcome, cx.record.status);
    cx.record.script = Some(begun.since().elapsed());
    if cx.record.trace.is_some() {
        cx.record.backend_began = Some(begun.since().into_std());
        cx.record.upstream = Some((*server.name).into());
    }
    cx.record.body_bytes = upload.taken();
    match outcome {
        Ok(after) => Ok(after),
        Err(failure) => fail(cx, &outgoing, failure, &upload).await,
    }
}

async fn follow<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    outgoing: &Outgoing<'_>,
    request: Request<UploadBody>,
    upload: &mut Upload,
) -> Result<After, ProxyError> {
    let (response, link) = send_request(cx, outgoing, request, upload).await?;
    while let Some(hints) = outgoing.early.as_ref().and_then(EarlyHints::take) {
        early::pass(cx, &hints).await?;
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        tunnel::run(cx, outgoing, response).await?;
        return Ok(After::Linger);
    }
    let (parts, body) = response.into_parts();
    if let Some(why) = relay::refuse(&parts) {
        return Err(ProxyError::Broken(why.to_owned()));
    }
    let idle_timeout = server::idle_timeout(&parts.headers);
    let is_authenticated = authenticates_connection(outgoing.context.head, &parts.headers);
    let response = Response::from_parts(parts, body);
    let is_reusable = relay::relay(cx, outgoing, response, upload).await?;
    if !upload.is_unread() && !outgoing.is_websocket && !is_authenticated {
        outgoing.server.release(link, idle_timeout);
    }
    let after = if is_reusable { After::Keep } else { After::Close };
    Ok(after_upload(outgoing.context.head, upload, after))
}

/// Whether the server may have authenticated the connection in place of the request (NTLM and
/// Negotiate, RFC 4559 §6): the next request over it would have the rights of this client.
fn authenticates_connection(head: &Head, response: &HeaderMap) -> bool {
    let challenges = response.get_all(WWW_AUTHENTICATE).iter().map(HeaderValue::as_bytes);
    challenges.chain(head.values("Authorization")).flat_map(members).any(|member| {
        let has_scheme = |scheme: &[u8]| {
            member.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        has_scheme(b"NTLM") || has_scheme(b"Nego")
    })
}

/// What happens to the client's connection: over HTTP/1 no request can follow an unread body.
fn after_upload(head: &Head, upload: &Upload, after: After) -> After {
    match head.version() {
        // The rest of a stream does not affect the others.
        Version::Http2 => After::Keep,
        _ if upload.is_unread() => After::Linger,
        _ => after,
    }
}

/// Sends the request over an idle connection, or over a new one. The server may close an idle
/// connection at the same moment: then the request is sent once more if that can do no harm.
async fn send_request<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    outgoing: &Outgoing<'_>,
    mut request: Request<UploadBody>,
    upload: &mut Upload,
) -> Result<(Response<Incoming>, Link), ProxyError> {
    let server = outgoing.server;
    let can_repeat = outgoing.context.head.kind().is_idempotent() && upload.is_over();
    let idle = if outgoing.is_websocket { None } else { server.take(can_repeat) };
    if let Some(mut link) = idle {
        match send_over(cx, outgoing, &mut link, request, upload).await {
            Ok(response) => return Ok((response, link)),
            Err(SendError::Unsent(unsent)) => request = *unsent,
            Err(SendError::Silently(_)) if can_repeat => {
                let again = outgoing.request(UploadBody::empty());
                request = again.ok_or(ProxyError::ClientLeft)?;
            }
            Err(SendError::Silently(failure) | SendError::Otherwise(failure)) => {
                return Err(failure);
            }
        }
    }
    let mut link = server.connect().await?;
    match send_over(cx, outgoing, &mut link, request, upload).await {
        Ok(response) => Ok((response, link)),
        Err(SendError::Silently(failure) | SendError::Otherwise(failure)) => Err(failure),
        Err(SendError::Unsent(_)) => {
            let why = "it closed the connection before a request";
            Err(ProxyError::Broken(why.to_owned()))
        }
    }
}

/// Why there is no response.
enum SendError {
    /// No byte of the request was sent.
    Unsent(Box<Request<UploadBody>>),
    /// The server closed the connection before the first byte of a response.
    Silently(ProxyError),
    /// Any other error.
    Otherwise(ProxyError),
}

/// Sends the request over this connection.
async fn send_over<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    outgoing: &Outgoing<'_>,
    link: &mut Link,
    request: Request<UploadBody>,
    upload: &mut Upload,
) -> Result<Response<Incoming>, SendError> {
    if !upload.is_over() {
        let invited = cx.client.invite_body(cx.head).await;
        invited.map_err(|body_error| SendError::Otherwise(ProxyError::BodyError(body_error)))?;
    }
    upload.restart_timeout();
    let before = link.tap.received();
    let sent = link.sender.try_send_request(request);
    tokio::pin!(sent);
    loop {
        let deadline = upload.deadline(&outgoing.server.rule, Instant::now());
        let silence = Silence::of(upload);
        tokio::select! {
            biased;
            sent = &mut sent => {
                return sent.map_err(|mut error| {
                    if let Some(request) = error.take_message() {
                        return SendError::Unsent(Box::new(request));
                    }
                    let failure = ProxyError::Broken(server::describe(error.error()));
                    if link.tap.received() == before {
                        SendError::Silently(failure)
                    } else {
                        SendError::Otherwise(failure)
                    }
                });
            }
            hints = next_hints(outgoing.early.as_ref()) => {
                let passed = early::pass(cx, &hints).await;
                passed.map_err(SendError::Otherwise)?;
            }
            outcome = busy(cx.client, upload) => outcome.map_err(SendError::Otherwise)?,
            () = until(deadline) => {
                return Err(SendError::Otherwise(silence.into()));
            }
        }
    }
}

async fn next_hints(early: Option<&EarlyHints>) -> Vec<u8> {
    match early {
        Some(early) => early.next().await,
        None => pending().await,
    }
}

/// Passes on what the client sends; after its end, waits for the client to disconnect.
async fn busy(client: &mut impl HttpClient, upload: &mut Upload) -> Result<(), ProxyError> {
    if upload.is_over() {
        client.gone_later().await;
        return Err(ProxyError::ClientLeft);
    }
    upload.step(client).await.map_err(ProxyError::BodyError)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// Responds in place of the server.
async fn fail<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    outgoing: &Outgoing<'_>,
    failure: ProxyError,
    upload: &Upload,
) -> io::Result<After> {
    let (head, has_begun) = (cx.head, cx.record.status != 0);
    let failure = match failure {
        ProxyError::BodyError(body_error) if !has_begun => {
            return cx.refuse_body(outgoing.context, body_error).await;
        }
        failure => failure,
    };
    let (status, why) = explain(&failure);
    let server = outgoing.server;
    if let Some(detail) = detail(&failure, &server.rule) {
        let (method, target, id) = (head.method(), head.target(), outgoing.id.as_str());
        let name = &server.name;
        tracing::debug!("{name}: {method} {target}: {status}: {detail} [request {id}]");
        cx.thread.shared.troubles.proxy_failed(name, status, &detail);
    }
    if has_begun || status == CLIENT_LEFT {
        if !has_begun {
            cx.record.status = status;
        }
        // Half a response cannot be mended; the client sees it end too early.
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let after = after_upload(head, upload, After::Keep);
    let mut response = TextResponse::new(status, why);
    if matches!(failure, ProxyError::NoDescriptor) {
        response = response.with("Retry-After", &RETRY_SECONDS.to_string());
    }
    if let ProxyError::Intercepted { challenges, .. } = &failure {
        response = response.with_challenges(challenges.iter().map(HeaderValue::as_bytes));
    }
    cx.respond(response, after).await
}

/// The status of each failure, and its reason as a sentence.
fn explain(failure: &ProxyError) -> (u16, &'static str) {
    match failure {
        ProxyError::NoDescriptor => (503, "Too many connections to the upstream server are open."),
        ProxyError::Unreachable(_) => (502, "The upstream server cannot be reached."),
        ProxyError::Broken(_) => (502, "The upstream server sent no valid response."),
        ProxyError::NotAccepted => {
            (504, "The upstream server did not accept a connection in time.")
        }
        ProxyError::Silent => (504, "The upstream server sent nothing for too long."),
        ProxyError::Deaf => (504, "The upstream server did not take the request in time."),
        ProxyError::Intercepted { status, .. } => {
            (*status, "The upstream server responded with an error.")
        }
        ProxyError::BodyError(_) | ProxyError::ClientLeft => (CLIENT_LEFT, "The client left."),
    }
}

/// The log's reason of a failure of the server, as the end of a sentence.
fn detail(failure: &ProxyError, rule: &Proxy) -> Option<String> {
    let too_long = |what: &str, limit: Duration, name: &str| {
        let seconds = limit.as_secs_f64();
        Some(format!("{what} for {seconds} s ({name})"))
    };
    match failure {
        ProxyError::NoDescriptor => {
            Some("it has its share of descriptors: raise the limit of open files".to_owned())
        }
        ProxyError::Unreachable(why) => Some(format!("it cannot be reached: {why}")),
        ProxyError::Broken(why) => Some(format!("it sent no valid response: {why}")),
        ProxyError::NotAccepted => {
            too_long("it did not accept a connection", rule.connect_timeout, "connect_timeout")
        }
        ProxyError::Silent => too_long("it sent nothing", rule.read_timeout, "read_timeout"),
        ProxyError::Deaf => {
            too_long("it took nothing of a request", rule.send_timeout, "send_timeout")
        }
        ProxyError::Intercepted { .. } | ProxyError::BodyError(_) | ProxyError::ClientLeft => None,
    }
}
