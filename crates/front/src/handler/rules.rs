//! A request to a site that has rules: what they make of it, and the page for an error.

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use maitred_http1::{Head, Method};
use maitred_rules::SiteRules;
use maitred_rules::dress::HeaderPolicy;
use maitred_rules::networks::client_key;
use maitred_rules::path::{CleanPath, clean_path};
use maitred_rules::site::{Asked, Refusal, Verdict};

use crate::handler::context::{Origin, RequestContext};
use crate::handler::rules_client::{Caught, Ruled};
use crate::handler::{proxy, refusal, request, script};
use crate::http::client::{After, Content, HttpClient, Reply};
use crate::http::content::Slice;
use crate::http::headers::Header;
use crate::http::hosts::host_name;
use crate::logging::record::RequestRecord;
use crate::logging::repeated::RepeatedErrors;
use crate::pool::queue::Lane;
use crate::services::Thread;
use crate::site::auth::Outcome;
use crate::site::files::{Body, Entry};
use crate::site::rate_limits::RunningRequest;
use crate::site::resolver::{Route, Script};
use crate::site::{Site, listing};

/// What a client is told that has used a `rate_limit` up.
const TOO_OFTEN: &str = "You ask too often.";

const HTML: Header<'static> = (b"Content-Type", b"text/html; charset=utf-8");

/// Answers a request to a site with rules.
pub async fn answer<C: HttpClient>(
    client: &mut C,
    head: &Head,
    thread: &Arc<Thread>,
    (site, rules): (&Arc<Site>, &SiteRules),
    (origin, is_https): (Origin<'_>, bool),
    record: &mut RequestRecord,
) -> io::Result<After> {
    let clean = clean_path(head.path());
    let path = clean.as_ref().map_or(&b"/"[..], |path| path.as_bytes());
    let dressing = rules.dressing(path);
    let pages = (!rules.settings().error_pages.is_empty()).then_some(rules);
    let way = RequestContext {
        site,
        rules: Some(rules),
        path: head.path(),
        query: head.query(),
        backend: &site.backend,
        lane: Lane::Usual,
        max_body_size: site.settings.max_body_size,
        dressing: &dressing,
        origin: Some(origin),
        is_https,
        has_user: false,
        status: None,
    };
    let mut ruled = Ruled::new(client, origin.client, &dressing, pages);
    let after = match &clean {
        Ok(path) => decide(&mut ruled, head, thread, (rules, path), &way, record).await?,
        Err(refused) => {
            refusal::log_path(head, &way, refused, &thread.shared.troubles);
            let words = refusal::of_path(refused);
            crate::handler::respond::refuse(&mut ruled, head, record, refused.status, words).await?
        }
    };
    match ruled.caught.take() {
        None => Ok(after),
        Some(caught) => {
            ruled.let_through();
            send_error_page(&mut ruled, head, thread, rules, &way, &caught, record).await
        }
    }
}

async fn decide(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    (rules, path): (&SiteRules, &CleanPath<'_>),
    way: &RequestContext<'_>,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let peer = client.peer().ip();
    let site = way.site;
    let _running = match let_in(thread, (site, rules), path, peer) {
        Ok(running) => running,
        Err((wait, why)) => return too_many(client, head, record, wait, why).await,
    };
    let asked = Asked {
        path,
        query: head.query(),
        scheme: if way.is_https { "https" } else { "http" },
        host: host_name(way.host(head)),
        client: peer,
    };
    let serve = match rules.decide(&asked) {
        Verdict::Redirect { status, location } => {
            let after = client.discard_body(head);
            let header = Some((&b"Location"[..], location.as_bytes()));
            return crate::handler::respond::plain(client, head, record, status, header, "", after)
                .await;
        }
        Verdict::Refuse(refusal) => {
            let of = (way, &*thread.shared.troubles);
            return refuse(client, head, of, refusal, record).await;
        }
        Verdict::Serve(serve) => serve,
    };
    if let Some(rewritten) = &serve.rewritten {
        let limits = limits_of_rewritten((&site.settings, rules), head.path(), &rewritten.path);
        if let Some(wait) = comes_too_soon(thread, site, limits, peer) {
            return comes_too_often(client, head, record, wait).await;
        }
    }
    for auth in serve.auth.into_iter().flatten() {
        if let Some(after) = ask_for_user(client, head, thread, rules, auth, record).await? {
            return Ok(after);
        }
    }
    let mut way = *way;
    way.has_user = serve.auth.iter().any(Option::is_some);
    let now = match &serve.rewritten {
        None => Some(Cow::Borrowed(path)),
        Some(rewritten) => {
            (way.path, way.query) = (&rewritten.path, rewritten.query.as_deref());
            clean_path(&rewritten.path).ok().map(Cow::Owned)
        }
    };
    if let Some(path) = now {
        settle(&mut way, rules, &path);
        if let Some(server) = rules
            .proxy(path.as_bytes())
            .and_then(|at| site.proxies.get(at))
        {
            let to = (server, path.as_bytes());
            // In a place of its own: other requests need no room for it.
            return Box::pin(proxy::answer(client, head, thread, &way, to, record)).await;
        }
        if matches!(head.kind(), Method::Get | Method::Head)
            && rules.lists(path.as_bytes())
            && let Some(page) = listing::page(|| site.open_folder(&path), path.as_bytes()).await
        {
            let after = client.discard_body(head);
            return crate::handler::respond::whole(
                client,
                head,
                record,
                200,
                &[HTML],
                &page,
                after,
            )
            .await;
        }
    }
    request::serve_path(client, head, thread, &way, &serve.auth, record).await
}

/// Counts a request among those of its client that are answered at the moment, or says how long the client has to
/// wait and why.
fn let_in<'a>(
    thread: &Thread,
    (site, rules): (&'a Site, &SiteRules),
    path: &CleanPath<'_>,
    client: IpAddr,
) -> Result<Option<RunningRequest<'a>>, (Duration, &'static str)> {
    let many = "You have too many requests at a time.";
    let running = site.limits.enter(client_key(client));
    let running = running.map_err(|_| (Duration::from_secs(1), many))?;
    match comes_too_soon(thread, site, rules.rate_limits(path.as_bytes()), client) {
        Some(wait) => Err((wait, TOO_OFTEN)),
        None => Ok(running),
    }
}

/// Who answers at a path, how large a body may be there, and which requests come first, as `paths` has it.
fn settle<'a>(way: &mut RequestContext<'a>, rules: &SiteRules, path: &CleanPath<'_>) {
    if let Some(settings) = rules.path_settings(path.as_bytes()) {
        way.backend = way.site.backend_of(settings.pool.as_deref());
        way.max_body_size = settings.max_body_size.unwrap_or(way.max_body_size);
        if settings.urgent {
            way.lane = Lane::Urgent;
        }
    }
}

/// How long a client has to wait by the first of these `rate_limit` that it has used up.
pub fn comes_too_soon(
    thread: &Thread,
    site: &Site,
    limits: Vec<usize>,
    client: IpAddr,
) -> Option<Duration> {
    limits.into_iter().find_map(|at| {
        let limit = site.limits.rates.get(at)?;
        limit
            .take(client_key(client), thread.shared.limits.now())
            .err()
    })
}

/// What an application takes for the path, if the script is the site's front controller and a path stands behind its
/// name: `/index.php/admin` is `/admin` to most.
fn path_behind<'s>(site: &maitred_config::Site, script: &'s Script) -> Option<&'s [u8]> {
    let behind = Some(&script.path_info[..]).filter(|path| !path.is_empty());
    behind.filter(|_| is_name_of_front_controller(site, &script.script_name))
}

fn is_name_of_front_controller(site: &maitred_config::Site, name: &[u8]) -> bool {
    site.front_controller.as_deref().map(str::as_bytes) == Some(name)
}

/// The places of the rate limits that hold for a path that the request has led to, and for none of the paths that
/// it has been counted by: each counts a request once.
fn limits_left(rules: &SiteRules, path: &[u8], counted: &[&str]) -> Vec<usize> {
    let mut limits = rules.rate_limits(path);
    for counted in counted {
        if limits.is_empty() {
            break;
        }
        if let Ok(counted) = clean_path(counted) {
            let counted = rules.rate_limits(counted.as_bytes());
            limits.retain(|at| !counted.contains(at));
        }
    }
    limits
}

/// The places of the rate limits that hold for what a request was rewritten to, and did not for the path that was
/// asked for. Those of the front controller's name are not among them, as in [`limits_of_script`].
pub fn limits_of_rewritten(
    (site, rules): (&maitred_config::Site, &SiteRules),
    asked: &str,
    rewritten: &str,
) -> Vec<usize> {
    match clean_path(rewritten).ok().filter(|_| rules.limits_rates()) {
        Some(path) if !is_name_of_front_controller(site, path.as_bytes()) => {
            limits_left(rules, path.as_bytes(), &[asked])
        }
        _ => Vec::new(),
    }
}

/// The places of the rate limits that hold for a script, and did not for the path that was asked for or for what
/// that was rewritten to: `/login.php/x` and a folder whose index is `login.php` run `/login.php`. Those of the front
/// controller's name are not among them, as it stands for every path that is no file.
pub fn limits_of_script(
    (site, rules): (&maitred_config::Site, &SiteRules),
    counted: &[&str],
    script: &Script,
) -> Vec<usize> {
    let name = match is_name_of_front_controller(site, &script.script_name) {
        true => path_behind(site, script),
        false => Some(&script.script_name[..]),
    };
    match name.filter(|_| rules.limits_rates()) {
        Some(name) => limits_left(rules, name, counted),
        None => Vec::new(),
    }
}

/// The same for the file that stands for a folder.
pub fn limits_of_index(
    rules: &SiteRules,
    counted: &[&str],
    path: &str,
    entry: &Entry,
) -> Vec<usize> {
    match index_name(path, entry).filter(|_| rules.limits_rates()) {
        Some(name) => limits_left(rules, &name, counted),
        None => Vec::new(),
    }
}

/// Refuses what a client asks for too often.
pub async fn comes_too_often(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    wait: Duration,
) -> io::Result<After> {
    too_many(client, head, record, wait, TOO_OFTEN).await
}

/// Asks for a user of this `basic_auth`. Nothing when the request shows one.
pub async fn ask_for_user(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    rules: &SiteRules,
    auth: usize,
    record: &mut RequestRecord,
) -> io::Result<Option<After>> {
    let Some(auth) = rules.settings().basic_auth.get(auth) else {
        return Ok(None);
    };
    let after = match thread.shared.porter.admit(head, &auth.users).await {
        Outcome::Granted => return Ok(None),
        Outcome::Unknown => {
            let realm = format!("Basic realm=\"{}\", charset=\"UTF-8\"", auth.realm);
            let header = Some((&b"WWW-Authenticate"[..], realm.as_bytes()));
            let after = client.discard_body(head);
            let why = "A name and a password are needed.";
            crate::handler::respond::plain(client, head, record, 401, header, why, after).await
        }
        Outcome::Busy => {
            let header = Some((&b"Retry-After"[..], &b"1"[..]));
            let after = client.discard_body(head);
            let why = "Too many passwords are being looked at.";
            crate::handler::respond::plain(client, head, record, 503, header, why, after).await
        }
        Outcome::NoUsers => {
            let why = "Nobody can be let in at the moment.";
            crate::handler::respond::refuse(client, head, record, 503, why).await
        }
    };
    after.map(Some)
}

/// Why a client may not have something; otherwise of which places in `basic_auth` it has to show a user.
pub type Admitted = Result<[Option<usize>; 2], Refusal>;

/// Whether a script may run, and for this client: by its own name, and for the front controller by the path behind
/// that.
pub fn admit_script(
    (site, rules): (&maitred_config::Site, &SiteRules),
    script: &Script,
    client: IpAddr,
) -> Admitted {
    if !rules.cares_for_scripts() {
        return Ok([None, None]);
    }
    let by_name = rules.admit(&script.script_name, client, &mut |_| {})?;
    let by_path = match path_behind(site, script) {
        Some(path) => rules.admit(path, client, &mut |_| {})?,
        None => None,
    };
    match rules.may_run(&script.script_name) {
        true => Ok([by_name, by_path]),
        false => Err(Refusal {
            status: 403,
            why: "PHP does not run here.",
            is_mistake: false,
        }),
    }
}

/// Why a client may not have the file that stands for a folder; otherwise the `basic_auth` that it
/// needs. The path has been admitted, which for a folder is not yet its index.
pub fn admit_index(
    rules: &SiteRules,
    path: &str,
    entry: &Entry,
    client: IpAddr,
) -> Result<Option<usize>, Refusal> {
    match index_name(path, entry) {
        Some(index) => rules.admit(&index, client, &mut |_| {}),
        None => Ok(None),
    }
}

/// The path of a file that stands for the folder at `path`. Nothing if the path is the file's own.
fn index_name(path: &str, entry: &Entry) -> Option<Vec<u8>> {
    let folder = clean_path(path).ok()?;
    let name = entry.name().rsplit(|byte| *byte == b'/').next();
    let is_folder = folder.as_bytes().ends_with(b"/");
    is_folder.then(|| [folder.as_bytes(), name.unwrap_or_default()].concat())
}

/// Refuses a request by a rule, or because of the rules.
pub async fn refuse(
    client: &mut impl HttpClient,
    head: &Head,
    (way, troubles): (&RequestContext<'_>, &RepeatedErrors),
    refused: Refusal,
    record: &mut RequestRecord,
) -> io::Result<After> {
    refusal::log(head, way, refused.status, refused.why);
    let mut words = refused.why;
    if refused.is_mistake {
        let why = "the site's rewrites lead in a circle; `maitred explain URL` shows them";
        troubles.file_failed(&way.site.settings.root, refused.status, why);
        words = refusal::FAILED;
    }
    crate::handler::respond::refuse(client, head, record, refused.status, words).await
}

async fn too_many(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    wait: Duration,
    why: &str,
) -> io::Result<After> {
    let seconds = wait.as_secs_f64().ceil().max(1.0).to_string();
    let header = Some((&b"Retry-After"[..], seconds.as_bytes()));
    let after = client.discard_body(head);
    crate::handler::respond::plain(client, head, record, 429, header, why, after).await
}

/// Sends the page for an error, or the server's own words if there is no page after all.
async fn send_error_page(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Arc<Thread>,
    rules: &SiteRules,
    way: &RequestContext<'_>,
    caught: &Caught,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let page = rules.error_page(caught.status).unwrap_or_default();
    match way.site.resolve(page, None) {
        Route::File(entry) => {
            let content = match entry.body() {
                Body::Memory(bytes) => Content::Kept(bytes),
                Body::File(fd) => {
                    let len = entry.len();
                    Content::File(fd, Slice { offset: 0, len })
                }
            };
            let page = (entry.content_type(), entry.len(), content);
            send_in_place(client, head, caught, page, record).await
        }
        Route::Script(script) => {
            let way = RequestContext {
                path: page,
                query: None,
                status: Some((caught.status, caught.after)),
                ..*way
            };
            script::answer(client, head, thread, &way, &script, record).await
        }
        Route::RedirectSlash(_) | Route::Refused(_) => {
            let words = Content::Made(&caught.words);
            let words = (
                "text/plain; charset=utf-8",
                caught.words.len() as u64,
                words,
            );
            send_in_place(client, head, caught, words, record).await
        }
    }
}

/// Sends an error with this in place of what was kept back: its type, its length and itself.
async fn send_in_place(
    client: &mut impl HttpClient,
    head: &Head,
    caught: &Caught,
    (content_type, length, content): (&str, u64, Content<'_>),
    record: &mut RequestRecord,
) -> io::Result<After> {
    let headers = caught.headers.iter();
    let headers = headers.map(|(name, value)| (&name[..], &value[..]));
    let content_type = (&b"Content-Type"[..], content_type.as_bytes());
    let headers: Vec<Header<'_>> = headers.chain([content_type]).collect();
    let reply = Reply {
        request: head,
        status: caught.status,
        headers: &headers,
        lines: &bytes::Bytes::new(),
        length: Some(length),
        after: caught.after,
    };
    let content = match head.kind() {
        Method::Head => Content::Nothing,
        _ => content,
    };
    record.written(client.answer(&reply, content).await)?;
    Ok(caught.after)
}

/// Nothing is changed about an answer.
pub const PLAIN: &HeaderPolicy<'static> = &HeaderPolicy::NONE;
