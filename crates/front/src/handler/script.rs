//! A request for a script: served from the page cache, or by running the script.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use maitred_fastcgi::cgi::CgiHeaders;
use maitred_http1::Framing;
use maitred_scoreboard::RequestOutcome;
use maitred_trace::RequestTrace;

use crate::backend::Backend;
use crate::backend::attempt::{self, Attempt, attempt};
use crate::backend::error::Failure;
use crate::backend::progress::ScriptProgress;
use crate::backend::run::Run;
use crate::backend::script_headers::Named;
use crate::handler::accel_redirect;
use crate::handler::cache::detached_client::DetachedClient;
use crate::handler::cache::fill::Fill;
use crate::handler::cache::lookup::{self, LookupResult};
use crate::handler::cache::refresh;
use crate::handler::cache::tee::{CookieLearner, Tee};
use crate::handler::classic_pool::{self, LeftRequest};
use crate::handler::context::{RequestContext, RequestCx};
use crate::handler::fastcgi_params::{self, REQUEST_ID, ScriptCall, ScriptView};
use crate::handler::refusal;
use crate::handler::respond::TextResponse;
use crate::handler::script_response::HttpEncoder;
use crate::http::body::{Body, BodyError};
use crate::http::client::{After, HeadWriter, HttpClient};
use crate::http::deadline::SharedDeadline;
use crate::http::request_memory::MemoryGrowth;
use crate::http::spool_folder::SpoolPlace;
use crate::logging::request_lines::RequestLines;
use crate::logging::request_record::RequestRecord;
use crate::net::tls::Secured;
use crate::runtime::request_id::RequestId;
use crate::site::resolver::Script;

/// Serves a request with a script, which may be an error page of the site. Boxes each case
/// separately: files and cached pages need less state than scripts.
pub async fn serve<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    script: &Script,
) -> io::Result<After> {
    let mut fill = None;
    let cache = cx.thread.shared.cache.as_ref();
    if let (Some(of), Some(cache), None) = (&context.site.cache, cache, context.error_page) {
        cx.record.begin_lookup();
        let found = Box::pin(lookup::lookup(cx, cache, of, context)).await;
        cx.record.end_lookup();
        match found? {
            LookupResult::Responded(after) => return Ok(after),
            LookupResult::Refresh(after, fill) => {
                refresh::refresh(fill, context, script, cx.thread, Caller::of(cx));
                return Ok(after);
            }
            LookupResult::Forward(forward) => fill = Some(forward),
        }
    }
    if let Some(tried) = rejected(cx, context, script, fill.as_deref()) {
        return Box::pin(respond_rejected(cx, context, fill, tried)).await;
    }
    Box::pin(run(cx, context, script, fill)).await
}

/// The outcome of a request without a body that its pool is certain to reject. Under overload many
/// are, and none of them is to cost what running a script takes. While the newest requests are
/// served first none is certain to be rejected, unless its own deadline is over: it waits, or takes
/// the place of an older one.
fn rejected<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    script: &Script,
    fill: Option<&Fill<'_>>,
) -> Option<Attempt> {
    let Backend::Pool(pool) = context.backend else {
        return None;
    };
    if !pool.is_rejecting() || context.head.body != Framing::None {
        return None;
    }
    let (body, caller) = (Body::Memory(Vec::new()), Caller::of(cx));
    let name = String::from_utf8_lossy(&script.script_filename);
    let is_shared = fill.is_some_and(Fill::is_shared);
    let run = run_of(context, &name, is_shared, &body, &caller);
    let tried = attempt::reject_early(cx.thread.number, &run)?;
    cx.record.pool = Some(pool.name.clone());
    cx.record.cache = fill.map(Fill::word);
    Some(tried)
}

async fn respond_rejected<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    fill: Option<Box<Fill<'_>>>,
    tried: Attempt,
) -> io::Result<After> {
    let Attempt { outcome, progress, retry_after, .. } = tried;
    let Err(failure) = outcome else {
        return Ok(after(true, context));
    };
    if let Some(fill) = fill
        && let Some(after) = Box::pin(fill.respond_cached(cx, &failure)).await
    {
        return after;
    }
    fail(cx, context, &failure, retry_after, &progress).await
}

async fn run<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    script: &Script,
    fill: Option<Box<Fill<'_>>>,
) -> io::Result<After> {
    let body = match collect(cx, context).await {
        Ok(body) => body,
        Err(body_error) => return Box::pin(cx.refuse_body(context, body_error)).await,
    };
    if reads_body(context)
        && let Err(refused) = Box::pin(context.check_script_root()).await
    {
        return cx.respond(refusal::of_path(&refused), After::Keep).await;
    }
    let caller = Caller::of(cx);
    cx.record.body_bytes = body.len();
    if let Backend::Pool(pool) = context.backend {
        cx.record.pool = Some(pool.name.clone());
    }
    let Ok(encoded) = caller.encode(context, script, &body, fill.as_deref()) else {
        let why = "The request's headers are too large for a script.";
        let after = cx.after_failed_request();
        return cx.respond(TextResponse::new(431, why), after).await;
    };
    let address = || cx.thread.address(caller.peer.ip());
    let before = context.head.memory_bytes() + body.memory_bytes();
    let growth = MemoryGrowth { before, more: encoded.len() };
    let _held = match cx.client.hold(&cx.thread.shared.requests, growth, address) {
        Ok(held) => held,
        Err(why) => {
            cx.thread.shared.refuse_head(caller.peer.ip(), why);
            let why = "Too many large requests are in progress.";
            let after = cx.after_failed_request();
            return cx.respond(TextResponse::new(503, why), after).await;
        }
    };
    let name = String::from_utf8_lossy(&script.script_filename);
    let wanted = fill.as_ref().map(|fill| fill.wanted());
    let is_shared = fill.as_ref().is_some_and(|fill| fill.is_shared());
    let run = run_of(context, &name, is_shared, &body, &caller);
    let headers = cx.response_headers();
    let encoder = HttpEncoder::<C::HeadWriter>::new(&run, context, &headers);
    let mut tee = Tee::new(encoder, fill, CookieLearner::of(cx.thread, context));
    let mut client = DetachedClient::new(&mut *cx.client, wanted, false);
    let tried = attempt(&mut client, &mut tee, cx.thread.number, &run, encoded).await;
    let is_gone = client.has_gone;
    record(&tee, &tried.progress, &mut cx.record);
    cx.record.lines = run.lines.take();
    if is_gone {
        cx.record.status = RequestOutcome::ClientLeft.status();
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    match &tried.outcome {
        Ok(()) => Ok(after(tee.encoder().reusable, context)),
        Err(Failure::FileNamed)
            if !tried.progress.has_sent && leaves_to_classic_pool(tee.encoder().script_head()) =>
        {
            let (_, fill) = tee.into_parts();
            let left = LeftRequest { script, body: &body, caller: &caller, fill };
            Box::pin(classic_pool::serve(cx, context, left)).await
        }
        // In a box: every request would hold the memory for what is rare.
        Err(_) => Box::pin(fall_short(cx, context, &name, tee, tried)).await,
    }
}

fn leaves_to_classic_pool(said: Option<&CgiHeaders>) -> bool {
    said.and_then(Named::by).is_some_and(Named::is_classic_pool)
}

/// Whether the script gets the body of a request. The page of an error gets none.
fn reads_body(context: &RequestContext<'_>) -> bool {
    context.error_page.is_none() && context.head.body != Framing::None
}

/// Reads the body of a request for its script.
async fn collect<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
) -> Result<Body, BodyError> {
    if !reads_body(context) {
        return Ok(Body::Memory(Bytes::new().into()));
    }
    let (limit, owner) = (context.max_body_size, context.backend);
    let place = SpoolPlace { folder: &context.site.spool, owner };
    Box::pin(cx.client.body(context.head, limit, place)).await
}

/// The run of a script for a request. `is_shared`: other clients wait for the response as well, so
/// the deadline of this client is ignored.
pub fn run_of<'r>(
    context: &'r RequestContext<'_>,
    name: &'r str,
    is_shared: bool,
    body: &'r Body,
    caller: &'r Caller,
) -> Run<'r> {
    Run {
        backend: context.backend,
        method: context.head.method(),
        target: context.head.target(),
        body,
        script: name,
        request_id: REQUEST_ID,
        id: caller.id.as_str(),
        trace: caller.trace.as_ref().map(|trace| trace.trace_id),
        spool: &context.site.spool,
        priority: context.lane,
        lines: RequestLines::new(caller.wants_lines),
        fields: if is_shared { &SharedDeadline } else { context.head },
    }
}

/// The client of a request, as passed to the script.
pub struct Caller {
    peer: SocketAddr,
    local: SocketAddr,
    secured: Option<Arc<Secured>>,
    /// The request's id.
    pub id: RequestId,
    trace: Option<Arc<RequestTrace>>,
    /// The dashboard may show the log lines about it.
    wants_lines: bool,
}

impl Caller {
    /// The client of a request.
    pub fn of<C: HttpClient>(cx: &mut RequestCx<'_, C>) -> Caller {
        Caller {
            peer: cx.target.peer,
            local: cx.client.local(),
            secured: cx.client.secured().cloned(),
            id: cx.record.id(),
            trace: cx.record.trace.clone(),
            wants_lines: cx.thread.shared.recent_requests.is_wanted(),
        }
    }

    /// The client, without a trace: its request has its response already.
    #[must_use]
    pub fn without_trace(self) -> Caller {
        Caller { trace: None, wants_lines: false, ..self }
    }

    /// Encodes the request for its script. `fill` removes values that a cached response must not
    /// depend on.
    ///
    /// # Errors
    /// When its headers are too large.
    pub fn encode(
        &self,
        context: &RequestContext<'_>,
        script: &Script,
        body: &Body,
        fill: Option<&Fill<'_>>,
    ) -> Result<Vec<u8>, fastcgi_params::TooLarge> {
        let conditions = fill.and_then(Fill::conditions);
        let seen = ScriptView::of(context);
        let whole = (seen.query, seen.target);
        let (query, target) = fill.and_then(Fill::shown).unwrap_or(whole);
        fastcgi_params::encode(&ScriptCall {
            head: context.head,
            body,
            script,
            peer: self.peer,
            local: self.local,
            secured: self.secured.as_deref(),
            seen: ScriptView { query, target, conditions: conditions.as_deref(), ..seen },
            id: self.id.as_str(),
            trace: self.trace.as_deref(),
        })
    }
}

/// Records the outcome of a run.
pub fn record<W: HeadWriter>(tee: &Tee<'_, W>, sent: &ScriptProgress, record: &mut RequestRecord) {
    let encoder = tee.encoder();
    record.cache = tee.fill().map(Fill::word);
    (record.status, record.head_bytes) = (encoder.status, encoder.head_bytes);
    (record.queued, record.script, record.spent) = (sent.queued, sent.script, sent.spent);
    record.boot = sent.boot;
    record.backend_began = Some(sent.began);
    record.script_end = sent.going_on.as_ref().map(|exchange| exchange.at_end());
}

/// What happens to the connection after a complete response. An error page leaves it as the error
/// does, which knows whether the body of the request is unread.
pub fn after(is_reusable: bool, context: &RequestContext<'_>) -> After {
    match context.error_page {
        Some(page) if page.after != After::Keep => page.after,
        _ if !is_reusable => After::Close,
        _ => After::Keep,
    }
}

/// Responds to a request whose run gave no complete response.
pub async fn fall_short<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    name: &str,
    tee: Tee<'_, C::HeadWriter>,
    tried: Attempt,
) -> io::Result<After> {
    let Attempt { outcome, progress, retry_after, .. } = tried;
    let (encoder, fill) = tee.into_parts();
    let Err(failure) = outcome else {
        return Ok(after(encoder.reusable, context));
    };
    if progress.has_sent {
        // Only the rest of an interim response may follow its beginning.
        return fail(cx, context, &failure, retry_after, &progress).await;
    }
    if let Some(fill) = fill
        && let Some(after) = fill.respond_cached(cx, &failure).await
    {
        return after;
    }
    if let (Failure::FileNamed, Some(said)) = (&failure, encoder.script_head()) {
        return accel_redirect::serve(cx, context, name, said).await;
    }
    if let (Failure::Intercepted(status), Some(said)) = (&failure, encoder.script_head()) {
        let response = TextResponse::new(*status, failure.sentence());
        let response = response.with_challenges(said.values("WWW-Authenticate"));
        return cx.respond(response, after(true, context)).await;
    }
    fail(cx, context, &failure, retry_after, &progress).await
}

/// Responds in place of a script.
async fn fail<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    failure: &Failure,
    retry_after: Option<u64>,
    progress: &ScriptProgress,
) -> io::Result<After> {
    let (status, why) = (failure.status(), failure.sentence());
    if failure.is_client_gone() {
        cx.record.status = status;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if progress.has_sent {
        // Half a response cannot be mended; the client sees it end too early.
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if matches!(failure, Failure::Unevaluated) {
        cx.give_up_directives();
    }
    let mut response = TextResponse::new(status, why);
    if let Some(seconds) = retry_after {
        response = response.with("Retry-After", &seconds.to_string());
        response = response.with("Cache-Control", "no-store");
    }
    // The body of the request may be unread where the script makes an error page.
    cx.respond(response, after(true, context)).await
}
