//! The folder of compiled scripts (`opcache.file_cache`) during its trial.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use maitred_os::users;

use crate::processes::{self, ProcessOwner};

/// Where root makes it: a folder in which no other user can put anything. A service may have a
/// folder of its own for temporary files.
const OF_ROOT: &str = "/var/cache";

/// PHP executes what is in it, so no other user may read or write there.
const MODE: u32 = 0o700;

/// How often its removal is tried: a worker of the trial may still store a script.
const REMOVALS: usize = 3;

/// The start of its name; the process id of the tuning and the pool's name follow.
const NAME: &str = "maitred-tune-";

fn parent() -> PathBuf {
    let of_root = Path::new(OF_ROOT);
    if users::is_root() && of_root.is_dir() { of_root.to_owned() } else { std::env::temp_dir() }
}

/// The folder for trials in a pool. There is one tuning at a time.
pub fn path(section: &str) -> PathBuf {
    parent().join(format!("{NAME}{}-{section}", std::process::id()))
}

/// The process id in the name of a folder for trials in a pool.
fn process_of(name: &str, section: &str) -> Option<i32> {
    name.strip_prefix(NAME)?.strip_suffix(section)?.strip_suffix('-')?.parse().ok()
}

/// Removes the folders of tunings that were killed.
fn remove_left(section: &str) {
    for entry in fs::read_dir(parent()).into_iter().flatten().flatten() {
        let process = process_of(&entry.file_name().to_string_lossy(), section);
        if process.is_some_and(|process| processes::began(process).is_none()) {
            // Another user's folder stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A folder that exists until drop.
#[derive(Debug)]
pub struct TrialFolder(PathBuf);

impl TrialFolder {
    /// Makes it for the pool's user.
    ///
    /// # Errors
    /// A message with its path.
    pub fn create(section: &str, owner: Option<ProcessOwner>) -> Result<TrialFolder, String> {
        remove_left(section);
        let path = path(section);
        let failed = |why: io::Error| format!("{} cannot be created: {why}", path.display());
        DirBuilder::new().mode(MODE).create(&path).map_err(failed)?;
        let folder = TrialFolder(path.clone());
        if let Some(owner) = owner.filter(|_| users::is_root()) {
            chown(&path, Some(owner.uid), Some(owner.gid)).map_err(failed)?;
        }
        Ok(folder)
    }

    /// Whether PHP has stored anything in it.
    pub fn is_filled(&self) -> bool {
        fs::read_dir(&self.0).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Its path, for people.
    pub fn shown(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for TrialFolder {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            if fs::remove_dir_all(&self.0).is_ok() || !self.0.exists() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_users_alone_and_is_removed_with_its_contents() {
        use std::os::unix::fs::MetadataExt;
        let folder = TrialFolder::create("unit-test", None).unwrap();
        let path = folder.0.clone();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert!(!folder.is_filled());
        assert!(TrialFolder::create("unit-test", None).is_err(), "another's is not used");
        assert!(path.is_dir(), "and is not removed");
        fs::create_dir(path.join("scripts")).unwrap();
        assert!(folder.is_filled());
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn folders_of_killed_tunings_are_removed() {
        assert_eq!(process_of("maitred-tune-17-www", "www"), Some(17));
        assert_eq!(process_of("maitred-tune-17-www", "shop"), None);
        assert_eq!(process_of("maitred-tune-x-www", "www"), None);
        // No process has this number (PID_MAX_LIMIT in linux/threads.h).
        let left = parent().join(format!("{NAME}{}-left", i32::MAX));
        fs::create_dir_all(left.join("scripts")).unwrap();
        remove_left("left");
        assert!(!left.exists());
    }
}
