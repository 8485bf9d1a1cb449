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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_entry::EntryId;

    fn position(number: u64) -> Position {
        Position { era: "e-1".to_owned(), id: EntryId { millis: 5, number } }
    }

    #[test]
    fn a_position_is_replaced_and_one_that_is_the_same_is_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("purge-log");
        let mut file = PositionFile::new(folder.path());
        assert_eq!(file.read(), None);
        file.write(&position(1)).unwrap();
        assert_eq!(file.read(), Some(position(1)));
        fs::remove_file(&path).unwrap();
        file.write(&position(1)).unwrap();
        assert_eq!(file.read(), None);
        file.write(&position(2)).unwrap();
        assert_eq!(PositionFile::new(folder.path()).read(), Some(position(2)));
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(file.write(&position(3)).is_err());
    }

    #[test]
    fn what_is_too_long_or_garbage_is_no_position() {
        let folder = tempfile::tempdir().unwrap();
        let file = PositionFile::new(folder.path());
        let read = |text: &str| {
            fs::write(folder.path().join("purge-log"), text).unwrap();
            file.read()
        };
        let padded = |length: usize| format!("{:<length$}", "e-1 5-2");
        assert_eq!(read(&padded(1024)), Some(position(2)));
        assert_eq!(read(&padded(1025)), None);
        assert_eq!(read("garbage"), None);
    }
}
