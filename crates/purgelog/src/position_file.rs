//! Where this node is in the log, beside the pages on disk to which that applies.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::log_entry::Position;

/// Longest contents, in bytes.
const MAX_BYTES: u64 = 1024;

/// The file of the position.
#[derive(Debug)]
pub struct PositionFile {
    path: PathBuf,
    written: Option<Position>,
}

impl PositionFile {
    /// The file in the folder of cached pages.
    pub fn new(folder: &Path) -> PositionFile {
        PositionFile { path: folder.join("purge-log"), written: None }
    }

    /// The position, if there is one.
    pub fn read(&self) -> Option<Position> {
        let is_short = fs::metadata(&self.path).ok()?.len() <= MAX_BYTES;
        let text = if is_short { fs::read_to_string(&self.path).ok()? } else { return None };
        text.parse().ok()
    }

    /// Replaces the position, if it has changed.
    ///
    /// # Errors
    /// When it cannot be written; the one before stays.
    pub fn write(&mut self, position: &Position) -> io::Result<()> {
        if self.written.as_ref() == Some(position) {
            return Ok(());
        }
        let new = self.path.with_extension("new");
        let mut file = fs::File::create(&new)?;
        writeln!(file, "{position}")?;
        fs::rename(&new, &self.path)?;
        self.written = Some(position.clone());
        Ok(())
    }
}
