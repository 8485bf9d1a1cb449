//! Which files `AuthUserFile` and `AuthGroupFile` of a site may name.

use std::path::{Component, Path, PathBuf};

/// Whether a site may use a file of users: it is in the document root, by either of its names, or
/// in one of `folders`. A file of another site is none of this one's.
pub fn may_name(roots: [&Path; 2], folders: &[PathBuf], path: &Path) -> bool {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    let mut folders = folders.iter().map(PathBuf::as_path).chain(roots);
    !climbs && folders.any(|folder| folder.is_absolute() && path.starts_with(folder))
}
