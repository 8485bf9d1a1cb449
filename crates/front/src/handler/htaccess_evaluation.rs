//! Evaluations of `.htaccess` files, which begin again after each lookup on another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use maitred_htaccess::process::{Decision as Verdict, Outcome, Processor};
use maitred_htaccess::request::{Client, Request};

use crate::handler::context::RequestContext;
use crate::handler::refusal;
use crate::handler::respond::TextResponse;
use crate::site::directory_confs::SiteWorld;
use crate::site::resolver::{Resolver, RootVersion};
use crate::site::verdict_table::WatchedPaths;

/// What an evaluation has found.
pub struct Evaluation {
    /// The last round, and what becomes of the request.
    pub verdict: Verdict,
    /// The paths that it has looked at.
    pub paths: WatchedPaths,
    /// The document root that it has seen.
    pub root: RootVersion,
}

/// Evaluates a request.
///
/// # Errors
/// The response if the document root cannot be opened, or a lookup takes too long.
pub async fn evaluate(
    context: &RequestContext<'_>,
    client: &Client,
    request: &Request,
) -> Result<Evaluation, TextResponse> {
    within(context, client, &request.work, |processor| processor.decide(request.clone())).await
}

/// An error of a request, and the page that its `ErrorDocument` names.
pub struct ErrorOf {
    /// The request.
    pub request: Request,
    /// The path of the page.
    pub page: Vec<u8>,
    /// The status of the error.
    pub status: u16,
}

/// Evaluates the request for the page of an error.
///
/// # Errors
/// As [`evaluate`].
pub async fn evaluate_error(
    context: &RequestContext<'_>,
    client: &Client,
    of: ErrorOf,
) -> Result<Evaluation, TextResponse> {
    let work = Arc::clone(&of.request.work);
    let evaluated = within(context, client, &work, |processor| {
        match processor.error_request(&of.request, &of.page, of.status) {
            Ok(request) => processor.decide(request),
            // A page whose path cannot be decoded leaves the error as it is.
            Err(status) => {
                let request = Request { status: of.status, ..of.request.clone() };
                Verdict { request, outcome: Outcome::Status(status) }
            }
        }
    });
    evaluated.await
}

/// `spent` counts the work of the evaluation's request.
async fn within(
    context: &RequestContext<'_>,
    client: &Client,
    spent: &AtomicU32,
    mut work: impl FnMut(&Processor<'_>) -> Verdict,
) -> Result<Evaluation, TextResponse> {
    let before = spent.load(Ordering::Relaxed);
    let found = context.site.evaluate(|world: &SiteWorld<'_>, resolver: &Resolver| {
        // What a lookup has ended does not count.
        spent.store(before, Ordering::Relaxed);
        let verdict = work(&Processor::new(client, world));
        Evaluation { verdict, paths: world.paths.take(), root: RootVersion::of(resolver) }
    });
    match found.await {
        Ok(Some(evaluation)) => Ok(evaluation),
        Ok(None) => Err(TextResponse::new(500, "")),
        Err(refused) => Err(refusal::of_path(&refused)),
    }
}
