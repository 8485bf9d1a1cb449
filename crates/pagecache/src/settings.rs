//! The cache settings of a site, under nginx's names where nginx has the setting.

use std::fmt;

use memchr::memmem;
use serde::{Deserialize, Serialize};

use crate::fingerprint::fingerprint;

/// A name in which each `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    start: String,
    /// The text after the first `*`, further ones included; `None`: there is no `*`.
    end: Option<String>,
}

impl Pattern {
    /// Parses a pattern such as `PHPSESSID`, `wordpress_logged_in_*` or `*_session_*`.
    pub fn new(text: &str) -> Pattern {
        let parts = text.split_once('*');
        Pattern {
            start: parts.map_or(text, |(start, _)| start).to_owned(),
            end: parts.map(|(_, end)| end.to_owned()),
        }
    }

    /// Whether it matches a name.
    pub fn matches(&self, name: &[u8]) -> bool {
        let Some(rest) = name.strip_prefix(self.start.as_bytes()) else {
            return false;
        };
        let Some(end) = &self.end else {
            return rest.is_empty();
        };
        let (inner, last) = end.rsplit_once('*').unwrap_or(("", end));
        let Some(mut rest) = rest.strip_suffix(last.as_bytes()) else {
            return false;
        };
        // The first place of each part leaves the most to the next ones.
        inner.split('*').all(|part| match memmem::find(rest, part.as_bytes()) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

impl Pattern {
    /// The pattern up to its first bracket; `None`: it has no index.
    pub fn before_index(&self) -> Option<Pattern> {
        let text = self.to_string();
        let (base, _) = text.split_once('[')?;
        Some(Pattern::new(base))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.start)?;
        match &self.end {
            Some(end) => write!(f, "*{end}"),
            None => Ok(()),
        }
    }
}

/// A condition on requests: it holds if any of these matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestMatcher {
    /// It has a cookie with such a name.
    pub cookies: Vec<Pattern>,
    /// It has a header with this name, with any value but the empty one and `0`.
    pub headers: Vec<String>,
    /// Its path matches.
    pub paths: Vec<Pattern>,
    /// Its query has a parameter with such a name.
    pub parameters: Vec<Pattern>,
    /// Its method is one of these.
    pub methods: Vec<String>,
}

impl RequestMatcher {
    /// Whether it matches no request.
    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
            && self.headers.is_empty()
            && self.paths.is_empty()
            && self.parameters.is_empty()
            && self.methods.is_empty()
    }
}

/// The parts of the cache key beside site, scheme, host and path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyParts {
    /// Query parameters that are left out. They are hidden from the script, too: a response that
    /// shows one would be served to all clients.
    pub ignore_parameters: Vec<Pattern>,
    /// Sort the parameters.
    pub sort_parameters: bool,
    /// Headers whose values are part of the key.
    pub headers: Vec<String>,
    /// Cookies whose values are part of the key.
    pub cookies: Vec<String>,
}

/// Response headers that are ignored (nginx's `fastcgi_ignore_headers`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoreHeaders {
    /// The `X-Accel-Expires` header.
    pub x_accel_expires: bool,
    /// The `Expires` header.
    pub expires: bool,
    /// The `Cache-Control` header, and the targeted headers.
    pub cache_control: bool,
    /// The `Set-Cookie` header: a response that has it is stored, with it.
    pub set_cookie: bool,
    /// The `Vary` header: all requests get the same response.
    pub vary: bool,
}

/// The lifetime of responses that do not state one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Valid {
    /// For this status; `None`: for any.
    pub status: Option<u16>,
    /// Seconds; 0: they are not stored.
    pub seconds: u64,
}

/// The cache settings of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Lifetimes of responses that do not state one; the first match counts.
    pub valid: Vec<Valid>,
    /// The parts of the cache key.
    pub key: KeyParts,
    /// Session cookies: requests with one bypass the cache.
    pub private_cookies: Vec<Pattern>,
    /// The site lists no cookies of its own (`app`, `private_cookies`), so that any cookie which it
    /// sets, or which is unknown, may be a login's ([`crate::cookies`]).
    pub guards_cookies: bool,
    /// Cookies that make no difference, where others may.
    pub public_cookies: Vec<Pattern>,
    /// `Vary: Cookie` means the private cookies alone, whose requests bypass the cache.
    pub varies_by_session: bool,
    /// Requests that bypass the lookup (nginx's `fastcgi_cache_bypass`).
    pub bypass: RequestMatcher,
    /// Requests whose responses are not stored (nginx's `fastcgi_no_cache`).
    pub no_store: RequestMatcher,
    /// Number of requests for a key before its response is stored.
    pub min_uses: u32,
    /// Seconds for which a stale entry is served while it is updated, if the response does not say.
    pub stale_while_revalidate: u64,
    /// Serve stale entries at once to all requests during an update; if false, the first request
    /// waits for the new response.
    pub background_update: bool,
    /// Seconds for which a stale entry is served after an error, if the response does not say.
    pub stale_if_error: u64,
    /// Seconds for which requests wait for a running fill (`lock`).
    pub lock_timeout: u64,
    /// Seconds after which a running fill is no longer waited for.
    pub lock_age: u64,
    /// Revalidate stale entries with their validators, and store responses with `no-cache`.
    pub revalidate: bool,
    /// Responses without a lifetime are fresh for a tenth of their age (RFC 9111 §4.2.2).
    pub heuristic: bool,
    /// Honour the cache directives of requests (RFC 9111 §5.2.1). A gateway need not, and then no
    /// client can force a script to run.
    pub obey_requests: bool,
    /// Response headers that are ignored.
    pub ignore_headers: IgnoreHeaders,
    /// Honour the headers of LiteSpeed's cache.
    pub litespeed: bool,
    /// Tag headers, beside `Cache-Groups`: `Surrogate-Key`, `Cache-Tag`.
    pub tag_headers: Vec<String>,
    /// Largest body that is stored, in bytes.
    pub max_object_size: u64,
}

impl Settings {
    /// A fingerprint of the rules that keep responses from being stored, or name the tags by which
    /// their pages are purged. Its text, that of `Debug`, may be another one in another version,
    /// which only costs pages.
    pub fn storing_mark(&self) -> u64 {
        let cookies = (&self.private_cookies, &self.public_cookies);
        let by_cookies = (self.guards_cookies, self.varies_by_session);
        let of_scripts = (self.litespeed, &self.tag_headers);
        let rules = (&self.no_store, self.ignore_headers, cookies, by_cookies, of_scripts);
        fingerprint(format!("{rules:?}").into_bytes())
    }
}

/// Parameters of marketing campaigns, which make no difference to a page.
pub const TRACKING_PARAMETERS: [&str; 12] = [
    "utm_*", "fbclid", "gclid", "gbraid", "wbraid", "dclid", "msclkid", "mc_cid", "mc_eid",
    "igshid", "twclid", "_ga",
];

/// PHP's own session cookie.
pub const PHP_SESSION: &str = "PHPSESSID";

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            valid: Vec::new(),
            key: KeyParts::default(),
            private_cookies: vec![Pattern::new(PHP_SESSION)],
            guards_cookies: false,
            public_cookies: Vec::new(),
            varies_by_session: false,
            bypass: RequestMatcher::default(),
            no_store: RequestMatcher::default(),
            min_uses: 1,
            stale_while_revalidate: 0,
            background_update: true,
            stale_if_error: 0,
            lock_timeout: 5,
            lock_age: 5,
            revalidate: true,
            heuristic: false,
            obey_requests: false,
            ignore_headers: IgnoreHeaders::default(),
            litespeed: false,
            tag_headers: Vec::new(),
            max_object_size: 16 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_the_rest_of_a_name() {
        let pattern = Pattern::new("wordpress_logged_in_*");
        assert!(pattern.matches(b"wordpress_logged_in_0a1b"));
        assert!(!pattern.matches(b"wordpress_test_cookie"));
        assert!(Pattern::new("*").matches(b""));
        assert!(!Pattern::new("PHPSESSID").matches(b"PHPSESSID2"));
        assert!(Pattern::new("*_session").matches(b"shop_session"));
        assert!(!Pattern::new("a*a").matches(b"a"));
    }

    #[test]
    fn each_star_stands_for_any_characters() {
        for (pattern, name) in [
            ("*wordpress_logged_in*", "wordpress_logged_in_0a"),
            ("*wordpress_logged_in*", "wordpress_logged_in"),
            ("*_session_*", "shop_session_1"),
            ("/*/account/*", "/de/account/orders"),
            ("*wp-*php*", "/wp-login.php"),
            ("a*b*c", "a-b-b-c"),
            ("a**c", "ac"),
        ] {
            let parsed = Pattern::new(pattern);
            assert!(parsed.matches(name.as_bytes()), "{pattern} {name}");
            assert_eq!(parsed.to_string(), pattern);
        }
        for (pattern, name) in [
            ("*_session_*", "shop_session"),
            ("/*/account/*", "/account/orders"),
            ("*wp-*php*", "php/wp-"),
            ("a*b*c", "acb"),
            ("a*b*b", "ab"),
            ("*a*a*a*", "aa"),
        ] {
            assert!(!Pattern::new(pattern).matches(name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn a_matcher_with_any_condition_may_match() {
        let all = |text: &str| vec![Pattern::new(text)];
        let none = RequestMatcher::default();
        assert!(none.is_empty());
        for some in [
            RequestMatcher { cookies: all("a"), ..none.clone() },
            RequestMatcher { headers: vec!["x".to_owned()], ..none.clone() },
            RequestMatcher { paths: all("/a"), ..none.clone() },
            RequestMatcher { parameters: all("a"), ..none.clone() },
            RequestMatcher { methods: vec!["PUT".to_owned()], ..none.clone() },
        ] {
            assert!(!some.is_empty(), "{some:?}");
        }
    }

    #[test]
    fn the_mark_is_of_the_rules_by_which_pages_are_stored_alone() {
        let before = Settings::default();
        let mut same = before.clone();
        same.valid.push(Valid { status: None, seconds: 5 });
        same.bypass.cookies.push(Pattern::new("a"));
        assert_eq!(same.storing_mark(), before.storing_mark());
        let changes: [fn(&mut Settings); 8] = [
            |rules| rules.no_store.paths.push(Pattern::new("/account/*")),
            |rules| rules.private_cookies.push(Pattern::new("shop")),
            |rules| rules.public_cookies.push(Pattern::new("*")),
            |rules| rules.ignore_headers.cache_control = true,
            |rules| rules.guards_cookies = true,
            |rules| rules.varies_by_session = true,
            |rules| rules.litespeed = true,
            |rules| rules.tag_headers.push("X-Tags".into()),
        ];
        let marks = changes.map(|change| {
            let mut rules = before.clone();
            change(&mut rules);
            rules.storing_mark()
        });
        for (number, mark) in marks.iter().enumerate() {
            assert!(*mark != before.storing_mark() && !marks[..number].contains(mark), "{number}");
        }
    }
}
