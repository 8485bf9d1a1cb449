//! `Options` of sections that `.htaccess` files and their rules undo here.

use std::iter;

use super::host_import::HostImport;
use super::host_links::allows_links;
use super::htaccess_lines::HtaccessFile;
use super::path_area::PathArea;
use super::virtual_hosts::is_on;
use crate::source_directive::Directive;

/// What to do where not all files can be read.
const UNREAD: &str = "the folders of the site are too many, too deep, or not readable: see that no \
                      `.htaccess` file in them";

impl<'a> HostImport<'_, 'a> {
    /// Folders whose listing a section refuses, and an outer `.htaccess` file allows here.
    pub(super) fn listings_of_files(&mut self) {
        if !self.site.settings.has("htaccess") {
            return;
        }
        let files = self.files_of_site();
        for section in self.sections.clone() {
            // Apache merges these before the files.
            let is_before =
                section.section.is_none() || section.permits_files() && section.area.is_all();
            let line =
                section.all("Options").into_iter().rfind(|one| allows_listing(one).is_some());
            let Some(line) = line.filter(|line| !is_before && allows_listing(line) == Some(false))
            else {
                continue;
            };
            let is_folder = section.permits_files();
            let area = &section.area;
            if self.is_alias(area) {
                continue;
            }
            let why = match &files {
                None => format!("{UNREAD} has `Options +Indexes`"),
                Some(files) => match listing_file(files, area, is_folder) {
                    Some(file) => format!(
                        "{}/.htaccess lists the folders here: write `Options -Indexes` into the \
                         `.htaccess` file of the folder itself",
                        file.path
                    ),
                    None => continue,
                },
            };
            self.report.access_left_out(&line.place, &line.shown(), &why);
        }
    }

    /// Folders whose requests Apache refuses, since rewriting is on and their options do not allow
    /// it.
    pub(super) fn refused_rewrites(&mut self, area: &PathArea, line: &'a Directive) {
        if !self.site.settings.has("htaccess") || self.is_alias(area) {
            return;
        }
        let why = match self.files_of_site() {
            None => format!("{UNREAD} turns rewriting on, or deny the paths"),
            Some(files) => match self.refused_folder(&files, area) {
                Some(folder) => format!(
                    "Apache refuses all requests for {folder}/, where a `.htaccess` file turns \
                     rewriting on without these options: deny the paths"
                ),
                None => return,
            },
        };
        self.report.access_left_out(&line.place, &line.shown(), &why);
    }

    /// A folder of an area in which rewriting is on by a file and links are not allowed.
    fn refused_folder(&self, files: &[HtaccessFile], area: &PathArea) -> Option<String> {
        let PathArea::Below(prefix) = area else {
            let is_on = |file: &&HtaccessFile| is_on(engine(file));
            let has = |path: &&String| PathArea::Below((*path).clone()).may_overlap(area);
            return files.iter().filter(is_on).map(|file| &file.path).find(has).cloned();
        };
        let inner: Vec<&HtaccessFile> = files.iter().filter(|file| area.has(&file.path)).collect();
        let allows = |folder: &str| {
            inner.iter().any(|file| file.is_around(folder) && file.lines.iter().any(allows_links))
        };
        let is_refused = |folder: &&String| {
            let is_rewriting = is_on(engine_of(files, folder));
            let is_section = || self.without_links(&PathArea::Below((*folder).clone())).is_some();
            is_rewriting && !allows(folder) && is_section()
        };
        let folders = iter::once(prefix).chain(inner.iter().map(|file| &file.path));
        folders.into_iter().find(is_refused).cloned()
    }
}

/// Whether a line allows the listing of folders; none if it says nothing about it.
pub(super) fn allows_listing(line: &Directive) -> Option<bool> {
    let names = line.arguments.iter().map(|name| name.to_ascii_lowercase());
    let names: Vec<String> = names.collect();
    let has = |name: &str| names.iter().any(|one| one == name);
    let is_relative = names.iter().all(|name| name.starts_with(['+', '-']));
    match () {
        () if has("indexes") || has("+indexes") || has("all") => Some(true),
        () if has("-indexes") => Some(false),
        () => (!is_relative).then_some(false),
    }
}

/// The file by which folders of an area are listed, though their section refuses it.
fn listing_file<'f>(
    files: &'f [HtaccessFile],
    area: &PathArea,
    is_folder: bool,
) -> Option<&'f HtaccessFile> {
    let is_own = |file: &HtaccessFile| PathArea::Below(file.path.clone()) == *area;
    let last = |file: &HtaccessFile| file.lines.iter().rev().find_map(options_of);
    let refuses = files.iter().any(|file| is_own(file) && last(file) == Some(false));
    files.iter().filter(|file| file.has(|line| options_of(line) == Some(true))).find(|file| {
        let folder = PathArea::Below(file.path.clone());
        match is_folder && matches!(area, PathArea::Below(_)) {
            // Files of the folder itself and below it come after its section.
            true => folder.covers(area) && !is_own(file) && !refuses,
            false => folder.may_overlap(area) && !(folder.covers(area) && refuses),
        }
    })
}

/// What a line with `Options` says about lists.
fn options_of(line: &Directive) -> Option<bool> {
    line.is("Options").then(|| allows_listing(line))?
}

/// The line of a file that turns rewriting on or off.
fn engine(file: &HtaccessFile) -> Option<&Directive> {
    file.lines.iter().rfind(|one| one.is("RewriteEngine"))
}

/// That line of a folder.
fn engine_of<'f>(files: &'f [HtaccessFile], folder: &str) -> Option<&'f Directive> {
    let files = files.iter().filter(|file| file.is_around(folder) && engine(file).is_some());
    files.max_by_key(|file| file.path.len()).and_then(engine)
}
