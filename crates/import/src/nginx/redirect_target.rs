//! Targets of redirects and rewrites.

/// The part of a target after which nginx appends nothing.
pub(super) const QUERY: [&str; 5] =
    ["$is_args$args", "?$args", "?$query_string", "$is_args$query_string", "&$args"];

/// Where a target stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// In `return`: nginx appends no query.
    Return,
    /// In `rewrite`: nginx appends the query, unless the target ends in `?`.
    Rewrite,
}

/// A target in maitred's words. `name` is the first name of the server, and `has_groups` whether
/// `$1` is a group of the pattern.
///
/// # Errors
/// Why there is none, as the end of a sentence.
pub fn target(
    text: &str,
    kind: TargetKind,
    name: &str,
    has_groups: bool,
) -> Result<String, String> {
    let mut text = text.replace("${", "$\u{0}").replace('}', "\u{1}");
    if text.contains('\u{0}') {
        text = text.replace(['\u{0}', '\u{1}'], "");
    }
    let mut passes_query = kind == TargetKind::Rewrite;
    let whole = ["$request_uri"].iter().find_map(|end| text.strip_suffix(end).map(str::to_owned));
    if let Some(start) = whole {
        text = start + "$uri";
        passes_query = true;
    } else if let Some(start) = QUERY.iter().find_map(|end| text.strip_suffix(end)) {
        text = start.to_owned();
        passes_query = true;
    }
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('$') {
        out += before;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = match after.starts_with(|c: char| c.is_ascii_digit()) {
            true => 1,
            false => after.find(|c| !is_name(c)).unwrap_or(after.len()),
        };
        let (variable, after) = after.split_at(end);
        match variable {
            "uri" | "document_uri" => out += "$0",
            "host" | "http_host" => out += "$host",
            "scheme" => out += "$scheme",
            "server_name" if !name.is_empty() => out += name,
            group if has_groups && group.len() == 1 => out += &format!("${group}"),
            other => return Err(format!("`${other}` has no counterpart in a target")),
        }
        rest = after;
    }
    out += rest;
    if !passes_query && !out.ends_with('?') {
        out.push('?');
    }
    Ok(out)
}

/// The script of a fallback such as `/index.php?$args`, and what is passed besides the query.
pub fn fallback_script(text: &str) -> Option<(String, String)> {
    let end = text.find(".php")? + ".php".len();
    let (script, rest) = text.split_at(end);
    if !script.starts_with('/') || script.contains('$') {
        return None;
    }
    let is_plain = rest.is_empty() || rest == "?" || QUERY.contains(&rest);
    Some((script.to_owned(), if is_plain { String::new() } else { rest.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_those_of_maitred() {
        let back = |text| target(text, TargetKind::Return, "a.example", false);
        assert_eq!(back("https://$host$request_uri").as_deref(), Ok("https://$host$0"));
        assert_eq!(back("https://${server_name}/x").as_deref(), Ok("https://a.example/x?"));
        assert_eq!(back("/a$is_args$args").as_deref(), Ok("/a"));
        assert!(back("/$arg_page").is_err());
        let rewrite = |text| target(text, TargetKind::Rewrite, "", true);
        assert_eq!(rewrite("/news/$1?x=$2").as_deref(), Ok("/news/$1?x=$2"));
        assert_eq!(rewrite("/news/$1?").as_deref(), Ok("/news/$1?"));
    }

    #[test]
    fn the_script_of_a_fallback_is_found() {
        let plain = |script: &str| Some((script.to_owned(), String::new()));
        assert_eq!(fallback_script("/index.php?$args"), plain("/index.php"));
        assert_eq!(fallback_script("/index.php$is_args$args"), plain("/index.php"));
        let more = Some(("/index.php".to_owned(), "?q=$uri&$args".to_owned()));
        assert_eq!(fallback_script("/index.php?q=$uri&$args"), more);
        assert_eq!(fallback_script("=404"), None);
    }
}
