//! `uri` of Unit's `match`, in maitred's patterns.

use maitred_rules::Pattern;
use serde_json::Value;

use crate::escapes::percent_decoded;
use crate::prefix_complement::{LiteralPath, without};

/// Patterns for all paths.
const ALL_PATHS: [&str; 2] = ["/*", "~$"];

/// The patterns of a list: a path matches if one of them does, and no negated one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UriList {
    /// As maitred writes them.
    pub patterns: Vec<String>,
    /// Negated ones.
    pub except: Vec<String>,
}

impl UriList {
    /// The list of a value; none if it is neither a text nor a list of texts, or a text has an
    /// escape that is none.
    pub fn of(value: &Value) -> Option<UriList> {
        let texts: Vec<&str> = match value {
            Value::String(text) => vec![text.as_str()],
            Value::Array(all) => all.iter().map(Value::as_str).collect::<Option<_>>()?,
            _ => return None,
        };
        let mut list = UriList::default();
        for text in texts {
            match text.strip_prefix('!') {
                Some(text) => list.except.push(pattern(text)?),
                None => list.patterns.push(pattern(text)?),
            }
        }
        Some(list)
    }

    /// Whether it has all paths.
    pub fn is_all(&self) -> bool {
        self.except.is_empty() && self.has_all()
    }

    /// Whether it has all paths but those that are negated.
    pub fn has_all(&self) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|one| ALL_PATHS.contains(&&**one))
    }

    /// The pattern for all paths but those that are negated; none if they have no pattern.
    pub fn complement(&self) -> Option<String> {
        without("/", &self.literal_exceptions()?)
    }

    /// The patterns for its paths alone; none if some have no pattern.
    pub fn exact(&self) -> Option<Vec<String>> {
        match (self.except.is_empty(), self.has_all()) {
            (true, true) => Some(vec!["/*".to_owned()]),
            (true, false) => Some(self.patterns.clone()),
            (false, true) => Some(vec![self.complement()?]),
            (false, false) => {
                let parts: Option<Vec<Vec<String>>> =
                    self.patterns.iter().map(|one| self.part(one)).collect();
                Some(parts?.concat())
            }
        }
    }

    /// A pattern without what is negated: nothing is left if all of it is.
    fn part(&self, pattern: &str) -> Option<Vec<String>> {
        let LiteralPath { text, is_exact } = literal(pattern)?;
        if is_exact {
            let parsed = self.except.iter().map(|one| Pattern::parse(one).ok());
            let except: Vec<Pattern> = parsed.collect::<Option<_>>()?;
            let is_negated = except.iter().any(|one| one.matches(text.as_bytes()));
            return Some(if is_negated { Vec::new() } else { vec![text] });
        }
        let except = self.literal_exceptions()?;
        if except.iter().any(|one| !one.is_exact && text.starts_with(&one.text)) {
            return Some(Vec::new());
        }
        match except.iter().any(|one| one.text.starts_with(&text)) {
            true => Some(vec![without(&text, &except)?]),
            false => Some(vec![pattern.to_owned()]),
        }
    }

    fn literal_exceptions(&self) -> Option<Vec<LiteralPath>> {
        self.except.iter().map(|one| literal(one)).collect()
    }
}

fn literal(pattern: &str) -> Option<LiteralPath> {
    match pattern.strip_suffix('*') {
        _ if pattern.starts_with('~') => None,
        Some(text) => Some(LiteralPath { text: text.to_owned(), is_exact: false }),
        None => Some(LiteralPath { text: pattern.to_owned(), is_exact: true }),
    }
}

/// A pattern of Unit: `*` is any text, `~` begins a regular expression. Unit decodes all others.
fn pattern(text: &str) -> Option<String> {
    if text.starts_with('~') {
        return Some(text.to_owned());
    }
    let parts: Vec<String> = text.split('*').map(percent_decoded).collect::<Option<_>>()?;
    let is_plain = !parts.iter().any(|part| part.contains('*')) && parts[0].starts_with('/');
    let of_parts = match parts.as_slice() {
        [path] if is_plain => Some(path.clone()),
        [folder, rest] if is_plain && folder.ends_with('/') && rest.is_empty() => {
            Some(format!("{folder}*"))
        }
        _ => None,
    };
    Some(of_parts.unwrap_or_else(|| {
        let parts: Vec<String> = parts.iter().map(|part| regex::escape(part)).collect();
        let expression = format!("^{}$", parts.join(".*"));
        let expression = expression.strip_prefix("^.*").unwrap_or(&expression);
        format!("~{}", expression.strip_suffix(".*$").unwrap_or(expression))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_any_text_at_a_star() {
        assert_eq!(pattern("/a").as_deref(), Some("/a"));
        assert_eq!(pattern("/data/*").as_deref(), Some("/data/*"));
        assert_eq!(pattern("*.php").as_deref(), Some("~\\.php$"));
        assert_eq!(pattern("/index.php*").as_deref(), Some("~^/index\\.php"));
        assert_eq!(pattern("*/.*").as_deref(), Some("~/\\."));
        assert_eq!(pattern("/my%20docs/*").as_deref(), Some("/my docs/*"));
        assert_eq!(pattern("/a%2A%2f*").as_deref(), Some("~^/a\\*/"));
        assert_eq!(pattern("/a%2"), None);
        let list = UriList::of(&serde_json::json!(["!/index.php*", "*.php"])).expect("a list");
        assert_eq!(list.except, ["~^/index\\.php"]);
    }

    #[test]
    fn negated_paths_are_in_none_of_the_exact_patterns() {
        let of = |value: serde_json::Value| UriList::of(&value).and_then(|list| list.exact());
        let patterns =
            of(serde_json::json!(["/api/*", "/a", "/b/c/*", "!/api/internal/*", "!/b/*"]));
        let patterns = patterns.expect("they are literal");
        assert_eq!(patterns.len(), 2, "{patterns:?}");
        let api = Pattern::parse(&patterns[0]).expect("it is a pattern");
        assert!(api.matches(b"/api/") && api.matches(b"/api/internal"), "{patterns:?}");
        assert!(!api.matches(b"/api/internal/a") && !api.matches(b"/b"), "{patterns:?}");
        assert_eq!(of(serde_json::json!(["/a.sql", "/b", "!*.sql"])), Some(vec!["/b".to_owned()]));
        assert_eq!(of(serde_json::json!(["/a/*", "!*.sql"])), None);
        assert_eq!(of(serde_json::json!(["*.php", "!/a"])), None);
    }
}
