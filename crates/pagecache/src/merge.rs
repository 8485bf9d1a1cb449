//! Updating a cached response with the headers of a 304 (RFC 9111 §4.3.4).

use bytes::Bytes;

use crate::admit::{self, Admitted, NotStored, Times};
use crate::cache_request::CacheRequest;
use crate::eligibility::Plan;
use crate::headers::{self, Field, NameSet, ResponseHead};
use crate::settings::Settings;
use crate::stored::Stored;

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
        let response = ResponseHead { status: self.status, headers: headers::of_lines(&lines) };
        let mut stored = admit::admit(settings, asked, plan, response, times);
        if let Ok(admitted) = &mut stored {
            if admitted.stored.tags.is_empty() {
                // Tag headers are not stored, and a 304 need not repeat them.
                admitted.stored.tags.clone_from(&self.tags);
            }
            // What the server has added to the `Vary` is not the script's.
            if self.server_compresses && !new.contains(b"vary") {
                admitted.stored.server_compresses = true;
                let vary = std::mem::take(&mut admitted.vary);
                admitted.vary = vary.without("accept-encoding");
            }
        }
        let for_client = headers::of_lines(&lines);
        let for_client = admit::client_lines(settings, &[], for_client, times.came);
        Merged { lines: for_client, unfiltered: lines, stored }
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
        merged_counting(kept, new, &Cell::new(0))
    }

    /// Counts the headers of the 304 that are read.
    fn merged_counting(kept: &[(&str, &str)], new: &[(&str, &str)], count: &Cell<usize>) -> Merged {
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
        let settings = Settings::default();
        let asked = CacheRequest::survey(request, [].into_iter());
        let plan = Plan::make(&settings, &asked);
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
        let kept = admit::admit(&settings, &asked, &plan, response, times).unwrap();
        let times = Times { asked: NOW + 9000, came: NOW + 9000, stamp: 3 };
        let new = view(&new).inspect(|_| count.set(count.get() + 1));
        kept.stored.merge(&settings, &asked, &plan, new, times)
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
        let merged = merged_counting(&stored, &view(&new), &count);
        assert_eq!(headers::of_lines(&merged.lines).count(), 2002);
        assert!(count.get() <= 5 * 1000, "{}", count.get());
    }
}
