//! Age and freshness of a response (RFC 9111 §4.2).

use crate::Millis;
use crate::cache_control::CacheControl;
use crate::headers::{self, Field, ResponseHead};
use crate::settings::Settings;

/// Longest lifetime and greatest age in seconds, 68 years: longer ones are capped to it (RFC 9111
/// §1.2.2).
pub const MAX_SECONDS: u64 = 1 << 31;
/// How far the clock may step back, in milliseconds, before older entries count as stale: their age
/// is unknown then.
const CLOCK_SLACK: Millis = 2_000;
/// Longest heuristic lifetime in seconds: a day.
const MAX_HEURISTIC_SECONDS: u64 = 86_400;
/// Heuristic lifetime: age since the last modification, divided by this (RFC 9111 §4.2.2).
const HEURISTIC_FRACTION: u64 = 10;

/// How long a response can be used, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lifetimes {
    /// How long it is fresh, from its generation.
    pub fresh: u64,
    /// How long after that it may be served stale while a fill runs.
    pub while_revalidate: u64,
    /// How long after [`Lifetimes::fresh`] it may be served stale after an error.
    pub if_error: u64,
}

/// The source of a freshness lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// The response states it, in seconds.
    Explicit(u64),
    /// The site's `valid` states it.
    Valid(u64),
    /// Heuristic.
    Heuristic(u64),
    /// Not storable: `X-Accel-Expires` or `valid` is 0.
    Never,
    /// None stated.
    Unknown,
}

impl Lifetime {
    /// Seconds; `None` if none is stated.
    pub fn seconds(self) -> Option<u64> {
        match self {
            Lifetime::Explicit(seconds)
            | Lifetime::Valid(seconds)
            | Lifetime::Heuristic(seconds) => Some(seconds.min(MAX_SECONDS)),
            Lifetime::Never | Lifetime::Unknown => None,
        }
    }
}

/// The freshness lifetime of a response that arrived at `now`.
///
/// nginx's `X-Accel-Expires` has priority, then the targeted headers, then `Cache-Control`,
/// then `Expires`, then the site's `valid`.
pub fn lifetime<'a, F: Iterator<Item = Field<'a>> + Clone>(
    settings: &Settings,
    control: &CacheControl,
    is_targeted: bool,
    response: ResponseHead<F>,
    now: Millis,
) -> Lifetime {
    let ResponseHead { status, headers: fields } = response;
    let ignore = &settings.ignore_headers;
    match accel_expires(settings, fields.clone(), now) {
        Some(0) => return Lifetime::Never,
        Some(seconds) => return Lifetime::Explicit(seconds),
        None => {}
    }
    if let Some(seconds) = control.s_maxage.or(control.max_age) {
        return Lifetime::Explicit(seconds);
    }
    if !is_targeted
        && !ignore.expires
        && let Some(expires) = headers::first(fields.clone(), "expires")
    {
        let date = date_of(fields.clone(), now);
        let expires = headers::date(expires).unwrap_or(0);
        return Lifetime::Explicit(expires.saturating_sub(date));
    }
    let is_for = |valid: &&crate::settings::Valid| match valid.status {
        Some(of) => of == status,
        None => true,
    };
    if let Some(valid) = settings.valid.iter().find(is_for) {
        return match valid.seconds {
            0 => Lifetime::Never,
            seconds => Lifetime::Valid(seconds),
        };
    }
    if settings.heuristic { heuristic(control, status, fields, now) } else { Lifetime::Unknown }
}

/// `X-Accel-Expires` in seconds from now, if it is present and not ignored. As in nginx, any value
/// but 0 overrides `Cache-Control`.
pub fn accel_expires<'a>(
    settings: &Settings,
    fields: impl Iterator<Item = Field<'a>>,
    now: Millis,
) -> Option<u64> {
    if settings.ignore_headers.x_accel_expires {
        return None;
    }
    let value = headers::first(fields, "x-accel-expires")?;
    x_accel_expires(value, now)
}

/// RFC 9111 §4.2.2: for statuses that RFC 9110 §15.1 lists as heuristically cacheable, or with
/// `public`.
fn heuristic<'a, F: Iterator<Item = Field<'a>> + Clone>(
    control: &CacheControl,
    status: u16,
    fields: F,
    now: Millis,
) -> Lifetime {
    let may = matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501);
    let modified = headers::first(fields.clone(), "last-modified").and_then(headers::date);
    let Some(modified) = modified.filter(|_| may || control.public) else {
        return Lifetime::Unknown;
    };
    let since = date_of(fields, now).saturating_sub(modified);
    Lifetime::Heuristic((since / HEURISTIC_FRACTION).min(MAX_HEURISTIC_SECONDS))
}

/// When the response was generated, in seconds since 1970: its `Date` header, or else now.
fn date_of<'a>(fields: impl Iterator<Item = Field<'a>>, now: Millis) -> u64 {
    let date = headers::first(fields, "date").and_then(headers::date);
    date.unwrap_or(now / 1000)
}

/// Seconds, or `@` and a time in seconds since 1970. Any other value is ignored.
fn x_accel_expires(value: &[u8], now: Millis) -> Option<u64> {
    match value.strip_prefix(b"@") {
        Some(time) => Some(headers::seconds(time)?.saturating_sub(now / 1000)),
        None => headers::seconds(value),
    }
}

/// The age of a response on arrival, in seconds (RFC 9111 §4.2.3, `corrected_initial_age`); the
/// request was sent `delay` milliseconds earlier.
///
/// An `Age` that is not a single number makes the response older than any lifetime: its true age is
/// unknown.
pub fn initial_age<'a>(
    fields: impl Iterator<Item = Field<'a>> + Clone,
    delay: Millis,
    now: Millis,
) -> u64 {
    let apparent = (now / 1000).saturating_sub(date_of(fields.clone(), now));
    let mut ages = headers::values(fields, "age");
    let said = match (ages.next(), ages.next()) {
        (None, _) => 0,
        (Some(one), None) => headers::seconds(one).unwrap_or(MAX_SECONDS),
        (Some(_), Some(_)) => MAX_SECONDS,
    };
    apparent.max(said.saturating_add(delay / 1000)).min(MAX_SECONDS)
}

/// The age of a response now, in milliseconds, from its age when it `came`. If the clock has been
/// set back behind that time, the age is unknown and counts as the maximum.
pub fn current_age(initial: u64, came: Millis, now: Millis) -> Millis {
    let initial = initial.min(MAX_SECONDS) * 1000;
    match now.checked_sub(came) {
        Some(since) => initial.saturating_add(since).min(MAX_SECONDS * 1000),
        None if came - now <= CLOCK_SLACK => initial,
        None => MAX_SECONDS * 1000,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings::Valid;

    const NOW: Millis = 1_700_000_000_000;

    fn date(offset: i64) -> String {
        let seconds = u64::try_from(i64::try_from(NOW / 1000).unwrap() + offset).unwrap();
        httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
    }

    fn fields(fields: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
        fields.to_vec()
    }

    fn life(settings: &Settings, status: u16, of: &[(&'static str, String)]) -> Lifetime {
        let of = fields(of);
        let of = of.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let control = CacheControl::of(headers::values(of.clone(), "cache-control"));
        let response = ResponseHead { status, headers: of };
        lifetime(settings, &control, false, response, NOW)
    }

    fn age(of: &[(&'static str, String)]) -> u64 {
        let of = fields(of);
        let of = of.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        initial_age(of, 0, NOW)
    }

    #[test]
    fn what_is_said_to_shared_caches_counts_first() {
        let settings = Settings::default();
        let both = [("Cache-Control", "max-age=3600, s-maxage=1".to_owned())];
        assert_eq!(life(&settings, 200, &both), Lifetime::Explicit(1));
        let accel = [both[0].clone(), ("X-Accel-Expires", "7".to_owned())];
        assert_eq!(life(&settings, 200, &accel), Lifetime::Explicit(7));
        let at = format!("@{}", NOW / 1000 + 9);
        let accel = [both[0].clone(), ("X-Accel-Expires", at)];
        assert_eq!(life(&settings, 200, &accel), Lifetime::Explicit(9));
        let wrong = [both[0].clone(), ("X-Accel-Expires", "soon".to_owned())];
        assert_eq!(life(&settings, 200, &wrong), Lifetime::Explicit(1));
    }

    #[test]
    fn expires_counts_from_the_date_of_the_answer() {
        let settings = Settings::default();
        let of = |expires: String, made: i64| {
            life(&settings, 200, &[("Expires", expires), ("Date", date(made))])
        };
        assert_eq!(of(date(300), 0), Lifetime::Explicit(300));
        assert_eq!(of(date(10), -10), Lifetime::Explicit(20));
        assert_eq!(of(date(300), 400), Lifetime::Explicit(0));
        assert_eq!(of("0".to_owned(), 0), Lifetime::Explicit(0));
        let zero = [("Expires", date(300)), ("Cache-Control", "max-age=0".to_owned())];
        assert_eq!(life(&settings, 200, &zero), Lifetime::Explicit(0));
    }

    #[test]
    fn the_site_says_what_the_answer_does_not() {
        let valid =
            vec![Valid { status: Some(404), seconds: 5 }, Valid { status: None, seconds: 60 }];
        let settings = Settings { valid, ..Settings::default() };
        assert_eq!(life(&settings, 404, &[]), Lifetime::Valid(5));
        assert_eq!(life(&settings, 200, &[]), Lifetime::Valid(60));
        let said = [("Cache-Control", "max-age=1".to_owned())];
        assert_eq!(life(&settings, 200, &said), Lifetime::Explicit(1));
        assert_eq!(life(&Settings::default(), 200, &[]), Lifetime::Unknown);
    }

    #[test]
    fn guesses_are_made_only_where_they_may_be() {
        let settings = Settings { heuristic: true, ..Settings::default() };
        let old = [("Last-Modified", date(-1000)), ("Date", date(0))];
        assert_eq!(life(&settings, 200, &old), Lifetime::Heuristic(100));
        assert_eq!(life(&settings, 503, &old), Lifetime::Unknown);
        assert_eq!(life(&Settings::default(), 200, &old), Lifetime::Unknown);
    }

    #[test]
    fn an_age_that_is_not_one_number_is_older_than_anything() {
        assert_eq!(age(&[]), 0);
        assert_eq!(age(&[("Age", "30".to_owned())]), 30);
        assert_eq!(age(&[("Age", "15".to_owned()), ("Date", date(10))]), 15);
        assert_eq!(age(&[("Age", "1".to_owned()), ("Date", date(-40))]), 40);
        for no in ["abc", "-7200", "7200.0", "7200,0", "0, 0", "7200;foo=bar"] {
            assert_eq!(age(&[("Age", no.to_owned())]), MAX_SECONDS, "{no}");
        }
        let two = [("Age", "0".to_owned()), ("Age", "0".to_owned())];
        assert_eq!(age(&two), MAX_SECONDS);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_what_is_kept_old_and_not_young() {
        assert_eq!(current_age(3, NOW, NOW + 1500), 4500);
        assert_eq!(current_age(3, NOW, NOW - 1000), 3000);
        assert_eq!(current_age(0, NOW, NOW - 60_000), MAX_SECONDS * 1000);
    }

    proptest! {
        #[test]
        fn no_number_overflows(
            initial in any::<u64>(), came in any::<u64>(), now in any::<u64>(),
            delay in any::<u64>(), number in "[0-9]{0,40}",
        ) {
            let age = current_age(initial, came, now);
            prop_assert!(age <= MAX_SECONDS * 1000);
            let of = [&b"Age"[..], b"X-Accel-Expires"].map(|name| (name, number.as_bytes()));
            prop_assert!(initial_age(of.into_iter(), delay, now) <= MAX_SECONDS);
            let control = CacheControl::of([format!("max-age={number}").as_bytes()].into_iter());
            let response = ResponseHead { status: 200, headers: of.into_iter() };
            let life = lifetime(&Settings::default(), &control, false, response, now).seconds();
            prop_assert!(life.is_none_or(|seconds| seconds <= MAX_SECONDS));
        }

        #[test]
        fn what_is_kept_never_becomes_younger(
            initial in 0..MAX_SECONDS, came in 0..NOW, one in 0..NOW, two in 0..NOW,
        ) {
            let (one, two) = (came + one.min(two), came + one.max(two));
            prop_assert!(current_age(initial, came, one) <= current_age(initial, came, two));
        }
    }
}
