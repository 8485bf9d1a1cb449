//! A background refresh, which starts after its request was served with the stale page.

use std::sync::Arc;

use maitred_pagecache::cache_status::Forward;
use maitred_pagecache::eligibility::Plan;
use maitred_pagecache::fills::{FillResult, Ticket};
use maitred_pagecache::key::Key;
use maitred_pagecache::reuse::Stale;
use maitred_pagestore::Object;

use crate::cache::{Cache, SiteCache};
use crate::handler::cache::fill::Fill;
use crate::handler::context::RequestContext;

/// The state that a request served with a stale page passes to its background refresh.
pub struct PendingRefresh {
    /// The cache.
    pub cache: Arc<Cache>,
    plan: Plan,
    primary: Option<Key>,
    ticket: Option<(Key, Ticket)>,
    stale: Option<(Arc<Object>, Stale)>,
    stale_key: Option<Key>,
    shown: Option<(Option<String>, String)>,
    stamp: u64,
}

impl PendingRefresh {
    /// Forwards the same request to the script.
    pub fn resume<'a>(mut self, of: &'a SiteCache, context: &'a RequestContext<'a>) -> Fill<'a> {
        let mut fill = Fill::new(self.cache.clone(), of, context);
        fill.why = Forward::Stale;
        (fill.stale, fill.stale_key) = (self.stale.take(), self.stale_key.take());
        (fill.shown, fill.stamp) = (self.shown.take(), self.stamp);
        if let Some((key, ticket)) = self.ticket.take() {
            fill.begin(key, ticket);
        }
        if let Some(primary) = self.primary.take() {
            fill.forward(self.plan.clone(), primary);
        }
        fill.is_refresh = true;
        fill
    }
}

impl Drop for PendingRefresh {
    /// The requests that wait are notified if no refresh starts.
    fn drop(&mut self) {
        if let Some((key, ticket)) = self.ticket.take() {
            self.cache.finish(&key, ticket, FillResult::Failed);
        }
    }
}

impl Fill<'_> {
    /// Whether the stale page may be served in place of an error.
    pub(crate) fn has_stale_for_error(&self) -> bool {
        let stale = self.stale.as_ref().filter(|(_, stale)| stale.if_error);
        // The script has taken its time: the page may have been purged, or the lease has ended,
        // and other nodes may have purged it.
        let is_purged = |page: &Object| self.cache.store.is_purged_since(self.stamp, page);
        stale.is_some_and(|(page, _)| self.cache.lease.holds() && !is_purged(page))
    }

    /// The stale page, if it may be served in place of an error.
    pub(crate) fn take_stale_for_error(&mut self) -> Option<(Arc<Object>, Stale)> {
        let may_be_served = self.has_stale_for_error();
        self.stale.take().filter(|_| may_be_served)
    }

    /// The state for a refresh after the request.
    pub fn into_pending(mut self: Box<Self>) -> PendingRefresh {
        self.counts = false;
        PendingRefresh {
            cache: self.cache.clone(),
            plan: self.plan.clone(),
            primary: self.primary.take(),
            ticket: self.ticket.take(),
            stale: self.stale.take(),
            stale_key: self.stale_key.take(),
            shown: self.shown.take(),
            stamp: self.stamp,
        }
    }
}
