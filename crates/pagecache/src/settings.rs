//! What a site says about its cache. nginx's names where nginx has the thing.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A name, or with a `*` in it all that begin and end so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    start: String,
    /// What comes after the `*`; none: there is no `*`.
    end: Option<String>,
}

impl Pattern {
    /// Of a text such as `PHPSESSID`, `wordpress_logged_in_*` or `*_session`. Only the first `*`
    /// stands for anything.
    pub fn new(text: &str) -> Pattern {
        let parts = text.split_once('*');
        Pattern {
            start: parts.map_or(text, |(start, _)| start).to_owned(),
            end: parts.map(|(_, end)| end.to_owned()),
        }
    }

    /// Whether a name is meant.
    pub fn matches(&self, name: &[u8]) -> bool {
        let Some(rest) = name.strip_prefix(self.start.as_bytes()) else {
            return false;
        };
        match &self.end {
            Some(end) => rest.ends_with(end.as_bytes()),
            None => rest.is_empty(),
        }
    }
}

impl Pattern {
    /// The same up to its first bracket; none: it has no index.
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

/// Which requests something holds for: one that shows any of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct When {
    /// It has a cookie of such a name.
    pub cookies: Vec<Pattern>,
    /// It has a header field of this name, with any value but the empty one and `0`.
    pub headers: Vec<String>,
    /// Its path is this one, or begins so.
    pub paths: Vec<Pattern>,
    /// Its query has a parameter of such a name.
    pub parameters: Vec<Pattern>,
    /// Its method is one of these.
    pub methods: Vec<String>,
}

impl When {
    /// Whether it holds for no request.
    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
            && self.headers.is_empty()
            && self.paths.is_empty()
            && self.parameters.is_empty()
            && self.methods.is_empty()
    }
}

/// What makes two requests the same, beside site, scheme, host and path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyParts {
    /// Parameters of the query that make no difference. The script does not see them either: an
    /// answer that shows one would be everybody's.
    pub ignore_parameters: Vec<Pattern>,
    /// The order of the parameters makes no difference.
    pub sort_parameters: bool,
    /// Header fields whose values make a difference.
    pub headers: Vec<String>,
    /// Cookies whose values make a difference.
    pub cookies: Vec<String>,
}

/// Fields of answers that are not listened to (nginx's `fastcgi_ignore_headers`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoreHeaders {
    /// `X-Accel-Expires`.
    pub x_accel_expires: bool,
    /// `Expires`.
    pub expires: bool,
    /// `Cache-Control`, and those for caches alone.
    pub cache_control: bool,
    /// `Set-Cookie`: an answer that has it is kept, with it.
    pub set_cookie: bool,
    /// `Vary`: all requests get the same answer.
    pub vary: bool,
}

/// For how long answers are good that do not say so themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Valid {
    /// Of this status; none: of any.
    pub status: Option<u16>,
    /// Seconds; 0: they are not kept.
    pub seconds: u64,
}

/// How a site's pages are cached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// For how long answers are good that do not say so; the first that fits.
    pub valid: Vec<Valid>,
    /// What makes two requests the same.
    pub key: KeyParts,
    /// Requests that are somebody's own: neither answered from the cache nor kept. Sessions.
    pub private_cookies: Vec<Pattern>,
    /// The site names no cookies of its own (`app`, `private_cookies`), so that those which it sets, or
    /// which are unknown, may be a login's ([`crate::cookies`]).
    pub guards_cookies: bool,
    /// Cookies that make no difference, where others may.
    pub public_cookies: Vec<Pattern>,
    /// `Vary: Cookie` means the private cookies alone, whose requests are none of the cache's.
    pub varies_by_session: bool,
    /// Requests that are not answered from the cache (nginx's `fastcgi_cache_bypass`).
    pub bypass: When,
    /// Requests whose answers are not kept (nginx's `fastcgi_no_cache`).
    pub no_store: When,
    /// How often something is asked for before it is kept.
    pub min_uses: u32,
    /// Seconds for which a stale answer will do while it is made again, if the answer does not say.
    pub stale_while_revalidate: u64,
    /// Whoever finds an answer that will do while it is made again gets it at once, as all others do;
    /// if not, whoever is the first waits for the new one.
    pub background_update: bool,
    /// Seconds for which a stale answer will do when no other can be had, if the answer does not say.
    pub stale_if_error: u64,
    /// Seconds for which one that is asked for will be waited for by others (`lock`).
    pub lock_timeout: u64,
    /// Seconds after which whoever makes an answer is not waited for any more.
    pub lock_age: u64,
    /// A stale answer is asked for again with its validators, and one that must always be asked for
    /// again is kept.
    pub revalidate: bool,
    /// Answers without a time of their own are good for a tenth of their age (RFC 9111 §4.2.2).
    pub heuristic: bool,
    /// What requests say about caches is obeyed (RFC 9111 §5.2.1). A gateway need not, and then
    /// nobody can have the script run by asking for it.
    pub obey_requests: bool,
    /// Fields of answers that are not listened to.
    pub ignore_headers: IgnoreHeaders,
    /// The fields of LiteSpeed's cache are listened to.
    pub litespeed: bool,
    /// Fields that hold tags, beside `Cache-Groups`: `Surrogate-Key`, `Cache-Tag`.
    pub tag_headers: Vec<String>,
    /// Largest body that is kept, in bytes.
    pub max_object_size: u64,
}

/// Parameters that tell who sent a visitor, and make no difference to a page.
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
            bypass: When::default(),
            no_store: When::default(),
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
}
