//! Whether `try_files` and `rewrite` leave a path its own file, or lead it to another one.

use regex_syntax::is_meta_character;

use super::redirect_target::QUERY;
use crate::source_directive::Directive;
use crate::values::alternatives;

/// The names of the path's own file in `try_files`.
const OWN_FILE: [&str; 4] = ["$uri", "${uri}", "$document_uri", "${document_uri}"];

/// What repeats the letter before it, perhaps never.
const REPETITIONS: [char; 3] = ['?', '*', '{'];

/// Whether a `try_files` sends the file of the path itself.
pub(super) fn tries_own_file(try_files: &Directive) -> bool {
    let files = try_files.arguments.split_last().map(|(_, files)| files).unwrap_or_default();
    files.iter().any(|file| OWN_FILE.contains(&file.strip_prefix('/').unwrap_or(file)))
}

/// Whether a `rewrite` sends clients to another address.
pub(super) fn is_redirect(rewrite: &Directive) -> bool {
    let begins = ["http://", "https://", "$scheme"];
    ["redirect", "permanent"].contains(&rewrite.argument(2))
        || begins.iter().any(|start| rewrite.argument(1).starts_with(start))
}

/// Whether a `rewrite` leads its paths elsewhere: to one page, to a script that decides who sees
/// them, into another folder, or to what a variable says.
pub(super) fn leads_elsewhere(rewrite: &Directive) -> bool {
    if rewrite.name != "rewrite" || is_redirect(rewrite) {
        return false;
    }
    let (expression, to) = (rewrite.first(), rewrite.argument(1));
    let to = QUERY.iter().find_map(|end| to.strip_suffix(end)).unwrap_or(to);
    let to = to.split('?').next().unwrap_or_default();
    let Some((begin, _)) = to.split_once('$') else { return true };
    let groups = pcre2::bytes::Regex::new(expression).map_or(0, |regex| regex.captures_len() - 1);
    !literal_begin(expression).starts_with(begin)
        || !variables(to).all(|name| is_of_path(name, groups))
}

/// The names of the variables in a text.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).map(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let is_group = rest.starts_with(|letter: char| letter.is_ascii_digit());
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        &rest[..if is_group { 1 } else { end.unwrap_or(rest.len()) }]
    })
}

/// Whether a variable is the path, or one of the groups of the expression that it matches.
fn is_of_path(name: &str, groups: usize) -> bool {
    let is_group = name.parse().is_ok_and(|number: usize| (1..=groups).contains(&number));
    is_group || ["uri", "document_uri"].contains(&name)
}

/// What all paths of an expression begin with: a slash, if nothing more is certain.
fn literal_begin(expression: &str) -> String {
    let mut literal = String::new();
    let anchored = expression.strip_prefix('^').filter(|_| alternatives(expression).len() == 1);
    let mut rest = anchored.unwrap_or_default().chars();
    while let Some(letter) = rest.next() {
        let escaped = rest.clone().next().filter(|next| is_meta_character(*next) || *next == '/');
        match (letter, escaped) {
            ('\\', Some(escaped)) => {
                literal.push(escaped);
                rest.next();
            }
            (letter, _) if REPETITIONS.contains(&letter) => {
                literal.pop();
                break;
            }
            (letter, _) if letter == '\\' || is_meta_character(letter) && letter != '-' => break,
            (letter, _) => literal.push(letter),
        }
    }
    if literal.is_empty() { "/".to_owned() } else { literal }
}
