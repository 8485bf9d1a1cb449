//! Names in `.htaccess` files that Apache's configuration defines: maitred, which reads these files
//! at run time, defines none.

use super::config_reader;
use super::host_import::HostImport;

/// What to do about a section.
const SECTION: &str = "`.htaccess` files apply as if the name was not defined: write the lines \
                       that apply in Apache without the section";

impl HostImport<'_, '_> {
    /// The `<IfDefine>` and `${NAME}` of the `.htaccess` files below the document root.
    pub(super) fn defined_names(&mut self) {
        let Some(line) = self.override_line else { return };
        let Some(found) = self.files.below(&self.root, ".htaccess") else {
            if self.config.defines.is_empty() {
                return;
            }
            let why = "its folders are too many, too deep, or not readable: an `<IfDefine>` of a \
                       `.htaccess` file in them applies as if its name was not defined";
            return self.report.access_left_out(&line.place, &line.shown(), why);
        };
        for file in found {
            for one in config_reader::lines_with_names(self.files, &file, self.config) {
                let why = match one.is("<IfDefine") {
                    true => SECTION,
                    false => "`${…}` has no value in `.htaccess` files here: write the value",
                };
                self.report.access_left_out(&one.place, &one.shown(), why);
            }
        }
    }
}
