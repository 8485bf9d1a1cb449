//! Whether a path exists.

use std::path::Path;
use std::{fs, io};

/// Why `path` is no usable directory, as the end of a sentence that starts with it.
pub fn directory_problem(path: &Path) -> Option<String> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => {
            Some("is not a directory; name the directory".to_owned())
        }
        Ok(_) if path.to_str().is_none() => Some("has a name that is not UTF-8".to_owned()),
        Ok(_) => None,
        Err(error) => Some(lookup_problem(&error, "directory")),
    }
}

pub(crate) fn file_problem(path: &Path) -> Option<String> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Some("is a directory; name the file".to_owned()),
        Ok(_) => None,
        Err(error) => Some(lookup_problem(&error, "file")),
    }
}

fn lookup_problem(error: &io::Error, what: &str) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        format!("does not exist; create the {what} or correct the path")
    } else {
        format!("cannot be accessed: {error}")
    }
}
