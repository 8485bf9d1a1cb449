//! Expressions for hidden files, which are a 404 in any case, but for `/.well-known/`.

use crate::prefix_complement::{LiteralPath, without};
use crate::values::alternatives;

/// What stands before the name of a file or a folder.
const BEGINS: [&str; 7] = ["^/?", "^/", "(^|/)", "(?:^|/)", "(/|^)", "/", "^"];

/// The end of a look-ahead that excepts `/.well-known/` and nothing in it.
const WELL_KNOWN_ENDS: [&str; 5] = ["", "/", "$", "(/|$)", "(?:/|$)"];

/// Whether all paths of an expression are of hidden files, and none is in `/.well-known/`.
pub fn are_hidden(expression: &str) -> bool {
    let text = expression.strip_prefix("(?i)").unwrap_or(expression).replace("\\/", "/");
    alternatives(&text).iter().all(|part| is_hidden(part))
}

/// The pattern of all hidden files, but for `/.well-known/`.
pub fn hidden_paths() -> Option<String> {
    let well_known = [("/.well-known", true), ("/.well-known/", false)];
    let exceptions = well_known.map(|(text, is_exact)| {
        let text = text.to_owned();
        LiteralPath { text, is_exact }
    });
    without("/.", &exceptions).map(|pattern| pattern.replacen('^', "", 1))
}

fn is_hidden(part: &str) -> bool {
    let Some(name) = BEGINS.iter().find_map(|begin| part.strip_prefix(begin)) else {
        return false;
    };
    let inner = name.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
    match inner.map(|inner| inner.strip_prefix("?:").unwrap_or(inner)) {
        Some(inner) => alternatives(inner).iter().all(|one| begins_hidden(one)),
        None => begins_hidden(name),
    }
}

fn begins_hidden(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("\\.") else { return false };
    if let Some(ahead) = rest.strip_prefix("(?!well-known") {
        let mut ends = WELL_KNOWN_ENDS.iter().filter_map(|end| ahead.strip_prefix(end));
        return ends.any(|after| after.starts_with(')'));
    }
    // A first letter that must be there and is not that of `.well-known`.
    let mut letters = rest.chars();
    let first = letters.next().is_some_and(|one| {
        one.is_ascii_alphanumeric() && !one.eq_ignore_ascii_case(&'w') || one == '_'
    });
    first && !letters.next().is_some_and(|next| matches!(next, '?' | '*' | '{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alternative_of_an_expression_for_hidden_files_begins_a_hidden_name() {
        for text in [
            r"^\.ht",
            r"(^|/)\.git",
            r"/\.(?!well-known)",
            r"\/\.(?!well-known\/).*",
            r"(?i)/\.env$|/\.git",
            r"/\.ht[^/]*$",
            r"/(\.(?!well-known).*)",
            r"^/(?:\.git|\.svn)",
        ] {
            assert!(are_hidden(text), "{text}");
        }
        for text in [
            r"\.(sql|bak)$",
            r"\.inc$",
            r"(^|/)\.git|composer\.json$",
            r"/\.git|/vendor/",
            r"/(\.git|vendor/)",
            r"/(\.git)(a|b)",
            r"/\.",
            r"/\.well-known/private",
            r"/\.w",
            r"/\.(?!well-known/acme-challenge)",
            r"/\.(?!git)",
            r"/\.g?well-known",
            r"/[(]\.a|b",
            r"/\.a[(]|/b",
        ] {
            assert!(!are_hidden(text), "{text}");
        }
    }
}
