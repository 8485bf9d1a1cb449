//! Differences of generated directives from Apache that have an explanation
//! (docs/guide/from-apache.md).

use super::trees::{Asked, Tree};

const NESTED: &str = "Apache does not evaluate conditions within conditions again after an \
     internal redirect, for an index, and for the page of an error";

const DISCARDED: &str = "[DPI] that leaves the path of a script as it is: SCRIPT_NAME has the \
     former path info in Apache";

const LOOK_UPS: &str = "conditions that look up more than 250 paths for one request (-U, -F, \
     LA-U) are a 500";

/// Why a response may differ in these lines.
pub fn explanation(tree: &Tree, asked: &Asked, lines: &[String]) -> Option<&'static str> {
    let folder = asked.target.split('/').nth(1)?;
    let own = tree.files.iter().filter(|file| {
        file.name.ends_with(".htaccess") && file.name.split('/').next() == Some(folder)
    });
    let has = |test: fn(&str) -> bool| own.clone().any(|file| test(&file.text));
    let is_script_name = |line: &String| line.contains("SCRIPT_NAME") || line.contains("PHP_SELF");
    let is_name = !lines.is_empty() && lines.iter().all(is_script_name);
    if is_name && has(|text| text.contains("[DPI")) {
        return Some(DISCARDED);
    }
    let looks_up = |text: &str| [" -U", " -F", "LA-U"].iter().any(|test| text.contains(test));
    if lines.iter().any(|line| line == "status: 500") && has(looks_up) {
        return Some(LOOK_UPS);
    }
    has(has_nested_conditions).then_some(NESTED)
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
