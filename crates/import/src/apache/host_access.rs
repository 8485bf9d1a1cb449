//! Who may see what at a site.

use super::file_options::allows_listing;
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

/// The directives that say which users there are.
const OF_USERS: [&str; 3] = ["AuthUserFile", "AuthType", "AuthBasicProvider"];

/// The names of `IndexIgnore` in the configurations of Debian and Fedora.
const IGNORED: [&str; 11] = [
    ".??*",
    "*~",
    "*#",
    "HEADER*",
    "README*",
    "HEADER.html",
    "README.html",
    "RCS",
    "CVS",
    "*,v",
    "*,t",
];

/// A rule of a section.
struct SectionRule<'a> {
    area: PathArea,
    rule: AccessRule,
    /// The first line of it.
    line: &'a Directive,
    /// The section's place among all.
    at: usize,
    /// Where its users are, if it has some.
    users_of: [Option<&'a str>; 3],
}

impl SectionRule<'_> {
    /// Whether it decides as another one.
    fn is_same(&self, other: &SectionRule<'_>) -> bool {
        self.rule == other.rule && self.users_of == other.users_of
    }
}

impl<'a> HostImport<'_, 'a> {
    /// Writes the access rules of all sections. Those of mod_authz_core and of mod_access_compat
    /// must both hold.
    pub(super) fn access(&mut self) {
        let sections = self.sections.clone();
        let mut requirements = self.rules(is_requirement, of_require);
        self.users_elsewhere(&mut requirements);
        self.write_rules(&requirements);
        let orders = self.rules(is_compat, of_order);
        self.write_rules(&orders);
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

    /// The rules of one kind, of all sections that have some.
    fn rules(
        &self,
        is_one: fn(&Directive) -> bool,
        rule: fn(&[&Directive]) -> Option<AccessRule>,
    ) -> Vec<SectionRule<'a>> {
        let found = self.sections.iter().enumerate().filter_map(|(at, section)| {
            let line = section.directives.iter().copied().find(|one| is_one(one))?;
            let rule = rule(&section.directives)?;
            let area = section.area.clone();
            let has_users = rule.users.is_some();
            let users_of = if has_users { self.users_of(&area) } else { [None; 3] };
            Some(SectionRule { area, rule, line, at, users_of })
        });
        found.collect()
    }

    /// The directive that is the last one for all of an area.
    fn merged(&self, area: &PathArea, name: &str) -> Option<&'a Directive> {
        self.inherited(self.sections.len().checked_sub(1)?, area, name)
    }

    fn users_of(&self, area: &PathArea) -> [Option<&'a str>; 3] {
        OF_USERS.map(|name| self.merged(area, name).map(Directive::first))
    }

    /// Rules for sections without a requirement that have users of their own.
    fn users_elsewhere(&mut self, rules: &mut Vec<SectionRule<'a>>) {
        for (at, section) in self.sections.clone().iter().enumerate() {
            let own = |section: &AreaSection<'a>| OF_USERS.map(|name| section.last(name));
            let lines = own(section);
            let Some(line) = lines.iter().flatten().next().copied() else { continue };
            let area = &section.area;
            let users_of = self.users_of(area);
            let around = rules.iter().rposition(|one| one.area.covers(area));
            // A section with all paths of a rule is merged with it, and a later one has its own.
            let is_crossed = |one: &&SectionRule<'a>| {
                let theirs = own(&self.sections[one.at]);
                let has_all = lines.iter().zip(theirs).all(|(a, b)| a.is_none() || b.is_some());
                one.rule.users.is_some()
                    && !(has_all && one.at > at)
                    && !area.covers(&one.area)
                    && one.area.may_overlap(area)
            };
            if rules.iter().skip(around.map_or(0, |at| at + 1)).any(|one| is_crossed(&one)) {
                let why = "it decides on the users of paths with a rule of another section; write \
                           `basic_auth` of the site";
                self.report.access_left_out(&line.place, &line.shown(), why);
            }
            let Some(around) = around else { continue };
            let rule = rules[around].rule.clone();
            if rule.users.is_some() && rules[around].users_of != users_of {
                let area = area.clone();
                rules.insert(around + 1, SectionRule { area, rule, line, at, users_of });
            }
        }
    }

    fn write_rules(&mut self, rules: &[SectionRule<'a>]) {
        // The first match of `basic_auth` wins: inner sections come first.
        for (index, one) in rules.iter().enumerate().rev() {
            let later = &rules[index + 1..];
            if one.rule.is_open() || later.iter().any(|other| self.replaces(other, one)) {
                continue;
            }
            let differ = later.iter().filter(|other| !other.is_same(one));
            let others: Vec<&SectionRule<'a>> = differ.collect();
            self.write_rule(one, &others);
        }
    }

    /// Whether a later section, with all paths of a rule, decides in its place: one of folders does
    /// so in its own document root or alias alone.
    fn replaces(&self, later: &SectionRule<'a>, one: &SectionRule<'a>) -> bool {
        let section = &self.sections[later.at];
        let own = self.mapped_around(&section.area).map_or(0, |folder| folder.prefix.len());
        let mut inner = self.mapped.iter().filter(|folder| folder.prefix.len() > own);
        let is_elsewhere = section.is_folder
            && matches!(one.area, PathArea::Regex(_))
            && inner.any(|folder| PathArea::Below(folder.prefix.clone()).may_overlap(&one.area));
        later.area == one.area || !is_elsewhere && self.applies(section, &one.area)
    }

    fn write_rule(&mut self, one: &SectionRule<'a>, later: &[&SectionRule<'a>]) {
        // Where a later one closes the paths, this one does no harm.
        let laxer = later.iter().filter(|other| !other.rule.is_closed);
        let laxer: Vec<&PathArea> = laxer.map(|other| &other.area).collect();
        let others: Vec<&PathArea> = later.iter().map(|other| &other.area).collect();
        let others = others.as_slice();
        let SectionRule { area, rule, line, .. } = one;
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
        if laxer.iter().any(|other| is_left(&other) && area.may_overlap(other)) {
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
                self.users(one, users, &pattern);
            }
        }
    }

    /// `basic_auth`, with the users of the file that applies to the area.
    fn users(&mut self, one: &SectionRule<'a>, users: &AllowedUsers, pattern: &str) {
        let line = one.line;
        let file = self.merged(&one.area, "AuthUserFile");
        let [_, kind, provider] = one.users_of;
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
        let realm = self.merged(&one.area, "AuthName").map(Directive::first);
        if let Some(realm) = realm.filter(|realm| !realm.contains('"') && !realm.is_empty()) {
            fields.push(("realm", toml_text::string(realm)));
        }
        self.push("basic_auth", line, toml_text::table(fields));
        for name in ["AuthType", "AuthName", "AuthUserFile", "AuthBasicProvider"] {
            if let Some(line) = self.merged(&one.area, name) {
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
        self.links();
        self.listings_of_files();
        let sections = self.sections.clone();
        let mut found: Vec<(PathArea, bool, &'a Directive)> = Vec::new();
        for section in &sections {
            for line in section.all("Options") {
                self.keep(line);
                let Some(lists) = allows_listing(line) else { continue };
                let is_known = self.config.modules.contains("autoindex_module");
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
            let is_folder = |area: &PathArea| matches!(area, PathArea::Below(_));
            let is_open = |other: &PathArea| {
                !(is_folder(area) && is_folder(other)) && area.may_overlap(other)
            };
            if closed.iter().any(|(other, ..)| is_open(other)) {
                let why = "the folders of a later section are listed as well; write `autoindex` of \
                           the site";
                self.report.access_left_out(&line.place, &line.shown(), why);
            }
            let inner = closed.iter().map(|(other, ..)| other).filter(|other| !is_open(other));
            let others: Vec<&PathArea> = inner.collect();
            let Some(patterns) = area.exact_patterns_without(&others) else {
                let why = "later sections with other `Options` are too many: write `autoindex` of \
                           the site";
                self.report.access_left_out(&line.place, &line.shown(), why);
                continue;
            };
            for pattern in patterns {
                let item = Placed::new(toml_text::string(&pattern), &line.place);
                self.site.settings.push("autoindex", item);
            }
        }
        self.ignored_names();
    }

    /// `IndexIgnore`: names that are in no list of Apache's.
    fn ignored_names(&mut self) {
        if self.site.settings.list("autoindex").is_empty() {
            return;
        }
        for section in self.sections.clone() {
            for line in section.all("IndexIgnore") {
                if !line.arguments.iter().all(|name| IGNORED.contains(&name.as_str())) {
                    let why = "a list has all names but hidden ones: deny these, or leave out \
                               `autoindex` of the site";
                    self.report.access_left_out(&line.place, &line.shown(), why);
                }
            }
        }
    }
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
