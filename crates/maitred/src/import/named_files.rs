//! Files of one name in a folder and below it.

use std::collections::VecDeque;
use std::fs::{self, DirEntry};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Most entries of folders that are looked at.
const MAX_ENTRIES: usize = 100_000;

/// Deepest folder below the first.
const MAX_DEPTH: usize = 20;

/// The files of a name in a folder and below it, sorted. Nothing if a folder cannot be read, or if
/// there is more to look at than the limits: folders that links lead to are folders as well, since
/// URLs lead there, and two links to their own folder make paths without end.
pub fn below(folder: &Path, name: &str) -> Option<Vec<String>> {
    let mut waiting: VecDeque<(PathBuf, usize)> = VecDeque::from([(folder.to_owned(), 0)]);
    let (mut found, mut entries) = (Vec::new(), 0);
    while let Some((folder, depth)) = waiting.pop_front() {
        for entry in list(&folder)?.flatten() {
            entries += 1;
            if entries > MAX_ENTRIES {
                return None;
            }
            let path = entry.path();
            if entry.file_name() == name {
                found.push(path.to_str()?.to_owned());
                continue;
            }
            let kind = entry.file_type().ok()?;
            let is_folder = kind.is_dir() || kind.is_symlink() && path.is_dir();
            match is_folder && depth == MAX_DEPTH {
                true => return None,
                false if is_folder => waiting.push_back((path, depth + 1)),
                false => {}
            }
        }
    }
    found.sort();
    Some(found)
}

/// Whether there is a link in a folder or below it. Nothing if a folder cannot be read, or if there
/// is more to look at than the limits.
pub fn has_links(folder: &Path) -> Option<bool> {
    let mut waiting = vec![(folder.to_owned(), 0)];
    let mut entries = 0;
    while let Some((folder, depth)) = waiting.pop() {
        for entry in list(&folder)? {
            entries += 1;
            let entry = entry.ok()?;
            let kind = entry.file_type().ok()?;
            if kind.is_symlink() {
                return Some(true);
            }
            if entries > MAX_ENTRIES || kind.is_dir() && depth == MAX_DEPTH {
                return None;
            }
            if kind.is_dir() {
                waiting.push((entry.path(), depth + 1));
            }
        }
    }
    Some(false)
}

/// The entries of a folder; none if it does not exist. `None`: it cannot be read.
fn list(folder: &Path) -> Option<impl Iterator<Item = io::Result<DirEntry>>> {
    let list = match fs::read_dir(folder) {
        Ok(list) => Some(list),
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(_) => return None,
    };
    Some(list.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_behind_links_are_found_and_links_without_end_are_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a[b]/c");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join(".htaccess"), "").unwrap();
        symlink(folder.path().join("a[b]"), folder.path().join("link")).unwrap();
        let found = below(folder.path(), ".htaccess").unwrap();
        let of = |path: &str| folder.path().join(path).display().to_string();
        assert_eq!(found, [of("a[b]/c/.htaccess"), of("link/c/.htaccess")]);
        symlink(".", inner.join("one")).unwrap();
        symlink(".", inner.join("two")).unwrap();
        assert_eq!(below(folder.path(), ".htaccess"), None);
    }

    #[test]
    fn a_link_is_found_in_any_folder_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("x"), "").unwrap();
        assert_eq!(has_links(folder.path()), Some(false));
        assert_eq!(has_links(&folder.path().join("none")), Some(false));
        symlink("../..", inner.join("up")).unwrap();
        assert_eq!(has_links(folder.path()), Some(true));
        assert_eq!(has_links(&inner.join("up/a")), Some(true));
        let deep = folder.path().join("d/".repeat(MAX_DEPTH + 2));
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(has_links(&folder.path().join("d")), None);
    }
}
