//! `fastcgi_cache` as the page cache of a site: only if each exception from it has a counterpart,
//! since a cache that stores too much shows pages to the wrong people.

use super::cache_patterns::{AddressPatterns, cookies};
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

/// Why an exception without a case in nginx is another one here.
const CASE: &str = "names and paths are compared with their case here: those in another case are \
                    cached";

/// Why an exception for an address is another one here.
const QUERY: &str = "the query of an address is not compared with it: pages with such a query are \
                     cached";

/// Why an exception for a cookie is another one here.
const VALUE: &str = "values of cookies are not compared with it: pages for a cookie with such a \
                     value are cached";

/// The variables that are a part of the request, and the kinds of exceptions from the cache.
const VARIABLES: [(&str, &str); 3] =
    [("cookie_", "cookies"), ("arg_", "parameters"), ("http_", "headers")];

/// What may stand around an expression.
const QUOTES: [char; 2] = ['"', '\''];

/// PHP's own session cookie: private by default, and so beside those that replace the default.
const PHP_SESSION: &str = "PHPSESSID";

/// What the cache is written from.
#[derive(Default)]
struct CacheLines<'a> {
    section: SectionDraft,
    used: Vec<&'a Directive>,
    /// Exceptions that are others here.
    changed: Vec<ChangedException<'a>>,
}

/// An exception that is another one here.
struct ChangedException<'a> {
    line: &'a Directive,
    why: &'static str,
}

/// A variable of nginx that is a part of the request.
struct RequestVariable<'v> {
    /// The kind of exception.
    kind: &'static str,
    /// The name of the cookie, the parameter or the header.
    name: &'v str,
}

impl<'a> CacheLines<'a> {
    fn push(&mut self, list: &str, text: &str, from: &'a Directive) {
        self.section.push(list, Placed::new(toml_text::string(text), &from.place));
        self.used.push(from);
    }

    /// An exception for each request with this cookie, parameter or header.
    fn variable(&mut self, prefix: &str, variable: &RequestVariable<'_>, from: &'a Directive) {
        let RequestVariable { kind, name } = variable;
        let list = format!("{prefix}_{kind}");
        match *kind {
            "headers" if name.eq_ignore_ascii_case("cookie") => {
                self.push("private_cookies", "*", from);
            }
            "headers" => self.push(&list, &name.replace('_', "-"), from),
            _ => {
                let (lower, upper) = (name.to_ascii_lowercase(), name.to_ascii_uppercase());
                for name in [*name, &lower, &upper] {
                    self.push(&list, name, from);
                }
                self.change(from, CASE);
            }
        }
    }

    fn change(&mut self, line: &'a Directive, why: &'static str) {
        self.changed.push(ChangedException { line, why });
    }

    /// Whether no page with a query is stored or served.
    fn has_no_queries(&self) -> bool {
        ["no_store_parameters", "bypass_parameters"]
            .iter()
            .all(|list| self.section.list(list).iter().any(|one| one.toml == "\"*\""))
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
                let has_no_queries = lines.has_no_queries();
                for ChangedException { line, why } in &lines.changed {
                    if *why != QUERY || !has_no_queries {
                        self.report.changed(&line.place, &line.shown(), why);
                    }
                }
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
        let mut lines = CacheLines::default();
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

    /// The scripts that a folder and a missing file lead to: nginx tests its variable `$uri` again
    /// with their paths. Those of `index` are names in all folders.
    fn scripts_by_path(&self) -> impl Iterator<Item = &str> {
        let names = ["front_controller", "index"].into_iter();
        let lists = names.filter_map(|name| self.site.settings.value(name));
        lists.flat_map(|list| list.split('"')).filter(|name| name.ends_with(".php"))
    }

    /// What a variable of `fastcgi_cache_bypass` and `fastcgi_no_cache` stands for.
    fn exception(
        &self,
        variable: &str,
        prefix: &str,
        line: &'a Directive,
        lines: &mut CacheLines<'a>,
    ) -> Result<(), (&'a Directive, &'static str)> {
        if let Some(variables) = request_variables(variable) {
            variables.iter().for_each(|one| lines.variable(prefix, one, line));
            return Ok(());
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
                if self.scripts_by_path().any(|script| is_for_script(one, script)) {
                    return Err((
                        one,
                        "the script of a folder or of a missing file is an exception",
                    ));
                }
                condition(one, lines)?;
            }
        }
        Ok(())
    }
}

/// The test of an `if`, without its parentheses.
fn test_of(condition: &Directive) -> String {
    let test = condition.arguments.join(" ");
    test.trim_start_matches('(').trim_end_matches(')').trim().to_owned()
}

/// Whether a test for `$uri` may be true for a script of this name, in whatever folder.
fn is_for_script(condition: &Directive, script: &str) -> bool {
    let test = test_of(condition);
    let parts: Vec<&str> = test.splitn(3, ' ').collect();
    let expression = match parts.as_slice() {
        ["$uri", "~", text] => text.trim_matches(QUOTES).to_owned(),
        ["$uri", "~*", text] => format!("(?i){}", text.trim_matches(QUOTES)),
        _ => return false,
    };
    let name = script.trim_start_matches('/');
    let path = format!("/{name}");
    let literal = expression.replace('\\', "").to_ascii_lowercase();
    let lower = name.to_ascii_lowercase();
    let regex = pcre2::bytes::Regex::new(&expression);
    [lower.as_str(), "*.php", "+.php"].iter().any(|part| literal.contains(part))
        || regex.is_ok_and(|regex| regex.is_match(path.as_bytes()).unwrap_or(true))
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

/// The variables of a text that has no others, as `$arg_a$arg_b`: it is set if one of them is.
fn request_variables(text: &str) -> Option<Vec<RequestVariable<'_>>> {
    text.strip_prefix('$')?.split('$').map(request_variable).collect()
}

/// A variable without its `$`, if it is a part of the request.
fn request_variable(text: &str) -> Option<RequestVariable<'_>> {
    let text = match text.strip_prefix('{') {
        Some(inner) => inner.strip_suffix('}')?,
        None => text,
    };
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    VARIABLES.iter().find_map(|(begin, kind)| {
        let name = text.strip_prefix(begin).filter(|name| is_name(name))?;
        Some(RequestVariable { kind, name })
    })
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
    let test = test_of(line);
    let parts: Vec<&str> = test.splitn(3, ' ').collect();
    let unquoted = |text: &str| text.trim_matches(QUOTES).to_owned();
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
        [of @ ("$request_uri" | "$uri"), how @ ("~*" | "~"), text] => {
            let patterns = match *of {
                "$uri" => AddressPatterns::of_path(&unquoted(text), *how == "~"),
                _ => AddressPatterns::of(&unquoted(text), *how == "~"),
            };
            let patterns = patterns.ok_or((line, "an address of `if` has no counterpart"))?;
            if patterns.ignores_query {
                lines.change(line, QUERY);
            }
            for (part, patterns) in [("paths", patterns.paths), ("parameters", patterns.parameters)]
            {
                for pattern in patterns {
                    lines.push(&format!("no_store_{part}"), &pattern, line);
                    lines.push(&format!("bypass_{part}"), &pattern, line);
                }
            }
            if *how == "~*" {
                lines.change(line, CASE);
            }
        }
        ["$http_cookie", how @ ("~*" | "~"), text] => {
            let patterns = cookies(&unquoted(text), *how == "~");
            let why = match *how {
                "~" => "a cookie of `if` has no counterpart",
                _ => "the case of a cookie's name is unknown, or a cookie has no counterpart",
            };
            for pattern in patterns.ok_or((line, why))? {
                lines.push_private(&pattern, line);
            }
            if *how == "~*" {
                lines.change(line, CASE);
            } else if !text.starts_with('^') || text.contains('|') {
                lines.change(line, VALUE);
            }
        }
        _ => return Err((line, "a test of `if` has no counterpart")),
    }
    Ok(())
}
