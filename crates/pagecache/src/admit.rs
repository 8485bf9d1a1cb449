//! Whether a response is stored (RFC 9111 §3), and which of its headers.

use bytes::Bytes;

use crate::Millis;
use crate::cache_control::CacheControl;
use crate::cache_request::CacheRequest;
use crate::eligibility::{Bypass, Plan};
use crate::freshness::{self, Lifetime, Lifetimes, MAX_SECONDS};
use crate::headers::{self, Field, NameSet, ResponseHead};
use crate::settings::Settings;
use crate::stored::Stored;
use crate::tags;
use crate::vary::{self, Vary, VaryError};

reasons! {
    /// Why a response is not stored.
    pub enum NotStored {
        /// It is a response to HEAD.
        Head = "head",
        /// The request has a header that no key contains and that an application might use.
        UnkeyedHeader = "unkeyed-header",
        /// The request has a cookie whose meaning to the application is unknown.
        UnknownCookie = "unknown-cookie",
        /// The site's `no_store` rule matches.
        Rule = "rule",
        /// The request says `no-store`, and the site honours it.
        RequestNoStore = "request-no-store",
        /// It says `no-store`.
        NoStore = "no-store",
        /// It says `private`.
        Private = "private",
        /// It says `no-cache`, and has no validator to revalidate it with.
        NoCache = "no-cache",
        /// It sets a cookie.
        SetCookie = "set-cookie",
        /// The request has an `Authorization` header, and the response is not marked as public.
        Authorization = "authorization",
        /// It says `Vary: *`.
        VaryStar = "vary-star",
        /// It varies on more headers than are supported.
        VaryTooMuch = "vary-too-much",
        /// The request headers on which it varies are too long.
        VaryTooLong = "vary-too-long",
        /// Its status is not storable: 206, 304, or an unknown one with `must-understand`.
        Status = "status",
        /// It states no lifetime, and the site has none for it.
        NoLifetime = "no-lifetime",
        /// It is stale on arrival.
        Stale = "stale",
        /// It is larger than `max_object_size`.
        TooLarge = "too-large",
        /// Other pages on their way into the cache have all the memory that they may have.
        NoMemory = "no-memory",
        /// It has more tags than are supported.
        TooManyTags = "too-many-tags",
        /// It has not been requested often enough (`min_uses`).
        MinUses = "min-uses",
        /// Its body was not complete.
        Incomplete = "incomplete",
        /// The request waited for the cache lock until `lock_timeout`.
        LockTimeout = "lock-timeout",
        /// It was purged while it was being generated.
        Purged = "purged",
        /// The disk did not respond in time.
        SlowDisk = "slow-disk",
        /// It could not be written.
        Fault = "fault",
        /// Its content encoding is not one that the request accepts.
        ContentEncoding = "encoding",
        ..
        /// The request bypassed the cache.
        Bypassed(Bypass)
    }
}

impl NotStored {
    /// Whether the request is the reason, or its moment: the response to another one may be stored.
    pub fn is_of_request(self) -> bool {
        matches!(
            self,
            NotStored::Authorization
                | NotStored::ContentEncoding
                | NotStored::NoMemory
                | NotStored::SlowDisk
                | NotStored::VaryTooLong
        )
    }
}

/// The times of a fetch, and the number of purges before it.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// When the request was sent to the script.
    pub asked: Millis,
    /// When the response header arrived.
    pub came: Millis,
    /// Purges before the request was sent.
    pub stamp: u64,
}

/// A response that is stored once its body is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The response header.
    pub stored: Stored,
    /// The request headers that it varies on.
    pub vary: Vary,
}

/// Decides on a response whose header has arrived.
///
/// # Errors
/// The reason why it is not stored.
pub fn admit<'a, 'f, H, F>(
    settings: &Settings,
    asked: &CacheRequest<'a, H>,
    plan: &Plan,
    response: ResponseHead<F>,
    times: Times,
) -> Result<Admitted, NotStored>
where
    H: Iterator<Item = Field<'a>> + Clone,
    F: Iterator<Item = Field<'f>> + Clone,
{
    plan.store?;
    let ResponseHead { status, headers } = response.clone();
    let (control, is_targeted) = control(settings, headers.clone(), times.came);
    let authorized = asked.has_authorization;
    check_storable(settings, authorized, &control, response.clone())?;
    let vary = vary_of(settings, headers::values(headers.clone(), "vary"))?;
    let varies_by_coding = vary.names().iter().any(|name| name == "accept-encoding");
    if varies_by_coding && !vary::takes(asked.fields(), headers.clone()) {
        return Err(NotStored::ContentEncoding);
    }
    let lacks_variants = || !has_litespeeds_variants(settings, headers.clone());
    if settings.litespeed && (has_fragments(headers.clone()) || lacks_variants()) {
        return Err(NotStored::VaryStar);
    }
    let tags = tags::of_response(settings, headers.clone()).map_err(|_| NotStored::TooManyTags)?;
    let has_validator = has(headers.clone(), "etag") || has(headers.clone(), "last-modified");
    let lifetime = freshness::lifetime(settings, &control, is_targeted, response, times.came);
    let delay = times.came.saturating_sub(times.asked);
    let initial_age = freshness::initial_age(headers.clone(), delay, times.came);
    let lifetimes = lifetimes(settings, &control, lifetime, has_validator, initial_age)?;
    let has_own_lifetimes = has_own_lifetimes(settings, headers.clone(), times.came);
    let stored = Stored {
        status,
        lines: client_lines(settings, &control.listed, headers, times.came),
        came: times.came,
        initial_age,
        lifetimes,
        no_cache: control.no_cache,
        must_revalidate: forbids_stale(&control),
        for_authorized: is_for_authorized(&control),
        has_validator,
        server_compresses: false,
        has_own_lifetimes,
        tags: tags.into(),
        stamp: times.stamp,
    };
    Ok(Admitted { stored, vary })
}

impl Admitted {
    /// Restricts a response by the headers that clients get, where the server has changed those of
    /// the script. Its lifetimes stay the script's and the site's: others are for browsers.
    ///
    /// # Errors
    /// The reason why it is not stored.
    pub fn restrict<'f>(
        &mut self,
        settings: &Settings,
        has_authorization: bool,
        headers: impl Iterator<Item = Field<'f>> + Clone,
    ) -> Result<(), NotStored> {
        let Stored { status, came, .. } = self.stored;
        let (control, _) = control(settings, headers.clone(), came);
        let response = ResponseHead { status, headers: headers.clone() };
        check_storable(settings, has_authorization, &control, response)?;
        if control.no_cache && !self.stored.no_cache {
            return Err(NotStored::NoCache);
        }
        // Not for the encoding: unless the script says so, its body is the same for all of them.
        let added = vary_of(settings, headers::values(headers, "vary"))?.without("accept-encoding");
        let names = self.vary.names().iter().chain(added.names());
        self.vary = Vary::of_names(names.cloned().collect());
        Ok(())
    }
}

/// The request headers that a response varies on, by the values of its `Vary` headers.
fn vary_of<'f>(
    settings: &Settings,
    values: impl Iterator<Item = &'f [u8]>,
) -> Result<Vary, NotStored> {
    if settings.ignore_headers.vary {
        return Ok(Vary::default());
    }
    let vary = Vary::of(values).map_err(|why| match why {
        VaryError::Star => NotStored::VaryStar,
        VaryError::TooMany => NotStored::VaryTooMuch,
    })?;
    Ok(if settings.varies_by_session { vary.without("cookie") } else { vary })
}

/// The cache directives of a response, and whether they are targeted at this cache.
fn control<'f>(
    settings: &Settings,
    headers: impl Iterator<Item = Field<'f>> + Clone,
    now: Millis,
) -> (CacheControl, bool) {
    if settings.ignore_headers.cache_control {
        return (CacheControl::default(), false);
    }
    let of_all = || CacheControl::of(headers::values(headers.clone(), "cache-control"));
    let seconds = freshness::accel_expires(settings, headers.clone(), now);
    if seconds.is_some_and(|seconds| seconds > 0) {
        // It states a lifetime for this cache alone, and nothing else.
        let listed = of_all().listed;
        let control = CacheControl { listed, ..CacheControl::default() };
        return (control, true);
    }
    if settings.litespeed {
        let values = headers::values(headers.clone(), "x-litespeed-cache-control");
        let control = CacheControl::of(values);
        if control.any {
            return (control, true);
        }
    }
    match CacheControl::targeted(headers.clone()) {
        Some(control) => (control, true),
        None => (of_all(), false),
    }
}

/// Whether a header that no client gets states how long a response can be used.
pub(crate) fn has_own_lifetimes<'f>(
    settings: &Settings,
    headers: impl Iterator<Item = Field<'f>> + Clone,
    now: Millis,
) -> bool {
    let by_accel = freshness::accel_expires(settings, headers.clone(), now);
    let of_litespeed = headers::values(headers.clone(), "x-litespeed-cache-control");
    let mut own = headers.filter(|(name, _)| headers::is(name, OWN_CONTROL)).peekable();
    by_accel.is_some_and(|seconds| seconds > 0)
        || !settings.ignore_headers.cache_control
            && (settings.litespeed && CacheControl::of(of_litespeed).any
                || own.peek().is_some() && CacheControl::targeted(own).is_some())
}

/// Whether the key contains all that `X-LiteSpeed-Vary` names: cookies, and nothing else.
fn has_litespeeds_variants<'f>(
    settings: &Settings,
    headers: impl Iterator<Item = Field<'f>>,
) -> bool {
    let mut named = headers::values(headers, "x-litespeed-vary").flat_map(headers::members);
    named.all(|member| {
        let cookie = member.strip_prefix(b"cookie=");
        let is_keyed = |cookie: &[u8]| {
            let mut keyed = settings.key.cookies.iter();
            keyed.any(|keyed| keyed.as_bytes() == cookie)
        };
        cookie.is_some_and(is_keyed)
    })
}

/// Whether the body includes fragments by ESI tags, which only LiteSpeed's cache replaces.
fn has_fragments<'f>(headers: impl Iterator<Item = Field<'f>>) -> bool {
    let values = headers::values(headers, "x-litespeed-cache-control");
    let mut directives = values.flat_map(headers::members);
    directives.any(|directive| headers::is(directive, "esi=on"))
}

fn check_storable<'f>(
    settings: &Settings,
    has_authorization: bool,
    control: &CacheControl,
    response: ResponseHead<impl Iterator<Item = Field<'f>>>,
) -> Result<(), NotStored> {
    let status = response.status;
    // Partial responses, and those that only update another response (RFC 9111 §3).
    if status < 200 || matches!(status, 206 | 304) {
        return Err(NotStored::Status);
    }
    let is_understood = is_understood(status);
    if control.must_understand && !is_understood {
        return Err(NotStored::Status);
    }
    // RFC 9111 §5.2.2.3: must-understand overrides no-store, which is for caches that do not know
    // it.
    if control.no_store && !control.must_understand {
        return Err(NotStored::NoStore);
    }
    if control.private {
        return Err(NotStored::Private);
    }
    let is_listed = control.listed.iter().any(|name| name == "set-cookie");
    if !settings.ignore_headers.set_cookie && !is_listed && has(response.headers, "set-cookie") {
        return Err(NotStored::SetCookie);
    }
    if has_authorization && !is_for_authorized(control) {
        return Err(NotStored::Authorization);
    }
    Ok(())
}

/// RFC 9111 §3.5.
fn is_for_authorized(control: &CacheControl) -> bool {
    control.public || control.must_revalidate || control.s_maxage.is_some()
}

/// RFC 9111 §4.2.4, except for `s-maxage`: an explicit stale lifetime from the response or the site
/// applies. With `s-maxage` alone there is none.
fn forbids_stale(control: &CacheControl) -> bool {
    control.no_cache || control.must_revalidate || control.proxy_revalidate
}

/// Statuses that RFC 9110 §15 defines, with their caching requirements met here.
fn is_understood(status: u16) -> bool {
    matches!(status, 200..=205 | 300..=303 | 305 | 307 | 308)
        || matches!(status, 400..=417 | 421 | 422 | 426 | 500..=505)
}

fn lifetimes(
    settings: &Settings,
    control: &CacheControl,
    lifetime: Lifetime,
    has_validator: bool,
    initial_age: u64,
) -> Result<Lifetimes, NotStored> {
    let can_validate = settings.revalidate && has_validator;
    if control.no_cache && !can_validate {
        return Err(NotStored::NoCache);
    }
    let fresh = match lifetime {
        Lifetime::Never => return Err(NotStored::NoStore),
        Lifetime::Unknown if control.no_cache => 0,
        Lifetime::Unknown => return Err(NotStored::NoLifetime),
        known => known.seconds().unwrap_or_default(),
    };
    // A lifetime of zero means no reuse at all, unless the response itself allows stale use.
    let site = if fresh == 0 { 0 } else { MAX_SECONDS };
    let grace = |said: Option<u64>, otherwise: u64| {
        if forbids_stale(control) {
            0
        } else {
            said.unwrap_or(otherwise.min(site)).min(MAX_SECONDS)
        }
    };
    let lifetimes = Lifetimes {
        fresh,
        while_revalidate: grace(control.stale_while_revalidate, settings.stale_while_revalidate),
        if_error: grace(control.stale_if_error, settings.stale_if_error),
    };
    let grace = lifetimes.while_revalidate.max(lifetimes.if_error);
    if initial_age < fresh.saturating_add(grace) || can_validate {
        Ok(lifetimes)
    } else {
        Err(NotStored::Stale)
    }
}

/// The header with directives for this cache alone.
pub(crate) const OWN_CONTROL: &str = "maitred-cache-control";

/// Headers that are generated for every response. `Date` is stored all the same, before all others.
const REGENERATED: [&str; 4] = ["age", "content-length", "date", "server"];

/// The header lines for clients of a response that the cache has taken over from the script, `Date`
/// first: without hop-by-hop headers (RFC 9111 §3.1), headers that are `listed` as not storable,
/// headers for the cache, and headers that are generated for every response.
pub fn client_lines<'f>(
    settings: &Settings,
    listed: &[String],
    headers: impl Iterator<Item = Field<'f>> + Clone,
    came: Millis,
) -> Bytes {
    let connection = headers::values(headers.clone(), "connection").flat_map(headers::members);
    let mut named: NameSet = connection.collect();
    for name in listed {
        named.insert(name.as_bytes());
    }
    let is_stored = |name: &[u8]| {
        !headers::is_hop_by_hop(name)
            && !REGENERATED.iter().any(|regenerated| headers::is(name, regenerated))
            && !named.contains(name)
            && !is_for_cache(settings, name)
    };
    let mut lines = Vec::with_capacity(256);
    if let Some(date) = headers::first(headers.clone(), "date") {
        headers::write_line(&mut lines, b"Date", date);
    }
    // None, or one that would break its line.
    if lines.is_empty() {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(came.min(LAST_DATE));
        let date = httpdate::fmt_http_date(at);
        headers::write_line(&mut lines, b"Date", date.as_bytes());
    }
    for (name, value) in headers.filter(|(name, _)| is_stored(name)) {
        headers::write_line(&mut lines, name, value);
    }
    lines.into()
}

/// 9999-12-31 23:59:59, the last second of HTTP's date format, in milliseconds since 1970.
const LAST_DATE: Millis = 253_402_300_799_000;

/// Whether a header is for the cache alone and is removed from responses.
pub fn is_for_cache(settings: &Settings, name: &[u8]) -> bool {
    let starts =
        |start: &str| name.get(..start.len()).is_some_and(|begin| headers::is(begin, start));
    starts("x-accel-")
        || headers::is(name, OWN_CONTROL)
        || (settings.litespeed && starts("x-litespeed-"))
        || settings.tag_headers.iter().any(|tag| headers::is(name, tag))
}

fn has<'f>(fields: impl Iterator<Item = Field<'f>>, name: &str) -> bool {
    headers::first(fields, name).is_some()
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
