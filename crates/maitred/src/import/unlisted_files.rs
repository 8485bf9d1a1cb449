//! Whether all files that a pattern names can be listed.

use std::fs::{metadata, read_dir};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use glob::Pattern;
use maitred_text::wildcards;

use super::MAX_FILES;

/// The letters of a pattern that is no name.
const WILDCARDS: [char; 3] = ['*', '?', '['];

/// Why not all files that a pattern names are listed, as the end of a sentence; nothing if they
/// are.
pub fn unlisted(pattern: &str) -> Option<String> {
    if pattern.contains('\\') {
        return Some("a backslash in a wildcard is read otherwise here: name the files".to_owned());
    }
    let pattern = &wildcards::for_glob(pattern);
    let mut found = vec![PathBuf::from(if pattern.starts_with('/') { "/" } else { "." })];
    for name in pattern.split('/').filter(|name| !name.is_empty()) {
        let mut inner = Vec::new();
        for folder in &found {
            let added = match name.contains(WILDCARDS) {
                true => add_matching(folder, name, &mut inner),
                false => add_existing(folder.join(name), &mut inner),
            };
            if let Err(why) = added {
                return Some(why);
            }
        }
        if inner.len() > MAX_FILES {
            return Some(format!("it names more than {MAX_FILES} files: name fewer"));
        }
        found = inner;
    }
    None
}

/// Adds a path, if it exists.
fn add_existing(path: PathBuf, found: &mut Vec<PathBuf>) -> Result<(), String> {
    match metadata(&path) {
        Ok(_) => found.push(path),
        Err(why) => none_or_unreadable(&path, &why)?,
    }
    Ok(())
}

/// Adds the paths in a folder whose names match a pattern.
fn add_matching(folder: &Path, name: &str, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let pattern = Pattern::new(name).map_err(|why| format!("`{name}` is no pattern: {why}"))?;
    let list = match read_dir(folder) {
        Ok(list) => list,
        Err(why) => return none_or_unreadable(folder, &why),
    };
    for entry in list {
        let entry = entry.map_err(|why| unreadable(folder, &why))?;
        let own = entry.file_name();
        let is_named = pattern.matches(&own.to_string_lossy());
        if !is_named || !wildcards::has_literal_dots(Path::new(name), Path::new(&own)) {
            continue;
        }
        if own.to_str().is_none() {
            return Err(format!("{} is no name in UTF-8: rename it", entry.path().display()));
        }
        found.push(entry.path());
        if found.len() > MAX_FILES {
            break;
        }
    }
    Ok(())
}

fn none_or_unreadable(path: &Path, why: &Error) -> Result<(), String> {
    match why.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(()),
        _ => Err(unreadable(path, why)),
    }
}

fn unreadable(path: &Path, why: &Error) -> String {
    format!("{} cannot be read: {why}; import again as a user who can read it", path.display())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs::{create_dir_all, write};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_cannot_be_looked_at_is_named_and_what_is_not_there_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| unlisted(&format!("{}/{name}", folder.path().display()));
        create_dir_all(folder.path().join("a/b")).unwrap();
        write(folder.path().join("a/b/x.conf"), "").unwrap();
        // Root reads all folders, but none of a link to itself.
        symlink("loop", folder.path().join("a/loop")).unwrap();
        for name in ["a/b/*.conf", "a/b/x.conf", "a/b/x.conf/*", "no/*.conf", "*/b/?.conf", "a/*"] {
            assert_eq!(of(name), None, "{name}");
        }
        for name in ["a/loop/*.conf", "*/loop/x.conf", "a/loop", "a/l*/*"] {
            let why = of(name).unwrap_or_default();
            assert!(why.contains("/a/loop") && why.contains(" cannot be read: "), "{name} {why}");
        }
        assert!(of("a/[/x").unwrap_or_default().contains("is no pattern"));
        write(folder.path().join("a/b").join(OsStr::from_bytes(b"\xe9.conf")), "").unwrap();
        assert!(of("a/b/*.conf").unwrap_or_default().contains("rename it"));
        assert_eq!(of("a/b/x*"), None);
        assert_eq!(of("a/b/**x.conf"), None);
        assert!(of("a/[^b]*/*").unwrap_or_default().contains("/a/loop"));
        assert!(of(r"a/\**").unwrap_or_default().contains("backslash"));
    }
}
