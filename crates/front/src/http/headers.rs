//! Headers of requests and responses.

use std::sync::Arc;

use maitred_http1::{Head, ResponseFraming, ResponseStart, write_head};

use crate::net::tls::Secured;
use crate::runtime::clock::http_date;
use crate::runtime::request_id::{self, RequestId};

/// A header's name and value.
pub type Header<'a> = (&'a [u8], &'a [u8]);

/// The type of the server's own responses.
pub const PLAIN: Header<'static> = (b"Content-Type", b"text/plain; charset=utf-8");

/// The type that ACME authorities expect of the file they request (RFC 8555 §8.3).
pub(crate) const OCTETS: Header<'static> = (b"Content-Type", b"application/octet-stream");

/// The value of the first header with this name, if it is text.
pub fn first_field<'h>(head: &'h Head, name: &str) -> Option<&'h str> {
    let named = |header: &(&[u8], &[u8])| header.0.eq_ignore_ascii_case(name.as_bytes());
    let found = head.headers().find(named);
    found.and_then(|(_, value)| std::str::from_utf8(value).ok())
}

/// The headers that the server adds to every HTTP response without a header of the same name. To
/// add a header to all responses, add one line to [`ServerHeaders::all`].
#[derive(Debug, Default)]
pub struct ServerHeaders {
    /// The client's TLS connection, if it has one.
    pub secured: Option<Arc<Secured>>,
    /// The request id, if responses carry it.
    pub id: Option<RequestId>,
}

impl ServerHeaders {
    /// Names and values.
    pub fn all(&self) -> impl Iterator<Item = Header<'_>> {
        let id = self.id.as_ref();
        let id = id.map(|id| (request_id::HEADER.as_bytes(), id.as_str().as_bytes()));
        [hsts(self.secured.as_deref()), id].into_iter().flatten()
    }
}

/// The `Strict-Transport-Security` header, for clients over TLS (RFC 6797 §6.1).
fn hsts(secured: Option<&Secured>) -> Option<Header<'_>> {
    let value = secured?.hsts.as_deref()?;
    Some((b"Strict-Transport-Security", value.as_bytes()))
}

/// A response to a client whose request has no valid header.
pub fn bare(status: u16, why: &str) -> Vec<u8> {
    let body = crate::http::error_body::in_words(status, why);
    let response = ResponseStart {
        version: maitred_http1::Version::Http11,
        status,
        reason: None,
        framing: ResponseFraming::Length(body.len() as u64),
        keep_alive: false,
        date: &http_date(),
    };
    let mut out = Vec::with_capacity(512);
    let server = ServerHeaders::default();
    write_head(&mut out, &response, [PLAIN].into_iter().chain(server.all()));
    out.extend_from_slice(body.as_bytes());
    out
}

/// The user name of basic authentication (RFC 7617), unverified.
pub fn basic_user(authorization: Option<&[u8]>) -> Vec<u8> {
    let parts = authorization.and_then(|field| field.split_at_checked(6));
    let Some((_, token)) = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"basic "))
    else {
        return Vec::new();
    };
    let mut user = decode_base64(token.trim_ascii());
    match user.iter().position(|&byte| byte == b':') {
        Some(colon) => user.truncate(colon),
        None => user.clear(),
    }
    if user.iter().any(u8::is_ascii_control) {
        user.clear();
    }
    user
}

pub(crate) fn decode_base64(token: &[u8]) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(token).unwrap_or_default()
}
