//! `fastcgi_cache` as the page cache of a site: only if each exception from it has a counterpart,
//! since a cache that stores too much shows pages to the wrong people.

use super::location::Location;
use super::scope::Scope;
use super::server::{ServerImport, refuses};
use crate::file_draft::{Placed, SectionDraft};
use crate::source_directive::Directive;
use crate::toml_text;
use crate::values;

/// Keys that tell apart what maitred's cache does.
const KEYS: [&str; 5] = [
    "$scheme$request_method$host$request_uri",
    "$scheme$host$request_method$request_uri",
    "$scheme$host$request_uri",
    "$scheme$request_method$host$request_uri$is_args$args",
    "$request_method$scheme$host$request_uri",
];

/// Directives that maitred's cache does by default, or has no use for.
const BY_DEFAULT: [&str; 7] = [
    "fastcgi_cache_background_update",
    "fastcgi_cache_lock",
    "fastcgi_cache_lock_age",
    "fastcgi_cache_lock_timeout",
    "fastcgi_cache_max_range_offset",
    "fastcgi_cache_methods",
    "fastcgi_cache_revalidate",
];

/// How long a page may be stale, which nginx does not say.
const STALE: &str = "1h";

/// PHP's own session cookie: private by default, and so beside those that replace the default.
const PHP_SESSION: &str = "PHPSESSID";

/// What the cache is written from.
struct CacheLines<'a> {
    section: SectionDraft,
    used: Vec<&'a Directive>,
}

impl<'a> CacheLines<'a> {
    fn push(&mut self, list: &str, text: &str, from: &'a Directive) {
        self.section.push(list, Placed::new(toml_text::string(text), &from.place));
        self.used.push(from);
    }

    /// A cookie of logged-in users, by the expression for it.
    fn push_private(&mut self, cookie: &str, from: &'a Directive) {
        self.push("private_cookies", PHP_SESSION, from);
        self.push("private_cookies", cookie, from);
    }
}

impl<'a> ServerImport<'_, 'a> {
    /// `[sites.cache]`, if all of it has a counterpart.
    pub(super) fn page_cache(&mut self, locations: &[Location<'a>]) {
        let has_cache = |one: &&Location<'a>| {
            one.scope.own("fastcgi_pass").next().is_some()
                && one.scope.get("fastcgi_cache").is_some_and(|zone| zone.first() != "off")
        };
        let cached: Vec<&Location<'a>> = locations.iter().filter(has_cache).collect();
        let [only] = cached.as_slice() else { return };
        let lines = no_other_scripts(only, locations).and_then(|()| self.cache_lines(&only.scope));
        match lines {
            Ok(lines) => {
                lines.used.iter().for_each(|one| {
                    self.keep(one);
                    one.block.iter().for_each(|inner| self.report.cover(inner));
                });
                self.site.cache = Some(lines.section);
            }
            Err((line, why)) => {
                let why = format!(
                    "{why}: no page is cached; write `[sites.cache]` by the guide's page on \
                     fastcgi_cache"
                );
                self.report.left_out(&line.place, &line.shown(), &why);
            }
        }
    }

    fn cache_lines(
        &self,
        scope: &Scope<'a>,
    ) -> Result<CacheLines<'a>, (&'a Directive, &'static str)> {
        let mut lines = CacheLines { section: SectionDraft::default(), used: Vec::new() };
        let zone = scope.get("fastcgi_cache");
        lines.used.extend(zone);
        if let Some(key) = scope.get("fastcgi_cache_key") {
            if !KEYS.contains(&key.first()) {
                return Err((key, "the key of its pages has no counterpart"));
            }
            lines.used.push(key);
        }
        valid(scope, &mut lines)?;
        if let Some(stale) = scope.get("fastcgi_cache_use_stale") {
            for (name, setting) in
                [("error", "stale_if_error"), ("updating", "stale_while_revalidate")]
            {
                if stale.arguments.iter().any(|one| one == name) {
                    let why = "nginx has no time of its own for it";
                    let value = Placed::because(toml_text::string(STALE), &stale.place, why);
                    lines.section.set(setting, value);
                }
            }
            lines.used.push(stale);
        }
        if let Some(uses) = scope.get("fastcgi_cache_min_uses") {
            let value = Placed::new(uses.first().to_owned(), &uses.place);
            lines.section.set("min_uses", value);
            lines.used.push(uses);
        }
        if let Some(ignored) = scope.get("fastcgi_ignore_headers") {
            let known = ["X-Accel-Expires", "Expires", "Cache-Control", "Set-Cookie", "Vary"];
            let names: Vec<&String> =
                ignored.arguments.iter().filter(|one| known.contains(&one.as_str())).collect();
            if names.iter().any(|one| *one == "Set-Cookie") {
                return Err((ignored, "responses with a cookie would be stored"));
            }
            lines
                .section
                .set("ignore_headers", Placed::new(toml_text::strings(names), &ignored.place));
            lines.used.push(ignored);
        }
        lines.used.extend(BY_DEFAULT.iter().filter_map(|name| scope.get(name)));
        for (name, prefix) in [("fastcgi_cache_bypass", "bypass"), ("fastcgi_no_cache", "no_store")]
        {
            for line in scope.group(&[name]) {
                for variable in &line.arguments {
                    self.exception(variable, prefix, line, &mut lines)?;
                }
                lines.used.push(line);
            }
        }
        Ok(lines)
    }

    /// What a variable of `fastcgi_cache_bypass` and `fastcgi_no_cache` stands for.
    fn exception(
        &self,
        variable: &str,
        prefix: &str,
        line: &'a Directive,
        lines: &mut CacheLines<'a>,
    ) -> Result<(), (&'a Directive, &'static str)> {
        let simple = [("$cookie_", "cookies"), ("$arg_", "parameters"), ("$http_", "headers")];
        for (start, list) in simple {
            if let Some(name) = variable.strip_prefix(start) {
                if list == "headers" && name == "cookie" {
                    lines.push("private_cookies", "*", line);
                    return Ok(());
                }
                let name = if list == "headers" { name.replace('_', "-") } else { name.to_owned() };
                lines.push(&format!("{prefix}_{list}"), &name, line);
                return Ok(());
            }
        }
        let sets = |one: &&Directive| sets(one, variable);
        let server: Vec<&'a Directive> = self.scope.directives().iter().collect();
        if !server.iter().any(sets) {
            return Err((line, "a variable has no counterpart"));
        }
        let inner = server.iter().filter(|one| one.name == "location");
        if let Some(set) = inner.copied().find_map(|one| set_in(one, variable)) {
            return Err((set, "a location has exceptions of its own"));
        }
        for one in server {
            if sets(&one) {
                if one.argument(1) != "0" && !one.argument(1).is_empty() {
                    return Err((one, "all requests are exceptions"));
                }
                lines.used.push(one);
            }
            if one.name == "if" && one.block.iter().any(|inner| sets(&inner)) {
                if one.block.len() > 1 || one.block[0].argument(1) == "0" {
                    return Err((one, "`if` does more than one thing"));
                }
                condition(one, lines)?;
            }
        }
        Ok(())
    }
}

/// Whether no location runs scripts but the one with the cache, which is that of all scripts here.
/// The path of a client does not say which location nginx chooses for an index or a fallback.
fn no_other_scripts<'a>(
    cached: &Location<'a>,
    locations: &[Location<'a>],
) -> Result<(), (&'a Directive, &'static str)> {
    let runs = |one: &&Location<'a>| one.scope.has("fastcgi_pass") && !refuses(one);
    let is_other = |one: &&Location<'a>| !std::ptr::eq(one.directive, cached.directive);
    match locations.iter().filter(runs).find(is_other) {
        Some(other) => Err((other.directive, "its scripts have no cache")),
        None => Ok(()),
    }
}

/// Whether a directive sets a variable, whose name has no case.
fn sets(directive: &Directive, variable: &str) -> bool {
    directive.name == "set" && directive.first().eq_ignore_ascii_case(variable)
}

/// The first directive in a block, and in those in it, that sets a variable.
fn set_in<'a>(block: &'a Directive, variable: &str) -> Option<&'a Directive> {
    let found = |one: &'a Directive| match sets(one, variable) {
        true => Some(one),
        false => set_in(one, variable),
    };
    block.block.iter().find_map(found)
}

/// `fastcgi_cache_valid`.
fn valid<'a>(
    scope: &Scope<'a>,
    lines: &mut CacheLines<'a>,
) -> Result<(), (&'a Directive, &'static str)> {
    let mut times: Vec<(String, String)> = Vec::new();
    let all = scope.group(&["fastcgi_cache_valid"]);
    for line in &all {
        let time = line.arguments.last().and_then(|text| values::time(text));
        let Some(time) = time else { return Err((*line, "its time is none")) };
        let statuses = &line.arguments[..line.arguments.len() - 1];
        let usual = ["200", "301", "302"].map(str::to_owned);
        let statuses = if statuses.is_empty() { &usual[..] } else { statuses };
        for status in statuses {
            if !times.iter().any(|(known, _)| known == status) {
                times.push((status.clone(), toml_text::string(&values::duration(time))));
            }
        }
        lines.used.push(line);
    }
    if let Some(first) = all.first() {
        let toml = toml_text::table(times);
        lines.section.set("valid", Placed::new(toml, &first.place));
    }
    Ok(())
}

/// A test of `if` whose requests are exceptions.
fn condition<'a>(
    line: &'a Directive,
    lines: &mut CacheLines<'a>,
) -> Result<(), (&'a Directive, &'static str)> {
    let test = line.arguments.join(" ");
    let test = test.trim_start_matches('(').trim_end_matches(')').trim();
    let parts: Vec<&str> = test.splitn(3, ' ').collect();
    let unquoted = |text: &str| text.trim_matches(['"', '\'']).to_owned();
    match parts.as_slice() {
        // Only responses to GET are ever stored.
        ["$request_method", "=", "POST"] => lines.used.push(line),
        ["$request_method", "!=", "GET"] => lines.push("bypass_methods", "HEAD", line),
        ["$request_method", "!~", text] if ["^(GET|HEAD)$", "GET|HEAD"].contains(text) => {
            lines.used.push(line);
        }
        ["$query_string" | "$args", rest @ ..]
            if rest.is_empty()
                || *rest == ["!=", ""]
                || *rest == ["!=", "\"\""]
                || *rest == ["!="] =>
        {
            lines.push("bypass_parameters", "*", line);
            lines.push("no_store_parameters", "*", line);
        }
        ["$request_uri" | "$uri", "~*" | "~", text] => {
            for part in globs(&unquoted(text)).ok_or((line, "a path of `if` has no counterpart"))? {
                lines.push("no_store_paths", &part, line);
                lines.push("bypass_paths", &part, line);
            }
        }
        ["$http_cookie", "~*" | "~", text] => {
            let why = (line, "a cookie of `if` has no counterpart");
            for part in globs(&unquoted(text)).ok_or(why)? {
                let name = cookie_name(&part).ok_or(why)?;
                lines.push_private(name, line);
                // Names are compared with their case here.
                if parts[1] == "~*" {
                    lines.push_private(&name.to_ascii_lowercase(), line);
                    lines.push_private(&name.to_ascii_uppercase(), line);
                }
            }
        }
        _ => return Err((line, "a test of `if` has no counterpart")),
    }
    Ok(())
}

/// A pattern for the names of cookies, of one for the `Cookie` header: any value counts. None if it
/// begins with a value, or is of several cookies.
fn cookie_name(pattern: &str) -> Option<&str> {
    let name = pattern.split('=').next()?;
    (!name.is_empty() && !pattern.contains([';', ','])).then_some(name)
}

/// The alternatives of an expression as patterns with `*`, for at least the same texts.
fn globs(expression: &str) -> Option<Vec<String>> {
    let inner = expression.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let inner = inner.filter(|text| !text.contains(['(', ')'])).unwrap_or(expression);
    values::alternatives(inner).into_iter().map(glob).collect()
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
        let of = |text: &str| globs(text).map(|all| all.join(" "));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            of("/wp-admin/|/xmlrpc.php|wp-.*.php"),
            some("*/wp-admin/* */xmlrpc*php* *wp-*php*")
        );
        assert_eq!(of("comment_author|wordpress_[a-f0-9]+"), some("*comment_author* *wordpress_*"));
        assert_eq!(of("^/a$"), some("/a"));
        for (pattern, name) in [
            ("*wp-*", Some("*wp-*")),
            ("*role=admin*", Some("*role")),
            ("=1", None),
            ("*a;b*", None),
        ] {
            assert_eq!(cookie_name(pattern), name, "{pattern}");
        }
        for text in ["a(b|c)", "ab?", "a{2}", "\\d"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
