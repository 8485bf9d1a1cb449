//! Symbolic links that lead out of a document root and are not followed: each is logged with the
//! command that has it followed, and `maitred check` finds those in the root and two folders below.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use maitred_os::users;
use maitred_os::walk::{self, Rule, Stopped, printable};

use crate::site::logged_paths::{LogTurn, LoggedPaths};

/// Interval between two log lines about a link.
const LOGGED_EVERY: Duration = Duration::from_secs(3600);

/// Most entries of a document root and of the folders below that are examined for `maitred check`.
const MAX_ENTRIES: usize = 10_000;

/// How many folders below the document root `maitred check` descends. Packages, sources and caches
/// lie deeper, and applications link their storage above.
const MAX_DEPTH: usize = 2;

static LOGGED: LoggedPaths = LoggedPaths::every(LOGGED_EVERY);

/// The path of a name in an open folder.
///
/// # Errors
/// When `/proc` does not report it.
pub fn path_in(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<PathBuf> {
    let folder = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
    Ok(folder.join(std::ffi::OsStr::from_bytes(name)))
}

/// Logs that a link below the folder `root` of a site is not followed, unless it was logged
/// recently.
pub fn log(root: &Path, link: &Path) {
    match LOGGED.turn(root, link.as_os_str().as_bytes(), Instant::now()) {
        LogTurn::Subject => {
            if let Some(sentence) = sentence(link, Rule::of_reader()) {
                tracing::warn!("{sentence}");
            }
        }
        LogTurn::Excess => tracing::warn!(
            "{}: more symbolic links lead out of it to files of other users than are logged; \
             requests through them get a 404; `maitred check` lists those near the root",
            root.display()
        ),
        LogTurn::Nothing => {}
    }
}

/// Why the link is not followed, and the remedy; none if there is no such link any more.
fn sentence(link: &Path, rule: Rule) -> Option<String> {
    let own = fs::symlink_metadata(link).ok()?.uid();
    let target = fs::metadata(link).ok()?.uid();
    let real = fs::canonicalize(link).ok()?;
    if let Err(Stopped::Foreign(foreign)) = walk::look(link, rule)
        && foreign.link != link
    {
        let link = printable(link);
        return Some(format!("requests through the symbolic link {link} get a 404: {foreign}"));
    }
    let (own, target) = (users::name_of(own), users::name_of(target));
    let (link, real) = (printable(link), printable(&real));
    Some(format!(
        "the symbolic link {link} is of user `{own}` and leads out of the document root to {real}, \
         which is of user `{target}`: requests through it get a 404; if the link is intended, \
         `chown -h {target} {link}`"
    ))
}

/// The links in the folder `root`, and in the folders up to [`MAX_DEPTH`] below, that a front of
/// the user `own` does not follow: one sentence each.
pub fn find(root: &Path, own: u32) -> Vec<String> {
    let Ok(real) = fs::canonicalize(root) else {
        return Vec::new();
    };
    let rule = Rule::Read { own };
    let refused = links_below(&real).into_iter().filter(|link| is_refused(link, &real, rule));
    refused.filter_map(|link| sentence(&link, rule)).collect()
}

/// The links below a folder, those nearest to it first. Links to folders are not descended into.
fn links_below(root: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut folders = VecDeque::from([(root.to_owned(), 0)]);
    let mut left = MAX_ENTRIES;
    while let Some((folder, depth)) = folders.pop_front() {
        let entries = fs::read_dir(folder).into_iter().flatten().take(left);
        for entry in entries {
            left -= 1;
            let Ok(entry) = entry else { continue };
            match entry.file_type() {
                Ok(kind) if kind.is_symlink() => links.push(entry.path()),
                Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => {
                    folders.push_back((entry.path(), depth + 1));
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    links
}

fn is_refused(link: &Path, root: &Path, rule: Rule) -> bool {
    let (Ok(of_link), Ok(target)) = (fs::symlink_metadata(link), fs::metadata(link)) else {
        return false;
    };
    let is_inside = fs::canonicalize(link).is_ok_and(|real| real.starts_with(root));
    let may_leave = of_link.uid() == 0 || of_link.uid() == target.uid();
    let is_followed = may_leave && walk::look(link, rule).is_ok();
    !is_inside && !is_followed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_found_two_folders_below_the_root_and_no_deeper() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b/c")).unwrap();
        for link in ["top", "a/one", "a/b/two", "a/b/c/three", "a/here"] {
            symlink(root.path(), root.path().join(link)).unwrap();
        }
        let mut found = links_below(root.path());
        assert_eq!(found[0], root.path().join("top"));
        found.sort();
        let expected = ["a/b/two", "a/here", "a/one", "top"];
        assert_eq!(found, expected.map(|link| root.path().join(link)));
        assert!(links_below(&root.path().join("gone")).is_empty());
    }
}
