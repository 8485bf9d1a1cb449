//! A log file to which whole lines are appended: a line that a full disk has cut off is ended
//! before the next.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// A log file, open for appending.
#[derive(Debug)]
pub struct LineFile {
    file: File,
    /// The last line in it has no end.
    is_cut_off: AtomicBool,
}

/// Lines that were not written, or only in part.
#[derive(Debug)]
pub struct LostLines {
    /// Their number.
    pub count: u64,
    /// Why.
    pub why: io::Error,
}

impl From<File> for LineFile {
    fn from(file: File) -> LineFile {
        LineFile { file, is_cut_off: AtomicBool::new(false) }
    }
}

impl LineFile {
    /// Appends lines, each with its end.
    ///
    /// # Errors
    /// When some were not written: how many, and why.
    pub fn write(&self, lines: &[u8]) -> Result<(), LostLines> {
        if self.is_cut_off.load(Ordering::Relaxed) {
            let (_, outcome) = write_all(&self.file, b"\n");
            outcome.map_err(|why| LostLines { count: count(lines), why })?;
            self.is_cut_off.store(false, Ordering::Relaxed);
        }
        let (written, outcome) = write_all(&self.file, lines);
        outcome.map_err(|why| {
            let (before, lost) = lines.split_at(written);
            if before.last().is_some_and(|byte| *byte != b'\n') {
                self.is_cut_off.store(true, Ordering::Relaxed);
            }
            LostLines { count: count(lost), why }
        })
    }
}

fn count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// The number of bytes that were written, and why no more.
fn write_all(mut to: impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match to.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}
