//! Locations, and the order in which nginx chooses one.

use super::scope::Scope;
use crate::prefix_complement::{LiteralPath, without};
use crate::regexes;
use crate::source_directive::Directive;

/// The paths of a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matcher {
    /// `location = /a`.
    Exact(String),
    /// `location /a`, and `location ^~ /a`, which precedes regular expressions.
    Prefix {
        /// The prefix.
        text: String,
        /// Whether it precedes regular expressions.
        is_first: bool,
    },
    /// `location ~ a` and `location ~* a`, in maitred's syntax without the `~`.
    Regex(String),
    /// `location @name`.
    Named(String),
}

impl Matcher {
    /// The paths of `location`.
    pub fn of(location: &Directive) -> Matcher {
        let text = location.argument(1).to_owned();
        match location.first() {
            "=" => Matcher::Exact(text),
            "^~" => Matcher::Prefix { text, is_first: true },
            "~" => Matcher::Regex(text),
            "~*" => Matcher::Regex(format!("(?i){text}")),
            name if name.starts_with('@') => Matcher::Named(name.to_owned()),
            // Without a space, as nginx allows.
            joined => Matcher::joined(joined),
        }
    }

    fn joined(text: &str) -> Matcher {
        let prefix = |text: &str, is_first| Matcher::Prefix { text: text.to_owned(), is_first };
        if let Some(path) = text.strip_prefix('=') {
            return Matcher::Exact(path.to_owned());
        }
        if let Some(path) = text.strip_prefix("^~") {
            return prefix(path, true);
        }
        match text.strip_prefix('~') {
            Some(expression) => Matcher::Regex(match expression.strip_prefix('*') {
                Some(expression) => format!("(?i){expression}"),
                None => expression.to_owned(),
            }),
            None => prefix(text, false),
        }
    }

    /// The path, or the prefix.
    pub fn literal(&self) -> Option<LiteralPath> {
        match self {
            Matcher::Exact(text) => Some(LiteralPath { text: text.clone(), is_exact: true }),
            Matcher::Prefix { text, .. } => {
                Some(LiteralPath { text: text.clone(), is_exact: false })
            }
            Matcher::Regex(_) | Matcher::Named(_) => None,
        }
    }

    /// The place in nginx's order; the smaller comes first. Those with the same stay in order.
    fn rank(&self) -> (u8, usize) {
        match self {
            Matcher::Exact(_) => (0, 0),
            Matcher::Prefix { text, is_first: true } => (1, usize::MAX - text.len()),
            Matcher::Regex(_) => (2, 0),
            Matcher::Prefix { text, .. } => (3, usize::MAX - text.len()),
            Matcher::Named(_) => (4, 0),
        }
    }
}

/// A location, in the scope of its server.
#[derive(Debug, Clone)]
pub struct Location<'a> {
    /// The directive.
    pub directive: &'a Directive,
    /// Its paths.
    pub matcher: Matcher,
    /// The prefix of the location around it, if it is nested.
    pub around: Option<String>,
    /// Its directives, and those that it inherits.
    pub scope: Scope<'a>,
}

impl Location<'_> {
    /// maitred's pattern for its paths.
    ///
    /// # Errors
    /// Why there is none, as the end of a sentence.
    pub fn pattern(&self) -> Result<String, String> {
        let pattern = match &self.matcher {
            Matcher::Exact(text) => text.clone(),
            Matcher::Prefix { text, .. } if text.ends_with('/') => format!("{text}*"),
            Matcher::Prefix { text, .. } => format!("~^{}", regex::escape(text)),
            Matcher::Regex(text) => format!("~{}", self.nested(text)?),
            Matcher::Named(name) => return Err(format!("{name} has no paths of its own")),
        };
        regexes::check_regex(&pattern)?;
        Ok(pattern)
    }

    /// A regular expression within the prefix of the location around it.
    fn nested(&self, text: &str) -> Result<String, String> {
        let Some(prefix) = self.around.as_deref().filter(|prefix| *prefix != "/") else {
            return Ok(text.to_owned());
        };
        let (flags, rest) = match text.strip_prefix("(?i)") {
            Some(rest) => ("(?i)", rest),
            None => ("", text),
        };
        let escaped = regex::escape(prefix);
        match rest.strip_prefix('^') {
            Some(after) if after.starts_with(prefix) || after.starts_with(&escaped) => {
                Ok(text.to_owned())
            }
            Some(_) => Err(format!("`{text}` cannot be combined with the prefix {prefix}")),
            None => {
                let outer = regex::escape(prefix.trim_end_matches('/'));
                Ok(format!("^{outer}.*{flags}(?:{rest})"))
            }
        }
    }

    /// The pattern for its paths without those of `others` below it.
    ///
    /// # Errors
    /// As [`Location::pattern`].
    pub fn pattern_without(&self, others: &[LiteralPath]) -> Result<String, String> {
        let Matcher::Prefix { text, .. } = &self.matcher else { return self.pattern() };
        let below = others.iter().filter(|other| {
            other.text.starts_with(text.as_str()) && (other.is_exact || other.text != *text)
        });
        let below: Vec<LiteralPath> = below.cloned().collect();
        match below.is_empty() {
            true => self.pattern(),
            false => without(text, &below).map_or_else(|| self.pattern(), Ok),
        }
    }
}

/// All locations of a server, nested ones as well, in nginx's order.
pub fn all<'a>(server: &Scope<'a>) -> Vec<Location<'a>> {
    let mut found = Vec::new();
    collect(server, None, &mut found);
    found.sort_by_key(|location| location.matcher.rank());
    let never: Vec<bool> = found.iter().map(|one| is_never_chosen(one, &found)).collect();
    let mut never = never.into_iter();
    found.retain(|_| never.next() == Some(false));
    found
}

/// Whether nginx never chooses a nested location: it searches the longest outer prefix alone, and
/// that is another one.
fn is_never_chosen(location: &Location<'_>, all: &[Location<'_>]) -> bool {
    let (Some(outer), Some(own)) = (&location.around, location.matcher.literal()) else {
        return false;
    };
    all.iter().any(|other| {
        let is_further_out = other.around.as_ref().map_or(0, String::len) < outer.len();
        let Matcher::Prefix { text, .. } = &other.matcher else { return false };
        is_further_out && text.len() > outer.len() && own.text.starts_with(text.as_str())
    })
}

fn collect<'a>(scope: &Scope<'a>, around: Option<&str>, found: &mut Vec<Location<'a>>) {
    for directive in scope.own("location") {
        let matcher = Matcher::of(directive);
        let scope = scope.inside(directive);
        let prefix = matcher.literal().map(|literal| literal.text);
        let prefix = prefix.or_else(|| around.map(str::to_owned));
        collect(&scope, prefix.as_deref(), found);
        let around = around.map(str::to_owned);
        found.push(Location { directive, matcher, around, scope });
    }
}
