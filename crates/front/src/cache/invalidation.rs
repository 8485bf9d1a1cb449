//! What a response invalidates: what its script names, and what the method of the request has
//! changed. Other nodes have a budget for either (`site_budgets.rs` of the supervisor).

use maitred_control::purge::DroppedPages;

use crate::cache::Cache;
use crate::cache::purge::PurgeCause;
use crate::cache::purge_acks::PurgeAcks;

/// The pages that a response invalidates.
#[derive(Debug, Default)]
pub struct Invalidated {
    /// Named by the script.
    pub named: Vec<DroppedPages>,
    /// Changed by the method of the request (RFC 9111 §4.4).
    pub changed: Vec<DroppedPages>,
    /// The same, but the site's rules let no page be stored there: another front or node has none.
    pub unstored: Vec<DroppedPages>,
}

impl Invalidated {
    /// Whether there are no pages.
    pub fn is_empty(&self) -> bool {
        [&self.named, &self.changed, &self.unstored].iter().all(|pages| pages.is_empty())
    }
}

impl Cache {
    /// Drops pages as [`Cache::purge`] does, but other nodes are not waited for: no client of a
    /// page waits for those.
    pub fn invalidate(&self, pages: &Invalidated) -> Option<PurgeAcks> {
        let unstored = self.purge_here(&pages.unstored).map(PurgeAcks::of);
        let named = self.purge_and_notify(&pages.named, PurgeCause::Header);
        let changed = self.purge_and_notify(&pages.changed, PurgeCause::Method);
        [unstored, named, changed].into_iter().flatten().reduce(PurgeAcks::both)
    }
}
