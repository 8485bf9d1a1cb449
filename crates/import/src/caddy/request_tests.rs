//! Whether a request matches a matcher of Caddy, as far as that follows from its host and path.

use std::collections::BTreeMap;

use maitred_rules::networks::{Networks, parse_network};
use regex::Regex;

use super::matchers::PRIVATE_RANGES;
use crate::escapes::percent_decoded;
use crate::source_directive::Directive;
use crate::written_site::ANY_CLIENT;

/// Deepest `not`.
const MAX_DEPTH: usize = 10;

/// A test of a request: `None` where more decides than the host, the path, and any client.
pub(super) enum RequestTest {
    /// Whatever the path is.
    Fixed(Option<bool>),
    /// A pattern of a matcher `path`, in small letters.
    Path(String),
    /// A `path_regexp`.
    Regex(Regex),
    /// Whether there is a file with the name of the path.
    File,
    /// The opposite.
    Not(Box<RequestTest>),
    /// All of them.
    All(Vec<RequestTest>),
    /// One of them.
    Any(Vec<RequestTest>),
}

/// A request for a decoded path.
#[derive(Debug, Clone)]
pub(super) struct TestedPath {
    /// The path.
    pub text: String,
    /// Whether there is a file with its name.
    pub is_file: bool,
}

/// The named matchers that a directive may use, and the host of all requests.
#[derive(Clone)]
pub(super) struct TestScope<'c> {
    /// By their names with `@`.
    pub named: BTreeMap<&'c str, &'c Directive>,
    /// The host.
    pub host: &'c str,
}

impl TestScope<'_> {
    /// The test of a directive, and its other arguments.
    pub fn test<'d>(&self, line: &'d Directive) -> (RequestTest, &'d [String]) {
        let rest = line.arguments.get(1..).unwrap_or_default();
        match line.first() {
            // Its only argument is a path.
            _ if line.name == "root" && line.arguments.len() == 1 => {
                (RequestTest::Fixed(Some(true)), &line.arguments)
            }
            "*" => (RequestTest::Fixed(Some(true)), rest),
            first if first.starts_with('/') => (path(first), rest),
            first if first.starts_with('@') => match self.named.get(first) {
                Some(matcher) => (self.conditions(matcher, 0), rest),
                None => (RequestTest::Fixed(None), rest),
            },
            _ => (RequestTest::Fixed(Some(true)), &line.arguments),
        }
    }

    /// The conditions of a matcher, in its line or in its block.
    fn conditions(&self, matcher: &Directive, depth: usize) -> RequestTest {
        if depth > MAX_DEPTH {
            return RequestTest::Fixed(None);
        }
        if let Some((name, words)) = matcher.arguments.split_first() {
            let inline = Directive {
                name: name.clone(),
                arguments: words.to_vec(),
                place: matcher.place.clone(),
                block: matcher.block.clone(),
            };
            return self.condition(&[&inline], depth);
        }
        // Several of one name are one list, but for `not`.
        let mut by_name: BTreeMap<String, Vec<&Directive>> = BTreeMap::new();
        for (index, one) in matcher.block.iter().enumerate() {
            let name = if one.name == "not" { format!("not {index}") } else { one.name.clone() };
            by_name.entry(name).or_default().push(one);
        }
        RequestTest::All(by_name.values().map(|all| self.condition(all, depth)).collect())
    }

    fn condition(&self, all: &[&Directive], depth: usize) -> RequestTest {
        let words = || all.iter().flat_map(|one| &one.arguments);
        let Some(first) = all.first() else { return RequestTest::Fixed(Some(true)) };
        match first.name.as_str() {
            "path" => RequestTest::Any(words().map(|text| path(text)).collect()),
            "path_regexp" => {
                let regex = first.arguments.last().and_then(|text| Regex::new(text).ok());
                regex.map_or(RequestTest::Fixed(None), RequestTest::Regex)
            }
            "host" => RequestTest::Fixed(match words().any(|text| text.contains('{')) {
                true => None,
                false => Some(words().any(|text| is_host(text, self.host))),
            }),
            "remote_ip" | "client_ip" => {
                let texts = words().map(String::as_str).filter(|one| *one != "forwarded");
                let ranges: Vec<&str> = texts
                    .flat_map(|one| match one {
                        "private_ranges" => PRIVATE_RANGES.to_vec(),
                        one => vec![one],
                    })
                    .collect();
                let parsed: Result<Vec<_>, _> = ranges.into_iter().map(parse_network).collect();
                let has = parsed.map(|all| Networks::new(&all).contain(ANY_CLIENT));
                RequestTest::Fixed(has.ok())
            }
            "protocol" => RequestTest::Fixed(match first.first() {
                "https" => Some(true),
                "http" => Some(false),
                _ => None,
            }),
            "method" => RequestTest::Fixed(Some(words().any(|one| one == "GET"))),
            "file" => {
                let tries = first.block.iter().filter(|one| one.name == "try_files");
                let names = tries.flat_map(|one| &one.arguments).chain(&first.arguments);
                match names.into_iter().all(|one| one == "{path}") {
                    true => RequestTest::File,
                    false => RequestTest::Fixed(None),
                }
            }
            "not" => RequestTest::Not(Box::new(self.conditions(first, depth + 1))),
            _ => RequestTest::Fixed(None),
        }
    }
}

impl RequestTest {
    /// Whether requests for a path pass it.
    pub fn holds(&self, asked: &TestedPath) -> Option<bool> {
        match self {
            RequestTest::Fixed(value) => *value,
            RequestTest::Path(pattern) => {
                Some(is_path(pattern.as_bytes(), asked.text.to_lowercase().as_bytes()))
            }
            RequestTest::Regex(regex) => Some(regex.is_match(&asked.text)),
            RequestTest::File => Some(asked.is_file),
            RequestTest::Not(inner) => inner.holds(asked).map(|holds| !holds),
            RequestTest::All(all) => found(all, asked, false),
            RequestTest::Any(all) => found(all, asked, true),
        }
    }
}

/// Whether one test has this outcome, or the opposite if all have it.
fn found(all: &[RequestTest], asked: &TestedPath, outcome: bool) -> Option<bool> {
    let outcomes: Vec<Option<bool>> = all.iter().map(|one| one.holds(asked)).collect();
    match outcomes.contains(&Some(outcome)) {
        true => Some(outcome),
        false => (!outcomes.contains(&None)).then_some(!outcome),
    }
}

/// A pattern of a matcher `path`. One with escapes is compared with the path as it was sent, where
/// all clients escape spaces and letters beyond ASCII.
fn path(text: &str) -> RequestTest {
    let is_sent = |rest: &str| rest.starts_with("20") || rest.starts_with(|c: char| c > '7');
    let decoded = match text.split('%').skip(1).all(is_sent) && !text.contains(['{', '[', '\\']) {
        true => percent_decoded(text),
        false => None,
    };
    let small = decoded.map(|text| RequestTest::Path(text.to_lowercase()));
    small.unwrap_or(RequestTest::Fixed(None))
}

/// Caddy's comparison: a `*` at the begin and at the end is any text, and others no slash.
fn is_path(pattern: &[u8], asked: &[u8]) -> bool {
    let has_more = |text: &[u8]| text.iter().any(|byte| b"*?".contains(byte));
    match pattern {
        b"*" => true,
        [b'*', part @ .., b'*'] if !has_more(part) => {
            part.is_empty() || asked.windows(part.len()).any(|one| one == part)
        }
        [b'*', end @ ..] if !has_more(end) => asked.ends_with(end),
        [begin @ .., b'*'] if !has_more(begin) => asked.starts_with(begin),
        _ => is_glob(pattern, asked),
    }
}

/// Go's `path.Match`, without classes.
pub(super) fn is_glob(pattern: &[u8], asked: &[u8]) -> bool {
    let (mut own, mut at) = (0, 0);
    // What follows the last `*`, and where its text ends.
    let mut star: Option<(usize, usize)> = None;
    while let Some(byte) = asked.get(at) {
        match (pattern.get(own), star) {
            (Some(b'*'), _) => {
                own += 1;
                star = Some((own, at));
            }
            (Some(letter), _) if letter == byte || *letter == b'?' && *byte != b'/' => {
                own += 1;
                at += 1;
            }
            (_, Some((after, end))) if asked[end] != b'/' => {
                star = Some((after, end + 1));
                (own, at) = (after, end + 1);
            }
            _ => return false,
        }
    }
    pattern[own..].iter().all(|letter| *letter == b'*')
}

fn is_host(text: &str, host: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let is_label = |(own, label): (&str, &str)| own == "*" || own == label;
    text.split('.').count() == host.split('.').count()
        && text.split('.').zip(host.split('.')).all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(pattern: &str, text: &str) -> Option<bool> {
        path(pattern).holds(&TestedPath { text: text.to_owned(), is_file: true })
    }

    #[test]
    fn a_star_is_any_text_at_the_ends_of_a_path_and_no_slash_within_it() {
        for (pattern, asked) in [
            ("/a/*", "/a/b/c"),
            ("*.sql", "/a/B.SQL"),
            ("*/wp-*", "/a/wp-b/c"),
            ("/a/*/c", "/a/b/c"),
            ("/a/*/c*", "/a/b/cd"),
            ("/a/*b*c/d*e", "/a/xbybzc/de"),
            ("*", "/a"),
            ("/my%20docs/?", "/my docs/a"),
        ] {
            assert_eq!(holds(pattern, asked), Some(true), "{pattern} {asked}");
        }
        for (pattern, asked) in [
            ("/a/*", "/a"),
            ("/a/*/c", "/a/b/b/c"),
            ("/a", "/ab"),
            ("/a/?", "/a//"),
            ("/*a*a*b", "/aaaa/b"),
        ] {
            assert_eq!(holds(pattern, asked), Some(false), "{pattern} {asked}");
        }
        for pattern in ["/a%2Fb", "/{env.A}/*", "/[ab]"] {
            assert_eq!(holds(pattern, "/a"), None, "{pattern}");
        }
    }
}
