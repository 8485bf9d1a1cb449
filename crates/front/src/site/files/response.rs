//! The response to a request for a static file: 200, 206, 304, 405, 412 or 416.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{BufMut, Bytes, BytesMut};

use crate::http::content::{Part, ResponseBody, Slice};
use crate::site::files::entry::{FileBody, StaticFile};
use crate::site::files::ranges::{self, WantedRange};

/// The headers of a request that determine the response.
pub trait Conditions {
    /// The method, as received.
    fn method(&self) -> &str;

    /// The value of a header (names are case-insensitive); of its first line if there are several,
    /// and none if it is not visible ASCII.
    fn header(&self, name: &str) -> Option<&str>;
}

/// A response with a file.
#[derive(Debug)]
pub struct FileResponse {
    /// The HTTP status.
    pub status: u16,
    /// Header lines, each with its CR LF. The sender adds Date, Connection and the empty line.
    pub headers: Bytes,
    /// The body.
    pub body: ResponseBody,
}

/// The response to `request` with `entry`: preconditions in the order of RFC 9110 §13.2.2, then the
/// range, for GET alone.
pub fn response(entry: &StaticFile, request: &impl Conditions) -> FileResponse {
    let method = request.method();
    if method != "GET" && method != "HEAD" {
        return bodiless(405, "Allow: GET, HEAD\r\nContent-Length: 0\r\n".into());
    }
    if must_fail(entry, request) {
        return bodiless(412, "Content-Length: 0\r\n".into());
    }
    if is_known(entry, request) {
        let (etag, date) = (entry.etag(), entry.last_modified());
        return bodiless(
            304,
            format!("Last-Modified: {date}\r\nETag: {etag}\r\n{}", entry.vary_line()).into(),
        );
    }
    if method == "HEAD" {
        return bodiless(200, entry.header_lines().clone());
    }
    match request.header("range").filter(|_| range_applies(entry, request)) {
        Some(field) => match ranges::parse(field, entry.len()) {
            WantedRange::Whole => whole(entry),
            WantedRange::Parts(slices) => match slices.as_slice() {
                [slice] => single(entry, *slice),
                several => multipart(entry, several),
            },
            WantedRange::Unsatisfiable => {
                let len = entry.len();
                let lines = format!("Content-Range: bytes */{len}\r\nContent-Length: 0\r\n");
                bodiless(416, lines.into())
            }
        },
        None => whole(entry),
    }
}

/// If-Match (§13.1.1), or If-Unmodified-Since (§13.1.4) if there is no If-Match.
fn must_fail(entry: &StaticFile, request: &impl Conditions) -> bool {
    if let Some(field) = request.header("if-match") {
        return !names_etag(field, entry.etag(), Comparison::Strong);
    }
    let since = request.header("if-unmodified-since").and_then(http_date);
    since.is_some_and(|since| entry.modified() > since)
}

/// If-None-Match (§13.1.2), or If-Modified-Since (§13.1.3) if there is no If-None-Match.
fn is_known(entry: &StaticFile, request: &impl Conditions) -> bool {
    if let Some(field) = request.header("if-none-match") {
        return names_etag(field, entry.etag(), Comparison::Weak);
    }
    let since = request.header("if-modified-since").and_then(http_date);
    since.is_some_and(|since| entry.modified() <= since)
}

/// If-Range (§13.1.5): an entity tag, compared strongly, or exactly our date.
fn range_applies(entry: &StaticFile, request: &impl Conditions) -> bool {
    let Some(field) = request.header("if-range") else {
        return true;
    };
    let field = field.trim();
    field == entry.etag() || http_date(field) == Some(entry.modified())
}

fn http_date(field: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(field.trim()).ok()
}

/// How entity tags are compared (§8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Whether `field`, `*` or a list of entity tags, contains `etag`. Parsing stops at the first
/// invalid tag.
fn names_etag(field: &str, etag: &str, comparison: Comparison) -> bool {
    let mut rest = field.trim();
    if rest == "*" {
        return true;
    }
    let (etag, is_weak) = match etag.strip_prefix("W/") {
        Some(tag) => (tag, true),
        None => (etag, false),
    };
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (tag, weak) = match rest.strip_prefix("W/") {
            Some(tag) => (tag, true),
            None => (rest, false),
        };
        let Some(inside) = tag.strip_prefix('"') else {
            return false;
        };
        let Some(end) = inside.find('"') else {
            return false;
        };
        let comparable = comparison == Comparison::Weak || !(weak || is_weak);
        if comparable && tag[..end + 2] == *etag {
            return true;
        }
        rest = &inside[end + 1..];
    }
}

fn bodiless(status: u16, headers: Bytes) -> FileResponse {
    FileResponse { status, headers, body: ResponseBody::Empty }
}

fn whole(entry: &StaticFile) -> FileResponse {
    let slice = Slice { offset: 0, len: entry.len() };
    let headers = entry.header_lines().clone();
    FileResponse { status: 200, headers, body: piece(entry, slice) }
}

fn single(entry: &StaticFile, slice: Slice) -> FileResponse {
    let headers = partial_lines(entry, entry.content_type(), slice.len);
    let headers = format!("{headers}Content-Range: {}\r\n", content_range(slice, entry.len()));
    let body = piece(entry, slice);
    FileResponse { status: 206, headers: headers.into(), body }
}

pub(crate) fn multipart(entry: &StaticFile, slices: &[Slice]) -> FileResponse {
    let boundary = boundary();
    let closing = Bytes::from(format!("\r\n--{boundary}--\r\n"));
    let parts: Vec<Part> = slices
        .iter()
        .enumerate()
        .map(|(number, slice)| {
            let before = if number == 0 { "" } else { "\r\n" };
            let kind = entry.content_type();
            let range = content_range(*slice, entry.len());
            let head = format!(
                "{before}--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n"
            );
            Part { head: head.into(), slice: *slice }
        })
        .collect();
    let pieces: u64 = parts.iter().map(|part| part.head.len() as u64 + part.slice.len).sum();
    let length = pieces + closing.len() as u64;
    let kind = format!("multipart/byteranges; boundary={boundary}");
    let body = match entry.body() {
        FileBody::Memory(bytes) => ResponseBody::Memory(joined(bytes, &parts, &closing)),
        FileBody::File(file) => ResponseBody::Multipart { file: Arc::clone(file), parts, closing },
    };
    let headers = partial_lines(entry, &kind, length).into();
    FileResponse { status: 206, headers, body }
}

fn partial_lines(entry: &StaticFile, content_type: &str, length: u64) -> String {
    let (etag, date) = (entry.etag(), entry.last_modified());
    format!(
        "Content-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Last-Modified: {date}\r\nETag: {etag}\r\nAccept-Ranges: bytes\r\n{}",
        entry.vary_line()
    )
}

fn content_range(slice: Slice, len: u64) -> String {
    format!("bytes {}-{}/{len}", slice.offset, slice.end() - 1)
}

/// Random, so that no file can contain its own delimiter (RFC 2046 §5.1.1).
fn boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

pub(crate) fn piece(entry: &StaticFile, slice: Slice) -> ResponseBody {
    match entry.body() {
        _ if slice.len == 0 => ResponseBody::Empty,
        FileBody::Memory(bytes) => ResponseBody::Memory(in_memory(bytes, slice)),
        FileBody::File(file) => ResponseBody::File { file: Arc::clone(file), slice },
    }
}

fn joined(bytes: &Bytes, parts: &[Part], closing: &Bytes) -> Bytes {
    let mut body = BytesMut::new();
    for part in parts {
        body.put_slice(&part.head);
        body.put_slice(&in_memory(bytes, part.slice));
    }
    body.put_slice(closing);
    body.freeze()
}

/// Ranges are within the entry's length, which is that of its bytes.
fn in_memory(bytes: &Bytes, slice: Slice) -> Bytes {
    bytes.slice(slice.offset as usize..slice.end() as usize)
}
