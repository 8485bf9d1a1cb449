//! A request, as far as a cache wants to know it.

use crate::fields::{self, Field};

/// The line of a request, and what is known of it otherwise.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// Whether the client speaks TLS, with us or with a proxy that is believed.
    pub is_https: bool,
    /// The host that the site was found by.
    pub host: &'a str,
    /// The server's port as scripts are told it, if it is neither the scheme's own nor one that a proxy in
    /// front has said.
    pub port: Option<u16>,
    /// The path as the client wrote it.
    pub path: &'a str,
    /// The query as the client wrote it.
    pub query: Option<&'a str>,
    /// Whether it has a body.
    pub has_body: bool,
    /// It comes from a proxy that is believed in what it says of the scheme.
    pub by_proxy: bool,
    /// It comes from a proxy that is believed in what it says in `Forwarded`.
    pub by_forwarded: bool,
}

/// Fields by which a client can have an application believe something that no key has: links to another
/// host or scheme, another path or method, a part of the page instead of all of it. They are those of
/// "Practical Web Cache Poisoning" and "Web Cache Entanglement" (J. Kettle 2018, 2020), and of the list of
/// Param Miner those that applications and frameworks in PHP read. Addresses of clients (`X-Forwarded-For`)
/// are none of them: who has no trusted proxy but some proxy in front would have nothing kept.
const UNKEYED: [&str; 38] = [
    "forwarded",
    "forwarded-proto",
    "front-end-https",
    "x-arr-ssl",
    "x-forward-proto",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-forwarded-uri",
    "x-host",
    "x-http-destinationurl",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-http-path-override",
    "x-https",
    "x-method-override",
    "x-original-host",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-pjax",
    "x-proxy-url",
    "x-requested-with",
    "x-rewrite-url",
    "x-scheme",
    "x-server-name",
    "x-server-port",
    "x-ssl",
    "x-url-scheme",
    "x-wap-profile",
];

/// More of [`UNKEYED`], which begin with other letters.
const UNKEYED_TOO: [&str; 10] = [
    "base-url",
    "cf-visitor",
    "cloudfront-forwarded-proto",
    "https",
    "profile",
    "proxy-host",
    "proxy-url",
    "request-uri",
    "ssl-offloaded",
    "unencoded-url",
];

/// Of these, those that a trusted proxy in front says or passes on: the key has their values then, so
/// that whoever makes one up has a page of their own.
pub const OF_PROXIES: [&str; 16] = [
    "cf-visitor",
    "cloudfront-forwarded-proto",
    "front-end-https",
    "x-arr-ssl",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-forwarded-uri",
    "x-original-host",
    "x-scheme",
    "x-url-scheme",
];

/// A request that was looked at once.
#[derive(Debug, Clone)]
pub struct Asked<'a, H> {
    /// Its line.
    pub request: Request<'a>,
    fields: H,
    /// It has a `Cookie`.
    pub has_cookies: bool,
    /// It has an `Authorization`.
    pub has_authorization: bool,
    /// It has an `If-None-Match` or `If-Modified-Since`.
    pub is_conditional: bool,
    /// It has an `If-Match` or `If-Unmodified-Since`, which are for the origin (RFC 9111 §4.3.2).
    pub has_precondition: bool,
    /// It has a `Range`.
    pub has_range: bool,
    /// It has `Cache-Control` or `Pragma`.
    pub has_wishes: bool,
    /// It has a field that could poison what is kept.
    pub has_unkeyed: bool,
    /// It has one of [`OF_PROXIES`], or a `Forwarded`, by a trusted proxy.
    pub has_proxied: bool,
}

impl<'a, H: Iterator<Item = Field<'a>> + Clone> Asked<'a, H> {
    /// Looks at a request with these fields.
    pub fn survey(request: Request<'a>, fields: H) -> Asked<'a, H> {
        let mut asked = Asked {
            request,
            fields: fields.clone(),
            has_cookies: false,
            has_authorization: false,
            is_conditional: false,
            has_precondition: false,
            has_range: false,
            has_wishes: false,
            has_unkeyed: false,
            has_proxied: false,
        };
        for (name, _) in fields {
            asked.see(name);
        }
        asked
    }

    fn see(&mut self, name: &[u8]) {
        let is = |wanted: &str| fields::is(name, wanted);
        match name.len() {
            5 if is("range") => self.has_range = true,
            6 if is("cookie") => self.has_cookies = true,
            6 if is("pragma") => self.has_wishes = true,
            8 if is("if-match") => self.has_precondition = true,
            13 if is("authorization") => self.has_authorization = true,
            13 if is("cache-control") => self.has_wishes = true,
            13 if is("if-none-match") => self.is_conditional = true,
            17 if is("if-modified-since") => self.is_conditional = true,
            19 if is("if-unmodified-since") => self.has_precondition = true,
            _ => {}
        }
        // Also after the first: one that the site has put into the key does not keep the answer out, and what
        // proxies say after it has to be there, too.
        if is_unkeyed(name) {
            match self.is_proxied(name) {
                true => self.has_proxied = true,
                false => self.has_unkeyed = true,
            }
        }
    }

    /// Whether keys have what this field says.
    fn is_proxied(&self, name: &[u8]) -> bool {
        let request = &self.request;
        let is = |wanted: &str| fields::is(name, wanted);
        let is_forwarded = request.by_forwarded && is("forwarded");
        is_forwarded || (request.by_proxy && OF_PROXIES.iter().any(|name| is(name)))
    }

    /// Whether it has a field of [`UNKEYED`] that is none of these names.
    pub fn has_unkeyed_but(&self, keyed: &[String]) -> bool {
        let is_keyed = |name: &[u8]| keyed.iter().any(|keyed| fields::is(name, keyed));
        let mut names = self.fields().map(|(name, _)| name);
        self.has_unkeyed
            && names.any(|name| is_unkeyed(name) && !self.is_proxied(name) && !is_keyed(name))
    }

    /// Its fields.
    pub fn fields(&self) -> H {
        self.fields.clone()
    }

    /// The value of the first field of a name.
    pub fn first(&self, name: &str) -> Option<&'a [u8]> {
        fields::first(self.fields(), name)
    }

    /// Its cookies: names and values (RFC 6265 §4.2.1).
    pub fn cookies(&self) -> impl Iterator<Item = Field<'a>> {
        let pairs = self.cookies_as_written();
        pairs.map(|(name, value)| (name.trim_ascii(), value.trim_ascii()))
    }

    /// The same as PHP has them, which takes white space away before a name and nowhere else.
    pub fn cookies_as_written(&self) -> impl Iterator<Item = Field<'a>> {
        let lines = fields::values(self.fields(), "cookie");
        let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
        pairs.map(|pair| {
            let pair = pair.trim_ascii_start();
            match memchr::memchr(b'=', pair) {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (pair, &b""[..]),
            }
        })
    }

    /// Whether its method is one whose answers are kept: GET. HEAD is answered from what GET left.
    pub fn is_get(&self) -> bool {
        self.request.method == "GET"
    }

    /// Whether it is HEAD.
    pub fn is_head(&self) -> bool {
        self.request.method == "HEAD"
    }
}

fn is_unkeyed(name: &[u8]) -> bool {
    let is = |wanted: &&str| fields::is(name, wanted);
    match name.first().map(u8::to_ascii_lowercase) {
        Some(b'x' | b'f') => UNKEYED.iter().any(is),
        // So long are none that every browser sends, but `User-Agent` and `Connection`.
        _ => matches!(name.len(), 5 | 7..=11 | 13 | 26) && UNKEYED_TOO.iter().any(is),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_that_no_key_has_is_seen_however_it_is_written() {
        let request = |by_proxy| Request {
            method: "GET",
            is_https: false,
            host: "a",
            port: None,
            path: "/",
            query: None,
            has_body: false,
            by_proxy,
            by_forwarded: false,
        };
        for name in UNKEYED.iter().chain(&UNKEYED_TOO) {
            let upper = name.to_ascii_uppercase();
            for name in [*name, &upper] {
                let fields = [(name.as_bytes(), &b"1"[..])];
                let asked = Asked::survey(request(false), fields.into_iter());
                assert!(asked.has_unkeyed && !asked.has_proxied, "{name}");
                assert!(asked.has_unkeyed_but(&["other".to_owned()]), "{name}");
                assert!(!asked.has_unkeyed_but(&[name.to_owned()]), "{name}");
                let asked = Asked::survey(request(true), fields.into_iter());
                assert_ne!(asked.has_unkeyed, asked.has_proxied, "{name}");
            }
        }
        for fields in [
            ["X-Requested-With", "X-Forwarded-Host"],
            ["X-Forwarded-Host", "X-Requested-With"],
        ] {
            let fields = fields.map(|name| (name.as_bytes(), &b"1"[..]));
            let asked = Asked::survey(request(true), fields.into_iter());
            assert!(asked.has_unkeyed && asked.has_proxied, "{fields:?}");
        }
        for name in [
            "Host",
            "X-Forwarded-For",
            "User-Agent",
            "Connection",
            "Forwarder",
        ] {
            let fields = [(name.as_bytes(), &b"1"[..])];
            let asked = Asked::survey(request(false), fields.into_iter());
            assert!(!asked.has_unkeyed, "{name}");
        }
    }
}
