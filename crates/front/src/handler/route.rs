//! Routes a request after the rules of its site have accepted it.

use maitred_http1::Head;

use crate::backend::Backend;
use crate::cache::PURGE;
use crate::handler::context::RequestContext;
use crate::handler::decision::Decision;
use crate::handler::proxy::{NO_WEBSOCKET, is_websocket};
use crate::handler::refusal;
use crate::handler::respond::TextResponse;
use crate::pool::status;
use crate::services::Thread;
use crate::site::resolver::Route;

/// The decision on a request for which the document root does not matter.
pub fn special<'r>(context: &RequestContext<'r>, thread: &Thread) -> Option<Decision<'r>> {
    let (head, troubles) = (context.head, &thread.shared.troubles);
    if is_websocket(head) {
        troubles.websocket_refused(context.target.host, &context.path);
        return Some(TextResponse::new(501, NO_WEBSOCKET).into());
    }
    if let Backend::Pool(pool) = context.backend
        && let Some(page) = status::page(pool, head)
    {
        return Some(TextResponse::from(page).into());
    }
    purges(head, context, thread).then_some(Decision::Purge)
}

/// The route of a request's path.
pub async fn route<'r>(context: &RequestContext<'r>, thread: &Thread) -> Decision<'r> {
    if let Some(decision) = special(context, thread) {
        return decision;
    }
    let troubles = &thread.shared.troubles;
    match refusal::resolve(context, troubles).await {
        Route::File(entry) => Decision::File(entry),
        Route::Script(script) => Decision::Script(script),
        Route::RedirectSlash(location) => TextResponse::redirect(301, &location).into(),
        Route::Refused(refused) => refusal::of_path(&refused).into(),
    }
}

fn purges(head: &Head, context: &RequestContext<'_>, thread: &Thread) -> bool {
    head.method() == PURGE && context.site.cache.is_some() && thread.shared.cache.is_some()
}
