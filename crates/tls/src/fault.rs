//! What is wrong with a certificate or a key, and where.

use std::fmt;
use std::path::{Path, PathBuf};

/// One sentence about a file. It never repeats what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, if it is about one.
    pub line: Option<usize>,
    /// What is wrong, what was expected, and what to do.
    pub sentence: String,
}

impl Fault {
    pub(crate) fn at(file: &Path, line: usize, sentence: impl Into<String>) -> Fault {
        Fault {
            file: file.to_path_buf(),
            line: Some(line),
            sentence: sentence.into(),
        }
    }

    /// One about a file as a whole.
    pub fn of(file: &Path, sentence: impl Into<String>) -> Fault {
        Fault {
            file: file.to_path_buf(),
            line: None,
            sentence: sentence.into(),
        }
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
