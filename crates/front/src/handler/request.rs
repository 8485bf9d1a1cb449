//! The life of a request: its site, the decision, the response, and one line in the access log.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use maitred_http1::{Head, Method};
use maitred_pagecache::coded_tags::{is_condition, uncoded};
use maitred_rules::SiteRules;
use maitred_rules::forwarded::{ForwardedClient, UnknownClient};
use maitred_rules::path::{CleanPath, clean_path};

use crate::handler::cache::purge;
use crate::handler::context::{ErrorPage, RequestContext, RequestCx, RequestTarget};
use crate::handler::decision::Decision;
use crate::handler::request_detail;
use crate::handler::request_spans::{self, FinishedRequest};
use crate::handler::respond::{InterceptedResponse, TextResponse};
use crate::handler::route::{route, special};
use crate::handler::rules::RulesCheck;
use crate::handler::{admin_pages, htaccess, proxy, refusal, script, static_files};
use crate::http::client::{After, Content, HttpClient};
use crate::http::content::Slice;
use crate::http::headers::OCTETS;
use crate::logging::access_log::{self, AccessLog, Finished, Time};
use crate::logging::request_record::RequestRecord;
use crate::runtime::request_id::RequestId;
use crate::services::Thread;
use crate::site::Site;
use crate::site::files::{FileBody, StaticFile};
use crate::site::resolver::Route;
use crate::site::sites::Sites;

/// The reason of a 400 if a trusted proxy sends no readable client address.
const CLIENT_UNKNOWN: &str = "The proxy in front of this server does not say who the client is.";

/// The reason of a 421 over a connection from before a reload that has changed which client
/// certificates are accepted (RFC 9110 §15.5.20: a client may repeat the request over another one).
const OUTDATED: &str = "Other client certificates are accepted now. Connect again.";

/// Serves one request, and logs it.
pub async fn serve<C: HttpClient>(client: &mut C, head: &Head, thread: &Arc<Thread>) -> After {
    let begun = Instant::now();
    let before = client.sent();
    let uncoded = without_coded_tags(head);
    let head = uncoded.as_ref().unwrap_or(head);
    let sites = thread.sites();
    let mut record = RequestRecord::default();
    if client.admin().is_none()
        && let Some(traces) = &*thread.shared.traces.load()
    {
        record.trace = Some(Arc::new(traces.begin(|name| head.values(name))));
    }
    let heard = hear_proxy(client, head, &sites, &mut record);
    let target = RequestTarget::direct(client, head);
    let mut cx = RequestCx {
        target: match &heard {
            Ok(Some(heard)) => target.forwarded(&sites.trust, heard),
            _ => target,
        },
        client,
        head,
        thread,
        record,
        header_policy: None,
        error_pages: None,
        intercepted: None,
        directives: None,
    };
    let after = match &heard {
        Ok(_) => respond(&mut cx, &sites).await,
        Err(unknown) => refuse_unknown(&mut cx, &sites, unknown).await,
    };
    cx.record.bytes = (cx.client.sent() - before).saturating_sub(cx.record.head_bytes);
    let RequestCx { client, record, target, .. } = cx;
    let shared = &thread.shared;
    let is_wanted = record.trace.is_some() || shared.recent_requests.is_wanted();
    if client.admin().is_none() && is_wanted {
        let request = FinishedRequest {
            method: head.method(),
            target: head.target(),
            path: head.path(),
            version: Some(head.version()),
            record: &record,
            host: target.host,
            begun,
            took: begun.elapsed(),
        };
        if let (Some(trace), Some(traces)) = (&record.trace, &*shared.traces.load()) {
            request_spans::export(traces, trace, &request);
        }
        request_detail::remember(shared, &request);
    }
    log(client, head, thread, begun, record);
    if after.is_err() {
        client.break_off();
    }
    match after {
        Ok(After::Keep) if head.keep_alive => After::Keep,
        Ok(After::Keep) | Err(_) => After::Close,
        Ok(after) => after,
    }
}

/// The request with the entity tags of compressed responses as scripts and upstream servers wrote
/// them. None if it has none.
fn without_coded_tags(head: &Head) -> Option<Head> {
    /// Most headers of a request that change; each costs a copy of its value.
    const MAX_CONDITIONS: usize = 4;
    let conditions = head.headers().enumerate().filter(|(_, (name, _))| is_condition(name));
    let changed = conditions.filter_map(|(index, (_, value))| Some((index, uncoded(value)?)));
    let changed: Vec<(usize, Vec<u8>)> = changed.take(MAX_CONDITIONS).collect();
    (!changed.is_empty()).then(|| head.with_values(&changed))
}

/// Writes the line of a request to the access log.
fn log(
    client: &impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    begun: Instant,
    mut record: RequestRecord,
) {
    let log = thread.shared.access_log.load();
    let is_wanted = |log: &&Arc<AccessLog>| client.admin().is_none() && log.wants(&record.log);
    let Some(log) = log.as_ref().filter(is_wanted) else {
        return;
    };
    let peer = record.client.unwrap_or_else(|| client.peer().ip());
    let finished =
        Finished { peer, head, time: Time::Since(begun), secured: client.secured().cloned() };
    if record.script_end.is_some() && log.tells_costs() {
        access_log::write_later(&thread.shared.access_log, finished, record);
    } else {
        log.write(&access_log::line(&finished, &mut record));
    }
}

/// What a trusted proxy says of the client, if proxies are trusted at all. The record gets the
/// client's address, and the request id of a trusted proxy.
fn hear_proxy<'h>(
    client: &impl HttpClient,
    head: &'h Head,
    sites: &'h Sites,
    record: &mut RequestRecord,
) -> Result<Option<ForwardedClient>, UnknownClient<'h>> {
    let trust = &sites.trust;
    if trust.is_empty() || client.admin().is_some() {
        return Ok(None);
    }
    let peer = client.peer().ip();
    let heard = trust.resolve(peer, |name| head.values(name))?;
    // A proxy that names no client sends a request of its own, such as a health check.
    record.client = Some(heard.client.map_or(peer, |client| client.ip()));
    if trust.proxies.contain(peer) {
        record.id = RequestId::received(head);
    }
    Ok(Some(heard))
}

async fn refuse_unknown<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    sites: &Sites,
    unknown: &UnknownClient<'_>,
) -> io::Result<After> {
    let troubles = &cx.thread.shared.troubles;
    troubles.client_unknown(cx.target.peer.ip(), unknown);
    cx.record.is_client_unknown = true;
    cx.record.sends_id = sites.sends_request_id;
    cx.refuse(TextResponse::new(400, CLIENT_UNKNOWN)).await
}

async fn respond<'r, C: HttpClient>(
    cx: &mut RequestCx<'r, C>,
    sites: &'r Sites,
) -> io::Result<After> {
    if cx.head.kind() == Method::Trace {
        // It would show a script the headers with cookies and passwords (as with nginx).
        return cx.refuse(TextResponse::new(405, "TRACE is not supported.")).await;
    }
    if let Some(peer) = cx.client.admin() {
        return Box::pin(admin_pages::serve(cx, sites, peer)).await;
    }
    if cx.thread.shared.refuses_connection(cx.client.secured()) {
        return cx.refuse(TextResponse::new(421, OUTDATED)).await;
    }
    if let Some(file) = cx.thread.shared.proofs.file(cx.target.host, cx.head.path()) {
        return cx.refuse(TextResponse::page(&[OCTETS], file)).await;
    }
    cx.record.sends_id = sites.sends_request_id;
    let Some(site) = sites.site_for(cx.target.host) else {
        let why = "no site is served under this name";
        tracing::debug!("{}: 404: {why}", cx.target.host.escape_debug());
        return cx.refuse(TextResponse::new(404, why)).await;
    };
    cx.record.is_https = cx.target.is_https;
    cx.record.log.clone_from(&site.access_log);
    let RequestTarget { host, is_https, .. } = cx.target;
    let redirect = sites.redirect(is_https, host, cx.head);
    // Applications send PURGE to the address of this server, for which no certificate is valid.
    let stays = || cx.thread.shared.awaits_certificate(host) || purge::may_purge(cx, site);
    if let Some((status, location)) = redirect.filter(|_| !stays()) {
        return cx.refuse(TextResponse::redirect(status, &location)).await;
    }
    let mut context = RequestContext::new(cx.head, cx.target, site);
    let decision = match &site.rules {
        None => route(&context, cx.thread).await,
        Some(rules) => match decided_before(cx, &mut context) {
            Some(decision) => decision,
            // In a box: larger than all that a request without rules needs.
            None => return Box::pin(serve_by_rules(cx, site, rules)).await,
        },
    };
    carry_out(cx, &context, decision).await
}

/// The cached decision on a request at a site whose only rules are `.htaccess` files.
fn decided_before<'r, C: HttpClient>(
    cx: &mut RequestCx<'r, C>,
    context: &mut RequestContext<'r>,
) -> Option<Decision<'r>> {
    if !context.site.has_htaccess_alone() {
        return None;
    }
    context.local = Some(cx.client.local());
    special(context, cx.thread).or_else(|| htaccess::cached(context))
}

async fn serve_by_rules<'r, C: HttpClient>(
    cx: &mut RequestCx<'r, C>,
    site: &'r Arc<Site>,
    rules: &'r SiteRules,
) -> io::Result<After> {
    let clean = clean_path(cx.head.path());
    let path = clean.as_ref().map_or(&b"/"[..], |path| path.as_bytes());
    let policy = rules.header_policy(path);
    cx.header_policy = (!policy.is_empty()).then(|| Arc::new(policy));
    cx.error_pages = (!rules.settings().error_pages.is_empty()).then_some(rules);
    let mut check = RulesCheck {
        rules,
        thread: cx.thread,
        context: RequestContext::new(cx.head, cx.target, site),
    };
    check.context.local = site.has_htaccess().then(|| cx.client.local());
    // Until the page of an error is sent as well, which a script may generate.
    let (_running, after) = match (check.enter(), &clean) {
        (Err(response), _) => (None, cx.refuse(response).await?),
        (Ok(running), Ok(path)) => (running, follow_rules(cx, &mut check, path).await?),
        (Ok(running), Err(refused)) => {
            refusal::log_path(&check.context, refused, &cx.thread.shared.troubles);
            (running, cx.refuse(refusal::of_path(refused)).await?)
        }
    };
    match cx.intercepted.take() {
        None => Ok(after),
        Some(error) => {
            cx.error_pages = None;
            send_error_page(cx, site, rules, &error).await
        }
    }
}

async fn follow_rules<'r, C: HttpClient>(
    cx: &mut RequestCx<'r, C>,
    check: &mut RulesCheck<'r>,
    path: &CleanPath<'_>,
) -> io::Result<After> {
    let decision = check.decide(path).await;
    let decision = decision.unwrap_or_else(Decision::Respond);
    carry_out(cx, &check.context, decision).await
}

/// Sends what was decided. What needs much memory is in a box: all requests hold the memory for the
/// largest that is not, and are moved with it.
async fn carry_out<'r, C: HttpClient>(
    cx: &mut RequestCx<'r, C>,
    context: &RequestContext<'r>,
    decision: Decision<'r>,
) -> io::Result<After> {
    cx.directives.clone_from(&context.directives);
    match decision {
        Decision::Respond(response) => cx.refuse(response).await,
        Decision::File(entry) => Box::pin(static_files::serve(cx, context, entry)).await,
        Decision::Script(script) => script::serve(cx, context, &script).await,
        Decision::Proxy { server, path } => {
            Box::pin(proxy::serve(cx, context, server, &path)).await
        }
        Decision::ErrorPage { status, page } => {
            Box::pin(send_page_of_error(cx, context, status, *page)).await
        }
        Decision::Purge => Box::pin(purge::purge(cx, context)).await,
    }
}

/// Sends the page that an `ErrorDocument` names.
async fn send_page_of_error<'r, C: HttpClient>(
    cx: &mut RequestCx<'r, C>,
    context: &RequestContext<'r>,
    status: u16,
    page: Decision<'r>,
) -> io::Result<After> {
    let after = cx.client.discard_body(cx.head);
    match page {
        Decision::File(entry) => {
            let content = content_of(&entry);
            let error = InterceptedResponse::bare(status, after);
            cx.send_error_page(&error, entry.content_type(), content).await
        }
        Decision::Script(script) => {
            let error_page = Some(ErrorPage { status, headers: &[], after });
            let context = RequestContext { error_page, ..context.clone() };
            script::serve(cx, &context, &script).await
        }
        Decision::Respond(response) => cx.respond(response, after).await,
        _ => cx.respond(TextResponse::new(status, ""), after).await,
    }
}

fn content_of(entry: &StaticFile) -> Content<'_> {
    match entry.body() {
        FileBody::Memory(bytes) => Content::Kept(bytes),
        FileBody::File(file) => Content::File(file, Slice { offset: 0, len: entry.len() }),
    }
}

/// Sends the site's page for an error, or the intercepted response if there is no page after all.
async fn send_error_page<'r, C: HttpClient>(
    cx: &mut RequestCx<'r, C>,
    site: &'r Arc<Site>,
    rules: &'r SiteRules,
    error: &InterceptedResponse,
) -> io::Result<After> {
    let page = rules.error_page(error.status).unwrap_or_default();
    let found = site.look_up(|| site.resolve(page, None)).await;
    match found.unwrap_or_else(Route::Refused) {
        Route::File(entry) => {
            let content = content_of(&entry);
            cx.send_error_page(error, entry.content_type(), content).await
        }
        Route::Script(script) => {
            let context = RequestContext {
                path: page.into(),
                query: None,
                error_page: Some(error.page()),
                ..RequestContext::new(cx.head, cx.target, site)
            };
            script::serve(cx, &context, &script).await
        }
        Route::RedirectSlash(_) | Route::Refused(_) => {
            let content = Content::Made(&error.body);
            let content_type = "text/plain; charset=utf-8";
            cx.send_error_page(error, content_type, content).await
        }
    }
}
