//! Where this node is in the log, beside the pages on disk to which that applies.

use std::io;
use std::path::{Path, PathBuf};

use maitred_os::own_files;

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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The position, if there is one.
    pub fn read(&self) -> Option<Position> {
        let bytes = own_files::read(&self.path, MAX_BYTES).ok()??;
        String::from_utf8(bytes).ok()?.parse().ok()
    }

    /// Replaces the position, if it has changed.
    ///
    /// # Errors
    /// When it cannot be written; the one before stays.
    pub fn write(&mut self, position: &Position) -> io::Result<()> {
        if self.written.as_ref() == Some(position) {
            return Ok(());
        }
        own_files::replace(&self.path, format!("{position}\n").as_bytes())?;
        self.written = Some(position.clone());
        Ok(())
    }
}

/// Logs that positions cannot be written, once until they can. The ones before are good until then:
/// they are only older.
#[derive(Debug, Default)]
pub struct WriteFailures {
    has_failed: bool,
}

impl WriteFailures {
    /// The file was written, or not. Returns whether that is logged.
    pub fn note(&mut self, path: &Path, written: io::Result<()>) -> bool {
        let Err(error) = written else {
            self.has_failed = false;
            return false;
        };
        let is_new = !std::mem::replace(&mut self.has_failed, true);
        if is_new {
            tracing::warn!(
                "{} cannot be written: {error}; as long as that is so, a restart may cost this \
                 node its cached pages",
                path.display()
            );
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::log_entry::EntryId;

    fn position(number: u64) -> Position {
        Position { era: "e-1".to_owned(), id: EntryId { millis: 5, number } }
    }

    #[test]
    fn a_failure_is_logged_once_until_the_file_can_be_written() {
        let (mut failures, path) = (WriteFailures::default(), Path::new("/cache/purge-log"));
        let full = || Err(io::Error::from_raw_os_error(28));
        assert!(failures.note(path, full()) && !failures.note(path, full()));
        assert!(!failures.note(path, Ok(())) && failures.note(path, full()));
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
