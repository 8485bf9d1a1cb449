//! Response headers by path: headers that are set, added and removed, and browser cache lifetimes.

use std::time::Duration;

use crate::pattern::Pattern;
use crate::pattern_table::Table;
use crate::settings::{Expires, HeaderRule};

/// Headers for message framing, or that the server sets itself.
const SERVER_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-range",
];

/// Statuses whose responses get the `Cache-Control` and `Expires` headers from `expires`: those of
/// nginx.
const CACHED_STATUSES: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];

/// Why no rule may use this header, as the end of a sentence that begins with it; `None` if one
/// may.
pub fn refuse_header(name: &str) -> Option<String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Some("is no header name; expected one such as \"X-Frame-Options\"".into());
    }
    let ours = SERVER_HEADERS.iter().any(|ours| ours.eq_ignore_ascii_case(name));
    ours.then(|| "is a header that the server sets itself; leave it out".to_owned())
}

/// Why this cannot be a header's value; `None` if it can.
pub fn refuse_value(value: &str) -> Option<String> {
    let control = |c: char| c.is_control() && c != '\t';
    value
        .contains(control)
        .then(|| "has a control character in it; a header's value is one line".to_owned())
}

/// The header rules of a site.
#[derive(Debug, Default)]
pub(crate) struct HeaderRules {
    rules: Vec<HeaderRule>,
    by_path: Table,
    /// All rules match every path: no lookup is needed.
    everywhere: bool,
    expires: Vec<Expires>,
    expires_by_path: Table,
    /// The value of the `Cache-Control` header for each of `expires`.
    lines: Vec<String>,
}

/// The browser cache lifetime of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry<'a> {
    /// The value of the `Cache-Control` header.
    pub cache_control: &'a str,
    /// The time from now to the `Expires` header; zero: revalidate before each use.
    pub after: Duration,
}

/// The header rules for one response.
#[derive(Debug, Default)]
pub struct HeaderPolicy<'a> {
    rules: Vec<&'a HeaderRule>,
    expires: Vec<(&'a Expires, &'a str)>,
}

impl HeaderRules {
    pub(crate) fn new(rules: &[HeaderRule], expires: &[Expires]) -> Result<HeaderRules, String> {
        Ok(HeaderRules {
            rules: rules.to_vec(),
            by_path: Table::new(rules.iter().map(|rule| &rule.path))?,
            everywhere: rules.iter().all(|rule| rule.path == Pattern::all()),
            expires: expires.to_vec(),
            expires_by_path: Table::new(expires.iter().map(|rule| &rule.path))?,
            lines: expires.iter().map(cache_control).collect(),
        })
    }

    pub(crate) fn header_policy(&self, path: &[u8]) -> HeaderPolicy<'_> {
        let rules = if self.everywhere {
            self.rules.iter().collect()
        } else {
            self.by_path.all(path).into_iter().map(|at| &self.rules[at]).collect()
        };
        let expires = self.expires_by_path.all(path).into_iter();
        let expires = expires.map(|at| (&self.expires[at], self.lines[at].as_str())).collect();
        HeaderPolicy { rules, expires }
    }
}

impl<'a> HeaderPolicy<'a> {
    /// No changes.
    pub const NONE: HeaderPolicy<'static> = HeaderPolicy { rules: Vec::new(), expires: Vec::new() };

    /// Whether the response is unchanged.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.expires.is_empty()
    }

    /// Whether a header of the response with this name is kept.
    pub fn keeps(&self, name: &[u8]) -> bool {
        !self.rules.iter().any(|rule| replaces(rule, name))
    }

    /// The headers that are added.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + '_ {
        self.rules.iter().enumerate().flat_map(move |(at, rule)| {
            let later = &self.rules[at + 1..];
            let stays = move |(name, _): &&(String, String)| {
                !later.iter().any(|rule| replaces(rule, name.as_bytes()))
            };
            let fields = rule.set.iter().chain(&rule.add).filter(stays);
            fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        })
    }

    /// The lifetime of a response with this status and media type, unless it states its own.
    pub fn expiry(&self, status: u16, media_type: &[u8]) -> Option<Expiry<'a>> {
        if self.expires.is_empty() || !CACHED_STATUSES.contains(&status) {
            return None;
        }
        let media_type = media_type.split(|byte| *byte == b';').next().unwrap_or_default();
        let media_type = media_type.trim_ascii();
        let fits = |wanted: &str| {
            if wanted.ends_with('/') {
                media_type
                    .get(..wanted.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(wanted.as_bytes()))
            } else {
                media_type.eq_ignore_ascii_case(wanted.as_bytes())
            }
        };
        let found =
            self.expires.iter().find(|(rule, _)| rule.media_type.as_deref().is_none_or(fits));
        found.map(|(rule, cache_control)| Expiry { cache_control, after: rule.after })
    }
}

fn replaces(rule: &HeaderRule, name: &[u8]) -> bool {
    let is = |other: &String| other.as_bytes().eq_ignore_ascii_case(name);
    rule.unset.iter().any(is) || rule.set.iter().any(|(other, _)| is(other))
}

fn cache_control(rule: &Expires) -> String {
    let seconds = rule.after.as_secs();
    match (seconds, rule.immutable) {
        (0, _) => "no-cache".to_owned(),
        (_, true) => format!("max-age={seconds}, immutable"),
        (_, false) => format!("max-age={seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str, set: &[(&str, &str)], add: &[(&str, &str)], unset: &[&str]) -> HeaderRule {
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
        };
        HeaderRule {
            path: Pattern::parse(path).unwrap(),
            set: pairs(set),
            add: pairs(add),
            unset: unset.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn fields(headers: &HeaderRules, path: &str) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let header_policy = headers.header_policy(path.as_bytes());
        header_policy.fields().map(|(n, v)| format!("{}: {}", text(n), text(v))).collect()
    }

    #[test]
    fn rules_add_up_and_a_later_one_replaces_an_earlier_one() {
        let rules = [
            rule("/*", &[("X-A", "1"), ("X-B", "1")], &[("Link", "a")], &["X-Powered-By"]),
            rule("/a/*", &[("x-a", "2")], &[("Link", "b")], &[]),
            rule("/a/b", &[], &[], &["X-B"]),
        ];
        let headers = HeaderRules::new(&rules, &[]).unwrap();
        assert_eq!(fields(&headers, "/"), ["X-A: 1", "X-B: 1", "Link: a"]);
        assert_eq!(fields(&headers, "/a/x"), ["X-B: 1", "Link: a", "x-a: 2", "Link: b"]);
        assert_eq!(fields(&headers, "/a/b"), ["Link: a", "x-a: 2", "Link: b"]);
        let header_policy = headers.header_policy(b"/");
        assert!(!header_policy.keeps(b"x-powered-by") && !header_policy.keeps(b"X-a"));
        assert!(header_policy.keeps(b"Link"));
    }

    #[test]
    fn how_long_an_answer_is_kept_goes_by_path_and_type() {
        let expires = |path: &str, media_type: Option<&str>, seconds, immutable| Expires {
            path: Pattern::parse(path).unwrap(),
            media_type: media_type.map(str::to_owned),
            after: Duration::from_secs(seconds),
            immutable,
        };
        let all = [
            expires("/fresh/*", None, 0, false),
            expires("*.js", None, 60, true),
            expires("/*", Some("image/"), 30, false),
            expires("/*", Some("text/css"), 20, false),
        ];
        let headers = HeaderRules::new(&[], &all).unwrap();
        let kept = |path: &str, status, kind: &str| {
            let header_policy = headers.header_policy(path.as_bytes());
            header_policy
                .expiry(status, kind.as_bytes())
                .map(|expiry| expiry.cache_control.to_owned())
        };
        assert_eq!(kept("/fresh/a.js", 200, "text/javascript").as_deref(), Some("no-cache"));
        assert_eq!(kept("/a.js", 200, "x/y").as_deref(), Some("max-age=60, immutable"));
        assert_eq!(kept("/a", 200, "Image/png").as_deref(), Some("max-age=30"));
        assert_eq!(kept("/a", 206, "text/css; charset=utf-8").as_deref(), Some("max-age=20"));
        assert_eq!(kept("/a", 200, "text/html"), None);
        assert_eq!(kept("/a", 404, "text/css"), None);
    }

    #[test]
    fn framing_headers_belong_to_the_server() {
        assert!(refuse_header("Content-Length").is_some() && refuse_header("a b").is_some());
        assert!(refuse_header("X-Frame-Options").is_none());
        assert!(refuse_value("a\r\nb").is_some() && refuse_value("a b").is_none());
    }
}
