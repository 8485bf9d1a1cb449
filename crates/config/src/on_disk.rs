//! Whether a path exists, and the text of a file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use maitred_os::folder_lookups::look_up;
use maitred_os::walk::{self, Rule};

/// The largest configuration that is read, in bytes, with all its files. Ten thousand sites need
/// two million.
pub const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;

/// The text of a file of at most `most` bytes.
///
/// # Errors
/// Why it cannot be read, as the end of a sentence that starts with the path.
pub(crate) fn read_text(path: &Path, most: usize) -> Result<String, String> {
    let cannot = |error: io::Error| format!("cannot be read: {error}");
    // A pipe would block the reader until a writer opens it.
    let metadata = look_up(path, || fs::metadata(path)).map_err(cannot)?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "a directory" } else { "no regular file" };
        return Err(format!("is {kind}; name a file"));
    }
    let mut bytes = Vec::new();
    // One byte more than the limit, which only larger files have.
    let limit = most as u64 + 1;
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(cannot)?;
    if bytes.len() > most {
        return Err(format!(
            "makes the configuration larger than {MAX_FILE_BYTES} bytes; divide it"
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count();
        format!("has a byte in line {line} that is not UTF-8; save the file as UTF-8 text")
    })
}

/// Why `path` is no usable directory, as the end of a sentence that starts with it.
pub fn directory_problem(path: &Path) -> Option<String> {
    match look_up(path, || fs::metadata(path)) {
        Ok(metadata) if !metadata.is_dir() => {
            Some("is not a directory; name the directory".to_owned())
        }
        Ok(_) if path.to_str().is_none() => Some("has a name that is not UTF-8".to_owned()),
        Ok(_) => None,
        Err(error) => Some(lookup_problem(&error, "directory")),
    }
}

/// Why `path` is no usable file, as the end of a sentence that starts with it.
pub fn file_problem(path: &Path) -> Option<String> {
    match look_up(path, || fs::metadata(path)) {
        Ok(metadata) if metadata.is_dir() => Some("is a directory; name the file".to_owned()),
        Ok(_) => None,
        Err(error) => Some(lookup_problem(&error, "file")),
    }
}

/// The path of a folder without symbolic links. What does not exist stays in it by its name, and so
/// does a link that is not followed, as a tenant's to a folder that is another user's.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    let reached = look_up(path, || Ok(walk::to(path, Rule::of_reader())?));
    let found = reached.ok().filter(|reached| reached.entry.is_some());
    let found = found.map(|reached| reached.real_name());
    let real = found.or_else(|| Some(real_path(path.parent()?).join(path.file_name()?)));
    real.filter(|real| real.to_str().is_some()).unwrap_or_else(|| path.to_path_buf())
}

fn lookup_problem(error: &io::Error, what: &str) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        format!("does not exist; create the {what} or correct the path")
    } else {
        format!("cannot be accessed: {error}")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_real_path_has_the_links_that_are_followed_in_it_and_the_names_that_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap();
        fs::create_dir(dir.join("real")).unwrap();
        symlink("real", dir.join("link")).unwrap();
        symlink("nothing", dir.join("broken")).unwrap();
        for (path, real) in [
            ("real", "real"),
            ("link", "real"),
            ("link/a/b", "real/a/b"),
            ("broken", "broken"),
            ("a/../real", "a/../real"),
        ] {
            assert_eq!(real_path(&dir.join(path)), dir.join(real), "{path}");
        }
        assert_eq!(real_path(Path::new("/")), Path::new("/"));
    }
}
