//! The headers of every response: its own headers, those of the server, and the changes by the
//! `headers` and `expires` rules of the site.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use maitred_rules::response_headers::HeaderPolicy;

use crate::handler::htaccess_response::{Directives, OwnedHeader, ResponseSource, Unevaluated};
use crate::http::headers::{Header, ServerHeaders};
use crate::runtime::clock::expires;

/// The headers that the server and the rules of the site add to a response.
pub struct ResponseHeaders<'r> {
    server: ServerHeaders,
    policy: Option<Arc<HeaderPolicy<'r>>>,
    /// Those of `.htaccess` files, if they change headers.
    directives: Option<Arc<Directives>>,
}

/// The headers of an `expires` rule.
pub struct ExpiryHeaders<'r> {
    cache_control: &'r str,
    expires: String,
}

impl ExpiryHeaders<'_> {
    /// the `Cache-Control` and `Expires` headers.
    pub fn headers(&self) -> [Header<'_>; 2] {
        [(b"Cache-Control", self.cache_control.as_bytes()), (b"Expires", self.expires.as_bytes())]
    }
}

impl<'r> ResponseHeaders<'r> {
    /// Applies the rules of the site to the server's headers.
    pub fn new(
        server: ServerHeaders,
        policy: Option<Arc<HeaderPolicy<'r>>>,
    ) -> ResponseHeaders<'r> {
        ResponseHeaders { server, policy, directives: None }
    }

    /// The same with the changes of `.htaccess` files.
    #[must_use]
    pub fn directed(self, directives: Option<Arc<Directives>>) -> ResponseHeaders<'r> {
        let directives = directives.filter(|directives| directives.changes_headers());
        ResponseHeaders { directives, ..self }
    }

    /// Looks up the files that the changes of `.htaccess` files to these headers depend on.
    pub async fn look_ahead(&self, status: u16, headers: &[Header<'_>], source: ResponseSource) {
        if let Some(directives) = &self.directives {
            Box::pin(directives.look_ahead(status, headers, source)).await;
        }
    }

    /// Whether changes of `.htaccess` files look up files.
    pub fn reads_files(&self) -> bool {
        self.directives.as_ref().is_some_and(|directives| directives.reads_files())
    }

    /// All headers of a response after the changes of `.htaccess` files; none without any.
    ///
    /// # Errors
    /// As [`Directives::change`].
    pub fn change<'h>(
        &self,
        status: u16,
        source: ResponseSource,
        headers: impl FnOnce() -> Vec<Header<'h>>,
    ) -> Result<Option<Vec<OwnedHeader>>, Unevaluated> {
        let directives = self.directives.as_ref();
        directives.map(|directives| directives.change(status, &headers(), source)).transpose()
    }

    /// All headers of a response with these headers of its own. A header of the server is left out
    /// if the response `has` one of this name.
    pub fn complete<'h>(
        &'h self,
        headers: impl Iterator<Item = Header<'h>>,
        has: impl Fn(&[u8]) -> bool,
    ) -> impl Iterator<Item = Header<'h>> {
        let policy = self.policy.as_deref();
        let server = self.server.all().filter(move |(name, _)| !has(name));
        let headers = headers.chain(server);
        let remaining = headers.filter(|(name, _)| self.retains(name));
        remaining.chain(policy.into_iter().flat_map(HeaderPolicy::fields))
    }

    fn retains(&self, name: &[u8]) -> bool {
        let policy = self.policy.as_deref();
        policy.is_none_or(|policy| policy.keeps(name))
    }

    /// The headers of the `expires` rule for this response. None if the response has a
    /// `Cache-Control` or `Expires` header of its own. `find` returns a header's value.
    pub fn expiry<'f>(
        &self,
        status: u16,
        find: impl Fn(&str) -> Option<&'f [u8]>,
    ) -> Option<ExpiryHeaders<'r>> {
        let policy = self.policy.as_deref()?;
        if find("cache-control").or_else(|| find("expires")).is_some() {
            return None;
        }
        let expiry = policy.expiry(status, find("content-type").unwrap_or_default())?;
        Some(ExpiryHeaders { cache_control: expiry.cache_control, expires: expires(expiry.after) })
    }

    /// Removes the header lines that the rules replace or remove.
    pub fn filter_lines(&self, lines: &Bytes) -> Bytes {
        if headers_of_lines(lines).all(|(name, _)| self.retains(name)) {
            return lines.clone();
        }
        let mut retained = BytesMut::with_capacity(lines.len());
        for (name, value) in headers_of_lines(lines).filter(|(name, _)| self.retains(name)) {
            for part in [name, b": ", value, b"\r\n"] {
                retained.extend_from_slice(part);
            }
        }
        retained.freeze()
    }
}

/// Splits header lines into names and values.
pub fn headers_of_lines(lines: &[u8]) -> impl Iterator<Item = Header<'_>> {
    let lines = lines.split(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii_start()))
    })
}

/// The value of the first header of this name.
pub fn find<'h>(mut headers: impl Iterator<Item = Header<'h>>, name: &str) -> Option<&'h [u8]> {
    let found = headers.find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()));
    found.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::request_id::RequestId;

    #[test]
    fn a_header_of_the_response_replaces_the_servers() {
        let server = ServerHeaders { secured: None, id: Some(RequestId::next()) };
        let headers = ResponseHeaders::new(server, None);
        let own: [Header<'_>; 1] = [(b"x-request-id", b"its-own")];
        let has = |name: &[u8]| name.eq_ignore_ascii_case(own[0].0);
        assert_eq!(headers.complete(own.into_iter(), has).collect::<Vec<_>>(), own);
        let servers: Vec<_> = headers.complete([].into_iter(), |_| false).collect();
        assert_eq!(servers.len(), 1);
        assert_eq!(servers[0].0, b"X-Request-Id");
    }

    #[test]
    fn ready_made_lines_are_headers() {
        let lines = b"A: 1\r\nB:2\r\nno header\r\n";
        let headers: Vec<_> = headers_of_lines(lines).collect();
        assert_eq!(headers, [(&b"A"[..], &b"1"[..]), (b"B", b"2")]);
    }
}
