//! The files of a configuration as one text: the file itself, and after it those that it includes.

use std::path::{Path, PathBuf};

use crate::mistakes::{Fault, MAX_MISTAKES_LISTED, Mistake, Mistakes, position_of};

/// One file of the configuration.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path, as messages name it.
    pub(crate) path: PathBuf,
    /// The base of relative paths in it: its directory, absolute if the system provides that.
    pub(crate) folder: PathBuf,
    /// Its content.
    pub(crate) text: String,
    /// The position of its first byte among the bytes of all files.
    pub(crate) start: usize,
}

/// All files of a configuration, at least one. Each has its own range of positions, so that a
/// position tells the file as well.
#[derive(Debug)]
pub(crate) struct Sources(Vec<Source>);

impl Sources {
    /// A configuration whose first file has this text.
    pub(crate) fn new(path: &Path, text: String) -> Sources {
        let folder = folder_of(path);
        Sources(vec![Source { path: path.to_path_buf(), folder, text, start: 0 }])
    }

    /// Adds an included file.
    pub(crate) fn add(&mut self, path: PathBuf, text: String) {
        let (folder, start) = (folder_of(&path), self.end() + 1);
        self.0.push(Source { path, folder, text, start });
    }

    /// The files, the first one first.
    pub(crate) fn files(&self) -> &[Source] {
        &self.0
    }

    /// The position after the last byte of all files.
    pub(crate) fn end(&self) -> usize {
        self.0.last().map_or(0, |last| last.start + last.text.len())
    }

    /// The file with this position. Positions beyond all files (of variables) are the first file's.
    pub(crate) fn at(&self, position: usize) -> &Source {
        let index = match position > self.end() {
            true => 0,
            false => self.0.partition_point(|file| file.start <= position).saturating_sub(1),
        };
        &self.0[index]
    }

    /// A position as messages name it: `sites/a.toml:3:5`.
    pub(crate) fn place(&self, position: usize) -> String {
        let file = self.at(position);
        let place = position_of(&file.text, position.saturating_sub(file.start));
        format!("{}:{}:{}", file.path.display(), place.line, place.column)
    }

    /// The mistake of a fault, with its file and position.
    pub(crate) fn locate(&self, fault: Fault) -> Mistake {
        let file = self.at(fault.span.start);
        let start = fault.span.start.saturating_sub(file.start);
        Fault::new(start..start, fault.sentence).located(&file.text, &file.path)
    }

    /// The mistakes of faults, in the order of the files and of their positions, each once.
    pub(crate) fn mistakes(&self, mut faults: Vec<Fault>) -> Mistakes {
        faults.sort_by_key(|fault| fault.span.start);
        let mut kept: Vec<Fault> = Vec::new();
        for fault in faults {
            let same = kept.iter().rev().take_while(|one| one.span.start == fault.span.start);
            if !same.into_iter().any(|one| one.sentence == fault.sentence) {
                kept.push(fault);
            }
        }
        let unlisted = kept.len().saturating_sub(MAX_MISTAKES_LISTED);
        kept.truncate(MAX_MISTAKES_LISTED);
        Mistakes::new(kept.into_iter().map(|fault| self.locate(fault)).collect(), unlisted)
    }
}

/// The base of relative paths in `file`, absolute if the system provides it.
pub(crate) fn folder_of(file: &Path) -> PathBuf {
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_files() -> Sources {
        let mut sources = Sources::new(Path::new("/etc/m.toml"), "a\nb".to_owned());
        sources.add(PathBuf::from("/etc/d/x.toml"), "c\ndd".to_owned());
        sources
    }

    #[test]
    fn a_position_names_its_file_line_and_column() {
        let sources = two_files();
        assert_eq!(sources.place(2), "/etc/m.toml:2:1");
        assert_eq!(sources.place(3), "/etc/m.toml:2:2", "the end of the first file");
        assert_eq!(sources.place(4), "/etc/d/x.toml:1:1");
        assert_eq!(sources.place(7), "/etc/d/x.toml:2:2");
        assert_eq!(sources.at(5).folder, Path::new("/etc/d"));
        assert_eq!(sources.at(99).folder, Path::new("/etc"), "a variable");
    }

    #[test]
    fn a_fault_that_several_pools_inherit_is_listed_once() {
        let faults = vec![Fault::new(5..5, "no"), Fault::new(0..0, "x"), Fault::new(5..6, "no")];
        let listed = two_files().mistakes(faults).to_string();
        assert_eq!(listed, "/etc/m.toml:1:1: x\n/etc/d/x.toml:1:2: no");
    }

    #[test]
    fn the_hundred_and_first_mistake_is_counted_not_listed() {
        let sources = Sources::new(Path::new("f"), "x".repeat(200));
        let mistakes = sources.mistakes((0..103).map(|at| Fault::new(at..at, "no")).collect());
        assert_eq!(mistakes.iter().count(), 100);
        assert!(mistakes.to_string().ends_with("f:1:100: no\nand 3 more"));
    }
}
