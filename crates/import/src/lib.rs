//! Configurations of other servers as a `maitred.toml`, with a report of what was kept, changed and
//! left out.
//!
//! Nothing here reads files itself: a [`FileReader`] does. [`nginx::import`] parses nginx's
//! configuration, [`apache::import`] Apache's, [`unit::import`] Unit's, [`caddy::import`] Caddy's,
//! [`fpm`] php-fpm's pools, and [`file_draft`] is what they become.

mod active_types;
pub mod apache;
pub mod caddy;
mod escapes;
pub mod file_draft;
pub mod fpm;
mod fpm_entries;
mod fpm_php;
mod fpm_reader;
#[cfg(test)]
mod fpm_tests;
mod hidden_names;
mod listen_addresses;
pub mod nginx;
#[cfg(test)]
mod only_file;
mod parameter_settings;
mod pool_names;
mod prefix_complement;
mod regex_shapes;
mod regexes;
pub mod report;
pub mod rule_examples;
pub mod served;
pub mod source_directive;
mod toml_text;
pub mod unit;
pub mod user_files;
mod values;
mod written_site;

/// As [`FileReader::unlisted`], for what has wildcards: a file that cannot be read has an error.
fn unlisted(files: &dyn FileReader, pattern: &str) -> Option<String> {
    pattern.contains(['*', '?', '[']).then(|| files.unlisted(pattern))?
}

/// The files of the configuration to import.
pub trait FileReader {
    /// The text of a file.
    ///
    /// # Errors
    /// Why it cannot be read, as the end of a sentence.
    fn read(&self, path: &str) -> Result<String, String>;

    /// The files that a pattern matches, sorted folder by folder. A wildcard matches no dot at the
    /// start of a name (glob(3)). A path without `*`, `?` and `[` is itself.
    fn glob(&self, pattern: &str) -> Vec<String>;

    /// All that is in a folder, hidden names included, sorted.
    fn entries(&self, folder: &str) -> Vec<String> {
        let of = |names: &str| self.glob(&format!("{}/{names}", folder.trim_end_matches('/')));
        let mut found = [of("*"), of(".*")].concat();
        found.sort_unstable();
        found
    }

    /// Why not all files that a pattern matches are known, as the end of a sentence with what to
    /// do; nothing if they are, as they are by default.
    fn unlisted(&self, _pattern: &str) -> Option<String> {
        None
    }

    /// The files of a name in a folder and below it, sorted; nothing if not all of it
    /// can be looked at. By default there are none.
    fn below(&self, _folder: &str, _name: &str) -> Option<Vec<String>> {
        Some(Vec::new())
    }

    /// Whether there is a symbolic link below a folder; nothing if not all of it can be looked at.
    /// By default there is none.
    fn has_links(&self, _folder: &str) -> Option<bool> {
        Some(false)
    }

    /// A variable of the environment of the import, if it is set. By default, none is.
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    /// The path with all links resolved, if it exists.
    fn resolved(&self, path: &str) -> Option<String>;
}

/// An imported configuration.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The `maitred.toml`.
    pub toml: String,
    /// What was kept, changed and left out.
    pub report: report::ImportReport,
    /// Files with users, to write beside it.
    pub user_files: Vec<user_files::UserFile>,
}
