//! The `.htaccess` files of a site.

use std::rc::Rc;

use super::config_reader;
use super::host_import::HostImport;
use super::path_area::PathArea;
use crate::source_directive::Directive;

/// A `.htaccess` file.
pub(super) struct HtaccessFile {
    /// Its folder below the document root, without a slash at its end.
    pub path: String,
    /// Its lines.
    pub lines: Vec<Directive>,
}

impl HtaccessFile {
    /// Whether it has such a line, also in a section.
    pub fn has(&self, is_such: impl Fn(&Directive) -> bool) -> bool {
        all_lines(&self.lines).into_iter().any(is_such)
    }

    /// Whether it is in a folder or above it.
    pub fn is_around(&self, folder: &str) -> bool {
        PathArea::Below(self.path.clone()).has(folder)
    }
}

/// The files of a site; none if not all can be read.
pub(super) type FilesOfSite = Option<Rc<[HtaccessFile]>>;

/// The lines of a file, those in sections as well.
pub(super) fn all_lines(file: &[Directive]) -> Vec<&Directive> {
    file.iter().flat_map(|one| [one].into_iter().chain(all_lines(&one.block))).collect()
}

impl HostImport<'_, '_> {
    /// The `.htaccess` files of the site but those with syntax errors.
    pub(super) fn files_of_site(&self) -> FilesOfSite {
        let read = || self.files_below(&self.root).map(Rc::from);
        self.htaccess_files.get_or_init(read).clone()
    }

    /// Files of users that `.htaccess` files name and that the front does not read.
    pub(super) fn users_of_files(&mut self) {
        let Some(files) = self.override_line.and_then(|_| self.files_of_site()) else { return };
        let root = PathArea::Below(self.root.clone());
        let is_outside = |line: &&Directive| {
            let is_file = line.is("AuthUserFile") || line.is("AuthGroupFile");
            is_file && !root.has(&self.config.absolute(line.first()))
        };
        let lines = files.iter().flat_map(|file| all_lines(&file.lines)).filter(is_outside);
        for line in lines {
            let why = "requests with a password get a 500, since the file is outside of the \
                       document root: write its folder into `htaccess_users` of the site";
            self.report.left_out(&line.place, &line.shown(), why);
        }
    }

    /// The same of a folder; none if not all files can be read.
    pub(super) fn files_below(&self, folder: &str) -> Option<Vec<HtaccessFile>> {
        let names = self.files.below(folder, ".htaccess")?;
        if names.iter().any(|name| self.files.read(name).is_err()) {
            return None;
        }
        let file = |name: &String| {
            let lines = config_reader::htaccess(self.files, name, self.config).ok()?;
            let path = name.strip_prefix(folder)?.strip_suffix("/.htaccess")?;
            Some(HtaccessFile { path: path.to_owned(), lines })
        };
        Some(names.iter().filter_map(file).collect())
    }
}
