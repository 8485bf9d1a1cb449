//! Regular expressions for all paths with a prefix but some: maitred's have no look-around.

use std::collections::BTreeMap;

/// Most exceptions; each adds about as many bytes as it is long.
const MAX_EXCEPTIONS: usize = 40;

/// A path, or all paths that begin with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiteralPath {
    /// The text.
    pub text: String,
    /// Whether it is this path alone.
    pub is_exact: bool,
}

/// The pattern for all paths that begin with `prefix`, but for the exceptions. `None` if there are
/// too many of them, or nothing is left.
pub fn without(prefix: &str, exceptions: &[LiteralPath]) -> Option<String> {
    if exceptions.len() > MAX_EXCEPTIONS {
        return None;
    }
    let rest: Vec<(&str, bool)> = exceptions
        .iter()
        .filter_map(|one| Some((one.text.strip_prefix(prefix)?, one.is_exact)))
        .collect();
    let begin = format!("~^{}", regex::escape(prefix));
    match rest.is_empty() {
        true => Some(begin),
        false => Some(begin + &others(&rest)?),
    }
}

/// What may follow, so that the text neither equals an exact exception nor begins with another.
fn others(exceptions: &[(&str, bool)]) -> Option<String> {
    if exceptions.iter().any(|(text, is_exact)| text.is_empty() && !is_exact) {
        return None;
    }
    let mut by_first: BTreeMap<char, Vec<(&str, bool)>> = BTreeMap::new();
    for (text, is_exact) in exceptions {
        let mut letters = text.chars();
        if let Some(first) = letters.next() {
            by_first.entry(first).or_default().push((letters.as_str(), *is_exact));
        }
    }
    let mut ways = Vec::new();
    if !exceptions.iter().any(|(text, _)| text.is_empty()) {
        ways.push("$".to_owned());
    }
    let letters: String = by_first.keys().map(|c| in_class(*c)).collect();
    ways.push(if letters.is_empty() { ".".to_owned() } else { format!("[^{letters}]") });
    for (first, rest) in &by_first {
        if let Some(more) = others(rest) {
            ways.push(format!("{}{more}", regex::escape(&first.to_string())));
        }
    }
    Some(format!("(?:{})", ways.join("|")))
}

fn in_class(letter: char) -> String {
    match letter.is_ascii_alphanumeric() || letter == '/' {
        true => letter.to_string(),
        false => format!("\\{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_rules::Pattern;

    #[test]
    fn all_paths_match_but_the_exceptions() {
        let exceptions = [("/health", true), ("/api/", false), ("/a.b-", false)];
        let exceptions =
            exceptions.map(|(text, is_exact)| LiteralPath { text: text.to_owned(), is_exact });
        let pattern = without("/", &exceptions).expect("there are few");
        let pattern = Pattern::parse(&pattern).expect("it is a pattern");
        for path in ["/", "/healthy", "/heal", "/api", "/apix", "/x", "/a.b", "/axb-"] {
            assert!(pattern.matches(path.as_bytes()), "{path}");
        }
        for path in ["/health", "/api/", "/api/x", "/a.b-", "/a.b-c"] {
            assert!(!pattern.matches(path.as_bytes()), "{path}");
        }
    }
}
