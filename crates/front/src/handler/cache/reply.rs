//! Responses with cached pages.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use maitred_http1::{Framing, Head, carries_body};
use maitred_pagecache::asked::{Asked, Request};
use maitred_pagecache::fields;
use maitred_pagecache::select::{Selected, content_range, not_modified_lines, select};
use maitred_pagecache::status::CacheStatus;
use maitred_pagecache::stored::Stored;
use maitred_pagestore::Body;
use maitred_pagestore::body::FILE_LEAST_BYTES;

use crate::cache::CACHE_STATUS;
use crate::cache::key_host::key_host;
use crate::handler::context::RequestContext;
use crate::http::client::{After, Content, HttpClient, Reply};
use crate::http::headers::{Header, ServerHeaders};
use crate::logging::record::RequestRecord;

/// The request as the cache sees it, but for the port, which its key alone has.
pub(crate) fn request_of<'h>(head: &'h Head, way: &'h RequestContext<'_>) -> Request<'h> {
    Request {
        method: head.method(),
        is_https: way.is_https,
        host: key_host(way.host(head), way.is_https),
        port: None,
        path: head.path(),
        query: head.query(),
        has_body: head.body != Framing::None,
        by_proxy: way.origin.is_some_and(|origin| origin.is_https.is_some()),
        by_forwarded: way.origin.is_some_and(|origin| origin.by_forwarded),
    }
}

/// Lines with a field at their end: caches tell of themselves in the order in which the answer has passed them
/// (RFC 9211 §2), so that what the script says comes before.
pub(crate) fn with_line(lines: &Bytes, name: &[u8], value: &[u8]) -> Bytes {
    let mut all = Vec::with_capacity(lines.len() + name.len() + value.len() + 4);
    all.extend_from_slice(lines);
    fields::write_line(&mut all, name, value);
    all.into()
}

/// What is sent of a page: with which status, which bytes, and where in the page they begin.
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

/// Answers with what is kept, which has this age and saves a worker so much time.
pub(crate) async fn reply(
    client: &mut impl HttpClient,
    (head, way): (&Head, &RequestContext<'_>),
    (stored, body, saved): (&Stored, &Body, Duration),
    (age, status): (u64, CacheStatus),
    record: &mut RequestRecord,
) -> io::Result<After> {
    let asked = Asked::survey(request_of(head, way), head.headers());
    let length = body.len() as u64;
    let selected = select(stored, &asked, length);
    let (date, lines) = stored.dated_lines();
    let lines = match selected {
        Selected::NotModified => not_modified_lines(stored),
        _ => lines,
    };
    let (code, part, at) = part_of(stored.status, body, selected);
    record.cache = Some(status.word());
    if let (Some(of), CacheStatus::Hit { detail, .. }) = (&way.site.cache, status) {
        let bytes = if asked.is_head() { 0 } else { part.len() };
        of.board().answered(detail, bytes as u64, saved);
    }
    let after = client.discard_body(head);
    let secured = client.secured().cloned();
    let id = record.id_sent();
    let beside = ServerHeaders::of(secured.as_deref(), id.as_ref());
    let (mut number, status) = (itoa::Buffer::new(), status.to_string());
    let range = content_range(selected, length);
    let mut headers: Vec<Header<'_>> = Vec::with_capacity(6);
    if selected != Selected::NotModified {
        headers.push((b"Date", &date));
    }
    headers.push((b"Age", number.format(age).as_bytes()));
    let lines = match fields::first(fields::of_lines(&lines), "cache-status").is_some() {
        true => with_line(&lines, CACHE_STATUS, status.as_bytes()),
        false => {
            headers.push((CACHE_STATUS, status.as_bytes()));
            lines
        }
    };
    headers.extend(
        range
            .as_ref()
            .map(|range| (&b"Content-Range"[..], range.as_bytes())),
    );
    let is_said = |name: &[u8]| {
        stored
            .fields()
            .any(|(said, _)| said.eq_ignore_ascii_case(name))
    };
    headers.extend(beside.as_slice().iter().filter(|(name, _)| !is_said(name)));
    let carries_body = carries_body(false, code);
    let reply = Reply {
        request: head,
        status: code,
        headers: &headers,
        lines: &lines,
        length: carries_body.then_some(part.len() as u64),
        after,
    };
    let content = match body.file() {
        _ if asked.is_head() || part.is_empty() => Content::Nothing,
        Some(file) if part.len() >= FILE_LEAST_BYTES => Content::Housed(&part, file, at),
        _ => Content::Kept(&part),
    };
    if code == stored.status {
        client.is_answered_by_script();
    }
    record.written(client.answer(&reply, content).await)?;
    Ok(after)
}
