//! Whether an answer is kept (RFC 9111 §3), and what of it.

use std::fmt;

use bytes::Bytes;

use crate::Millis;
use crate::asked::Asked;
use crate::control::Control;
use crate::fields::{self, Field};
use crate::freshness::{self, Lifetime, Lifetimes, MAX_SECONDS};
use crate::plan::{Bypass, Plan};
use crate::settings::Settings;
use crate::stored::Stored;
use crate::tags;
use crate::vary::{self, Unpredictable, Vary};

/// Why an answer is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotStored {
    /// Its request was none of the cache's.
    Bypassed(Bypass),
    /// It answers HEAD.
    Head,
    /// Its request has a field that no key has and that an application might believe.
    UnkeyedField,
    /// Its request has a cookie whose meaning to the application is unknown.
    UnknownCookie,
    /// A rule of the site's (`no_store`) says so.
    Rule,
    /// Its request says so, and is obeyed.
    RequestNoStore,
    /// It says `no-store`.
    NoStore,
    /// It says `private`.
    Private,
    /// It says `no-cache`, and there is nothing to ask for it again with.
    NoCache,
    /// It sets a cookie.
    SetCookie,
    /// Its request has an `Authorization`, and it does not say that all may have it.
    Authorization,
    /// It depends on something that no request shows.
    VaryStar,
    /// It depends on more fields than are remembered.
    VaryTooMuch,
    /// Its status is not one that is kept: 206, 304, or one that is not understood and must be.
    Status,
    /// Nobody says for how long it is good.
    NoLifetime,
    /// It is stale already.
    Stale,
    /// It is larger than `max_object_size`.
    TooLarge,
    /// It has more tags than are remembered.
    TooManyTags,
    /// It has not been asked for often enough (`min_uses`).
    MinUses,
    /// It did not come to its end.
    Incomplete,
    /// Its request waited for another for as long as it may.
    LockTimeout,
    /// It was purged before it had come.
    Purged,
    /// It could not be written.
    Fault,
    /// It is in a coding that its request does not take, so nobody knows who does.
    Coding,
}

impl NotStored {
    /// All there are but [`NotStored::Bypassed`], whose reasons are its own.
    pub const ALL: [NotStored; 23] = [
        NotStored::Head,
        NotStored::UnkeyedField,
        NotStored::UnknownCookie,
        NotStored::Rule,
        NotStored::RequestNoStore,
        NotStored::NoStore,
        NotStored::Private,
        NotStored::NoCache,
        NotStored::SetCookie,
        NotStored::Authorization,
        NotStored::VaryStar,
        NotStored::VaryTooMuch,
        NotStored::Status,
        NotStored::NoLifetime,
        NotStored::Stale,
        NotStored::TooLarge,
        NotStored::TooManyTags,
        NotStored::MinUses,
        NotStored::Incomplete,
        NotStored::LockTimeout,
        NotStored::Purged,
        NotStored::Fault,
        NotStored::Coding,
    ];

    /// Its name, in `Cache-Status` and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            NotStored::Bypassed(why) => why.as_str(),
            NotStored::Head => "head",
            NotStored::UnkeyedField => "unkeyed-field",
            NotStored::UnknownCookie => "unknown-cookie",
            NotStored::Rule => "rule",
            NotStored::RequestNoStore => "request-no-store",
            NotStored::NoStore => "no-store",
            NotStored::Private => "private",
            NotStored::NoCache => "no-cache",
            NotStored::SetCookie => "set-cookie",
            NotStored::Authorization => "authorization",
            NotStored::VaryStar => "vary-star",
            NotStored::VaryTooMuch => "vary-too-much",
            NotStored::Status => "status",
            NotStored::NoLifetime => "no-lifetime",
            NotStored::Stale => "stale",
            NotStored::TooLarge => "too-large",
            NotStored::TooManyTags => "too-many-tags",
            NotStored::MinUses => "min-uses",
            NotStored::Incomplete => "incomplete",
            NotStored::LockTimeout => "lock-timeout",
            NotStored::Purged => "purged",
            NotStored::Fault => "fault",
            NotStored::Coding => "coding",
        }
    }
}

impl fmt::Display for NotStored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// When an answer was asked for and came, and how many purges there had been when it was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// When it was asked for.
    pub asked: Millis,
    /// When its head came.
    pub came: Millis,
    /// Purges until it was asked for.
    pub stamp: u64,
}

/// An answer that is kept when its body has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Its head.
    pub stored: Stored,
    /// What of its request it depends on.
    pub vary: Vary,
}

/// Decides on an answer whose head has come.
///
/// # Errors
/// Why it is not kept.
pub fn admit<'a, 'f, H, F>(
    settings: &Settings,
    asked: &Asked<'a, H>,
    plan: &Plan,
    (status, answer): (u16, F),
    times: Times,
) -> Result<Admitted, NotStored>
where
    H: Iterator<Item = Field<'a>> + Clone,
    F: Iterator<Item = Field<'f>> + Clone,
{
    plan.store?;
    let (control, is_targeted) = control(settings, answer.clone(), times.came);
    may_be_kept(
        settings,
        asked.has_authorization,
        &control,
        (status, answer.clone()),
    )?;
    let vary = match settings.ignore_headers.vary {
        true => Vary::default(),
        false => Vary::of(fields::values(answer.clone(), "vary")).map_err(|why| match why {
            Unpredictable::Star => NotStored::VaryStar,
            Unpredictable::TooMuch => NotStored::VaryTooMuch,
        })?,
    };
    let vary = match settings.varies_by_session {
        true => vary.without("cookie"),
        false => vary,
    };
    let varies_by_coding = vary.names().iter().any(|name| name == "accept-encoding");
    if varies_by_coding && !vary::takes(asked.fields(), answer.clone()) {
        return Err(NotStored::Coding);
    }
    if settings.litespeed && !has_litespeeds_variants(settings, answer.clone()) {
        return Err(NotStored::VaryStar);
    }
    let tags = tags::of_answer(settings, answer.clone()).map_err(|_| NotStored::TooManyTags)?;
    let has_validator = has(answer.clone(), "etag") || has(answer.clone(), "last-modified");
    let life = (status, answer.clone());
    let lifetime = freshness::lifetime(settings, &control, is_targeted, life, times.came);
    let delay = times.came.saturating_sub(times.asked);
    let initial_age = freshness::initial_age(answer.clone(), delay, times.came);
    let lifetimes = lifetimes(settings, &control, lifetime, (has_validator, initial_age))?;
    let stored = Stored {
        status,
        lines: told_lines(settings, &control.listed, answer, times.came),
        came: times.came,
        initial_age,
        lifetimes,
        no_cache: control.no_cache,
        must_revalidate: forbids_stale(&control),
        for_authorized: is_for_authorized(&control),
        has_validator,
        tags: tags.into(),
        stamp: times.stamp,
    };
    Ok(Admitted { stored, vary })
}

/// What an answer says to this cache, and whether it says it to caches alone.
fn control<'f>(
    settings: &Settings,
    answer: impl Iterator<Item = Field<'f>> + Clone,
    now: Millis,
) -> (Control, bool) {
    if settings.ignore_headers.cache_control {
        return (Control::default(), false);
    }
    let of_all = || Control::of(fields::values(answer.clone(), "cache-control"));
    let told = freshness::told_by_nginx(settings, answer.clone(), now);
    if told.is_some_and(|seconds| seconds > 0) {
        // It is said to this cache alone, but for how long and no more.
        let listed = of_all().listed;
        let control = Control {
            listed,
            ..Control::default()
        };
        return (control, true);
    }
    if settings.litespeed {
        let values = fields::values(answer.clone(), "x-litespeed-cache-control");
        let control = Control::of(values);
        if control.any {
            return (control, true);
        }
    }
    match Control::targeted(answer.clone()) {
        Some(control) => (control, true),
        None => (of_all(), false),
    }
}

/// Whether the key has all that `X-LiteSpeed-Vary` names: cookies, and nothing else.
fn has_litespeeds_variants<'f>(
    settings: &Settings,
    answer: impl Iterator<Item = Field<'f>>,
) -> bool {
    let mut named = fields::values(answer, "x-litespeed-vary").flat_map(fields::members);
    named.all(|member| {
        let cookie = member.strip_prefix(b"cookie=");
        let is_keyed = |cookie: &[u8]| {
            let mut keyed = settings.key.cookies.iter();
            keyed.any(|keyed| keyed.as_bytes() == cookie)
        };
        cookie.is_some_and(is_keyed)
    })
}

fn may_be_kept<'f>(
    settings: &Settings,
    has_authorization: bool,
    control: &Control,
    (status, answer): (u16, impl Iterator<Item = Field<'f>>),
) -> Result<(), NotStored> {
    // A part of an answer, and what only says something of another one (RFC 9111 §3).
    if status < 200 || matches!(status, 206 | 304) {
        return Err(NotStored::Status);
    }
    let is_understood = is_understood(status);
    if control.must_understand && !is_understood {
        return Err(NotStored::Status);
    }
    // RFC 9111 §5.2.2.3: must-understand outweighs no-store, which is for those who know it not.
    if control.no_store && !control.must_understand {
        return Err(NotStored::NoStore);
    }
    if control.private {
        return Err(NotStored::Private);
    }
    let is_listed = control.listed.iter().any(|name| name == "set-cookie");
    if !settings.ignore_headers.set_cookie && !is_listed && has(answer, "set-cookie") {
        return Err(NotStored::SetCookie);
    }
    if has_authorization && !is_for_authorized(control) {
        return Err(NotStored::Authorization);
    }
    Ok(())
}

/// RFC 9111 §3.5.
fn is_for_authorized(control: &Control) -> bool {
    control.public || control.must_revalidate || control.s_maxage.is_some()
}

/// RFC 9111 §4.2.4, but for `s-maxage`: where an answer or the site says in so many words for how
/// long a stale answer will do, that is what it means. With `s-maxage` alone none does.
fn forbids_stale(control: &Control) -> bool {
    control.no_cache || control.must_revalidate || control.proxy_revalidate
}

/// Statuses that RFC 9110 §15 describes, and what is said there about keeping them is done here.
fn is_understood(status: u16) -> bool {
    matches!(status, 200..=205 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505)
}

fn lifetimes(
    settings: &Settings,
    control: &Control,
    lifetime: Lifetime,
    (has_validator, initial_age): (bool, u64),
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
    // What is good for no time at all is not to be seen again, but where it says so itself.
    let site = if fresh == 0 { 0 } else { MAX_SECONDS };
    let grace = |said: Option<u64>, otherwise: u64| match forbids_stale(control) {
        true => 0,
        false => said.unwrap_or(otherwise.min(site)).min(MAX_SECONDS),
    };
    let lifetimes = Lifetimes {
        fresh,
        while_revalidate: grace(
            control.stale_while_revalidate,
            settings.stale_while_revalidate,
        ),
        if_error: grace(control.stale_if_error, settings.stale_if_error),
    };
    let grace = lifetimes.while_revalidate.max(lifetimes.if_error);
    match initial_age < fresh.saturating_add(grace) || can_validate {
        true => Ok(lifetimes),
        false => Err(NotStored::Stale),
    }
}

/// Fields that every answer gets anew. `Date` is kept all the same, before all others.
const TOLD_ANEW: [&str; 4] = ["age", "content-length", "date", "server"];

/// The lines that an answer is told with which is not one of the script's any more, `Date` first: without those
/// of the connection (RFC 9111 §3.1), those that are `listed` as not to be kept, those for the cache, and those
/// that are told anew each time.
pub fn told_lines<'f>(
    settings: &Settings,
    listed: &[String],
    answer: impl Iterator<Item = Field<'f>> + Clone,
    came: Millis,
) -> Bytes {
    let mut named: Vec<Vec<u8>> = Vec::new();
    for value in fields::values(answer.clone(), "connection") {
        named.extend(fields::members(value).map(<[u8]>::to_ascii_lowercase));
    }
    named.extend(listed.iter().map(|name| name.clone().into_bytes()));
    let is_told = |name: &[u8]| {
        !fields::is_hop_by_hop(name)
            && !TOLD_ANEW.iter().any(|told| fields::is(name, told))
            && !named.iter().any(|named| name.eq_ignore_ascii_case(named))
            && !is_for_cache(settings, name)
    };
    let mut lines = Vec::with_capacity(256);
    match fields::first(answer.clone(), "date") {
        Some(date) => fields::write_line(&mut lines, b"Date", date),
        None => {
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(came.min(LAST_DATE));
            let date = httpdate::fmt_http_date(at);
            fields::write_line(&mut lines, b"Date", date.as_bytes());
        }
    }
    for (name, value) in answer.filter(|(name, _)| is_told(name)) {
        fields::write_line(&mut lines, name, value);
    }
    lines.into()
}

/// 9999-12-31 23:59:59, the last second that a date of HTTP can tell, in milliseconds since 1970.
const LAST_DATE: Millis = 253_402_300_799_000;

/// Whether a field speaks to the cache alone, so that no client gets it.
pub fn is_for_cache(settings: &Settings, name: &[u8]) -> bool {
    let starts = |start: &str| {
        name.get(..start.len())
            .is_some_and(|begin| fields::is(begin, start))
    };
    starts("x-accel-")
        || fields::is(name, "maitred-cache-control")
        || (settings.litespeed && starts("x-litespeed-"))
        || settings.tag_headers.iter().any(|tag| fields::is(name, tag))
}

fn has<'f>(fields: impl Iterator<Item = Field<'f>>, name: &str) -> bool {
    fields::first(fields, name).is_some()
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
