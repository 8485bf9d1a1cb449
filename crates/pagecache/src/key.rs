//! Cache keys.
//!
//! Each part of a key is preceded by its length, so keys with different parts always differ as
//! bytes. The site comes first, so sites never share entries. Path and query are as the client sent
//! them, undecoded: a script sees the raw form, so two spellings of a path may be two pages.

use std::borrow::Cow;

use crate::accept_header;
use crate::cache_request::{CacheRequest, PROXY_HEADERS};
use crate::headers::{self, Field};
use crate::settings::{KeyParts, Pattern, Settings};
use crate::vary::{self, Vary};

/// Longest key in bytes; requests with a longer key bypass the cache.
pub const MAX_KEY_BYTES: usize = 16 * 1024;
/// Most query parameters that are sorted and filtered; a query with more is used unchanged.
const MAX_PARAMETERS: usize = 256;

/// Markers of the type of the part that follows.
const HTTP: u8 = b'h';
const HTTPS: u8 = b's';
const PORT: u8 = b'n';
const PROXIED: u8 = b'p';
const FORWARDED: u8 = b'w';
const FIELD: u8 = b'f';
const COOKIE: u8 = b'c';
const FORMAT: u8 = b'a';
const ABSENT: u8 = b'-';
const VARIANT: u8 = b'v';
const CODING: u8 = b'z';

/// A cache key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Box<[u8]>);

/// The key of a request, and the query that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Primary<'a> {
    /// The key.
    pub key: Key,
    /// The query for the script: it contains only what the key contains.
    pub query: Option<Cow<'a, str>>,
}

/// The key is longer than [`MAX_KEY_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl Key {
    /// The key of a request to a site.
    ///
    /// # Errors
    /// When the key would be too long.
    pub fn primary<'a, H: Iterator<Item = Field<'a>> + Clone>(
        site: &str,
        settings: &Settings,
        asked: &CacheRequest<'a, H>,
    ) -> Result<Primary<'a>, TooLong> {
        let parts = &settings.key;
        let request = &asked.request;
        let query = request.query.map(|query| canonical_query(parts, query));
        let query = query.filter(|query| !query.is_empty() || request.query == Some(""));
        let room = site.len() + request.host.len() + request.path.len();
        let mut bytes = Vec::with_capacity(room + query.as_ref().map_or(0, |q| q.len()) + 32);
        put(&mut bytes, site.as_bytes());
        bytes.push(if request.is_https { HTTPS } else { HTTP });
        put_lower(&mut bytes, request.host.as_bytes());
        put(&mut bytes, request.path.as_bytes());
        put_maybe(&mut bytes, query.as_ref().map(|query| query.as_bytes()));
        if let Some(port) = request.port {
            bytes.push(PORT);
            bytes.extend_from_slice(&port.to_be_bytes());
        }
        if asked.has_proxied {
            put_proxied(&mut bytes, asked);
        }
        for name in &parts.headers {
            bytes.push(FIELD);
            put(&mut bytes, name.as_bytes());
            let value = vary::value(asked.fields(), &name.to_ascii_lowercase());
            put_maybe(&mut bytes, value.as_deref());
        }
        for name in &parts.cookies {
            bytes.push(COOKIE);
            put(&mut bytes, name.as_bytes());
            let mut cookies = asked.cookies();
            let named = cookies.find(|(cookie, _)| *cookie == name.as_bytes());
            put_maybe(&mut bytes, named.map(|(_, value)| value));
        }
        // The script may choose its format by that, without `Vary`. Not a `Vary` of the cache's
        // own: each request for another format would hide the pages of browsers.
        if !settings.ignore_headers.vary && !accept_header::is_ordinary(asked.fields()) {
            bytes.push(FORMAT);
            put_maybe(&mut bytes, vary::value(asked.fields(), "accept").as_deref());
        }
        let key = Key::of(bytes)?;
        Ok(Primary { key, query })
    }

    /// The key of a variant: the response for these request headers, of several that `vary`
    /// separates.
    ///
    /// # Errors
    /// When the key would be too long.
    pub fn variant<'a>(
        &self,
        vary: &Vary,
        fields: impl Iterator<Item = Field<'a>> + Clone,
    ) -> Result<Key, TooLong> {
        let mut bytes = self.0.to_vec();
        bytes.push(VARIANT);
        for name in vary.names() {
            put(&mut bytes, name.as_bytes());
            put_maybe(&mut bytes, vary::value(fields.clone(), name).as_deref());
        }
        Key::of(bytes)
    }

    /// The key of a compressed copy of a response, stored beside the original.
    ///
    /// # Errors
    /// When the key would be too long.
    pub fn coded(&self, coding: &str) -> Result<Key, TooLong> {
        let mut bytes = self.0.to_vec();
        bytes.push(CODING);
        put(&mut bytes, coding.as_bytes());
        Key::of(bytes)
    }

    /// A key that was stored earlier.
    ///
    /// # Errors
    /// When it is longer than any valid key.
    pub fn of(bytes: Vec<u8>) -> Result<Key, TooLong> {
        match bytes.len() {
            ..=MAX_KEY_BYTES => Ok(Key(bytes.into())),
            _ => Err(TooLong),
        }
    }

    /// The name of the site in it; empty if the key is none of a request.
    pub fn site(&self) -> &[u8] {
        let Some((length, rest)) = self.0.split_first_chunk() else {
            return &[];
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        rest.get(..length).unwrap_or_default()
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Adds the headers that trusted proxies set or forward: a forged value only selects a separate
/// entry.
fn put_proxied<'a, H: Iterator<Item = Field<'a>> + Clone>(
    bytes: &mut Vec<u8>,
    asked: &CacheRequest<'a, H>,
) {
    for name in PROXY_HEADERS {
        bytes.push(PROXIED);
        put_maybe(bytes, vary::value(asked.fields(), name).as_deref());
    }
    let forwarded = headers::values(asked.fields(), "forwarded").flat_map(said_beside_addresses);
    for said in forwarded {
        bytes.push(FORWARDED);
        put(bytes, said);
    }
}

/// The content of a `Forwarded` header (RFC 7239 §4) except the addresses in it. The filter keeps
/// every pair that any parser could find: quotes, escapes and pairs inside another pair's value
/// hide nothing.
fn said_beside_addresses(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let pairs = value.split(|byte| matches!(byte, b',' | b';'));
    let pairs = pairs.map(<[u8]>::trim_ascii);
    pairs.filter(|pair| !pair.is_empty()).filter(|pair| {
        let (name, value) = match memchr::memchr(b'=', pair) {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (&b""[..], *pair),
        };
        let is_address = ["for", "by"].iter().any(|of| headers::is(name, of));
        !is_address || value.contains(&b'=')
    })
}

fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(part);
}

fn put_lower(bytes: &mut Vec<u8>, part: &[u8]) {
    let start = bytes.len() + size_of::<u32>();
    put(bytes, part);
    bytes[start..].make_ascii_lowercase();
}

fn put_maybe(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    match part {
        None => bytes.push(ABSENT),
        Some(part) => {
            bytes.push(FIELD);
            put(bytes, part);
        }
    }
}

/// A query without the ignored parameters, and sorted if the site says that the order makes no
/// difference.
pub fn canonical_query<'a>(parts: &KeyParts, query: &'a str) -> Cow<'a, str> {
    if (parts.ignore_parameters.is_empty() && !parts.sort_parameters) || query.is_empty() {
        return Cow::Borrowed(query);
    }
    if memchr::memchr_iter(b'&', query.as_bytes()).count() >= MAX_PARAMETERS {
        return Cow::Borrowed(query);
    }
    let is_ignored = |parameter: &&str| {
        let name = parameter.split('=').next().unwrap_or_default();
        let ignores = |pattern: &Pattern| pattern.matches(name.as_bytes());
        parts.ignore_parameters.iter().any(ignores)
    };
    let mut kept: Vec<&str> = query.split('&').collect();
    let before = kept.len();
    kept.retain(|parameter| !is_ignored(parameter));
    let is_sorted = !parts.sort_parameters || kept.is_sorted_by_key(|parameter| name_of(parameter));
    if kept.len() == before && is_sorted {
        return Cow::Borrowed(query);
    }
    if !is_sorted {
        // The sort is stable: PHP takes the last value of a name, and builds arrays from `a[]`.
        kept.sort_by_key(|parameter| name_of(parameter));
    }
    Cow::Owned(kept.join("&"))
}

/// The sort key of a parameter: its name up to the first `[`, since the order of `a[]=1&a[x]=2`
/// determines the indexes.
fn name_of(parameter: &str) -> &str {
    let name = parameter.split('=').next().unwrap_or_default();
    let end = name.find('[').or_else(|| name.find("%5B"));
    let end = end.or_else(|| name.find("%5b")).unwrap_or(name.len());
    &name[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cache_request::Request;

    const GET: Request<'static> = Request {
        method: "GET",
        is_https: false,
        host: "a.example",
        port: None,
        path: "/",
        query: None,
        has_body: false,
        by_proxy: false,
        by_forwarded: false,
    };

    fn settings(parts: &KeyParts) -> Settings {
        Settings { key: parts.clone(), ..Settings::default() }
    }

    fn key<'a>(parts: &KeyParts, request: Request<'a>, fields: &[Field<'a>]) -> Key {
        let asked = CacheRequest::survey(request, fields.iter().copied());
        Key::primary("site", &settings(parts), &asked).unwrap().key
    }

    fn query(ignore: &[&str], sort: bool, query: &str) -> String {
        let parts = KeyParts {
            ignore_parameters: ignore.iter().map(|name| Pattern::new(name)).collect(),
            sort_parameters: sort,
            ..KeyParts::default()
        };
        canonical_query(&parts, query).into_owned()
    }

    #[test]
    fn a_host_is_the_same_in_any_case_and_a_path_is_not() {
        let parts = KeyParts::default();
        let of = |host, path| key(&parts, Request { host, path, ..GET }, &[]);
        assert_eq!(of("a.example", "/a"), of("A.Example", "/a"));
        assert_ne!(of("a.example", "/a"), of("a.example", "/A"));
        assert_ne!(of("a.example", "/a"), of("a.example", "/%61"));
        assert_ne!(of("a.example", "/a"), of("a.example", "/a%00"));
        assert_ne!(of("a.example", "/a"), of("a.example", "//a"));
    }

    #[test]
    fn scheme_site_and_an_empty_query_make_a_difference() {
        let parts = KeyParts::default();
        let plain = key(&parts, GET, &[]);
        let is_https = true;
        assert_ne!(plain, key(&parts, Request { is_https, ..GET }, &[]));
        assert_ne!(plain, key(&parts, Request { query: Some(""), ..GET }, &[]));
        let asked = CacheRequest::survey(GET, [].into_iter());
        assert_ne!(plain, Key::primary("other", &settings(&parts), &asked).unwrap().key);
    }

    #[test]
    fn parameters_that_make_no_difference_are_not_seen_by_the_script_either() {
        let ignored = ["utm_*", "fbclid"];
        assert_eq!(query(&ignored, false, "utm_source=x&a=1&fbclid=2&b"), "a=1&b");
        assert_eq!(query(&ignored, false, "utm_source=x"), "");
        assert_eq!(query(&ignored, false, "a=utm_source"), "a=utm_source");
        assert_eq!(query(&[], true, "b=2&a=1&b=1"), "a=1&b=2&b=1");
        assert_eq!(query(&[], true, "b=1&a[]=2&a[x]=1&a[]=0"), "a[]=2&a[x]=1&a[]=0&b=1");
        let many = vec!["b=1&a=1"; 300].join("&");
        assert_eq!(query(&[], true, &many), many);
    }

    #[test]
    fn a_query_of_ignored_parameters_is_the_same_as_none() {
        let parts =
            KeyParts { ignore_parameters: vec![Pattern::new("utm_*")], ..KeyParts::default() };
        let asked = Request { query: Some("utm_source=x"), ..GET };
        assert_eq!(key(&parts, asked, &[]), key(&parts, GET, &[]));
        let asked = CacheRequest::survey(asked, [].into_iter());
        assert_eq!(Key::primary("site", &settings(&parts), &asked).unwrap().query, None);
    }

    #[test]
    fn chosen_fields_and_cookies_make_a_difference_and_no_others() {
        let parts = KeyParts {
            headers: vec!["X-Device".to_owned()],
            cookies: vec!["lang".to_owned()],
            ..KeyParts::default()
        };
        let of = |fields: &[Field<'static>]| key(&parts, GET, fields);
        let plain = of(&[]);
        assert_eq!(plain, of(&[(b"Cookie", b"other=lang; LANG=de"), (b"X-Other", b"a")]));
        assert_ne!(plain, of(&[(b"x-device", b"phone")]));
        assert_ne!(plain, of(&[(b"x-device", b"")]));
        assert_ne!(plain, of(&[(b"Cookie", b"a=b; lang=de")]));
        assert_ne!(of(&[(b"Cookie", b"lang=de")]), of(&[(b"x-device", b"de")]));
    }

    #[test]
    fn another_format_than_that_of_browsers_makes_a_difference_unless_vary_is_ignored() {
        let mut settings = Settings::default();
        let of = |settings: &Settings, accept: &'static str| {
            let fields = [(&b"Accept"[..], accept.as_bytes())];
            let asked = CacheRequest::survey(GET, fields.into_iter());
            Key::primary("site", settings, &asked).unwrap().key
        };
        let plain = key(&KeyParts::default(), GET, &[]);
        assert_eq!(of(&settings, "text/html, */*;q=0.8"), plain);
        let json = of(&settings, "application/json, text/plain");
        assert_ne!(json, plain);
        assert_eq!(of(&settings, "application/json,text/plain"), json);
        assert_ne!(of(&settings, "application/json"), json);
        settings.ignore_headers.vary = true;
        assert_eq!(of(&settings, "application/json"), plain);
    }

    #[test]
    fn a_port_and_what_proxies_say_make_a_difference() {
        let parts = KeyParts::default();
        let port = |port| key(&parts, Request { port, ..GET }, &[]);
        assert_ne!(port(None), port(Some(8080)));
        assert_ne!(port(Some(8081)), port(Some(8080)));
        let proxied = Request { by_proxy: true, by_forwarded: true, ..GET };
        let of = |said: &'static str| key(&parts, proxied, &[(b"forwarded", said.as_bytes())]);
        let plain = of("for=192.0.2.1; Proto=https");
        for same in ["Proto=https;by=a;for=\"[::1]\"", "For=x, BY=unknown,, Proto=https"] {
            assert_eq!(of(same), plain, "{same}");
        }
        for other in [
            "proto=http",
            "for=192.0.2.1",
            "Proto=https;host=a",
            "host=a, Proto=https",
            "for=a=b;Proto=https",
            "for=\"a;host=b\";Proto=https",
            "forx=a;Proto=https",
            "x;Proto=https",
        ] {
            assert_ne!(of(other), plain, "{other}");
        }
    }

    #[test]
    fn what_proxies_say_makes_a_difference_in_whatever_order_fields_come() {
        const PART: Field<'static> = (b"X-Requested-With", b"XMLHttpRequest");
        let parts =
            KeyParts { headers: vec!["X-Requested-With".to_owned()], ..KeyParts::default() };
        let proxied = Request { by_proxy: true, by_forwarded: true, ..GET };
        let of = |fields: [Field<'static>; 2]| key(&parts, proxied, &fields);
        let evil: [Field<'static>; 2] =
            [(b"X-Forwarded-Host", b"evil.example"), (b"Forwarded", b"host=evil.example")];
        let plain = key(&parts, proxied, &[PART]);
        for said in evil {
            assert_ne!(of([PART, said]), plain, "{said:?}");
            assert_eq!(of([PART, said]), of([said, PART]), "{said:?}");
        }
    }

    #[test]
    fn a_key_that_is_too_long_is_none() {
        let long = "a".repeat(MAX_KEY_BYTES);
        let asked = CacheRequest::survey(Request { path: &long, ..GET }, [].into_iter());
        assert_eq!(Key::primary("site", &Settings::default(), &asked), Err(TooLong));
    }

    type Parts = (String, bool, String, String, Option<String>, Option<String>);

    fn parts() -> impl Strategy<Value = Parts> {
        let text = || "[-a-c:/?&=%\\x00]{0,4}";
        let maybe = || proptest::option::of("[-a-c:/?&=%]{0,4}");
        (text(), any::<bool>(), "[a-c.:]{0,4}", text(), maybe(), maybe())
    }

    fn of_parts(parts: &Parts) -> Key {
        let (site, is_https, host, path, query, field) = parts;
        let key_parts = KeyParts { headers: vec!["x-a".to_owned()], ..KeyParts::default() };
        let query = query.as_deref();
        let request = Request { is_https: *is_https, host, path, query, ..GET };
        let fields = field.iter().map(|value| (&b"X-A"[..], value.as_bytes()));
        let asked = CacheRequest::survey(request, fields);
        Key::primary(site, &settings(&key_parts), &asked).unwrap().key
    }

    proptest! {
        #[test]
        fn requests_with_one_key_are_the_same_request(one in parts(), two in parts()) {
            let are_one = of_parts(&one) == of_parts(&two);
            prop_assert_eq!(are_one, one == two);
        }

        #[test]
        fn variants_and_codings_of_different_keys_differ(one in parts(), two in parts()) {
            let vary = Vary::of_names(vec!["x-b".to_owned()]);
            let (one_key, two_key) = (of_parts(&one), of_parts(&two));
            let variant = |key: &Key| key.variant(&vary, [].into_iter()).unwrap();
            prop_assert_ne!(variant(&one_key), two_key.clone());
            prop_assert_ne!(variant(&one_key), one_key.coded("gzip").unwrap());
            prop_assert_eq!(variant(&one_key) == variant(&two_key), one_key == two_key);
        }
    }
}
