//! Caching what `.htaccess` files decide: which requests get the same decision, and what is stored.

use std::sync::{Arc, Weak};

use maitred_htaccess::process::Outcome;
use maitred_htaccess::read_log::ReadLog;
use maitred_htaccess::request::{Client, Request};
use maitred_htaccess::table::Table;
use maitred_rules::path::encode_path;

use crate::handler::context::RequestContext;
use crate::handler::htaccess::{FinalRound, client_of, headers_of};
use crate::site::files::StaticFile;
use crate::site::resolver::{RootVersion, Script};
use crate::site::verdict_table::{
    CachedRound, CachedVerdict, NewVerdict, ReadHeader, WatchedPaths, value_of,
};

/// Room for a usual key, in bytes.
const KEY_BYTES: usize = 256;

/// A decision that may be cached, once it is known what it serves.
pub struct Unsaved {
    key: Vec<u8>,
    root: RootVersion,
    headers: Vec<ReadHeader>,
    paths: WatchedPaths,
}

/// What a decision serves.
pub enum Saved {
    /// A file.
    File(Weak<StaticFile>),
    /// A script.
    Script(Arc<Script>),
    /// A response with this status.
    Status(u16),
}

/// A cached decision on a request.
pub struct RootedVerdict {
    /// The decision.
    pub verdict: CachedVerdict,
    /// [`RequestContext::script_root`].
    pub script_root: Option<RootVersion>,
}

/// Method, version, scheme, host, target and the path as rules before have changed it: all that an
/// evaluation may read without its log. The header `Host` can differ from the host, which trusted
/// proxies may name in another header.
pub fn key_of(context: &RequestContext<'_>) -> Vec<u8> {
    let (head, target) = (context.head, context.target);
    let scheme = if target.is_https { "https" } else { "http" };
    let query = context.query().unwrap_or_default();
    let mut key = Vec::with_capacity(KEY_BYTES);
    // None of them has a NUL.
    for part in [head.method(), head.version().as_str(), scheme, target.host, head.target()] {
        key.extend_from_slice(part.as_bytes());
        key.push(0);
    }
    if head.path() != context.path || head.query().unwrap_or_default() != query {
        for part in [&context.path, query] {
            key.extend_from_slice(part.as_bytes());
            key.push(0);
        }
    }
    key
}

/// The decision on a request, if it is cached. The path alone is the key where no directive
/// applies.
pub fn verdict(context: &RequestContext<'_>) -> Option<RootedVerdict> {
    let found = context.site.with_cached_htaccess(|world, resolver| {
        let by_path = world.cached_verdict(context.path.as_bytes(), context.head);
        let found = by_path.or_else(|| world.cached_verdict(&key_of(context), context.head))?;
        Some(RootedVerdict { verdict: found, script_root: RootVersion::by_own_name(resolver) })
    });
    found.ok().flatten().flatten()
}

/// What an evaluation has read, unless its decision holds for this request alone.
pub fn unsaved(
    context: &RequestContext<'_>,
    key: Vec<u8>,
    root: RootVersion,
    log: &ReadLog,
    paths: WatchedPaths,
) -> Option<Unsaved> {
    let mut headers = Vec::new();
    for name in log.headers()? {
        let value = value_of(context.head, &name).ok()?.map(<[u8]>::to_vec);
        headers.push(ReadHeader { name, value });
    }
    Some(Unsaved { key, root, headers, paths })
}

/// The last round of an evaluation.
#[derive(Clone, Copy)]
pub struct LastRound<'r> {
    /// The client.
    pub client: &'r Arc<Client>,
    /// The request.
    pub request: &'r Request,
}

/// Caches a decision.
pub fn save(
    context: &RequestContext<'_>,
    unsaved: Option<Unsaved>,
    last: LastRound<'_>,
    saved: Saved,
) {
    let LastRound { client, request } = last;
    let Some(Unsaved { key, root, headers, paths }) = unsaved else { return };
    if request.has_changed_headers || request.user.is_some() {
        return;
    }
    let none = Weak::new;
    let (outcome, script, file) = match saved {
        Saved::File(file) => (Outcome::File, None, file),
        Saved::Script(script) => (Outcome::Script, Some(script), none()),
        Saved::Status(status) => (Outcome::Status(status), None, none()),
    };
    let query = context.query().map(str::as_bytes);
    let is_same_url = encode_path(&request.uri) == context.path && request.args.as_deref() == query;
    let mut request = request.clone();
    request.headers_in = Table::default();
    let (request, client) = (Arc::new(request), Arc::clone(client));
    let round = Some(CachedRound { request, client, outcome, is_same_url });
    let depends_on_client = context.depends_on_client;
    let verdict = CachedVerdict { round, script, file, depends_on_client };
    insert(context, root, key, NewVerdict { headers, paths, verdict });
}

/// Caches that no directive applies to a path, which is that of a file or a script.
pub fn save_unchanged(
    context: &RequestContext<'_>,
    root: RootVersion,
    paths: Option<WatchedPaths>,
    saved: Saved,
) {
    let verdict = match saved {
        Saved::File(file) => CachedVerdict { file, ..CachedVerdict::default() },
        Saved::Script(script) if script.path_info.is_empty() => {
            CachedVerdict { script: Some(script), ..CachedVerdict::default() }
        }
        Saved::Script(_) | Saved::Status(_) => return,
    };
    if let Some(paths) = paths {
        let key = context.path.as_bytes().to_vec();
        insert(context, root, key, NewVerdict { headers: Vec::new(), paths, verdict });
    }
}

/// A decision on another root than the one that is open by now is of no use.
fn insert(context: &RequestContext<'_>, root: RootVersion, key: Vec<u8>, new: NewVerdict) {
    // A file of another folder is none of those that were looked at.
    if context.site.has_aliases() {
        return;
    }
    let _ = context.site.with_cached_htaccess(|world, resolver| {
        if root.check(resolver).is_ok() {
            world.cache_verdict(key, new);
        }
    });
}

/// The last round of this request, by a decision that an equal one has got. What may read the
/// client's headers or addresses later has those of this request.
pub fn restored(context: &RequestContext<'_>, cached: &CachedRound) -> (Arc<Client>, FinalRound) {
    let CachedRound { request, client, outcome, .. } = cached;
    let headers = &request.conf.headers;
    let reads_none = headers.success.is_empty() && headers.always.is_empty();
    if reads_none && !matches!(outcome, Outcome::Status(_)) {
        let round = FinalRound { request: Arc::clone(request), outcome: outcome.clone() };
        return (Arc::clone(client), round);
    }
    let mut request = (**request).clone();
    request.headers_in = headers_of(context);
    request.work = Arc::default();
    let own = client_of(context, client.document_root.clone()).0;
    (Arc::new(own), FinalRound { request: Arc::new(request), outcome: outcome.clone() })
}
