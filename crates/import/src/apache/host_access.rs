//! Who may see what at a site.

use super::host_import::{AreaSection, HostImport};
use super::path_area::PathArea;
use super::require_rules::{
    AccessRule, AllowedUsers, is_compat, is_requirement, of_order, of_require,
};
use crate::file_draft::Placed;
use crate::hidden_names::are_hidden;
use crate::regexes::check_regex;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::user_files;
use crate::values::alternatives;

/// A rule of a section.
struct SectionRule<'a> {
    area: PathArea,
    rule: AccessRule,
    /// The first line of it.
    line: &'a Directive,
    /// The section's place among all.
    at: usize,
}

impl<'a> HostImport<'_, 'a> {
    /// Writes the access rules of all sections. Those of mod_authz_core and of mod_access_compat
    /// must both hold.
    pub(super) fn access(&mut self) {
        let sections = self.sections.clone();
        let requirements = rules(&sections, is_requirement, of_require);
        self.write_rules(&requirements);
        self.write_rules(&rules(&sections, is_compat, of_order));
        self.satisfy();
        for section in &sections {
            for directive in &section.directives {
                if is_requirement(directive) || is_compat(directive) {
                    self.keep(directive);
                    directive.block.iter().for_each(|one| self.report.cover(one));
                }
            }
        }
    }

    fn write_rules(&mut self, rules: &[SectionRule<'a>]) {
        for (index, one) in rules.iter().enumerate() {
            let later = &rules[index + 1..];
            // A later section with all of its paths decides in its place.
            if one.rule.is_open() || later.iter().any(|other| other.area.covers(&one.area)) {
                continue;
            }
            let differ = later.iter().filter(|other| other.rule != one.rule);
            let others: Vec<&SectionRule<'a>> = differ.collect();
            self.write_rule(one, &others);
        }
    }

    fn write_rule(&mut self, one: &SectionRule<'a>, later: &[&SectionRule<'a>]) {
        // Where a later one closes the paths, this one does no harm.
        let laxer = later.iter().filter(|other| !other.rule.is_closed);
        let laxer: Vec<&PathArea> = laxer.map(|other| &other.area).collect();
        let others: Vec<&PathArea> = later.iter().map(|other| &other.area).collect();
        let others = others.as_slice();
        let SectionRule { area, rule, line, at } = one;
        if is_hidden(area) && rule.is_closed {
            let why = "hidden files are a 404";
            return self.report.changed(&line.place, &line.shown(), why);
        }
        if is_source(area) && rule.is_closed {
            let why = "PHP source is never sent";
            return self.report.changed(&line.place, &line.shown(), why);
        }
        let is_left = |other: &&&PathArea| match (area, other) {
            (PathArea::Below(_), PathArea::Below(_)) => false,
            _ => !is_hidden(other) && !is_source(other),
        };
        if laxer.iter().any(|other| is_left(&other) && can_overlap(area, other)) {
            let why = "it applies as well where a later section has another rule";
            self.report.changed(&line.place, &line.shown(), why);
        }
        if let Some(why) = rule.stricter {
            self.report.changed(&line.place, &line.shown(), why);
        }
        if let Some(why) = &rule.unwritten {
            let what = if rule.is_closed { "the paths are denied to all clients" } else { "" };
            let why = format!("{why}; {what}; write `deny` of the site");
            self.report.access_left_out(&line.place, &line.shown(), &why.replace("; ;", ";"));
        }
        for pattern in area.patterns_without(others) {
            if let Err(why) = check_regex(&pattern) {
                let why = format!("{why}; write the rule in the site");
                self.report.access_left_out(&line.place, &line.shown(), &why);
                continue;
            }
            let path = toml_text::string(&pattern);
            if rule.is_closed {
                self.push("deny", line, path);
                continue;
            }
            if !rule.only.is_empty() {
                let except = toml_text::strings(&rule.only);
                let fields = [("path", path.clone()), ("except", except)];
                self.push("deny", line, toml_text::table(fields));
            }
            if !rule.not.is_empty() {
                let fields = [("path", path.clone()), ("from", toml_text::strings(&rule.not))];
                self.push("deny", line, toml_text::table(fields));
            }
            if let Some(users) = &rule.users {
                self.users(one, *at, users, &pattern);
            }
        }
    }

    /// `basic_auth`, with the users of the file that applies to the area.
    fn users(&mut self, one: &SectionRule<'a>, at: usize, users: &AllowedUsers, pattern: &str) {
        let line = one.line;
        let file = self.inherited(at, &one.area, "AuthUserFile");
        let kind = self.inherited(at, &one.area, "AuthType").map(Directive::first);
        let provider = self.inherited(at, &one.area, "AuthBasicProvider").map(Directive::first);
        let is_basic = kind.is_some_and(|kind| kind.eq_ignore_ascii_case("basic"));
        let is_file = provider.is_none_or(|name| name.eq_ignore_ascii_case("file"));
        let Some(file) = file.filter(|_| is_basic && is_file) else {
            self.push("deny", line, toml_text::string(pattern));
            let why = "only Basic authentication with an `AuthUserFile` has a counterpart; the \
                       paths are denied to all clients: write `basic_auth` of the site";
            return self.report.access_left_out(&line.place, &line.shown(), why);
        };
        let path = self.config.absolute(file.first());
        if let AllowedUsers::Named(names) = users {
            let known = user_files::names(self.files, &path);
            let has_others = known.is_none_or(|known| known.iter().any(|one| !names.contains(one)));
            if has_others {
                self.push("deny", line, toml_text::string(pattern));
                let why = format!(
                    "all users of a file are let in here, and {path} may have others; the paths \
                     are denied to all clients: copy the lines of {} to a file of their own, and \
                     write `basic_auth` of the site",
                    names.join(", ")
                );
                return self.report.access_left_out(&line.place, &line.shown(), &why);
            }
        }
        if let Some(why) = user_files::weak_hashes(self.files, &path) {
            self.report.left_out(&file.place, &file.shown(), &why);
        }
        let mut fields =
            vec![("path", toml_text::string(pattern)), ("users", toml_text::string(&path))];
        let realm = self.inherited(at, &one.area, "AuthName").map(Directive::first);
        if let Some(realm) = realm.filter(|realm| !realm.contains('"') && !realm.is_empty()) {
            fields.push(("realm", toml_text::string(realm)));
        }
        self.push("basic_auth", line, toml_text::table(fields));
        for name in ["AuthType", "AuthName", "AuthUserFile", "AuthBasicProvider"] {
            if let Some(line) = self.inherited(at, &one.area, name) {
                self.keep(line);
            }
        }
    }

    fn satisfy(&mut self) {
        let lines: Vec<&'a Directive> =
            self.sections.iter().flat_map(|one| one.all("Satisfy")).collect();
        for line in lines {
            match line.first().eq_ignore_ascii_case("any") {
                true => {
                    let why = "the address and the password are both needed here";
                    self.report.changed(&line.place, &line.shown(), why);
                }
                false => self.keep(line),
            }
        }
    }

    /// `Options`: which folders are listed.
    pub(super) fn listings(&mut self) {
        let sections = self.sections.clone();
        let mut found: Vec<(PathArea, bool, &'a Directive)> = Vec::new();
        for section in &sections {
            for line in section.all("Options") {
                self.keep(line);
                let names = line.arguments.iter().map(|name| name.to_ascii_lowercase());
                let names: Vec<String> = names.collect();
                let has = |name: &str| names.iter().any(|one| one == name);
                let is_relative = names.iter().all(|name| name.starts_with(['+', '-']));
                let lists = match () {
                    () if has("indexes") || has("+indexes") || has("all") => true,
                    () if has("-indexes") => false,
                    () if is_relative => continue,
                    () => false,
                };
                let is_known = self.config.modules.contains("autoindex");
                found.push((section.area.clone(), lists && is_known, line));
            }
        }
        for (index, (area, lists, line)) in found.iter().enumerate() {
            let later = &found[index + 1..];
            if !lists || later.iter().any(|(other, ..)| other.covers(area)) {
                continue;
            }
            let closed: Vec<&(PathArea, bool, &Directive)> =
                later.iter().filter(|(_, lists, _)| !lists).collect();
            let is_open = |other: &PathArea| matches!(other, PathArea::Regex(_)) && area.is_all();
            if closed.iter().any(|(other, ..)| is_open(other)) {
                let why = "the folders of a later section are listed as well; write `autoindex` of \
                           the site";
                self.report.access_left_out(&line.place, &line.shown(), why);
            }
            let others: Vec<&PathArea> = closed.iter().map(|(other, ..)| other).collect();
            for pattern in area.patterns_without(&others) {
                let item = Placed::new(toml_text::string(&pattern), &line.place);
                self.site.settings.push("autoindex", item);
            }
        }
    }
}

/// The rules of one kind, of all sections that have some.
fn rules<'a>(
    sections: &[AreaSection<'a>],
    is_one: fn(&Directive) -> bool,
    rule: fn(&[&Directive]) -> Option<AccessRule>,
) -> Vec<SectionRule<'a>> {
    let found = sections.iter().enumerate().filter_map(|(at, section)| {
        let line = section.directives.iter().copied().find(|one| is_one(one))?;
        let rule = rule(&section.directives)?;
        Some(SectionRule { area: section.area.clone(), rule, line, at })
    });
    found.collect()
}

/// Whether an area is of hidden files, as `<FilesMatch "^\.ht">` and `<DirectoryMatch "/\.">`.
fn is_hidden(area: &PathArea) -> bool {
    matches!(area, PathArea::Regex(text) if are_hidden(text))
}

/// Whether an area is of PHP source, as Debian's `<FilesMatch ".+\.phps$">`.
fn is_source(area: &PathArea) -> bool {
    let PathArea::Regex(text) = area else { return false };
    alternatives(text).iter().all(|part| part.ends_with("\\.phps$"))
}

/// Whether two areas may have paths in common.
fn can_overlap(one: &PathArea, other: &PathArea) -> bool {
    match (one, other) {
        (PathArea::Below(one), PathArea::Below(other)) => {
            PathArea::Below(one.clone()).has(other) || PathArea::Below(other.clone()).has(one)
        }
        (PathArea::Regex(text), PathArea::Below(prefix))
        | (PathArea::Below(prefix), PathArea::Regex(text)) => {
            let fixed = text.strip_prefix('^').unwrap_or_default();
            let end = fixed.find(['(', '[', '.', '*', '\\', '?', '$', '|']).unwrap_or(fixed.len());
            let fixed = &fixed[..end];
            fixed.starts_with(prefix.as_str()) || prefix.starts_with(fixed)
        }
        _ => true,
    }
}
