//! A request for a script: answered with what is kept, or else by running the script.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use maitred_http1::{Framing, Head};
use maitred_scoreboard::RequestOutcome;

use crate::backend::Backend;
use crate::backend::attempt::{Attempt, attempt, reject_early};
use crate::backend::error::Failure;
use crate::backend::progress::ScriptProgress;
use crate::backend::run::Run;
use crate::handler::accel_redirect;
use crate::handler::cache::detached_client::DetachedClient;
use crate::handler::cache::fill::Fill;
use crate::handler::cache::lookup::{self, Looked};
use crate::handler::cache::refresh;
use crate::handler::cache::tee::Tee;
use crate::handler::context::RequestContext;
use crate::handler::fastcgi_params::{self, Call, REQUEST_ID, Seen};
use crate::handler::script_response::HttpEncoder;
use crate::http::body::{Body, NoBody};
use crate::http::client::{After, HeadWriter, HttpClient};
use crate::http::deadline::SharedDeadline;
use crate::http::headers::{Header, PLAIN, ServerHeaders};
use crate::logging::record::RequestRecord;
use crate::net::tls::Secured;
use crate::runtime::request_id::RequestId;
use crate::services::Thread;
use crate::site::resolver::Script;

/// Answers a request for a script, or for the page of an error that the request came to. Files and kept
/// pages need less state than scripts do, so each way has a box of its own.
pub async fn answer<C: HttpClient>(
    client: &mut C,
    head: &Head,
    thread: &Arc<Thread>,
    way: &RequestContext<'_>,
    script: &Script,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let mut fill = None;
    if let (Some(of), Some(cache), None) = (&way.site.cache, &thread.shared.cache, way.status) {
        match Box::pin(lookup::look(client, head, (cache, of), way, record)).await? {
            Looked::Responded(after) => return Ok(after),
            Looked::Refresh(after, fill) => {
                let caller = Caller::of(client, way, record);
                refresh::refresh(fill, (head, way, script), (thread, caller));
                return Ok(after);
            }
            Looked::Forward(forward) => fill = Some(forward),
        }
    }
    let asked = (head, way, script);
    if let Some(tried) = turned_away(asked, thread.number, fill.as_deref(), record) {
        return Box::pin(refuse(client, head, (fill, tried), record)).await;
    }
    Box::pin(run(client, head, (thread, way), script, fill, record)).await
}

/// What becomes of a request without a body that its pool is certain to turn away: where that is so of
/// many, none of them is to cost what running a script takes. While the newest come first none is certain
/// to be, unless its own deadline is over: it waits, or takes the place of an older one.
fn turned_away(
    (head, way, script): (&Head, &RequestContext<'_>, &Script),
    thread: u32,
    fill: Option<&Fill<'_>>,
    record: &mut RequestRecord,
) -> Option<Attempt> {
    let Backend::Pool(pool) = way.backend else {
        return None;
    };
    if !pool.is_rejecting() || head.body != Framing::None {
        return None;
    }
    let (body, id) = (Body::Memory(Vec::new()), record.id());
    let name = String::from_utf8_lossy(&script.script_filename);
    let is_shared = fill.is_some_and(Fill::is_for_others);
    let run = run_of((head, way, &name), is_shared, &body, &id);
    let tried = reject_early(thread, &run)?;
    record.pool = Some(pool.name.clone());
    record.cache = fill.map(Fill::word);
    Some(tried)
}

/// Answers a request that was turned away.
async fn refuse(
    client: &mut impl HttpClient,
    head: &Head,
    (fill, tried): (Option<Box<Fill<'_>>>, Attempt),
    record: &mut RequestRecord,
) -> io::Result<After> {
    let Attempt {
        outcome,
        progress,
        retry_after,
        ..
    } = tried;
    let Err(failure) = outcome else {
        return Ok(After::Keep);
    };
    if let Some(fill) = fill
        && let Some(after) = Box::pin(fill.stand_in(client, &failure, record)).await
    {
        return after;
    }
    fail(client, head, (&failure, retry_after), &progress, record).await
}

/// Runs a script.
async fn run<C: HttpClient>(
    client: &mut C,
    head: &Head,
    (thread, way): (&Thread, &RequestContext<'_>),
    script: &Script,
    fill: Option<Box<Fill<'_>>>,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let body = match collect(client, head, way).await {
        Ok(body) => body,
        Err(no_body) => {
            let refused = crate::handler::respond::refuse_body(client, head, record, no_body, way);
            return Box::pin(refused).await;
        }
    };
    let caller = Caller::of(client, way, record);
    record.body_bytes = body.len();
    if let Backend::Pool(pool) = way.backend {
        record.pool = Some(pool.name.clone());
    }
    let Ok(encoded) = caller.encode((head, way, script), &body, fill.as_deref()) else {
        let why = "The request's headers are too large for a script.";
        return Box::pin(crate::handler::respond::refuse_close(
            client, head, record, 431, why,
        ))
        .await;
    };
    let address = || thread.address(client.peer().ip());
    let _held = match thread.shared.requests.hold(encoded.len(), address) {
        Ok(held) => held,
        Err(why) => {
            thread.shared.refuse_head(caller.peer.ip(), why);
            let why = "Too many large requests are in progress.";
            return Box::pin(crate::handler::respond::refuse_close(
                client, head, record, 503, why,
            ))
            .await;
        }
    };
    let name = String::from_utf8_lossy(&script.script_filename);
    let wanted = fill.as_ref().map(|fill| fill.wanted());
    let is_shared = fill.as_ref().is_some_and(|fill| fill.is_for_others());
    let run = run_of((head, way, &name), is_shared, &body, &caller.id);
    let id_sent = record.id_sent();
    let beside = ServerHeaders::of(caller.secured.as_deref(), id_sent.as_ref());
    let form = HttpEncoder::<C::HeadWriter>::new(&run, head, way, beside.as_slice());
    let mut tee = Tee::new(form, fill);
    let mut steadfast = DetachedClient::new(client, wanted, false);
    let tried = attempt(&mut steadfast, &mut tee, thread.number, &run, encoded).await;
    let has_gone = steadfast.has_gone;
    tell(&tee, &tried.progress, record);
    match &tried.outcome {
        Ok(()) if !has_gone => Ok(after(tee.form().reusable, way)),
        // What seldom happens is in a box: every request would hold the room for it.
        _ => {
            let tried = (tried, has_gone);
            Box::pin(fall_short(client, (head, way, &name), tee, tried, record)).await
        }
    }
}

/// The body of a request.
async fn collect<C: HttpClient>(
    client: &mut C,
    head: &Head,
    way: &RequestContext<'_>,
) -> Result<Body, NoBody> {
    match way.status {
        // Its body, if there was one, is no business of the page's.
        Some(_) => Ok(Body::Memory(Bytes::new().into())),
        None if head.body == Framing::None => Ok(Body::Memory(Vec::new())),
        None => {
            let (limit, spool_dir) = (way.max_body_size, &way.site.spool_dir);
            Box::pin(client.body(head, limit, spool_dir)).await
        }
    }
}

/// A run of the script of this name for a request; `is_shared`: others than its client want the answer.
pub fn run_of<'r>(
    (head, way, name): (&'r Head, &'r RequestContext<'_>, &'r str),
    is_shared: bool,
    body: &'r Body,
    id: &'r RequestId,
) -> Run<'r> {
    Run {
        backend: way.backend,
        method: head.method(),
        target: head.target(),
        body,
        script: name,
        request_id: REQUEST_ID,
        id: id.as_str(),
        spool_dir: &way.site.spool_dir,
        priority: way.priority,
        fields: if is_shared { &SharedDeadline } else { head },
    }
}

/// Who asks for a script, as it is told.
pub struct Caller {
    peer: SocketAddr,
    local: SocketAddr,
    secured: Option<Arc<Secured>>,
    /// The request's id.
    pub id: RequestId,
}

impl Caller {
    /// The client of a request.
    pub fn of(
        client: &mut impl HttpClient,
        way: &RequestContext<'_>,
        record: &mut RequestRecord,
    ) -> Caller {
        let peer = way.origin.map(|origin| origin.client);
        Caller {
            peer: peer.unwrap_or_else(|| client.peer()),
            local: client.local(),
            secured: client.secured().cloned(),
            id: record.id(),
        }
    }

    /// The request as its script gets it; `fill` says what that is not to see.
    ///
    /// # Errors
    /// When its fields are too large.
    pub fn encode(
        &self,
        (head, way, script): (&Head, &RequestContext<'_>, &Script),
        body: &Body,
        fill: Option<&Fill<'_>>,
    ) -> Result<Vec<u8>, fastcgi_params::TooLarge> {
        let conditions = fill.and_then(Fill::conditions);
        let seen = Seen::of(way, head);
        let whole = (seen.query, seen.target);
        let (query, target) = fill.and_then(Fill::seen).unwrap_or(whole);
        fastcgi_params::encode(&Call {
            head,
            body,
            script,
            peer: self.peer,
            local: self.local,
            secured: self.secured.as_deref(),
            seen: Seen {
                query,
                target,
                conditions: conditions.as_deref(),
                ..seen
            },
            id: self.id.as_str(),
        })
    }
}

/// Takes down what the last try has come to.
fn tell<W: HeadWriter>(tee: &Tee<'_, W>, progress: &ScriptProgress, record: &mut RequestRecord) {
    let form = tee.form();
    record.cache = tee.fill().map(Fill::word);
    (record.status, record.head_bytes) = (form.status, form.head_bytes);
    (record.queued, record.script) = (progress.queued, progress.script);
    record.spent = progress.spent;
    record.script_end = progress.going_on.as_ref().map(|exchange| exchange.at_end());
}

/// What becomes of the connection after a complete answer.
fn after(is_reusable: bool, way: &RequestContext<'_>) -> After {
    match way.status {
        _ if !is_reusable => After::Close,
        Some((_, after)) => after,
        None => After::Keep,
    }
}

/// What becomes of a request whose client has gone, or whose last try has brought no complete answer.
async fn fall_short<C: HttpClient>(
    client: &mut C,
    (head, way, name): (&Head, &RequestContext<'_>, &str),
    tee: Tee<'_, C::HeadWriter>,
    (tried, has_gone): (Attempt, bool),
    record: &mut RequestRecord,
) -> io::Result<After> {
    let Attempt {
        outcome,
        progress,
        retry_after,
        ..
    } = tried;
    if has_gone {
        record.status = RequestOutcome::ClientLeft.status();
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let (form, fill) = tee.into_parts();
    let Err(failure) = outcome else {
        return Ok(after(form.reusable, way));
    };
    if let (Some(fill), false) = (fill, progress.has_sent)
        && let Some(after) = fill.stand_in(client, &failure, record).await
    {
        return after;
    }
    if let (Failure::FileNamed, Some(said)) = (&failure, form.said()) {
        return accel_redirect::answer(client, head, (way, name), said, record).await;
    }
    fail(client, head, (&failure, retry_after), &progress, record).await
}

/// Answers in place of a script.
async fn fail(
    client: &mut impl HttpClient,
    head: &Head,
    (failure, retry_after): (&Failure, Option<u64>),
    progress: &ScriptProgress,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let (status, why) = (failure.status(), failure.sentence());
    if failure.is_client_gone() {
        record.status = status;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if progress.has_sent {
        // Half an answer cannot be mended; the client sees it end too early.
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let Some(seconds) = retry_after else {
        return crate::handler::respond::plain(
            client,
            head,
            record,
            status,
            None,
            why,
            After::Keep,
        )
        .await;
    };
    let (seconds, body) = (
        seconds.to_string(),
        crate::http::error_body::in_words(status, why),
    );
    let again: Header<'_> = (b"Retry-After", seconds.as_bytes());
    let headers = [PLAIN, again, (b"Cache-Control", b"no-store")];
    crate::handler::respond::whole(client, head, record, status, &headers, &body, After::Keep).await
}
