//! The PURGE method.

use std::io;

use maitred_control::purge::DroppedPages;
use maitred_pagecache::purge::{Purge, PurgeMode};
use maitred_pagecache::{invalidate, tags};

use crate::cache::{Cache, PURGE, SiteCache};
use crate::handler::cache::reply::request_of;
use crate::handler::context::{RequestContext, RequestCx};
use crate::handler::refusal;
use crate::handler::respond::TextResponse;
use crate::http::client::{After, HttpClient};
use crate::http::error_body::NOT_FOUND;
use crate::http::headers::{PLAIN, first_field};
use crate::site::Site;

/// Whether a request is a PURGE of a client that `purge_from` of its site names.
pub fn may_purge<C>(cx: &RequestCx<'_, C>, site: &Site) -> bool {
    let is_named = |of: &SiteCache| of.purge_from.contain(cx.target.peer.ip());
    cx.head.method() == PURGE && site.cache.as_ref().is_some_and(is_named)
}

/// Carries out a PURGE request, if its client is in `purge_from`.
///
/// # Errors
/// When the client has closed the connection.
pub async fn purge<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
) -> io::Result<After> {
    let response = match (&context.site.cache, &cx.thread.shared.cache) {
        (Some(of), Some(cache)) => drop_pages(context, of, cache).await,
        _ => TextResponse::new(404, NOT_FOUND),
    };
    cx.refuse(response).await
}

async fn drop_pages(context: &RequestContext<'_>, of: &SiteCache, cache: &Cache) -> TextResponse {
    let head = context.head;
    if !of.purge_from.contain(context.target.peer.ip()) {
        let why = "the site's purge_from does not name the client";
        refusal::log(context, 403, why);
        return TextResponse::new(403, why);
    }
    let how = match first_field(head, "soft-purge") {
        Some("1") => PurgeMode::Soft,
        _ => PurgeMode::Hard,
    };
    let purges = match tags::groups(head.headers(), "cache-groups") {
        Some(groups) => groups.into_iter().map(Purge::Tag).collect(),
        None if first_field(head, "cache-groups").is_some() => {
            let why = "Cache-Groups is a list of strings, such as \"news\", \"post-17\".";
            return TextResponse::new(400, why);
        }
        None => {
            let request = request_of(context);
            let (key, host) = (&of.settings.key, request.host);
            vec![invalidate::purge_of(key, host, request.path, request.query)]
        }
    };
    let named = |purge| DroppedPages { site: of.site.clone(), purge, how };
    let purges = purges.into_iter().filter_map(Purge::bounded);
    let dropped: Vec<DroppedPages> = purges.map(named).collect();
    let complaint = match cache.purge(&dropped) {
        Some(elsewhere) => elsewhere.done().await,
        None => None,
    };
    let done = match how {
        PurgeMode::Hard => "dropped",
        PurgeMode::Soft => "stale",
    };
    let mut text: String = dropped.iter().map(|one| format!("{done}: {}\n", one.purge)).collect();
    let Some(complaint) = complaint else {
        return TextResponse::page(&[PLAIN], text);
    };
    text.push_str(&complaint);
    text.push('\n');
    TextResponse::page(&[PLAIN], text).with_status(504)
}
