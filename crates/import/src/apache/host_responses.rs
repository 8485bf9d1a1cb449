//! Headers, lifetimes, error pages, compression, limits of bodies.

use std::path::Path;
use std::time::Duration;

use maitred_rules::site_rules::SiteRules;

use super::host_import::{AreaSection, HostImport};
use super::path_area::PathArea;
use super::path_pools::INDEX;
use crate::file_draft::Placed;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::values;

/// The longest lifetime that maitred knows: 366 days.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// Apache's default of `LimitRequestBody` since 2.4.54.
const BODY: &str = "\"1G\"";

/// What stands for `LimitRequestBody 0`.
const ANY_BODY: &str = "\"1024G\"";

/// The end of the name of a script.
const SCRIPT_END: &str = ".php";

impl<'a> HostImport<'_, 'a> {
    /// Settings of responses, by section.
    pub(super) fn responses(&mut self) {
        self.listings();
        let sections = self.sections.clone();
        for section in &sections {
            for line in &section.directives {
                match line.name.to_ascii_lowercase().as_str() {
                    "header" => self.header(section, line),
                    "errordocument" => self.error_document(section, line),
                    "limitrequestbody" => self.body_limit(section, line),
                    _ => {}
                }
            }
        }
        if !self.site.settings.has("max_body_size") {
            let why = "Apache's default";
            let body = Placed::because(BODY.to_owned(), &self.place.clone(), why);
            self.site.settings.set("max_body_size", body);
        }
        self.expires(&sections);
        self.compression(&sections);
        self.canonical_name();
        self.sent_types();
    }

    /// `UseCanonicalName`: a site of any host has no name of its own.
    fn canonical_name(&mut self) {
        let hosts = self.site.settings.value("hosts").unwrap_or_default();
        let is_any = hosts.contains("\"*\"");
        let line = self.of_host("UseCanonicalName").filter(|_| is_any);
        if let Some(line) = line.filter(|line| !line.first().eq_ignore_ascii_case("off")) {
            let why = "SERVER_NAME is the host that the client names: write the names of the site \
                       in place of `*` into `hosts`";
            self.report.changed(&line.place, &line.shown(), why);
        }
    }

    fn header(&mut self, section: &AreaSection<'a>, line: &'a Directive) {
        let mut words = line.arguments.iter().map(String::as_str).peekable();
        let condition = words
            .next_if(|word| ["always", "onsuccess"].contains(&word.to_ascii_lowercase().as_str()));
        let is_always = condition.is_some_and(|word| word.eq_ignore_ascii_case("always"));
        let action = words.next().unwrap_or_default().to_ascii_lowercase();
        let name = words.next().unwrap_or_default().trim_end_matches(':');
        let value = words.next().unwrap_or_default();
        let how = match action.as_str() {
            "set" | "setifempty" => "set",
            "add" | "append" | "merge" => "add",
            "unset" => "unset",
            "edit" | "edit*" if name.eq_ignore_ascii_case("Set-Cookie") => {
                let why = "cookies have no flags from here: set `session.cookie_httponly` and \
                           `session.cookie_secure` in `php_value` of the pool, and those of other \
                           cookies in the application";
                return self.report.access_left_out(&line.place, &line.shown(), why);
            }
            _ => {
                let why = "only `set`, `add`, `append`, `merge` and `unset` have a counterpart";
                return self.report.left_out(&line.place, &line.shown(), why);
            }
        };
        let is_fixed = !value.contains("%{") && !value.starts_with("expr=");
        let last = if how == "unset" { Some(value) } else { words.next() };
        if !is_fixed || last.is_some_and(|word| !word.is_empty()) {
            let why = "it depends on the request";
            return self.report.left_out(&line.place, &line.shown(), why);
        }
        let change = match how {
            "unset" => toml_text::strings([name]),
            _ => toml_text::table([(name, toml_text::string(&value.replace("%%", "%")))]),
        };
        // With the name of the folder itself, which redirects to the one with a slash.
        let path = (!section.area.is_all()).then(|| section.area.patterns_without(&[]).concat());
        let path = path.map(|path| ("path", toml_text::string(&path)));
        let fields = path.into_iter().chain([(how, change)]);
        self.push("headers", line, toml_text::table(fields));
        if !is_always && how != "unset" {
            let why = "errors have the header, too (as with `always`)";
            self.report.changed(&line.place, &line.shown(), why);
        }
        if action == "setifempty" {
            self.report.changed(&line.place, &line.shown(), "it replaces the one of scripts");
        }
    }

    fn error_document(&mut self, section: &AreaSection<'a>, line: &'a Directive) {
        let target = line.argument(1);
        let status = line.first().parse::<u16>();
        if !section.area.is_all() || !target.starts_with('/') || target.contains('?') {
            if target == "default" {
                return self.keep(line);
            }
            let why = "an error page is a path, and one for the whole site";
            return self.report.left_out(&line.place, &line.shown(), why);
        }
        let script = script_of(target);
        if script.is_some_and(|script| !self.runs_as_site(&script) || !self.may_run(&script)) {
            let why = "the script of an error page runs in the pool of the site, whatever its \
                       folder: name a file, or a script that runs in that pool";
            return self.report.access_left_out(&line.place, &line.shown(), why);
        }
        if status.is_ok_and(|status| (400..600).contains(&status)) {
            let page = Placed::new(toml_text::string(target), &line.place);
            self.site.settings.entry("error_pages", line.first(), page);
        }
        self.keep(line);
    }

    /// Whether the site runs a script that is requested by its own path.
    fn may_run(&self, script: &str) -> bool {
        let mut site = "[[sites]]\nhosts = [\"*\"]\nroot = \"/\"\n".to_owned();
        for name in ["allow_php", "deny_php"] {
            let items = self.site.settings.list(name).iter().map(|item| item.toml.as_str());
            let items: Vec<&str> = items.collect();
            if !items.is_empty() {
                site += &format!("{name} = [{}]\n", items.join(", "));
            }
        }
        let parsed = maitred_config::parse(&site, Path::new("/maitred.toml"));
        let site = parsed.ok().and_then(|config| config.sites.into_iter().next());
        let rules = site.and_then(|site| SiteRules::compile(&site.rules).ok());
        rules.is_some_and(|rules| rules.may_run(script.as_bytes()))
    }

    fn body_limit(&mut self, section: &AreaSection<'a>, line: &'a Directive) {
        let size = match line.first() {
            "0" => ANY_BODY.to_owned(),
            size if size.parse::<i64>().is_ok_and(|size| size > 0) => size.to_owned(),
            _ => return,
        };
        if section.area.is_all() {
            let size = Placed::new(size, &line.place);
            self.site.settings.replace("max_body_size", size);
            return self.keep(line);
        }
        let path = toml_text::string(&section.area.pattern());
        self.push("paths", line, toml_text::table([("path", path), ("max_body_size", size)]));
    }

    /// `ExpiresActive`, `ExpiresByType`, `ExpiresDefault`: those of inner sections come first.
    fn expires(&mut self, sections: &[AreaSection<'a>]) {
        let is_active = |section: &AreaSection<'a>| {
            let earlier = sections.iter().filter(|one| one.area.covers(&section.area));
            let last = earlier.filter_map(|one| one.last("ExpiresActive")).next_back();
            last.is_some_and(|line| line.first().eq_ignore_ascii_case("on"))
        };
        for section in sections.iter().rev() {
            section.all("ExpiresActive").into_iter().for_each(|line| self.keep(line));
            let by_type = section.all("ExpiresByType").into_iter().map(|line| (line, true));
            let all = section.all("ExpiresDefault").into_iter().map(|line| (line, false));
            for (line, has_type) in by_type.chain(all) {
                if !is_active(section) {
                    self.keep(line);
                    continue;
                }
                let time = line.arguments.iter().skip(usize::from(has_type));
                let time: Vec<&str> = time.map(String::as_str).collect();
                let Some(time) = lifetime(&time.join(" ")) else {
                    let why = "its time is not one after the access; write `expires` of the site";
                    self.report.left_out(&line.place, &line.shown(), why);
                    continue;
                };
                let mut fields = vec![("path", toml_text::string(&section.area.pattern()))];
                if has_type {
                    fields.push(("type", toml_text::string(line.first())));
                }
                let after = values::duration(time.min(LONGEST));
                fields.push(("after", toml_text::string(&after)));
                self.push("expires", line, toml_text::table(fields));
                if time > LONGEST {
                    let why = "366 days are the longest lifetime here";
                    self.report.changed(&line.place, &line.shown(), why);
                }
            }
        }
    }

    fn compression(&mut self, sections: &[AreaSection<'a>]) {
        let is_filter = |line: &&&'a Directive| {
            let names = ["AddOutputFilterByType", "SetOutputFilter", "AddOutputFilter"];
            let filters = ["deflate", "brotli_compress", "inflate;deflate"];
            names.iter().any(|name| line.is(name))
                && line.arguments.iter().any(|one| {
                    one.split(';').any(|one| filters.contains(&one.to_ascii_lowercase().as_str()))
                })
        };
        let lines: Vec<&'a Directive> = sections
            .iter()
            .filter(|one| matches!(one.area, PathArea::Below(_)))
            .flat_map(|one| one.directives.iter().filter(is_filter).copied())
            .collect();
        lines.iter().for_each(|line| self.keep(line));
        if lines.is_empty() {
            let place = self.place.clone();
            let why = "responses are compressed, unlike by Apache's default; `compression = false` \
                       turns it off";
            self.report.changed(&place, "mod_deflate", why);
        }
    }
}

/// `access plus 1 month 2 days`, `A3600`. None of `modification`.
fn lifetime(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Some(seconds) = text.strip_prefix('A').and_then(|rest| rest.parse().ok()) {
        return Some(Duration::from_secs(seconds));
    }
    let mut words = text.split_whitespace();
    if !["access", "now"].contains(&words.next()?.to_ascii_lowercase().as_str()) {
        return None;
    }
    let mut sum = 0_u64;
    let mut words = words.filter(|word| !word.eq_ignore_ascii_case("plus"));
    while let Some(number) = words.next() {
        let number: u64 = number.parse().ok()?;
        let unit = words.next()?.to_ascii_lowercase();
        let seconds = match unit.trim_end_matches('s') {
            "year" => 31_536_000,
            "month" => 2_592_000,
            "week" => 604_800,
            "day" => 86_400,
            "hour" => 3600,
            "minute" => 60,
            "second" => 1,
            _ => return None,
        };
        sum = sum.checked_add(number.checked_mul(seconds)?)?;
    }
    Some(Duration::from_secs(sum))
}

/// The name of the script that a path leads to, which may be the index of a folder.
fn script_of(path: &str) -> Option<String> {
    if path.ends_with('/') {
        return Some(format!("{path}{INDEX}"));
    }
    let ends = path.match_indices(SCRIPT_END).map(|(at, _)| at + SCRIPT_END.len());
    let mut ends = ends.filter(|end| path[*end..].is_empty() || path[*end..].starts_with('/'));
    ends.next().map(|end| path[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_start_with_the_access() {
        let seconds = |text| lifetime(text).map(|time| time.as_secs());
        assert_eq!(seconds("access plus 1 month"), Some(2_592_000));
        assert_eq!(seconds("now plus 1 hour 30 minutes"), Some(5400));
        assert_eq!(seconds("A60"), Some(60));
        assert_eq!(seconds("access"), Some(0));
        assert_eq!(seconds("modification plus 1 day"), None);
    }
}
