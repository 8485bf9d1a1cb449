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
