//! Who may see what: `allow`, `deny`, `auth_basic`, `satisfy`, and locations that refuse.

use std::cmp::Reverse;

use maitred_rules::networks::parse_network;

use super::location::{Location, Matcher};
use super::scope::Scope;
use super::server::ServerImport;
use crate::file_draft::Placed;
use crate::hidden_names::{are_hidden, hidden_paths};
use crate::prefix_complement::{LiteralPath, without, without_endings};
use crate::regex_shapes::{ShapedPath, shapes};
use crate::regexes::check_regex;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::user_files;
use crate::values;

/// The paths of a rule: a server's, or a location's.
pub(super) enum Area<'l, 'a> {
    /// All paths of the server.
    Server,
    /// Those of a location.
    Location(&'l Location<'a>),
}

/// The address rules of a scope, as one text to compare with another's.
fn addresses(scope: &Scope<'_>) -> Vec<String> {
    let rules = scope.group(&["allow", "deny"]);
    let mut rules: Vec<String> = rules.iter().map(|rule| rule.shown()).collect();
    // What follows `all` has no effect, and `allow all` alone is nothing.
    if let Some(end) = rules.iter().position(|rule| rule.ends_with(" all")) {
        rules.truncate(end + 1);
    }
    while rules.last().is_some_and(|rule| rule.starts_with("allow")) {
        rules.pop();
    }
    rules
}

/// The realm and the file with users, if a scope has both.
fn users(scope: &Scope<'_>) -> Option<(String, String)> {
    let realm = scope.get("auth_basic")?.first();
    let file = scope.get("auth_basic_user_file").map(Directive::first).unwrap_or_default();
    (realm != "off").then(|| (realm.to_owned(), file.to_owned()))
}

impl<'a> ServerImport<'_, 'a> {
    /// Writes the access rules of the server and of its locations.
    pub(super) fn access(&mut self, locations: &[Location<'a>]) {
        let by_address = |scope: &Scope<'_>| addresses(scope).join(";");
        let by_user = |scope: &Scope<'_>| users(scope).map(|(realm, file)| realm + ":" + &file);
        let by_user = |scope: &Scope<'_>| by_user(scope).unwrap_or_default();
        self.rules(locations, &by_address, ServerImport::addresses);
        self.rules(locations, &by_user, ServerImport::users);
        self.satisfy(locations);
        for scope in locations.iter().map(|one| &one.scope) {
            if addresses(scope).is_empty() {
                scope.own("allow").chain(scope.own("deny")).for_each(|rule| self.keep(rule));
            }
            if users(scope).is_none() {
                scope.own("auth_basic").for_each(|rule| self.keep(rule));
            }
        }
    }

    /// Writes one kind of rules. `what` is the rule of a scope as a text, empty without one.
    fn rules(
        &mut self,
        locations: &[Location<'a>],
        what: &dyn Fn(&Scope<'_>) -> String,
        write: fn(&mut Self, &Area<'_, 'a>, &Scope<'a>, &[&Location<'a>]),
    ) {
        let server = self.scope.clone();
        let of_server = what(&server);
        let others: Vec<&Location<'a>> =
            locations.iter().filter(|one| what(&one.scope) != of_server).collect();
        write(self, &Area::Server, &server, &others);
        let literals: Vec<LiteralPath> =
            others.iter().filter_map(|one| one.matcher.literal()).collect();
        // The first list of users counts: those of inner locations come first.
        let mut inner_first: Vec<&Location<'a>> = locations.iter().collect();
        inner_first.sort_by_key(|one| Reverse(one.around.as_ref().map_or(0, String::len)));
        for location in inner_first {
            if self.refused.iter().any(|one| std::ptr::eq(*one, location.directive)) {
                continue;
            }
            let rule = what(&location.scope);
            // What the rule of the server leaves out for another location.
            let is_left_out = match location.matcher.literal() {
                Some(path) => literals
                    .iter()
                    .any(|other| !other.is_exact && path.text.starts_with(other.text.as_str())),
                None => !literals.is_empty(),
            };
            if rule == of_server && (of_server.is_empty() || !is_left_out) {
                continue;
            }
            let differ = |one: &&Location<'a>| {
                what(&one.scope) != rule && one.directive.place != location.directive.place
            };
            let others: Vec<&Location<'a>> = locations.iter().filter(differ).collect();
            write(self, &Area::Location(location), &location.scope, &others);
        }
    }

    /// `deny` for each `deny` of nginx, except what was allowed before it.
    fn addresses(&mut self, area: &Area<'_, 'a>, scope: &Scope<'a>, others: &[&Location<'a>]) {
        let rules = scope.group(&["allow", "deny"]);
        if addresses(scope).is_empty() {
            rules.iter().for_each(|rule| self.keep(rule));
            return;
        }
        let Some(path) = self.paths_of(area, others, rules.first().copied()) else { return };
        let mut allowed: Vec<&str> = Vec::new();
        for rule in rules {
            let address = rule.first();
            let is_all = address == "all";
            if address == "unix:" {
                self.keep(rule);
                continue;
            }
            if !is_all && parse_network(address).is_err() {
                let why = "this is no address; write the rule in `deny` of the site";
                self.report.access_left_out(&rule.place, &rule.shown(), why);
                continue;
            }
            if rule.name == "allow" {
                self.keep(rule);
                match is_all {
                    true => return,
                    false => allowed.push(address),
                }
                continue;
            }
            let mut fields = vec![("path", toml_text::string(&path))];
            if !is_all {
                fields.push(("from", toml_text::string(address)));
            }
            if !allowed.is_empty() {
                fields.push(("except", toml_text::strings(&allowed)));
            }
            let toml = match fields.as_slice() {
                [(_, path)] => path.clone(),
                _ => toml_text::table(fields),
            };
            self.push("deny", rule, toml);
            if is_all {
                return;
            }
        }
    }

    fn users(&mut self, area: &Area<'_, 'a>, scope: &Scope<'a>, others: &[&Location<'a>]) {
        let Some((realm, file)) = users(scope) else {
            if let Some(off) = scope.get("auth_basic") {
                self.keep(off);
            }
            return;
        };
        let at = scope.get("auth_basic");
        let Some(at) = at else { return };
        if file.is_empty() || file.contains('$') || realm.contains('$') {
            let why = "there is no fixed `auth_basic_user_file`; write `basic_auth` of the site";
            self.report.access_left_out(&at.place, &at.shown(), why);
            return;
        }
        let Some(path) = self.paths_of(area, others, Some(at)) else { return };
        let file = self.absolute(&file);
        self.weak_hashes(at, &file);
        let mut fields =
            vec![("path", toml_text::string(&path)), ("users", toml_text::string(&file))];
        if !realm.contains('"') && !realm.is_empty() {
            fields.push(("realm", toml_text::string(&realm)));
        }
        self.push("basic_auth", at, toml_text::table(fields));
        if let Some(users) = scope.get("auth_basic_user_file") {
            self.keep(users);
        }
    }

    /// Passwords that maitred does not accept.
    fn weak_hashes(&mut self, at: &Directive, file: &str) {
        if let Some(why) = user_files::weak_hashes(self.files, file) {
            self.report.left_out(&at.place, &at.shown(), &why);
        }
    }

    /// The paths of a rule, without those of locations with another one. Where these cannot be
    /// left out, the rule applies there as well.
    fn paths_of(
        &mut self,
        area: &Area<'_, 'a>,
        others: &[&Location<'a>],
        rule: Option<&Directive>,
    ) -> Option<String> {
        let rule = rule?;
        let literals: Vec<LiteralPath> =
            others.iter().filter_map(|one| one.matcher.literal()).collect();
        let found = match area {
            Area::Server if literals.is_empty() => Ok("/*".to_owned()),
            // A location `/` has a rule of its own for all that remains.
            Area::Server if literals.iter().any(|one| one.text == "/" && !one.is_exact) => {
                return self.only_regexes(rule, others);
            }
            Area::Server => Ok(without("/", &literals).unwrap_or_else(|| "/*".to_owned())),
            Area::Location(location) => location.pattern_without(&literals),
        };
        let open = others.iter().filter(|one| matches!(one.matcher, Matcher::Regex(_)));
        if let Some(open) = open.into_iter().next() {
            let why = format!(
                "it applies as well where the location at {} has another rule",
                open.directive.place
            );
            self.report.changed(&rule.place, &rule.shown(), &why);
        }
        match found {
            Ok(pattern) => Some(pattern),
            Err(why) => {
                let why = format!("{why}; write the rule in the site");
                self.report.access_left_out(&rule.place, &rule.shown(), &why);
                None
            }
        }
    }

    /// A rule of the server where `/` has another: it applies to locations with regular expressions
    /// and more, and then to all.
    fn only_regexes(&mut self, rule: &Directive, others: &[&Location<'a>]) -> Option<String> {
        let root =
            others.iter().find(|one| one.matcher.literal().is_some_and(|l| l.text == "/"))?;
        let why = format!(
            "it is the rule of the whole site; the other one of the location at {} cannot be an \
             exception from it",
            root.directive.place
        );
        self.report.changed(&rule.place, &rule.shown(), &why);
        Some("/*".to_owned())
    }

    fn satisfy(&mut self, locations: &[Location<'a>]) {
        let scopes = locations.iter().map(|one| one.scope.clone()).chain([self.scope.clone()]);
        for scope in scopes.collect::<Vec<_>>() {
            let Some(satisfy) = scope.get("satisfy") else { continue };
            let both = !addresses(&scope).is_empty() && users(&scope).is_some();
            match satisfy.first() {
                "any" if both => self.report.changed(
                    &satisfy.place,
                    &satisfy.shown(),
                    "the address and the password are both needed here",
                ),
                _ => self.keep(satisfy),
            }
        }
    }

    /// A location that refuses all requests, with the status of its `return`.
    pub(super) fn refusal(&mut self, location: &Location<'a>, back: &Directive, status: &str) {
        self.refused.push(location.directive);
        let (here, why) = match status {
            "403" => (403, ""),
            "404" => (404, ""),
            "410" => (410, ""),
            _ => (403, "the status is 403 here"),
        };
        let mut others = self.literals.clone();
        let open = self.paths_of_regexes(location);
        others.extend(open.iter().map(|one| one.path.clone()));
        let path = location.pattern_without(&others);
        let path = match path.map(|path| self.without_scripts(location, path)) {
            Ok(Some(path)) => path,
            Ok(None) => {
                let why = "`allow_php` refuses these scripts, with 403";
                return self.report.changed(&back.place, &back.shown(), why);
            }
            Err(_) if self.some_alternatives(location, back, here) => return,
            Err(_) if is_hidden_files(location) => match self.hidden_of_proxies() {
                Some(path) => path,
                None => return self.keep_by_default(location, back),
            },
            Err(why) => {
                let why = format!("{why}; write `deny` of the site");
                return self.report.access_left_out(&back.place, &location.directive.shown(), &why);
            }
        };
        let rests = open.iter().filter(|one| !one.endings.is_empty());
        let rests = rests.filter_map(|one| without_endings(&one.path.text, &one.endings));
        for path in [path].into_iter().chain(rests) {
            let path = toml_text::string(&path);
            let toml = match here {
                403 => path,
                here => toml_text::table([("path", path), ("status", here.to_string())]),
            };
            self.push("deny", back, toml);
        }
        if self.has_other_regexes(location) {
            self.precedence(back, Some(location));
        }
        if !why.is_empty() {
            self.report.changed(&back.place, &back.shown(), why);
        }
    }

    /// The paths of regular expressions that have precedence over a plain prefix.
    fn paths_of_regexes(&self, location: &Location<'a>) -> Vec<ShapedPath> {
        let is_plain = matches!(location.matcher, Matcher::Prefix { is_first: false, .. });
        if !is_plain || location.around.is_some() {
            return Vec::new();
        }
        let found = self.regexes.iter().filter_map(|text| shapes(text));
        let found: Vec<ShapedPath> = found.flatten().collect();
        // Endings that have no complement do not count.
        let is_right = |one: &ShapedPath| {
            one.endings.is_empty() || without_endings(&one.path.text, &one.endings).is_some()
        };
        found.into_iter().filter(is_right).collect()
    }

    /// Whether there are regular expressions whose paths a rule for a prefix has as well.
    fn has_other_regexes(&self, location: &Location<'a>) -> bool {
        let begin = location.matcher.literal().map(|one| one.text).unwrap_or_default();
        let is_known = |text: &String| {
            shapes(text).is_some_and(|all| all.iter().all(|one| one.path.text.starts_with(&begin)))
        };
        !self.regexes.iter().all(is_known)
    }

    /// Refuses what those alternatives of an expression match that have a counterpart. Tells
    /// whether there are any; the others are reported, but for hidden files.
    fn some_alternatives(
        &mut self,
        location: &Location<'a>,
        back: &Directive,
        status: u16,
    ) -> bool {
        let Matcher::Regex(text) = &location.matcher else { return false };
        let (flags, rest) = match text.strip_prefix("(?i)") {
            Some(rest) => ("(?i)", rest),
            None => ("", text.as_str()),
        };
        let (before, parts, after) = alternatives_of(rest);
        let whole = |part: &str| format!("~{flags}{before}{part}{after}");
        let is_right = |part: &&str| check_regex(&whole(part)).is_ok();
        let (right, wrong): (Vec<&str>, Vec<&str>) = parts.into_iter().partition(is_right);
        let open: Vec<&str> = wrong
            .into_iter()
            .filter(|part| !are_hidden(&format!("{before}{part}{after}")))
            .collect();
        if right.is_empty() || location.around.as_deref().is_some_and(|prefix| prefix != "/") {
            return false;
        }
        let path = toml_text::string(&whole(&format!("(?:{})", right.join("|"))));
        let toml = match status {
            403 => path,
            status => toml_text::table([("path", path), ("status", status.to_string())]),
        };
        self.push("deny", back, toml);
        if open.is_empty() {
            self.keep(location.directive);
            return true;
        }
        let why = format!(
            "look-around of `{}` has no counterpart; write `deny` of the site for these paths",
            open.join("|")
        );
        let Directive { place, .. } = location.directive;
        self.report.access_left_out(place, &location.directive.shown(), &why);
        true
    }

    /// The pattern of hidden names, which other HTTP servers may serve; none without such a server.
    fn hidden_of_proxies(&self) -> Option<String> {
        let passes = |one: &&Directive| {
            one.name == "proxy_pass" || one.block.iter().any(|one| one.name == "proxy_pass")
        };
        let mut locations = self.scope.own("location").flat_map(|one| &one.block);
        locations.any(|one| passes(&one)).then(hidden_paths)?
    }

    /// Hidden files are never served.
    fn keep_by_default(&mut self, location: &Location<'a>, back: &Directive) {
        self.keep(location.directive);
        self.keep(back);
    }

    /// Denies a location to all clients, as `deny all` in it does.
    pub(super) fn denies_all(&mut self, location: &Location<'a>) -> bool {
        let own: Vec<&Directive> = location.scope.own("deny").collect();
        let allows = location.scope.own("allow").next().is_some();
        let Some(deny) = own.first().filter(|one| one.first() == "all" && !allows) else {
            return false;
        };
        self.refusal(location, deny, "403");
        true
    }

    /// Adds the access rule of an item to the site.
    pub(super) fn push(&mut self, list: &str, from: &Directive, toml: String) {
        self.site.settings.push(list, Placed::new(toml, &from.place));
        self.report.kept(&from.place, &from.shown());
    }
}

/// `location ~ /\.(?!well-known)`, as guides have it.
fn is_hidden_files(location: &Location<'_>) -> bool {
    let Matcher::Regex(text) = &location.matcher else { return false };
    let (before, parts, after) = alternatives_of(text.strip_prefix("(?i)").unwrap_or(text));
    parts.iter().all(|part| are_hidden(&format!("{before}{part}{after}")))
}

/// The alternatives of an expression: at its top, or in its only group at the end, with what stands
/// before and after them.
fn alternatives_of(text: &str) -> (&str, Vec<&str>, &str) {
    let parts = values::alternatives(text);
    let inner = text.find('(').and_then(|open| {
        let end = text.strip_suffix(')')?;
        Some((&text[..open], &end[open + 1..]))
    });
    match inner.filter(|(before, _)| parts.len() == 1 && !before.contains('\\')) {
        Some((before, inner)) if !inner.starts_with('?') => {
            (before, values::alternatives(inner), "")
        }
        _ => ("", parts, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_are_those_of_the_top_or_of_the_only_group() {
        assert_eq!(alternatives_of("/(a|b(?!c)|d)"), ("/", vec!["a", "b(?!c)", "d"], ""));
        assert_eq!(alternatives_of(r"\.a$|/(\.(?!b))"), ("", vec![r"\.a$", r"/(\.(?!b))"], ""));
    }
}
