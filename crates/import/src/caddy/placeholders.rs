//! Caddy's placeholders in targets of redirects and rewrites.

use super::config_tree::Environment;

/// Where a target stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetPlace {
    /// In `redir`: Caddy appends no query.
    Redirect,
    /// In `rewrite`: the query stays, unless the target has one.
    Rewrite,
}

/// Long names, and their short ones.
const LONG_NAMES: [(&str, &str); 8] = [
    ("{http.request.uri}", "{uri}"),
    ("{http.request.orig_uri}", "{uri}"),
    ("{http.request.uri.path}", "{path}"),
    ("{http.request.uri.query}", "{query}"),
    ("{http.request.host}", "{host}"),
    ("{http.request.scheme}", "{scheme}"),
    ("{http.request.hostport}", "{host}"),
    ("{hostport}", "{host}"),
];

/// A target in maitred's words. `regex_name` is the regular expression whose groups it may use, and
/// `whole` the path as the directive sees it: `$0`, or `/$1` where its begin is removed.
///
/// # Errors
/// Why there is none, as the end of a sentence.
pub(super) fn target(
    text: &str,
    kind: TargetPlace,
    regex_name: &str,
    whole: &str,
) -> Result<String, String> {
    if text.contains('$') {
        return Err("a `$` has no counterpart in a target".to_owned());
    }
    let mut text = text.to_owned();
    for (long, short) in LONG_NAMES {
        text = text.replace(long, short);
    }
    let mut keeps_query = kind == TargetPlace::Rewrite && !text.contains('?');
    if let Some(start) = text.strip_suffix("{uri}") {
        text = format!("{start}{{path}}");
        keeps_query = true;
    }
    for end in ["?{query}", "&{query}", "?{http.request.uri.query_string}"] {
        if let Some(start) = text.strip_suffix(end) {
            text = start.to_owned();
            keeps_query = true;
        }
    }
    text = text.replace("{path}", whole).replace("{host}", "$host").replace("{scheme}", "$scheme");
    text = groups(&text, regex_name);
    if let Some((_, rest)) = text.split_once('{') {
        let name = rest.split('}').next().unwrap_or_default();
        return Err(format!("`{{{name}}}` has no counterpart in a target"));
    }
    if !keeps_query {
        text.push('?');
    }
    Ok(text)
}

/// A value with variables of the environment in place of `{env.NAME}`.
pub(super) fn filled(environment: Environment<'_>, text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{env.") {
        out += before;
        let (name, behind) = after.split_once('}').unwrap_or((after, ""));
        match environment(name) {
            Some(value) => out += &value,
            None => out += &format!("{{env.{name}}}"),
        }
        rest = behind;
    }
    out + rest
}

/// `{re.name.1}` and `{http.regexp.name.1}`.
fn groups(text: &str, regex_name: &str) -> String {
    let mut text = text.replace("{http.regexp.", "{re.");
    for group in 0..10 {
        let named = format!("{{re.{regex_name}.{group}}}");
        text = text.replace(&named, &format!("${group}"));
        text = text.replace(&format!("{{re.{group}}}"), &format!("${group}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_keep_the_query_where_caddy_does() {
        let of = |text: &str, kind| target(text, kind, "x", "$0").unwrap_or_else(|why| why);
        let (redirect, rewrite) = (TargetPlace::Redirect, TargetPlace::Rewrite);
        assert_eq!(of("https://{host}{uri}", redirect), "https://$host$0");
        assert_eq!(of("/new", redirect), "/new?");
        assert_eq!(of("/new?a=b", redirect), "/new?a=b?");
        assert_eq!(of("/new{path}?{query}", redirect), "/new$0");
        assert_eq!(of("/new", rewrite), "/new");
        assert_eq!(of("/a.php?p={path}", rewrite), "/a.php?p=$0?");
        assert_eq!(of("/a.php?p={re.x.1}&{query}", rewrite), "/a.php?p=$1");
        assert_eq!(of("{labels.1}", rewrite), "`{labels.1}` has no counterpart in a target");
    }
}
