//! Requests at sites with `.htaccess` files: their evaluation, and what it means for the response.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use maitred_htaccess::conf::core::ErrorDocument;
use maitred_htaccess::process::{Decision as Verdict, Outcome};
use maitred_htaccess::read_log::ReadLog;
use maitred_htaccess::request::{Addresses, Client, Request};
use maitred_htaccess::table::Table;
use maitred_rules::path::{CleanPath, clean_path, encode_path, query_text};

use crate::backend::Backend;
use crate::handler::context::RequestContext;
use crate::handler::decision::Decision;
use crate::handler::fastcgi_params::SOFTWARE_WITH_HTACCESS;
use crate::handler::htaccess_cache::{self, LastRound, RootedVerdict, Saved, Unsaved};
use crate::handler::htaccess_evaluation::{ErrorOf, Evaluation, evaluate, evaluate_error};
use crate::handler::htaccess_response::Directives;
use crate::handler::respond::{HTML, TextResponse};
use crate::handler::{htaccess_listing, htaccess_users, refusal};
use crate::http::headers::Header;
use crate::http::hosts::host_name;
use crate::services::Thread;
use crate::site::fastcgi_servers::ScriptRunner;
use crate::site::name_lookups;
use crate::site::resolver::{Refused, Resolver, RootVersion, Route};
use crate::site::verdict_table::{CachedRound, CachedVerdict, WatchedPaths};

/// Most pages of errors, one for the error of another, for a request (`LimitInternalRecursion`).
const MAX_ERROR_PAGES: usize = 10;

/// Most pairs of `AuthUserFile` and `AuthGroupFile` that a request asks, after internal redirects.
const MAX_USERS_FILES: usize = 4;

/// Headers of a client like any other: rules against robots let it pass.
const USUAL_HEADERS: [Header<'static>; 2] = [(b"User-Agent", b"Mozilla/5.0"), (b"Accept", b"*/*")];

/// Routes a request by the `.htaccess` files of its site. The path is decoded and normalised.
pub async fn route<'r>(
    context: &mut RequestContext<'r>,
    thread: &Thread,
    path: &CleanPath<'_>,
) -> Decision<'r> {
    // As without AllowEncodedSlashes.
    if has_encoded_slash(context.head.path()) {
        return failure(context, 404).into();
    }
    // A segment that must not be looked up can only be the PATH_INFO of a script before it.
    let is_hidden = path.is_hidden();
    let key = htaccess_cache::key_of(context);
    if let Some((round, root)) = cached_round(context, &key) {
        let (client, last) = htaccess_cache::restored(context, &round);
        return Evaluated::new(client, root, is_hidden).decide(context, thread, last).await;
    }
    let mut looked = match look(context, path).await {
        Ok(looked) => looked,
        Err(refused) => return refusal::of_path(&refused).into(),
    };
    if !looked.has_files && !is_hidden {
        match without_directives(context, &mut looked).await {
            Unruled::Served(decision) => {
                context.script_root = looked.script_root;
                return decision;
            }
            Unruled::NoFile => {}
            Unruled::Changed => match look(context, path).await {
                Ok(again) => looked = again,
                Err(refused) => return refusal::of_path(&refused).into(),
            },
        }
    }
    let (client, log) = client_of(context, looked.document_root);
    let client = Arc::new(client);
    let mut request = request_of(context, path, &log);
    let Evaluation { mut verdict, paths, mut root } =
        match evaluate(context, &client, &request).await {
            Ok(evaluated) => evaluated,
            Err(response) => return response.into(),
        };
    // The client has the name of the root that was looked at.
    let root_before = looked.root;
    let mut unsaved = htaccess_cache::unsaved(context, key, root, &log, paths);
    while verdict.outcome == Outcome::NeedsUser
        && verdict.request.known_user().is_none()
        && request.users.len() < MAX_USERS_FILES
    {
        unsaved = None;
        match htaccess_users::authenticate(context, thread, &verdict.request).await {
            Ok(user) => request.users.push(user),
            Err(response) => return response.into(),
        }
        context.has_user = true;
        let again = match evaluate(context, &client, &request).await {
            Ok(again) => again,
            Err(response) => return response.into(),
        };
        (verdict, root) = (again.verdict, again.root);
    }
    log_mistake(context, thread, &verdict);
    let checked = context.site.check_root(root_before).await;
    if let Err(refused) = checked.and(root_before.is(root)) {
        return refusal::of_path(&refused).into();
    }
    let found = Evaluated { unsaved, ..Evaluated::new(client, root, is_hidden) };
    found.decide(context, thread, FinalRound::of(verdict)).await
}

/// The last round of the cached decision on a request.
fn cached_round(context: &RequestContext<'_>, key: &[u8]) -> Option<(CachedRound, RootVersion)> {
    let cached = context.site.with_cached_htaccess(|world, resolver| {
        let round = world.cached_verdict(key, context.head)?.round?;
        Some((round, RootVersion::of(resolver)))
    });
    cached.ok().flatten().flatten()
}

async fn look(context: &RequestContext<'_>, path: &CleanPath<'_>) -> Result<Looked, Refused> {
    let looked = context.site.evaluate(|world, resolver| {
        let has_files = world.has_files(path.as_bytes());
        Looked {
            document_root: resolver.real_root().to_vec(),
            root: RootVersion::of(resolver),
            script_root: RootVersion::by_own_name(resolver),
            has_files,
            paths: (!has_files).then(|| world.watched(path.as_bytes())),
        }
    });
    Ok(looked.await?.unwrap_or_default())
}

/// Where there is nothing to evaluate: the cached route of the path, if it has a file.
async fn without_directives<'r>(context: &RequestContext<'r>, looked: &mut Looked) -> Unruled<'r> {
    let site = context.site;
    let resolve = || site.resolve(&context.path, context.query());
    let (route, has_waited) = match name_lookups::run_and_keep(&site.tenant, resolve).await {
        Ok(kept) => (kept.result, !kept.done.are_none()),
        Err(refused) => (Route::Refused(refused), true),
    };
    // A file that was looked up later may have come with its directives.
    if has_waited || site.check_root(looked.root).await.is_err() {
        return Unruled::Changed;
    }
    let (saved, decision) = match route {
        Route::File(entry) => (Saved::File(Arc::downgrade(&entry)), Decision::File(entry)),
        Route::Script(script) => (Saved::Script(Arc::clone(&script)), Decision::Script(script)),
        Route::RedirectSlash(_) | Route::Refused(_) => return Unruled::NoFile,
    };
    htaccess_cache::save_unchanged(context, looked.root, looked.paths.take(), saved);
    Unruled::Served(decision)
}

/// A path without directives.
enum Unruled<'r> {
    Served(Decision<'r>),
    NoFile,
    /// The document root was replaced meanwhile, or directives may have been added.
    Changed,
}

fn has_encoded_slash(path: &str) -> bool {
    let mut encoded = path.split('%').skip(1);
    encoded.any(|rest| rest.as_bytes().get(..2).is_some_and(|two| two.eq_ignore_ascii_case(b"2f")))
}

/// The decision on a request if it is cached, and is a file or a script: no error, whose
/// `ErrorDocument` would have to be evaluated.
pub fn cached<'r>(context: &mut RequestContext<'r>) -> Option<Decision<'r>> {
    let RootedVerdict { verdict, script_root } = htaccess_cache::verdict(context)?;
    let CachedVerdict { round, script, file, depends_on_client } = verdict;
    context.script_root = script_root;
    let decision = match script {
        Some(script) => Decision::Script(script),
        // If the cache of routes has evicted it, it is evaluated again.
        None => Decision::File(file.upgrade()?),
    };
    let Some(round) = round else { return Some(decision) };
    if round.request.status != 200 {
        return None;
    }
    let (client, last) = htaccess_cache::restored(context, &round);
    context.depends_on_client = depends_on_client;
    apply(context, &client, &last.request);
    if !round.is_same_url {
        follow(context, &last.request);
    }
    Some(decision)
}

/// What the directives say about the response and the body.
fn apply(
    context: &mut RequestContext<'_>,
    client: &Arc<Client>,
    request: &Arc<Request>,
) -> Arc<Directives> {
    let (request, client) = (Arc::clone(request), Arc::clone(client));
    if let Some(limit) = request.conf.core.body_limit.filter(|limit| *limit > 0) {
        context.max_body_size = context.max_body_size.min(limit);
    }
    let directives = Arc::new(Directives::new(request, client, Arc::clone(context.site)));
    context.directives = Some(Arc::clone(&directives));
    directives
}

/// The document root, before an evaluation.
#[derive(Default)]
struct Looked {
    document_root: Vec<u8>,
    root: RootVersion,
    /// The same for [`RequestContext::script_root`].
    script_root: Option<RootVersion>,
    /// Whether a directory of the path has a `.htaccess` file.
    has_files: bool,
    /// What the decision depends on, where no directory has one.
    paths: Option<WatchedPaths>,
}

struct Evaluated {
    client: Arc<Client>,
    root: RootVersion,
    is_hidden: bool,
    /// The decision, if it may be cached.
    unsaved: Option<Unsaved>,
}

/// The last round of a request, and what becomes of it.
pub struct FinalRound {
    /// The request.
    pub request: Arc<Request>,
    /// What becomes of it.
    pub outcome: Outcome,
}

impl FinalRound {
    fn of(verdict: Verdict) -> FinalRound {
        FinalRound { request: Arc::new(verdict.request), outcome: verdict.outcome }
    }
}

impl Evaluated {
    fn new(client: Arc<Client>, root: RootVersion, is_hidden: bool) -> Evaluated {
        Evaluated { client, root, is_hidden, unsaved: None }
    }

    async fn decide<'r>(
        self,
        context: &mut RequestContext<'r>,
        thread: &Thread,
        verdict: FinalRound,
    ) -> Decision<'r> {
        let client = Arc::clone(&self.client);
        let status = verdict.request.status;
        let decision = match self.serve(context, verdict).await {
            Ok(page @ (Decision::File(_) | Decision::Script(_))) if status != 200 => {
                return Decision::ErrorPage { status, page: Box::new(page) };
            }
            other => other,
        };
        let mut failed = match decision {
            Err(failed) => failed,
            Ok(decision) => return decision,
        };
        let (directives, status) = (context.directives.clone(), failed.status);
        for _ in 0..MAX_ERROR_PAGES {
            match error_response(context, thread, &client, failed).await {
                ErrorResponse::Sent(decision) => return decision,
                ErrorResponse::Failed(another) => failed = another,
            }
        }
        context.directives = directives;
        failure(context, status).into()
    }

    /// What is served, or the status of an error.
    async fn serve<'r>(
        self,
        context: &mut RequestContext<'r>,
        verdict: FinalRound,
    ) -> Result<Decision<'r>, Failed> {
        let FinalRound { request, outcome } = verdict;
        let Evaluated { client, root: version, unsaved, .. } = self;
        let root = client.document_root.len();
        let directives = apply(context, &client, &request);
        let failed = |status| Err(Failed { status, request: Arc::clone(&request) });
        let name = request.filename.get(root..).unwrap_or_default();
        match outcome {
            Outcome::Status(status) => {
                let last = LastRound { client: &client, request: &request };
                htaccess_cache::save(context, unsaved, last, Saved::Status(status));
                match status {
                    300..400 => Ok(redirect(status, &request).into()),
                    200..600 => failed(status),
                    // No final response has such a status.
                    _ => failed(500),
                }
            }
            Outcome::Mistake(_) | Outcome::TooCostly => failed(500),
            Outcome::NeedsUser => Ok(htaccess_users::challenge(&request).into()),
            Outcome::File | Outcome::Listing if self.is_hidden => failed(404),
            Outcome::Script if is_dotted(name) => failed(404),
            Outcome::Script if refused_handler(context, &request).is_some() => failed(500),
            Outcome::File => match resolve(context, name).await {
                Route::File(entry) => {
                    // The search for the file may have found another root than the evaluation.
                    if context.site.check_root(version).await.is_err() {
                        return failed(503);
                    }
                    let saved = Saved::File(Arc::downgrade(&entry));
                    let last = LastRound { client: &client, request: &request };
                    htaccess_cache::save(context, unsaved, last, saved);
                    follow(context, &request);
                    Ok(Decision::File(entry))
                }
                Route::Refused(refused) => failed(refused.status),
                Route::Script(_) | Route::RedirectSlash(_) => failed(403),
            },
            Outcome::Script => {
                let script = context.site.evaluate(|_, resolver: &Resolver| {
                    version.check(resolver)?;
                    let script = resolver.script_at(name, &request.path_info)?;
                    Ok((script, RootVersion::by_own_name(resolver)))
                });
                match script.await {
                    Ok(Some(Ok((script, script_root)))) => {
                        context.script_root = script_root;
                        if context.site.cache.is_some() {
                            context.depends_on_client =
                                depends_on_client(context, &directives).await;
                            // The other evaluation may have waited for the disk.
                            if context.check_script_root().await.is_err() {
                                return failed(503);
                            }
                        }
                        let saved = Saved::Script(Arc::clone(&script));
                        let last = LastRound { client: &client, request: &request };
                        htaccess_cache::save(context, unsaved, last, saved);
                        follow(context, &request);
                        Ok(Decision::Script(script))
                    }
                    Ok(Some(Err(refused))) | Err(refused) => failed(refused.status),
                    Ok(None) => failed(404),
                }
            }
            Outcome::Listing => {
                let encoded = encode_path(name);
                let Ok(path) = clean_path(&encoded) else { return failed(404) };
                match htaccess_listing::page(context, &client, &request, &path).await {
                    Ok(Some(_)) if context.site.check_root(version).await.is_err() => failed(503),
                    Ok(Some(page)) => {
                        follow(context, &request);
                        Ok(TextResponse::listing(page).into())
                    }
                    Ok(None) => failed(403),
                    Err(refused) => failed(refused.status),
                }
            }
        }
    }
}

/// What an error leads to.
enum ErrorResponse<'r> {
    Sent(Decision<'r>),
    /// Another error, by a rule for the page of the first one.
    Failed(Failed),
}

/// The response to an error: the `ErrorDocument` of its request, or a short text.
async fn error_response<'r>(
    context: &mut RequestContext<'r>,
    thread: &Thread,
    client: &Arc<Client>,
    failed: Failed,
) -> ErrorResponse<'r> {
    let Failed { status, request } = failed;
    let decision = match request.conf.core.error_documents.get(&status).cloned() {
        Some(ErrorDocument::Path(page)) => {
            let of = ErrorOf { request: (*request).clone(), page, status };
            return error_page(context, thread, client, of).await;
        }
        Some(ErrorDocument::Url(url)) => {
            TextResponse::redirect(302, &String::from_utf8_lossy(&url)).into()
        }
        Some(ErrorDocument::Text(text)) => {
            let body = String::from_utf8_lossy(&text).into_owned();
            TextResponse::page(&[HTML], body).with_status(status).into()
        }
        Some(ErrorDocument::Default) | None => failure(context, status).into(),
    };
    ErrorResponse::Sent(decision)
}

/// The page of an error; one that cannot be sent itself leaves the error as it is.
async fn error_page<'r>(
    context: &mut RequestContext<'r>,
    thread: &Thread,
    client: &Arc<Client>,
    of: ErrorOf,
) -> ErrorResponse<'r> {
    let (directives, status) = (context.directives.clone(), of.status);
    let has_page = |verdict: &Verdict| {
        matches!(verdict.outcome, Outcome::File | Outcome::Script | Outcome::Listing)
    };
    let sent = match evaluate_error(context, client, of).await {
        Ok(Evaluation { verdict: Verdict { request, outcome: Outcome::Status(own) }, .. })
            if request.status == 200 =>
        {
            if let 300..400 = own {
                return ErrorResponse::Sent(redirect(own, &request).into());
            }
            let request = Arc::new(request);
            apply(context, client, &request);
            return ErrorResponse::Failed(Failed { status: own, request });
        }
        Ok(Evaluation { verdict, root, .. }) if has_page(&verdict) => {
            let found = Evaluated::new(Arc::clone(client), root, false);
            Box::pin(found.serve(context, FinalRound::of(verdict))).await.ok()
        }
        _ => None,
    };
    ErrorResponse::Sent(match sent {
        Some(page) => {
            log_status(context, thread, status);
            Decision::ErrorPage { status, page: Box::new(page) }
        }
        None => {
            context.directives = directives;
            failure(context, status).into()
        }
    })
}

/// Whether another client that requests the same would get another script, or one with other
/// variables: by its address, or by what it sends besides the URL.
async fn depends_on_client(context: &RequestContext<'_>, directives: &Directives) -> bool {
    let Directives { request: own, client, .. } = directives;
    let Ok(path) = clean_path(context.head.path()) else { return true };
    let args = context.head.query().map(|query| query.as_bytes().to_vec());
    let method = context.head.method().as_bytes();
    let mut request = Request::new(method, path.as_bytes().to_vec(), args);
    request.headers_in.add(b"Host", context.target.host.as_bytes());
    for (name, value) in USUAL_HEADERS {
        request.headers_in.add(name, value);
    }
    let remote = SocketAddr::from(([0, 0, 0, 0], 0));
    let addresses = client.addresses.of_another(remote);
    let client = Client { addresses, ..(**client).clone() };
    let Ok(Evaluation { verdict, .. }) = evaluate(context, &client, &request).await else {
        return true;
    };
    let Verdict { request: other, outcome: Outcome::Script } = verdict else {
        return true;
    };
    let is_same = own.filename == other.filename
        && own.path_info == other.path_info
        && own.uri == other.uri
        && own.args == other.args
        && own.env == other.env
        && own.conf.php == other.conf.php
        && own.conf.core.has_signature == other.conf.core.has_signature
        && own.previous == other.previous
        && own.status == other.status;
    !is_same || own.has_changed_headers || own.user.is_some()
}

/// Whether a segment of a path is hidden.
fn is_dotted(path: &[u8]) -> bool {
    let mut segments = path.split(|byte| *byte == b'/');
    segments.any(|segment| segment.starts_with(b".") && segment != b".well-known")
}

/// A response with an error, and the request whose `ErrorDocument` applies.
struct Failed {
    status: u16,
    request: Arc<Request>,
}

/// The path and query of the context become those of the last round.
fn follow(context: &mut RequestContext<'_>, request: &Request) {
    context.path = Cow::Owned(encode_path(&request.uri));
    context.query = request.args.as_ref().map(|args| Cow::Owned(query_text(args)));
}

fn failure(context: &RequestContext<'_>, status: u16) -> TextResponse {
    refusal::log(context, status, "a .htaccess file of the site says so");
    let reason = match status {
        404 => crate::http::error_body::NOT_FOUND,
        403 => crate::http::error_body::FORBIDDEN,
        500.. => "The server cannot respond to this now.",
        _ => "",
    };
    TextResponse::new(status, reason)
}

fn redirect(status: u16, request: &Request) -> TextResponse {
    let location = request.headers_out.get(b"Location").unwrap_or_default();
    TextResponse::redirect(status, &String::from_utf8_lossy(location))
}

/// Logs what the owner of the files has to mend.
fn log_mistake(context: &RequestContext<'_>, thread: &Thread, verdict: &Verdict) {
    let said = match &verdict.outcome {
        Outcome::Mistake(mistake) => mistake.to_string(),
        Outcome::TooCostly => too_costly(&context.path),
        Outcome::Script => match refused_handler(context, &verdict.request) {
            Some(why) => format!("{}: {why}", context.path.escape_debug()),
            None => return,
        },
        _ => return,
    };
    thread.shared.troubles.htaccess_failed(&context.site.settings.root, &said);
}

/// Why a script does not run by its handler.
fn refused_handler(context: &RequestContext<'_>, request: &Request) -> Option<String> {
    let of_path = match context.backend {
        Backend::Pool(pool) => ScriptRunner::Pool(&pool.name),
        Backend::Upstream(upstream, _) => ScriptRunner::Upstream(upstream),
    };
    let of_site = ScriptRunner::of_site(&context.site.settings.destination);
    context.site.servers.refusal(request.handler.as_deref()?, [of_path, of_site])
}

/// What the log says about a path whose directives are too costly.
pub fn too_costly(path: &str) -> String {
    let path = path.escape_debug();
    format!("{path}: a regular expression takes too many steps, or all take too long")
}

fn log_status(context: &RequestContext<'_>, _thread: &Thread, status: u16) {
    refusal::log(context, status, "the ErrorDocument of a .htaccess file is sent");
}

/// The client, and the log of what its evaluation reads.
pub fn client_of(context: &RequestContext<'_>, document_root: Vec<u8>) -> (Client, Arc<ReadLog>) {
    let (head, target) = (context.head, context.target);
    let host = host_name(target.host);
    let port = target.host.strip_prefix(host).and_then(|rest| rest.strip_prefix(':')?.parse().ok());
    let default = if target.is_https { 443 } else { 80 };
    let line = format!("{} {} {}", head.method(), head.target(), head.version().as_str());
    let log = Arc::new(ReadLog::default());
    let local = context.local.unwrap_or(target.peer);
    let client = Client {
        addresses: Addresses::new(target.peer, target.peer, local, &log),
        is_https: target.is_https,
        is_http2: false,
        server_name: host.as_bytes().to_vec(),
        server_port: port.unwrap_or(default),
        protocol: head.version().as_str().as_bytes().to_vec(),
        request_line: line.into_bytes(),
        document_root,
        software: SOFTWARE_WITH_HTACCESS.to_vec(),
    };
    (client, log)
}

fn request_of(context: &RequestContext<'_>, path: &CleanPath<'_>, log: &Arc<ReadLog>) -> Request {
    let args = context.query().map(|query| query.as_bytes().to_vec());
    let method = context.head.method().as_bytes();
    let mut request = Request::new(method, path.as_bytes().to_vec(), args);
    request.headers_in = headers_of(context).logged(log);
    request
}

/// The headers of a request, each name once.
pub fn headers_of(context: &RequestContext<'_>) -> Table {
    let mut headers = Table::default();
    for (name, value) in context.head.headers() {
        match headers.get(name).map(<[u8]>::to_vec) {
            // HTTP/2 may send each cookie in a header of its own (RFC 9113, 8.2.3).
            Some(before) if name.eq_ignore_ascii_case(b"cookie") => {
                headers.set(name, [&before[..], b"; ", value].concat());
            }
            Some(_) => headers.append(name, value),
            None => headers.add(name, value),
        }
    }
    if headers.get(b"host").is_none() {
        headers.add(b"Host", context.target.host.as_bytes());
    }
    headers
}

/// The route of a file that an evaluation has found.
async fn resolve(context: &RequestContext<'_>, name: &[u8]) -> Route {
    let (site, path) = (context.site, encode_path(name));
    site.look_up(|| site.resolve(&path, None)).await.unwrap_or_else(Route::Refused)
}
