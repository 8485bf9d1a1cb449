//! Reads php-fpm's files line by line, with their includes (`fpm_conf.c`).

use std::cell::RefCell;

use maitred_config::fpm::{Statement, read_line};

use crate::fpm_entries::{FpmEntry, FpmSection};
use crate::pool_names::pool_name;
use crate::report::{ImportReport, SourceLine};
use crate::{FileReader, unlisted};

/// Deepest include.
const MAX_DEPTH: usize = 10;

/// Most pools.
const MAX_POOLS: usize = 1000;

/// The prefix of the php-fpm of distributions, below which relative includes are.
const PREFIX: &str = "/usr";

/// What is read.
pub(crate) struct FpmReader<'r> {
    files: &'r dyn FileReader,
    report: &'r mut ImportReport,
    /// The base of relative includes.
    base: String,
    /// The number of the php-fpm that is read.
    server: usize,
    /// The index of the section's pool; none of `[global]`.
    in_pool: Option<usize>,
    depth: usize,
    /// The entries of `[global]`.
    pub global: Vec<FpmEntry>,
    /// The pools.
    pub pools: Vec<FpmSection>,
}

impl<'r> FpmReader<'r> {
    /// A reader of these files.
    pub fn new(files: &'r dyn FileReader, report: &'r mut ImportReport) -> FpmReader<'r> {
        FpmReader {
            files,
            report,
            base: String::new(),
            server: 0,
            in_pool: None,
            depth: 0,
            global: Vec::new(),
            pools: Vec::new(),
        }
    }

    /// Reads the configuration of one php-fpm.
    pub fn read_root(&mut self, server: usize, root: &str) {
        (self.server, self.in_pool) = (server, None);
        self.base = prefix_of(root);
        self.file(root);
    }

    fn file(&mut self, file: &str) {
        let start = SourceLine { file: file.into(), line: 1, word: 0 };
        let text = match self.files.read(file) {
            Ok(text) => text,
            Err(why) => {
                let why = format!("it cannot be read: {why}");
                return self.report.left_out(&start, "php-fpm's configuration", &why);
            }
        };
        for (index, line) in text.lines().enumerate() {
            let place = SourceLine { file: start.file.clone(), line: index + 1, word: 0 };
            self.line(line, &place);
        }
    }

    fn line(&mut self, line: &str, place: &SourceLine) {
        let unset = RefCell::new(Vec::new());
        let (statements, unexpected) = read_line(line, &|name| {
            let value = self.files.variable(name);
            if value.is_none() {
                unset.borrow_mut().push(name.to_owned());
            }
            value
        });
        for name in unset.into_inner() {
            self.unset(&name, line.trim(), place);
        }
        if let Some(found) = unexpected {
            self.report.left_out(place, line.trim(), &format!("unexpected {found}"));
        }
        for statement in statements {
            match statement {
                Statement::Section(name) => self.in_pool = self.enter(&name, place),
                Statement::Entry { name, value } if name == "include" => {
                    self.include(&value.unwrap_or_default(), place);
                }
                Statement::Entry { name, value } => {
                    let (name, value) = (name.to_ascii_lowercase(), value.unwrap_or_default());
                    self.add(FpmEntry { name, key: None, value, place: place.clone() });
                }
                Statement::Item { name, key, value } => {
                    let key = Some(key);
                    self.add(FpmEntry { name, key, value, place: place.clone() });
                }
            }
        }
    }

    fn unset(&mut self, variable: &str, line: &str, place: &SourceLine) {
        let why = format!(
            "it is empty, as {variable} is not set in the environment of the import: set it there \
             as it is in that of php-fpm"
        );
        self.report.access_left_out(place, line, &why);
    }

    fn include(&mut self, pattern: &str, place: &SourceLine) {
        let shown = format!("include = {pattern}");
        if self.depth >= MAX_DEPTH {
            let why = format!("files are included more than {MAX_DEPTH} deep");
            return self.report.access_left_out(place, &shown, &why);
        }
        let pattern = match pattern.starts_with('/') {
            true => pattern.to_owned(),
            false => format!("{}/{pattern}", self.base),
        };
        let mut all = self.files.glob(&pattern);
        // glob(3) sorts whole paths.
        all.sort_unstable();
        match unlisted(self.files, &pattern) {
            Some(why) => self.report.access_left_out(place, &shown, &why),
            None if all.is_empty() => {
                let why = format!("no file matches {pattern}");
                self.report.left_out(place, &shown, &why);
            }
            None => self.report.kept(place, &shown),
        }
        self.depth += 1;
        for further in all {
            self.file(&further);
        }
        self.depth -= 1;
    }

    /// The index of a section, whose name is in any case; none of `[global]`.
    fn enter(&mut self, name: &str, place: &SourceLine) -> Option<usize> {
        if name.eq_ignore_ascii_case("global") {
            return None;
        }
        let is_same =
            |pool: &FpmSection| pool.name.eq_ignore_ascii_case(name) && pool.server == self.server;
        let known = self.pools.iter().position(is_same);
        if known.is_some() || self.pools.len() >= MAX_POOLS {
            return known;
        }
        let taken: Vec<&str> = self.pools.iter().map(|pool| pool.name_here.as_str()).collect();
        let name_here = pool_name(name, &taken);
        let (name, place, server) = (name.to_owned(), place.clone(), self.server);
        self.pools.push(FpmSection { name, name_here, place, server, entries: Vec::new() });
        Some(self.pools.len() - 1)
    }

    fn add(&mut self, mut entry: FpmEntry) {
        let Some(index) = self.in_pool else { return self.global.push(entry) };
        entry.value = entry.value.replace("$pool", &self.pools[index].name);
        if let Some(variable) = entry.variable().filter(|_| !entry.is_passed()) {
            let value = self.files.variable(variable);
            if value.is_none() {
                self.unset(variable, &entry.shown(), &entry.place);
            }
            entry.value = value.unwrap_or_default();
        }
        self.pools[index].entries.push(entry);
    }
}

/// The prefix that a php-fpm is built with: its configuration is in `etc` there, but for that of
/// distributions.
fn prefix_of(root: &str) -> String {
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    let prefix = folder.strip_suffix("/etc").filter(|prefix| !prefix.is_empty());
    prefix.unwrap_or(PREFIX).to_owned()
}
