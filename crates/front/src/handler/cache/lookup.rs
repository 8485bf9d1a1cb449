//! The cache lookup of a request: it finds a page, waits for a page that another request is
//! fetching, or forwards the request to the script.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_http1::Head;
use maitred_pagecache::admit::NotStored;
use maitred_pagecache::cache_request::{CacheRequest, Request};
use maitred_pagecache::cache_status::{CacheStatus, Forward, ON_ERROR, UPDATING};
use maitred_pagecache::eligibility::{Bypass, Plan};
use maitred_pagecache::fills::{FillNotice, FillResult, Joined, Ticket};
use maitred_pagecache::headers::Field;
use maitred_pagecache::key::{Key, Primary};
use maitred_pagecache::reuse::{Judged, Stale, judge};
use maitred_pagecache::{Millis, cookies};
use maitred_pagestore as pagestore;
use maitred_pagestore::Object;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use crate::cache::{AT_ONCE_BYTES, Cache, SiteCache, now, whole};
use crate::handler::cache::compressed::compressed;
use crate::handler::cache::fill::Fill;
use crate::handler::cache::reply::{CachedPage, reply, request_of};
use crate::handler::context::{RequestContext, RequestCx, RequestTarget};
use crate::handler::respond::TextResponse;
use crate::http::client::{After, HttpClient};

/// The status of a client that has closed the connection, as nginx logs it.
const CLIENT_LEFT: u16 = 499;

/// Hits of which one is counted.
const HITS_COUNTED_AS_ONE: u64 = 16;

/// The result of a lookup.
pub enum LookupResult<'a> {
    /// The client was served with a cached page, or refused.
    Responded(After),
    /// The client was served with a stale page, which this request refreshes.
    Refresh(After, Box<Fill<'a>>),
    /// The request is forwarded to the script, whose response may be stored.
    Forward(Box<Fill<'a>>),
}

/// Looks up a page, or waits for a page that another request is fetching.
///
/// # Errors
/// When the client has closed the connection.
pub async fn lookup<'a, C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    cache: &Arc<Cache>,
    of: &'a SiteCache,
    context: &'a RequestContext<'a>,
) -> io::Result<LookupResult<'a>> {
    let request = Request { port: port_of_key(cx.client, context.target), ..request_of(context) };
    let asked = CacheRequest::survey(request, context.head.headers());
    let secured = cx.client.secured();
    let shows_certificate = secured.is_some_and(|secured| secured.shows_certificate());
    let mut fill = Box::new(Fill::new(cache.clone(), of, context));
    let planned = plan_request(&asked, shows_certificate, context, &mut fill);
    let Some((mut plan, primary, may_refresh)) = planned else {
        return Ok(LookupResult::Forward(fill));
    };
    let mut deadline = None;
    loop {
        // In each turn: it may have waited.
        if !cache.lease.holds() {
            let why = Bypass::PurgeLog;
            (plan.read, plan.store) = (Err(why), Err(NotStored::Bypassed(why)));
            fill.primary = Some(primary);
            fill.stale = None;
            fill.bypass(plan, why);
            return Ok(LookupResult::Forward(fill));
        }
        // Before the lookup: a page that is purged from now on must not come back by a 304.
        fill.take_stamp();
        let found = find(cache, &primary, context.head).await;
        let key = match judge_found(&asked, found, &mut plan, &mut fill) {
            Judgement::Fresh(key, page, how) => {
                // One in a few is counted, for all of them: threads share the counter.
                if fastrand::u64(..HITS_COUNTED_AS_ONE) == 0 {
                    page.add_hits(HITS_COUNTED_AS_ONE);
                }
                let page =
                    if asked.has_range { page } else { compressed(cache, context, &key, page) };
                let after = reply(cx, context, how.of(&page)).await?;
                return Ok(LookupResult::Responded(after));
            }
            Judgement::Other(key) => key,
        };
        if is_only_if_cached(&plan) {
            let why = "The page is not cached, and the request accepts no other.";
            let after = cx.refuse(TextResponse::new(504, why)).await?;
            return Ok(LookupResult::Responded(after));
        }
        let is_refreshed_without = may_refresh && plan.store == Err(NotStored::UnknownCookie);
        if plan.store.is_err() && !is_refreshed_without {
            break;
        }
        if let Some((page, stale)) = fill.usable_stale() {
            if is_refreshed_without {
                fill.cookies = Some(cookies::keyed(&of.settings, &asked));
                plan.store = Ok(());
            }
            let Some(turn) = take_turn(key, &mut fill) else {
                break;
            };
            let how = CacheHit::stale(&stale, UPDATING, turn.saved(&page));
            let after = reply(cx, context, how.of(&page)).await?;
            if turn == RefreshTurn::Others {
                return Ok(LookupResult::Responded(after));
            }
            fill.forward(plan, primary);
            return Ok(LookupResult::Refresh(after, fill));
        }
        // The next page would be stale when it is stored, too, and the script would run for one
        // request at a time.
        let was_stale = |page: &Object| page.stored.is_stale_when_stored();
        let is_never_fresh =
            deadline.is_some() && fill.stale.as_ref().is_some_and(|(page, _)| was_stale(page));
        if plan.store.is_err() || is_never_fresh || is_outside_lock(&asked, &fill) {
            break;
        }
        match join(cx, key, &mut plan, &mut fill, &mut deadline).await? {
            JoinResult::Retry => {}
            JoinResult::Forward => break,
            JoinResult::UseStale(page, stale) => {
                let how = CacheHit::stale(&stale, ON_ERROR, Duration::ZERO);
                let after = reply(cx, context, how.of(&page)).await?;
                return Ok(LookupResult::Responded(after));
            }
        }
    }
    fill.forward(plan, primary);
    Ok(LookupResult::Forward(fill))
}

/// How a cached page may be used.
#[derive(Clone, Copy)]
struct CacheHit {
    age: u64,
    status: CacheStatus,
    saved: Duration,
}

impl CacheHit {
    /// A stale page, and why it is used.
    fn stale(stale: &Stale, why: &'static str, saved: Duration) -> CacheHit {
        let status = CacheStatus::Hit { ttl: -whole(stale.by), detail: Some(why) };
        CacheHit { age: stale.age, status, saved }
    }

    fn of(self, page: &Object) -> CachedPage<'_> {
        CachedPage {
            stored: &page.stored,
            body: &page.body,
            saved: self.saved,
            age: self.age,
            status: self.status,
        }
    }
}

/// The port that scripts see, where it is part of the key: a client may connect to any listener,
/// and send a host without port.
fn port_of_key(client: &mut impl HttpClient, target: RequestTarget<'_>) -> Option<u16> {
    if target.forwarded_https.is_some() {
        return None;
    }
    let own = if target.is_https { 443 } else { 80 };
    Some(client.local().port()).filter(|port| *port != own)
}

/// The plan for a request, its key, and whether only an unknown cookie keeps its response from
/// being stored. None if the request bypasses the cache.
fn plan_request<'a, H: Iterator<Item = Field<'a>> + Clone>(
    asked: &CacheRequest<'a, H>,
    shows_certificate: bool,
    context: &RequestContext<'_>,
    fill: &mut Fill<'_>,
) -> Option<(Plan, Key, bool)> {
    let (of, head) = (fill.of, context.head);
    let mut plan = Plan::make(&of.settings, asked);
    let has_unknown = plan.store == Err(NotStored::UnknownCookie);
    if has_unknown {
        // The rest is decided as for a request without the cookie.
        plan.store = Ok(());
    }
    let may_be_known = of.settings.guards_cookies && asked.has_cookies;
    if may_be_known && cookies::is_known(&of.settings, asked, &of.cookies.names()) {
        cookies::keep_out(&mut plan);
    }
    if shows_certificate {
        let why = Bypass::Certificate;
        (plan.read, plan.store) = (Err(why), Err(NotStored::Bypassed(why)));
    }
    if context.depends_on_client {
        let why = Bypass::Htaccess;
        (plan.read, plan.store) = (Err(why), Err(NotStored::Bypassed(why)));
    }
    let Ok(Primary { key, query }) = Key::primary(&of.key, &of.settings, asked) else {
        let why = Bypass::KeyTooLong;
        let plan = Plan { read: Err(why), store: Err(NotStored::Bypassed(why)), directives: None };
        fill.bypass(plan, why);
        return None;
    };
    if plan.store.is_ok() && query.as_deref() != head.query() {
        // The script would see a query that is not in the key, and could show it to all clients.
        match (&*context.path, context.query()) == (head.path(), head.query()) {
            true => fill.show_query(query.as_deref()),
            // A rewrite may have put any part of the query into the path.
            false => plan.store = Err(NotStored::UnkeyedHeader),
        }
    }
    let host = asked.request.host;
    let has_capitals = host.bytes().any(|byte| byte.is_ascii_uppercase());
    if context.target.host != host || has_capitals {
        // The script would see the host as the client wrote it, and could send all clients there.
        plan.store = plan.store.and(Err(NotStored::UnkeyedHeader));
    }
    let may_refresh = has_unknown && plan.store.is_ok();
    if may_refresh {
        plan.store = Err(NotStored::UnknownCookie);
    }
    if let Err(why) = plan.read {
        fill.primary = Some(key);
        fill.bypass(plan, why);
        return None;
    }
    Some((plan, key, may_refresh))
}

/// Looks a page up in memory, then on disk.
async fn find(cache: &Arc<Cache>, primary: &Key, head: &Head) -> pagestore::Lookup {
    let store = &cache.store;
    let found = match store.lookup(primary, head.headers()) {
        missed @ pagestore::Lookup::Miss { .. } if store.has_disk() => {
            if cache.has_slow_disk() {
                // The script is faster than a disk that does not respond.
                find_slowly(cache, primary, head).await.unwrap_or(missed)
            } else {
                let load = || store.load(primary, head.headers(), now(), AT_ONCE_BYTES);
                cache.disk_pace.measure(load, now)
            }
        }
        looked => return looked,
    };
    let pagestore::Lookup::Large { key, has_variants } = found else {
        return found;
    };
    // The thread serves other requests while the disk is read.
    let (reader, large) = (cache.clone(), key.clone());
    let load = move || reader.store.load_large(large, has_variants, now());
    let site_key = String::from_utf8_lossy(primary.site());
    let read = cache.run_elsewhere(&site_key, load).await;
    read.unwrap_or(pagestore::Lookup::Miss { key, has_variants })
}

/// The same for a slow disk. None if that would take too long.
async fn find_slowly(cache: &Arc<Cache>, primary: &Key, head: &Head) -> Option<pagestore::Lookup> {
    let (slow_disk, cache, primary) = (&cache.slow_disk, cache.clone(), primary.clone());
    let fields = head.headers();
    let fields: Vec<(Vec<u8>, Vec<u8>)> =
        fields.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
    let find = move || {
        let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
        let load = || cache.store.load(&primary, fields, now(), AT_ONCE_BYTES);
        cache.disk_pace.measure(load, now)
    };
    slow_disk.run(find).await
}

/// Whether the page in the cache can be used.
enum Judgement {
    /// A fresh page: its key, the page, and the kind of hit.
    Fresh(Key, Arc<Object>, CacheHit),
    /// No fresh page: the key under which the response is stored.
    Other(Key),
}

/// Judges the page in the cache, and records in `fill` why the request is forwarded.
fn judge_found<'a, H: Iterator<Item = Field<'a>> + Clone>(
    asked: &CacheRequest<'a, H>,
    found: pagestore::Lookup,
    plan: &mut Plan,
    fill: &mut Fill<'_>,
) -> Judgement {
    match found {
        pagestore::Lookup::Page { page, key, is_stale } => {
            match judge(&page.stored, asked, plan, is_stale, now()) {
                Judged::Fresh { age, ttl } => {
                    let ttl = whole(ttl);
                    let how = CacheHit {
                        age,
                        status: CacheStatus::Hit { ttl, detail: None },
                        saved: page.cost,
                    };
                    return Judgement::Fresh(key, page, how);
                }
                Judged::Stale(stale) => {
                    fill.why = Forward::Stale;
                    fill.stale_key = Some(key.clone());
                    fill.stale = Some((page, stale));
                }
                Judged::Unfit => {
                    fill.why = Forward::VaryMiss;
                    plan.store = Err(NotStored::Authorization);
                }
            }
            Judgement::Other(key)
        }
        pagestore::Lookup::Miss { key, has_variants }
        | pagestore::Lookup::Large { key, has_variants } => {
            fill.why = if has_variants { Forward::VaryMiss } else { Forward::UriMiss };
            fill.stale = None;
            let uses = fill.of.settings.min_uses;
            if plan.store.is_ok() && uses > 1 && fill.cache.store.uses.count(&key) < uses {
                plan.store = Err(NotStored::MinUses);
            }
            Judgement::Other(key)
        }
        pagestore::Lookup::NoMemory { key, has_variants } => {
            // It is still there: each request runs the script, as without the page, and none waits
            // for another one to store it.
            fill.why = if has_variants { Forward::VaryMiss } else { Forward::UriMiss };
            fill.stale = None;
            plan.store = plan.store.and(Err(NotStored::NoMemory));
            Judgement::Other(key)
        }
    }
}

/// Whether the request accepts cached pages only (`only-if-cached`).
fn is_only_if_cached(plan: &Plan) -> bool {
    let directives = plan.directives.as_ref();
    directives.is_some_and(|directives| directives.only_if_cached)
}

/// The request that refreshes a stale page.
#[derive(Clone, Copy, PartialEq)]
enum RefreshTurn {
    /// This request.
    Ours,
    /// An earlier request.
    Others,
}

impl RefreshTurn {
    /// The worker time that a stale page saves: one request pays for the new page.
    fn saved(self, page: &Object) -> Duration {
        match self {
            RefreshTurn::Ours => Duration::ZERO,
            RefreshTurn::Others => page.cost,
        }
    }
}

/// The request that refreshes the page. None if this one waits for the new page itself.
fn take_turn(key: Key, fill: &mut Fill<'_>) -> Option<RefreshTurn> {
    let Some(ticket) = fill.cache.fills.refresh(&key, now(), lock_age(fill)) else {
        return Some(RefreshTurn::Others);
    };
    fill.begin(key, ticket);
    // A request with an unknown cookie cannot wait for the new page: that is fetched without the
    // cookie.
    let in_background = fill.of.settings.background_update || fill.cookies.is_some();
    in_background.then_some(RefreshTurn::Ours)
}

/// The time, and the largest age of the lock on a key, in milliseconds.
fn lock_age(fill: &Fill<'_>) -> Millis {
    fill.of.settings.lock_age.saturating_mul(1000)
}

/// The next step of a request without a page.
enum JoinResult {
    /// Another request has fetched the page: repeat the lookup.
    Retry,
    /// The request is forwarded to the script.
    Forward,
    /// The request is served with this stale page, since there is no other.
    UseStale(Arc<Object>, Stale),
}

/// Whether the request neither waits for others nor lets others wait for it: one with credentials
/// whose response is not for all, as far as is known. That is not stored because of the request
/// alone, and says nothing about the page for others.
fn is_outside_lock<'a, H: Iterator<Item = Field<'a>> + Clone>(
    asked: &CacheRequest<'a, H>,
    fill: &Fill<'_>,
) -> bool {
    // A stale page is for this request, or its response could not be stored.
    asked.has_authorization && fill.stale.is_none()
}

/// Lets the request fetch the page for all that wait, or wait for another that fetches it, until
/// the deadline of all its waits, which the first one sets.
///
/// # Errors
/// When the client has closed the connection.
async fn join<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    key: Key,
    plan: &mut Plan,
    fill: &mut Fill<'_>,
    deadline: &mut Option<Instant>,
) -> io::Result<JoinResult> {
    let (sender, receiver) = oneshot::channel();
    let cache = fill.cache.clone();
    let ticket: Ticket = match cache.fills.join(&key, now(), lock_age(fill), || sender) {
        Joined::Fill(ticket) => ticket,
        Joined::PassThrough => return Ok(JoinResult::Forward),
        Joined::Wait => {
            fill.is_collapsed = true;
            let patience = Duration::from_secs(fill.of.settings.lock_timeout);
            let since = Instant::now();
            let deadline = *deadline.get_or_insert_with(|| since + patience);
            let mut place = PageWaiter { cache: &cache, key: &key, receiver };
            let notified = tokio::select! {
                notified = timeout_at(deadline.into(), &mut place.receiver) => notified,
                () = cx.client.gone() => {
                    cx.record.status = CLIENT_LEFT;
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            };
            drop(place);
            if let Some(lookup) = &mut cx.record.lookup {
                lookup.waited += since.elapsed();
            }
            match notified {
                Ok(Ok(FillNotice::Retry)) => return Ok(JoinResult::Retry),
                Ok(Ok(FillNotice::UseStale)) => {
                    let stale = fill.take_stale_for_error();
                    let next = stale.map(|(page, stale)| JoinResult::UseStale(page, stale));
                    return Ok(next.unwrap_or(JoinResult::Forward));
                }
                Ok(Ok(FillNotice::PassThrough) | Err(_)) => return Ok(JoinResult::Forward),
                Err(_) => {
                    plan.store = Err(NotStored::LockTimeout);
                    return Ok(JoinResult::Forward);
                }
                Ok(Ok(FillNotice::Fill(ticket))) => ticket,
            }
        }
    };
    fill.begin(key, ticket);
    Ok(JoinResult::Forward)
}

/// A request that waits for a page.
struct PageWaiter<'a> {
    cache: &'a Cache,
    key: &'a Key,
    receiver: oneshot::Receiver<FillNotice>,
}

impl Drop for PageWaiter<'_> {
    /// A request that ends just when it has got the right to fetch the page passes that on.
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(FillNotice::Fill(ticket)) = self.receiver.try_recv() {
            self.cache.finish(self.key, ticket, FillResult::Failed);
        }
    }
}
