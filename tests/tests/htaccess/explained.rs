//! Differences of generated directives from Apache that have an explanation
//! (docs/guide/from-apache.md).

use super::trees::{Asked, Tree};

/// Why a response may differ.
pub fn explanation(tree: &Tree, asked: &Asked) -> Option<&'static str> {
    let folder = asked.target.split('/').nth(1)?;
    let mut files = tree.files.iter().filter(|file| {
        file.name.ends_with(".htaccess") && file.name.split('/').next() == Some(folder)
    });
    files.any(|file| has_nested_conditions(&file.text)).then_some(
        "Apache does not evaluate conditions within conditions again after an internal redirect, \
         for an index, and for the page of an error",
    )
}

/// Whether a section with a condition is within another one.
fn has_nested_conditions(text: &str) -> bool {
    let mut depth: usize = 0;
    text.lines().any(|line| {
        let is_one = |start: &str| {
            ["If", "ElseIf", "Else"].iter().any(|name| {
                let rest = line.strip_prefix(start).and_then(|rest| rest.strip_prefix(name));
                rest.is_some_and(|rest| rest.starts_with([' ', '>']))
            })
        };
        match (is_one("<"), is_one("</")) {
            (true, _) => depth += 1,
            (_, true) => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > 1
    })
}
