//! Simple regular expressions as paths, prefixes and endings.

use regex_syntax::hir::Look;
use regex_syntax::hir::literal::{ExtractKind, Extractor};

use crate::prefix_complement::LiteralPath;
use crate::values;

/// Most paths of one expression.
const MAX_PATHS: usize = 30;

/// The end of the name of a script.
const SCRIPT_END: &[u8] = b".php";

/// Paths of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapedPath {
    /// The path, or the begin of all of them.
    pub path: LiteralPath,
    /// One of the endings of each; none without a restriction.
    pub endings: Vec<String>,
}

/// The paths of an expression such as `^/a/(b|c)`, `^/a$` and `^/a/.+\.(css|js)$`; none of others.
pub fn shapes(expression: &str) -> Option<Vec<ShapedPath>> {
    // An anchor is one of its own alternative alone.
    if values::alternatives(expression).len() > 1 {
        return None;
    }
    let inner = expression.strip_prefix('^')?;
    let (inner, is_exact) = match inner.strip_suffix('$') {
        Some(inner) if !inner.ends_with('\\') => (inner, true),
        _ => (inner, false),
    };
    let split = [".+\\.", ".*\\."].iter().find_map(|middle| inner.split_once(middle));
    if let Some((before, after)) = split.filter(|_| is_exact) {
        let endings: Vec<String> =
            literals(after)?.into_iter().map(|text| format!(".{text}")).collect();
        let begins = literals(before)?.into_iter();
        if endings.is_empty() || !before.ends_with('/') {
            return None;
        }
        let shaped = begins.map(|text| ShapedPath {
            path: LiteralPath { text, is_exact: false },
            endings: endings.clone(),
        });
        return Some(shaped.collect());
    }
    let shaped = literals(inner)?
        .into_iter()
        .map(|text| ShapedPath { path: LiteralPath { text, is_exact }, endings: Vec::new() });
    Some(shaped.collect())
}

/// All texts of an expression that has only some.
fn literals(expression: &str) -> Option<Vec<String>> {
    let parsed = regex_syntax::parse(expression).ok()?;
    // Anchors match no text, and would not be seen.
    if !parsed.properties().look_set().is_empty() {
        return None;
    }
    let found = Extractor::new().extract(&parsed);
    let texts = found.literals().filter(|all| all.len() <= MAX_PATHS)?;
    let is_exact = texts.iter().all(|one| one.is_exact());
    let texts = texts.iter().map(|one| String::from_utf8(one.as_bytes().to_vec()).ok());
    let texts: Option<Vec<String>> = texts.collect();
    texts.filter(|_| is_exact)
}

/// Whether all that an expression matches ends otherwise than a script, as with `\.(css|js)$`.
pub fn ends_otherwise(expression: &str) -> bool {
    never_ends_in(expression, SCRIPT_END)
}

/// Whether nothing that an expression matches is a folder's path, as with `\.php$`.
pub fn matches_no_folder(expression: &str) -> bool {
    never_ends_in(expression, b"/")
}

/// Whether nothing that an expression matches has an ending.
pub fn never_ends_in(expression: &str, other: &[u8]) -> bool {
    let text = expression.trim_start_matches("(?i)");
    values::alternatives(text).iter().all(|part| {
        let whole = regex_syntax::parse(part);
        // Look-around before an ending says nothing of it.
        let end = || part.rfind("\\.").and_then(|at| regex_syntax::parse(&part[at..]).ok());
        let Some(parsed) = whole.ok().or_else(end) else { return false };
        let is_anchored = parsed.properties().look_set_suffix().contains(Look::End);
        let mut extractor = Extractor::new();
        let found = extractor.kind(ExtractKind::Suffix).extract(&parsed);
        let is_other = |end: &[u8]| {
            let end = end.to_ascii_lowercase();
            !end.ends_with(other) && !other.ends_with(&end)
        };
        let ends = found.literals();
        is_anchored && ends.is_some_and(|all| all.iter().all(|one| is_other(one.as_bytes())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_is_that_of_no_script_only_if_it_says_so() {
        for text in [
            r"\.(css|js)$",
            r"(?i)^/(a|b)/.+\.(?:jpe?g|woff2?)$",
            r"\.txt$|\.log$",
            r"^/(?!a).*\.(css|js)$",
            r"^/w/(COPYING|CREDITS)$",
        ] {
            assert!(ends_otherwise(text), "{text}");
        }
        for text in [
            r"^/(media|uploads)/(.+)$",
            r"^/a/[^/]+$",
            r"^/a/.*$",
            r"\.(css|PHP)$",
            r"\.(css|js)",
            r"\.css|\.js$",
            r"^/a(/|$)",
            r"^/(?!a)(.+)$",
            r"\.p?hp$",
        ] {
            assert!(!ends_otherwise(text), "{text}");
        }
    }

    #[test]
    fn an_expression_matches_no_folder_only_if_its_end_says_so() {
        for text in [r"\.php$", r"(?i)\.(css|js)$", r"^/(?!a).*\.png$", "^/a$"] {
            assert!(matches_no_folder(text), "{text}");
        }
        for text in ["/private/", r"\.php(/|$)", "^/a(/|$)", r"^/a/.*$", r"/\.", r"\.php"] {
            assert!(!matches_no_folder(text), "{text}");
        }
    }

    #[test]
    fn simple_expressions_are_paths_prefixes_and_endings() {
        let of = |text: &str| {
            shapes(text).map(|all| {
                let shown = all.into_iter().map(|one| {
                    let end = if one.path.is_exact { "$" } else { "*" };
                    format!("{}{end}{}", one.path.text, one.endings.join("|"))
                });
                shown.collect::<Vec<_>>().join(" ")
            })
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            of(r"^/w/resources/(assets|lib)"),
            some("/w/resources/assets* /w/resources/lib*")
        );
        assert_eq!(of(r"^/w/(a|b)\.php$"), some("/w/a.php$ /w/b.php$"));
        assert_eq!(of(r"^/w/s/.+\.(css|js)$"), some("/w/s/*.css|.js"));
        for text in [
            r"\.php$",
            r"^/a/[^/]+$",
            r"^/a(/|$)",
            r"^/a.+",
            r"^/a/.+\.(css|.*)$",
            r"^/a|/b$",
            r"^/a/.+\.css|js$",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
