//! Sections of `.htaccess` files for names that Apache's configuration defines: maitred, which
//! reads these files at run time, defines none.

use super::config_reader;
use super::host_import::HostImport;
use crate::source_directive::Directive;

impl HostImport<'_, '_> {
    /// The `<IfDefine>` of the `.htaccess` files below the document root, which `line` lets apply.
    pub(super) fn defined_sections(&mut self, line: &Directive) {
        if self.config.defines.is_empty() {
            return;
        }
        let Some(found) = self.files.below(&self.root, ".htaccess") else {
            let why = "its folders are too many, too deep, or not readable: an `<IfDefine>` of a \
                       `.htaccess` file in them applies as if its name was not defined";
            return self.report.access_left_out(&line.place, &line.shown(), why);
        };
        for file in found {
            for section in config_reader::defined_sections(self.files, &file, self.config) {
                let why = "`.htaccess` files apply as if the name was not defined: write the lines \
                           that apply in Apache without the section";
                self.report.access_left_out(&section.place, &section.shown(), why);
            }
        }
    }
}
