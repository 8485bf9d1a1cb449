//! Finds and reads the files that a configuration includes.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use maitred_text::wildcards::{begins_with_literal_dots, for_glob, has_literal_dots};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistakes::{Fault, quoted};
use crate::on_disk::{MAX_FILE_BYTES, read_text};
use crate::sources::Sources;

/// Most files of a configuration.
const MAX_FILES: usize = 10_000;

/// Most files that include one another, from the first file on.
const MAX_DEPTH: usize = 8;

/// The files of the configuration whose first file is `path` with the content `text`, and faults
/// of patterns that cannot be followed, of files that cannot be read, and of loops.
pub(crate) fn gather(path: &Path, text: String) -> (Sources, Vec<Fault>) {
    let mut gatherer = Gatherer {
        sources: Sources::new(path, text),
        seen: HashSet::from([identity(path)]),
        faults: Vec::new(),
    };
    gatherer.follow(0, &mut vec![identity(path)]);
    (gatherer.sources, gatherer.faults)
}

struct Gatherer {
    sources: Sources,
    /// The identities of the files in `sources`.
    seen: HashSet<PathBuf>,
    faults: Vec<Fault>,
}

/// A pattern of `include` and its position among all files.
struct Pattern {
    text: String,
    at: usize,
}

impl Gatherer {
    /// Adds the files that the file with this index includes. `chain` has the identities of the
    /// files from the first one to this one.
    fn follow(&mut self, index: usize, chain: &mut Vec<PathBuf>) {
        let Some(file) = self.sources.files().get(index) else { return };
        let (patterns, path) = (patterns_of(&file.text, file.start), file.path.clone());
        for pattern in patterns {
            match matches(&pattern.text, &path) {
                Ok(found) => found.into_iter().for_each(|file| self.add(file, &pattern, chain)),
                Err(why) => self.fault(&pattern, &why),
            }
        }
    }

    /// Adds a file that `pattern` matches, and those that it includes.
    fn add(&mut self, path: PathBuf, pattern: &Pattern, chain: &mut Vec<PathBuf>) {
        let shown = path.display();
        let itself = identity(&path);
        if chain.contains(&itself) {
            let why = format!("which leads to {shown} again, a loop; leave one `include` out");
            return self.fault(pattern, &why);
        }
        if self.seen.contains(&itself) {
            return;
        }
        if self.sources.files().len() >= MAX_FILES || chain.len() >= MAX_DEPTH {
            let limit = match chain.len() >= MAX_DEPTH {
                true => format!("deeper than {MAX_DEPTH} files"),
                false => format!("more than {MAX_FILES} files"),
            };
            return self.fault(pattern, &format!("which includes {limit}; include fewer"));
        }
        let left = MAX_FILE_BYTES.saturating_sub(self.sources.end());
        match read_text(&path, left) {
            Ok(text) => {
                let index = self.sources.files().len();
                self.sources.add(path, text);
                self.seen.insert(itself.clone());
                chain.push(itself);
                self.follow(index, chain);
                chain.pop();
            }
            Err(why) => self.fault(pattern, &format!("but {shown} {why}")),
        }
    }

    /// A fault at a pattern; `why` continues "`include` has "a.toml",".
    fn fault(&mut self, pattern: &Pattern, why: &str) {
        let sentence = format!("`include` has \"{}\", {why}", quoted(&pattern.text));
        self.faults.push(Fault::new(pattern.at..pattern.at, sentence));
    }
}

/// The patterns of a file. Values of other types are reported where settings are read.
fn patterns_of(text: &str, start: usize) -> Vec<Pattern> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let Some(value) = table.get_ref().get("include").filter(|_| errors.is_empty()) else {
        return Vec::new();
    };
    let items = match value.get_ref() {
        DeValue::Array(items) => items.as_ref(),
        _ => std::slice::from_ref(value),
    };
    let pattern = |item: &Spanned<DeValue<'_>>| {
        let text = item.get_ref().as_str()?.to_owned();
        Some(Pattern { text, at: start + item.span().start })
    };
    items.iter().filter_map(pattern).collect()
}

/// The files that a pattern in the file `from` matches, sorted. A folder that a wildcard matches is
/// no file.
fn matches(pattern: &str, from: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = from.parent().unwrap_or(Path::new(""));
    if !pattern.contains(['*', '?', '[']) {
        return Ok(vec![folder.join(pattern)]);
    }
    if pattern.contains("**") {
        return Err("which has `**`; expected the names of folders, and `*` within a name".into());
    }
    let pattern = for_glob(pattern);
    let whole = match folder.to_str() {
        Some(folder) if pattern.starts_with('/') || folder.is_empty() => Ok(pattern),
        Some(folder) => Ok(format!("{}/{pattern}", glob::Pattern::escape(folder))),
        None => Err("in a folder whose name is not UTF-8; rename the folder".to_owned()),
    };
    let options =
        glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    let whole = whole?;
    let found = glob::glob_with(&whole, options)
        .map_err(|why| format!("which is no pattern of paths: {}", why.msg))?;
    let mut files = Vec::new();
    for path in found {
        let path = match path {
            Err(why) if !begins_with_literal_dots(Path::new(&whole), why.path()) => continue,
            Err(why) => {
                let (path, why) = (why.path().display(), why.error());
                return Err(format!("but {path} cannot be read: {why}"));
            }
            Ok(path) => path,
        };
        if path.is_dir() || !has_literal_dots(Path::new(&whole), &path) {
            continue;
        }
        files.push(path);
        if files.len() > MAX_FILES {
            return Err(format!("which matches more than {MAX_FILES} files; include fewer"));
        }
    }
    files.sort();
    Ok(files)
}

/// The path by which a file is recognized.
fn identity(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_wildcard_names_no_hidden_file_and_names_in_any_encoding_do_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("maitred.toml");
        for name in ["a.toml", ".b.toml"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::write(folder.path().join(OsStr::from_bytes(b"\xe9.bak")), "").unwrap();
        let found = matches("*.toml", &own).unwrap();
        assert_eq!(found, [folder.path().join("a.toml")]);
        assert_eq!(matches(".*.toml", &own).unwrap(), [folder.path().join(".b.toml")]);
        assert_eq!(matches("[^a]*.toml", &own).unwrap(), [] as [PathBuf; 0]);
        // Also root cannot read a link to itself.
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/c.toml"), "").unwrap();
        std::os::unix::fs::symlink(".loop", folder.path().join(".loop")).unwrap();
        assert_eq!(matches("*/*.toml", &own).unwrap(), [folder.path().join("inner/c.toml")]);
    }
}
