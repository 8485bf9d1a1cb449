//! The response and the log line of a refused request.
//!
//! A client reads the same of every 404 and of every 403: the reason would reveal what exists. The
//! log has it, and `maitred explain` prints it.

use std::path::Path;

use maitred_rules::path::Refused;
use maitred_rules::site_rules::Refusal;

use crate::handler::context::RequestContext;
use crate::handler::respond::TextResponse;
use crate::http::error_body::{FORBIDDEN, NOT_FOUND};
use crate::http::transfers::RETRY_SECONDS;
use crate::logging::repeated::RepeatedErrors;
use crate::site::resolver::{FOREIGN_FILE, FOREIGN_LINK, Route};

/// The response body for a path that cannot be decoded.
const BAD_PATH: &str = "The path of the address is not valid.";

/// The response body for an error on the server's side.
const FAILED: &str = "The server cannot respond to this now.";

/// The response to a path that is refused.
pub fn of_path(refused: &Refused) -> TextResponse {
    let reason = match refused.status {
        404 => NOT_FOUND,
        403 => FORBIDDEN,
        400 => BAD_PATH,
        _ => FAILED,
    };
    let response = TextResponse::new(refused.status, reason);
    match refused.status {
        503 => response.with("Retry-After", &RETRY_SECONDS.to_string()),
        _ => response,
    }
}

/// The response to a request that a rule refuses; logs it.
pub fn of_rule(
    context: &RequestContext<'_>,
    refused: Refusal,
    troubles: &RepeatedErrors,
) -> TextResponse {
    log(context, refused.status, refused.why);
    if refused.is_config_error {
        let why = "the site's rewrites lead in a circle; `maitred explain URL` shows them";
        log_failed(&context.site.settings.root, refused.status, why, troubles);
        return TextResponse::new(refused.status, FAILED);
    }
    TextResponse::new(refused.status, refused.why)
}

/// Resolves the path of a request. A refused file is logged, and then treated as missing: the front
/// controller, if there is one, responds with its own error page.
pub async fn resolve(context: &RequestContext<'_>, troubles: &RepeatedErrors) -> Route {
    let site = context.site;
    let found = site.look_up(|| site.resolve(&context.path, context.query())).await;
    match found.unwrap_or_else(Route::Refused) {
        Route::Refused(refused) => {
            log_path(context, &refused, troubles);
            let instead = site.look_up(|| site.in_place_of(&context.path, &refused)).await;
            instead.ok().flatten().unwrap_or(Route::Refused(refused))
        }
        route => route,
    }
}

/// Logs the reason why a path is refused.
pub fn log_path(context: &RequestContext<'_>, refused: &Refused, troubles: &RepeatedErrors) {
    log(context, refused.status, refused.why);
    let root = &context.site.settings.root;
    if refused.status >= 500 {
        log_failed(root, refused.status, refused.why, troubles);
    } else if refused.is_notable && refused.why != FOREIGN_FILE {
        troubles.file_refused(root, &context.path, refused);
    }
}

/// Logs that a file cannot be sent because of an error on the server's side. A refused document
/// root is logged by its resolver, with the link.
fn log_failed(root: &Path, status: u16, why: &'static str, troubles: &RepeatedErrors) {
    if why != FOREIGN_LINK {
        troubles.file_failed(root, status, why);
    }
}

/// Logs the reason why a request is refused.
pub fn log(context: &RequestContext<'_>, status: u16, why: &str) {
    let host = context.target.host.escape_debug();
    let path = context.path.escape_debug();
    tracing::debug!("{host}{path}: {status}: {why}");
}
