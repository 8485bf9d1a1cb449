//! The page cache on the dashboard: the pages that were sent most often, and their purge.

use std::io;

use maitred_config::AdminAccess;
use maitred_control::purge::{PurgeMode, PurgeRequest, Target};
use maitred_http1::Method;
use serde_json::{Value, json};

use crate::admin::access::{PURGE_TOKEN_HEADER, may_purge};
use crate::handler::context::RequestCx;
use crate::handler::respond::TextResponse;
use crate::http::client::{After, HttpClient};
use crate::http::headers::PLAIN;
use crate::pool::status::View;
use crate::services::Shared;

/// Pages that are shown.
const MAX_PAGES: usize = 20;

/// The pages that were sent most often. Addresses have queries, so only a client that may see
/// everything gets them.
pub fn pages(shared: &Shared, view: View) -> Option<Value> {
    let cache = shared.cache.as_ref().filter(|_| view == View::Whole)?;
    let row = |page: &std::sync::Arc<maitred_pagestore::Object>| {
        let subject = &page.subject;
        let url = format!("{}{}", subject.host, subject.target);
        json!([subject.site, url, page.hits(), page.weight()])
    };
    Some(cache.store.top(MAX_PAGES).iter().map(row).collect())
}

/// Purges the pages with an address, if the client has sent the token for that.
///
/// # Errors
/// When the client has closed the connection.
pub async fn purge<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    access: &AdminAccess,
    url: &str,
) -> io::Result<After> {
    if cx.head.kind() != Method::Post {
        return cx.refuse(TextResponse::new(405, "A purge is a POST.")).await;
    }
    if !may_purge(access, cx.head.header(PURGE_TOKEN_HEADER)) {
        let why = "A purge needs the token of admin_purge_token_file.";
        return cx.refuse(TextResponse::new(403, why)).await;
    }
    let response = purged(&cx.thread.shared, url).await;
    cx.refuse(response).await
}

/// The address of one page in the syntax of `maitred purge`, where `*` at the end stands for all
/// pages that begin so, and `://` is behind a scheme. A visitor may have chosen the page's query.
fn address_of_page(url: &str) -> String {
    let url = url.strip_suffix('*').map_or_else(|| url.to_owned(), |start| format!("{start}%2A"));
    let head = url.split(['/', '?']).next().unwrap_or_default();
    if matches!(head, "http:" | "https:") { url } else { format!("http://{url}") }
}

async fn purged(shared: &Shared, url: &str) -> TextResponse {
    let Some(cache) = &shared.cache else {
        return TextResponse::new(404, "There is no page cache.");
    };
    let targets = vec![Target::Url(address_of_page(url))];
    let asked = PurgeRequest { targets, how: PurgeMode::Hard, site: None };
    let acks = match cache.purge_asked(&asked) {
        Ok(acks) => acks,
        Err(why) => {
            tracing::debug!("a purge of the dashboard: {why}");
            return TextResponse::new(404, "No site with a cache has this address.");
        }
    };
    tracing::info!("the dashboard purges {}", url.escape_debug());
    let complaint = match acks {
        Some(elsewhere) => elsewhere.done().await,
        None => None,
    };
    match complaint {
        None => TextResponse::page(&[PLAIN], "dropped\n".to_owned()),
        Some(why) => TextResponse::page(&[PLAIN], why).with_status(504),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_page_is_that_of_no_other() {
        assert_eq!(address_of_page("shop.example/a"), "http://shop.example/a");
        assert_eq!(address_of_page("shop.example/?q=*"), "http://shop.example/?q=%2A");
        assert_eq!(address_of_page("shop.example/?u=http://x"), "http://shop.example/?u=http://x");
        assert_eq!(address_of_page("https://shop.example/*"), "https://shop.example/%2A");
    }
}
