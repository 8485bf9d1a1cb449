//! Static files: a compressed variant in place of the file, if the client accepts one.

use std::sync::Arc;

use maitred_http1::{Head, Method};
use maitred_rules::coding::Coding;

use crate::services::Thread;
use crate::site::Site;
use crate::site::compress::accepted;
use crate::site::compress::variants::made;
use crate::site::files::Entry;

/// What is sent to a client in place of a file that a path stands for: the same in a coding that the
/// client takes, or the file itself.
pub async fn variant(
    thread: &Thread,
    (site, path): (&Site, &str),
    head: &Head,
    entry: Arc<Entry>,
) -> Arc<Entry> {
    let Some(compression) = site.compression.as_deref().filter(|_| entry.varies()) else {
        return entry;
    };
    // Ranges are those of the file itself: its parts in another coding would not fit together.
    if !matches!(head.kind(), Method::Get | Method::Head) || head.header("range").is_some() {
        return entry;
    }
    let accepted = accepted(head);
    let mut left = accepted;
    while compression.precompressed()
        && let Some(coding) = left.best(&Coding::SMALLEST)
    {
        if let Some(found) = site.sibling(path, &entry, coding) {
            return found;
        }
        left = left.without(coding);
    }
    match accepted.best(compression.kept()) {
        Some(coding) => made(&thread.made, entry, coding).await,
        None => entry,
    }
}
