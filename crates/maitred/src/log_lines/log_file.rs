//! A log file that is read while it is written to and rotated.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::line_filter::MAX_LINE_BYTES;

/// Time between two looks for further lines.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How much of a file that is there already is looked through, in bytes.
const LOOK_BACK_BYTES: u64 = 16 << 20;

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 * 1024;

/// The file that has this path, from some position on.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    /// The line that is not complete.
    line: Vec<u8>,
    /// The first line may have begun before.
    is_cut: bool,
}

impl LogFile {
    /// Opens a file, and looks at its end.
    ///
    /// # Errors
    /// When it cannot be opened, or is no regular file.
    pub fn open(path: &Path) -> io::Result<LogFile> {
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_fifo() || !kind.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(LOOK_BACK_BYTES);
        file.seek(SeekFrom::Start(start))?;
        Ok(LogFile { path: path.to_owned(), file, line: Vec::new(), is_cut: start > 0 })
    }

    /// Passes on all lines that are complete now. After a rotation those of the former file come
    /// first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.read_to_end(take)?;
        let there = match std::fs::metadata(&self.path) {
            // Between the two steps of a rotation.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            there => there?,
        };
        let own = self.file.metadata()?;
        if (there.dev(), there.ino()) != (own.dev(), own.ino()) {
            // The last lines of the former one may have come after it was read.
            self.read_to_end(take)?;
            self.file = File::open(&self.path)?;
            self.line.clear();
            return self.read_to_end(take);
        }
        if own.len() < self.file.stream_position()? {
            // It was truncated (`copytruncate`).
            self.file.rewind()?;
            self.line.clear();
            return self.read_to_end(take);
        }
        Ok(())
    }

    fn read_to_end(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut bytes = vec![0; READ_BYTES];
        loop {
            let count = self.file.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            for byte in &bytes[..count] {
                if *byte != b'\n' && self.line.len() < MAX_LINE_BYTES {
                    self.line.push(*byte);
                    continue;
                }
                if !std::mem::take(&mut self.is_cut) {
                    take(&self.line);
                }
                self.line.clear();
                if *byte != b'\n' {
                    self.line.push(*byte);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines(file: &mut LogFile) -> Vec<String> {
        let mut all = Vec::new();
        file.read(&mut |line| all.push(String::from_utf8_lossy(line).into_owned())).unwrap();
        all
    }

    #[test]
    fn no_line_is_lost_or_shown_twice_by_a_rotation_or_a_truncation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("error.log");
        std::fs::write(&path, "one\ntw").unwrap();
        let mut log = LogFile::open(&path).unwrap();
        assert_eq!(lines(&mut log), ["one"]);
        let mut writer = File::options().append(true).open(&path).unwrap();
        writer.write_all(b"o\nthree\n").unwrap();
        std::fs::rename(&path, folder.path().join("error.log.1")).unwrap();
        assert_eq!(lines(&mut log), ["two", "three"]);
        writer.write_all(b"four\n").unwrap();
        std::fs::write(&path, "five\n").unwrap();
        assert_eq!(lines(&mut log), ["four", "five"]);
        std::fs::write(&path, "6\n").unwrap();
        assert_eq!(lines(&mut log), ["6"]);
        assert!(LogFile::open(folder.path()).is_err());
    }

    #[test]
    fn a_long_file_is_read_from_its_end_and_a_long_line_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("error.log");
        let file = File::create(&path).unwrap();
        file.set_len(LOOK_BACK_BYTES).unwrap();
        let mut writer = File::options().append(true).open(&path).unwrap();
        writer.write_all(b"\nthe last\n").unwrap();
        let mut log = LogFile::open(&path).unwrap();
        let all = lines(&mut log);
        assert_eq!(all.last().map(String::as_str), Some("the last"));
        assert!(all.iter().all(|line| line.len() <= MAX_LINE_BYTES));
    }
}
