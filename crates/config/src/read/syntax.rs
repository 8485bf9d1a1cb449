//! Errors of a file with invalid TOML. The parser's messages suit readers who know TOML; a
//! configuration in another server's syntax gets its own message.

use std::ops::Range;

use crate::mistakes::{Fault, quoted};
use crate::read::foreign::{foreign_name, fpm_table};

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
    if has(|line| line.starts_with("php_fastcgi") || line.starts_with("root * ")) {
        return Some(
            "this is a configuration of Caddy; write [[sites]] with the `hosts` and the `root` of \
             each site",
        );
    }
    if text.trim_start().starts_with('{') {
        return Some(
            "this is JSON; expected TOML, such as listen = \":80\", and [[sites]] before the \
             settings of each site",
        );
    }
    if is_yaml(text) {
        return Some(
            "this is YAML; expected TOML, such as listen = \":80\", and [[sites]] before the \
             settings of each site",
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

/// Whether all lines are those of YAML: `name:`, `name: value` and `- item`.
fn is_yaml(text: &str) -> bool {
    let lines = text.lines().take(MAX_LINES_LOOKED_AT).map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    let is_key = |key: &str| !key.is_empty() && !key.contains([' ', '=', '"', '[']);
    let is_line = |line: &str| {
        let entry = line.split_once(':').filter(|(key, _)| is_key(key));
        line == "---"
            || line.starts_with("- ")
            || entry.is_some_and(|(_, value)| value.is_empty() || value.starts_with(' '))
    };
    lines.peek().is_some() && lines.all(is_line)
}

/// The message for the error at one position.
fn sentence(text: &str, span: Range<usize>, message: &str) -> String {
    let line = text.get(..span.start).unwrap_or_default();
    let start = line.rfind('\n').map_or(0, |newline| newline + 1);
    let line = text.get(start..).unwrap_or_default();
    let line = line.lines().next().unwrap_or_default().trim();
    if let Some((setting, name)) = fpm_table(line) {
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
    if let Some(sentence) = pm_setting(line, text, message) {
        return sentence;
    }
    if message.starts_with("invalid basic string") || message.starts_with("invalid literal string")
    {
        let sign = if message.starts_with("invalid basic") { '"' } else { '\'' };
        return format!("a text in this line has no end; expected `{sign}` after it");
    }
    if line.matches('"').count() % 2 == 1 && !line.contains(['\'', '#', '\\']) {
        return "a text in this line has no end; expected `\"` after it".to_owned();
    }
    if message.starts_with("key with no value") {
        let name = line.split_whitespace().next().unwrap_or_default();
        let (line, name) = (quoted(line), quoted(name));
        return format!("`{line}` has no `=`; expected a line such as `{name} = \"…\"`");
    }
    let word = word_around(text, &span);
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
            let found = quoted(if word.contains(found) { word } else { found });
            return format!("`{found}` is a text; expected \"{found}\", with quotation marks");
        }
        _ => {}
    }
    if message.starts_with(NO_SCALAR) && !word.is_empty() && !word.contains(['{', '}', '\'']) {
        let word = quoted(word);
        return format!("`{word}` is a text; expected \"{word}\", with quotation marks");
    }
    format!("this is not TOML: {}", one_line(message))
}

/// The message for php-fpm's prefix `pm.` beside `pm`.
fn pm_setting(line: &str, text: &str, message: &str) -> Option<String> {
    let name = |line: &str| {
        let (name, _) = line.trim().split_once('=')?;
        let name = name.trim();
        name.starts_with("pm.").then(|| name.to_owned())
    };
    if let Some(name) = name(line) {
        return foreign_name(&name);
    }
    let is_pm = line.split('=').next().is_some_and(|name| name.trim() == "pm");
    if message != TWICE || !is_pm {
        return None;
    }
    text.lines().find_map(name).and_then(|name| foreign_name(&name))
}

/// The word of a value around an error, without the brackets of an array. The parser may stop
/// within an address such as `127.0.0.1:80` or `[::]:80`.
fn word_around<'t>(text: &'t str, span: &Range<usize>) -> &'t str {
    const ENDS: [char; 5] = [' ', '\t', '\n', ',', '='];
    let start = text.get(..span.start).and_then(|before| before.rfind(ENDS));
    let start = start.map_or(0, |at| at + 1);
    let rest = text.get(start..).unwrap_or_default();
    let word = rest.split([' ', '\t', '\n', '\r', ',', '#']).next().unwrap_or_default();
    if word.contains('"') {
        return "";
    }
    match word.contains("]:") {
        true => word,
        false => word.trim_start_matches('[').trim_end_matches(']'),
    }
}

/// Whether a word is a boolean of php.ini or php-fpm.
fn is_switch(word: &str) -> bool {
    let words = ["yes", "no", "on", "off", "true", "false"];
    words.iter().any(|known| word.eq_ignore_ascii_case(known))
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
