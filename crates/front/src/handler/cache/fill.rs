//! The path of a script's response into the cache: the decision to store it, or the reason not to.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use maitred_control::purge::DroppedPages;
use maitred_fastcgi::cgi::CgiHeaders;
use maitred_pagecache::admit::{Admitted, NotStored, Times, admit};
use maitred_pagecache::cache_request::CacheRequest;
use maitred_pagecache::cache_status::{CacheStatus, Forward, ON_ERROR, REVALIDATED};
use maitred_pagecache::eligibility::{Bypass, Plan, is_never_stored};
use maitred_pagecache::fills::{FillResult, Ticket};
use maitred_pagecache::headers::{ResponseHead, of_lines};
use maitred_pagecache::key::Key;
use maitred_pagecache::purge::{self, Purge, PurgeMode};
use maitred_pagecache::reuse::{Stale, is_error, validators};
use maitred_pagecache::stored::Stored;
use maitred_pagecache::{Millis, cookies, freshness, invalidate};
use maitred_pagestore::{Body, Object, PageKeys, Subject};

use crate::backend::error::Failure;
use crate::backend::script_headers::Named;
use crate::cache::invalidation::Invalidated;
use crate::cache::purge_acks::PurgeAcks;
use crate::cache::{AT_ONCE_BYTES, Cache, SiteCache, now, whole};
use crate::handler::cache::compressed::add_vary;
use crate::handler::cache::detached_client::WantedFlag;
use crate::handler::cache::fill_body::FillBody;
use crate::handler::cache::reply::{CachedPage, reply, request_of};
use crate::handler::context::{RequestContext, RequestCx};
use crate::http::client::{After, HttpClient};
use crate::http::headers::Header;

pub use crate::handler::cache::fill_remaining::PendingRefresh;

/// A script's response on its way through the cache.
pub struct Fill<'a> {
    pub(crate) cache: Arc<Cache>,
    pub(crate) of: &'a SiteCache,
    pub(crate) context: &'a RequestContext<'a>,
    pub(crate) plan: Plan,
    /// The primary key of the request (RFC 9111 §2).
    pub primary: Option<Key>,
    /// The key of the response, and the right to fetch it for all requests that wait.
    pub(crate) ticket: Option<(Key, Ticket)>,
    /// The stale page in the cache.
    pub stale: Option<(Arc<Object>, Stale)>,
    /// The key of the stale page.
    pub stale_key: Option<Key>,
    /// The reason why the request is forwarded to the script.
    pub why: Forward,
    /// The client has already got the stale page.
    pub(crate) is_refresh: bool,
    /// The query and the target as the script sees them, if the key leaves out part of the client's
    /// query.
    pub(crate) shown: Option<(Option<String>, String)>,
    /// The cookies of a background refresh, which replace those of the client.
    pub cookies: Option<Vec<u8>>,
    /// Whether the request has waited for the response to another (request collapsing).
    pub is_collapsed: bool,
    wanted: WantedFlag,
    begun: Millis,
    pub(crate) stamp: u64,
    admitted: Option<Admitted>,
    /// The value of the `Content-Length` header, in bytes.
    announced: Option<u64>,
    body: FillBody<'a>,
    /// A page that another thread stores, because it is large or the disk is slow.
    unwritten: Option<(PageKeys, Object)>,
    /// The worker time of the response.
    cost: Duration,
    /// Whether the response is stored; none before there is one.
    outcome: Option<Result<(), NotStored>>,
    /// The status of a response whose `Cache-Status` says that it is stored.
    promised: Option<u16>,
    /// The request was forwarded to a script, and counts as such.
    pub(crate) counts: bool,
    /// The cached page after a 304.
    merged: Option<(Stored, Body)>,
    /// Waits until the purge of the pages that the response invalidates is done.
    purged: Option<PurgeAcks>,
}

impl<'a> Fill<'a> {
    /// A request before its lookup.
    pub fn new(cache: Arc<Cache>, of: &'a SiteCache, context: &'a RequestContext<'a>) -> Fill<'a> {
        let why = Bypass::Rule;
        Fill {
            stamp: cache.store.stamp(),
            body: FillBody::new(of, context.backend),
            cache,
            of,
            context,
            plan: Plan { read: Err(why), store: Err(NotStored::Bypassed(why)), directives: None },
            primary: None,
            ticket: None,
            stale: None,
            stale_key: None,
            why: Forward::Bypass(why),
            is_refresh: false,
            shown: None,
            cookies: None,
            is_collapsed: false,
            wanted: WantedFlag::default(),
            begun: now(),
            admitted: None,
            announced: None,
            unwritten: None,
            cost: Duration::ZERO,
            outcome: None,
            promised: None,
            counts: false,
            merged: None,
            purged: None,
        }
    }

    /// Lets the request bypass the cache.
    pub fn bypass(&mut self, plan: Plan, why: Bypass) {
        (self.plan, self.why) = (plan, Forward::Bypass(why));
        self.counts = true;
        self.want_header();
    }

    /// Waits for the header of a request that may change pages, also if its client leaves: the
    /// script runs to its end all the same. Plugins for LiteSpeed's cache purge by GET as well.
    fn want_header(&self) {
        if self.of.settings.litespeed || !invalidate::is_safe(self.context.head.method()) {
            self.wanted.want_header();
        }
    }

    /// Passes this query to the script in place of the client's, if the response may be stored.
    pub fn show_query(&mut self, query: Option<&str>) {
        let path = self.context.head.target().split('?').next().unwrap_or_default();
        let target = match query {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        self.shown = Some((query.map(str::to_owned), target));
    }

    /// The query and the target that the script gets; none: those of the client.
    pub fn shown(&self) -> Option<(Option<&str>, &str)> {
        self.plan.store.ok()?;
        let (query, target) = self.shown.as_ref()?;
        Some((query.as_deref(), target))
    }

    /// Lets other requests for the key wait for this response (nginx's `fastcgi_cache_lock`).
    pub fn begin(&mut self, key: Key, ticket: Ticket) {
        self.ticket = Some((key, ticket));
        self.wanted.want_page();
    }

    /// The stale page, if it may be served during an update.
    pub fn usable_stale(&self) -> Option<(Arc<Object>, Stale)> {
        let stale = self.stale.as_ref();
        stale.filter(|(_, stale)| stale.while_revalidate).cloned()
    }

    /// Takes the time stamp of the fill: a purge after it prevents the response from being stored.
    pub fn take_stamp(&mut self) {
        self.stamp = self.cache.store.stamp();
    }

    /// Marks the request as forwarded to the script.
    pub fn forward(&mut self, plan: Plan, primary: Key) {
        (self.plan, self.primary) = (plan, Some(primary));
        self.counts = true;
        self.want_header();
        self.begun = now();
    }

    /// Lets the response of the classic pool take the place of the one that leaves the request to
    /// it. It is not stored: other requests wait no more, and the page counts as uncacheable.
    pub fn leave_to_classic_pool(&mut self) {
        self.plan.store = Err(NotStored::NoStore);
        (self.stale, self.stale_key, self.outcome) = (None, None, None);
        self.want_header();
    }

    /// Records the worker time of the response.
    pub fn record_duration(&mut self, time: Duration) {
        self.cost = time;
    }

    /// The cache status of the request, for the access log.
    pub fn word(&self) -> &'static str {
        self.status(None, Err(NotStored::Incomplete)).word()
    }

    fn status(&self, status: Option<u16>, stored: Result<u64, NotStored>) -> CacheStatus {
        CacheStatus::Forwarded { why: self.why, status, stored, is_collapsed: self.is_collapsed }
    }

    /// Whether other requests may wait for the response, or be served with it.
    pub fn is_shared(&self) -> bool {
        self.ticket.is_some()
    }

    /// Whether the response is wanted after the client has closed the connection.
    pub fn wanted(&self) -> WantedFlag {
        self.wanted.clone()
    }

    /// The headers that replace the client's conditional and range headers for the script, if the
    /// response may be stored.
    pub fn conditions(&self) -> Option<Vec<Header<'_>>> {
        self.plan.store.ok()?;
        let validates = self.of.settings.revalidate;
        let stale = self.stale.iter().filter(|_| validates);
        Some(stale.flat_map(|(page, _)| validators(&page.stored)).collect())
    }

    fn validates(&self) -> bool {
        let has_validator = |(page, _): &(Arc<Object>, Stale)| page.stored.has_validator;
        self.of.settings.revalidate
            && self.plan.store.is_ok()
            && self.stale.as_ref().is_some_and(has_validator)
    }

    /// Processes the complete response header. Returns the value of the `Cache-Status` header.
    ///
    /// # Errors
    /// When the client gets the cached page in place of the response.
    pub fn take_head(&mut self, said: &CgiHeaders) -> Result<String, Failure> {
        let status = said.status();
        self.cache.learn(self.of, cookies::set_by(said.headers()));
        // What the classic pool responds says what the request has changed, and when.
        if !Named::by(said).is_some_and(Named::is_classic_pool) {
            self.purge(said);
            // Without its client, the rest is wanted by requests alone that wait for it.
            self.wanted.have_header();
        }
        let times = Times { asked: self.begun, came: now(), stamp: self.stamp };
        if status == 304 && self.validates() {
            self.take_validation(said, times);
            return Err(Failure::Intercepted(status));
        }
        if is_error(status) && self.has_stale_for_error() {
            return Err(Failure::Intercepted(status));
        }
        let admitted = self.admit(said, times);
        let stored = admitted.as_ref().map_err(|why| *why).map(|admitted| {
            let page = &admitted.stored;
            let age = freshness::current_age(page.initial_age, times.came, times.came);
            if page.no_cache { 0 } else { page.lifetimes.fresh.saturating_sub(age / 1000) }
        });
        match admitted {
            Ok(admitted) => {
                self.admitted = Some(admitted);
                // Until the response is complete.
                self.outcome = Some(Err(NotStored::Incomplete));
                self.promised = Some(status);
            }
            Err(why) => {
                if !is_error(status) {
                    self.drop_stale(why);
                }
                self.outcome = Some(Err(why));
                self.finish(without_page(why));
            }
        }
        Ok(self.status(Some(status), stored).to_string())
    }

    /// A corrected value of the `Cache-Status` header of [`Fill::take_head`], if the response is
    /// not stored after all.
    pub fn correction(&self) -> Option<String> {
        let status = self.promised.filter(|_| self.admitted.is_none())?;
        let why = self.outcome?.err()?;
        Some(self.status(Some(status), Err(why)).to_string())
    }

    /// Takes a 304: the cached page is still valid.
    fn take_validation(&mut self, said: &CgiHeaders, times: Times) {
        let Some((page, _)) = self.stale.clone() else {
            return;
        };
        let asked = CacheRequest::survey(request_of(self.context), self.context.head.headers());
        let (settings, headers) = (&self.of.settings, said.headers());
        let merged = page.stored.merge(settings, &asked, &self.plan, headers, times);
        let stored = merged.stored.and_then(|mut admitted| {
            self.restrict(&mut admitted, of_lines(&merged.unfiltered))?;
            Ok(admitted)
        });
        match stored {
            Ok(admitted) => {
                let told = Stored { lines: merged.lines, ..admitted.stored.clone() };
                self.merged = Some((told, page.body.clone()));
                self.cost = page.cost;
                self.store(admitted, page.body.clone());
            }
            Err(why) => {
                let stored = Stored { lines: merged.lines, ..page.stored.clone() };
                self.merged = Some((stored, page.body.clone()));
                self.drop_stale(why);
                self.finish(without_page(why));
            }
        }
    }

    /// Whether the response with this header is stored.
    fn admit(&mut self, said: &CgiHeaders, times: Times) -> Result<Admitted, NotStored> {
        let length = said.header("content-length").and_then(maitred_pagecache::headers::seconds);
        self.announced = length;
        if Named::by(said).is_some() {
            // The file that it names is sent, not the response.
            return Err(NotStored::NoStore);
        }
        let asked = CacheRequest::survey(request_of(self.context), self.context.head.headers());
        let response = ResponseHead { status: said.status(), headers: said.headers() };
        let mut admitted = admit(&self.of.settings, &asked, &self.plan, response, times)?;
        self.restrict(&mut admitted, said.headers())?;
        if let Some(primary) = &self.primary {
            PageKeys::of(primary, &admitted.vary, self.context.head.headers())?;
        }
        match length {
            Some(length) if length > self.largest() => Err(NotStored::TooLarge),
            _ => Ok(admitted),
        }
    }

    /// Drops the stale page of a response that is not stored, so that no client sees it again. A
    /// response that is not stored because of its request says nothing about the page.
    fn drop_stale(&mut self, why: NotStored) {
        let is_of_request = self.plan.store.is_err() || why.is_of_request();
        if let (Some((page, _)), Some(key), false) = (&self.stale, &self.stale_key, is_of_request) {
            self.cache.drop_page(key, page);
        }
    }

    /// Bytes of the largest body that is stored.
    fn largest(&self) -> u64 {
        let largest = self.cache.store.largest_body();
        largest.min(self.of.settings.max_object_size)
    }

    /// Drops the pages that the response invalidates, before any client sees the response. Those of
    /// another tenant, whose site has the host since a reload, are not the request's to invalidate.
    fn purge(&mut self, said: &CgiHeaders) {
        let request = request_of(self.context);
        let settings = &self.of.settings;
        let after = invalidate::after(&settings.key, &request, said.status(), said.headers());
        let of_site = |(purge, how)| DroppedPages { site: self.of.site.clone(), purge, how };
        let mut pages = Invalidated::default();
        for purge in after {
            let dropped = match &purge {
                Purge::Url { target, .. } if is_never_stored(settings, target) => {
                    &mut pages.unstored
                }
                Purge::Url { .. } | Purge::Prefix { .. } => &mut pages.changed,
                Purge::All | Purge::Host(_) | Purge::Tag(_) => &mut pages.named,
            };
            dropped.push(of_site((purge, PurgeMode::Hard)));
        }
        if settings.litespeed {
            let asked = purge::litespeed(said.headers(), &settings.key, request.host);
            pages.named.extend(asked.into_iter().map(of_site));
        }
        if !pages.is_empty() && self.cache.knows(self.of) {
            self.purged = self.cache.invalidate(&pages);
        }
    }

    /// Returns when the purge of the pages that the response invalidates is recorded, other fronts
    /// have dropped them as well, and another thread has stored a large page.
    pub async fn settle(&mut self) {
        if self.unwritten.is_some() || self.purged.is_some() {
            Box::pin(self.settle_all()).await;
        }
    }

    async fn settle_all(&mut self) {
        if let Some((place, page)) = self.unwritten.take() {
            let cache = self.cache.clone();
            let is_small = page.body.len() as u64 <= AT_ONCE_BYTES;
            let keep = move || {
                let keep = || cache.store.insert_at(&place, page, now());
                // A large page takes long on any disk, and in memory: it says nothing about the
                // disk.
                if is_small { cache.disk_pace.measure(keep, now) } else { keep() }
            };
            // The end of the response waits for it.
            let stored = match self.cache.stores_for(self.of) {
                true => {
                    let stored = self.cache.run_elsewhere(&self.of.key, keep).await;
                    stored.unwrap_or(Err(NotStored::SlowDisk))
                }
                false => Err(NotStored::Purged),
            };
            self.note_outcome(stored.map(drop));
        }
        if let Some(acks) = self.purged.take() {
            acks.done().await;
        }
    }

    /// Processes a piece of the body.
    pub fn take_body(&mut self, content: &[u8]) {
        if self.admitted.is_none() {
            return;
        }
        let largest = self.largest();
        if let Err(why) = self.body.append(content, largest) {
            self.admitted = None;
            self.note_outcome(Err(why));
        }
    }

    /// Drops the response of a script that failed: its body may be incomplete.
    pub fn cut_short(&mut self) {
        if self.admitted.take().is_some() {
            self.finish(FillResult::NotStored);
        }
    }

    /// The worker time of the response; the response time of a FastCGI upstream.
    fn cost(&self) -> Duration {
        match self.cost {
            Duration::ZERO => Duration::from_millis(now().saturating_sub(self.begun)),
            cost => cost,
        }
    }

    /// Stores a complete response.
    pub fn end(&mut self) {
        let Some(admitted) = self.admitted.take() else {
            return;
        };
        // The buffer grew by doubling: its unused part would not count, and would take memory.
        let body = Bytes::from(self.body.take().into_boxed_slice());
        let length = body.len() as u64;
        if self.announced.is_some_and(|announced| announced != length) {
            // Its length is wrong: the body may be incomplete, or too long.
            return self.finish(FillResult::NotStored);
        }
        self.store(admitted, body.into());
    }

    /// Stores a page. One that is large, or belongs on a slow disk, is stored by [`Fill::settle`].
    fn store(&mut self, admitted: Admitted, body: Body) {
        let Some(primary) = &self.primary else {
            return;
        };
        let place = match PageKeys::of(primary, &admitted.vary, self.context.head.headers()) {
            Ok(place) => place,
            Err(why) => return self.note_outcome(Err(why)),
        };
        let request = request_of(self.context);
        let subject = Subject {
            site: self.of.site.as_str().into(),
            host: invalidate::host(request.host).into(),
            target: invalidate::target(&self.of.settings.key, request.path, request.query).into(),
        };
        let mut stored = admitted.stored;
        add_vary(self.context, &mut stored, body.len());
        let is_large = body.len() as u64 > AT_ONCE_BYTES;
        let page = Object::new(subject, stored, body).of_cost(self.cost());
        if !self.cache.stores_for(self.of) {
            return self.note_outcome(Err(NotStored::Purged));
        }
        let (store, pace) = (&self.cache.store, &self.cache.disk_pace);
        if is_large || self.cache.has_slow_disk() {
            self.unwritten = Some((place, page));
            return;
        }
        let keep = || store.insert_at(&place, page, now());
        let outcome = if store.has_disk() { pace.measure(keep, now) } else { keep() };
        self.note_outcome(outcome.map(drop));
    }

    /// Takes down whether the page is stored.
    fn note_outcome(&mut self, outcome: Result<(), NotStored>) {
        self.outcome = Some(outcome);
        let finished = match outcome {
            Ok(()) => {
                self.cache.changed.notify_one();
                FillResult::Stored
            }
            // The requests that wait have it fetched again.
            Err(NotStored::Purged) => FillResult::Failed,
            Err(why) => {
                self.drop_stale(why);
                without_page(why)
            }
        };
        self.finish(finished);
    }

    /// Records that an error page of the site replaces the response.
    pub fn replaced(&mut self, status: u16) {
        if !is_error(status) && self.admitted.take().is_some() {
            self.note_outcome(Err(NotStored::Status));
        }
    }

    fn finish(&mut self, how: FillResult) {
        self.wanted.clear();
        self.body.clear();
        if let Some((key, ticket)) = self.ticket.take() {
            self.cache.finish(&key, ticket, how);
        }
    }

    /// Responds with the cached page if there is no better response.
    ///
    /// # Errors
    /// When the client has closed the connection.
    pub async fn respond_cached<C: HttpClient>(
        mut self: Box<Self>,
        cx: &mut RequestCx<'_, C>,
        failure: &Failure,
    ) -> Option<io::Result<After>> {
        self.settle().await;
        if let Some((stored, body)) = self.merged.take() {
            let ttl = whole(stored.lifetimes.fresh);
            let status = CacheStatus::Hit { ttl, detail: Some(REVALIDATED) };
            self.counts = false;
            let page =
                CachedPage { stored: &stored, body: &body, saved: Duration::ZERO, age: 0, status };
            return Some(reply(cx, self.context, page).await);
        }
        let is_no_error = match failure {
            Failure::FileNamed => true,
            failure if failure.is_client_gone() => true,
            Failure::Intercepted(status) => !is_error(*status),
            _ => false,
        };
        if is_no_error {
            return None;
        }
        let (page, stale) = self.take_stale_for_error()?;
        let status = CacheStatus::Hit { ttl: -whole(stale.by), detail: Some(ON_ERROR) };
        self.counts = false;
        self.finish(FillResult::ServedStale);
        let page = CachedPage {
            stored: &page.stored,
            body: &page.body,
            saved: Duration::ZERO,
            age: stale.age,
            status,
        };
        Some(reply(cx, self.context, page).await)
    }
}

/// How a fill ends whose response is not stored.
fn without_page(why: NotStored) -> FillResult {
    if why.is_of_request() { FillResult::OfRequest } else { FillResult::NotStored }
}

impl Drop for Fill<'_> {
    /// The requests that wait are notified, however this request ends.
    fn drop(&mut self) {
        self.finish(FillResult::Failed);
        if self.counts {
            let why = (!self.is_refresh).then_some(self.why);
            self.of.board().forwarded(why, self.outcome);
        }
    }
}
