//! A request as the cache sees it.

use crate::headers::{self, Field};

/// The request line, and the connection's context.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a str,
    /// Whether the client uses TLS, to this server or to a trusted proxy.
    pub is_https: bool,
    /// The host that selected the site.
    pub host: &'a str,
    /// The server's port as scripts see it; `None` if it is the scheme's default port or a trusted
    /// proxy has set it.
    pub port: Option<u16>,
    /// The path as the client sent it.
    pub path: &'a str,
    /// The query as the client sent it.
    pub query: Option<&'a str>,
    /// Whether the request has a body.
    pub has_body: bool,
    /// It comes through a proxy that is trusted for the scheme.
    pub by_proxy: bool,
    /// It comes through a proxy that is trusted for the `Forwarded` header.
    pub by_forwarded: bool,
}

/// Headers that no key contains although an application may use them: for links to another host or
/// scheme, for another path or method, to send a part of the page, or as credentials. The list is
/// from "Practical Web Cache Poisoning" and "Web Cache Entanglement" (J. Kettle 2018, 2020), from
/// the word list of Param Miner those that PHP applications and frameworks read, and from the
/// references of htmx, Turbo, Unpoly, Inertia, Livewire, October and Winter, Alpine AJAX, Datastar,
/// Shopware's Store API and Magento's GraphQL; and from the manuals of proxies that authenticate
/// clients, oauth2-proxy, Authelia, Authentik, Cloudflare Access, Tailscale, nginx and those of
/// Google, Amazon and Microsoft, Envoy, Kong, Keycloak, SiteMinder and Vouch, those that name the
/// user; and those that name the cart of WooCommerce and OpenCart. Client addresses
/// (`X-Forwarded-For`) are not listed: behind a proxy that is not configured as trusted, no
/// response would be stored. The names are sorted.
const UNKEYED: [&str; 140] = [
    "api-key",
    "apikey",
    "base-url",
    "cart-token",
    "cf-access-authenticated-user-email",
    "cf-access-jwt-assertion",
    "cf-visitor",
    "client-cert",
    "cloudfront-forwarded-proto",
    "content-currency",
    "datastar-request",
    "forwarded",
    "forwarded-proto",
    "front-end-https",
    "https",
    "hx-boosted",
    "hx-current-url",
    "hx-history-restore-request",
    "hx-prompt",
    "hx-request",
    "hx-target",
    "hx-trigger",
    "hx-trigger-name",
    "profile",
    "proxy-host",
    "proxy-url",
    "remote-user",
    "request-uri",
    "sm-user",
    "ssl-offloaded",
    "store",
    "sw-access-key",
    "sw-context-token",
    "sw-currency-id",
    "sw-language-id",
    "tailscale-user-login",
    "turbo-frame",
    "turbolinks-referrer",
    "unencoded-url",
    "woocommerce-session",
    "x-access-token",
    "x-alpine-request",
    "x-alpine-target",
    "x-amzn-oidc-data",
    "x-amzn-oidc-identity",
    "x-api-key",
    "x-apikey",
    "x-arr-clientcert",
    "x-arr-ssl",
    "x-auth-email",
    "x-auth-request-email",
    "x-auth-request-user",
    "x-auth-token",
    "x-auth-userid",
    "x-auth-username",
    "x-authenticated-userid",
    "x-authentik-username",
    "x-authorization",
    "x-barba",
    "x-client-cert",
    "x-consumer-id",
    "x-consumer-username",
    "x-credential-identifier",
    "x-forward-proto",
    "x-forwarded-access-token",
    "x-forwarded-client-cert",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-preferred-username",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-forwarded-uri",
    "x-forwarded-user",
    "x-goog-authenticated-user-email",
    "x-goog-iap-jwt-assertion",
    "x-host",
    "x-http-destinationurl",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-http-path-override",
    "x-https",
    "x-ic-request",
    "x-inertia",
    "x-inertia-error-bag",
    "x-inertia-partial-component",
    "x-inertia-partial-data",
    "x-inertia-partial-except",
    "x-inertia-reset",
    "x-inertia-version",
    "x-livewire",
    "x-livewire-navigate",
    "x-magento-cache-id",
    "x-method-override",
    "x-ms-client-principal",
    "x-ms-client-principal-name",
    "x-oc-session",
    "x-october-request-flash",
    "x-october-request-handler",
    "x-october-request-partials",
    "x-original-host",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-pjax",
    "x-pjax-container",
    "x-proxy-url",
    "x-remote-user",
    "x-requested-with",
    "x-rewrite-url",
    "x-scheme",
    "x-server-name",
    "x-server-port",
    "x-session-token",
    "x-ssl",
    "x-ssl-cert",
    "x-token",
    "x-up-context",
    "x-up-fail-context",
    "x-up-fail-mode",
    "x-up-fail-target",
    "x-up-mode",
    "x-up-target",
    "x-up-validate",
    "x-up-version",
    "x-url-scheme",
    "x-vouch-user",
    "x-wap-profile",
    "x-webauth-user",
    "x-winter-request-flash",
    "x-winter-request-handler",
    "x-winter-request-partials",
];

/// Beginnings of further such names: certificates of clients by Cloudflare, CloudFront,
/// ingress-nginx, Amazon's load balancer, Kong, Traefik, HAProxy Ingress and what nginx's and
/// HAProxy's manuals show, and users by Pomerium.
const UNKEYED_STARTS: [&str; 9] = [
    CLOUDFLARE_CERT,
    "cf-client-cert-",
    "cloudfront-viewer-cert-",
    "ssl-client-",
    "x-amzn-mtls-",
    "x-client-cert-",
    "x-forwarded-tls-client-",
    "x-pomerium-",
    X_CERT,
];

/// How the headers of Cloudflare's "TLS client auth headers" begin, which all requests have.
const CLOUDFLARE_CERT: &str = "cf-cert-";

/// How the headers of HAProxy Ingress begin, which all requests have if a certificate is optional.
const X_CERT: &str = "x-ssl-client-";

/// Bytes of the shortest of [`UNKEYED_STARTS`]: most headers of a browser are shorter.
const SHORTEST_START: usize = CLOUDFLARE_CERT.len();

/// The lengths of the names in [`UNKEYED`] by first letter, a bit for each: most headers of a
/// browser are none of them by that alone.
const LENGTHS: [u64; 26] = {
    let mut lengths = [0; 26];
    let mut at = 0;
    while at < UNKEYED.len() {
        let name = UNKEYED[at].as_bytes();
        lengths[(name[0] - b'a') as usize] |= 1 << name.len();
        at += 1;
    }
    lengths
};

/// The headers of this list that a trusted proxy sets or forwards: the key contains their values,
/// so that a forged value only selects a separate cache entry.
pub const PROXY_HEADERS: [&str; 16] = [
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

/// A request whose headers have been scanned once.
#[derive(Debug, Clone)]
pub struct CacheRequest<'a, H> {
    /// The request line.
    pub request: Request<'a>,
    fields: H,
    /// It has a `Cookie` header.
    pub has_cookies: bool,
    /// It has an `Authorization` header.
    pub has_authorization: bool,
    /// It has an `If-None-Match` or `If-Modified-Since` header.
    pub is_conditional: bool,
    /// It has an `If-Match` or `If-Unmodified-Since` header, which only the origin evaluates (RFC
    /// 9111 §4.3.2).
    pub has_precondition: bool,
    /// It has a `Range` header.
    pub has_range: bool,
    /// It has a `Cache-Control` or `Pragma` header.
    pub has_directives: bool,
    /// It has a header that could poison the cache.
    pub has_unkeyed: bool,
    /// A trusted proxy has sent one of [`PROXY_HEADERS`] or `Forwarded`.
    pub has_proxied: bool,
}

impl<'a, H: Iterator<Item = Field<'a>> + Clone> CacheRequest<'a, H> {
    /// Scans the headers of a request.
    pub fn survey(request: Request<'a>, fields: H) -> CacheRequest<'a, H> {
        let mut asked = CacheRequest {
            request,
            fields: fields.clone(),
            has_cookies: false,
            has_authorization: false,
            is_conditional: false,
            has_precondition: false,
            has_range: false,
            has_directives: false,
            has_unkeyed: false,
            has_proxied: false,
        };
        for (name, value) in fields {
            asked.see(name, value);
        }
        asked
    }

    fn see(&mut self, name: &[u8], value: &[u8]) {
        let is = |wanted: &str| headers::is(name, wanted);
        match name.len() {
            5 if is("range") => self.has_range = true,
            6 if is("cookie") => self.has_cookies = true,
            6 if is("pragma") => self.has_directives = true,
            8 if is("if-match") => self.has_precondition = true,
            13 if is("authorization") => self.has_authorization = true,
            13 if is("cache-control") => self.has_directives = true,
            13 if is("if-none-match") => self.is_conditional = true,
            17 if is("if-modified-since") => self.is_conditional = true,
            19 if is("if-unmodified-since") => self.has_precondition = true,
            _ => {}
        }
        // Continues after the first match: the site may have put that header into the key, and a
        // header set by a proxy may follow.
        if is_unkeyed(name) && !says_no_certificate(name, value) {
            if self.is_proxied(name) { self.has_proxied = true } else { self.has_unkeyed = true }
        }
    }

    /// Whether the key contains the value of this header.
    fn is_proxied(&self, name: &[u8]) -> bool {
        let request = &self.request;
        let is = |wanted: &str| headers::is(name, wanted);
        let is_forwarded = request.by_forwarded && is("forwarded");
        is_forwarded || (request.by_proxy && PROXY_HEADERS.iter().any(|name| is(name)))
    }

    /// Whether it has a header of [`UNKEYED`] that is not in `keyed`.
    pub fn has_unkeyed_but(&self, keyed: &[String]) -> bool {
        let is_keyed = |name: &[u8]| keyed.iter().any(|keyed| headers::is(name, keyed));
        let named = self.fields().filter(|(name, value)| !says_no_certificate(name, value));
        let mut names = named.map(|(name, _)| name);
        self.has_unkeyed
            && names.any(|name| is_unkeyed(name) && !self.is_proxied(name) && !is_keyed(name))
    }

    /// The headers.
    pub fn fields(&self) -> H {
        self.fields.clone()
    }

    /// The value of the first header with this name.
    pub fn first(&self, name: &str) -> Option<&'a [u8]> {
        headers::first(self.fields(), name)
    }

    /// The cookies: names and values (RFC 6265 §4.2.1).
    pub fn cookies(&self) -> impl Iterator<Item = Field<'a>> {
        let pairs = self.cookies_as_written();
        pairs.map(|(name, value)| (name.trim_ascii(), value.trim_ascii()))
    }

    /// The cookies as PHP parses them: it trims white space before a name, and nowhere else.
    pub fn cookies_as_written(&self) -> impl Iterator<Item = Field<'a>> {
        let lines = headers::values(self.fields(), "cookie");
        let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
        pairs.map(|pair| {
            let pair = pair.trim_ascii_start();
            match memchr::memchr(b'=', pair) {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (pair, &b""[..]),
            }
        })
    }

    /// Whether the response to its method can be stored: GET. HEAD is served from stored GET
    /// responses.
    pub fn is_get(&self) -> bool {
        self.request.method == "GET"
    }

    /// Whether the method is HEAD.
    pub fn is_head(&self) -> bool {
        self.request.method == "HEAD"
    }
}

/// Whether a proxy says by this header that the client has no certificate, as nginx, HAProxy and
/// Cloudflare do. A certificate has a header with another value as well.
fn says_no_certificate(name: &[u8], value: &[u8]) -> bool {
    let value = value.trim_ascii();
    let is = |wanted: &str| headers::is(name, wanted);
    let begins =
        |start: &str| name.get(..start.len()).is_some_and(|begin| headers::is(begin, start));
    match value {
        // HAProxy puts the value into quotes (`%{+Q}`).
        b"" | b"\"\"" => {
            let is_own = is("ssl-client-subject-dn") || is("ssl-client-verify");
            is_own || begins(CLOUDFLARE_CERT) || begins(X_CERT)
        }
        b"NONE" => is("x-ssl-client-verify") || is("ssl-client-verify"),
        b"false" => begins(CLOUDFLARE_CERT),
        _ => false,
    }
}

fn is_unkeyed(name: &[u8]) -> bool {
    let letter = name.first().map(|first| first.to_ascii_lowercase().wrapping_sub(b'a'));
    let lengths = letter.and_then(|letter| LENGTHS.get(usize::from(letter)));
    let has_length = |lengths: &u64| name.len() < 64 && lengths >> name.len() & 1 == 1;
    lengths.is_some_and(has_length) && is_listed(name) || has_unkeyed_start(name)
}

/// Whether a name begins as one of [`UNKEYED_STARTS`].
fn has_unkeyed_start(name: &[u8]) -> bool {
    let first = name.first().map(u8::to_ascii_lowercase);
    let begins = |start: &&str| {
        let begin = name.get(..start.len());
        // Most have another letter.
        start.bytes().next() == first && begin.is_some_and(|begin| headers::is(begin, start))
    };
    name.len() > SHORTEST_START && UNKEYED_STARTS.iter().any(begins)
}

/// Looks a name of less than 64 bytes up in [`UNKEYED`].
fn is_listed(name: &[u8]) -> bool {
    let mut bytes = [0; 64];
    let Some(lower) = bytes.get_mut(..name.len()) else {
        return false;
    };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    UNKEYED.binary_search_by(|unkeyed| unkeyed.as_bytes().cmp(lower)).is_ok()
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
        assert!(UNKEYED.is_sorted());
        let by_start = [
            "Cf-Cert-Subject-Dn",
            "CloudFront-Viewer-Cert-Subject",
            "Ssl-Client-Cert",
            "X-Client-Cert-Subject-DN",
            "X-Forwarded-Tls-Client-Cert-Info",
            "X-Pomerium-User",
            "X-SSL-Client-Cert",
            "X-SSL-Client-CN",
            "X-SSL-Client-DN",
            "X-SSL-Client-SHA1",
        ];
        for name in UNKEYED.iter().chain(&by_start) {
            let upper = name.to_ascii_uppercase();
            for name in [*name, &upper] {
                let fields = [(name.as_bytes(), &b"1"[..])];
                let asked = CacheRequest::survey(request(false), fields.into_iter());
                assert!(asked.has_unkeyed && !asked.has_proxied, "{name}");
                assert!(asked.has_unkeyed_but(&["other".to_owned()]), "{name}");
                assert!(!asked.has_unkeyed_but(&[name.to_owned()]), "{name}");
                let asked = CacheRequest::survey(request(true), fields.into_iter());
                assert_ne!(asked.has_unkeyed, asked.has_proxied, "{name}");
            }
        }
        for fields in
            [["X-Requested-With", "X-Forwarded-Host"], ["X-Forwarded-Host", "X-Requested-With"]]
        {
            let fields = fields.map(|name| (name.as_bytes(), &b"1"[..]));
            let asked = CacheRequest::survey(request(true), fields.into_iter());
            assert!(asked.has_unkeyed && asked.has_proxied, "{fields:?}");
        }
        for (name, value) in [
            ("X-SSL-Client-Verify", "NONE"),
            ("X-SSL-Client-S-DN", " "),
            ("X-SSL-Client-DN", ""),
            ("X-SSL-Client-CN", "\"\""),
            ("ssl-client-verify", "NONE"),
            ("ssl-client-subject-dn", ""),
            ("Cf-Cert-Presented", "false"),
            ("cf-cert-subject-dn", ""),
        ] {
            let fields = [(name.as_bytes(), value.as_bytes())];
            let asked = CacheRequest::survey(request(false), fields.into_iter());
            assert!(!asked.has_unkeyed && !asked.has_unkeyed_but(&[]), "{name}: no certificate");
        }
        let long = "x".repeat(64 + "x-pjax".len());
        for name in [
            "Host",
            "X-Forwarded-For",
            "User-Agent",
            "Forwarder",
            "HX-Pages",
            "X-Forwarded-Uses",
            "Ssl-Client",
            "X-SSL-Client",
            "Cf-Certify",
            "X-Forwarded-Tls",
            "",
            &long,
        ] {
            let fields = [(name.as_bytes(), &b"1"[..])];
            let asked = CacheRequest::survey(request(false), fields.into_iter());
            assert!(!asked.has_unkeyed, "{name}");
        }
    }
}
