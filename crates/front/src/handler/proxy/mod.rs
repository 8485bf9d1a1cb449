//! Requests that another HTTP server answers (`proxy`): a Node process, a WebSocket server. The
//! crate hyper speaks HTTP/1.1 to it; here is what goes there and comes back, and for how long.
//! Bodies are passed on as they come, both ways: neither side is asked for more than the other takes.

pub(crate) mod early;
pub(crate) mod outgoing;
pub(crate) mod relay;
pub(crate) mod tunnel;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use maitred_http1::{Head, Version};
use maitred_rules::settings::Proxy;
use tokio::time::{Instant, sleep_until};

use crate::handler::context::RequestContext;
use crate::handler::proxy::early::Early;
use crate::handler::proxy::outgoing::Outgoing;
use crate::http::body::NoBody;
use crate::http::client::{After, HttpClient};
use crate::logging::record::RequestRecord;
use crate::logging::repeated::RepeatedErrors;
use crate::proxy::error::{Failure, Silence};
use crate::proxy::server::{self, Link, Server};
use crate::proxy::upload::{Upload, UploadBody};
use crate::services::Thread;

pub use crate::handler::proxy::outgoing::is_websocket;

/// What a client of a WebSocket is told where no server is named for its path.
pub const NO_WEBSOCKET: &str = "No server takes WebSocket connections here: the site has no `proxy` \
                                for this path.";

/// The status of a request whose client has left, for the log (nginx's).
const CLIENT_LEFT: u16 = 499;

/// What is asked of whom.
pub(crate) struct Asking<'a> {
    head: &'a Head,
    way: &'a RequestContext<'a>,
    rule: &'a Proxy,
    name: &'a str,
    is_websocket: bool,
}

/// Has a server answer a request whose path is `path`, decoded and resolved.
pub async fn answer(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    way: &RequestContext<'_>,
    (server, path): (&Server, &[u8]),
    record: &mut RequestRecord,
) -> io::Result<After> {
    let mut begun = server.figures.begin();
    let asking = Asking {
        head,
        way,
        rule: &server.rule,
        name: &server.name,
        is_websocket: is_websocket(head),
    };
    let id = record.id();
    let (mut upload, body) = match Upload::of(head, way.max_body_size) {
        Ok(both) => both,
        Err(no_body) => return refuse_body(client, head, way, no_body, record).await,
    };
    let early = Early::default();
    let outgoing = Outgoing {
        head,
        way,
        path,
        rule: &server.rule,
        client: way
            .origin
            .map_or_else(|| client.peer(), |origin| origin.client)
            .ip(),
        id: id.as_str(),
        early: (head.version() != Version::Http10).then_some(&early),
        is_websocket: asking.is_websocket,
    };
    let outcome = match outgoing.request(body) {
        None => {
            let why = "The address has something in it that no address should have.";
            let after = after_upload(head, &upload, After::Keep);
            return crate::handler::respond::plain(client, head, record, 400, None, why, after)
                .await;
        }
        Some(request) => {
            let to = (server, &outgoing, request);
            follow(client, &asking, thread, to, &mut upload, record).await
        }
    };
    begun.ended(&outcome, record.status);
    record.script = Some(begun.since().elapsed());
    record.body_bytes = upload.taken();
    match outcome {
        Ok(after) => Ok(after),
        Err(failure) => {
            let of = (&asking, &*thread.shared.troubles);
            fail(client, of, failure, &upload, record).await
        }
    }
}

/// What is asked, and of whom.
type To<'a> = (&'a Server, &'a Outgoing<'a>, Request<UploadBody>);

async fn follow(
    client: &mut impl HttpClient,
    asking: &Asking<'_>,
    thread: &Arc<Thread>,
    to: To<'_>,
    upload: &mut Upload,
    record: &mut RequestRecord,
) -> Result<After, Failure> {
    let server = to.0;
    let early = to.1.early;
    let (response, link) = ask(client, asking, to, upload, record).await?;
    while let Some(hints) = early.and_then(Early::take) {
        early::pass(client, &hints, record).await?;
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        tunnel::run(client, asking, &thread.shared, response, record).await?;
        return Ok(After::Linger);
    }
    let (parts, body) = response.into_parts();
    if let Some(why) = relay::refuse(&parts) {
        return Err(Failure::Broken(why.to_owned()));
    }
    let kept_for = server::keep_time(&parts.headers);
    let response = Response::from_parts(parts, body);
    let is_reusable =
        relay::relay(client, asking, &thread.shared, (response, upload), record).await?;
    if !upload.is_unread() && !asking.is_websocket {
        server.keep(link, kept_for);
    }
    let after = if is_reusable {
        After::Keep
    } else {
        After::Close
    };
    Ok(after_upload(asking.head, upload, after))
}

/// What becomes of the client's connection: over HTTP/1 it is of no use behind a body that nobody has
/// read.
fn after_upload(head: &Head, upload: &Upload, after: After) -> After {
    match head.version() {
        // What is left of a stream does not concern the others.
        Version::Http2 => After::Keep,
        _ if upload.is_unread() => After::Linger,
        _ => after,
    }
}

/// Asks over a kept connection, or over a new one. A kept one may be closed by the server at the same
/// moment: then it is asked once more if that can do no harm.
async fn ask(
    client: &mut impl HttpClient,
    asking: &Asking<'_>,
    (server, outgoing, mut request): To<'_>,
    upload: &mut Upload,
    record: &mut RequestRecord,
) -> Result<(Response<Incoming>, Link), Failure> {
    let can_repeat = asking.head.kind().is_idempotent() && upload.is_over();
    let kept = match asking.is_websocket {
        true => None,
        false => server.take(can_repeat),
    };
    if let Some(mut link) = kept {
        let asking = (asking, outgoing.early);
        match ask_over(client, asking, &mut link, request, upload, record).await {
            Ok(response) => return Ok((response, link)),
            Err(Lost::Unsent(unsent)) => request = *unsent,
            Err(Lost::Silently(_)) if can_repeat => {
                let again = outgoing.request(UploadBody::empty());
                request = again.ok_or(Failure::ClientLeft)?;
            }
            Err(Lost::Silently(failure) | Lost::Otherwise(failure)) => return Err(failure),
        }
    }
    let mut link = server.connect().await?;
    let asking = (asking, outgoing.early);
    match ask_over(client, asking, &mut link, request, upload, record).await {
        Ok(response) => Ok((response, link)),
        Err(Lost::Silently(failure) | Lost::Otherwise(failure)) => Err(failure),
        Err(Lost::Unsent(_)) => {
            let why = "it closed the connection before it was asked anything";
            Err(Failure::Broken(why.to_owned()))
        }
    }
}

/// Why no answer has begun.
enum Lost {
    /// Nothing of the request was sent.
    Unsent(Box<Request<UploadBody>>),
    /// The connection was closed without a byte of an answer.
    Silently(Failure),
    /// Something else has happened.
    Otherwise(Failure),
}

/// Asks over this connection.
async fn ask_over(
    client: &mut impl HttpClient,
    (asking, early): (&Asking<'_>, Option<&Early>),
    link: &mut Link,
    request: Request<UploadBody>,
    upload: &mut Upload,
    record: &mut RequestRecord,
) -> Result<Response<Incoming>, Lost> {
    if !upload.is_over() {
        let invited = client.invite_body(asking.head).await;
        invited.map_err(|no_body| Lost::Otherwise(Failure::NoBody(no_body)))?;
    }
    let before = link.tap.received();
    let answer = link.sender.try_send_request(request);
    tokio::pin!(answer);
    loop {
        let begun = Instant::now();
        let allows = upload.allows(asking.rule);
        let silence = Silence::of(upload);
        tokio::select! {
            biased;
            answer = &mut answer => {
                return answer.map_err(|mut error| {
                    if let Some(request) = error.take_message() {
                        return Lost::Unsent(Box::new(request));
                    }
                    let failure = Failure::Broken(server::describe(error.error()));
                    match link.tap.received() == before {
                        true => Lost::Silently(failure),
                        false => Lost::Otherwise(failure),
                    }
                });
            }
            hints = heard(early) => {
                let passed = early::pass(client, &hints, record).await;
                passed.map_err(Lost::Otherwise)?;
            }
            outcome = busy(client, upload) => outcome.map_err(Lost::Otherwise)?,
            () = until(allows.map(|allows| begun + allows)) => {
                return Err(Lost::Otherwise(silence.into()));
            }
        }
    }
}

async fn heard(early: Option<&Early>) -> HeaderMap {
    match early {
        Some(early) => early.next().await,
        None => pending().await,
    }
}

/// Passes on what the client sends; when that was all, waits for it to leave.
async fn busy(client: &mut impl HttpClient, upload: &mut Upload) -> Result<(), Failure> {
    if upload.is_over() {
        client.gone_later().await;
        return Err(Failure::ClientLeft);
    }
    upload.step(client).await.map_err(Failure::NoBody)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

async fn refuse_body(
    client: &mut impl HttpClient,
    head: &Head,
    way: &RequestContext<'_>,
    no_body: NoBody,
    record: &mut RequestRecord,
) -> io::Result<After> {
    crate::handler::respond::refuse_body(client, head, record, no_body, way).await
}

/// Answers in place of the server.
async fn fail(
    client: &mut impl HttpClient,
    (asking, troubles): (&Asking<'_>, &RepeatedErrors),
    failure: Failure,
    upload: &Upload,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let (head, has_begun) = (asking.head, record.status != 0);
    let failure = match failure {
        Failure::NoBody(no_body) if !has_begun => {
            return refuse_body(client, head, asking.way, no_body, record).await;
        }
        failure => failure,
    };
    let (status, why) = explain(&failure);
    if let Some(detail) = detail(&failure, asking.rule) {
        let (method, target, id) = (head.method(), head.target(), record.id());
        let (name, id) = (asking.name, id.as_str());
        tracing::debug!("{name}: {method} {target}: {status}: {detail} [request {id}]");
        troubles.proxy_failed(asking.name, status, &detail);
    }
    if has_begun || status == CLIENT_LEFT {
        if !has_begun {
            record.status = status;
        }
        // Half an answer cannot be mended; the client sees it end too early.
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let after = after_upload(head, upload, After::Keep);
    crate::handler::respond::plain(client, head, record, status, None, why, after).await
}

/// Which status each failure gets, and the sentence that goes with it.
fn explain(failure: &Failure) -> (u16, &'static str) {
    match failure {
        Failure::Unreachable(_) => (502, "The server behind this one cannot be reached."),
        Failure::Broken(_) => (502, "The server behind this one gave no valid answer."),
        Failure::NotAccepted => (
            504,
            "The server behind this one did not accept a connection in time.",
        ),
        Failure::Silent => (504, "The server behind this one said nothing for too long."),
        Failure::Deaf => (
            504,
            "The server behind this one did not take the request in time.",
        ),
        Failure::Intercepted(status) => (
            *status,
            "The server behind this one answered with an error.",
        ),
        Failure::NoBody(_) | Failure::ClientLeft => (CLIENT_LEFT, "The client left."),
    }
}

/// What the log says of a failure, if that is the server's, as the end of a sentence.
fn detail(failure: &Failure, rule: &Proxy) -> Option<String> {
    let too_long = |what: &str, limit: Duration, name: &str| {
        let seconds = limit.as_secs_f64();
        Some(format!("{what} for {seconds} s ({name})"))
    };
    match failure {
        Failure::Unreachable(why) => Some(format!("it cannot be reached: {why}")),
        Failure::Broken(why) => Some(format!("it gave no valid answer: {why}")),
        Failure::NotAccepted => too_long(
            "it did not accept a connection",
            rule.connect_timeout,
            "connect_timeout",
        ),
        Failure::Silent => too_long("it said nothing", rule.read_timeout, "read_timeout"),
        Failure::Deaf => too_long(
            "it took nothing of a request",
            rule.send_timeout,
            "send_timeout",
        ),
        Failure::Intercepted(_) | Failure::NoBody(_) | Failure::ClientLeft => None,
    }
}
