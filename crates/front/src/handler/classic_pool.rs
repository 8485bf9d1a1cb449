//! Requests that a copy of a booted application leaves to the classic pool of its site, by the
//! response header `X-Accel-Redirect: @classic`. The script boots there for this request, and
//! nothing of the first response is sent.

use std::io;

use crate::backend::attempt::attempt;
use crate::handler::cache::detached_client::DetachedClient;
use crate::handler::cache::tee::Tee;
use crate::handler::context::{RequestContext, RequestCx};
use crate::handler::respond::TextResponse;
use crate::handler::script::{self, Caller};
use crate::handler::script_response::HttpEncoder;
use crate::http::body::Body;
use crate::http::client::{After, HttpClient};
use crate::site::resolver::Script;

/// Runs the request's script in the classic pool.
///
/// # Errors
/// When the client has closed the connection or does not read.
pub async fn serve<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    script: &Script,
    body: &Body,
    caller: &Caller,
) -> io::Result<After> {
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
        return cx.respond(TextResponse::new(431, why), After::Linger).await;
    };
    let run = script::run_of(&context, &name, false, body, caller);
    let headers = cx.response_headers();
    let mut tee = Tee::new(HttpEncoder::<C::HeadWriter>::new(&run, &context, &headers), None);
    let mut client = DetachedClient::new(&mut *cx.client, None, false);
    let tried = attempt(&mut client, &mut tee, cx.thread.number, &run, encoded).await;
    let is_gone = client.has_gone;
    script::record(&tee, &tried.progress, &mut cx.record);
    if is_gone {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    match &tried.outcome {
        Ok(()) => Ok(script::after(tee.encoder().reusable, &context)),
        Err(_) => Box::pin(script::fall_short(cx, &context, &name, tee, tried)).await,
    }
}
