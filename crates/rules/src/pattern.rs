//! Path patterns: an exact path, a folder, a file extension, or a regular expression.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use serde::{Deserialize, Serialize};

/// Longest pattern in bytes.
const MAX_PATTERN_BYTES: usize = 4096;
/// Most memory that one compiled regular expression may take, in bytes. It bounds what
/// `a{1000}{1000}` can do; matching is linear in the path whatever the expression.
const MAX_REGEX_BYTES: usize = 1 << 20;
/// The same for all expressions of one list together.
const MAX_REGEX_SET_BYTES: usize = 64 << 20;

/// A path pattern. It is compared with the decoded path, without `.`, `..` and doubled slashes, so
/// that no spelling of a path escapes a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pattern {
    /// `/a/b`: this path only.
    Exact(String),
    /// `/a/*`: every path with the prefix `/a/`, which is stored.
    Below(String),
    /// `*.css`: every path whose file name has this extension, ignoring case. Stored without the
    /// dot, in lower case.
    Extension(String),
    /// `~^/a[0-9]+$`: every path that this expression matches.
    Regex(String),
}

impl Pattern {
    /// Matches every path.
    pub fn all() -> Pattern {
        Pattern::Below("/".to_owned())
    }

    /// Parses a pattern.
    ///
    /// # Errors
    /// What is wrong with `text`, as the end of a sentence that begins with it.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(format!("is longer than {MAX_PATTERN_BYTES} bytes"));
        }
        if let Some(expression) = text.strip_prefix('~') {
            let expression = expression.trim_start();
            compile(expression)?;
            return Ok(Pattern::Regex(expression.to_owned()));
        }
        if let Some(extension) = text.strip_prefix("*.") {
            return if extension.is_empty() || extension.contains(['/', '*']) {
                Err(NO_PATTERN.to_owned())
            } else {
                Ok(Pattern::Extension(extension.to_ascii_lowercase()))
            };
        }
        let (path, below) = match text.strip_suffix("/*") {
            Some(folder) => (folder, true),
            None => (text, false),
        };
        if !text.starts_with('/') || path.contains('*') {
            return Err(NO_PATTERN.to_owned());
        }
        let written = if below { format!("{path}/") } else { path.to_owned() };
        check_written(&written)?;
        Ok(if below { Pattern::Below(written) } else { Pattern::Exact(written) })
    }

    /// Whether it matches `path`; for single patterns outside a table.
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            Pattern::Exact(exact) => path == exact.as_bytes(),
            Pattern::Below(folder) => path.starts_with(folder.as_bytes()),
            Pattern::Extension(extension) => has_extension(path, extension.as_bytes()),
            Pattern::Regex(text) => compile(text).is_ok_and(|regex| regex.is_match(path)),
        }
    }

    /// Number of groups that a template can use.
    pub(crate) fn groups(&self) -> usize {
        match self {
            Pattern::Exact(_) | Pattern::Extension(_) => 0,
            Pattern::Below(_) => 1,
            Pattern::Regex(text) => compile(text).map_or(0, |regex| regex.captures_len() - 1),
        }
    }
}

const NO_PATTERN: &str = "is no pattern; expected a path such as \"/a/b\", all below a folder as \
                          \"/a/*\", an ending as \"*.css\", or a regular expression as \
                          \"~^/a[0-9]+$\"";

/// Rejects a path that no decoded and normalised request path can equal.
fn check_written(path: &str) -> Result<(), String> {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let last = inner.split('/').count() - 1;
    for (at, name) in inner.split('/').enumerate() {
        if name == "." || name == ".." || (name.is_empty() && at != last) {
            return Err(
                "has an empty segment, `.` or `..`, which no normalised path has".to_owned()
            );
        }
    }
    let is_encoded = |at: usize| {
        let digits = path.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if path.match_indices('%').any(|(at, _)| is_encoded(at)) {
        return Err("is encoded with `%`; write it decoded, as it is compared".to_owned());
    }
    Ok(())
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(path) => out.write_str(path),
            Pattern::Below(folder) => write!(out, "{folder}*"),
            Pattern::Extension(extension) => write!(out, "*.{extension}"),
            Pattern::Regex(text) => write!(out, "~{text}"),
        }
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.to_string()
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Pattern, String> {
        Pattern::parse(&text)
    }
}

/// Compiles a regular expression over bytes: paths need not be UTF-8, and a rule must match those,
/// too.
///
/// # Errors
/// What is wrong with `text`, as the end of a sentence that begins with it.
pub(crate) fn compile(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(MAX_REGEX_BYTES)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => format!(
            "is a regular expression that takes more than {} KiB; repeat less in it",
            MAX_REGEX_BYTES / 1024
        ),
        error => {
            let words = error.to_string();
            let cause = words.lines().last().unwrap_or_default();
            let cause = cause.strip_prefix("error: ").unwrap_or(cause);
            format!("is no regular expression: {cause}")
        }
    })
}

/// Compiles all expressions of a list into one set.
pub(crate) fn compile_set<'t>(texts: impl Iterator<Item = &'t str>) -> Result<RegexSet, String> {
    RegexSetBuilder::new(texts)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(MAX_REGEX_SET_BYTES)
        .build()
        .map_err(|_| {
            format!(
                "has regular expressions that take more than {} MiB together",
                MAX_REGEX_SET_BYTES >> 20
            )
        })
}

/// The extension of the last segment of `path`, after its last dot.
pub(crate) fn extension(path: &[u8]) -> Option<&[u8]> {
    let name = memchr::memrchr(b'/', path).map_or(path, |slash| &path[slash + 1..]);
    memchr::memrchr(b'.', name).map(|dot| &name[dot + 1..])
}

fn has_extension(path: &[u8], wanted: &[u8]) -> bool {
    let name = memchr::memrchr(b'/', path).map_or(path, |slash| &path[slash + 1..]);
    let end = name.len().checked_sub(wanted.len());
    end.and_then(|end| name.split_at_checked(end))
        .is_some_and(|(stem, end)| stem.ends_with(b".") && end.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_and_written_back() {
        for text in ["/", "/a/b", "/a/", "/a/*", "/*", "*.css", "*.tar.gz", "~^/a(b|c)$"] {
            let pattern = Pattern::parse(text).unwrap();
            assert_eq!(pattern.to_string(), text);
            assert_eq!(serde_json::to_value(&pattern).unwrap(), text);
            assert_eq!(serde_json::from_value::<Pattern>(text.into()).unwrap(), pattern);
        }
        assert_eq!(Pattern::parse("/*"), Ok(Pattern::all()));
        assert_eq!(Pattern::parse("~ ^/a$").unwrap().to_string(), "~^/a$");
    }

    #[test]
    fn what_no_path_can_match_is_refused() {
        for text in ["", "a", "*", "*.", "*.a/b", "/a*", "/*/b", "/a/*/b"] {
            assert!(Pattern::parse(text).unwrap_err().starts_with("is no pattern"), "{text}");
        }
        for text in ["/a/../b", "//a", "/a/./b", "/a//*"] {
            assert!(Pattern::parse(text).unwrap_err().starts_with("has an empty"), "{text}");
        }
        assert!(Pattern::parse("/a%20b").unwrap_err().starts_with("is encoded"));
        let long = |bytes: usize| Pattern::parse(&format!("/{}", "a".repeat(bytes - 1)));
        assert!(long(MAX_PATTERN_BYTES).is_ok());
        assert!(long(MAX_PATTERN_BYTES + 1).unwrap_err().starts_with("is longer than 4096"));
    }

    #[test]
    fn an_expression_that_explodes_is_refused() {
        for text in ["~(a{1000}){1000}", "~((((a{10}){10}){10}){10}){10}"] {
            let why = Pattern::parse(text).unwrap_err();
            assert!(why.contains("takes more than 1024 KiB"), "{text}: {why}");
        }
        assert!(Pattern::parse("~(").unwrap_err().starts_with("is no regular expression: "));
    }

    #[test]
    fn a_path_matches_by_its_bytes() {
        let matches = |pattern: &str, path: &[u8]| Pattern::parse(pattern).unwrap().matches(path);
        assert!(matches("/a", b"/a") && !matches("/a", b"/a/"));
        assert!(matches("/a/*", b"/a/b/c") && !matches("/a/*", b"/a"));
        assert!(matches("*.css", b"/x/Y.CSS") && !matches("*.css", b"/css"));
        assert!(matches("*.tar.gz", b"/x.tar.gz") && !matches("*.gz", b"/x.gz/y"));
        assert!(matches("~^/a.b$", b"/a\xffb"));
    }
}
