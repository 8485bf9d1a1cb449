//! Requests that a copy of a booted application leaves to the classic pool of its site, by the
//! response header `X-Accel-Redirect: @classic`. The script boots there for this request, and
//! nothing of the first response is sent.

use std::io;

use maitred_scoreboard::RequestOutcome;

use crate::backend::attempt::attempt;
use crate::handler::cache::detached_client::DetachedClient;
use crate::handler::cache::fill::Fill;
use crate::handler::cache::tee::{CookieLearner, Tee};
use crate::handler::context::{RequestContext, RequestCx};
use crate::handler::respond::TextResponse;
use crate::handler::script::{self, Caller};
use crate::handler::script_response::HttpEncoder;
use crate::http::body::Body;
use crate::http::client::{After, HttpClient};
use crate::site::resolver::Script;

/// A request that a copy leaves to the classic pool.
pub struct LeftRequest<'r, 'f> {
    /// Its script.
    pub script: &'r Script,
    /// Its body.
    pub body: &'r Body,
    /// Its client.
    pub caller: &'r Caller,
    /// The response of the copy in the cache, if the site has one.
    pub fill: Option<Box<Fill<'f>>>,
}

/// Runs the request's script in the classic pool. The cache learns from the response what it learns
/// from every script's: cookies of the site, and changed pages.
///
/// # Errors
/// When the client has closed the connection or does not read.
pub async fn serve<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    left: LeftRequest<'_, '_>,
) -> io::Result<After> {
    let LeftRequest { script, body, caller, mut fill } = left;
    let name = String::from_utf8_lossy(&script.script_filename);
    let Some(backend) = context.site.classic_backend() else {
        let why = "it leaves the request to the classic pool, and its site has no `classic_pool`";
        context.backend.log(&format_args!("{name}: 502: {why}"));
        let response = TextResponse::new(502, "The script's response is not valid.");
        // The request's body has been read: what follows is the next request.
        return cx.respond(response, script::after(true, context)).await;
    };
    let context = RequestContext { backend, ..context.clone() };
    let Ok(encoded) = caller.encode(&context, script, body, None) else {
        let why = "The request's headers are too large for a script.";
        let after = cx.after_failed_request();
        return cx.respond(TextResponse::new(431, why), after).await;
    };
    let run = script::run_of(&context, &name, false, body, caller);
    let headers = cx.response_headers();
    if let Some(fill) = &mut fill {
        fill.leave_to_classic_pool();
    }
    let encoder = HttpEncoder::<C::HeadWriter>::new(&run, &context, &headers);
    let wanted = fill.as_ref().map(|fill| fill.wanted());
    let mut tee = Tee::new(encoder, fill, CookieLearner::of(cx.thread, &context));
    let mut client = DetachedClient::new(&mut *cx.client, wanted, false);
    let tried = attempt(&mut client, &mut tee, cx.thread.number, &run, encoded).await;
    let is_gone = client.has_gone;
    script::record(&tee, &tried.progress, &mut cx.record);
    cx.record.lines.extend(run.lines.take());
    if is_gone {
        cx.record.status = RequestOutcome::ClientLeft.status();
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    match &tried.outcome {
        Ok(()) => Ok(script::after(tee.encoder().reusable, &context)),
        Err(_) => Box::pin(script::fall_short(cx, &context, &name, tee, tried)).await,
    }
}
