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
    /// Folders elsewhere that its paths lead to.
    pub aliases: Vec<ServedFolder>,
    /// Its access logs.
    pub access_logs: Vec<String>,
    /// Its rules for paths, in the order in which they are defined.
    pub rules: Vec<ServedRule>,
    /// The places of directives that are valid for all of its paths.
    pub general: Vec<SourceLine>,
    /// How the old server chooses the rule of a path.
    pub choice: RuleChoice,
}

/// A folder, and the prefix of its paths without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedFolder {
    /// The prefix.
    pub prefix: String,
    /// The folder.
    pub folder: String,
}

/// How a server chooses the rule of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleChoice {
    /// As nginx: one location.
    Location,
    /// As Apache: all rules apply, and later ones override earlier ones.
    Merged,
}

/// What a rule that is merged with others says about access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RuleAccess {
    /// Nothing.
    #[default]
    Unset,
    /// All clients may see its paths.
    Open,
    /// Some or all may not.
    Restricted,
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
    /// A path without a slash at its end, and all below it; empty for all paths.
    Folder(String),
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
    /// What it says about access, if it is merged with others.
    pub access: RuleAccess,
    /// Whether no client without a password or a named address may see its paths.
    pub is_closed: bool,
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
            access: RuleAccess::Unset,
            is_closed: false,
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
            RulePaths::Folder(text) => path
                .strip_prefix(text.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
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
            RulePaths::Folder(_) | RulePaths::Regex(_) => 0,
        }
    }

    /// Whether it refuses its paths, to all clients or to some, and is not about all paths.
    pub fn refuses(&self) -> bool {
        let is_for_all = match &self.paths {
            RulePaths::Prefix { text, .. } => text == "/",
            RulePaths::Folder(folder) => folder.is_empty(),
            RulePaths::Exact(_) | RulePaths::Regex(_) => false,
        };
        !is_for_all && (self.access == RuleAccess::Restricted || self.what.contains("return 4"))
    }

    /// Whether it passes its paths to PHP.
    pub fn is_for_php(&self) -> bool {
        let what = self.what.to_ascii_lowercase();
        let passes = what.contains("sethandler") || what.contains("proxypassmatch");
        what.contains("fastcgi_pass") || passes && (what.contains("php") || what.contains("fcgi:"))
    }
}

impl fmt::Display for ServedRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.what)
    }
}

impl ServedSite {
    /// The rule that decides for a decoded path.
    pub fn rule_of(&self, path: &str) -> Option<&ServedRule> {
        let matching: Vec<&ServedRule> =
            self.rules.iter().filter(|rule| rule.matches(path)).collect();
        match self.choice {
            RuleChoice::Location => located(&matching),
            RuleChoice::Merged => merged(&matching),
        }
    }

    /// All rules that apply to a decoded path.
    pub fn rules_of(&self, path: &str) -> Vec<&ServedRule> {
        match self.choice {
            RuleChoice::Location => self.rule_of(path).into_iter().collect(),
            RuleChoice::Merged => self.rules.iter().filter(|rule| rule.matches(path)).collect(),
        }
    }
}

/// The rule as Apache merges them: one before all sections, the last one about access if it
/// restricts it, the last one.
fn merged<'a>(matching: &[&'a ServedRule]) -> Option<&'a ServedRule> {
    let all = || matching.iter().copied();
    let access = all().rfind(|rule| rule.access != RuleAccess::Unset);
    let restricts = access.filter(|rule| rule.access == RuleAccess::Restricted);
    all().find(|rule| rule.is_before).or(restricts).or(all().next_back())
}

/// The rule as nginx chooses it: those before all locations, an exact path, the longest prefix if
/// it precedes regular expressions, the first of these, the longest prefix.
fn located<'a>(matching: &[&'a ServedRule]) -> Option<&'a ServedRule> {
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
            aliases: Vec::new(),
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
            choice: RuleChoice::Location,
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
