//! `uri` of Unit's `match`, in maitred's patterns.

use serde_json::Value;

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
    /// The list of a value; none if it is neither a text nor a list of texts.
    pub fn of(value: &Value) -> Option<UriList> {
        let texts: Vec<&str> = match value {
            Value::String(text) => vec![text.as_str()],
            Value::Array(all) => all.iter().map(Value::as_str).collect::<Option<_>>()?,
            _ => return None,
        };
        let mut list = UriList::default();
        for text in texts {
            match text.strip_prefix('!') {
                Some(text) => list.except.push(pattern(text)),
                None => list.patterns.push(pattern(text)),
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
        let literal = |pattern: &String| match pattern.strip_suffix('*') {
            _ if pattern.starts_with('~') => None,
            Some(text) => Some(LiteralPath { text: text.to_owned(), is_exact: false }),
            None => Some(LiteralPath { text: pattern.clone(), is_exact: true }),
        };
        let literals: Option<Vec<LiteralPath>> = self.except.iter().map(literal).collect();
        without("/", &literals?)
    }
}

/// A pattern of Unit: `*` is any text, `~` begins a regular expression.
fn pattern(text: &str) -> String {
    if text.starts_with('~') {
        return text.to_owned();
    }
    let inner = text.trim_end_matches('*');
    match text {
        _ if !text.contains('*') && text.starts_with('/') => text.to_owned(),
        _ if text.ends_with("/*") && !inner.contains('*') && inner.starts_with('/') => {
            text.to_owned()
        }
        _ => {
            let expression = regex::escape(text).replace("\\*", ".*");
            let expression = format!("^{expression}$");
            let expression = expression.strip_prefix("^.*").unwrap_or(&expression);
            format!("~{}", expression.strip_suffix(".*$").unwrap_or(expression))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_any_text_at_a_star() {
        assert_eq!(pattern("/a"), "/a");
        assert_eq!(pattern("/data/*"), "/data/*");
        assert_eq!(pattern("*.php"), "~\\.php$");
        assert_eq!(pattern("/index.php*"), "~^/index\\.php");
        assert_eq!(pattern("*/.*"), "~/\\.");
        let list = UriList::of(&serde_json::json!(["!/index.php*", "*.php"])).expect("a list");
        assert_eq!(list.except, ["~^/index\\.php"]);
    }
}
