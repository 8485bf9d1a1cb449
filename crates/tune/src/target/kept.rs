//! A file that is replaced while settings are tried, and put back.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The mode of a file that there was not before: everybody may read settings.
const MODE: u32 = 0o644;

/// What follows a file's name: the version before the one that tune wrote.
const BEFORE: &str = ".before-tune";

/// A file, what it held, and what was written into it.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    before: Option<Vec<u8>>,
    older: Option<Vec<u8>>,
    now: Option<Vec<u8>>,
    has_backup: bool,
}

impl Kept {
    /// Reads what there is.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn of(path: &Path) -> Result<Kept, String> {
        let before = read(path)?;
        Ok(Kept {
            older: read(&backup(path))?,
            now: before.clone(),
            before,
            path: path.to_owned(),
            has_backup: false,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it held before anything was tried.
    pub fn before(&self) -> Option<&[u8]> {
        self.before.as_deref()
    }

    /// Whether it holds what was last written into it.
    pub fn is_untouched(&self) -> bool {
        read(&self.path).is_ok_and(|found| found == self.now)
    }

    /// Puts a text in its place, all of it or nothing. What it held before lies beside it from now on, so
    /// that it can be put back whatever becomes of this process.
    ///
    /// # Errors
    /// One sentence; the file is as it was.
    pub fn put(&mut self, text: &[u8]) -> Result<(), String> {
        if !self.has_backup {
            let held = self.before.clone().unwrap_or_default();
            let beside = backup(&self.path);
            write_whole(&beside, &held, &self.path).map_err(|why| unwritable(&beside, &why))?;
            self.has_backup = true;
        }
        write_whole(&self.path, text, &self.path).map_err(|why| unwritable(&self.path, &why))?;
        self.now = Some(text.to_vec());
        Ok(())
    }

    /// Puts back what it held.
    ///
    /// # Errors
    /// One sentence that says where the earlier version lies.
    pub fn restore(&mut self) -> Result<(), String> {
        let beside = backup(&self.path);
        if self.now != self.before {
            let done = match &self.before {
                Some(text) => write_whole(&self.path, text, &self.path),
                None => remove(&self.path),
            };
            done.map_err(|why| {
                let why = unwritable(&self.path, &why);
                format!("{why}; what it held lies in {}", beside.display())
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

/// Puts back the version before the one that tune wrote. Whether the file is there now.
///
/// # Errors
/// One sentence.
pub fn undo(path: &Path) -> Result<bool, String> {
    let beside = backup(path);
    let Some(text) = read(&beside)? else {
        return Err(format!(
            "there is nothing to undo: {} is not there",
            beside.display()
        ));
    };
    let done = match text.is_empty() {
        true => remove(path),
        false => write_whole(path, &text, path),
    };
    done.map_err(|why| unwritable(path, &why))?;
    remove(&beside).map_err(|why| unwritable(&beside, &why))?;
    Ok(!text.is_empty())
}

/// Whether there is something to undo.
pub fn can_undo(path: &Path) -> bool {
    backup(path).exists()
}

/// Where the version before lies. Its name ends so that no server reads it.
pub fn backup(path: &Path) -> PathBuf {
    beside(path, "", BEFORE)
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

/// Writes beside and renames, with the owner and the mode of `like` if that is there.
fn write_whole(path: &Path, text: &[u8], like: &Path) -> io::Result<()> {
    let new = beside(path, ".", ".tune-new");
    remove(&new)?;
    let written = write_new(&new, text, like).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // The first error is the one to tell.
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
        let mut kept = Kept::of(&path).unwrap();
        kept.put(b"one").unwrap();
        kept.put(b"two").unwrap();
        assert!(kept.is_untouched() && names() == 2);
        kept.restore().unwrap();
        assert_eq!(names(), 0);
        kept.put(b"three").unwrap();
        let mut again = Kept::of(&path).unwrap();
        again.put(b"four").unwrap();
        again.restore().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert!(can_undo(&path), "an earlier version survives a trial");
        assert_eq!(undo(&path), Ok(false));
        assert_eq!(names(), 0);
        assert!(undo(&path).unwrap_err().contains("nothing to undo"));
    }

    #[test]
    fn what_another_hand_wrote_is_seen_and_modes_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("maitred.toml");
        fs::write(&path, "mine").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut kept = Kept::of(&path).unwrap();
        kept.put(b"trial").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(kept.is_untouched());
        fs::write(&path, "theirs").unwrap();
        assert!(!kept.is_untouched());
        assert_eq!(undo(&path), Ok(true));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn a_place_that_takes_no_file_is_said_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Kept::of(&folder.path().join("none/zz.conf")).unwrap();
        let why = kept.put(b"x").unwrap_err();
        assert!(
            why.contains("none/zz.conf.before-tune cannot be written"),
            "{why}"
        );
        assert!(kept.restore().is_ok());
    }
}
