//! PHP: locations with `fastcgi_pass`, their pools and parameters.

use std::collections::BTreeMap;

use maitred_rules::Pattern;

use super::location::{Location, Matcher};
use super::server::{ANY_SCRIPT, ServerImport, refuses};
use super::standard_parameters::is_standard;
use crate::file_draft::Placed;
use crate::fpm::{CONFINING, PassTarget};
use crate::parameter_settings::{PHP_PARAMETERS, settings_in};
use crate::regex_shapes::{ends_otherwise, shapes};
use crate::source_directive::Directive;
use crate::toml_text;
use crate::values;

/// The script of the path, below a document root.
pub(super) const OF_PATH: [&str; 4] =
    ["$fastcgi_script_name", "/$fastcgi_script_name", "$uri", "$document_uri"];

impl<'a> ServerImport<'_, 'a> {
    /// The pool of the site, which scripts may run, and the parameters that they get.
    pub(super) fn php(&mut self, locations: &[Location<'a>]) {
        let passes = |one: &&Location<'_>| one.scope.own("fastcgi_pass").next().is_some();
        let php: Vec<&Location<'a>> = locations.iter().filter(passes).collect();
        if php.is_empty() {
            let why = "no location has fastcgi_pass";
            let all = Placed::because(toml_text::string("/*"), &self.place.clone(), why);
            self.site.settings.push("deny_php", all);
        }
        let is_general = |one: &&&Location<'a>| self.runs_all(one);
        let general = php.iter().find(is_general).copied();
        let main = general.or(php.first().copied());
        if let Some(main) = main {
            self.pass(main);
        }
        for location in &php {
            self.parameters(location);
            self.files_in(location);
        }
        self.confined_apart(&php);
        // Parameters are some of the rights of a pool.
        for location in &php {
            self.other_pass(location);
        }
        match general {
            Some(general) => self.folders_without_php(locations, general),
            None => {
                self.only_some_scripts(&php);
                // A named one runs the script of the fallback alone.
                let by_path = php.iter().filter(|one| !is_named(one));
                by_path.for_each(|one| self.folders_without_php(locations, one));
            }
        }
    }

    /// A location that passes all paths to PHP hides the files in its folder.
    fn files_in(&mut self, location: &Location<'a>) {
        let is_for_scripts = match &location.matcher {
            // The last check finds endings of files among them.
            Matcher::Regex(text) => {
                text.contains("php") || text.contains(r"\.ph") || are_names_of_pools(text)
            }
            Matcher::Prefix { text, .. } => text.ends_with(".php") || text.ends_with(".php/"),
            Matcher::Exact(_) | Matcher::Named(_) => true,
        };
        if !is_for_scripts {
            let why = "it passes all of these paths to PHP, and files there are served here: deny \
                       them, or move them out of the document root";
            self.report.access_left_out(
                &location.directive.place,
                &location.directive.shown(),
                why,
            );
        }
    }

    fn runs_all(&self, location: &Location<'_>) -> bool {
        let is_outer = location.around.as_deref().is_none_or(|prefix| prefix == "/");
        is_outer && matches_path(location, ANY_SCRIPT.as_bytes())
    }

    /// The pool or the FastCGI server that a location passes to.
    fn target_of(&mut self, pass: &Directive) -> PassTarget {
        let servers = self.upstreams.get(pass.first());
        let first = servers.map(|servers| servers.first().map_or("", String::as_str));
        self.pools.target(first.unwrap_or(pass.first()), self.files)
    }

    /// The same, with what the pool learns of the location.
    fn used_target(&mut self, location: &Location<'a>, pass: &Directive) -> PassTarget {
        let several = self.upstreams.get(pass.first()).filter(|servers| servers.len() != 1);
        if let Some(several) = several {
            let why = format!("one server of {}; the others are left out", several.len());
            self.report.changed(&pass.place, &pass.shown(), &why);
        }
        let target = self.target_of(pass);
        let time = location.scope.get("fastcgi_read_timeout");
        self.pools.used_by(&target, &self.place.clone());
        self.pools.waits(&target, time.map(|time| (time.first(), &time.place)), &pass.place);
        if let Some(time) = time {
            self.keep(time);
        }
        target
    }

    /// The pool or the FastCGI server of the site.
    fn pass(&mut self, location: &Location<'a>) {
        let Some(pass) = location.scope.own("fastcgi_pass").next() else { return };
        match self.used_target(location, pass) {
            PassTarget::Pool(name) => {
                self.site.settings.set("pool", Placed::new(toml_text::string(&name), &pass.place));
                self.keep(pass);
            }
            PassTarget::Upstream(address) => {
                let toml = toml_text::string(&address);
                self.site.settings.set("upstream", Placed::new(toml, &pass.place));
                let why =
                    "no pool of php-fpm with this address was found: the FastCGI server stays";
                self.report.changed(&pass.place, &pass.shown(), why);
            }
        }
    }

    /// A pool or a FastCGI server beside that of the site.
    fn other_pass(&mut self, location: &Location<'a>) {
        let Some(pass) = location.scope.own("fastcgi_pass").next() else { return };
        let name = match self.used_target(location, pass) {
            PassTarget::Pool(name) => name,
            PassTarget::Upstream(address) => {
                if self.of_site("upstream") == address {
                    return self.keep(pass);
                }
                let why = "no pool of php-fpm with this address was found, and that of the site \
                           runs these scripts: serve them as a site of their own";
                return self.report.access_left_out(&pass.place, &pass.shown(), why);
            }
        };
        let of_site = self.of_site("pool");
        if of_site == name {
            return self.keep(pass);
        }
        let pattern = location.pattern();
        let is_written = pattern.is_ok();
        if let Ok(path) = pattern {
            let fields = [("path", toml_text::string(&path)), ("pool", toml_text::string(&name))];
            self.site.settings.push("paths", Placed::new(toml_text::table(fields), &pass.place));
        }
        match (self.pools.have_same_rights(&of_site, &name), is_written) {
            (true, true) => self.keep(pass),
            (true, false) => {
                let why = "the pool of the site runs these scripts; write `paths` of the site";
                self.report.left_out(&pass.place, &pass.shown(), why);
            }
            (false, true) => {
                let why = "the path chooses the pool, not the script: the index of a folder, the \
                           front controller and what follows `.php` may run in the other pool, \
                           which has other rights: serve these scripts as a site of their own";
                self.report.access_left_out(&pass.place, &pass.shown(), why);
            }
            (false, false) => {
                let why = "the pool of the site runs these scripts, and has other rights: serve \
                           them as a site of their own, or write `paths` of the site";
                self.report.access_left_out(&pass.place, &pass.shown(), why);
            }
        }
    }

    /// A text of the site; empty without one.
    fn of_site(&self, name: &str) -> String {
        self.site.settings.value(name).unwrap_or_default().trim_matches('"').to_owned()
    }

    /// `fastcgi_param` with values of the site's own, and response headers of scripts.
    fn parameters(&mut self, location: &Location<'a>) {
        let pass = location.scope.own("fastcgi_pass").next();
        let pool = match pass.map(|pass| self.target_of(pass)) {
            Some(PassTarget::Pool(name)) => name,
            _ => String::new(),
        };
        for param in location.scope.group(&["fastcgi_param"]) {
            let (name, value) = (param.argument(0), param.argument(1));
            if let Some((_, table)) = PHP_PARAMETERS.iter().find(|(known, _)| *known == name) {
                self.php_settings(param, table, &pool);
                continue;
            }
            match name {
                "SCRIPT_FILENAME" => self.script_filename(param, location, &pool),
                _ if is_of_client(name, value) => {
                    let why = "scripts get this header as clients send it: they must not trust it";
                    self.report.access_left_out(&param.place, &param.shown(), why);
                }
                _ if is_standard(name) => self.standard_parameter(param, location),
                _ if value.is_empty() => self.keep(param),
                _ if value.contains('$') => {
                    let why = "scripts do not get this parameter: its value is not fixed";
                    self.report.left_out(&param.place, &param.shown(), why);
                }
                _ => {
                    let entry = PoolParameter { pool: &pool, table: "env", name, value };
                    self.pool_entry(param, &entry);
                }
            }
        }
        for hide in location.scope.group(&["fastcgi_hide_header"]) {
            let toml = toml_text::table([("unset", toml_text::strings([hide.first()]))]);
            self.push("headers", hide, toml);
        }
        if let Some(intercept) = location.scope.get("fastcgi_intercept_errors") {
            if intercept.first() == "on" {
                let on = Placed::new("true".to_owned(), &intercept.place);
                self.site.settings.set("intercept_errors", on);
            }
            self.keep(intercept);
        }
    }

    fn php_settings(&mut self, param: &Directive, table: &str, pool: &str) {
        for (name, value) in settings_in(param.argument(1)) {
            if value.contains('$') {
                let why = format!("the value of {name} is not fixed; set it in the pool");
                self.report.access_left_out(&param.place, &param.shown(), &why);
                continue;
            }
            self.pool_entry(param, &PoolParameter { pool, table, name, value });
        }
    }

    /// Says which parameters confine the scripts of one location, and not those of another one with
    /// the same pool.
    fn confined_apart(&mut self, php: &[&Location<'a>]) {
        let mut of_pools: BTreeMap<String, Vec<&Directive>> = BTreeMap::new();
        for location in php {
            let Some(pass) = location.scope.own("fastcgi_pass").next() else { continue };
            let PassTarget::Pool(pool) = self.target_of(pass) else { continue };
            let own = confining(location);
            let first = of_pools.entry(pool).or_insert_with(|| own.clone());
            if confining_settings(first).eq(confining_settings(&own)) {
                continue;
            }
            let why = "all scripts of the pool get it, also those of locations with another value: \
                       give them a pool of their own";
            for param in first.iter().chain(&own) {
                self.report.access_left_out(&param.place, &param.shown(), why);
            }
        }
    }

    fn pool_entry(&mut self, param: &Directive, entry: &PoolParameter<'_>) {
        let PoolParameter { pool, table, name, value } = entry;
        let value = Placed::new(toml_text::string(value), &param.place);
        match self.pools.entry(pool, table, name, value) {
            Ok(()) => {
                self.keep(param);
                self.pools.param(pool, &param.place, &param.shown());
            }
            Err(why) if CONFINING.contains(name) => {
                self.report.access_left_out(&param.place, &param.shown(), &why);
            }
            Err(why) => self.report.left_out(&param.place, &param.shown(), &why),
        }
    }

    fn script_filename(&mut self, param: &Directive, location: &Location<'a>, pool: &str) {
        let value = param.argument(1).replace("${", "$").replace('}', "");
        let of_location = location.scope.get("root").map(|root| self.absolute(root.first()));
        let chroot = self.pools.chroot(pool).unwrap_or_default();
        let roots: Vec<&str> = of_location.iter().chain([&self.root]).map(String::as_str).collect();
        let front = self.of_site("front_controller");
        let script = script_below(&value, &roots, chroot.trim_end_matches('/'));
        match script {
            _ if value == "$request_filename" => self.keep(param),
            Some(script) if OF_PATH.contains(&script) => self.keep(param),
            Some(script) if !front.is_empty() && script == front => self.keep(param),
            Some(script) if !script.contains('$') => self.report.left_out(
                &param.place,
                &param.shown(),
                "the script is the one that the path names, or the front controller",
            ),
            _ => {
                let why = "it runs scripts of another folder, and those of the document root run \
                           here: set `root` of the site, or `deny_php`";
                self.report.access_left_out(&param.place, &param.shown(), why);
            }
        }
    }

    /// `allow_php`, where no location runs all scripts.
    fn only_some_scripts(&mut self, php: &[&Location<'a>]) {
        for location in php {
            let Some(pass) = location.scope.own("fastcgi_pass").next() else { continue };
            let front = self.site.settings.value("front_controller").unwrap_or("\"\"").to_owned();
            let pattern = match &location.matcher {
                Matcher::Named(_) if front != "\"\"" => Ok(front.trim_matches('"').to_owned()),
                Matcher::Named(_) if !php.iter().all(|one| is_named(one)) => continue,
                Matcher::Named(_) => {
                    let why = "a named location runs no script by its path";
                    let all = Placed::because(toml_text::string("/*"), &pass.place, why);
                    self.site.settings.push("deny_php", all);
                    continue;
                }
                _ => location.pattern(),
            };
            match pattern {
                Ok(pattern) => {
                    let item = Placed::new(toml_text::string(&pattern), &pass.place);
                    self.site.settings.push("allow_php", item);
                }
                Err(why) => self.report.access_left_out(
                    &location.directive.place,
                    &location.directive.shown(),
                    &format!("{why}; it says which scripts run: write `allow_php` of the site"),
                ),
            }
        }
    }

    /// `deny_php` for locations that nginx chooses before one that runs scripts.
    fn folders_without_php(&mut self, locations: &[Location<'a>], runs: &Location<'a>) {
        let is_it = |one: &Location<'_>| std::ptr::eq(one.directive, runs.directive);
        let index = locations.iter().position(is_it).unwrap_or(0);
        let later = locations[index..].iter().filter(|one| is_searched_alone(one, runs));
        for location in locations[..index].iter().chain(later) {
            if has_php(location) || refuses(location) || matches_no_script(location) {
                continue;
            }
            let Directive { place, .. } = location.directive;
            let pattern = match location.pattern() {
                Ok(pattern) => pattern,
                Err(_) if matches!(location.matcher, Matcher::Named(_)) => continue,
                Err(why) => {
                    let why = format!("{why}; it has no PHP: write `deny_php` of the site");
                    self.report.access_left_out(place, &location.directive.shown(), &why);
                    continue;
                }
            };
            if Pattern::parse(&pattern).is_ok_and(|one| one.matches(b"/index.php")) {
                continue;
            }
            let item =
                Placed::because(toml_text::string(&pattern), place, "no PHP in this location");
            self.site.settings.push("deny_php", item);
        }
    }

    /// The pattern of a location that refuses, without scripts that another location runs before.
    /// `None` if nothing else is left.
    pub(super) fn without_scripts(
        &mut self,
        location: &Location<'a>,
        pattern: String,
    ) -> Option<String> {
        let scripts: Vec<String> = self.scripts.clone();
        let hits = |pattern: &str| {
            let parsed = Pattern::parse(pattern);
            parsed.is_ok_and(|one| scripts.iter().any(|script| one.matches(script.as_bytes())))
        };
        let Matcher::Regex(text) = &location.matcher else { return Some(pattern) };
        if !hits(&pattern) {
            return Some(pattern);
        }
        let (flags, rest) = match text.strip_prefix("(?i)") {
            Some(rest) => ("(?i)", rest),
            None => ("", text.as_str()),
        };
        let whole = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let parts = values::alternatives(whole.unwrap_or(rest));
        let rest = parts.into_iter().map(|part| format!("~{flags}{part}"));
        let rest = rest.filter(|part| Pattern::parse(part).is_ok() && !hits(part));
        let rest: Vec<String> = rest.map(|part| part[1 + flags.len()..].to_owned()).collect();
        (!rest.is_empty()).then(|| format!("~{flags}({})", rest.join("|")))
    }
}

/// The script that a `SCRIPT_FILENAME` names below one of the document roots, as a path.
fn script_below<'v>(value: &'v str, roots: &[&str], chroot: &str) -> Option<&'v str> {
    let of_root = ["$document_root", "$realpath_root"];
    let of_root = of_root.iter().find_map(|root| value.strip_prefix(root));
    let below = |root: &&str| {
        let root = root.trim_end_matches('/');
        value.strip_prefix(root.strip_prefix(chroot)?)
    };
    let script = of_root.or_else(|| roots.iter().find_map(below))?;
    script.starts_with(['/', '$']).then_some(script)
}

/// A parameter as an entry of a table of a pool.
struct PoolParameter<'p> {
    pool: &'p str,
    table: &'p str,
    name: &'p str,
    value: &'p str,
}

/// The parameters of a location that confine its scripts.
fn confining<'a>(location: &Location<'a>) -> Vec<&'a Directive> {
    let params = location.scope.group(&["fastcgi_param"]).into_iter();
    params.filter(|one| confining_settings(&[one]).next().is_some()).collect()
}

/// The settings in parameters that confine scripts, with their values.
fn confining_settings<'p>(params: &'p [&Directive]) -> impl Iterator<Item = (&'p str, &'p str)> {
    let is_php = |one: &&&Directive| PHP_PARAMETERS.iter().any(|(known, _)| *known == one.first());
    let php = params.iter().filter(is_php);
    php.flat_map(|one| settings_in(one.argument(1))).filter(|(name, _)| CONFINING.contains(name))
}

fn is_named(location: &Location<'_>) -> bool {
    matches!(location.matcher, Matcher::Named(_))
}

/// Whether an expression is for some paths without an ending, such as those of a pool's status.
fn are_names_of_pools(expression: &str) -> bool {
    let all = shapes(expression).unwrap_or_default();
    let is_name = |text: &str| !text.ends_with('/') && !text.contains('.');
    !all.is_empty() && all.iter().all(|one| one.path.is_exact && is_name(&one.path.text))
}

/// Whether a parameter replaces a header of clients.
fn is_of_client(name: &str, value: &str) -> bool {
    let header = name.strip_prefix("HTTP_").map(str::to_ascii_lowercase);
    let is_other = !is_standard(name);
    header.is_some_and(|header| is_other && value != format!("$http_{header}"))
}

/// Whether a location, or one in it, runs scripts.
fn has_php(location: &Location<'_>) -> bool {
    let runs = |one: &Directive| {
        one.name == "fastcgi_pass" || one.block.iter().any(|one| one.name == "fastcgi_pass")
    };
    location.scope.directives().iter().any(runs)
}

/// Whether nginx searches a location alone for its paths, and not the one around another.
fn is_searched_alone(location: &Location<'_>, other: &Location<'_>) -> bool {
    let Some(around) = &other.around else { return false };
    let is_further_out = location.around.as_ref().map_or(0, String::len) < around.len();
    let own = location.matcher.literal().map(|one| one.text).unwrap_or_default();
    is_further_out && own.len() > around.len() && own.starts_with(around.as_str())
}

/// Whether no path of a location is a script, or nginx goes on to others for scripts.
fn matches_no_script(location: &Location<'_>) -> bool {
    let is_inner = location.around.as_deref().is_some_and(|prefix| prefix != "/");
    match &location.matcher {
        Matcher::Exact(path) => !path.ends_with(".php"),
        Matcher::Regex(text) => ends_otherwise(text),
        Matcher::Prefix { .. } => is_inner,
        Matcher::Named(_) => true,
    }
}

/// Whether a location matches a path.
pub(super) fn matches_path(location: &Location<'_>, path: &[u8]) -> bool {
    let pattern = location.pattern();
    pattern.is_ok_and(|text| Pattern::parse(&text).is_ok_and(|pattern| pattern.matches(path)))
}

/// The scripts that a location names, if it names all that it runs.
pub(super) fn scripts_of(location: &Location<'_>) -> Vec<String> {
    match &location.matcher {
        Matcher::Exact(path) => vec![path.clone()],
        Matcher::Prefix { text, .. } if text.ends_with(".php") => vec![text.clone()],
        Matcher::Regex(text) => named_scripts(text),
        Matcher::Prefix { .. } | Matcher::Named(_) => Vec::new(),
    }
}

/// The scripts that a regular expression such as `^/(index|get)\.php` names.
pub(super) fn named_scripts(expression: &str) -> Vec<String> {
    let text = expression.trim_start_matches("(?i)").replace("\\/", "/");
    let Some(text) = text.strip_prefix('^') else { return Vec::new() };
    let is_plain = |text: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_'))
    };
    let (before, names) = match (text.find('('), text.find("\\.php")) {
        (Some(open), Some(end)) if open < end => {
            let inner = text[open + 1..end].trim_start_matches("?:");
            let Some(inner) = inner.strip_suffix(')') else { return Vec::new() };
            (&text[..open], values::alternatives(inner))
        }
        (_, Some(end)) => (&text[..end], vec![""]),
        _ => return Vec::new(),
    };
    let names = names.into_iter().filter(|name| is_plain(before) && is_plain(name));
    names.map(|name| format!("{before}{name}.php")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_a_file_name_is_that_below_a_document_root() {
        let of = |value, chroot| script_below(value, &["/jail/a/"], chroot);
        for value in ["$document_root/x.php", "$realpath_root/x.php", "/jail/a/x.php"] {
            assert_eq!(of(value, ""), Some("/x.php"), "{value}");
        }
        assert_eq!(of("/a/x.php", "/jail"), Some("/x.php"));
        for value in ["/a/x.php", "/jail/ab/x.php", "$other/x.php"] {
            assert_eq!(of(value, ""), None, "{value}");
        }
        assert_eq!(of("/jail/a/x.php", "/jail"), None);
    }

    #[test]
    fn the_scripts_of_an_expression_are_found() {
        let two = ["/w/index.php", "/w/api.php"];
        assert_eq!(named_scripts(r"^/w/(index|api)\.php$"), two);
        assert_eq!(named_scripts(r"^/index\.php(/|$)"), ["/index.php"]);
        assert!(named_scripts(r"\.php$").is_empty());
    }
}
