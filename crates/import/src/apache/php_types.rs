//! Media types that decide whether PHP runs: those of scripts that a type alone passes to it.

use super::host_import::{AreaSection, HostImport, is_files};
use super::host_scripts::{
    AreaHandler, PHP_TYPE, PhpHandler, is_engine, is_of_php, is_on, program_extensions,
};
use super::htaccess_lines::HtaccessFile;
use super::path_area::{self, PathArea};
use super::rewrite_chain::handlers_of;
use crate::regex_shapes::ends_otherwise as ends_otherwise_than_php;
use crate::source_directive::Directive;

/// A script of a folder that no configuration names.
const ANY_NAME: &str = "zz9.php";

impl<'a> HostImport<'_, 'a> {
    /// Areas whose files have one type (`ForceType`), which overrides that of their extension, but
    /// not a handler.
    pub(super) fn forced_types(&self, by_extension: &[AreaHandler<'a>]) -> Vec<AreaHandler<'a>> {
        let runs_by = |name: &'static str| {
            by_extension
                .iter()
                .filter(move |one| one.line.is(name) && one.handler != PhpHandler::None)
        };
        let has_handler = |area: &PathArea| {
            let PathArea::Below(prefix) = area else { return false };
            runs_by("AddHandler").any(|one| one.area.has(&format!("{prefix}/{ANY_NAME}")))
        };
        let mut found = Vec::new();
        for AreaSection { area, directives, .. } in &self.sections {
            let mut lines = directives.iter().filter(|line| is_forced(line));
            let Some(line) = lines.next_back() else { continue };
            let handler = self.php_handler(line.first()).unwrap_or(PhpHandler::None);
            let is_kept = handler == PhpHandler::None && runs_by("AddType").next().is_none();
            if !is_kept && !has_handler(area) && may_have_scripts(area) {
                found.push(AreaHandler { area: area.clone(), handler, line });
            }
        }
        found
    }

    /// `.htaccess` files that change the type of scripts, where a type alone passes them to PHP.
    pub(super) fn types_of_files(&mut self, general: &'a Directive) {
        if !general.is("AddType") || !self.site.settings.has("htaccess") {
            return;
        }
        let Some(files) = self.files_of_site() else {
            let why = "its folders are too many, too deep, or not readable: a `.htaccess` file \
                       that changes the type of scripts does not stop them here";
            return self.report.access_left_out(&general.place, &general.shown(), why);
        };
        for HtaccessFile { lines, .. } in files.iter() {
            if stops_scripts(lines) {
                continue;
            }
            if let Some(line) = self.type_change(lines) {
                let why = "PHP runs here by the extension, whatever the type of a script: write \
                           `SetHandler none` for them into the file";
                self.report.access_left_out(&line.place, &line.shown(), why);
            }
        }
    }

    /// The line that changes the type of scripts to another than PHP's.
    fn type_change<'l>(&self, lines: &'l [Directive]) -> Option<&'l Directive> {
        let is_of_php = |line: &Directive| self.php_handler(line.first()).is_some();
        let names_php = |line: &Directive, after: usize| {
            line.arguments.iter().skip(after).any(|word| is_php(word))
        };
        let changes = |line: &Directive| match line.name.to_ascii_lowercase().as_str() {
            "forcetype" => is_forced(line) && !is_of_php(line),
            "addtype" => names_php(line, 1) && !is_of_php(line),
            "removetype" => names_php(line, 0),
            _ => false,
        };
        lines.iter().find_map(|line| match changes(line) {
            true => Some(line),
            false if is_files(line) && !may_have_scripts(&file_names(line)) => None,
            false => self.type_change(&line.block),
        })
    }

    /// `.htaccess` files that pass files to the script of an `Action`, which are sent here.
    pub(super) fn actions_of_files(&mut self, actions: &[&'a Directive]) {
        let name = |line: &&Directive| line.first().to_ascii_lowercase();
        let names = actions.iter().map(name).filter(|name| !name.starts_with(PHP_TYPE));
        let names: Vec<String> = names.collect();
        let Some(first) = actions.first().filter(|_| !names.is_empty()) else { return };
        if !self.site.settings.has("htaccess") {
            return;
        }
        let Some(files) = self.files_of_site() else {
            let why = "its folders are too many, too deep, or not readable: what a `.htaccess` \
                       file passes to the script is sent here";
            return self.report.access_left_out(&first.place, &first.shown(), why);
        };
        for file in files.iter() {
            if let Some(line) = passing_line(&file.lines, &names) {
                let why = "files are sent, and not passed to the script of an `Action`: write \
                           `Require all denied` for them, or move them out of the document root";
                self.report.access_left_out(&line.place, &line.shown(), why);
            }
        }
    }
}

/// Whether a line sets the type of all files.
fn is_forced(line: &Directive) -> bool {
    line.is("ForceType") && !line.first().eq_ignore_ascii_case("none")
}

fn may_have_scripts(area: &PathArea) -> bool {
    !matches!(area, PathArea::Regex(text) if ends_otherwise_than_php(text))
}

/// Whether the lines of a `.htaccess` file stop all scripts otherwise than by their type.
fn stops_scripts(lines: &[Directive]) -> bool {
    let handler = lines.iter().rev().find(|line| line.is("SetHandler")).map(Directive::first);
    let is_other = handler.is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        // All names of PHP's handlers run it here, whatever its version.
        !name.starts_with("expr=") && !name.contains("php")
    });
    let removes = |line: &Directive| {
        line.is("RemoveHandler") && line.arguments.iter().any(|word| is_php(word))
    };
    let engine = lines.iter().rev().find(|line| is_engine(line));
    let is_off = engine.is_some_and(|line| !is_on(line));
    is_other || is_off || handler.is_none() && lines.iter().any(removes)
}

/// The names of files in any folder that a section is for.
fn file_names(section: &Directive) -> PathArea {
    path_area::of_files(section, &PathArea::all())
}

/// Whether it is the extension of scripts.
fn is_php(extension: &str) -> bool {
    extension.trim_start_matches('.').eq_ignore_ascii_case("php")
}

/// The line that gives files other than scripts one of these handlers or types.
fn passing_line<'l>(lines: &'l [Directive], names: &[String]) -> Option<&'l Directive> {
    let is_named = |name: &str| names.iter().any(|known| known == name);
    lines.iter().find_map(|line| {
        let word = line.first().to_ascii_lowercase();
        let passes = match line.name.to_ascii_lowercase().as_str() {
            "sethandler" | "forcetype" => is_named(&word) || word.starts_with("expr="),
            "addhandler" | "addtype" => is_named(&word) && !program_extensions(line).is_empty(),
            "rewriterule" => handlers_of(line).iter().any(|name| is_named(name)),
            _ if is_files(line) && is_of_php(&file_names(line)) => false,
            _ => return passing_line(&line.block, names),
        };
        passes.then_some(line)
    })
}
