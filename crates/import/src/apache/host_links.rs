//! `Options` of folders whose links Apache does not follow.

use super::host_import::{AreaSection, HostImport};
use super::path_area::{MappedFolder, PathArea};
use crate::source_directive::Directive;

/// The options that let Apache follow links, in lower case.
const FOLLOWING: [&str; 2] = ["followsymlinks", "symlinksifownermatch"];

impl<'a> HostImport<'_, 'a> {
    /// Links that Apache does not follow are followed here.
    pub(super) fn links(&mut self) {
        let of_folders = self.mapped.iter().map(|one| PathArea::Below(one.prefix.clone()));
        let has_own = |one: &&AreaSection<'a>| one.is_folder && one.last("Options").is_some();
        let own = self.sections.iter().filter(has_own).map(|one| one.area.clone());
        let areas: Vec<PathArea> = of_folders.chain(own).collect();
        for area in areas {
            let Some(line) = self.without_links(&area) else { continue };
            self.refused_rewrites(&area, line);
            for folder in self.folders_of(&area) {
                self.links_below(&folder, line);
            }
        }
    }

    /// The line for which Apache follows no links in an area, if there is one.
    pub(super) fn without_links(&self, area: &PathArea) -> Option<&'a Directive> {
        let is_merged = |one: &&AreaSection<'a>| one.is_folder || one.section.is_none();
        let sections = self.sections.iter().filter(is_merged);
        let sections = sections.filter(|one| self.applies(one, area));
        let mut following = vec![FOLLOWING[0]];
        let mut deciding = None;
        for line in sections.flat_map(|one| one.all("Options")) {
            let was_following = !following.is_empty();
            if !line.arguments.iter().any(|word| word.starts_with(['+', '-'])) {
                following.clear();
            }
            for word in &line.arguments {
                let (is_removed, name) = match word.strip_prefix('-') {
                    Some(name) => (true, name.to_ascii_lowercase()),
                    None => (false, word.trim_start_matches('+').to_ascii_lowercase()),
                };
                let is_one = |one: &&str| *one == name || name == "all";
                match is_removed {
                    true => following.retain(|one| !is_one(one)),
                    false => following.extend(FOLLOWING.iter().filter(|one| is_one(one))),
                }
            }
            if was_following || !following.is_empty() {
                deciding = following.is_empty().then_some(line);
            }
        }
        deciding
    }

    /// The folders that an area is in, or is.
    fn folders_of(&self, area: &PathArea) -> Vec<String> {
        match area {
            PathArea::Below(prefix) => self.folder_of(prefix).into_iter().collect(),
            PathArea::Regex(_) => {
                let overlaps =
                    |one: &&MappedFolder| PathArea::Below(one.prefix.clone()).may_overlap(area);
                self.mapped.iter().filter(overlaps).map(|one| one.folder.clone()).collect()
            }
        }
    }

    fn links_below(&mut self, folder: &str, line: &'a Directive) {
        let (place, shown) = (&line.place, line.shown());
        match self.files.has_links(folder) {
            Some(true) => {
                let why = format!(
                    "links are followed here, and there are some below {folder}: remove them, or \
                     deny their paths"
                );
                self.report.access_left_out(place, &shown, &why);
            }
            Some(false) => {
                let why = "links are followed here; there are none now";
                self.report.changed(place, &shown, why);
            }
            None => {
                let why = format!(
                    "links are followed here, and the folders of {folder} are too many, too deep, \
                     or not readable: remove links below it, or deny their paths"
                );
                self.report.access_left_out(place, &shown, &why);
            }
        }
    }
}

/// Whether a line of a `.htaccess` file lets Apache follow links.
pub(super) fn allows_links(line: &Directive) -> bool {
    let names = line.arguments.iter().map(|name| name.trim_start_matches('+').to_ascii_lowercase());
    let mut names = names.filter(|name| FOLLOWING.contains(&name.as_str()) || name == "all");
    line.is("Options") && names.next().is_some()
}
