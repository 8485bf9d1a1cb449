//! Symbolic links that lead out of a document root and are not followed: each is logged with the
//! command that has it followed, and `maitred check` finds those in the root itself.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use maitred_os::users;
use maitred_os::walk::{self, Rule};

use crate::site::logged_paths::LoggedPaths;

/// Interval between two log lines about a link.
const LOGGED_EVERY: Duration = Duration::from_secs(3600);

/// Most entries of a document root that are examined for `maitred check`.
const MAX_ENTRIES: usize = 10_000;

static LOGGED: LoggedPaths = LoggedPaths::every(LOGGED_EVERY);

/// The path of a name in an open folder.
///
/// # Errors
/// When `/proc` does not report it.
pub fn path_in(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<PathBuf> {
    let folder = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
    Ok(folder.join(std::ffi::OsStr::from_bytes(name)))
}

/// Logs that a link is not followed, unless it was logged recently.
pub fn log(link: &Path) {
    if LOGGED.is_due(link, Instant::now())
        && let Some(sentence) = sentence(link)
    {
        tracing::warn!("{sentence}");
    }
}

/// Why the link is not followed, and the remedy; none if there is no such link any more.
fn sentence(link: &Path) -> Option<String> {
    let own = fs::symlink_metadata(link).ok()?.uid();
    let target = fs::metadata(link).ok()?.uid();
    let real = fs::canonicalize(link).ok()?;
    let (own, target) = (users::name_of(own), users::name_of(target));
    let (link, real) = (link.display(), real.display());
    Some(format!(
        "the symbolic link {link} is of user `{own}` and leads out of the document root to {real}, \
         which is of user `{target}`: requests through it get a 404; if the link is intended, \
         `chown -h {target} {link}`"
    ))
}

/// The links in the folder `root` that a front of the user `own` does not follow: one sentence
/// each.
pub fn find(root: &Path, own: u32) -> Vec<String> {
    let (Ok(entries), Ok(real)) = (fs::read_dir(root), fs::canonicalize(root)) else {
        return Vec::new();
    };
    let entries = entries.take(MAX_ENTRIES).filter_map(Result::ok);
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let refused = links.map(|entry| entry.path()).filter(|link| is_refused(link, &real, own));
    refused.filter_map(|link| sentence(&link)).collect()
}

fn is_refused(link: &Path, root: &Path, own: u32) -> bool {
    let (Ok(of_link), Ok(target)) = (fs::symlink_metadata(link), fs::metadata(link)) else {
        return false;
    };
    let is_inside = fs::canonicalize(link).is_ok_and(|real| real.starts_with(root));
    let is_followed = || of_link.uid() == 0 && walk::look(link, Rule::Read { own }).is_ok();
    of_link.uid() != target.uid() && !is_inside && !is_followed()
}
