//! Whether the files have changed that decide whether PHP starts: its program, its libraries, its
//! configuration and its extensions.

use std::collections::hash_map::DefaultHasher;
use std::fs::Metadata;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::processes::plan::PoolPlan;
use crate::system::path_trust;

/// Folders and files of PHP on the usual systems, beside those that a pool names. The package
/// manager changes the cache of the linker with each library.
const SYSTEM_FILES: [&str; 4] =
    ["/etc/ld.so.cache", "/etc/php.ini", "/etc/php.d", "/usr/local/etc/php"];

/// The folder with a folder for each version of PHP, and in that one for each way to run it.
const DEBIAN_FOLDER: &str = "/etc/php";

/// Most entries of a folder that are compared.
const MAX_ENTRIES: usize = 512;

/// A fingerprint of the files: their inodes, sizes and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhpFiles(u64);

impl PhpFiles {
    /// The files of the whole system.
    pub fn of_system() -> PhpFiles {
        let mut seen = DefaultHasher::new();
        for path in SYSTEM_FILES {
            see_all(Path::new(path), &|_| true, &mut seen);
        }
        for branch in entries(Path::new(DEBIAN_FOLDER)) {
            for kind in entries(&branch) {
                see_all(&kind, &|_| true, &mut seen);
                see_all(&kind.join("conf.d"), &|_| true, &mut seen);
            }
        }
        PhpFiles(seen.finish())
    }

    /// These files, and those that a pool names. Files that its user controls are left out: a look
    /// at them could wait for ever (`docs/security.md`).
    pub fn with_pool(self, plan: &PoolPlan) -> PhpFiles {
        let mut seen = DefaultHasher::new();
        self.0.hash(&mut seen);
        let settings = &plan.settings;
        let user = settings.identity.as_ref();
        let is_seen =
            |path: &Path| user.is_none_or(|user| path_trust::leads_where_root_says(path, user));
        let configured = [
            Some(&plan.program),
            settings.php_ini.as_ref(),
            settings.php_ini_scan_dir.as_ref(),
            settings.worker_script.as_ref(),
            settings.snapshot.as_ref().map(|snapshot| &snapshot.script),
        ];
        for path in configured.into_iter().flatten() {
            see_all(path, &is_seen, &mut seen);
        }
        // An extension with a path may be anywhere.
        for path in settings.extensions.iter().filter(|name| name.starts_with('/')) {
            see(Path::new(path), &is_seen, &mut seen);
        }
        PhpFiles(seen.finish())
    }
}

/// A file, or a folder with its entries.
fn see_all(path: &Path, is_seen: &dyn Fn(&Path) -> bool, seen: &mut DefaultHasher) {
    let is_folder = see(path, is_seen, seen).is_some_and(|found| found.is_dir());
    for entry in is_folder.then(|| entries(path)).into_iter().flatten() {
        see(&entry, is_seen, seen);
    }
}

fn see(path: &Path, is_seen: &dyn Fn(&Path) -> bool, seen: &mut DefaultHasher) -> Option<Metadata> {
    let found = is_seen(path).then(|| std::fs::metadata(path).ok()).flatten();
    let times = found.as_ref().map(|found| (found.mtime(), found.mtime_nsec(), found.ctime()));
    let own = found.as_ref().map(|found| (found.dev(), found.ino(), found.size()));
    (path, times, own).hash(seen);
    found
}

/// The entries of a folder, sorted; none if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> =
        read.take(MAX_ENTRIES).flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(folder: &Path) -> u64 {
        let mut seen = DefaultHasher::new();
        see_all(folder, &|_| true, &mut seen);
        seen.finish()
    }

    #[test]
    fn a_file_that_appears_changes_or_goes_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("20-intl.ini");
        let empty = fingerprint(folder.path());
        assert_eq!(empty, fingerprint(folder.path()));
        std::fs::write(&file, "extension=intl").unwrap();
        let there = fingerprint(folder.path());
        assert_ne!(there, empty);
        std::fs::write(&file, "extension=intl.so").unwrap();
        assert_ne!(fingerprint(folder.path()), there);
        std::fs::remove_file(&file).unwrap();
        assert_ne!(fingerprint(folder.path()), there);
        assert_ne!(fingerprint(&folder.path().join("gone")), fingerprint(folder.path()));
    }

    #[test]
    fn the_files_of_the_system_stay_the_same_between_two_checks() {
        assert_eq!(PhpFiles::of_system(), PhpFiles::of_system());
    }
}
