//! Caddy's matchers: which requests a directive is for.

use std::collections::BTreeMap;

use maitred_rules::networks::parse_network;

use super::path_areas::CaddyPath;
use crate::escapes::percent_decoded;
use crate::source_directive::Directive;
use crate::values::is_identity_header;

/// Networks of `private_ranges`.
pub(super) const PRIVATE_RANGES: [&str; 6] =
    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::1"];

/// Deepest `not`.
const MAX_DEPTH: usize = 10;

/// Matchers that are not about the client itself.
const NOT_OF_CLIENT: [&str; 5] = ["host", "method", "not", "protocol", "query"];

/// The requests of a matcher: all conditions hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Condition {
    /// One of these paths; none are all.
    pub paths: Vec<CaddyPath>,
    /// None of these paths.
    pub except: Vec<CaddyPath>,
    /// Clients of these networks; none are all.
    pub from: Vec<String>,
    /// No clients of these networks.
    pub not_from: Vec<String>,
    /// That a file exists, or does not: with the files to look for.
    pub file: Option<(bool, Vec<String>)>,
    /// The name of the first regular expression, whose groups are in placeholders.
    pub regex_name: String,
    /// `http` or `https`.
    pub scheme: Option<String>,
    /// No request of this site.
    pub is_never: bool,
    /// The first condition that has no counterpart.
    pub other: Option<String>,
    /// Whether one without a counterpart is about the client: a header, a certificate, anything
    /// that an expression says.
    has_other_client: bool,
    /// The matcher that `from` is of.
    client_matcher: String,
    /// Whether it is about the address of the connection, which may be that of a proxy.
    pub is_about_peer: bool,
}

impl Condition {
    /// Whether it is about paths and clients alone.
    pub fn is_by_client_and_path(&self) -> bool {
        self.file.is_none() && self.scheme.is_none() && self.other.is_none()
    }

    /// Whether it is about the scheme alone.
    pub fn is_by_scheme(&self) -> bool {
        *self == Condition { scheme: self.scheme.clone(), ..Condition::default() }
    }

    /// Whether it is about who the client is.
    pub fn is_about_client(&self) -> bool {
        self.has_other_client || !self.from.is_empty() || !self.not_from.is_empty()
    }

    fn add_path(&mut self, text: &str) {
        // What Caddy fills in for each request.
        if text.contains('{') {
            self.other = Some(format!("path {text}"));
            self.has_other_client = true;
        }
        let decoded = decoded(text);
        if decoded.is_none() {
            self.other = Some(format!("path {text}"));
            self.has_other_client = true;
        }
        self.paths.push(CaddyPath::parse(decoded.as_deref().unwrap_or(text)));
    }

    /// Whether there are paths already that a further matcher of this name restricts.
    fn has_other_paths(&self, name: &str) -> bool {
        let is_regex = |one: &CaddyPath| matches!(one, CaddyPath::Regex { is_exact: true, .. });
        match name {
            "path" => self.paths.iter().any(is_regex),
            _ => !self.paths.is_empty(),
        }
    }

    /// What has no counterpart where only paths count.
    pub fn beside_paths(&self) -> Option<String> {
        if let Some(other) = &self.other {
            return Some(other.clone());
        }
        let found = [
            (!self.from.is_empty() || !self.not_from.is_empty(), "remote_ip"),
            (self.file.is_some(), "file"),
            (self.scheme.is_some(), "protocol"),
        ];
        found.into_iter().find_map(|(has, name)| has.then(|| name.to_owned()))
    }
}

/// The named matchers of a site, and what they are evaluated with.
#[derive(Debug, Clone, Default)]
pub(super) struct Matchers<'a> {
    /// By their names with `@`.
    pub named: BTreeMap<String, &'a Directive>,
    /// The names of the site.
    pub hosts: Vec<String>,
}

impl Matchers<'_> {
    /// The condition of a directive, and its other arguments.
    pub fn of<'d>(&self, directive: &'d Directive) -> (Condition, &'d [String]) {
        let first = directive.first();
        let rest = directive.arguments.get(1..).unwrap_or_default();
        if first == "*" {
            return (Condition::default(), rest);
        }
        if first.starts_with('/') {
            let mut condition = Condition::default();
            condition.add_path(first);
            return (condition, rest);
        }
        if first.starts_with('@') {
            return match self.named.get(first) {
                Some(matcher) => (self.named(matcher), rest),
                None => {
                    let other = Some(format!("{first}, which is not defined"));
                    (Condition { other, has_other_client: true, ..Condition::default() }, rest)
                }
            };
        }
        (Condition::default(), &directive.arguments)
    }

    fn named(&self, matcher: &Directive) -> Condition {
        let mut condition = Condition::default();
        if let Some((name, arguments)) = matcher.arguments.split_first() {
            let inline = Directive {
                name: name.clone(),
                arguments: arguments.to_vec(),
                place: matcher.place.clone(),
                block: matcher.block.clone(),
            };
            // Of an expression in backticks, or with a word.
            self.add(&mut condition, &inline, 0);
            return condition;
        }
        for one in &matcher.block {
            self.add(&mut condition, one, 0);
        }
        condition
    }

    /// Adds one condition.
    fn add(&self, to: &mut Condition, one: &Directive, depth: usize) {
        let texts = &one.arguments;
        match one.name.as_str() {
            "path" | "path_regexp" if to.has_other_paths(&one.name) => {
                to.other = Some("path and path_regexp".to_owned());
            }
            "path" => texts.iter().for_each(|text| to.add_path(text)),
            "path_regexp" => {
                let (name, text) = match texts.as_slice() {
                    [text] => ("", text.as_str()),
                    [name, text] => (name.as_str(), text.as_str()),
                    _ => ("", ""),
                };
                to.regex_name = name.to_owned();
                to.paths.push(CaddyPath::Regex { text: text.to_owned(), is_exact: true });
            }
            "host" => {
                let is_in = |own: &String| texts.iter().any(|text| is_host(text, own));
                let count = self.hosts.iter().filter(|own| is_in(own)).count();
                let is_fixed = !texts.iter().any(|text| text.contains('{'));
                match count {
                    0 if is_fixed => to.is_never = true,
                    count if count == self.hosts.len() => {}
                    _ => to.other = Some("host".to_owned()),
                }
            }
            "remote_ip" | "client_ip" => {
                // Lists of one matcher are one list. Of two matchers, both must hold.
                if !to.client_matcher.is_empty() && to.client_matcher != one.name {
                    to.other = Some("remote_ip and client_ip".to_owned());
                }
                to.client_matcher.clone_from(&one.name);
                to.is_about_peer |= one.name == "remote_ip";
                let ranges = texts.iter().filter(|one| *one != "forwarded");
                for range in ranges {
                    match range.as_str() {
                        "private_ranges" => to.from.extend(PRIVATE_RANGES.map(str::to_owned)),
                        range if parse_network(range).is_err() => {
                            to.other = Some(format!("remote_ip {range}"));
                            to.has_other_client = true;
                        }
                        range => to.from.push(range.to_owned()),
                    }
                }
            }
            "file" => to.file = Some((true, file_tests(one))),
            "protocol" => match texts.first().map(String::as_str) {
                Some(scheme @ ("http" | "https")) => to.scheme = Some(scheme.to_owned()),
                _ => to.other = Some("protocol".to_owned()),
            },
            "not" if depth < MAX_DEPTH => self.add_not(to, one, depth),
            other => {
                to.other = Some(other.to_owned());
                to.has_other_client |= match other {
                    "header" => is_identity_header(one.first().trim_start_matches('!')),
                    // Its own name may precede that of the header.
                    "header_regexp" => {
                        let at = texts.len().saturating_sub(2);
                        texts.get(at).is_none_or(|name| is_identity_header(name))
                    }
                    other => !NOT_OF_CLIENT.contains(&other),
                };
            }
        }
    }

    /// `not`: the opposite of all conditions in it together.
    fn add_not(&self, to: &mut Condition, one: &Directive, depth: usize) {
        let mut inner = Condition::default();
        if let Some((name, arguments)) = one.arguments.split_first() {
            let inline = Directive {
                name: name.clone(),
                arguments: arguments.to_vec(),
                place: one.place.clone(),
                block: one.block.clone(),
            };
            self.add(&mut inner, &inline, depth + 1);
        } else {
            one.block.iter().for_each(|part| self.add(&mut inner, part, depth + 1));
        }
        let empty = Condition {
            regex_name: inner.regex_name.clone(),
            client_matcher: inner.client_matcher.clone(),
            is_about_peer: inner.is_about_peer,
            ..Condition::default()
        };
        let never = Condition { is_never: true, ..empty.clone() };
        to.is_about_peer |= inner.is_about_peer;
        if inner == never {
            return;
        }
        let is_only = |part: Condition| part == inner;
        if inner == empty {
            // A host of the site alone.
            to.is_never = true;
        } else if is_only(Condition { paths: inner.paths.clone(), ..empty.clone() }) {
            to.except.extend(inner.paths);
        } else if is_only(Condition { except: inner.except.clone(), ..empty.clone() }) {
            to.paths.extend(inner.except);
        } else if is_only(Condition { from: inner.from.clone(), ..empty.clone() }) {
            to.not_from.extend(inner.from);
        } else if is_only(Condition { not_from: inner.not_from.clone(), ..empty.clone() }) {
            to.from.extend(inner.not_from);
        } else if is_only(Condition { file: inner.file.clone(), ..empty.clone() }) {
            to.file = inner.file.map(|(exists, files)| (!exists, files));
        } else if let (Some(scheme), None) = (&inner.scheme, &inner.other) {
            let other = if scheme == "http" { "https" } else { "http" };
            to.scheme = Some(other.to_owned());
        } else {
            to.has_other_client |=
                inner.is_about_client() || inner.other.as_deref() == Some("query");
            to.other = Some(format!("not {}", inner.other.unwrap_or_default()).trim().to_owned());
        }
    }
}

/// A path as it is compared here. Caddy compares a pattern with escapes with the path as it was
/// sent: the same, where all clients have to escape. `None` for others.
fn decoded(text: &str) -> Option<String> {
    let is_always_sent = |rest: &str| {
        let byte = rest.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| byte == b' ' || !byte.is_ascii())
    };
    percent_decoded(text).filter(|_| text.split('%').skip(1).all(is_always_sent))
}

/// Whether a name is one of those of a matcher `host`, whose `*` is a whole label.
fn is_host(matcher: &str, name: &str) -> bool {
    let (matcher, name) = (matcher.to_ascii_lowercase(), name.to_ascii_lowercase());
    let (labels, own) = (matcher.split('.'), name.split('.'));
    labels.clone().count() == own.clone().count()
        && labels.zip(own).all(|(label, own)| label == own || label == "*" && !own.is_empty())
}

/// The files of a matcher `file`.
fn file_tests(one: &Directive) -> Vec<String> {
    let tries = one.block.iter().filter(|inner| inner.name == "try_files");
    let mut files: Vec<String> = tries.flat_map(|inner| inner.arguments.clone()).collect();
    files.extend(one.arguments.iter().cloned());
    files
}

/// The named matchers that are defined among these directives.
pub(super) fn definitions(directives: &[Directive]) -> impl Iterator<Item = &Directive> {
    directives.iter().filter(|one| one.name.starts_with('@'))
}
