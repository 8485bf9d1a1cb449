//! Conditional requests (RFC 9110 §13) and ranges (§14) on cached responses.

use bytes::Bytes;

use crate::cache_request::CacheRequest;
use crate::coded_tags::{as_named, uncoded};
use crate::headers::{self, Field};
use crate::stored::Stored;

/// Headers of the full response that a 304 repeats (RFC 9110 §15.4.5), and those that control
/// access.
const NOT_MODIFIED_HEADERS: [&str; 11] = [
    "cache-control",
    "cdn-cache-control",
    "content-location",
    "date",
    "etag",
    "expires",
    "vary",
    "cache-groups",
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-expose-headers",
];

/// What the client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected {
    /// The full response.
    Whole,
    /// 304: the client has a current copy.
    NotModified,
    /// 206: the bytes from `start` up to, not including, `end`.
    Part {
        /// The first byte.
        start: u64,
        /// The byte after the last.
        end: u64,
    },
    /// 416: the range is outside the body.
    Unsatisfiable,
}

/// Decides how much of a response with a body of `length` bytes the client gets. Conditions and
/// ranges apply to GET and HEAD, and to responses with status 200 (RFC 9110 §13.2.1, §14.2).
pub fn select<'a, H: Iterator<Item = Field<'a>> + Clone>(
    stored: &Stored,
    asked: &CacheRequest<'a, H>,
    length: u64,
) -> Selected {
    if stored.status != 200 {
        return Selected::Whole;
    }
    if asked.is_conditional && has_it(stored, asked) {
        return Selected::NotModified;
    }
    if asked.has_range && asked.is_get() && range_holds(stored, asked) {
        let range = asked.first("range").unwrap_or_default();
        return range_of(range, length);
    }
    Selected::Whole
}

/// RFC 9110 §13.1.2 and §13.1.3: `If-Modified-Since` counts only without the `If-None-Match` header
/// header.
fn has_it<'a, H: Iterator<Item = Field<'a>> + Clone>(
    stored: &Stored,
    asked: &CacheRequest<'a, H>,
) -> bool {
    let mut tags = headers::values(asked.fields(), "if-none-match").peekable();
    if tags.peek().is_some() {
        let own = stored.first("etag").map(opaque);
        // The condition has lost the mark already.
        let plain = own.and_then(uncoded);
        let own = plain.as_deref().or(own);
        let is_own = |tag: &[u8]| tag == b"*" || own.is_some_and(|own| opaque(tag) == own);
        return tags.any(|value| entity_tags(value).any(is_own));
    }
    let since = asked.first("if-modified-since").and_then(headers::date);
    // Without `Last-Modified`, `Date` is the latest possible modification time (RFC 9111 §4.3.2).
    let modified = stored.first("last-modified").or(stored.first("date"));
    let modified = modified.and_then(headers::date);
    since.zip(modified).is_some_and(|(since, modified)| modified <= since)
}

/// A tag without its weakness prefix (RFC 9110 §8.8.3.2, weak comparison).
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The tags of a list. A comma inside quotes is no separator.
fn entity_tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut in_quotes = false;
    let ends = move |byte: &u8| {
        in_quotes ^= *byte == b'"';
        *byte == b',' && !in_quotes
    };
    value.split(ends).map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty())
}

/// RFC 9110 §13.1.5: `If-Range` is absent, or names exactly this response.
fn range_holds<'a, H: Iterator<Item = Field<'a>> + Clone>(
    stored: &Stored,
    asked: &CacheRequest<'a, H>,
) -> bool {
    let Some(condition) = asked.first("if-range") else {
        return true;
    };
    if condition.starts_with(b"\"") {
        return stored.first("etag") == Some(condition);
    }
    // A date is a strong validator only if it is at least a second before the `Date` header
    // (§8.8.2.2).
    let modified = stored.first("last-modified").and_then(headers::date);
    let made = stored.first("date").and_then(headers::date);
    let is_strong = modified.zip(made).is_some_and(|(modified, made)| modified < made);
    is_strong && headers::date(condition) == modified
}

/// One byte range (RFC 9110 §14.1.2). Several ranges, another unit or a syntax error select the
/// full response, as §14.2 allows.
fn range_of(value: &[u8], length: u64) -> Selected {
    let unit = value.get(..6).filter(|unit| unit.eq_ignore_ascii_case(b"bytes="));
    let Some(range) = unit.map(|_| value[6..].trim_ascii()) else {
        return Selected::Whole;
    };
    let Some(dash) = memchr::memchr(b'-', range) else {
        return Selected::Whole;
    };
    let (first, last) = (&range[..dash], &range[dash + 1..]);
    match (first.is_empty(), headers::seconds(first), headers::seconds(last)) {
        (true, _, Some(0)) => Selected::Unsatisfiable,
        (true, _, Some(_)) if length == 0 => Selected::Unsatisfiable,
        (true, _, Some(suffix)) => {
            Selected::Part { start: length.saturating_sub(suffix), end: length }
        }
        (false, Some(start), end) if last.is_empty() || end.is_some() => {
            if end.is_some_and(|end| end < start) {
                return Selected::Whole;
            }
            let end = end.map_or(length, |end| end.saturating_add(1).min(length));
            if start < length { Selected::Part { start, end } } else { Selected::Unsatisfiable }
        }
        _ => Selected::Whole,
    }
}

/// The header lines of a 304 to a client that has sent these entity tags. `Last-Modified` is
/// included only without an `ETag` header.
pub fn not_modified_lines(stored: &Stored, sent_tags: &[u8]) -> Bytes {
    let etag = stored.first("etag");
    let has_etag = etag.is_some();
    let named = etag.and_then(|etag| as_named(etag, sent_tags));
    let mut lines = Vec::with_capacity(256);
    for (name, value) in stored.fields() {
        let is_told = NOT_MODIFIED_HEADERS.iter().any(|told| headers::is(name, told))
            || (!has_etag && headers::is(name, "last-modified"));
        let value = match &named {
            Some(named) if headers::is(name, "etag") => named,
            _ => value,
        };
        if is_told {
            headers::write_line(&mut lines, name, value);
        }
    }
    lines.into()
}

/// The `Content-Range` of a 206 or 416.
pub fn content_range(selected: Selected, length: u64) -> Option<String> {
    match selected {
        Selected::Part { start, end } => {
            Some(format!("bytes {start}-{}/{length}", end.saturating_sub(1)))
        }
        Selected::Unsatisfiable => Some(format!("bytes */{length}")),
        Selected::Whole | Selected::NotModified => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cache_request::Request;
    use crate::freshness::Lifetimes;

    const OLD: &str = "Tue, 14 Nov 2023 22:13:20 GMT";
    const NEW: &str = "Tue, 14 Nov 2023 22:13:30 GMT";

    fn stored(status: u16, lines: &str) -> Stored {
        Stored {
            status,
            lines: Bytes::copy_from_slice(lines.as_bytes()),
            came: 0,
            initial_age: 0,
            lifetimes: Lifetimes::default(),
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

    fn selected(stored: &Stored, method: &str, fields: &[(&str, &str)]) -> Selected {
        let request = Request {
            method,
            is_https: false,
            host: "a",
            port: None,
            path: "/",
            query: None,
            has_body: false,
            by_proxy: false,
            by_forwarded: false,
        };
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        select(stored, &CacheRequest::survey(request, fields), 10)
    }

    #[test]
    fn who_has_it_already_is_told_so() {
        let etag = stored(200, "ETag: \"a,b\"\r\n");
        let of = |value: &str| selected(&etag, "GET", &[("If-None-Match", value)]);
        for value in ["\"a,b\"", "W/\"a,b\"", "*", "\"x\", \"a,b\""] {
            assert_eq!(of(value), Selected::NotModified, "{value}");
        }
        for value in ["\"a", "a,b", "\"A,B\"", "b\""] {
            assert_eq!(of(value), Selected::Whole, "{value}");
        }
        let error = stored(404, "ETag: \"a,b\"\r\n");
        assert_eq!(selected(&error, "GET", &[("If-None-Match", "*")]), Selected::Whole);
    }

    #[test]
    fn a_tag_counts_before_a_date() {
        let both = stored(200, &format!("ETag: \"a\"\r\nLast-Modified: {OLD}\r\n"));
        let of = |tag: &str, since: &str| {
            let fields = [("If-None-Match", tag), ("If-Modified-Since", since)];
            selected(&both, "GET", &fields)
        };
        assert_eq!(of("\"a\"", "Sat, 01 Jan 2000 00:00:00 GMT"), Selected::NotModified);
        assert_eq!(of("\"b\"", NEW), Selected::Whole);
        let since = |since: &str| selected(&both, "HEAD", &[("If-Modified-Since", since)]);
        assert_eq!(since(OLD), Selected::NotModified);
        assert_eq!(since("Sat, 01 Jan 2000 00:00:00 GMT"), Selected::Whole);
        assert_eq!(since("yesterday"), Selected::Whole);
    }

    #[test]
    fn one_range_is_a_part_and_several_are_the_whole() {
        let page = stored(200, "");
        let of = |range: &str| selected(&page, "GET", &[("Range", range)]);
        assert_eq!(of("bytes=0-1"), Selected::Part { start: 0, end: 2 });
        assert_eq!(of("bytes=4-"), Selected::Part { start: 4, end: 10 });
        assert_eq!(of("bytes=-3"), Selected::Part { start: 7, end: 10 });
        assert_eq!(of("bytes=-30"), Selected::Part { start: 0, end: 10 });
        assert_eq!(of("bytes=5-99999999999999999999"), Selected::Part { start: 5, end: 10 });
        assert_eq!(of("bytes=10-"), Selected::Unsatisfiable);
        assert_eq!(of("bytes=-0"), Selected::Unsatisfiable);
        for whole in ["bytes=0-1,3-4", "lines=0-1", "bytes=5-4", "bytes=a-b", "bytes=", "bytes=-"] {
            assert_eq!(of(whole), Selected::Whole, "{whole}");
        }
        assert_eq!(selected(&page, "HEAD", &[("Range", "bytes=0-1")]), Selected::Whole);
    }

    #[test]
    fn a_range_of_another_answer_is_the_whole_of_this_one() {
        let page = stored(200, &format!("ETag: \"a\"\r\nLast-Modified: {OLD}\r\nDate: {NEW}\r\n"));
        let of =
            |value: &str| selected(&page, "GET", &[("Range", "bytes=0-1"), ("If-Range", value)]);
        assert_eq!(of("\"a\""), Selected::Part { start: 0, end: 2 });
        assert_eq!(of("W/\"a\""), Selected::Whole);
        assert_eq!(of(OLD), Selected::Part { start: 0, end: 2 });
        assert_eq!(of(NEW), Selected::Whole);
    }

    #[test]
    fn a_304_has_what_it_must_have() {
        let page = stored(200, "ETag: \"a\"\r\nLast-Modified: x\r\nContent-Type: t\r\nVary: A\r\n");
        assert_eq!(&not_modified_lines(&page, b"")[..], b"ETag: \"a\"\r\nVary: A\r\n");
        let page = stored(200, "Last-Modified: x\r\nContent-Type: t\r\n");
        assert_eq!(&not_modified_lines(&page, b"")[..], b"Last-Modified: x\r\n");
    }

    proptest! {
        #[test]
        fn no_range_leaves_the_body(range in "(bytes=)?[0-9-]{0,24}", length in any::<u64>()) {
            match range_of(range.as_bytes(), length) {
                Selected::Part { start, end } => prop_assert!(start < end && end <= length),
                Selected::NotModified => prop_assert!(false),
                _ => {}
            }
        }
    }
}
