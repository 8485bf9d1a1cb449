//! Errors of a file with invalid TOML. The parser's messages suit readers who know TOML; a
//! configuration in another server's syntax gets its own message.

use std::ops::Range;

use crate::mistakes::{Fault, quoted};

/// Lines that are checked for another server's syntax.
const MAX_LINES_LOOKED_AT: usize = 1000;

/// The parser's messages for a duplicate key and for a string without quotation marks.
const TWICE: &str = "duplicate key";
const UNQUOTED: &str = "string values must be quoted";

/// Its message for a word that starts like another value: `No` like `nan`, `tRUE` like `true`.
const NO_SCALAR: &str = "invalid ";

/// Typographic quotation marks, which word processors insert.
const PRINTED: [char; 6] = ['“', '”', '„', '‘', '’', '‚'];

/// One fault if it is the configuration of another server, and otherwise the first fault of each
/// line, since later ones on the line are consequences.
pub(crate) fn syntax_faults(errors: &[toml::de::Error], text: &str) -> Vec<Fault> {
    let mut spans: Vec<_> =
        errors.iter().map(|error| (error.span().unwrap_or(0..0), error.message())).collect();
    spans.sort_by_key(|(span, _)| span.start);
    if let (Some((span, _)), Some(sentence)) = (spans.first(), of_another_server(text)) {
        return vec![Fault::new(span.clone(), sentence)];
    }
    let bytes = text.as_bytes();
    let mut reported_to = None;
    let mut faults = Vec::new();
    for (span, message) in spans {
        let start = span.start.min(bytes.len());
        if reported_to.is_some_and(|end| !bytes[end..start].contains(&b'\n')) {
            continue;
        }
        reported_to = Some(start);
        faults.push(Fault::new(span.clone(), sentence(text, span, message)));
    }
    faults
}

/// The message for the configuration of another server.
fn of_another_server(text: &str) -> Option<&'static str> {
    let lines = || text.lines().take(MAX_LINES_LOOKED_AT).map(str::trim);
    let has = |is: fn(&str) -> bool| lines().any(is);
    if has(|line| line.starts_with("[[sites]]") || line.starts_with("[pools.")) {
        return None;
    }
    if has(|line| line == "[global]" || line.starts_with("pm.")) {
        return Some(
            "this is the configuration of php-fpm; `maitred fpm --fpm-config FILE` runs with it \
             as it is, and [pools.NAME] takes the same settings, without the prefix `pm.` and \
             with texts in quotation marks",
        );
    }
    if has(|line| line.starts_with("server {") || line.starts_with("http {")) {
        return Some(
            "this is a configuration of nginx; write [[sites]] with the `hosts` and the `root` of \
             each server",
        );
    }
    if has(|line| line.starts_with("<VirtualHost") || line.starts_with("<Directory")) {
        return Some(
            "this is a configuration of Apache; write [[sites]] with the `hosts` and the `root` \
             of each VirtualHost",
        );
    }
    None
}

/// The message for the error at one position.
fn sentence(text: &str, span: Range<usize>, message: &str) -> String {
    let line = text.get(..span.start).unwrap_or_default();
    let start = line.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text.get(start..).unwrap_or_default();
    let line = line.lines().next().unwrap_or_default().trim();
    if let Some((setting, name)) = php_value(line) {
        return format!(
            "`{}` is written as php-fpm has it; expected {setting} = {{ {} = \"…\" }}",
            quoted(line),
            quoted(name)
        );
    }
    if line.starts_with("admin_token") {
        let name = line.split(|c: char| c == '=' || c.is_whitespace());
        let name = quoted(name.into_iter().next().unwrap_or_default());
        return format!("the value of `{name}`, not shown here, is no text in quotation marks");
    }
    let found = text.get(span).unwrap_or_default().trim();
    let plain = found.trim_matches(PRINTED);
    match message {
        _ if plain.is_empty() => {}
        TWICE => {
            let found = quoted(found);
            return format!("`{found}` is set here for the second time; leave one of the two out");
        }
        _ if message.starts_with(UNQUOTED) && plain.len() < found.len() => {
            let (found, plain) = (quoted(found), quoted(plain));
            return format!(
                "`{found}` has the quotation marks of printed text; expected \"{plain}\""
            );
        }
        _ if (message.starts_with(UNQUOTED) || message.starts_with(NO_SCALAR))
            && is_switch(plain) =>
        {
            let found = quoted(found);
            return format!(
                "`{found}` is no TOML; expected true or false, without quotation marks"
            );
        }
        _ if message.starts_with(UNQUOTED) => {
            let found = quoted(found);
            return format!("`{found}` is a text; expected \"{found}\", with quotation marks");
        }
        _ => {}
    }
    format!("this is not TOML: {}", one_line(message))
}

/// Whether a word is a boolean of php.ini or php-fpm.
fn is_switch(word: &str) -> bool {
    let words = ["yes", "no", "on", "off", "true", "false"];
    words.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// The setting and the name in `php_admin_value[memory_limit] = 256M`.
fn php_value(line: &str) -> Option<(&str, &str)> {
    let (setting, rest) = line.split_once('[')?;
    let known = ["php_value", "php_flag", "php_admin_value", "php_admin_flag", "env"];
    let (name, _) = rest.split_once(']')?;
    known.contains(&setting).then_some((setting, name.trim()))
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
