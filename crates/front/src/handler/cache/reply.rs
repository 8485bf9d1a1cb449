//! Responses with cached pages.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use maitred_http1::{Framing, carries_body};
use maitred_pagecache::cache_request::{CacheRequest, Request};
use maitred_pagecache::cache_status::CacheStatus;
use maitred_pagecache::headers;
use maitred_pagecache::select::{Selected, content_range, not_modified_lines, select};
use maitred_pagecache::stored::Stored;
use maitred_pagestore::Body;
use maitred_pagestore::body::FILE_LEAST_BYTES;

use crate::cache::CACHE_STATUS;
use crate::cache::key_host::key_host;
use crate::handler::context::{RequestContext, RequestCx};
use crate::handler::htaccess_response::ResponseSource;
use crate::handler::respond::WholeResponse;
use crate::http::client::{After, Content, HttpClient};
use crate::http::headers::Header;

/// The request as the cache sees it, without the port, which only its key has.
pub(crate) fn request_of<'h>(context: &'h RequestContext<'_>) -> Request<'h> {
    let (head, target) = (context.head, context.target);
    Request {
        method: head.method(),
        is_https: target.is_https,
        host: key_host(target.host, target.is_https),
        port: None,
        path: head.path(),
        query: head.query(),
        has_body: head.body != Framing::None,
        by_proxy: target.forwarded_https.is_some(),
        by_forwarded: target.by_forwarded,
    }
}

/// Lines with one more header at their end. Caches append to the `Cache-Status` header in the order
/// in which the response has passed them (RFC 9211 §2), so that the script's value is first.
pub(crate) fn with_line(lines: &Bytes, name: &[u8], value: &[u8]) -> Bytes {
    let mut all = Vec::with_capacity(lines.len() + name.len() + value.len() + 4);
    all.extend_from_slice(lines);
    headers::write_line(&mut all, name, value);
    all.into()
}

/// The status and the bytes to send of a page, and the offset of the bytes in the page.
pub(crate) fn part_of(status: u16, body: &Body, selected: Selected) -> (u16, Bytes, u64) {
    match selected {
        Selected::Whole => (status, Bytes::clone(body), 0),
        Selected::NotModified => (304, Bytes::new(), 0),
        Selected::Unsatisfiable => (416, Bytes::new(), 0),
        Selected::Part { start, end } => {
            let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(body.len());
            (206, body.slice(at(start)..at(end)), start)
        }
    }
}

/// A cached page to respond with.
pub(crate) struct CachedPage<'a> {
    /// Its header.
    pub stored: &'a Stored,
    /// Its body.
    pub body: &'a Body,
    /// The worker time that the hit saves.
    pub saved: Duration,
    /// Its age in seconds.
    pub age: u64,
    /// The value of the `Cache-Status` header.
    pub status: CacheStatus,
}

/// Responds with a cached page.
pub(crate) async fn reply<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    page: CachedPage<'_>,
) -> io::Result<After> {
    let CachedPage { stored, body, saved, age, status } = page;
    let asked = CacheRequest::survey(request_of(context), context.head.headers());
    let length = body.len() as u64;
    let selected = select(stored, &asked, length);
    let (date, lines) = stored.dated_lines();
    let lines = match selected {
        Selected::NotModified => not_modified_lines(stored, context.head.sent_tags()),
        _ => lines,
    };
    let (code, part, at) = part_of(stored.status, body, selected);
    cx.record.cache = Some(status.word());
    cx.record.end_lookup();
    if let (Some(of), CacheStatus::Hit { detail, .. }) = (&context.site.cache, status) {
        let bytes = if asked.is_head() { 0 } else { part.len() };
        of.board().answered(detail, bytes as u64, saved);
    }
    let after = cx.client.discard_body(cx.head);
    let (mut number, status) = (itoa::Buffer::new(), status.to_string());
    let range = content_range(selected, length);
    let mut headers: Vec<Header<'_>> = Vec::with_capacity(4);
    if selected != Selected::NotModified {
        headers.push((b"Date", &date));
    }
    headers.push((b"Age", number.format(age).as_bytes()));
    let lines = if headers::first(headers::of_lines(&lines), "cache-status").is_some() {
        with_line(&lines, CACHE_STATUS, status.as_bytes())
    } else {
        headers.push((CACHE_STATUS, status.as_bytes()));
        lines
    };
    let range = range.as_ref();
    headers.extend(range.map(|range| (&b"Content-Range"[..], range.as_bytes())));
    let content = match body.file() {
        _ if asked.is_head() || part.is_empty() => Content::Nothing,
        Some(file) if part.len() >= FILE_LEAST_BYTES => Content::Housed(&part, file, at),
        _ => Content::Kept(&part),
    };
    let carries_body = carries_body(false, code);
    let response = WholeResponse {
        headers: &headers,
        lines,
        // A 304 has not all headers of the page, but the page's replace the server's all the same.
        unsent_lines: &stored.lines,
        length: carries_body.then_some(part.len() as u64),
        is_by_script: code == stored.status,
        source: match selected {
            Selected::Unsatisfiable => ResponseSource::Server,
            _ => ResponseSource::Script,
        },
        ..WholeResponse::new(code, content, after)
    };
    cx.send(&response).await
}
