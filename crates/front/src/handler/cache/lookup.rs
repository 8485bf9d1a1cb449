//! What a request for a script finds in the page cache: a page, one that somebody else makes at the moment,
//! or nothing, and then the script is asked.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use maitred_http1::Head;
use maitred_pagecache::admit::NotStored;
use maitred_pagecache::asked::{Asked, Request};
use maitred_pagecache::cookies;
use maitred_pagecache::fields::Field;
use maitred_pagecache::fills::{Finished, Joined, Ticket, Told};
use maitred_pagecache::key::{Key, Primary};
use maitred_pagecache::plan::{Bypass, Plan};
use maitred_pagecache::reuse::{Judged, Stale, judge};
use maitred_pagecache::status::{CacheStatus, Forward, ON_ERROR, UPDATING};
use maitred_pagestore as pagestore;
use maitred_pagestore::Object;
use tokio::sync::oneshot;

use crate::cache::{AT_ONCE_BYTES, Cache, SiteCache, now, whole};
use crate::handler::cache::compressed::coded;
use crate::handler::cache::fill::Fill;
use crate::handler::cache::reply::{reply, request_of};
use crate::handler::context::RequestContext;
use crate::http::body::blocking;
use crate::http::client::{After, HttpClient};
use crate::logging::record::RequestRecord;

/// A client that has gone, as nginx logs it.
const CLIENT_LEFT: u16 = 499;

/// What the cache has to do with a request.
pub enum Looked<'a> {
    /// It has answered it.
    Responded(After),
    /// It has answered it with a page that is now to be made again.
    Refresh(After, Box<Fill<'a>>),
    /// The request goes on to a script, whose answer it looks at.
    Forward(Box<Fill<'a>>),
}

/// A request, and how it is answered.
type Of<'a> = (&'a Head, &'a RequestContext<'a>);

/// Looks for a page, and waits for one that another request has made.
///
/// # Errors
/// When the client has gone.
pub async fn look<'a>(
    client: &mut impl HttpClient,
    head: &'a Head,
    (cache, of): (&Arc<Cache>, &'a SiteCache),
    way: &'a RequestContext<'a>,
    record: &mut RequestRecord,
) -> io::Result<Looked<'a>> {
    let request = Request {
        port: port_told(client, way),
        ..request_of(head, way)
    };
    let asked = Asked::survey(request, head.headers());
    let secured = client.secured();
    let shows_certificate = secured.is_some_and(|secured| secured.shows_certificate());
    let mut fill = Box::new(Fill::new(cache.clone(), of, (head, way)));
    let begun = begin(&asked, shows_certificate, (of, (head, way)), &mut fill);
    let Some((mut plan, primary, may_refresh)) = begun else {
        return Ok(Looked::Forward(fill));
    };
    loop {
        // Before: what is purged from now on must not come back by a 304.
        fill.look_from_now();
        let found = find(cache, &primary, head).await?;
        let key = match weigh((cache, of), &asked, found, (&mut plan, &mut fill)) {
            Weighed::Fresh((key, page), times) => {
                let page = match asked.has_range {
                    true => page,
                    false => coded(cache, (head, way), (&key, page)),
                };
                let after = fresh(client, (head, way), &page, times, record);
                return after.await.map(Looked::Responded);
            }
            Weighed::Other(key) => key,
        };
        if wants_nothing_else(&plan) {
            let why = "The page is not kept, and no other is wanted.";
            let refused = crate::handler::respond::refuse(client, head, record, 504, why);
            return refused.await.map(Looked::Responded);
        }
        let is_refreshed_without = may_refresh && plan.store == Err(NotStored::UnknownCookie);
        if plan.store.is_err() && !is_refreshed_without {
            break;
        }
        let times = (now(), of.settings.lock_age.saturating_mul(1000));
        if let Some(old) = fill.will_do_meanwhile() {
            if is_refreshed_without {
                fill.cookies = Some(cookies::keyed(&of.settings, &asked));
                plan.store = Ok(());
            }
            let Some(turn) = take_turn((cache, of), (key, times), &mut fill) else {
                break;
            };
            let after = meanwhile(client, (head, way), old, turn, record).await?;
            if turn == Turn::Others {
                return Ok(Looked::Responded(after));
            }
            fill.go_on(plan, primary);
            return Ok(Looked::Refresh(after, fill));
        }
        if plan.store.is_err() {
            break;
        }
        let waits = (&mut plan, &mut *fill);
        match join(client, (cache, of), (key, times), waits, record).await? {
            Next::Look => {}
            Next::Go => break,
            Next::StandIn(page, stale) => {
                let how = (stale, ON_ERROR, Duration::ZERO);
                let after = stand_in(client, (head, way), &page, how, record);
                return after.await.map(Looked::Responded);
            }
        }
    }
    fill.go_on(plan, primary);
    Ok(Looked::Forward(fill))
}

/// The port that scripts are told, where it is part of the key: a client may come to any that is listened on, and
/// name a host without it.
fn port_told(client: &mut impl HttpClient, way: &RequestContext<'_>) -> Option<u16> {
    if way.origin.is_some_and(|origin| origin.is_https.is_some()) {
        return None;
    }
    let own = if way.is_https { 443 } else { 80 };
    Some(client.local().port()).filter(|port| *port != own)
}

/// What may be done for a request, its key, and whether nothing but an unknown cookie keeps its
/// response from being stored; nothing if it passes the cache by, which `fill` is told.
fn begin<'a, H: Iterator<Item = Field<'a>> + Clone>(
    asked: &Asked<'a, H>,
    shows_certificate: bool,
    (of, (head, way)): (&SiteCache, Of<'a>),
    fill: &mut Fill<'_>,
) -> Option<(Plan, Key, bool)> {
    let mut plan = Plan::make(&of.settings, asked);
    let has_unknown = plan.store == Err(NotStored::UnknownCookie);
    if has_unknown {
        // What follows is found out as of a request without the cookie.
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
    let Ok(Primary { key, query }) = Key::primary(&of.site, &of.settings.key, asked) else {
        let why = Bypass::KeyTooLong;
        let plan = Plan {
            read: Err(why),
            store: Err(NotStored::Bypassed(why)),
            wishes: None,
        };
        fill.bypass(plan, why);
        return None;
    };
    if plan.store.is_ok() && query.as_deref() != head.query() {
        // The script would see what the key has not, and could show it to everybody.
        match (way.path, way.query) == (head.path(), head.query()) {
            true => fill.see(query.as_deref()),
            // Nobody knows what a rewrite has made of it.
            false => plan.store = Err(NotStored::UnkeyedField),
        }
    }
    let host = asked.request.host;
    let has_capitals = host.bytes().any(|byte| byte.is_ascii_uppercase());
    if way.host(head) != host || has_capitals {
        // The script would see the host as it was written, and could send everybody there.
        plan.store = plan.store.and(Err(NotStored::UnkeyedField));
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

/// What is kept for a request, in memory or else on disk.
async fn find(cache: &Arc<Cache>, primary: &Key, head: &Head) -> io::Result<pagestore::Looked> {
    let store = &cache.store;
    let found = match store.look(primary, head.headers()) {
        pagestore::Looked::Nothing { .. } if store.has_disk() => {
            if cache.disk_pace.is_slow(now()) {
                return find_slowly(cache, primary, head).await;
            }
            let load = || store.load(primary, head.headers(), (now(), AT_ONCE_BYTES));
            cache.disk_pace.watch(load, now)
        }
        looked => return Ok(looked),
    };
    let pagestore::Looked::Large { key, has_variants } = found else {
        return Ok(found);
    };
    // Others have their turn while the disk is read.
    let cache = cache.clone();
    blocking(move || Ok(cache.store.load_large(key, has_variants, now()))).await
}

/// The same from a disk that is slow.
async fn find_slowly(
    cache: &Arc<Cache>,
    primary: &Key,
    head: &Head,
) -> io::Result<pagestore::Looked> {
    let (cache, primary) = (cache.clone(), primary.clone());
    let fields = head.headers();
    let fields: Vec<(Vec<u8>, Vec<u8>)> = fields
        .map(|(name, value)| (name.to_vec(), value.to_vec()))
        .collect();
    blocking(move || {
        let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
        let load = || cache.store.load(&primary, fields, (now(), u64::MAX));
        Ok(cache.disk_pace.watch(load, now))
    })
    .await
}

/// What was found is good for.
enum Weighed {
    /// The client gets it: its key and the page, its age and the time for which it will do in seconds.
    Fresh((Key, Arc<Object>), (u64, i64)),
    /// Nothing yet: the key of what the client is to get.
    Other(Key),
}

/// Judges what was found, and notes in `fill` why the request goes on.
fn weigh<'a, H: Iterator<Item = Field<'a>> + Clone>(
    (cache, of): (&Cache, &SiteCache),
    asked: &Asked<'a, H>,
    found: pagestore::Looked,
    (plan, fill): (&mut Plan, &mut Fill<'_>),
) -> Weighed {
    match found {
        pagestore::Looked::Page {
            page,
            key,
            is_stale,
        } => {
            match judge(&page.stored, asked, plan, is_stale, now()) {
                Judged::Fresh { age, ttl } => {
                    return Weighed::Fresh((key, page), (age, whole(ttl)));
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
            Weighed::Other(key)
        }
        pagestore::Looked::Nothing { key, has_variants }
        | pagestore::Looked::Large { key, has_variants } => {
            fill.why = match has_variants {
                true => Forward::VaryMiss,
                false => Forward::UriMiss,
            };
            fill.stale = None;
            let uses = of.settings.min_uses;
            if plan.store.is_ok() && uses > 1 && cache.store.uses.count(&key) < uses {
                plan.store = Err(NotStored::MinUses);
            }
            Weighed::Other(key)
        }
    }
}

/// Whether the request wants what is kept and nothing else.
fn wants_nothing_else(plan: &Plan) -> bool {
    let wishes = plan.wishes.as_ref();
    wishes.is_some_and(|wishes| wishes.only_if_cached)
}

/// Who has a page made again that will do until then.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    /// This request.
    Ours,
    /// One before it.
    Others,
}

/// Whose turn it is to have a page made again; nothing if this request waits for the new one itself.
fn take_turn(
    (cache, of): (&Cache, &SiteCache),
    (key, times): (Key, (u64, u64)),
    fill: &mut Fill<'_>,
) -> Option<Turn> {
    let Some(ticket) = cache.fills.refresh(&key, times) else {
        return Some(Turn::Others);
    };
    fill.begin(key, ticket);
    // Who has an unknown cookie cannot wait for the new page: that is made without the cookie.
    let in_background = of.settings.background_update || fill.cookies.is_some();
    in_background.then_some(Turn::Ours)
}

/// Answers with a page that is good: its age, and for how long it will be, in seconds.
async fn fresh(
    client: &mut impl HttpClient,
    of: (&Head, &RequestContext<'_>),
    page: &Object,
    (age, ttl): (u64, i64),
    record: &mut RequestRecord,
) -> io::Result<After> {
    let status = CacheStatus::Hit { ttl, detail: None };
    let kept = (&page.stored, &page.body, page.cost);
    reply(client, of, kept, (age, status), record).await
}

/// Answers with a page that will do until it has been made again, which one request pays for.
async fn meanwhile(
    client: &mut impl HttpClient,
    of: (&Head, &RequestContext<'_>),
    (page, stale): (Arc<Object>, Stale),
    turn: Turn,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let saved = match turn {
        Turn::Ours => Duration::ZERO,
        Turn::Others => page.cost,
    };
    stand_in(client, of, &page, (stale, UPDATING, saved), record).await
}

/// Answers with a page that is stale, says why, and saves a worker so much time.
async fn stand_in(
    client: &mut impl HttpClient,
    of: (&Head, &RequestContext<'_>),
    page: &Object,
    (stale, detail, saved): (Stale, &'static str, Duration),
    record: &mut RequestRecord,
) -> io::Result<After> {
    let status = CacheStatus::Hit {
        ttl: -whole(stale.by),
        detail: Some(detail),
    };
    let kept = (&page.stored, &page.body, saved);
    reply(client, of, kept, (stale.age, status), record).await
}

/// What becomes of a request for which there is no page.
enum Next {
    /// Another has made it: look again.
    Look,
    /// The script is asked.
    Go,
    /// No other page can be had than this.
    StandIn(Arc<Object>, Stale),
}

/// Has the request make the page for all who want it, or wait for whoever does.
///
/// # Errors
/// When the client has gone.
async fn join(
    client: &mut impl HttpClient,
    (cache, of): (&Arc<Cache>, &SiteCache),
    (key, times): (Key, (u64, u64)),
    (plan, fill): (&mut Plan, &mut Fill<'_>),
    record: &mut RequestRecord,
) -> io::Result<Next> {
    let (sender, receiver) = oneshot::channel();
    let ticket: Ticket = match cache.fills.join(&key, times, || sender) {
        Joined::Fill(ticket) => ticket,
        Joined::Through => return Ok(Next::Go),
        Joined::Wait => {
            fill.is_collapsed = true;
            let patience = Duration::from_secs(of.settings.lock_timeout);
            let mut place = Place {
                cache,
                key: &key,
                receiver,
            };
            let told = tokio::select! {
                told = tokio::time::timeout(patience, &mut place.receiver) => told,
                () = client.gone() => {
                    record.status = CLIENT_LEFT;
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            };
            drop(place);
            match told {
                Ok(Ok(Told::Look)) => return Ok(Next::Look),
                Ok(Ok(Told::StandIn)) => {
                    let stale = fill.stale.take().filter(|(_, stale)| stale.if_error);
                    let next = stale.map(|(page, stale)| Next::StandIn(page, stale));
                    return Ok(next.unwrap_or(Next::Go));
                }
                Ok(Ok(Told::Through) | Err(_)) => return Ok(Next::Go),
                Err(_) => {
                    plan.store = Err(NotStored::LockTimeout);
                    return Ok(Next::Go);
                }
                Ok(Ok(Told::Fill(ticket))) => ticket,
            }
        }
    };
    fill.begin(key, ticket);
    Ok(Next::Go)
}

/// The place of one who waits for a page.
struct Place<'a> {
    cache: &'a Cache,
    key: &'a Key,
    receiver: oneshot::Receiver<Told>,
}

impl Drop for Place<'_> {
    /// Whoever leaves just when the page was to be made by him leaves that to the next.
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(Told::Fill(ticket)) = self.receiver.try_recv() {
            self.cache.finish(self.key, ticket, Finished::Failed);
        }
    }
}
