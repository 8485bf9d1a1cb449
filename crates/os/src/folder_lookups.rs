//! Lookups of names in folders of tenants, who can hold the lock of such a folder without end. A
//! process of its own makes them, and notes the path of each in memory that it shares with the
//! process that waits for it, which can name the path of one that takes too long.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::shared;

/// Bytes before the path: the number of the note, and the length of the path.
const HEAD_BYTES: usize = 16;

/// Longest path that is noted, in bytes (`PATH_MAX`).
const PATH_BYTES: usize = 4096;

/// The notes of this process.
static RECORDER: OnceLock<Recorder> = OnceLock::new();

#[derive(Debug)]
struct Recorder {
    notes: LookupNotes,
    refused: RefusedLookups,
    /// The first lookup that was refused.
    met: OnceLock<PathBuf>,
    count: AtomicU64,
}

/// The shared memory of the notes.
#[derive(Debug)]
pub struct LookupNotes(File);

/// The last note.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LookupNote {
    /// Its number.
    pub count: u64,
    /// The path of the current lookup; none: there is none, or none that is noted.
    pub path: Option<PathBuf>,
}

/// Lookups that are not made.
#[derive(Debug, Clone, Default)]
pub struct RefusedLookups {
    /// Their paths.
    pub paths: Vec<PathBuf>,
    /// Why not, as the end of a sentence.
    pub why: String,
}

impl LookupNotes {
    /// Memory without a note.
    ///
    /// # Errors
    /// When the system is out of descriptors or memory.
    pub fn new() -> io::Result<LookupNotes> {
        let notes = shared::writable_file("lookups")?;
        notes.write_all_at(&[0; HEAD_BYTES], 0)?;
        Ok(LookupNotes(notes))
    }

    /// A second handle of the same memory.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub fn try_clone(&self) -> io::Result<LookupNotes> {
        self.0.try_clone().map(LookupNotes)
    }

    /// The last note.
    ///
    /// # Errors
    /// When the memory cannot be read.
    pub fn last(&self) -> io::Result<LookupNote> {
        let mut head = [0; HEAD_BYTES];
        self.0.read_exact_at(&mut head, 0)?;
        let [count, length] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&head[at..at + 8]);
            u64::from_ne_bytes(word)
        });
        let mut path = vec![0; usize::try_from(length).unwrap_or(0).min(PATH_BYTES)];
        self.0.read_exact_at(&mut path, HEAD_BYTES as u64)?;
        let path = (!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path)));
        Ok(LookupNote { count, path })
    }

    fn write(&self, count: u64, path: &[u8]) -> io::Result<()> {
        let path = &path[..path.len().min(PATH_BYTES)];
        let words = [count, path.len() as u64].map(u64::to_ne_bytes);
        self.0.write_all_at(&[words.concat().as_slice(), path].concat(), 0)
    }
}

impl AsFd for LookupNotes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Recorder {
    fn note(&self, path: &[u8]) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        // Without it, a late lookup is one of an unknown path.
        let _ = self.notes.write(count, path);
    }
}

/// Has this process note its lookups from now on, and refuse these.
pub fn record(notes: LookupNotes, refused: RefusedLookups) {
    let (met, count) = (OnceLock::new(), AtomicU64::new(0));
    let _ = RECORDER.set(Recorder { notes, refused, met, count });
}

/// The path of the first lookup that this process has refused; none: it has made all.
pub fn first_refused() -> Option<&'static Path> {
    RECORDER.get()?.met.get().map(PathBuf::as_path)
}

/// Makes a lookup of `path` in a folder that others may lock.
///
/// # Errors
/// Those of `look`, and `TimedOut` for a lookup that this process refuses.
pub fn look_up<T>(path: &Path, look: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(recorder) = RECORDER.get() else {
        return look();
    };
    let RefusedLookups { paths, why } = &recorder.refused;
    if paths.iter().any(|refused| refused == path) {
        recorder.met.get_or_init(|| path.to_path_buf());
        return Err(io::Error::new(io::ErrorKind::TimedOut, why.clone()));
    }
    recorder.note(path.as_os_str().as_bytes());
    let found = look();
    recorder.note(b"");
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_notes_its_lookups_and_refuses_those_that_it_is_not_to_make() {
        let notes = LookupNotes::new().unwrap();
        assert_eq!(notes.last().unwrap(), LookupNote::default());
        assert_eq!(look_up(Path::new("/unnoted"), || Ok(1)).unwrap(), 1);
        let late = PathBuf::from("/late");
        let refused = RefusedLookups { paths: vec![late.clone()], why: "is late".to_owned() };
        record(notes.try_clone().unwrap(), refused);
        let seen = look_up(Path::new("/srv/ä"), || notes.last()).unwrap();
        assert_eq!(seen, LookupNote { count: 1, path: Some(PathBuf::from("/srv/ä")) });
        assert_eq!(notes.last().unwrap(), LookupNote { count: 2, path: None });
        assert_eq!(first_refused(), None);
        let refused = look_up(&late, || Ok(())).unwrap_err();
        assert_eq!(first_refused(), Some(late.as_path()));
        assert_eq!(
            (refused.kind(), refused.to_string().as_str()),
            (io::ErrorKind::TimedOut, "is late")
        );
        let long = "x".repeat(2 * PATH_BYTES);
        let seen = look_up(Path::new(&long), || notes.last()).unwrap();
        assert_eq!(seen.path.unwrap().as_os_str().len(), PATH_BYTES);
    }
}
