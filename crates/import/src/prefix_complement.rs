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

/// The pattern for all paths that begin with `prefix`, but for those with one of the endings.
/// `None` if there are too many of them, or nothing is left.
pub fn without_endings(prefix: &str, endings: &[String]) -> Option<String> {
    if endings.len() > MAX_EXCEPTIONS {
        return None;
    }
    let endings: Vec<&str> = endings.iter().map(String::as_str).collect();
    Some(format!("~^{}{}$", regex::escape(prefix), others_before(&endings)?))
}

/// What ends in none of these.
fn others_before(endings: &[&str]) -> Option<String> {
    if endings.iter().any(|text| text.is_empty()) {
        return None;
    }
    let mut by_last: BTreeMap<char, Vec<&str>> = BTreeMap::new();
    for text in endings {
        let mut letters = text.chars();
        if let Some(last) = letters.next_back() {
            by_last.entry(last).or_default().push(letters.as_str());
        }
    }
    let letters: String = by_last.keys().map(|c| in_class(*c)).collect();
    let mut ways = vec![String::new(), format!(".*[^{letters}]")];
    for (last, rest) in &by_last {
        if let Some(before) = others_before(rest) {
            ways.push(format!("{before}{}", regex::escape(&last.to_string())));
        }
    }
    Some(format!("(?:{})", ways.join("|")))
}

/// A regular expression for the name of a folder or a file that is none of these.
pub fn other_name(names: &[String]) -> Option<String> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (!names.is_empty() && names.len() <= MAX_EXCEPTIONS).then(|| other_rest(&names, true))
}

fn other_rest(names: &[&str], is_begin: bool) -> String {
    let mut by_first: BTreeMap<char, Vec<&str>> = BTreeMap::new();
    for name in names {
        let mut letters = name.chars();
        if let Some(first) = letters.next() {
            by_first.entry(first).or_default().push(letters.as_str());
        }
    }
    let letters: String = by_first.keys().map(|c| in_class(*c)).collect();
    let mut ways = vec![format!("[^/{letters}][^/]*")];
    if !is_begin && !names.contains(&"") {
        ways.push(String::new());
    }
    for (first, rest) in &by_first {
        ways.push(format!("{}{}", regex::escape(&first.to_string()), other_rest(rest, false)));
    }
    format!("(?:{})", ways.join("|"))
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

    #[test]
    fn names_and_endings_are_all_but_those_that_exist() {
        let names = ["lib", "doku.php", "li"].map(str::to_owned);
        let name = other_name(&names).expect("there are few");
        let pattern = Pattern::parse(&format!("~^/{name}(?:/|$)")).expect("it is a pattern");
        for path in ["/libs", "/l", "/start", "/doku.phpx/a", "/wiki/lib"] {
            assert!(pattern.matches(path.as_bytes()), "{path}");
        }
        for path in ["/", "/lib", "/lib/a", "/li/x", "/doku.php"] {
            assert!(!pattern.matches(path.as_bytes()), "{path}");
        }
        let pattern = without_endings("/skins/", &[".css", ".js", ".jss"].map(str::to_owned));
        let pattern = Pattern::parse(&pattern.expect("there are few")).expect("it is a pattern");
        for path in ["/skins/", "/skins/a.php", "/skins/css", "/skins/a.css/b", "/skins/a.cssx"] {
            assert!(pattern.matches(path.as_bytes()), "{path}");
        }
        for path in ["/skins/a.css", "/skins/a/b.js", "/skins/x.jss", "/other"] {
            assert!(!pattern.matches(path.as_bytes()), "{path}");
        }
    }
}
