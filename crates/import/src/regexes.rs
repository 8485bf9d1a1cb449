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

/// An expression without its `^` and `\A`, for texts where what it matches is at the start.
pub fn without_starts(expression: &str) -> String {
    let (mut out, mut class, mut letters) = (String::new(), None, expression.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => {
                let escaped = letters.next().map(|(_, escaped)| escaped);
                if escaped != Some('A') || class.is_some() {
                    out.push('\\');
                    out.extend(escaped);
                }
                continue;
            }
            '^' if class == Some(at) => class = Some(at + 1),
            // A `]` that comes first is a letter of the class.
            ']' if class.is_some_and(|start| at > start) => class = None,
            '[' if class.is_none() => class = Some(at + 1),
            '^' if class.is_none() => continue,
            _ => {}
        }
        out.push(letter);
    }
    out
}

/// `$0` is what the pattern matches, and the whole path for nginx.
pub fn whole_match(pattern: &str, to: &str) -> String {
    match pattern.strip_prefix('~').filter(|_| to.contains("$0")) {
        Some(expression) => format!("~^.*?(?:{expression}).*$"),
        None => pattern.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_removed_outside_of_classes() {
        assert_eq!(without_starts(r"^a|(^b|[^c]\^|[]^]\A)[\]^]^"), r"a|(b|[^c]\^|[]^])[\]^]");
    }
}
