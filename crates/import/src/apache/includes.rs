//! Pages with server-side includes, which are not evaluated here: their source is not sent.

use std::rc::Rc;

use super::host_import::{AreaSection, HostImport};
use super::host_scripts::{ANY_SCRIPT, files_with, is_of_php, program_extensions};
use super::htaccess_lines::all_lines;
use super::path_area::PathArea;
use crate::source_directive::Directive;

/// Why their paths are a 404.
const NOT_EVALUATED: &str = "server-side includes are not evaluated here; the paths are a 404";

/// What to do where no pattern is for them alone.
const BY_HAND: &str = "server-side includes are not evaluated here; write `deny` of the site for \
                       the pages that have them, or their source is sent";

impl<'a> HostImport<'_, 'a> {
    /// Denies the pages whose server-side includes Apache evaluates.
    pub(super) fn includes(&mut self) {
        let files = match self.site.settings.has("htaccess") {
            true => self.files_of_site(),
            false => Some(Rc::default()),
        };
        // Files that cannot be looked at may allow them as well.
        let by_files =
            files.as_ref().is_none_or(|files| files.iter().any(|file| allows_own(&file.lines)));
        let sections = self.sections.clone();
        for section in &sections {
            for line in section.directives.iter().filter(|line| parses_includes(line)) {
                self.pages_of(line, section, by_files);
            }
        }
        let is_on = sections.iter().any(|one| self.allows_includes(&one.area));
        // Of one that allows them itself, the front does not send the pages.
        for file in
            files.unwrap_or_default().iter().filter(|file| is_on && !allows_own(&file.lines))
        {
            for line in all_lines(&file.lines).into_iter().filter(|line| parses_includes(line)) {
                self.report.access_left_out(&line.place, &line.shown(), BY_HAND);
            }
        }
    }

    /// Denies the pages of a line where `Options` allows includes: in its own section, and in those
    /// within it.
    fn pages_of(&mut self, line: &Directive, section: &AreaSection<'a>, by_files: bool) {
        if by_files || self.allows_includes(&section.area) {
            return self.no_pages(line, section);
        }
        let others = self.sections.iter().filter(|one| {
            one.area != section.area
                && one.last("Options").is_some()
                && self.allows_includes(&one.area)
        });
        let others: Vec<_> = others.cloned().collect();
        for other in &others {
            if section.area.covers(&other.area) {
                self.no_pages(line, other);
            } else if section.area.may_overlap(&other.area) {
                self.report.access_left_out(&line.place, &line.shown(), BY_HAND);
            }
        }
    }

    /// Denies the pages of a line in a section.
    fn no_pages(&mut self, line: &Directive, section: &AreaSection<'a>) {
        let area = match line.name.to_ascii_lowercase().as_str() {
            "addhandler" | "addoutputfilter" => {
                let names = program_extensions(line);
                if names.is_empty() {
                    return;
                }
                files_with(&names, section)
            }
            "sethandler" | "setoutputfilter" if is_of_php(&section.area) => return,
            "sethandler" => Some(section.area.clone()),
            // A filter leaves scripts to PHP: those of a folder are not denied.
            "setoutputfilter" => {
                let is_clear = matches!(section.area, PathArea::Regex(_));
                Some(section.area.clone()).filter(|area| is_clear && !area.has(ANY_SCRIPT))
            }
            _ => None,
        };
        match area {
            Some(area) => self.nothing_here(line, &area, NOT_EVALUATED),
            None => self.report.access_left_out(&line.place, &line.shown(), BY_HAND),
        }
    }

    /// Whether the `Options` of an area allow includes.
    fn allows_includes(&self, area: &PathArea) -> bool {
        let sections = self.sections.iter().filter(|one| self.applies(one, area));
        sections.flat_map(|one| one.all("Options")).fold(false, allowed_after)
    }
}

/// Whether includes are allowed after a line with `Options`.
fn allowed_after(before: bool, line: &Directive) -> bool {
    let is_change = line.first().starts_with(['+', '-']);
    line.arguments.iter().fold(before && is_change, |is_on, word| {
        match word.trim_start_matches('+').to_ascii_lowercase().as_str() {
            "all" | "includes" | "includesnoexec" => true,
            "none" | "-includes" | "-includesnoexec" => false,
            _ => is_on,
        }
    })
}

/// Whether a line gives files the handler or the filter of pages with includes.
fn parses_includes(line: &Directive) -> bool {
    let word = line.first().to_ascii_lowercase();
    match line.name.to_ascii_lowercase().as_str() {
        "addhandler" | "sethandler" => word == "server-parsed",
        "addoutputfilter" | "setoutputfilter" | "addoutputfilterbytype" => {
            word.split(';').any(|filter| filter.trim() == "includes")
        }
        "xbithack" => word != "off",
        _ => false,
    }
}

/// Whether a `.htaccess` file allows includes.
fn allows_own(file: &[Directive]) -> bool {
    let lines = all_lines(file).into_iter().filter(|line| line.is("Options"));
    lines.fold(false, allowed_after)
}
