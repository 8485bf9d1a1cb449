//! Directories whose changes the kernel reports (inotify(7)), for each front thread: one read tells
//! that nothing has changed in any of them, in place of one `stat` for each path.
//!
//! A change is seen by the next check, as with `stat`. What the kernel does not report (a file that
//! is changed by another of its links, or through a mapping, a new mount) is found by `stat` after
//! [`TRUSTED_FOR`]. File systems that others change are not watched at all.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::fs::{self, FileType};
use rustix::io::Errno;

use crate::site::{name_lookups, openat};

/// Most directories that a thread watches.
const DIRECTORIES_MAX: usize = 1024;

/// How long a result of `stat` is used without another one.
pub const TRUSTED_FOR: Duration = Duration::from_secs(1);

/// Buffer for events, in bytes: at least one with the longest name.
const EVENTS_BYTES: usize = 4096;

/// Most reads of events in one check. With more to read, everything counts as changed.
const READS_MAX: usize = 16;

/// File systems that change through this kernel alone: ext2 to ext4, XFS, Btrfs, tmpfs, ZFS, F2FS
/// (statfs(2)).
const LOCAL: [i64; 6] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x2FC1_2FC1, 0xF2F5_2010];

/// A watched directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryId(i32);

struct Watcher {
    events: OwnedFd,
    by_path: HashMap<CString, DirectoryId>,
    /// The change after which each directory was last changed.
    changed: HashMap<i32, u64>,
    /// Number of changes so far.
    changes: u64,
    /// The last change of everything.
    all_changed: u64,
    /// The moment of the last read.
    moment: u64,
}

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// The number of the last change that has been read.
pub fn last_change() -> u64 {
    with(|watcher| watcher.changes).unwrap_or_default()
}

/// Reads events, once in a `moment` (0: always). If none of the directories has changed after the
/// change of this number, the number of the last change of any directory.
///
/// While nothing changes, this compares two numbers: the caller passes the last result as `since`,
/// and drops directories that are not watched any more ([`are_watched`]).
pub fn unchanged_until(directories: &[DirectoryId], since: u64, moment: u64) -> Option<u64> {
    with(|watcher| {
        watcher.read(moment);
        let is_old = |directory: &DirectoryId| {
            watcher.changed.get(&directory.0).is_some_and(|change| *change <= since)
        };
        let are_old = watcher.changes == since
            || (watcher.all_changed <= since && directories.iter().all(is_old));
        are_old.then_some(watcher.changes)
    })
    .flatten()
}

/// Whether all the directories are still watched: none has been moved or removed.
pub fn are_watched(directories: &[DirectoryId]) -> bool {
    with(|watcher| directories.iter().all(|own| watcher.changed.contains_key(&own.0)))
        .unwrap_or(false)
}

/// Watches all directories between `root`, a path without symbolic links, and `path`, so far as
/// they exist. None if one cannot be watched, or is a symbolic link.
pub fn watch(root: &[u8], path: &[u8]) -> Option<Vec<DirectoryId>> {
    let rest = path.strip_prefix(root)?;
    let mut watched = vec![watch_directory(&CString::new(root).ok()?)?];
    for end in memchr::memchr_iter(b'/', rest).filter(|end| *end > 0) {
        let directory = CString::new(&path[..root.len() + end]).ok()?;
        // The directory above is watched already, so that a change after this is reported.
        match name_lookups::link_stat(&directory) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => watched.push(watch_directory(&directory)?),
                // What is below a file does not exist.
                FileType::RegularFile => return Some(watched),
                _ => return None,
            },
            Err(Errno::NOENT) => return Some(watched),
            Err(_) => return None,
        }
    }
    match name_lookups::link_stat(&CString::new(path).ok()?) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => None,
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Some(watched),
        Err(_) => None,
    }
}

/// Forgets the directories at and below a path, which may be others by now: no event tells that a
/// directory above them has moved.
pub fn forget_below(root: &[u8]) {
    let is_below = |path: &CString| {
        let rest = path.as_bytes().strip_prefix(root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    with(|watcher| {
        let below = watcher.by_path.iter().filter(|(path, _)| is_below(path));
        let ids: Vec<i32> = below.map(|(_, id)| id.0).collect();
        for id in ids {
            watcher.forget(id);
        }
    });
}

fn watch_directory(path: &CStr) -> Option<DirectoryId> {
    WATCHER.with(|watcher| {
        let mut watcher = watcher.borrow_mut();
        if watcher.is_none() {
            *watcher = Watcher::start();
        }
        watcher.as_mut()?.add(path)
    })
}

fn with<T>(work: impl FnOnce(&mut Watcher) -> T) -> Option<T> {
    WATCHER.with(|watcher| watcher.borrow_mut().as_mut().map(work))
}

impl Watcher {
    /// None where the user's limit of instances is reached, or the kernel has no inotify.
    fn start() -> Option<Watcher> {
        let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        Some(Watcher {
            events,
            by_path: HashMap::new(),
            changed: HashMap::new(),
            changes: 0,
            all_changed: 0,
            moment: 0,
        })
    }

    fn add(&mut self, path: &CStr) -> Option<DirectoryId> {
        if let Some(known) = self.by_path.get(path) {
            return Some(*known);
        }
        if self.by_path.len() >= DIRECTORIES_MAX {
            return None;
        }
        let directory = name_lookups::open_directory(path).ok().filter(is_local)?;
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        // Of the open directory, which needs no lookup in the one above.
        let id = add_watch(&self.events, &*openat::proc_name(&directory), flags).ok()?;
        // Another path of a known directory: a change must not be missed for either.
        self.changes += 1;
        self.changed.insert(id, self.changes);
        self.by_path.insert(path.to_owned(), DirectoryId(id));
        Some(DirectoryId(id))
    }

    fn read(&mut self, moment: u64) {
        if moment != 0 && self.moment == moment {
            return;
        }
        self.moment = moment;
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut gone = Vec::new();
        let mut reader = Reader::new(&self.events, &mut buffer);
        let mut reads = 0;
        loop {
            if reader.is_buffer_empty() {
                reads += 1;
                if reads > READS_MAX {
                    self.changes += 1;
                    self.all_changed = self.changes;
                    break;
                }
            }
            let Ok(event) = reader.next() else { break };
            self.changes += 1;
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                self.all_changed = self.changes;
                continue;
            }
            let moved = ReadFlags::IGNORED | ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF;
            if event.events().intersects(moved) {
                gone.push(event.wd());
            }
            self.changed.insert(event.wd(), self.changes);
        }
        for id in gone {
            self.forget(id);
        }
    }

    /// A directory that has gone, or has another path now, is watched again where it is needed.
    fn forget(&mut self, id: i32) {
        self.by_path.retain(|_, known| known.0 != id);
        self.changed.remove(&id);
        let _ = rustix::fs::inotify::remove_watch(&self.events, id);
    }
}

fn is_local(directory: &OwnedFd) -> bool {
    fs::fstatfs(directory).is_ok_and(|stat| LOCAL.contains(&stat.f_type))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    type Change = fn(&Tree);

    fn are_unchanged(directories: &[DirectoryId], since: u64, moment: u64) -> bool {
        unchanged_until(directories, since, moment).is_some()
    }

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            std::fs::create_dir_all(tree.path("a/b")).unwrap();
            tree
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn watch(&self, name: &str) -> Option<Vec<DirectoryId>> {
            let root = self.0.path().canonicalize().unwrap();
            watch(root.as_os_str().as_bytes(), self.path(name).as_os_str().as_bytes())
        }
    }

    #[test]
    fn each_change_between_the_root_and_a_path_is_seen_at_once() {
        let tree = Tree::new();
        let changes: [(&str, Change); 6] = [
            ("a new file", |tree| std::fs::write(tree.path("a/b/file"), "1").unwrap()),
            ("new content", |tree| std::fs::write(tree.path("a/b/file"), "2").unwrap()),
            ("a renamed file", |tree| {
                std::fs::rename(tree.path("a/b/file"), tree.path("a/b/other")).unwrap();
            }),
            ("a file above", |tree| std::fs::write(tree.path("a/.htaccess"), "").unwrap()),
            ("a file in the root", |tree| std::fs::write(tree.path(".htaccess"), "").unwrap()),
            ("a renamed directory", |tree| {
                std::fs::rename(tree.path("a"), tree.path("c")).unwrap();
            }),
        ];
        for (what, change) in changes {
            let watched = tree.watch("a/b/file").unwrap();
            assert_eq!(watched.len(), 3);
            assert!(!are_unchanged(&watched, last_change(), 0) || last_change() > 0);
            let since = last_change();
            assert!(are_unchanged(&watched, since, 0), "before {what}");
            change(&tree);
            assert!(!are_unchanged(&watched, since, 0), "{what}");
        }
    }

    #[test]
    fn a_directory_that_has_moved_is_not_watched_any_more() {
        let tree = Tree::new();
        let watched = tree.watch("a/b/file").unwrap();
        let until = unchanged_until(&watched, last_change(), 0);
        assert!(until.is_some() && are_watched(&watched));
        std::fs::rename(tree.path("a/b"), tree.path("c")).unwrap();
        assert_eq!(unchanged_until(&watched, until.unwrap(), 0), None);
        assert!(!are_watched(&watched));
    }

    #[test]
    fn a_tree_whose_parent_has_moved_is_watched_anew_at_its_path() {
        let tree = Tree::new();
        let (root, file) = (tree.path("a/b"), tree.path("a/b/file"));
        let (root, file) = (root.as_os_str().as_bytes(), file.as_os_str().as_bytes());
        let before = watch(root, file).unwrap();
        std::fs::rename(tree.path("a"), tree.path("old")).unwrap();
        std::fs::create_dir_all(tree.path("a/b")).unwrap();
        forget_below(root);
        assert!(!are_watched(&before));
        let watched = watch(root, file).unwrap();
        are_unchanged(&watched, 0, 0);
        let since = last_change();
        assert!(are_unchanged(&watched, since, 0));
        std::fs::write(tree.path("a/b/file"), "1").unwrap();
        assert!(!are_unchanged(&watched, since, 0));
    }

    #[test]
    fn a_flood_of_changes_counts_as_a_change_of_everything() {
        let (tree, calm) = (Tree::new(), Tree::new());
        let watched = calm.watch("a/file").unwrap();
        tree.watch("a/file").unwrap();
        are_unchanged(&watched, 0, 0);
        let since = last_change();
        assert!(are_unchanged(&watched, since, 0));
        // An event has 32 bytes, with a name of at most 16.
        for number in 0..READS_MAX * EVENTS_BYTES / 32 {
            std::fs::create_dir(tree.path(&format!("a/{number}"))).unwrap();
        }
        std::fs::write(tree.path("a/last"), "").unwrap();
        assert!(!are_unchanged(&watched, since, 0), "what was not read may be about it");
        while !are_unchanged(&watched, last_change(), 0) {}
    }

    #[test]
    fn no_more_directories_are_watched_than_the_limit() {
        let tree = Tree::new();
        let mut watched = 0;
        for number in 0..=DIRECTORIES_MAX {
            std::fs::create_dir(tree.path(&format!("{number}"))).unwrap();
            watched += usize::from(tree.watch(&format!("{number}/file")).is_some());
        }
        // The root is one of them.
        assert_eq!(watched, DIRECTORIES_MAX - 1);
    }

    #[test]
    fn a_path_that_does_not_exist_is_watched_where_it_would_begin() {
        let tree = Tree::new();
        let watched = tree.watch("2026/11/post").unwrap();
        assert_eq!(watched.len(), 1);
        are_unchanged(&watched, 0, 0);
        let since = last_change();
        assert!(are_unchanged(&watched, since, 0));
        std::fs::create_dir(tree.path("2026")).unwrap();
        assert!(!are_unchanged(&watched, since, 0));
    }

    #[test]
    fn a_path_through_a_symbolic_link_is_not_watched() {
        let tree = Tree::new();
        std::os::unix::fs::symlink(tree.path("a"), tree.path("link")).unwrap();
        std::os::unix::fs::symlink(tree.path("a/b"), tree.path("a/file")).unwrap();
        assert_eq!(tree.watch("link/b/file"), None);
        assert_eq!(tree.watch("a/file"), None);
        assert!(tree.watch("a/b").is_some());
    }
}
