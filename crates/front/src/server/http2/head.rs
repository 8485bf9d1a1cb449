//! Response header sections of HTTP/2: a status, and headers with lower-case names (RFC 9113
//! §8.3.2).

use std::cell::RefCell;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue, SERVER};
use http::{Response, StatusCode};
use maitred_http1::{ResponseFraming, ResponseStart, is_hop_by_hop};
use memchr::memchr;

use crate::http::client::HeadWriter;
use crate::http::headers::Header;
use crate::runtime::clock::http_date;

/// Headers of a typical response.
const FIELDS: usize = 8;

thread_local! {
    static TODAY: RefCell<HeaderValue> = const { RefCell::new(HeaderValue::from_static("")) };
}

/// A response header.
#[derive(Debug)]
pub struct ResponseHead {
    /// Status and headers.
    pub response: Response<()>,
    /// Bytes of the body, if known.
    pub length: Option<u64>,
}

/// Responses of HTTP/2: the header is separate from the body.
pub struct Http2;

impl HeadWriter for Http2 {
    type Head = ResponseHead;

    fn head<'h>(
        _out: &mut Vec<u8>,
        start: &ResponseStart<'_>,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> (Option<ResponseHead>, usize) {
        let mut fields = HeaderMap::with_capacity(FIELDS);
        let mut unfit = 0;
        for (name, value) in headers {
            if !is_hop_by_hop(name) {
                unfit += usize::from(!append(&mut fields, name, HeaderValue::from_bytes(value)));
            }
        }
        let length = match start.framing {
            ResponseFraming::Length(length) => Some(length),
            ResponseFraming::NoBody => Some(0),
            _ => None,
        };
        // RFC 9110 §8.6: a 204 has no length.
        if let (ResponseFraming::Length(length), true) = (start.framing, start.status != 204) {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let response = complete(start.status, fields);
        (Some(ResponseHead { response, length }), unfit)
    }

    fn hints<'h>(
        _out: &mut Vec<u8>,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> Option<ResponseHead> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::EARLY_HINTS;
        for (name, value) in headers {
            append(response.headers_mut(), name, HeaderValue::from_bytes(value));
        }
        let length = None;
        Some(ResponseHead { response, length })
    }
}

/// A header section that the server makes itself: some headers, and the body's length unless
/// `lines`, which are prepared, have it.
pub fn ready(
    status: u16,
    headers: &[Header<'_>],
    lines: &Bytes,
    length: Option<u64>,
) -> Response<()> {
    let mut fields = HeaderMap::with_capacity(FIELDS);
    for (name, value) in headers {
        append(&mut fields, name, HeaderValue::from_bytes(value));
    }
    let mut at = 0;
    while let Some(end) = memchr(b'\n', &lines[at..]) {
        take_line(&mut fields, lines, at, at + end);
        at += end + 1;
    }
    if let Some(length) = length {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    complete(status, fields)
}

/// A prepared line; its value is not copied.
fn take_line(fields: &mut HeaderMap, lines: &Bytes, start: usize, end: usize) {
    let Some(colon) = memchr(b':', &lines[start..end]) else {
        return;
    };
    let (name, mut value) = (&lines[start..start + colon], start + colon + 1);
    while lines.get(value) == Some(&b' ') {
        value += 1;
    }
    let end = end - usize::from(lines[..end].ends_with(b"\r"));
    let value = lines.slice(value.min(end)..end);
    append(fields, name, HeaderValue::from_maybe_shared(value));
}

/// Appends a header; false for an invalid one.
fn append<E>(fields: &mut HeaderMap, name: &[u8], value: Result<HeaderValue, E>) -> bool {
    let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) else {
        return false;
    };
    fields.try_append(name, value).is_ok()
}

fn complete(status: u16, mut fields: HeaderMap) -> Response<()> {
    fields.entry(SERVER).or_insert_with(|| HeaderValue::from_static("maitred"));
    fields.entry(DATE).or_insert_with(today);
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = fields;
    response
}

/// The date of this second, formatted once.
fn today() -> HeaderValue {
    let now = http_date();
    TODAY.with_borrow_mut(|today| {
        if today.as_bytes() != now {
            *today = HeaderValue::from_bytes(&now).unwrap_or(HeaderValue::from_static(""));
        }
        today.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_http1::Version;

    fn fields(response: &Response<()>) -> Vec<(&str, &str)> {
        let mut fields: Vec<_> = response
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .filter(|(name, _)| *name != "date")
            .collect();
        fields.sort_unstable();
        fields
    }

    fn start(status: u16, framing: ResponseFraming) -> ResponseStart<'static> {
        ResponseStart {
            version: Version::Http2,
            status,
            reason: Some(b"whatever"),
            framing,
            keep_alive: true,
            date: b"Thu, 01 Jan 1970 00:00:00 GMT",
        }
    }

    fn head(start: &ResponseStart<'_>, headers: &[(&str, &str)]) -> (ResponseHead, usize) {
        let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let mut out = Vec::new();
        let (head, unfit) = Http2::head(&mut out, start, headers);
        assert!(out.is_empty());
        (head.unwrap(), unfit)
    }

    #[test]
    fn a_scripts_head_loses_what_belongs_to_a_connection_and_what_no_field_can_hold() {
        let headers = [
            ("X-Powered-By", "PHP"),
            ("Connection", "close"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "7"),
            ("Set-Cookie", "a"),
            ("Set-Cookie", "b"),
            ("X Y", "1"),
            ("X-Z", "1\r\nInjected: 1"),
        ];
        let (head, unfit) = head(&start(404, ResponseFraming::Length(3)), &headers);
        assert_eq!((unfit, head.length), (2, Some(3)));
        assert_eq!(head.response.status(), 404);
        let expected = [
            ("content-length", "3"),
            ("server", "maitred"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
            ("x-powered-by", "PHP"),
        ];
        assert_eq!(fields(&head.response), expected);
    }

    #[test]
    fn ready_made_lines_become_fields() {
        let lines = Bytes::from("Content-Type: text/css\r\nContent-Length: 5\r\nETag: \"a:b\"\r\n");
        let response = ready(206, &[(b"Location", b"/x")], &lines, None);
        assert_eq!(response.status(), 206);
        let expected = [
            ("content-length", "5"),
            ("content-type", "text/css"),
            ("etag", "\"a:b\""),
            ("location", "/x"),
            ("server", "maitred"),
        ];
        assert_eq!(fields(&response), expected);
    }

    #[test]
    fn a_length_is_said_only_where_it_is_known() {
        let (streamed, _) = head(&start(200, ResponseFraming::EndOfStream), &[]);
        assert_eq!(streamed.length, None);
        assert_eq!(fields(&streamed.response), [("server", "maitred")]);
        let (empty, _) = head(&start(304, ResponseFraming::NoBody), &[]);
        assert_eq!(empty.length, Some(0));
        let (odd, _) = head(&start(42, ResponseFraming::NoBody), &[]);
        assert_eq!(odd.response.status(), 500);
    }
}
