//! A file that is replaced while settings are tried, and restored.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The mode of a new file: settings are world-readable.
const MODE: u32 = 0o644;

/// The suffix of the backup.
const BEFORE: &str = ".before-tune";

/// The text that marks a file of a trial.
pub(super) const TRIAL: &str = "`maitred tune` is trying this";

/// The last line of a file that tune has written, before a checksum (CRC-32) of the text above.
const SEAL: &[u8] = b" written by `maitred tune`, checksum ";

/// A file with its original and its current contents.
#[derive(Debug)]
pub struct ReplacedFile {
    path: PathBuf,
    before: Option<Vec<u8>>,
    older: Option<Vec<u8>>,
    now: Option<Vec<u8>>,
    has_backup: bool,
    comment: u8,
}

impl ReplacedFile {
    /// Reads the file. Lines that start with `comment` are ignored by the server.
    ///
    /// # Errors
    /// When it exists and cannot be read, or holds the trial of an earlier tuning.
    pub fn of(path: &Path, comment: u8) -> Result<ReplacedFile, String> {
        let before = read(path)?;
        if before.as_deref().is_some_and(is_trial) {
            return Err(left_over(path));
        }
        Ok(ReplacedFile {
            older: read(&backup(path))?,
            now: before.clone(),
            before,
            path: path.to_owned(),
            has_backup: false,
            comment,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its original contents.
    pub fn before(&self) -> Option<&[u8]> {
        self.before.as_deref()
    }

    /// Whether it still holds what was last written.
    pub fn is_untouched(&self) -> bool {
        read(&self.path).is_ok_and(|found| found == self.now)
    }

    /// Whether what was last written is the original contents.
    pub fn is_restored(&self) -> bool {
        self.now == self.before
    }

    /// Replaces the contents atomically. The original contents are in a backup first, so that they
    /// can be restored whatever happens to this process.
    ///
    /// # Errors
    /// A message; the file is unchanged.
    pub fn put(&mut self, text: &[u8]) -> Result<(), String> {
        if !self.has_backup {
            let held = self.before.clone().unwrap_or_default();
            let beside = backup(&self.path);
            write_whole(&beside, &held, &self.path).map_err(|why| unwritable(&beside, &why))?;
            self.has_backup = true;
        }
        let text = sealed(text, self.comment);
        write_whole(&self.path, &text, &self.path).map_err(|why| unwritable(&self.path, &why))?;
        self.now = Some(text);
        Ok(())
    }

    /// Restores the original contents, unless another program has written the file since.
    ///
    /// # Errors
    /// A message that says where the backup is.
    pub fn restore(&mut self) -> Result<(), String> {
        let beside = backup(&self.path);
        if self.now != self.before {
            if !self.is_untouched() {
                return Err(format!(
                    "{} was changed by another program and is left alone; its earlier contents are \
                     in {}",
                    self.path.display(),
                    beside.display(),
                ));
            }
            let done = match &self.before {
                Some(text) => put_back(&self.path, text),
                None => remove(&self.path),
            };
            done.map_err(|why| {
                let why = unwritable(&self.path, &why);
                format!("{why}; its earlier contents are in {}", beside.display())
            })?;
            self.now = self.before.clone();
        }
        if self.has_backup {
            let done = match &self.older {
                Some(text) => write_whole(&beside, text, &self.path),
                None => remove(&beside),
            };
            done.map_err(|why| unwritable(&beside, &why))?;
            self.has_backup = false;
        }
        Ok(())
    }
}

/// An undo of a written setting: both versions exist until it is finished.
#[derive(Debug)]
pub struct Undo {
    path: PathBuf,
    tuned: Option<Vec<u8>>,
    before: Vec<u8>,
}

impl Undo {
    /// Restores the backup.
    ///
    /// # Errors
    /// A message: there is no backup, the file cannot be written, or another program has written it
    /// since.
    pub fn begin(path: &Path) -> Result<Undo, String> {
        let beside = backup(path);
        let Some(before) = read(&beside)? else {
            return Err(format!("there is nothing to undo: {} does not exist", beside.display()));
        };
        let tuned = read(path)?;
        if !tuned.as_deref().is_none_or(|text| is_sealed(text) || text == before) {
            return Err(format!(
                "{0} was changed by another program since tune wrote it, and is left alone; to \
                 restore its earlier contents, delete it or move it away, and replace it with {1} \
                 if that is not empty",
                path.display(),
                beside.display()
            ));
        }
        let undo = Undo { path: path.to_owned(), tuned, before };
        undo.put(undo.is_there().then_some(&undo.before))?;
        Ok(undo)
    }

    /// Whether the file existed originally.
    pub fn is_there(&self) -> bool {
        !self.before.is_empty()
    }

    /// Reverts the undo, because the server rejects the original file.
    ///
    /// # Errors
    /// A message.
    pub fn take_back(self) -> Result<(), String> {
        self.put(self.tuned.as_ref())
    }

    /// Finishes the undo.
    ///
    /// # Errors
    /// A message.
    pub fn finish(self) -> Result<(), String> {
        let beside = backup(&self.path);
        remove(&beside).map_err(|why| unwritable(&beside, &why))
    }

    fn put(&self, text: Option<&Vec<u8>>) -> Result<(), String> {
        let done = match text {
            Some(text) => write_whole(&self.path, text, &self.path),
            None => remove(&self.path),
        };
        done.map_err(|why| unwritable(&self.path, &why))
    }
}

fn is_trial(text: &[u8]) -> bool {
    let sign = TRIAL.as_bytes();
    text.windows(sign.len()).any(|part| part == sign)
}

fn left_over(path: &Path) -> String {
    let shown = path.display();
    if can_undo(path) {
        format!(
            "{shown} still holds a trial of an earlier `maitred tune`, which was killed: run \
             maitred tune --undo, and tune again"
        )
    } else {
        format!(
            "{shown} still holds a trial of an earlier `maitred tune`, and its backup {} does not \
             exist: write your settings into it, and tune again",
            backup(path).display()
        )
    }
}

/// Adds the last line, which proves that no other program has written the text.
fn sealed(text: &[u8], comment: u8) -> Vec<u8> {
    let mut whole = text.to_vec();
    if !whole.ends_with(b"\n") {
        whole.push(b'\n');
    }
    let checksum = crc32fast::hash(&whole);
    whole.push(comment);
    whole.extend_from_slice(SEAL);
    whole.extend_from_slice(format!("{checksum:08x}\n").as_bytes());
    whole
}

fn is_sealed(text: &[u8]) -> bool {
    // The comment sign, the seal, and eight digits with a line end.
    let Some(at) = text.len().checked_sub(1 + SEAL.len() + 9) else {
        return false;
    };
    let (above, seal) = text.split_at(at);
    sealed(above, seal[0]) == text
}

/// Whether there is a backup.
pub fn can_undo(path: &Path) -> bool {
    backup(path).exists()
}

/// The path of the backup. No server reads a file of this name: patterns for files to include do
/// not match its end, and `*` alone does not match its start (glob(3)).
pub fn backup(path: &Path) -> PathBuf {
    beside(path, ".", BEFORE)
}

fn beside(path: &Path, begin: &str, end: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{begin}{name}{end}"))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
        Err(why) => Err(format!("{} cannot be read: {why}", path.display())),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

fn unwritable(path: &Path, why: &io::Error) -> String {
    let hint = match why.kind() {
        ErrorKind::PermissionDenied => "; run the command as root",
        _ => "",
    };
    format!("{} cannot be written: {why}{hint}", path.display())
}

/// Restores the original contents. The backup is renamed if it still has them: a full disk has no
/// space for another copy.
fn put_back(path: &Path, text: &[u8]) -> io::Result<()> {
    let beside = backup(path);
    let is_it = fs::read(&beside).is_ok_and(|found| found == text);
    if is_it && fs::rename(&beside, path).is_ok() {
        return Ok(());
    }
    write_whole(path, text, path)
}

/// Writes a temporary file and renames it, with the owner and the mode of `like` if that exists.
fn write_whole(path: &Path, text: &[u8], like: &Path) -> io::Result<()> {
    let new = beside(path, ".", ".tune-new");
    remove(&new)?;
    let written = write_new(&new, text, like).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The first error is reported.
        let _ = remove(&new);
    }
    written
}

fn write_new(new: &Path, text: &[u8], like: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file: File = options.write(true).create_new(true).mode(0o600).open(new)?;
    let mode = match fs::metadata(like) {
        Ok(of) => {
            fchown(&file, Some(of.uid()), Some(of.gid()))?;
            of.mode() & 0o7777
        }
        Err(_) => MODE,
    };
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_leaves_nothing_and_what_is_kept_can_be_undone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zz.conf");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let mut kept = ReplacedFile::of(&path, b';').unwrap();
        kept.put(b"one").unwrap();
        kept.put(b"two").unwrap();
        assert!(kept.is_untouched() && names() == 2);
        kept.restore().unwrap();
        assert_eq!(names(), 0);
        kept.put(b"three").unwrap();
        let mut again = ReplacedFile::of(&path, b';').unwrap();
        again.put(b"four").unwrap();
        again.restore().unwrap();
        assert_eq!(fs::read(&path).unwrap(), sealed(b"three", b';'));
        assert!(can_undo(&path), "an earlier version survives a trial");
        let undo = Undo::begin(&path).unwrap();
        assert!(!undo.is_there());
        undo.take_back().unwrap();
        assert_eq!(fs::read(&path).unwrap(), sealed(b"three", b';'));
        Undo::begin(&path).unwrap().finish().unwrap();
        assert_eq!(names(), 0);
        assert!(Undo::begin(&path).unwrap_err().contains("nothing to undo"));
    }

    #[test]
    fn what_another_hand_wrote_is_seen_and_modes_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("maitred.toml");
        fs::write(&path, "mine").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut kept = ReplacedFile::of(&path, b';').unwrap();
        kept.put(b"trial").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(kept.is_untouched());
        fs::write(&path, "theirs").unwrap();
        assert!(!kept.is_untouched());
        let beside = backup(&path).display().to_string();
        for why in [kept.restore().unwrap_err(), Undo::begin(&path).unwrap_err()] {
            assert!(why.contains("another program") && why.contains(&beside), "{why}");
            assert_eq!(fs::read(&path).unwrap(), b"theirs");
        }
        assert_eq!(fs::read(backup(&path)).unwrap(), b"mine");
    }

    #[test]
    fn a_trial_that_was_left_behind_is_no_setting_and_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("maitred.toml");
        fs::write(&path, "mine").unwrap();
        let trial = format!("# {TRIAL}\nx = 1\n");
        let mut kept = ReplacedFile::of(&path, b'#').unwrap();
        kept.put(trial.as_bytes()).unwrap();
        drop(kept);
        let why = ReplacedFile::of(&path, b'#').unwrap_err();
        assert!(why.contains("run maitred tune --undo"), "{why}");
        let undo = Undo::begin(&path).unwrap();
        assert!(undo.is_there());
        undo.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert!(ReplacedFile::of(&path, b'#').is_ok() && !can_undo(&path));
        fs::write(&path, &trial).unwrap();
        let why = ReplacedFile::of(&path, b'#').unwrap_err();
        assert!(why.contains("write your settings into it"), "{why}");
    }

    #[test]
    fn a_file_that_has_no_room_for_another_copy_is_put_back_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("maitred.toml");
        fs::write(&path, "mine").unwrap();
        let mut kept = ReplacedFile::of(&path, b'#').unwrap();
        kept.put(b"trial").unwrap();
        // Nothing can be written beside it, even by root.
        fs::create_dir_all(beside(&path, ".", ".tune-new").join("taken")).unwrap();
        assert!(kept.put(b"another").is_err());
        kept.restore().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert!(!can_undo(&path));
    }

    #[test]
    fn a_place_that_takes_no_file_is_said_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = ReplacedFile::of(&folder.path().join("none/zz.conf"), b';').unwrap();
        let why = kept.put(b"x").unwrap_err();
        assert!(why.contains("none/.zz.conf.before-tune cannot be written"), "{why}");
        assert!(kept.restore().is_ok());
    }
}
