//! Whether a cache entry can serve a request (RFC 9111 §4).

use crate::Millis;
use crate::cache_control::RequestDirectives;
use crate::cache_request::CacheRequest;
use crate::eligibility::Plan;
use crate::freshness::current_age;
use crate::headers::Field;
use crate::stored::Stored;

/// How a cache entry can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// It is fresh.
    Fresh {
        /// Its `Age` header in seconds.
        age: u64,
        /// Seconds for which it remains fresh.
        ttl: u64,
    },
    /// It is stale.
    Stale(Stale),
    /// It is not for this request.
    Unfit,
}

/// A stale entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// Its `Age` header in seconds.
    pub age: u64,
    /// Seconds since it became stale; 0 if a purge made it stale.
    pub by: u64,
    /// It may be served while a fill runs.
    pub while_revalidate: bool,
    /// It may be served after an error.
    pub if_error: bool,
}

/// Judges a cache entry. `is_soft_purged`: a soft purge has made it stale; it may be used until it
/// is replaced.
pub fn judge<'a, H: Iterator<Item = Field<'a>> + Clone>(
    stored: &Stored,
    asked: &CacheRequest<'a, H>,
    plan: &Plan,
    is_soft_purged: bool,
    now: Millis,
) -> Judged {
    if asked.has_authorization && !stored.for_authorized {
        return Judged::Unfit;
    }
    let age = current_age(stored.initial_age, stored.came, now);
    let lifetimes = &stored.lifetimes;
    let fresh = lifetimes.fresh.saturating_mul(1000);
    let stale = |may: bool| {
        let by = age.saturating_sub(fresh);
        let is_within = |grace: u64| by < grace.saturating_mul(1000);
        let purged = is_soft_purged && !stored.must_revalidate;
        Judged::Stale(Stale {
            age: age / 1000,
            by: by / 1000,
            while_revalidate: may && (purged || is_within(lifetimes.while_revalidate)),
            if_error: purged || is_within(lifetimes.if_error),
        })
    };
    let directives = plan.directives.as_ref();
    if stored.no_cache || is_soft_purged {
        return stale(true);
    }
    if directives.is_some_and(|directives| wants_newer(directives, age, fresh)) {
        return stale(false);
    }
    let tolerated = directives.and_then(|directives| directives.max_stale).unwrap_or(0);
    let tolerated = if stored.must_revalidate { 0 } else { tolerated };
    if age < fresh {
        let (age, ttl) = (age / 1000, (fresh - age) / 1000);
        return Judged::Fresh { age, ttl };
    }
    if age - fresh < tolerated.saturating_mul(1000) {
        return Judged::Fresh { age: age / 1000, ttl: 0 };
    }
    stale(true)
}

/// RFC 9111 §5.2.1.
fn wants_newer(directives: &RequestDirectives, age: Millis, fresh: Millis) -> bool {
    let is_too_old = |max: u64| age > max.saturating_mul(1000);
    let left = fresh.saturating_sub(age);
    directives.no_cache
        || directives.max_age.is_some_and(is_too_old)
        || directives.min_fresh.is_some_and(|min| left < min.saturating_mul(1000))
}

/// The conditional headers for a revalidation (RFC 9111 §4.3.1): `If-None-Match` and
/// `If-Modified-Since` with the entry's own values. They replace the client's.
pub fn validators(stored: &Stored) -> impl Iterator<Item = Field<'_>> {
    let etag = stored.first("etag").map(|value| (&b"If-None-Match"[..], value));
    let modified = stored.first("last-modified");
    let modified = modified.map(|value| (&b"If-Modified-Since"[..], value));
    etag.into_iter().chain(modified)
}

/// Request headers that are hidden from a script whose response may be stored: it must send the
/// full response, from which the cache serves what the client wants.
pub fn is_withheld(name: &[u8]) -> bool {
    let withheld = ["if-none-match", "if-modified-since", "if-range", "range"];
    withheld.iter().any(|field| crate::headers::is(name, field))
}

/// Whether a stale entry replaces a response with this status: a server error (RFC 5861 §4).
pub fn is_error(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::cache_request::Request;
    use crate::freshness::Lifetimes;
    use crate::settings::Settings;

    const CAME: Millis = 1_700_000_000_000;

    #[test]
    fn a_page_is_stale_when_it_is_stored_if_its_life_is_over_by_then() {
        let page = stored(10, 0, 0);
        assert!(!page.is_stale_when_stored());
        assert!(stored(0, 60, 0).is_stale_when_stored());
        assert!(Stored { initial_age: 10, ..page.clone() }.is_stale_when_stored());
        assert!(Stored { no_cache: true, ..page }.is_stale_when_stored());
    }

    fn stored(fresh: u64, while_revalidate: u64, if_error: u64) -> Stored {
        Stored {
            status: 200,
            lines: Bytes::from_static(b"ETag: \"a\"\r\n"),
            came: CAME,
            initial_age: 0,
            lifetimes: Lifetimes { fresh, while_revalidate, if_error },
            no_cache: false,
            must_revalidate: false,
            for_authorized: false,
            has_validator: true,
            server_compresses: false,
            has_own_lifetimes: false,
            tags: Box::new([]),
            stamp: 0,
        }
    }

    fn judged(stored: &Stored, fields: &[Field<'_>], soft: bool, after: Millis) -> Judged {
        let request = Request {
            method: "GET",
            is_https: false,
            host: "a",
            port: None,
            path: "/",
            query: None,
            has_body: false,
            by_proxy: false,
            by_forwarded: false,
        };
        let settings = Settings { obey_requests: true, ..Settings::default() };
        let asked = CacheRequest::survey(request, fields.iter().copied());
        let plan = Plan::make(&settings, &asked);
        judge(stored, &asked, &plan, soft, CAME + after)
    }

    fn stale(judged: Judged) -> (bool, bool) {
        match judged {
            Judged::Stale(stale) => (stale.while_revalidate, stale.if_error),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_is_fresh_until_its_time_is_over_and_not_a_moment_longer() {
        let stored = stored(2, 3, 10);
        let fresh = Judged::Fresh { age: 1, ttl: 0 };
        assert_eq!(judged(&stored, &[], false, 1999), fresh);
        assert_eq!(stale(judged(&stored, &[], false, 2000)), (true, true));
        assert_eq!(stale(judged(&stored, &[], false, 4999)), (true, true));
        assert_eq!(stale(judged(&stored, &[], false, 5000)), (false, true));
        assert_eq!(stale(judged(&stored, &[], false, 12_000)), (false, false));
    }

    #[test]
    fn a_soft_purge_makes_it_stale_and_lets_it_do_until_there_is_another() {
        let mut stored = stored(60, 0, 0);
        assert_eq!(stale(judged(&stored, &[], true, 0)), (true, true));
        stored.must_revalidate = true;
        assert_eq!(stale(judged(&stored, &[], true, 0)), (false, false));
    }

    #[test]
    fn what_must_be_asked_for_again_always_is() {
        let mut stored = stored(60, 0, 0);
        stored.no_cache = true;
        assert_eq!(stale(judged(&stored, &[], false, 0)), (false, false));
    }

    #[test]
    fn who_shows_a_password_is_not_given_what_others_got() {
        let mut stored = stored(60, 0, 0);
        let fields: [Field<'_>; 1] = [(b"Authorization", b"x")];
        assert_eq!(judged(&stored, &fields, false, 0), Judged::Unfit);
        stored.for_authorized = true;
        assert!(matches!(judged(&stored, &fields, false, 0), Judged::Fresh { .. }));
    }

    #[test]
    fn wishes_are_granted() {
        let stored = stored(60, 30, 30);
        let with = |wish: &str| {
            let fields = [(&b"Cache-Control"[..], wish.as_bytes())];
            judged(&stored, &fields, false, 10_000)
        };
        assert_eq!(stale(with("no-cache")), (false, true));
        assert_eq!(stale(with("max-age=9")), (false, true));
        assert_eq!(stale(with("min-fresh=51")), (false, true));
        assert!(matches!(with("max-age=10, min-fresh=50"), Judged::Fresh { .. }));
        let old = judged(&stored, &[(b"Cache-Control", b"max-stale")], false, 70_000);
        assert_eq!(old, Judged::Fresh { age: 70, ttl: 0 });
    }

    #[test]
    fn it_is_asked_for_again_with_its_own_validators() {
        let mut stored = stored(1, 0, 0);
        stored.lines = Bytes::from_static(b"Last-Modified: x\r\netag: W/\"a\"\r\n");
        let all: Vec<Field<'_>> = validators(&stored).collect();
        assert_eq!(
            all,
            [(&b"If-None-Match"[..], &b"W/\"a\""[..]), (&b"If-Modified-Since"[..], &b"x"[..]),]
        );
    }
}
