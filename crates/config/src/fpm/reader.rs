//! Reads php-fpm's files line by line, with their includes (`fpm_conf_load_ini_file`).

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use maitred_text::wildcards::{begins_with_literal_dots, for_glob, has_literal_dots};

use super::draft::{Draft, FilePosition, Globals, PoolDraft};
use super::entries::{self, FpmSetting, boolean, with_pool};
use super::grammar::{Statement, read_line};
use super::log::{Log, Refused, reason};
use super::paths;
use crate::mistakes::quoted;
use crate::suggest::nearest;

/// Deepest include, and so the number of files open at a time.
const MAX_DEPTH: usize = 5;

/// Most bytes of all files together; a file included twice counts twice. Ten thousand pools need
/// less.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Most pools of a configuration.
const MAX_POOLS: usize = 10_000;

/// The state of reading.
pub(super) struct Reader<'a> {
    pub(super) draft: Draft,
    pub(super) log: &'a mut Log,
    /// The base of relative includes, if the command line has one.
    pub(super) prefix: Option<&'a str>,
    /// The value of `${NAME}`.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    depth: usize,
    bytes: usize,
    /// Index of the section's pool; none: `[global]`.
    pool: Option<usize>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        log: &'a mut Log,
        prefix: Option<&'a str>,
        variable: &'a dyn Fn(&str) -> Option<String>,
    ) -> Reader<'a> {
        Reader {
            draft: Draft { globals: Globals::new(), pools: Vec::new() },
            log,
            prefix,
            variable,
            depth: 0,
            bytes: 0,
            pool: None,
        }
    }

    /// Reads a file and its includes.
    pub(super) fn read_file(&mut self, file: &str) -> Result<(), Refused> {
        let bytes = self.bytes_of(file)?;
        if self.depth >= MAX_DEPTH {
            return Err(self
                .log
                .error(format!("failed to include more than {MAX_DEPTH} files recursively")));
        }
        self.depth += 1;
        let mut place = FilePosition { file: Rc::from(file), line: 0 };
        for line in bytes.split(|byte| *byte == b'\n') {
            place.line += 1;
            if !line.is_empty() {
                self.read_line(line, &place)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn bytes_of(&mut self, file: &str) -> Result<Vec<u8>, Refused> {
        let mut bytes = Vec::new();
        // One byte more than is left, to detect larger files.
        let left = MAX_BYTES - self.bytes;
        let read = File::open(file)
            .and_then(|opened| opened.take(left as u64 + 1).read_to_end(&mut bytes));
        if let Err(error) = read {
            return Err(self
                .log
                .error(format!("failed to open configuration file '{file}': {}", reason(&error))));
        }
        if bytes.len() > left {
            return Err(self.log.error(format!(
                "the configuration files are larger than {MAX_BYTES} bytes together, at '{file}'"
            )));
        }
        self.bytes += bytes.len();
        Ok(bytes)
    }

    fn read_line(&mut self, line: &[u8], place: &FilePosition) -> Result<(), Refused> {
        let text = String::from_utf8_lossy(line);
        let (statements, unexpected) = read_line(&text, self.variable);
        let mut include = None;
        for statement in statements {
            if matches!(text, std::borrow::Cow::Owned(_)) && has_replacement(&statement) {
                return Err(self.log.error(format!(
                    "[{place}] this setting is not UTF-8; save the file as UTF-8 text"
                )));
            }
            match statement {
                Statement::Section(name) => self.section(&name, place)?,
                Statement::Entry { name, value } if name == "include" && value.is_some() => {
                    if include.is_some() {
                        return Err(self
                            .log
                            .error(format!("[{place}] two includes at the same time !")));
                    }
                    include = value;
                }
                Statement::Entry { name, value } => self.entry(&name, value, place)?,
                Statement::Item { name, key, value } => self.item(&name, &key, value, place)?,
            }
        }
        if let Some(found) = unexpected {
            return Err(self.log.error(format!(
                "[{place}] syntax error, unexpected {found}; put a value with special characters \
                 in double quotes"
            )));
        }
        include.map_or(Ok(()), |pattern| self.include(&pattern, place))
    }

    fn include(&mut self, pattern: &str, place: &FilePosition) -> Result<(), Refused> {
        let pattern = paths::full(pattern, &[self.prefix], paths::PREFIX);
        let options =
            glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
        let unusable = |why: String| {
            let (file, line) = (&place.file, place.line);
            format!("Unable to globalize '{pattern}' ({why}) from {file} at line {line}.")
        };
        if let Some(folder) = missing_folder(&pattern) {
            let error = format!("{}; create the folder {folder}", unusable("ret=2".to_owned()));
            return Err(self.log.error(error));
        }
        let ours = for_glob(&pattern);
        let found = match glob::glob_with(&ours, options) {
            Ok(found) => found,
            Err(error) => return Err(self.log.error(unusable(error.to_string()))),
        };
        let mut files = Vec::new();
        for path in found {
            let path = match path {
                Ok(path) => path,
                Err(error) if !begins_with_literal_dots(Path::new(&ours), error.path()) => {
                    continue;
                }
                Err(error) => {
                    let (path, why) = (error.path().display(), reason(error.error()));
                    return Err(self.log.error(unusable(format!("{path}: {why}"))));
                }
            };
            if !has_literal_dots(Path::new(&ours), &path) {
                continue;
            }
            let Some(path) = path.to_str().map(str::to_owned) else {
                return Err(self.log.error(format!(
                    "[{place}] the name of {} is not UTF-8; rename it",
                    path.display()
                )));
            };
            files.push(path);
        }
        if files.is_empty() {
            self.log.warning(format!(
                "Nothing matches the include pattern '{pattern}' from {} at line {}.",
                place.file, place.line
            ));
        }
        for file in files {
            if paths::is_directory(&file) {
                continue;
            }
            if let Err(Refused) = self.read_file(&file) {
                return Err(self.log.error(format!(
                    "Unable to include {file} from {} at line {}",
                    place.file, place.line
                )));
            }
        }
        Ok(())
    }

    fn section(&mut self, name: &str, place: &FilePosition) -> Result<(), Refused> {
        if name.eq_ignore_ascii_case("global") {
            self.pool = None;
            return Ok(());
        }
        let pools = &mut self.draft.pools;
        let known = pools.iter().position(|pool| pool.name.eq_ignore_ascii_case(name));
        if known.is_none() {
            if let Some(problem) = super::settle::name_problem(name) {
                return Err(self.log.error(format!("[{place}] {problem}")));
            }
            if pools.len() >= MAX_POOLS {
                return Err(self.log.error(format!(
                    "[{place}] there are more than {MAX_POOLS} pools; leave some out"
                )));
            }
            pools.push(PoolDraft::new(name, place.clone()));
        }
        self.pool = Some(known.unwrap_or(self.draft.pools.len() - 1));
        Ok(())
    }

    fn entry(
        &mut self,
        name: &str,
        value: Option<String>,
        place: &FilePosition,
    ) -> Result<(), Refused> {
        let Some(value) = value else {
            return Err(self
                .log
                .error(format!("[{place}] value is NULL for a ZEND_INI_PARSER_ENTRY")));
        };
        let set = match self.pool.and_then(|pool| self.draft.pools.get_mut(pool)) {
            Some(pool) => {
                let own = pool.name.clone();
                set(entries::POOL, pool, name, &value, Some(&own)).map(|name| {
                    if let Some(name) = name {
                        pool.places.insert(name, place.clone());
                    }
                    name.is_some()
                })
            }
            None => {
                let globals = &mut self.draft.globals;
                set(entries::GLOBAL, globals, name, &value, None).map(|name| {
                    if let Some(name) = name {
                        globals.places.insert(name, place.clone());
                    }
                    name.is_some()
                })
            }
        };
        match set {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(self.log.error(format!("[{place}] {}", unknown(name, self.pool.is_some()))))
            }
            Err((name, why)) => Err(self
                .log
                .error(format!("[{place}] unable to parse value for entry '{name}': {why}"))),
        }
    }

    fn item(
        &mut self,
        name: &str,
        key: &str,
        value: String,
        place: &FilePosition,
    ) -> Result<(), Refused> {
        let error = if name == "access.suppress_path" {
            if !key.is_empty() {
                Some("Keys provided to field 'access.suppress_path' are ignored".to_owned())
            } else if !value.starts_with('/') {
                Some("Values provided to field 'access.suppress_path' must begin with '/'".into())
            } else {
                None
            }
        } else if key.is_empty() {
            Some(format!("You must provide a key for field '{name}'"))
        } else {
            None
        };
        if let Some(error) = error {
            return Err(self.log.error(format!("[{place}] {error}")));
        }
        let Some(pool) = self.pool.and_then(|pool| self.draft.pools.get_mut(pool)) else {
            let error = format!("[{place}] Array are not allowed in the global section");
            return Err(self.log.error(error));
        };
        let own = pool.name.clone();
        let text = |value: String| with_pool(&value, Some(&own));
        let switch =
            |value: String| boolean(&value).map(|on| if on { "1" } else { "0" }.to_owned());
        let added = match name {
            "env" if value.is_empty() => {
                return Err(self.log.error(format!("[{place}] empty value")));
            }
            "env" => text(value).map(|value| pool.env.push((key.to_owned(), value))),
            "php_value" => text(value).map(|value| pool.php_values.push((key.to_owned(), value))),
            "php_flag" => switch(value).map(|value| pool.php_values.push((key.to_owned(), value))),
            "php_admin_value" => {
                text(value).map(|value| pool.php_admin_values.push((key.to_owned(), value)))
            }
            "php_admin_flag" => {
                switch(value).map(|value| pool.php_admin_values.push((key.to_owned(), value)))
            }
            "access.suppress_path" => {
                text(value).map(|value| pool.access_suppress_paths.push(value))
            }
            _ => {
                let error = format!("[{place}] unknown directive '{name}'");
                return Err(self.log.error(error));
            }
        };
        added.map_err(|why| {
            self.log.error(format!("[{place}] error while parsing '{name}[{key}]' : {why}"))
        })
    }
}

/// Sets a setting and returns its name in the table; none if it is unknown.
fn set<T>(
    entries: &[FpmSetting<T>],
    target: &mut T,
    name: &str,
    value: &str,
    pool: Option<&str>,
) -> Result<Option<&'static str>, (&'static str, &'static str)> {
    let entry = entries.iter().find(|entry| entry.name.eq_ignore_ascii_case(name));
    match entry {
        None => Ok(None),
        Some(entry) => match entry.set(target, value, pool) {
            Ok(()) => Ok(Some(entry.name)),
            Err(why) => Err((entry.name, why)),
        },
    }
}

/// php-fpm's message, with a hint: the section of the setting, or a suggestion.
fn unknown(name: &str, in_pool: bool) -> String {
    let sentence = format!("unknown entry '{name}'");
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    if in_pool && entries::GLOBAL.iter().any(|entry| is(entry.name)) {
        return format!("{sentence}; it belongs in the section [global]");
    }
    if !in_pool && entries::POOL.iter().any(|entry| is(entry.name)) {
        return format!("{sentence}; it belongs in the section of a pool");
    }
    let nearest = if in_pool {
        nearest(name, entries::POOL.iter().map(|entry| entry.name))
    } else {
        nearest(name, entries::GLOBAL.iter().map(|entry| entry.name))
    };
    match nearest {
        Some(nearest) => format!("{sentence}; did you mean '{}'?", quoted(nearest)),
        None => sentence,
    }
}

/// The missing directory of a pattern with wildcards, if it is missing: glob(3) with GLOB_ERR fails
/// there.
fn missing_folder(pattern: &str) -> Option<&str> {
    let wildcard = pattern.find(['*', '?', '['])?;
    let folder = &pattern[..pattern[..wildcard].rfind('/')?];
    (!folder.is_empty() && !paths::is_directory(folder)).then_some(folder)
}

fn has_replacement(statement: &Statement) -> bool {
    let wrong = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
    match statement {
        Statement::Section(name) => wrong(name),
        Statement::Entry { name, value } => wrong(name) || value.as_deref().is_some_and(wrong),
        Statement::Item { name, key, value } => wrong(name) || wrong(key) || wrong(value),
    }
}
