//! Pools of some paths of a site: folders with a handler or settings of PHP of their own.

use std::cmp::Reverse;

use maitred_rules::path::is_php_source;

use super::host_import::{AreaSection, HostImport};
use super::host_scripts::{ANY_SCRIPT, AreaHandler, PhpHandler};
use super::mod_php_pools::PoolEntry;
use super::path_area::PathArea;
use crate::file_draft::Placed;
use crate::fpm::{CONFINING, PassTarget};
use crate::regexes::check_regex;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::values::{alternatives, parts};

/// The name of a script that a request for its folder runs.
pub(super) const INDEX: &str = "index.php";

/// Extensions that some have PHP in.
const OTHER_ENDS: [&str; 8] = ["html", "htm", "inc", "xml", "js", "css", "txt", "module"];

/// The pool of some paths.
#[derive(Clone)]
pub(super) struct PathPool<'a> {
    /// The paths.
    area: PathArea,
    /// The pool.
    pool: String,
    /// The line that it is from.
    line: &'a Directive,
}

impl<'a> HostImport<'_, 'a> {
    /// Handlers of some paths, beside the one of the site.
    pub(super) fn other_handlers(&mut self, handlers: &[AreaHandler<'a>]) {
        let general = handlers.iter().rposition(|one| one.area.has(ANY_SCRIPT));
        let is_php = |one: &&AreaHandler<'a>| one.handler != PhpHandler::None;
        let own = general.map(|at| &handlers[at]).or(handlers.iter().find(is_php));
        let own = own.map(|one| &one.handler);
        let others = handlers.iter().enumerate().filter(|(_, one)| !one.area.has(ANY_SCRIPT));
        // One for all scripts overrides what precedes it.
        let (none, some): (Vec<_>, Vec<_>) =
            others.partition(|(_, one)| one.handler == PhpHandler::None);
        let some = some.into_iter().filter(|(at, _)| general.is_none_or(|general| *at > general));
        let some: Vec<&AreaHandler<'a>> = some.map(|(_, one)| one).collect();
        if general.map(|at| &handlers[at].handler) != Some(&PhpHandler::None) {
            none.into_iter().for_each(|(_, one)| self.refuse_scripts(one));
        }
        if some.iter().all(|one| Some(&one.handler) == own) {
            return;
        }
        // The first match of `paths` wins: inner folders come first.
        for one in some.into_iter().rev() {
            let pool = match &one.handler {
                handler if Some(handler) == own => self.own_pool(),
                PhpHandler::Fcgi(address) => match self.target(address, one.line) {
                    PassTarget::Pool(name) => Some(name),
                    PassTarget::Upstream(_) => None,
                },
                PhpHandler::Module | PhpHandler::None => None,
            };
            match pool {
                Some(pool) => self.pool_of_paths(one, pool),
                None => {
                    let why = "the pool of these scripts was not found, and they do not run: give \
                               the folder a site of its own";
                    self.report.access_left_out(&one.line.place, &one.line.shown(), why);
                    self.refuse_scripts(one);
                }
            }
        }
    }

    pub(super) fn own_pool(&self) -> Option<String> {
        self.site.settings.value("pool").map(|pool| pool.trim_matches('"').to_owned())
    }

    fn refuse_scripts(&mut self, one: &AreaHandler<'a>) {
        let pattern = one.area.whole_pattern();
        if let Err(why) = check_regex(&pattern) {
            let why = format!("{why}; write `deny_php` of the site for these scripts");
            return self.report.access_left_out(&one.line.place, &one.line.shown(), &why);
        }
        let item = Placed::new(toml_text::string(&pattern), &one.line.place);
        self.site.settings.push("deny_php", item);
    }

    /// A pool is chosen by the requested path, and handlers by the name of the script: a folder's
    /// name, and what follows a script, are among the paths.
    fn pool_of_paths(&mut self, one: &AreaHandler<'a>, pool: String) {
        let path = match (folder_of_scripts(&one.area), &one.area) {
            (Some(folder), _) => folder.whole_pattern(),
            (None, PathArea::Regex(text)) => {
                if may_be_index(text) {
                    let why = "requests for the folders themselves run in the pool of the site: \
                               write `paths` of the site for them";
                    self.report.access_left_out(&one.line.place, &one.line.shown(), why);
                }
                match text.strip_suffix(".php$") {
                    Some(begin) => format!("~{begin}.php(?:/|$)"),
                    None => format!("~{text}"),
                }
            }
            (None, area) => area.whole_pattern(),
        };
        self.push_pool(&path, PathPool { area: one.area.clone(), pool, line: one.line });
    }

    fn push_pool(&mut self, path: &str, one: PathPool<'a>) {
        let fields = [("path", toml_text::string(path)), ("pool", toml_text::string(&one.pool))];
        self.push("paths", one.line, toml_text::table(fields));
        self.path_pools.push(one);
    }

    /// Pools of paths, where the path that is requested and the script that runs may be in two of
    /// them: Apache takes the pool of the script, and the site that of the path.
    pub(super) fn pools_of_rewritten(&mut self) {
        let settings = &self.site.settings;
        let front = settings.value("front_controller").filter(|script| *script != "\"\"");
        if front.is_none() && !settings.has("htaccess") {
            return;
        }
        let own = self.own_pool();
        for PathPool { area, pool, line } in self.path_pools.clone() {
            // Scripts of an alias run for its own paths alone.
            if self.is_alias(&area) || self.is_confined_alike(own.as_deref(), &pool) {
                continue;
            }
            let why = "scripts run in the pool of the requested path, not of their own folder, \
                       after a fallback or a rewrite: serve the folder as a site of its own";
            self.report.access_left_out(&line.place, &line.shown(), why);
        }
    }

    /// Whether a script that is requested by its own path runs with the user and the limits of the
    /// site.
    pub(super) fn runs_as_site(&self, script: &str) -> bool {
        let found = self.path_pools.iter().find(|one| one.area.has(script));
        let own = self.own_pool();
        found.is_none_or(|one| self.is_confined_alike(own.as_deref(), &one.pool))
    }

    /// Whether the scripts of both pools have the same user and the same limits.
    pub(super) fn is_confined_alike(&self, own: Option<&str>, other: &str) -> bool {
        let names: Vec<&str> = ["user", "group", "chroot"].into_iter().chain(CONFINING).collect();
        let Some(own) = own else { return false };
        let of_mod_php = |pool| self.mod_php.values(pool, &names);
        let values = of_mod_php(own);
        let is_same = values.is_some() && values == of_mod_php(other);
        is_same || self.pools.have_same_rights(own, other)
    }

    /// Settings of mod_php for folders: each gets a pool of its own.
    pub(super) fn pools_of_folders(&mut self, of_site: &[PoolEntry]) {
        let sections: Vec<AreaSection<'a>> = self.sections.clone();
        let mut folders: Vec<(&str, &'a Directive)> = Vec::new();
        for section in &sections {
            let PathArea::Below(prefix) = &section.area else { continue };
            let lines = section.directives.iter().filter(|line| self.pool_entry(line).is_some());
            let lines: Vec<&'a Directive> = lines.copied().filter(|_| !prefix.is_empty()).collect();
            lines.iter().for_each(|line| self.keep(line));
            folders.extend(lines.first().map(|line| (prefix.as_str(), *line)));
        }
        // The first match of `paths` wins: inner folders come first.
        folders.sort_by_key(|(prefix, _)| Reverse(prefix.len()));
        folders.dedup_by_key(|(prefix, _)| *prefix);
        for (prefix, line) in folders {
            let area = PathArea::Below(prefix.to_owned());
            let entries = self.entries_of(&area, of_site);
            let pool = self.mod_php.pool(entries);
            self.push_pool(&area.whole_pattern(), PathPool { area, pool, line });
        }
    }

    /// The settings of a folder: those of all sections for it, as Apache merges them.
    fn entries_of(&self, area: &PathArea, of_site: &[PoolEntry]) -> Vec<PoolEntry> {
        let of_pool = of_site.iter().filter(|one| one.table.is_empty());
        let mut entries: Vec<PoolEntry> = of_pool.cloned().collect();
        let sections = self.sections.iter().filter(|one| self.applies(one, area));
        let lines = sections.flat_map(|one| one.directives.iter().copied());
        lines.filter_map(|line| self.pool_entry(line)).for_each(|one| one.merge_into(&mut entries));
        entries
    }
}

/// The folder whose scripts are those of an area; none if it has some of them only.
fn folder_of_scripts(area: &PathArea) -> Option<PathArea> {
    let PathArea::Regex(text) = area else { return Some(area.clone()) };
    let folder = literal_folder(text);
    let mut any = ["/zz9.php", ANY_SCRIPT].iter();
    let is_all = any.all(|script| area.has(&format!("{folder}{script}")));
    is_all.then_some(PathArea::Below(folder))
}

/// The folder that an expression names at its start, without a slash at its end.
fn literal_folder(text: &str) -> String {
    let (mut folder, mut name) = (String::new(), String::new());
    let mut letters = text.strip_prefix('^').unwrap_or_default().chars();
    while let Some(letter) = letters.next() {
        match letter {
            '/' => folder += &std::mem::replace(&mut name, "/".to_owned()),
            '\\' => match letters.next().filter(|escaped| !escaped.is_ascii_alphanumeric()) {
                Some(escaped) => name.push(escaped),
                None => break,
            },
            letter if "()[]{}.*+?|$^".contains(letter) => break,
            letter => name.push(letter),
        }
    }
    folder
}

/// Whether an expression may be for the index of a folder.
fn may_be_index(text: &str) -> bool {
    alternatives(text).iter().any(|part| matches_name(part, INDEX))
}

/// Whether an alternative of an expression for paths may match the name of a file.
fn matches_name(part: &str, name: &str) -> bool {
    let segments = parts(part, '/');
    let begin = if segments.len() > 1 { "^" } else { "" };
    let last = segments.last().and_then(|last| last.rsplit("(?:.*/)?").next()).unwrap_or_default();
    let last = regex::Regex::new(&format!("{begin}(?:{last})"));
    last.map_or(true, |last| last.is_match(name))
}

pub(super) fn is_other_name(name: &str) -> bool {
    !is_php_source(format!("/{name}").as_bytes())
}

/// The end of a name of files that are passed to PHP, and that are no PHP source here.
pub(super) fn other_source(one: &AreaHandler<'_>) -> Option<String> {
    if one.line.is("AddHandler") || one.line.is("AddType") {
        let mut ends = one.line.arguments.iter().skip(1).map(|end| end.trim_start_matches('.'));
        return ends.find(|end| is_other_name(&format!("zz9.{end}"))).map(|end| format!(".{end}"));
    }
    other_name(&one.area)
}

/// The end of a name of files that an expression matches, and that are no PHP source here.
pub(super) fn other_name(area: &PathArea) -> Option<String> {
    let PathArea::Regex(text) = area else { return None };
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let ends = words.clone().chain(OTHER_ENDS).map(|end| format!("zz9.{end}"));
    let mut names = ends.chain(words.map(str::to_owned)).filter(|name| is_other_name(name));
    let all = alternatives(text);
    let found = names.find(|name| all.iter().any(|part| matches_name(part, name)))?;
    Some(found.trim_start_matches("zz9").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_for_the_scripts_of_a_folder_is_for_its_own_name_as_well() {
        let of = |text: &str| folder_of_scripts(&PathArea::Regex(text.to_owned()));
        for (text, folder) in [
            (r"^/a\-b/(?:.*/)?[^/]*\.php$", "/a-b"),
            (r"^/pma/(.*\.php(/.*)?)$", "/pma"),
            (r"^/a/b/.*\.php(/|$)", "/a/b"),
        ] {
            assert_eq!(of(text), Some(PathArea::Below(folder.to_owned())), "{text}");
        }
        for text in [r"^/a/[^/]*\.php$", r"^/a/index\.php$", r"/[^/]*/a/.*\.php$"] {
            assert_eq!(of(text), None, "{text}");
        }
        for (text, is_index) in
            [(r"/index\.php$", true), (r"^/a/(?:.*/)?[^/]*\.php$", true), (r"/admin\.php$", false)]
        {
            assert_eq!(may_be_index(text), is_index, "{text}");
        }
    }
}
