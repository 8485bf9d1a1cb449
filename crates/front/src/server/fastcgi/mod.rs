//! FastCGI listeners for web servers. Their requests use the pool's queue as HTTP requests do; a
//! connection occupies no worker.

pub(crate) mod call;
pub(crate) mod call_trace;
pub(crate) mod connection;
pub(crate) mod encoder;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use maitred_fastcgi::{ProtocolError, ProtocolStatus, WANTS_REPORT, write_end};
use maitred_http1::Refusal;
use maitred_scoreboard::Counter;

use crate::backend::attempt::{Attempt, attempt, reject_early};
use crate::backend::error::Failure;
use crate::backend::run::Run;
use crate::http::body::{Body, BodyError, NO_SPACE_FOR_BODY, RETRY_BODY_SECONDS};
use crate::logging::pool_access_log::Entry;
use crate::logging::request_lines::RequestLines;
use crate::net::socket::Socket;
use crate::pool::queue::Priority;
use crate::pool::status::{self, SelfCount};
use crate::server::fastcgi::call::{FastcgiCall, Places};
use crate::server::fastcgi::call_trace::CallEnd;
use crate::server::fastcgi::connection::{BegunRequest, NoRequest, WebServer};
use crate::server::fastcgi::encoder::FastcgiEncoder;
use crate::services::Thread;
use crate::services::lifecycle::{ConnectionGuard, idle_is_over};

pub use crate::site::fastcgi_listener::FastcgiSite;

/// The state of the connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterResponse {
    /// Open for the next request.
    Keep,
    /// Closed after the web server has stopped sending.
    Linger,
}

/// An accepted connection of a web server.
pub struct AcceptedWebServer {
    /// The socket.
    pub socket: Socket,
    /// The address of the web server; none over a Unix socket.
    pub peer: Option<SocketAddr>,
    /// The listener's address, as the configuration spells it.
    pub listen: Arc<str>,
    /// Counts the connection.
    pub guard: ConnectionGuard,
}

/// Serves the requests of a web server's connection, one after the other.
pub async fn converse(accepted: AcceptedWebServer) {
    let AcceptedWebServer { socket, peer, listen, guard } = accepted;
    let thread = &guard.thread;
    if !is_welcome(thread, &listen, peer) {
        return;
    }
    let mut server = WebServer::new(socket, peer);
    let mut leaves = pin!(idle_is_over(&thread.shared));
    let mut is_over = false;
    loop {
        let begun = tokio::select! {
            biased;
            begun = server.next_request() => begun,
            () = &mut leaves, if !is_over => {
                // A request that has partly arrived gets its response, unless the front stops.
                is_over = true;
                if thread.shared.is_draining() || !server.is_amid() {
                    return;
                }
                continue;
            }
            () = thread.shared.room_is_wanted(), if !server.is_amid() => {
                // A request may have started meanwhile: the next connection that is notified
                // closes.
                if server.is_amid() {
                    continue;
                }
                return;
            }
        };
        let begun = match begun {
            Ok(begun) => begun,
            Err(none) => return take_leave(&mut server, thread, &listen, none).await,
        };
        // Settings and allowed clients may have changed since the connection was accepted.
        let sites = thread.sites();
        let Some(site) = sites.listener(&listen).filter(|site| site.admits(peer)) else {
            return;
        };
        let begun_at = Instant::now();
        let mut params = server.take_params();
        let traces = thread.shared.traces.load_full();
        let trace = traces.as_ref().and_then(|traces| call_trace::begin(traces, &mut params));
        let places = match Places::find(&params) {
            Ok(places) => places,
            Err(error) => {
                let begun = Some((begun, 400));
                return send_away(&mut server, thread, &listen, &error, begun).await;
            }
        };
        let call = FastcgiCall { begun, begun_at, params, places, trace };
        let peer = peer.map(|peer| peer.ip());
        let mut log = site.log.as_ref().map(|log| log.begin(&call.params, peer));
        let after = Box::pin(serve(&mut server, &call, log.as_mut(), thread, site)).await;
        let keeps = !thread.shared.is_crowded() && !thread.shared.closes_connections();
        let is_clean = server.end_request();
        match after {
            Ok(AfterResponse::Keep) if begun.keep_conn && keeps => {}
            Ok(AfterResponse::Keep) if is_clean => return,
            Ok(_) => return server.linger().await,
            Err(_) => return,
        }
    }
}

/// Closes a connection without a request, and logs why if there is a reason to.
async fn take_leave(server: &mut WebServer, thread: &Thread, listen: &str, none: NoRequest) {
    match none {
        NoRequest::Closed => {}
        NoRequest::Over => server.linger().await,
        NoRequest::TooSlow(begun) => {
            let why = "The request's parameters arrived too slowly.";
            let response = encoder::plain(begun.request_id, 408, why, None);
            send_last(server, &response).await;
        }
        NoRequest::Broken(error, begun) => {
            let status = match error {
                ProtocolError::ParamsTooLarge(_) => 431,
                _ => 400,
            };
            let begun = begun.map(|begun| (begun, status));
            send_away(server, thread, listen, &error, begun).await;
        }
    }
}

/// Whether this address may connect. A rejection is logged as php-fpm logs it.
fn is_welcome(thread: &Thread, listen: &str, peer: Option<SocketAddr>) -> bool {
    let sites = thread.sites();
    let Some(site) = sites.listener(listen) else {
        return false;
    };
    let admitted = site.admits(peer);
    if let (false, Some(peer)) = (admitted, peer) {
        site.tell_refused(peer.ip());
    }
    admitted
}

/// Closes the connection of a web server that violates the protocol.
async fn send_away(
    server: &mut WebServer,
    thread: &Thread,
    listen: &str,
    error: &impl std::fmt::Display,
    begun: Option<(BegunRequest, u16)>,
) {
    let error = error.to_string();
    let sites = thread.sites();
    if (sites.listener(listen)).is_none_or(|site| site.backend.may_log(error.len())) {
        tracing::warn!("{listen}: a connection is closed: {error}");
    }
    let plain = |(begun, status): (BegunRequest, u16)| {
        encoder::plain(begun.request_id, status, &error, None)
    };
    let response = begun.map_or_else(Vec::new, plain);
    send_last(server, &response).await;
}

async fn send_last(server: &mut WebServer, response: &[u8]) {
    let _ = server.send(response).await;
    server.linger().await;
}

/// Serves one request.
async fn serve(
    server: &mut WebServer,
    call: &FastcgiCall,
    mut log: Option<&mut Entry>,
    thread: &Thread,
    site: &FastcgiSite,
) -> io::Result<AfterResponse> {
    let id = call.begun.request_id;
    if call.has_long_method() {
        let refusal = Refusal::MethodTooLong;
        return refuse(server, call, log, refusal.status(), refusal.reason()).await;
    }
    let pool = site.pool();
    let part = match site.is_for_status {
        true => SelfCount::Excluded,
        false => SelfCount::Included,
    };
    let manner = pool.manner.load();
    if let Some(path) = call.path(manner.by_path_info)
        && let Some(page) = status::page_at(pool, path, || call.query(), part)
    {
        // The body is irrelevant.
        let _ = server.body(0, site.place()).await;
        let body = (!call.is_head()).then_some(page.body());
        let headers = page.cgi_headers(manner.powered_by.as_deref(), call.is_head());
        if let Some(log) = &mut log {
            log.said(headers.as_bytes());
            log.answered();
        }
        server.send(&encoder::whole(id, &headers, body)).await?;
        return Ok(AfterResponse::Keep);
    }
    if site.is_for_status {
        let response = encoder::plain(id, 404, "Only status and ping are served here.", None);
        server.send(&response).await?;
        return Ok(AfterResponse::Keep);
    }
    let body = match server.body(call.body_length(), site.place()).await {
        Ok(body) => body,
        Err(body_error) => return refuse_body(server, call, log, site, body_error).await,
    };
    run_script(server, log, thread, &ScriptRequest { call, body: &body, site }).await
}

/// A complete request to a script.
struct ScriptRequest<'a> {
    call: &'a FastcgiCall,
    body: &'a Body,
    site: &'a FastcgiSite,
}

async fn run_script(
    server: &mut WebServer,
    log: Option<&mut Entry>,
    thread: &Thread,
    request: &ScriptRequest<'_>,
) -> io::Result<AfterResponse> {
    let ScriptRequest { call, body, site } = *request;
    let (method, target, script) = (call.method(), call.target(), call.script());
    let wants_report = site.log.is_some();
    let is_remembered = thread.shared.recent_requests.is_wanted();
    let run = Run {
        backend: &site.backend,
        method: &method,
        target: &target,
        body,
        script: &script,
        request_id: call.begun.request_id,
        id: "",
        trace: call.trace.as_ref().map(|trace| trace.trace_id),
        spool: &site.spool,
        priority: Priority::Normal,
        lines: RequestLines::new(is_remembered),
        fields: call,
    };
    let reads_status = is_remembered || call.trace.is_some();
    let mut form = FastcgiEncoder::new(call.begun.request_id, log, reads_status);
    let before = server.sent();
    let tried = match reject_early(thread.number, &run) {
        Some(tried) => tried,
        None => {
            let request = call.encode(body, if wants_report { WANTS_REPORT } else { 0 });
            attempt(server, &mut form, thread.number, &run, request).await
        }
    };
    let sent = server.sent() - before;
    let status = tried.outcome.as_ref().map_or_else(Failure::status, |()| form.status());
    let after = conclude(server, call, &tried, &mut form, sent).await;
    tracing::debug!(
        "{}: {script}: {} bytes after {:.6} s ({method} {target})",
        run.backend,
        form.length(),
        tried.progress.began.elapsed().as_secs_f64()
    );
    let end = CallEnd { status, progress: &tried.progress, lines: run.lines.take() };
    call_trace::conclude(&thread.shared, call, site, end);
    after
}

/// Responds in place of a script that failed, if nothing of its response has been sent.
async fn conclude(
    server: &mut WebServer,
    call: &FastcgiCall,
    tried: &Attempt,
    form: &mut FastcgiEncoder<'_>,
    sent: u64,
) -> io::Result<AfterResponse> {
    let failure = match &tried.outcome {
        Ok(()) => return Ok(AfterResponse::Keep),
        Err(failure) => failure,
    };
    let id = call.begun.request_id;
    let (status, why) = (failure.status(), failure.sentence());
    form.log_failure(status);
    let is_replaceable = form.can_be_replaced(sent);
    if failure.is_client_gone() {
        return match is_replaceable {
            true => end_aborted(server, id).await,
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        };
    }
    if !is_replaceable {
        // A partial response cannot be repaired; the web server sees it end early.
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let response = encoder::plain(id, status, why, tried.retry_after);
    server.send(&response).await?;
    Ok(AfterResponse::Keep)
}

/// Ends a request that the web server has aborted (§5.4), if the connection is still there.
async fn end_aborted(server: &mut WebServer, id: u16) -> io::Result<AfterResponse> {
    if !server.has_aborted() {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let mut end = Vec::new();
    write_end(&mut end, id, 0, ProtocolStatus::RequestComplete);
    server.send(&end).await?;
    Ok(AfterResponse::Keep)
}

async fn refuse_body(
    server: &mut WebServer,
    call: &FastcgiCall,
    log: Option<&mut Entry>,
    site: &FastcgiSite,
    body_error: BodyError,
) -> io::Result<AfterResponse> {
    let (status, why) = match body_error {
        BodyError::TooLarge => (413, "The body is too large."),
        BodyError::TooSlow => (408, "The body arrived too slowly."),
        BodyError::Gone => {
            if let Some(log) = log {
                log.write(499);
            }
            return end_aborted(server, call.begun.request_id).await;
        }
        BodyError::Refused(refusal) => (refusal.status(), refusal.reason()),
        BodyError::Spool(error) => {
            let (method, target, dir) = (call.method(), call.target(), site.spool.path.display());
            site.backend.log(&format_args!(
                "{method} {target}: its body cannot be stored in {dir}: {error}"
            ));
            (507, "The body could not be stored: the disk is full or cannot be written.")
        }
        BodyError::NoSpace => {
            site.backend.count(Counter::BodiesRefused);
            (503, NO_SPACE_FOR_BODY)
        }
    };
    refuse(server, call, log, status, why).await
}

/// Responds in place of a script to a request whose body has not been read.
async fn refuse(
    server: &mut WebServer,
    call: &FastcgiCall,
    log: Option<&mut Entry>,
    status: u16,
    why: &str,
) -> io::Result<AfterResponse> {
    if let Some(log) = log {
        log.write(status);
    }
    let retry_after = (status == 503).then_some(RETRY_BODY_SECONDS);
    let response = encoder::plain(call.begun.request_id, status, why, retry_after);
    server.send(&response).await?;
    Ok(AfterResponse::Linger)
}
