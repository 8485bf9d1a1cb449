//! The PURGE method.

use std::io;

use maitred_control::purge::DroppedPages;
use maitred_http1::Head;
use maitred_pagecache::purge::{Purge, PurgeMode};
use maitred_pagecache::{invalidate, tags};

use crate::handler::cache::reply::request_of;
use crate::handler::context::RequestContext;
use crate::handler::refusal;
use crate::http::client::{After, HttpClient};
use crate::logging::record::RequestRecord;
use crate::services::Thread;

/// Does what a request with [`PURGE`] asks for, if its client may; nothing if the site has no cache.
pub async fn purge(
    client: &mut impl HttpClient,
    head: &Head,
    thread: &Thread,
    way: &RequestContext<'_>,
    record: &mut RequestRecord,
) -> Option<io::Result<After>> {
    let of = way.site.cache.as_ref()?;
    let cache = thread.shared.cache.as_ref()?;
    let peer = way
        .origin
        .map_or_else(|| client.peer(), |origin| origin.client);
    if !of.purge_from.contain(peer.ip()) {
        let why = "the site's purge_from does not name the client";
        refusal::log(head, way, 403, why);
        return Some(crate::handler::respond::refuse(client, head, record, 403, why).await);
    }
    let asked = request_of(head, way);
    let how = match crate::http::headers::first_field(head, "soft-purge") {
        Some("1") => PurgeMode::Soft,
        _ => PurgeMode::Hard,
    };
    let groups = tags::groups(head.headers(), "cache-groups");
    let purges = match groups {
        Some(groups) => groups.into_iter().map(Purge::Tag).collect(),
        None if crate::http::headers::first_field(head, "cache-groups").is_some() => {
            let why = "Cache-Groups is a list of strings, such as \"news\", \"post-17\".";
            return Some(crate::handler::respond::refuse(client, head, record, 400, why).await);
        }
        None => {
            let (host, path) = (asked.host, asked.path);
            let purge = invalidate::purge_of(&of.settings.key, host, path, asked.query);
            vec![purge]
        }
    };
    let named = |purge| DroppedPages {
        site: of.site.clone(),
        purge,
        how,
    };
    let dropped: Vec<DroppedPages> = purges.into_iter().map(named).collect();
    if let Some(elsewhere) = cache.purge(&dropped) {
        elsewhere.done().await;
    }
    let done = match how {
        PurgeMode::Hard => "dropped",
        PurgeMode::Soft => "stale",
    };
    let lines = dropped.iter().map(|one| format!("{done}: {}\n", one.purge));
    let said: String = lines.collect();
    let after = client.discard_body(head);
    let headers = [crate::http::headers::PLAIN];
    Some(crate::handler::respond::whole(client, head, record, 200, &headers, &said, after).await)
}
