//! Listings at sites with `.htaccess` files: without names that the files hide or deny.

use std::sync::Arc;

use maitred_htaccess::process::Processor;
use maitred_htaccess::request::{Client, Request, World};
use maitred_rules::path::{CleanPath, Refused};

use crate::handler::context::RequestContext;
use crate::site::listing::{self, Listing, ListingPage};
use crate::site::name_lookups;

/// Most evaluations of names for one listing, each as long as that of a request may be. Other
/// requests have their turn between them.
const MOST_TURNS: usize = 4;

/// The page for the directory of a request; none if there is nothing to list.
///
/// # Errors
/// When the directory takes too long to open or to read.
pub async fn page(
    context: &RequestContext<'_>,
    client: &Client,
    request: &Arc<Request>,
    path: &CleanPath<'_>,
) -> Result<Option<ListingPage>, Refused> {
    let site = context.site;
    let index = Arc::clone(request);
    let is_ignored = move |name: &[u8]| index.conf.index.ignores(name);
    let Some(mut listing) = listing::read(site, path, is_ignored).await? else {
        return Ok(None);
    };
    for _ in 0..MOST_TURNS {
        let before = listing.checked();
        match site.look_up(|| check(context, client, request, &mut listing)).await {
            Ok(true) => break,
            Ok(false) => {}
            Err(refused) if listing.checked() == before => return Err(refused),
            Err(_) => {}
        }
        tokio::task::yield_now().await;
    }
    listing.cut();
    Ok(listing::page(listing, path.as_bytes()).await)
}

/// Looks names up as subrequests, as mod_autoindex does. Whether there are no more.
fn check(
    context: &RequestContext<'_>,
    client: &Client,
    request: &Request,
    listing: &mut Listing,
) -> bool {
    let checked = context.site.with_htaccess(|world, _| {
        let processor = Processor::new(client, world);
        listing.check(|name| {
            let shows = !world.is_late() && processor.shows(name, request);
            // One that the time limit or a lookup has ended decides nothing.
            let is_over = !name_lookups::is_pending() && (shows || !world.is_late());
            is_over.then_some(shows)
        })
    });
    // Without the document root, nothing can be looked up.
    checked.ok().flatten().unwrap_or(true)
}
