//! The life of a request: which site, which file or script, what answer, one line in the log.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use maitred_http1::{Head, Method};
use maitred_rules::forwarded::{Field, Heard, Trust, Unknown};

use crate::handler::cache::purge;
use crate::handler::context::{Origin, RequestContext};
use crate::handler::respond::{plain, refuse, whole};
use crate::handler::rules::{self, Admitted};
use crate::handler::{refusal, script, static_files};
use crate::http::client::{After, Content, HttpClient, Reply};
use crate::http::headers::{Header, OCTETS, ServerHeaders, first_field};
use crate::logging::access_log::{self, AccessLog, Time};
use crate::logging::record::RequestRecord;
use crate::net::admin_peer::AdminPeer;
use crate::pool::queue::Lane;
use crate::pool::status;
use crate::runtime::request_id::RequestId;
use crate::services::Thread;
use crate::site::files::{self, Entry};
use crate::site::resolver::{Route, Script};
use crate::site::sites::Sites;
use crate::{admin, cache};

/// The challenge for a client without the token of the admin listener (RFC 6750 §3).
const CHALLENGE: Header<'static> = (b"WWW-Authenticate", b"Bearer realm=\"maitred\"");

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

pub(crate) async fn answer(
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
pub(crate) fn origin<'t>(
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
        lane: Lane::Usual,
        max_body_size: site.settings.max_body_size,
        dressing: rules::PLAIN,
        origin,
        is_https,
        has_user: false,
        status: None,
    };
    serve_path(client, head, thread, &way, &[None, None], record).await
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
        && let Some(purged) = Box::pin(purge::purge(client, head, thread, way, record)).await
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
            let entry = static_files::variant(thread, (way.site, way.path), head, entry).await;
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
    record.written(client.answer(&reply, Content::of(&answer.body)).await)?;
    Ok(after)
}
