//! The old server as its clients see it: names, addresses, access logs, and the rule that its
//! configuration applies to a path.

use std::cell::OnceCell;
use std::fmt;

use pcre2::bytes::{Regex, RegexBuilder};

use crate::report::SourceLine;

/// A site of the old server.
#[derive(Debug)]
pub struct ServedSite {
    /// The place of its section.
    pub place: SourceLine,
    /// Its names that a client can send; empty for one that has none.
    pub names: Vec<String>,
    /// Whether requests for unknown names are its own.
    pub is_default: bool,
    /// The addresses that it listens on.
    pub addresses: Vec<ServedAddress>,
    /// Its document root.
    pub root: Option<String>,
    /// Its access logs.
    pub access_logs: Vec<String>,
    /// Its rules for paths, in the order in which they are defined.
    pub rules: Vec<ServedRule>,
    /// The places of directives that are valid for all of its paths.
    pub general: Vec<SourceLine>,
}

/// An address of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedAddress {
    /// The host: `*` for all.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether it is for TLS.
    pub is_tls: bool,
}

/// The paths of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulePaths {
    /// One path.
    Exact(String),
    /// All paths that begin with it.
    Prefix {
        /// The prefix.
        text: String,
        /// Whether it precedes regular expressions.
        is_first: bool,
    },
    /// All that a regular expression of PCRE matches.
    Regex(String),
}

/// A rule for paths.
#[derive(Debug)]
pub struct ServedRule {
    /// Its paths.
    pub paths: RulePaths,
    /// The prefix of the rule around it, if it is nested.
    pub around: Option<String>,
    /// Whether it is evaluated before all rules that choose a location.
    pub is_before: bool,
    /// Its place.
    pub place: SourceLine,
    /// The rule as written, with the directive in it that decides.
    pub what: String,
    /// The places of the directives in it.
    pub inner: Vec<SourceLine>,
    regex: OnceCell<Option<Regex>>,
}

impl ServedRule {
    /// A rule with these paths.
    pub fn new(paths: RulePaths, place: &SourceLine, what: &str) -> ServedRule {
        ServedRule {
            paths,
            around: None,
            is_before: false,
            place: place.clone(),
            what: what.to_owned(),
            inner: Vec::new(),
            regex: OnceCell::new(),
        }
    }

    /// Whether a decoded path is one of its paths.
    pub fn matches(&self, path: &str) -> bool {
        if self.around.as_ref().is_some_and(|prefix| !path.starts_with(prefix.as_str())) {
            return false;
        }
        match &self.paths {
            RulePaths::Exact(text) => path == text,
            RulePaths::Prefix { text, .. } => path.starts_with(text.as_str()),
            RulePaths::Regex(text) => {
                let compiled = || RegexBuilder::new().build(text).ok();
                let regex = self.regex.get_or_init(compiled);
                regex.as_ref().is_some_and(|regex| regex.is_match(path.as_bytes()).unwrap_or(false))
            }
        }
    }

    fn prefix_length(&self) -> usize {
        match &self.paths {
            RulePaths::Prefix { text, .. } | RulePaths::Exact(text) => text.len(),
            RulePaths::Regex(_) => 0,
        }
    }
}

impl fmt::Display for ServedRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.what)
    }
}

impl ServedSite {
    /// The rule for a decoded path, as nginx chooses it: those before all locations, an exact path,
    /// the longest prefix if it precedes regular expressions, the first of these, the longest
    /// prefix.
    pub fn rule_of(&self, path: &str) -> Option<&ServedRule> {
        let matching: Vec<&ServedRule> =
            self.rules.iter().filter(|rule| rule.matches(path)).collect();
        let of_kind = |wanted: fn(&ServedRule) -> bool| {
            matching.iter().copied().filter(move |rule| !rule.is_before && wanted(rule))
        };
        let before = matching.iter().copied().find(|rule| rule.is_before);
        let exact = of_kind(|rule| matches!(rule.paths, RulePaths::Exact(_))).next();
        let prefixes = of_kind(|rule| matches!(rule.paths, RulePaths::Prefix { .. }));
        let longest = prefixes.max_by_key(|rule| rule.prefix_length());
        let first =
            longest.filter(|rule| matches!(rule.paths, RulePaths::Prefix { is_first: true, .. }));
        let regex = of_kind(|rule| matches!(rule.paths, RulePaths::Regex(_))).next();
        before.or(exact).or(first).or(regex).or(longest)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn rule(paths: RulePaths, line: usize) -> ServedRule {
        let place = SourceLine { file: Rc::from("a.conf"), line, word: line };
        ServedRule::new(paths, &place, "location")
    }

    fn prefix(text: &str, is_first: bool) -> RulePaths {
        RulePaths::Prefix { text: text.to_owned(), is_first }
    }

    #[test]
    fn the_rule_of_a_path_is_the_one_that_nginx_chooses() {
        let place = SourceLine { file: Rc::from("a.conf"), line: 1, word: 1 };
        let mut nested = rule(RulePaths::Regex(r"\.jpg$".to_owned()), 7);
        nested.around = Some("/media/".to_owned());
        let mut first = rule(RulePaths::Regex("^/old/".to_owned()), 8);
        first.is_before = true;
        let site = ServedSite {
            place,
            names: Vec::new(),
            is_default: true,
            addresses: Vec::new(),
            root: None,
            access_logs: Vec::new(),
            rules: vec![
                rule(prefix("/", false), 2),
                rule(prefix("/static/", true), 3),
                rule(RulePaths::Regex(r"\.php$".to_owned()), 4),
                rule(RulePaths::Regex(r"^/(?!static)\w+/x$".to_owned()), 5),
                rule(RulePaths::Exact("/a.php".to_owned()), 6),
                nested,
                first,
            ],
            general: Vec::new(),
        };
        for (path, line) in [
            ("/", 2),
            ("/static/a.php", 3),
            ("/b.php", 4),
            ("/a.php", 6),
            ("/other/x", 5),
            ("/media/a.jpg", 7),
            ("/a.jpg", 2),
            ("/old/a.php", 8),
        ] {
            assert_eq!(site.rule_of(path).map(|rule| rule.place.line), Some(line), "{path}");
        }
    }
}
