//! The settings of a document root.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The settings of a document root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteFiles {
    /// The document root, absolute. A symbolic link is resolved again whenever it may have changed.
    pub root: PathBuf,
    /// The names tried, in this order, for a directory.
    pub index: Vec<String>,
    /// The script for paths without a file: `/index.php`.
    pub front_controller: Option<String>,
    /// The path prefix, if the root is an alias: `/docs`, without a trailing slash.
    pub prefix: String,
    /// The user id of the front.
    pub front: u32,
    /// The chroot of the site's scripts, if they run in one. A root that is not below it is not
    /// served.
    pub chroot: Option<PathBuf>,
    /// Those of other pools of the site.
    pub other_chroots: Vec<PathBuf>,
}

impl SiteFiles {
    /// Whether the scripts of all pools can see the folder with this real path.
    pub(super) fn scripts_see(&self, root: &[u8]) -> bool {
        let root = Path::new(OsStr::from_bytes(root));
        self.chroot.iter().chain(&self.other_chroots).all(|chroot| root.starts_with(chroot))
    }
}
