//! The life of a request: which site, which file or script, what answer, one line in the log.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use maitred_http1::{Answer, AnswerFraming, Head, Method, write_head};
use maitred_rules::SiteRules;
use maitred_rules::dress::HeaderPolicy;
use maitred_rules::forwarded::{Field, Heard, Trust, Unknown};

use crate::admin;
use crate::admin::AdminPeer;
use crate::backend::Backend;
use crate::cache;
use crate::handler::rules;
use crate::handler::rules::{Admitted, Origin};
use crate::handler::script;
use crate::http::body::NoBody;
use crate::http::client::{After, Content, HttpClient, Reply};
use crate::http::refusal;
use crate::logging::access_log;
use crate::logging::access_log::{AccessLog, RequestRecord, Time};
use crate::net::tls::Secured;
use crate::pool::queue::Priority;
use crate::pool::status;
use crate::runtime::clock::http_date;
use crate::runtime::request_id;
use crate::runtime::request_id::RequestId;
use crate::services::{Sites, Thread};
use crate::site::Site;
use crate::site::compress;
use crate::site::files;
use crate::site::files::Entry;
use crate::site::resolver::{Route, Script};

/// A header's name and value.
pub type Header<'a> = (&'a [u8], &'a [u8]);

/// The type of an answer of our own.
pub const PLAIN: Header<'static> = (b"Content-Type", b"text/plain; charset=utf-8");

/// The challenge for a client without the token of the admin listener (RFC 6750 §3).
const CHALLENGE: Header<'static> = (b"WWW-Authenticate", b"Bearer realm=\"maitred\"");

/// The type that authorities expect of the file they look for (RFC 8555 §8.3).
const OCTETS: Header<'static> = (b"Content-Type", b"application/octet-stream");

/// The text of a 400 to a client whose address a trusted proxy has not passed on readably.
const CLIENT_UNKNOWN: &str = "The proxy in front of this server does not say who the client is.";

/// Answers one request.
pub async fn serve(client: &mut impl HttpClient, head: &Head, thread: &Arc<Thread>) -> After {
    let begun = Instant::now();
    let mut record = RequestRecord::default();
    let before = client.sent();
    let after = answer(client, head, thread, &mut record).await;
    record.bytes = (client.sent() - before).saturating_sub(record.head_bytes);
    let log = thread.shared.access_log.load();
    let is_wanted = |log: &&Arc<AccessLog>| client.admin().is_none() && log.wants(&record.log);
    if let Some(log) = log.as_ref().filter(is_wanted) {
        let peer = record.client.unwrap_or_else(|| client.peer().ip());
        let secured = client.secured().cloned();
        if record.going_on.is_some() && log.tells_costs() {
            access_log::write_later(thread, (peer, head), (begun, secured), record);
        } else {
            let how = (Time::Since(begun), secured.as_deref());
            log.write(&access_log::line(peer, head, how, &mut record));
        }
    }
    if after.is_err() {
        client.break_off();
    }
    match after {
        Ok(After::Keep) if head.keep_alive => After::Keep,
        Ok(After::Keep) | Err(_) => After::Close,
        Ok(after) => after,
    }
}

/// Answers a request that came to the admin listener.
async fn for_admin(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    peer: AdminPeer,
    record: &mut RequestRecord,
) -> io::Result<After> {
    if peer == AdminPeer::Tcp && !admin::is_meant(client.local().ip(), head.host()) {
        let why = "Only this machine's own address or localhost leads here.";
        return refuse(client, head, record, 421, why).await;
    }
    let sites = thread.sites();
    let view = match admin::decide(&sites.admin, peer, head.header("authorization")) {
        Ok(view) => view,
        Err(why) => return refuse_admin(client, head, why, record).await,
    };
    match admin::page(&thread.shared, head, view).await {
        Some(page) => send_page(client, head, &page, record).await,
        None => refuse(client, head, record, 404, "There is no such page.").await,
    }
}

async fn refuse_admin(
    client: &mut impl HttpClient,
    head: &Head,
    why: admin::Refused,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let after = client.discard_body(head);
    let (status, challenge, why) = match why {
        admin::Refused::NoToken => {
            let why = "A token is needed here (admin_token).";
            (401, Some(CHALLENGE), why)
        }
        admin::Refused::WrongUser => {
            let why = "This user may not read what is here (admin_users).";
            (403, None, why)
        }
    };
    plain(client, head, record, status, challenge, why, after).await
}

async fn answer(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let sites = thread.sites();
    let trust = Some(&sites.trust).filter(|trust| !trust.is_empty() && client.admin().is_none());
    let origin = match trust.map(|trust| origin(client, head, trust, record)) {
        Some(Err(unknown)) => {
            let peer = client.peer().ip();
            thread.shared.troubles.client_unknown(peer, &unknown);
            (record.is_client_unknown, record.sends_id) = (true, sites.sends_request_id);
            return refuse(client, head, record, 400, CLIENT_UNKNOWN).await;
        }
        Some(Ok(heard)) => Some(heard),
        None => None,
    };
    if head.kind() == Method::Trace {
        // It would show a script the headers that cookies and passwords are in (nginx, too).
        return refuse(client, head, record, 405, "TRACE is not answered.").await;
    }
    if let Some(peer) = client.admin() {
        return Box::pin(for_admin(client, head, thread, peer, record)).await;
    }
    if let Some(file) = thread.shared.proofs.file(head.path()) {
        let (headers, after) = ([OCTETS], client.discard_body(head));
        let whole = whole(client, head, record, 200, &headers, &file, after);
        return Box::pin(whole).await;
    }
    record.sends_id = sites.sends_request_id;
    let (host, origin) = match &origin {
        None => (head.host(), None),
        Some((heard, is_trusted)) => {
            let host = heard.host.as_deref().unwrap_or_else(|| head.host());
            let origin = Origin {
                client: heard.client.unwrap_or_else(|| client.peer()),
                is_https: heard.is_https,
                by_forwarded: *is_trusted && sites.trust.fields.contains(&Field::Forwarded),
                host,
            };
            (host, Some(origin))
        }
    };
    at_site(client, head, thread, &sites, (host, origin), record).await
}

/// What a trusted proxy says of its client, and whether the client's connection is one's.
fn origin<'t>(
    client: &impl HttpClient,
    head: &'t Head,
    trust: &'t Trust,
    record: &mut RequestRecord,
) -> Result<(Heard, bool), Unknown<'t>> {
    let peer = client.peer().ip();
    let is_trusted = trust.proxies.contain(peer);
    let heard = trust.hear(peer, |name| head.values(name))?;
    // A proxy that names no client asks for itself, as a health check does.
    record.client = Some(heard.client.map_or(peer, |client| client.ip()));
    if is_trusted {
        record.id = RequestId::told(head);
    }
    Ok((heard, is_trusted))
}

/// Answers at the site of a host; `origin` is there if a proxy in front is to be believed.
async fn at_site(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    sites: &Sites,
    (host, origin): (&str, Option<Origin<'_>>),
    record: &mut RequestRecord,
) -> io::Result<After> {
    let Some(site) = sites.site_for(host) else {
        let why = "no site is served under this name";
        tracing::debug!("{}: 404: {why}", host.escape_debug());
        return refuse(client, head, record, 404, why).await;
    };
    let is_https = origin.and_then(|origin| origin.is_https);
    let is_https = is_https.unwrap_or(client.secured().is_some());
    record.is_https = is_https;
    record.log.clone_from(&site.access_log);
    let redirect = sites.redirect(is_https, host, head);
    if let Some((status, location)) = redirect.filter(|_| !thread.shared.awaits_certificate(host)) {
        let header = Some((&b"Location"[..], location.as_bytes()));
        let after = client.discard_body(head);
        return plain(client, head, record, status, header, "", after).await;
    }
    if let Some(rules) = &site.rules {
        let origin = origin.unwrap_or(Origin {
            client: client.peer(),
            is_https: None,
            by_forwarded: false,
            host,
        });
        let by = (site, rules);
        // Larger than all that a request without rules needs.
        let ruled = rules::answer(client, head, thread, by, (origin, is_https), record);
        return Box::pin(ruled).await;
    }
    let way = RequestContext {
        site,
        rules: None,
        path: head.path(),
        query: head.query(),
        backend: &site.backend,
        priority: Priority::Normal,
        max_body_size: site.settings.max_body_size,
        dressing: rules::PLAIN,
        origin,
        is_https,
        has_user: false,
        status: None,
    };
    serve_path(client, head, thread, &way, &[None, None], record).await
}

/// How a request is answered: by which site, and what its rules have made of it.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// The site.
    pub site: &'a Arc<Site>,
    /// Its rules, if it has any.
    pub rules: Option<&'a SiteRules>,
    /// The path, encoded; after rewrites.
    pub path: &'a str,
    /// The query that belongs to it.
    pub query: Option<&'a str>,
    /// Where its scripts run.
    pub backend: &'a Backend,
    /// Whom its scripts wait before.
    pub priority: Priority,
    /// Largest request body in bytes.
    pub max_body_size: u64,
    /// What becomes of the answer's header.
    pub dressing: &'a HeaderPolicy<'a>,
    /// Who asks, and for what host, if that is not what connection and request say.
    pub origin: Option<Origin<'a>>,
    /// Whether the client speaks TLS, with us or with a proxy in front.
    pub is_https: bool,
    /// Whether it has shown a user that a `basic_auth` knows.
    pub has_user: bool,
    /// It is the page for this status, and then this becomes of the connection.
    pub status: Option<(u16, After)>,
}

/// Answers with what the path stands for; `shown` are places in `basic_auth` of which the request
/// has shown a user. Each way that leads far is in a box: all requests hold the room for the largest that
/// is not, and are moved with it.
pub async fn serve_path(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    way: &RequestContext<'_>,
    shown: &[Option<usize>],
    record: &mut RequestRecord,
) -> io::Result<After> {
    if crate::handler::proxy::is_websocket(head) {
        let troubles = &thread.shared.troubles;
        troubles.websocket_refused(way.host(head), way.path);
        return refuse(
            client,
            head,
            record,
            501,
            crate::handler::proxy::NO_WEBSOCKET,
        )
        .await;
    }
    if let Some(page) = status::page(way.backend, head) {
        return Box::pin(send_page(client, head, &page, record)).await;
    }
    if head.method() == cache::PURGE
        && let Some(purged) = Box::pin(cache::purge(client, head, thread, way, record)).await
    {
        return purged;
    }
    match refusal::resolve(head, way, &thread.shared.troubles) {
        Route::File(entry) => {
            if let Some(rules) = way.rules {
                let (counted, peer) = ([head.path(), way.path], client.peer().ip());
                let limits = rules::limits_of_index(rules, &counted, way.path, &entry);
                if let Some(wait) = rules::comes_too_soon(thread, way.site, limits, peer) {
                    return Box::pin(rules::comes_too_often(client, head, record, wait)).await;
                }
                let admitted = rules::admit_index(rules, way.path, &entry, peer);
                let at = (way, shown, admitted.map(|auth| [auth, None]));
                if let Some(after) = Box::pin(stop(client, head, thread, at, record)).await? {
                    return Ok(after);
                }
            }
            let entry = compress::variant(thread, (way.site, way.path), head, entry).await;
            Box::pin(send_file(client, head, &entry, record)).await
        }
        Route::Script(script) => {
            serve_script(client, head, thread, (way, &script), shown, record).await
        }
        Route::RedirectSlash(location) => {
            let header = Some((&b"Location"[..], location.as_bytes()));
            let after = client.discard_body(head);
            plain(client, head, record, 301, header, "", after).await
        }
        Route::Refused(refused) => {
            let words = refusal::of_path(&refused);
            refuse(client, head, record, refused.status, words).await
        }
    }
}

/// Answers with a script, if the rules have nothing against it.
async fn serve_script(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    (way, script): (&RequestContext<'_>, &Script),
    shown: &[Option<usize>],
    record: &mut RequestRecord,
) -> io::Result<After> {
    let mut way = *way;
    if let Some(rules) = way.rules {
        let (site, peer) = (&way.site.settings, client.peer().ip());
        let limits = rules::limits_of_script((site, rules), &[head.path(), way.path], script);
        if let Some(wait) = rules::comes_too_soon(thread, way.site, limits, peer) {
            return Box::pin(rules::comes_too_often(client, head, record, wait)).await;
        }
        let admitted = rules::admit_script((site, rules), script, peer);
        way.has_user |= matches!(admitted, Ok([Some(_), _] | [_, Some(_)]));
        let at = (&way, shown, admitted);
        if let Some(after) = Box::pin(stop(client, head, thread, at, record)).await? {
            return Ok(after);
        }
    }
    script::answer(client, head, thread, &way, script, record).await
}

/// Answers in place of what a path has led to, if the rules want something else of the client first.
async fn stop(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    (way, shown, admitted): (&RequestContext<'_>, &[Option<usize>], Admitted),
    record: &mut RequestRecord,
) -> io::Result<Option<After>> {
    let auths = match admitted {
        Ok(auths) => auths,
        Err(refusal) => {
            let of = (way, &*thread.shared.troubles);
            let refused = rules::refuse(client, head, of, refusal, record);
            return refused.await.map(Some);
        }
    };
    let Some(rules) = way.rules else {
        return Ok(None);
    };
    let is_shown = |auth: &usize| shown.contains(&Some(*auth));
    for auth in auths.into_iter().flatten().filter(|auth| !is_shown(auth)) {
        let asked = rules::ask_for_user(client, head, thread, rules, auth, record);
        if let Some(after) = asked.await? {
            return Ok(Some(after));
        }
    }
    Ok(None)
}

async fn send_page(
    client: &mut impl HttpClient,
    head: &Head,
    page: &status::Page,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let after = client.discard_body(head);
    let (headers, body) = (page.headers(), page.body());
    whole(client, head, record, 200, &headers, body, after).await
}

struct Conditions<'a>(&'a Head);

impl files::Conditions for Conditions<'_> {
    fn method(&self) -> &str {
        self.0.method()
    }

    fn header(&self, name: &str) -> Option<&str> {
        first_field(self.0, name)
    }
}

/// The value of the first field of this name, if it is text.
pub fn first_field<'h>(head: &'h Head, name: &str) -> Option<&'h str> {
    let named = |header: &(&[u8], &[u8])| header.0.eq_ignore_ascii_case(name.as_bytes());
    let found = head.headers().find(named);
    found.and_then(|(_, value)| std::str::from_utf8(value).ok())
}

async fn send_file(
    client: &mut impl HttpClient,
    head: &Head,
    entry: &Entry,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let answer = files::answer(entry, &Conditions(head));
    let after = client.discard_body(head);
    let secured = client.secured().cloned();
    let id = record.id_sent();
    let beside = ServerHeaders::of(secured.as_deref(), id.as_ref());
    let reply = Reply {
        request: head,
        status: answer.status,
        headers: beside.as_slice(),
        lines: &answer.headers,
        length: None,
        after,
    };
    client
        .answer(&reply, Content::of(&answer.body), record)
        .await?;
    Ok(after)
}

/// What a client over TLS is told of its next visits (RFC 6797 §6.1).
fn hsts(secured: Option<&Secured>) -> Option<Header<'_>> {
    let value = secured?.hsts.as_deref()?;
    Some((b"Strict-Transport-Security", value.as_bytes()))
}

/// The header fields that are the server's own.
#[derive(Debug, Clone, Copy)]
pub struct ServerHeaders<'a> {
    fields: [Header<'a>; 2],
    count: usize,
}

impl<'a> ServerHeaders<'a> {
    /// Those that an answer gets.
    pub fn of(secured: Option<&'a Secured>, id: Option<&'a RequestId>) -> ServerHeaders<'a> {
        let id = id.map(|id| (request_id::HEADER.as_bytes(), id.as_str().as_bytes()));
        let mut beside = ServerHeaders {
            fields: [PLAIN; 2],
            count: 0,
        };
        let all = [hsts(secured), id].into_iter().flatten();
        for (place, field) in beside.fields.iter_mut().zip(all) {
            *place = field;
            beside.count += 1;
        }
        beside
    }

    /// The fields.
    pub fn as_slice(&self) -> &[Header<'a>] {
        self.fields.get(..self.count).unwrap_or_default()
    }
}

/// Answers that the body could not be had, and why, and closes the connection.
pub async fn refuse_body(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    no_body: NoBody,
    way: &RequestContext<'_>,
) -> io::Result<After> {
    let (status, why) = match no_body {
        NoBody::TooLarge => (413, "The body is larger than max_body_size allows."),
        NoBody::TooSlow => (408, "The body came too slowly."),
        NoBody::Gone => {
            record.status = 499;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        NoBody::Refused(refusal) => (refusal.status(), refusal.reason()),
        NoBody::Spool(error) => {
            let dir = way.site.spool_dir.display();
            let (method, target) = (head.method(), head.target());
            let id = record.id();
            let id = id.as_str();
            if way.backend.may_log(target.len()) {
                tracing::error!(
                    "{method} {target}: its body cannot be kept in {dir}: {error} [request {id}]"
                );
            }
            (
                507,
                "The body could not be kept: the disk is full or cannot be written.",
            )
        }
    };
    refuse_close(client, head, record, status, why).await
}

/// Refuses with a status and a sentence; the connection is kept if the body can be taken off it.
pub async fn refuse(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    status: u16,
    why: &str,
) -> io::Result<After> {
    let after = client.discard_body(head);
    plain(client, head, record, status, None, why, after).await
}

/// Refuses with a status and a sentence, and closes the connection.
pub async fn refuse_close(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    status: u16,
    why: &str,
) -> io::Result<After> {
    plain(client, head, record, status, None, why, After::Linger).await
}

/// Sends an answer of our own: the status in words, and the cause. `after` says whether the
/// request's body has been taken off the connection, without which nothing else may be read from it.
pub async fn plain(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    status: u16,
    header: Option<Header<'_>>,
    why: &str,
    after: After,
) -> io::Result<After> {
    let body = match client.admin() {
        // Those who administer the server may know why.
        Some(_) => refusal::unfiltered(status, why),
        None => refusal::in_words(status, why),
    };
    let headers = [PLAIN, header.unwrap_or(PLAIN)];
    let headers = match header {
        Some(_) => &headers[..],
        None => &headers[..1],
    };
    Box::pin(whole(client, head, record, status, headers, &body, after)).await
}

/// Sends an answer whose body is a text; to HEAD without it (RFC 9110 §9.3.2).
pub async fn whole(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    status: u16,
    headers: &[Header<'_>],
    body: &str,
    after: After,
) -> io::Result<After> {
    let secured = client.secured().cloned();
    let id = record.id_sent();
    let beside = ServerHeaders::of(secured.as_deref(), id.as_ref());
    let beside = beside.as_slice();
    let all = (!beside.is_empty()).then(|| [headers, beside].concat());
    let reply = Reply {
        request: head,
        status,
        headers: all.as_deref().unwrap_or(headers),
        lines: &Bytes::new(),
        length: Some(body.len() as u64),
        after,
    };
    let content = match head.kind() {
        Method::Head => Content::Nothing,
        _ => Content::Made(body.as_bytes()),
    };
    client.answer(&reply, content, record).await?;
    Ok(after)
}

/// An answer to a client whose request has no usable head.
pub fn bare(status: u16, why: &str) -> Vec<u8> {
    let body = refusal::in_words(status, why);
    let answer = Answer {
        version: maitred_http1::Version::Http11,
        status,
        reason: None,
        framing: AnswerFraming::Length(body.len() as u64),
        keep_alive: false,
        date: &http_date(),
    };
    let mut out = Vec::with_capacity(512);
    write_head(&mut out, &answer, [PLAIN]);
    out.extend_from_slice(body.as_bytes());
    out
}
