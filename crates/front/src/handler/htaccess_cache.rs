//! Caching what `.htaccess` files decide: which requests get the same decision, and what is stored.

use std::sync::{Arc, Weak};

use maitred_htaccess::process::Outcome;
use maitred_htaccess::read_log::ReadLog;
use maitred_htaccess::request::Request;
use maitred_htaccess::table::Table;

use crate::handler::context::RequestContext;
use crate::handler::htaccess::{FinalRound, headers_of};
use crate::site::files::StaticFile;
use crate::site::resolver::Script;
use crate::site::verdict_table::{CachedVerdict, NewVerdict, ReadHeader, WatchedPaths, value_of};

/// A decision that may be cached, once it is known what it serves.
pub struct Unsaved {
    key: Vec<u8>,
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

/// Method, version, scheme, host, target and the path as rules before have changed it: all that an
/// evaluation may read without its log.
pub fn key_of(context: &RequestContext<'_>) -> Vec<u8> {
    let (head, target) = (context.head, context.target);
    let scheme = if target.is_https { "https" } else { "http" };
    let query = context.query().unwrap_or_default();
    let parts = [
        head.method(),
        head.version().as_str(),
        scheme,
        target.host,
        head.target(),
        &context.path,
        query,
    ];
    // None of them has a NUL.
    parts.join("\0").into_bytes()
}

/// What an evaluation has read, unless its decision holds for this request alone.
pub fn unsaved(
    context: &RequestContext<'_>,
    key: Vec<u8>,
    log: &ReadLog,
    paths: WatchedPaths,
) -> Option<Unsaved> {
    let mut headers = Vec::new();
    for name in log.headers()? {
        // The key has it.
        if name.eq_ignore_ascii_case(b"host") {
            continue;
        }
        let value = value_of(context.head, &name).ok()?.map(<[u8]>::to_vec);
        headers.push(ReadHeader { name, value });
    }
    Some(Unsaved { key, headers, paths })
}

/// Caches a decision.
pub fn save(
    context: &RequestContext<'_>,
    unsaved: Option<Unsaved>,
    request: &Request,
    saved: Saved,
) {
    let Some(Unsaved { key, headers, paths }) = unsaved else { return };
    if request.has_changed_headers || request.user.is_some() {
        return;
    }
    let none = Weak::new;
    let (outcome, script, file) = match saved {
        Saved::File(file) => (Outcome::File, None, file),
        Saved::Script(script) => (Outcome::Script, Some(script), none()),
        Saved::Status(status) => (Outcome::Status(status), None, none()),
    };
    let mut request = request.clone();
    request.headers_in = Table::default();
    let request = Arc::new(request);
    let depends_on_client = context.depends_on_client;
    let verdict = CachedVerdict { request, outcome, script, file, depends_on_client };
    let new = NewVerdict { headers, paths, verdict };
    let _ = context.site.with_htaccess(|world, _| world.cache_verdict(key, new));
}

/// The last round of this request, by a decision that an equal one has got. What may read the
/// client's headers later has them.
pub fn restored(context: &RequestContext<'_>, cached: &CachedVerdict) -> FinalRound {
    let outcome = cached.outcome.clone();
    let headers = &cached.request.conf.headers;
    let reads_none = headers.success.is_empty() && headers.always.is_empty();
    if reads_none && !matches!(outcome, Outcome::Status(_)) {
        return FinalRound { request: Arc::clone(&cached.request), outcome };
    }
    let mut request = (*cached.request).clone();
    request.headers_in = headers_of(context);
    FinalRound { request: Arc::new(request), outcome }
}
