//! The sections of a site in the order in which Apache merges them: folders from the outermost one
//! on, expressions for folders, files, URLs.

use super::host_import::{AreaSection, HostImport, inner, is_files};
use super::path_area::{self, FolderAreas, PathArea};
use super::require_rules;
use crate::source_directive::Directive;

/// The sections of the server and the virtual host, by their kind.
#[derive(Default)]
struct SectionKinds<'a> {
    folders: Vec<&'a Directive>,
    /// Those of folders by an expression.
    regexes: Vec<&'a Directive>,
    files: Vec<&'a Directive>,
    locations: Vec<&'a Directive>,
}

impl<'a> HostImport<'_, 'a> {
    pub(super) fn collect_sections(&mut self) {
        let of_level = |level: &'a [Directive]| AreaSection {
            area: PathArea::all(),
            directives: inner(level),
            section: None,
            is_folder: false,
        };
        let mut sections: Vec<AreaSection<'a>> = self.levels().into_iter().map(of_level).collect();
        let SectionKinds { folders, regexes, files, locations } = self.section_kinds();
        let around = |one: &'a Directive| files_section(one, &PathArea::all());
        // Those of the server and the virtual host precede those in folders.
        let mut of_files: Vec<AreaSection<'a>> = files.into_iter().map(around).collect();
        let mut folders = self.folder_sections(folders, &mut of_files);
        let mut regexes = self.folder_sections(regexes, &mut of_files);
        let last_of_root = regexes.iter().rposition(|one| one.area.is_all());
        let last_regexes = regexes.split_off(last_of_root.map_or(0, |at| at + 1));
        folders.extend(regexes);
        // A section of the document root or of an alias is none of an alias below it, though its
        // paths are around those of the alias, and so these come after it.
        let prefix = |one: &AreaSection<'a>| self.mapped_around(&one.area).map(|one| &one.prefix);
        folders.sort_by_key(|one| prefix(one).map_or(0, String::len));
        sections.extend(folders);
        sections.extend(last_regexes);
        sections.extend(of_files);
        for section in locations {
            let area = path_area::of_location(section);
            let files = section.block.iter().filter(|one| is_files(one));
            sections.extend(files.map(|one| files_section(one, &area)));
            sections.push(area_section(area, section, false));
        }
        self.sections = sections;
    }

    fn section_kinds(&self) -> SectionKinds<'a> {
        let mut found = SectionKinds::default();
        for section in self.levels().into_iter().flatten() {
            match section.name.to_ascii_lowercase().as_str() {
                "<directory" if section.first() == "~" => found.regexes.push(section),
                "<directory" => found.folders.push(section),
                "<directorymatch" => found.regexes.push(section),
                "<files" | "<filesmatch" => found.files.push(section),
                "<location" | "<locationmatch" => found.locations.push(section),
                _ => {}
            }
        }
        let path = |section: &Directive| self.config.absolute(section.first());
        let depth = |section: &&Directive| path(section).trim_end_matches('/').split('/').count();
        found.folders.sort_by_key(depth);
        found
    }

    /// The sections of folders for each of their areas. Adds those of the files in them.
    fn folder_sections(
        &mut self,
        folders: Vec<&'a Directive>,
        of_files: &mut Vec<AreaSection<'a>>,
    ) -> Vec<AreaSection<'a>> {
        let mut found = Vec::new();
        for section in folders {
            for area in self.areas_of(section) {
                // Not the area of a section for all files: the folders of aliases are elsewhere.
                let around = match area.is_all() && self.mapped.len() > 1 {
                    true => PathArea::Regex("^/".to_owned()),
                    false => area.clone(),
                };
                let files = section.block.iter().filter(|one| is_files(one));
                of_files.extend(files.map(|one| files_section(one, &around)));
                found.push(area_section(area, section, true));
            }
        }
        found
    }

    /// The paths of a section of folders that are clear. Where others are not, a section that does
    /// more than to let all clients in is left out as access.
    fn areas_of(&mut self, section: &'a Directive) -> Vec<PathArea> {
        let FolderAreas { clear, unclear } =
            path_area::of_directory(section, self.config, &self.mapped);
        if let Some(why) = unclear
            && !require_rules::only_lets_in(section)
        {
            self.report.access_left_out(&section.place, &section.shown(), why);
            self.report.cover(section);
        }
        clear
    }
}

fn files_section<'a>(section: &'a Directive, around: &PathArea) -> AreaSection<'a> {
    area_section(path_area::of_files(section, around), section, false)
}

fn area_section(area: PathArea, section: &Directive, is_folder: bool) -> AreaSection<'_> {
    AreaSection { area, directives: inner(&section.block), section: Some(section), is_folder }
}
