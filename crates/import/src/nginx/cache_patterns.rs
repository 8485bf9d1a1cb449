//! Expressions of nginx as the patterns of a page cache: names of cookies and parameters, and
//! paths. A pattern matches at least what the expression does.

use crate::values;

/// The begins of cookies whose case is known, as their applications write them.
const COOKIES: [&str; 8] =
    ["PHPSESSID", "comment_", "edd_", "laravel_session", "woocommerce_", "wordpress", "wp-", "wp_"];

/// What stands before the name of a parameter.
const BEFORE_NAME: [&str; 5] = ["[?&]", "[&?]", r"[\?&]", r"\?", "&"];

/// The paths and the parameters of an expression for addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AddressPatterns {
    pub(super) paths: Vec<String>,
    pub(super) parameters: Vec<String>,
    /// Whether a query can match that they leave out.
    pub(super) ignores_query: bool,
}

impl AddressPatterns {
    /// Those of an expression for `$request_uri`, which has a path and a query.
    pub(super) fn of(expression: &str, has_case: bool) -> Option<AddressPatterns> {
        let mut found = AddressPatterns::default();
        for part in alternatives(expression) {
            if part.contains(['=', '?', '&']) {
                let begin = BEFORE_NAME.iter().find_map(|begin| part.strip_prefix(begin));
                let name = parameter(begin.unwrap_or(part))?;
                match begin {
                    Some(_) => found.parameters.push(name.to_owned()),
                    None => {
                        found.parameters.push(format!("*{name}"));
                        found.paths.extend(glob(part));
                    }
                }
                continue;
            }
            found.paths.push(glob(part)?);
            if is_within_query(part) {
                found.parameters.push("*".to_owned());
            } else {
                found.ignores_query |= !part.starts_with('^');
            }
        }
        if !has_case {
            add_lower_case(&mut found.paths);
            add_lower_case(&mut found.parameters);
        }
        Some(found)
    }

    /// Those of an expression for a path alone.
    pub(super) fn of_path(expression: &str, has_case: bool) -> Option<AddressPatterns> {
        let mut paths: Vec<String> =
            alternatives(expression).into_iter().map(glob).collect::<Option<_>>()?;
        if !has_case {
            add_lower_case(&mut paths);
        }
        Some(AddressPatterns { paths, ..AddressPatterns::default() })
    }
}

/// The names of cookies that an expression for the header `Cookie` is about. `None` if it is about
/// more than names, or about names in any case that no known application has.
pub(super) fn cookies(expression: &str, has_case: bool) -> Option<Vec<String>> {
    let parts = alternatives(expression).into_iter();
    let patterns = parts.map(|part| glob(part).filter(|_| is_within_name(part)));
    match has_case {
        true => patterns.collect(),
        false => patterns.map(|pattern| with_known_case(&pattern?)).collect(),
    }
}

/// Whether an expression for an address matches in a query as well, in names or values: it does not
/// begin as a path, or goes on after any text.
fn is_within_query(expression: &str) -> bool {
    let begin = expression.trim_end_matches('$').trim_end_matches(".*").trim_end_matches(".+");
    !begin.starts_with(['/', '^']) || [".*", ".+", "[^"].iter().any(|any| begin.contains(any))
}

/// Whether an expression matches within the name of one cookie, and not its value or the next one.
fn is_within_name(expression: &str) -> bool {
    // What follows a name may be anything.
    let inner = expression.trim_start_matches('^').trim_end_matches(['.', '*', '+']);
    !inner.replace("\\.", "").contains(['=', ';', ',', ':', ' ', '$', '.', '^'])
}

/// The pattern of a cookie in the case that its application writes.
fn with_known_case(pattern: &str) -> Option<String> {
    let name = pattern.trim_start_matches('*');
    if !name.contains(|letter: char| letter.is_ascii_alphabetic()) {
        return Some(pattern.to_owned());
    }
    let stars = &pattern[..pattern.len() - name.len()];
    COOKIES.iter().find_map(|begin| {
        let (own, rest) = name.split_at_checked(begin.len())?;
        let is_known = own.eq_ignore_ascii_case(begin);
        is_known.then(|| format!("{stars}{begin}{}", rest.to_ascii_lowercase()))
    })
}

/// The name in an expression such as `preview=true`.
fn parameter(expression: &str) -> Option<&str> {
    let (name, value) = expression.split_once('=')?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let is_certain = !value.starts_with(['?', '*', '{']);
    (is_certain && !name.is_empty() && name.chars().all(is_plain)).then_some(name)
}

fn add_lower_case(patterns: &mut Vec<String>) {
    let lower: Vec<String> = patterns.iter().map(|one| one.to_ascii_lowercase()).collect();
    patterns.extend(lower);
}

/// The alternatives of an expression, also in a group that is all of it.
fn alternatives(expression: &str) -> Vec<&str> {
    let inner = expression.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let inner = inner.filter(|text| !text.contains(['(', ')'])).unwrap_or(expression);
    values::alternatives(inner)
}

fn glob(text: &str) -> Option<String> {
    let mut out = if text.starts_with('^') { String::new() } else { "*".to_owned() };
    let mut letters = text.trim_start_matches('^').chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '$' if letters.peek().is_none() => return Some(out),
            '\\' => out.push(letters.next().filter(|c| !c.is_ascii_alphanumeric())?),
            '.' => out.push('*'),
            '[' => {
                letters.find(|c| *c == ']')?;
                out.push('*');
            }
            // What may be absent, or repeated: any text.
            '*' | '+' if out.ends_with('*') => {}
            c if c.is_ascii_alphanumeric() || "/-_=,;:@".contains(c) => out.push(c),
            _ => return None,
        }
    }
    out.push('*');
    while out.contains("**") {
        out = out.replace("**", "*");
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_become_patterns_for_at_least_the_same_texts() {
        let of = |text: &str| {
            let found = AddressPatterns::of_path(text, true);
            found.map(|found| found.paths.join(" "))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            of("/wp-admin/|/xmlrpc.php|wp-.*.php"),
            some("*/wp-admin/* */xmlrpc*php* *wp-*php*")
        );
        assert_eq!(of("comment_author|wordpress_[a-f0-9]+"), some("*comment_author* *wordpress_*"));
        assert_eq!(of("^/a$"), some("/a"));
        for text in ["a(b|c)", "ab?", "a{2}", "\\d"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn an_expression_for_a_cookie_is_about_the_name_alone_and_in_a_known_case() {
        let of = |text: &str, has_case| cookies(text, has_case).map(|all| all.join(" "));
        for (text, pattern) in [
            ("^sid", "sid*"),
            ("session_.*", "*session_*"),
            ("Wiki_session|wikiUserID", "*Wiki_session* *wikiUserID*"),
        ] {
            assert_eq!(of(text, true).as_deref(), Some(pattern), "{text}");
        }
        for text in ["role=admin", "a;b", "a: b", "user$", "user.*admin", "user[^;]+admin"] {
            assert_eq!(of(text, true), None, "{text}");
        }
        for (text, pattern) in [
            ("Comment_Author|phpsessid", "*comment_author* *PHPSESSID*"),
            ("^wordpress_[a-f0-9]+|wp-postpass", "wordpress_* *wp-postpass*"),
        ] {
            assert_eq!(of(text, false).as_deref(), Some(pattern), "{text}");
        }
        for text in ["prestashop", "wp-postpass|wikiuserid"] {
            assert_eq!(of(text, false), None, "{text}");
        }
    }

    #[test]
    fn an_expression_for_an_address_is_about_its_path_and_about_its_parameters() {
        let of = |text: &str, has_case| {
            let found = AddressPatterns::of(text, has_case)?;
            Some([found.paths.join(" "), found.parameters.join(" ")])
        };
        let some = |paths: &str, names: &str| Some([paths.to_owned(), names.to_owned()]);
        assert_eq!(of("/cart/|/feed$", true), some("*/cart/* */feed", ""));
        // `index.php?route=checkout/cart` has the path in a query.
        assert_eq!(of("sitemap|checkout/cart", true), some("*sitemap* *checkout/cart*", "* *"));
        assert_eq!(of("^/shop/.*admin", true), some("/shop/*admin*", "*"));
        assert_eq!(of("^/shop/.*$", true), some("/shop/*", ""));
        for (text, is_ignored) in [("/cart/", true), ("^/cart/", false), ("cart", false)] {
            let found = AddressPatterns::of(text, true);
            assert_eq!(found.map(|one| one.ignores_query), Some(is_ignored), "{text}");
        }
        assert_eq!(of(r"\?s=|[?&]preview=true", true), some("", "s preview"));
        assert_eq!(of("add-to-cart=", true), some("*add-to-cart=*", "*add-to-cart"));
        assert_eq!(of("/Cart/", false), some("*/Cart/* */cart/*", ""));
        for text in [r"\?", r"\?s", "a=?b", "/tag=1", "a.b="] {
            assert_eq!(of(text, true), None, "{text}");
        }
    }
}
