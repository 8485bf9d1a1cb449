//! Updating a cached response with the headers of a 304 (RFC 9111 §4.3.4).

use bytes::Bytes;

use crate::admit::{self, Admitted, NotStored, Times};
use crate::cache_control::CacheControl;
use crate::cache_request::CacheRequest;
use crate::eligibility::Plan;
use crate::freshness::{self, Lifetimes};
use crate::headers::{self, Field, NameSet, ResponseHead};
use crate::settings::Settings;
use crate::stored::Stored;
use crate::tags::MAX_TAGS;

/// Headers that describe the stored body, which a 304 does not contain (RFC 9111 §3.2).
const BODY_HEADERS: [&str; 6] = [
    "content-encoding",
    "content-length",
    "content-md5",
    "content-range",
    "etag",
    "transfer-encoding",
];

/// The stored body's headers, updated by a 304.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The header lines for this client, whether the response is stored or not, as in
    /// [`Stored::lines`]. Headers that are listed as not storable are included.
    pub lines: Bytes,
    /// All header lines, with those for the cache.
    pub unfiltered: Vec<u8>,
    /// The updated cache entry, or why none is stored.
    pub stored: Result<Admitted, NotStored>,
}

impl Stored {
    /// Merges the headers of a 304 into this cached response.
    pub fn merge<'a, 'f, H, F>(
        &self,
        settings: &Settings,
        asked: &CacheRequest<'a, H>,
        plan: &Plan,
        not_modified: F,
        times: Times,
    ) -> Merged
    where
        H: Iterator<Item = Field<'a>> + Clone,
        F: Iterator<Item = Field<'f>> + Clone,
    {
        let mut lines = Vec::with_capacity(self.lines.len());
        let new: NameSet = not_modified.clone().map(|(name, _)| name).collect();
        let is_replaced = |name: &[u8]| {
            // The stored date is that of the old response; without a new `Date` it is now.
            headers::is(name, "date") || (!is_body_header(name) && new.contains(name))
        };
        let remaining = self.fields().filter(|(name, _)| !is_replaced(name));
        let updated = not_modified.clone().filter(|(name, _)| !is_body_header(name));
        for (name, value) in remaining {
            headers::write_line(&mut lines, name, value);
        }
        for (name, value) in updated {
            headers::write_line(&mut lines, name, value);
        }
        if self.keeps_lifetimes(settings, not_modified, times) {
            self.write_lifetimes(settings, &mut lines);
        }
        let response = ResponseHead { status: self.status, headers: headers::of_lines(&lines) };
        let mut stored = admit::admit(settings, asked, plan, response, times);
        if let Ok(admitted) = &mut stored {
            if self.has_more_tags(settings, &new) || admitted.stored.tags.is_empty() {
                admitted.stored.tags = self.tags_and(&admitted.stored.tags);
            }
            // What the server has added to the `Vary` is not the script's.
            if self.server_compresses && !new.contains(b"vary") {
                admitted.stored.server_compresses = true;
                let vary = std::mem::take(&mut admitted.vary);
                admitted.vary = vary.without("accept-encoding");
            }
        }
        if stored.as_ref().is_ok_and(|admitted| admitted.stored.tags.len() > MAX_TAGS) {
            stored = Err(NotStored::TooManyTags);
        }
        let for_client = headers::of_lines(&lines);
        let for_client = admit::client_lines(settings, &[], for_client, times.came);
        Merged { lines: for_client, unfiltered: lines, stored }
    }

    /// Whether the lifetimes stay as they are: a header that is not stored has stated them, which a
    /// 304 need not repeat. One that forbids what was allowed before is obeyed.
    fn keeps_lifetimes<'f>(
        &self,
        settings: &Settings,
        not_modified: impl Iterator<Item = Field<'f>> + Clone,
        times: Times,
    ) -> bool {
        if !self.has_own_lifetimes {
            return false;
        }
        let before = CacheControl::of(headers::values(self.fields(), "cache-control"));
        let after = CacheControl::of(headers::values(not_modified.clone(), "cache-control"));
        let is_forbidden = after.no_store && !before.no_store
            || after.private && !before.private
            || after.no_cache && !before.no_cache;
        let is_zero = freshness::accel_expires(settings, not_modified.clone(), times.came);
        is_zero != Some(0)
            && !is_forbidden
            && !admit::has_own_lifetimes(settings, not_modified, times.came)
    }

    /// Writes the lifetimes as a header for the cache.
    fn write_lifetimes(&self, settings: &Settings, lines: &mut Vec<u8>) {
        let Lifetimes { fresh, while_revalidate, if_error } = self.lifetimes;
        if settings.ignore_headers.cache_control {
            headers::write_line(lines, b"X-Accel-Expires", fresh.to_string().as_bytes());
            return;
        }
        let mut control = format!(
            "max-age={fresh}, stale-while-revalidate={while_revalidate}, stale-if-error={if_error}"
        );
        let directives = [
            (self.no_cache, ", no-cache"),
            (self.must_revalidate, ", proxy-revalidate"),
            (self.for_authorized, ", public"),
        ];
        control.extend(directives.iter().filter(|(is, _)| *is).map(|(_, directive)| *directive));
        headers::write_line(lines, admit::OWN_CONTROL.as_bytes(), control.as_bytes());
    }

    /// Whether tags may be missing in a 304 with these headers: it need not repeat those that are
    /// not stored.
    fn has_more_tags(&self, settings: &Settings, new: &NameSet) -> bool {
        let mut names = settings.tag_headers.iter().map(String::as_str);
        names.any(|name| !new.contains(name.as_bytes()))
            || settings.litespeed && !new.contains(b"x-litespeed-tag")
    }

    fn tags_and(&self, others: &[String]) -> Box<[String]> {
        let mut tags = [&self.tags[..], others].concat();
        tags.sort_unstable();
        tags.dedup();
        tags.into()
    }
}

fn is_body_header(name: &[u8]) -> bool {
    BODY_HEADERS.iter().any(|field| headers::is(name, field))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::cache_request::Request;

    const NOW: u64 = 1_700_000_000_000;

    fn merged(kept: &[(&str, &str)], new: &[(&str, &str)]) -> Merged {
        merged_counting(&Settings::default(), kept, new, &Cell::new(0))
    }

    /// Counts the headers of the 304 that are read.
    fn merged_counting(
        settings: &Settings,
        kept: &[(&str, &str)],
        new: &[(&str, &str)],
        count: &Cell<usize>,
    ) -> Merged {
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
        let asked = CacheRequest::survey(request, [].into_iter());
        let plan = Plan::make(settings, &asked);
        let times = Times { asked: NOW, came: NOW, stamp: 0 };
        let of = |fields: &[(&str, &str)]| -> Vec<(Vec<u8>, Vec<u8>)> {
            let fields = fields.iter();
            fields
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect()
        };
        let (kept, new) = (of(kept), of(new));
        fn view(fields: &[(Vec<u8>, Vec<u8>)]) -> impl Iterator<Item = Field<'_>> + Clone {
            fields.iter().map(|(name, value)| (&name[..], &value[..]))
        }
        let response = ResponseHead { status: 200, headers: view(&kept) };
        let kept = admit::admit(settings, &asked, &plan, response, times).unwrap();
        let times = Times { asked: NOW + 9000, came: NOW + 9000, stamp: 3 };
        let new = view(&new).inspect(|_| count.set(count.get() + 1));
        kept.stored.merge(settings, &asked, &plan, new, times)
    }

    fn lines(merged: &Merged) -> String {
        String::from_utf8(merged.lines.to_vec()).unwrap()
    }

    #[test]
    fn headers_of_a_304_replace_the_stored_ones() {
        let kept =
            [("ETag", "\"a\""), ("A", "1"), ("a", "2"), ("B", "3"), ("Cache-Control", "max-age=2")];
        let merged = merged(&kept, &[("A", "4"), ("ETag", "\"b\""), ("Date", "x")]);
        let expected = "Date: x\r\nETag: \"a\"\r\nB: 3\r\nCache-Control: max-age=2\r\nA: 4\r\n";
        assert_eq!(lines(&merged), expected);
        let stored = merged.stored.unwrap().stored;
        assert_eq!((stored.came, stored.stamp), (NOW + 9000, 3));
    }

    #[test]
    fn what_says_something_of_the_body_stays_with_the_body() {
        let kept = [
            ("ETag", "\"a\""),
            ("Content-Encoding", "br"),
            ("Content-Type", "a/b"),
            ("Cache-Control", "max-age=2"),
        ];
        let new = [
            ("Content-Encoding", "gzip"),
            ("Content-MD5", "x"),
            ("Content-Type", "c/d"),
            ("Date", "x"),
        ];
        let expected = "Date: x\r\nETag: \"a\"\r\nContent-Encoding: br\r\n\
            Cache-Control: max-age=2\r\nContent-Type: c/d\r\n";
        assert_eq!(lines(&merged(&kept, &new)), expected);
    }

    #[test]
    fn a_304_can_say_that_nothing_is_to_be_kept_any_more() {
        let kept = [("ETag", "\"a\""), ("Cache-Control", "max-age=2")];
        let merged = merged(&kept, &[("Cache-Control", "no-store")]);
        assert_eq!(merged.stored, Err(NotStored::NoStore));
        assert!(lines(&merged).contains("Cache-Control: no-store\r\n"));
    }

    #[test]
    fn the_client_gets_headers_that_are_not_stored_but_none_for_the_cache() {
        let kept = [("ETag", "\"a\""), ("Cache-Control", "max-age=2")];
        let new = [
            ("Set-Cookie", "a=b"),
            ("Connection", "close, X-Hop"),
            ("X-Hop", "1"),
            ("Transfer-Encoding", "chunked"),
            ("X-Accel-Expires", "5"),
            ("Age", "7"),
            ("Date", "x"),
        ];
        let not_kept = merged(&kept, &new);
        assert_eq!(not_kept.stored, Err(NotStored::SetCookie));
        let expected = "Date: x\r\nETag: \"a\"\r\nCache-Control: max-age=2\r\nSet-Cookie: a=b\r\n";
        assert_eq!(lines(&not_kept), expected);
        let new = [("Set-Cookie", "a=b"), ("Cache-Control", "max-age=2, no-cache=\"set-cookie\"")];
        let listed = merged(&kept, &new);
        assert!(lines(&listed).contains("Set-Cookie: a=b\r\n"));
        assert!(listed.stored.unwrap().stored.first("set-cookie").is_none());
    }

    /// The stored headers after a 304, with settings.
    fn kept_by(settings: &Settings, kept: &[(&str, &str)], new: &[(&str, &str)]) -> Stored {
        merged_counting(settings, kept, new, &Cell::new(0)).stored.unwrap().stored
    }

    #[test]
    fn a_304_need_not_repeat_tags_that_are_not_stored() {
        let settings = Settings {
            litespeed: true,
            tag_headers: vec!["surrogate-key".to_owned()],
            ..Settings::default()
        };
        let kept = [
            ("Cache-Control", "max-age=2"),
            ("Cache-Groups", "\"a\""),
            ("Surrogate-Key", "b"),
            ("X-LiteSpeed-Tag", "c"),
        ];
        let tags = |new: &[(&str, &str)]| kept_by(&settings, &kept, new).tags;
        assert_eq!(&*tags(&[]), ["a", "b", "c"]);
        assert_eq!(&*tags(&[("Surrogate-Key", "d")]), ["a", "b", "c", "d"]);
        assert_eq!(&*tags(&[("Surrogate-Key", "d"), ("X-LiteSpeed-Tag", "e")]), ["a", "d", "e"]);
        let plain = kept_by(&Settings::default(), &kept, &[("Cache-Groups", "\"z\"")]);
        assert_eq!(&*plain.tags, ["z"]);
        let many: Vec<String> = (0..MAX_TAGS).map(|tag| tag.to_string()).collect();
        let new = many.join(" ");
        let new = [("Surrogate-Key", new.as_str())];
        let merged = merged_counting(&settings, &kept, &new, &Cell::new(0));
        assert_eq!(merged.stored, Err(NotStored::TooManyTags));
    }

    #[test]
    fn a_304_need_not_repeat_the_lifetimes_for_the_cache_alone() {
        let litespeed = Settings { litespeed: true, ..Settings::default() };
        let mut ignoring = Settings { stale_if_error: 9, ..Settings::default() };
        ignoring.ignore_headers.cache_control = true;
        let accel = ("X-Accel-Expires", "60");
        let own = ("Maitred-Cache-Control", "max-age=60, must-revalidate, stale-if-error=7");
        let theirs = ("X-LiteSpeed-Cache-Control", "public, max-age=60");
        for (settings, header) in [
            (&Settings::default(), accel),
            (&ignoring, accel),
            (&Settings::default(), own),
            (&litespeed, theirs),
        ] {
            for control in ["max-age=9999, immutable", "no-store"] {
                let kept = [header, ("Cache-Control", control), ("ETag", "\"a\"")];
                let by = |new: &[(&str, &str)]| kept_by(settings, &kept, new);
                let before = by(&[header]);
                assert_eq!(before.lifetimes.fresh, 60, "{header:?}");
                assert!(before.has_own_lifetimes, "{header:?}");
                for new in [&[][..], &[("Cache-Control", control)], &[("ETag", "\"a\"")]] {
                    let after = Stored { lines: before.lines.clone(), ..by(new) };
                    assert_eq!(after, before, "{header:?} {new:?}");
                }
                assert_eq!(by(&[("X-Accel-Expires", "5")]).lifetimes.fresh, 5, "{header:?}");
            }
            let kept = [header, ("Cache-Control", "max-age=9999"), ("ETag", "\"a\"")];
            let merged = merged_counting(settings, &kept, &[], &Cell::new(0));
            assert!(!lines(&merged).to_lowercase().contains("maitred"), "{}", lines(&merged));
        }
        let kept = [accel, ("Cache-Control", "max-age=9999"), ("ETag", "\"a\"")];
        let private = merged(&kept, &[("Cache-Control", "private")]);
        assert_eq!(private.stored, Err(NotStored::Private));
        assert!(kept_by(&Settings::default(), &kept, &[("Cache-Control", "no-cache")]).no_cache);
        assert_eq!(merged(&kept, &[("X-Accel-Expires", "0")]).stored, Err(NotStored::NoStore));
    }

    #[test]
    fn the_headers_of_a_304_are_read_a_few_times_however_many_are_stored() {
        let names = |start: &str| -> Vec<String> {
            (0..1000).map(|number| format!("{start}-{number}")).collect()
        };
        let (stored, new) = (names("stored"), names("new"));
        fn view(names: &[String]) -> Vec<(&str, &str)> {
            names.iter().map(|name| (&name[..], "1")).collect()
        }
        let mut stored = view(&stored);
        stored.push(("Cache-Control", "max-age=2"));
        let count = Cell::new(0);
        let merged = merged_counting(&Settings::default(), &stored, &view(&new), &count);
        assert_eq!(headers::of_lines(&merged.lines).count(), 2002);
        assert!(count.get() <= 5 * 1000, "{}", count.get());
    }
}
