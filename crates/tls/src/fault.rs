//! Faults of certificates and keys, with their positions.

use std::fmt;
use std::path::{Path, PathBuf};

/// A fault of a file. It never repeats the contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, if it has one.
    pub line: Option<usize>,
    /// The finding, the expected value and the remedy.
    pub sentence: String,
}

impl Fault {
    pub(crate) fn at(file: &Path, line: usize, sentence: impl Into<String>) -> Fault {
        Fault { file: file.to_path_buf(), line: Some(line), sentence: sentence.into() }
    }

    /// A fault of a whole file.
    pub fn of(file: &Path, sentence: impl Into<String>) -> Fault {
        Fault { file: file.to_path_buf(), line: None, sentence: sentence.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(out, "{line}:")?;
        }
        write!(out, " {}", self.sentence)
    }
}

impl std::error::Error for Fault {}
