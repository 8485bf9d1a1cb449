//! `AllowOverride`: which `.htaccess` files apply, and what they may have.

use maitred_htaccess::overrides::Overrides;

use super::config_reader;
use super::host_import::{AreaSection, HostImport};
use super::path_area::{self, PathArea};
use crate::file_draft::Placed;
use crate::source_directive::Directive;
use crate::toml_text;

/// The lines that decide what `.htaccess` files may have.
#[derive(Debug, Clone, Copy, Default)]
struct OverrideLines<'a> {
    /// `AllowOverride`.
    groups: Option<&'a Directive>,
    /// `AllowOverrideList`.
    list: Option<&'a Directive>,
    /// The later one of both.
    last: Option<&'a Directive>,
}

impl<'a> OverrideLines<'a> {
    /// The own lines of a section.
    fn of<'s>(section: &'s AreaSection<'a>) -> impl Iterator<Item = &'a Directive> + use<'s, 'a> {
        ["AllowOverride", "AllowOverrideList"].into_iter().filter_map(|name| section.last(name))
    }

    /// Those of a section within.
    fn within(self, section: &AreaSection<'a>) -> OverrideLines<'a> {
        OverrideLines {
            groups: section.last("AllowOverride").or(self.groups),
            list: section.last("AllowOverrideList").or(self.list),
            last: OverrideLines::of(section).last().or(self.last),
        }
    }

    /// The names of groups and directives; none for `None`.
    fn names(self) -> Vec<String> {
        let lines = [self.groups, self.list].into_iter().flatten();
        let names = lines.flat_map(|line| line.arguments.iter().cloned());
        names.filter(|name| !name.eq_ignore_ascii_case("none")).collect()
    }
}

impl<'a> HostImport<'_, 'a> {
    /// `AllowOverride`, and `.htaccess` files where it is another.
    pub(super) fn htaccess(&mut self) {
        let is_own = |one: &&AreaSection<'a>| one.permits_files() && one.area.is_all();
        let own: Vec<AreaSection<'a>> = self.sections.iter().filter(is_own).cloned().collect();
        let of_root = own.iter().fold(OverrideLines::default(), OverrideLines::within);
        own.iter().flat_map(OverrideLines::of).for_each(|one| self.keep(one));
        let names = of_root.names();
        if permit_some(&names) {
            let place = of_root.last.map_or(&self.place, |one| &one.place).clone();
            self.site.settings.set("htaccess", Placed::new("true".to_owned(), &place));
            if !is_default(&names) {
                let toml = toml_text::strings(&names);
                self.site.settings.set("htaccess_override", Placed::new(toml, &place));
            }
            self.override_line = of_root.last;
            self.conditions_of_files();
        }
        self.other_overrides(of_root);
        self.ignored_overrides();
        self.files_above();
    }

    /// `AllowOverride` of other folders: `.htaccess` files apply to the whole site or not at all.
    fn other_overrides(&mut self, of_root: OverrideLines<'a>) {
        let others: Vec<AreaSection<'a>> = self
            .sections
            .iter()
            .filter(|one| one.permits_files() && !one.area.is_all())
            .cloned()
            .collect();
        let is_on = permit_some(&of_root.names());
        for section in others {
            let Some(line) = OverrideLines::of(&section).next() else { continue };
            let lines = of_root.within(&section);
            let allows = permit_some(&lines.names());
            if allows && is_on && !self.is_alias(&section.area) {
                self.other_names(&section, of_root, lines);
                continue;
            }
            if !allows && !is_on {
                self.keep(line);
                continue;
            }
            if !allows {
                if self.is_alias(&section.area) {
                    self.keep(line);
                    continue;
                }
                let why = "`.htaccess` files apply in this folder as well, since they do in the \
                           document root: take the right to write there from PHP, or deny the \
                           folder";
                self.report.access_left_out(&line.place, &line.shown(), why);
                continue;
            }
            let folder = match &section.area {
                PathArea::Below(prefix) => self.folder_of(prefix),
                PathArea::Regex(_) => None,
            };
            let Some(folder) = folder else {
                let why = "`.htaccess` files in these folders have no effect here: write their \
                           rules by hand";
                self.report.access_left_out(&line.place, &line.shown(), why);
                continue;
            };
            let Some(mut found) = self.files.below(&folder, ".htaccess") else {
                let why = "its folders are too many, too deep, or not readable: `.htaccess` files \
                           in them have no effect here, so write their rules by hand";
                self.report.access_left_out(&line.place, &line.shown(), why);
                continue;
            };
            let count = found.len();
            found.retain(|file| !self.written_for(file, &folder, &section.area));
            match found.first() {
                None if count > 0 => {
                    let why = "the folders that a `.htaccess` file closes are denied, or run no \
                               PHP; other changes of such files have no effect";
                    self.report.changed(&line.place, &line.shown(), why);
                }
                None => {
                    let why = "there is no `.htaccess` file; one would have no effect";
                    self.report.changed(&line.place, &line.shown(), why);
                }
                Some(first) => {
                    let why = format!(
                        "{first} and {} others have no effect here: serve the folder as the root \
                         of a site of its own with `htaccess = true`, or write their rules by hand",
                        found.len() - 1
                    );
                    self.report.access_left_out(&line.place, &line.shown(), &why);
                }
            }
        }
    }

    /// `AllowOverride` in sections that Apache merges after all `.htaccess` files.
    fn ignored_overrides(&mut self) {
        let sections = self.sections.iter().filter(|one| one.is_folder && !one.permits_files());
        let lines: Vec<&'a Directive> = sections.flat_map(OverrideLines::of).collect();
        for line in lines {
            let why = "Apache ignores it in a section with an expression";
            self.report.changed(&line.place, &line.shown(), why);
        }
    }

    /// Other names in the `AllowOverride` of a folder than in that of the document root.
    fn other_names(
        &mut self,
        section: &AreaSection<'a>,
        of_root: OverrideLines<'a>,
        own: OverrideLines<'a>,
    ) {
        let (here, in_apache) = (Overrides::of(&of_root.names()), Overrides::of(&own.names()));
        OverrideLines::of(section).for_each(|line| self.keep(line));
        let Some(line) = OverrideLines::of(section).next().filter(|_| here != in_apache) else {
            return;
        };
        let folder = match &section.area {
            PathArea::Below(prefix) => self.folder_of(prefix),
            PathArea::Regex(_) => None,
        };
        let Some(files) = self.files_below(&folder.unwrap_or_else(|| self.root.clone())) else {
            let why = "its folders are too many, too deep, or not readable: `.htaccess` files in \
                       them may have all that those of the document root may";
            return self.report.access_left_out(&line.place, &line.shown(), why);
        };
        let find = |by: &Overrides, but: &Overrides| {
            files.iter().find_map(|file| allowed_line(&file.lines, by, but))
        };
        if let Some(more) = find(&here, &in_apache) {
            let why = format!(
                "`{}` at {} has an effect here, since files in the document root may have it: take \
                 it out, or limit `htaccess_override` of the site",
                more.shown(),
                more.place
            );
            return self.report.access_left_out(&line.place, &line.shown(), &why);
        }
        let why = match find(&in_apache, &here) {
            Some(less) => format!(
                "`{}` at {} gets a 500 here, since files in the document root may not have it",
                less.shown(),
                less.place
            ),
            None => "files there may have what those of the document root may".to_owned(),
        };
        self.report.changed(&line.place, &line.shown(), &why);
    }

    /// Writes the rules of a `.htaccess` file in an area, if it does nothing but close its folder
    /// or turn PHP off there.
    fn written_for(&mut self, file: &str, folder: &str, area: &PathArea) -> bool {
        let PathArea::Below(prefix) = area else { return false };
        let Some(inner) = file.strip_prefix(folder) else { return false };
        let inner = inner.trim_end_matches("/.htaccess");
        let below = PathArea::Below(format!("{prefix}{inner}"));
        let folders = self
            .sections
            .iter()
            .filter(|one| one.permits_files())
            .filter(|one| area.covers(&one.area) && one.area.covers(&below));
        let decides = folders.fold(OverrideLines::default(), OverrideLines::within);
        if decides.last.is_some() && !permit_some(&decides.names()) {
            // Apache does not read it.
            return true;
        }
        let Ok(lines) = config_reader::htaccess(self.files, file, self.config) else {
            return false;
        };
        let of_kind = |wanted: HtaccessLine| lines.iter().filter(move |one| kind(one) == wanted);
        let is_ordered = lines.iter().any(|one| one.is("Order"));
        let closing = of_kind(HtaccessLine::Closes).next();
        if of_kind(HtaccessLine::Other).next().is_some() || is_ordered && closing.is_none() {
            return false;
        }
        if let Some(line) = closing {
            self.push("deny", line, toml_text::string(&below.whole_pattern()));
        } else if let Some(line) = of_kind(HtaccessLine::NoPhp).next() {
            self.push("deny_php", line, toml_text::string(&below.whole_pattern()));
        }
        true
    }

    /// `.htaccess` files above the document root and the folders of aliases.
    fn files_above(&mut self) {
        let mut found = Vec::new();
        for one in &self.mapped {
            let area = PathArea::Below(one.prefix.clone());
            let around = self.sections.iter().filter(|section| section.area == area);
            let around: Vec<&AreaSection<'a>> = around.filter(|one| one.permits_files()).collect();
            let mut inner = one.folder.as_str();
            while let Some((folder, _)) = inner.rsplit_once('/') {
                let has = |section: &&AreaSection<'a>| self.is_of_section(folder, section);
                let of_folder = around.iter().copied().filter(has);
                let lines = of_folder.fold(OverrideLines::default(), OverrideLines::within);
                let file = format!("{folder}/.htaccess");
                if let Some(line) = lines.last.filter(|_| permit_some(&lines.names()))
                    && self.files.resolved(&file).is_some()
                {
                    found.push((line, file, one.prefix.clone()));
                }
                inner = folder;
            }
        }
        for (line, file, prefix) in found {
            let why = match prefix.as_str() {
                "" => format!("{file} is above the document root and has no effect here: move it"),
                prefix => format!(
                    "{file} is above the folder of {prefix}/ and has no effect there: write its \
                     rules by hand, or serve the folder as a site of its own"
                ),
            };
            self.report.access_left_out(&line.place, &line.shown(), &why);
        }
    }

    /// Whether a folder is that of a section, or below it.
    fn is_of_section(&self, folder: &str, section: &AreaSection<'a>) -> bool {
        let path = section.section.map(Directive::first).unwrap_or_default();
        let path = self.config.absolute(path);
        path_area::is_in_directory(folder, path.trim_end_matches('/'))
    }
}

/// Whether Apache reads `.htaccess` files with these names in `AllowOverride`.
fn permit_some(names: &[String]) -> bool {
    names.iter().any(|name| !is_nonfatal(name))
}

/// Whether these names are those of a site without `htaccess_override`.
fn is_default(names: &[String]) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case("all"))
        && !names.iter().any(|name| is_nonfatal(name))
}

fn is_nonfatal(name: &str) -> bool {
    name.split_once('=').is_some_and(|(word, _)| word.eq_ignore_ascii_case("nonfatal"))
}

/// The first line that is allowed by some overrides but not by others.
fn allowed_line<'l>(
    lines: &'l [Directive],
    by: &Overrides,
    but: &Overrides,
) -> Option<&'l Directive> {
    lines.iter().find_map(|line| {
        let name = line.name.to_ascii_lowercase();
        let is_allowed = |overrides: &Overrides| match name.strip_prefix('<') {
            Some(section) => overrides.allow_section(section.as_bytes()),
            None => overrides.allow(name.as_bytes()),
        };
        let has_other_options = line.is("Options") && by.options() != but.options();
        match is_allowed(by) && (!is_allowed(but) || has_other_options) {
            true => Some(line),
            false => allowed_line(&line.block, by, but),
        }
    })
}

/// What a line of a `.htaccess` file does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HtaccessLine {
    /// All clients are refused.
    Closes,
    /// Scripts do not run.
    NoPhp,
    /// Nothing by itself.
    Nothing,
    Other,
}

fn kind(line: &Directive) -> HtaccessLine {
    let words = line.arguments.join(" ").to_ascii_lowercase();
    match (line.name.to_ascii_lowercase().as_str(), words.as_str()) {
        ("require", "all denied") | ("deny", "from all") => HtaccessLine::Closes,
        ("php_flag" | "php_admin_flag" | "php_value", "engine off" | "engine 0") => {
            HtaccessLine::NoPhp
        }
        ("order", _) | ("satisfy", "all") => HtaccessLine::Nothing,
        _ => HtaccessLine::Other,
    }
}
