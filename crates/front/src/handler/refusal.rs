//! What clients read of a refusal, and what the log does.
//!
//! A client reads the same of every 404 and of every 403: the reason would tell what there is. The
//! log has it, and `maitred explain` says it.

use std::path::Path;

use maitred_http1::Head;
use maitred_rules::path::Refused;

use crate::handler::context::RequestContext;
use crate::http::error_body::{FORBIDDEN, NOT_FOUND};
use crate::logging::repeated::RepeatedErrors;
use crate::site::resolver::{FOREIGN_LINK, Route};

/// What a client is told whose path cannot be read.
const BAD_PATH: &str = "The path of the address is not valid.";

/// What a client is told of a failure that is the server's.
pub const FAILED: &str = "The server cannot answer this at the moment.";

/// What a client may read of why a path stands for nothing.
pub fn of_path(refused: &Refused) -> &'static str {
    match refused.status {
        404 => NOT_FOUND,
        403 => FORBIDDEN,
        400 => BAD_PATH,
        _ => FAILED,
    }
}

/// What the path of a request stands for. A file that is refused is logged, and then as good as
/// missing: the front controller, if there is one, says so in its own words.
pub fn resolve(head: &Head, way: &RequestContext<'_>, troubles: &RepeatedErrors) -> Route {
    match way.site.resolve(way.path, way.query) {
        Route::Refused(refused) => {
            log_path(head, way, &refused, troubles);
            let instead = way.site.in_place_of(way.path, &refused);
            instead.unwrap_or(Route::Refused(refused))
        }
        route => route,
    }
}

/// Logs why a path stands for nothing.
pub fn log_path(
    head: &Head,
    way: &RequestContext<'_>,
    refused: &Refused,
    troubles: &RepeatedErrors,
) {
    log(head, way, refused.status, refused.why);
    let root = &way.site.settings.root;
    if refused.status >= 500 {
        log_failed(root, refused.status, refused.why, troubles);
    } else if refused.is_notable {
        troubles.file_refused(root, way.path, refused);
    }
}

/// Logs that a file cannot be sent, for a cause of the server's. A refused document root is logged by its
/// resolver, with the link.
pub fn log_failed(root: &Path, status: u16, why: &'static str, troubles: &RepeatedErrors) {
    if why != FOREIGN_LINK {
        troubles.file_failed(root, status, why);
    }
}

/// Logs why a request is refused, for the operator.
pub fn log(head: &Head, way: &RequestContext<'_>, status: u16, why: &str) {
    let host = way.host(head).escape_debug();
    let path = way.path.escape_debug();
    tracing::debug!("{host}{path}: {status}: {why}");
}
