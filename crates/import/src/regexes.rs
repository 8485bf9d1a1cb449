//! Regular expressions of other servers as patterns of maitred.

use maitred_rules::Pattern;

/// Checks that maitred takes a pattern, and that it means the same.
///
/// # Errors
/// Why not, as the end of a sentence.
pub fn check_regex(pattern: &str) -> Result<(), String> {
    Pattern::parse(pattern).map_err(|why| format!("`{pattern}` {why}"))?;
    // Set operations and word boundaries, which are letters for nginx.
    let other = ["&&", "--", "~~", "\\<", "\\>"].iter().find(|text| pattern.contains(**text));
    match other.filter(|_| pattern.starts_with('~')) {
        Some(text) => Err(format!("`{text}` in `{pattern}` has another meaning here")),
        None => Ok(()),
    }
}

/// `$0` is what the pattern matches, and the whole path for nginx.
pub fn whole_match(pattern: &str, to: &str) -> String {
    match pattern.strip_prefix('~').filter(|_| to.contains("$0")) {
        Some(expression) => format!("~^.*?(?:{expression}).*$"),
        None => pattern.to_owned(),
    }
}
