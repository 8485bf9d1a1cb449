//! Cached routes, and the file system checks that invalidate them.
//!
//! A bounded table with second-chance eviction (the CLOCK algorithm): a flood of made-up paths
//! evicts routes that are used once, and leaves the hot entries alone.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::runtime::file_identity::Identity;
use crate::site::name_lookups;
use crate::site::resolver::Target;

/// The limits of the cache of one front thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// Resolved paths.
    pub routes: usize,
    /// Bytes of file contents in memory.
    pub memory: usize,
    /// Open descriptors of files too large for memory.
    pub open_files: usize,
    /// Bytes of decisions by `.htaccess` files.
    pub decisions: usize,
}

impl Default for TableLimits {
    fn default() -> TableLimits {
        TableLimits { routes: 4096, memory: 32 << 20, open_files: 256, decisions: 32 << 20 }
    }
}

/// Paths longer than this many bytes are not cached.
const LONGEST_KEY: usize = 1024;

/// A check of the file system, and the result for which a route holds.
pub(crate) struct FileWatch {
    pub path: CString,
    pub expect: Expect,
}

/// The expected result of a [`FileWatch`].
pub(crate) enum Expect {
    /// The same file, unchanged.
    Unchanged(Identity),
    /// The same regular file, with any content.
    SameFile { dev: u64, ino: u64 },
    /// Any directory.
    Directory,
    /// No file of that name.
    Absent,
}

impl FileWatch {
    /// One `stat`. Not so while that is pending ([`lookups`]).
    pub(crate) fn holds(&self) -> bool {
        match (name_lookups::stat(&self.path), &self.expect) {
            (Ok(stat), Expect::Unchanged(identity)) => Identity::of(&stat) == *identity,
            (Ok(stat), Expect::SameFile { dev, ino }) => {
                kind(&stat) == FileType::RegularFile && (stat.st_dev, stat.st_ino) == (*dev, *ino)
            }
            (Ok(stat), Expect::Directory) => kind(&stat) == FileType::Directory,
            (Ok(_), Expect::Absent) => false,
            (Err(error), expect) => matches!(expect, Expect::Absent) && is_absence(error),
        }
    }
}

/// The errors of a missing file.
pub(crate) fn is_absence(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

struct Slot {
    key: Arc<[u8]>,
    target: Target,
    watches: Vec<FileWatch>,
    used: bool,
    /// It was used since the last [`PathTable::close_idle`].
    is_recent: bool,
    /// The moment of the last successful check.
    seen: u64,
}

/// The routes of one site in one front thread.
pub(crate) struct PathTable {
    limits: TableLimits,
    slots: Vec<Slot>,
    by_key: HashMap<Arc<[u8]>, usize>,
    hand: usize,
    memory: usize,
    open_files: usize,
    /// The current moment; 0: every check is a moment of its own.
    moment: u64,
}

impl PathTable {
    pub(crate) fn new(limits: TableLimits) -> PathTable {
        PathTable {
            limits,
            slots: Vec::new(),
            by_key: HashMap::new(),
            hand: 0,
            memory: 0,
            open_files: 0,
            moment: 0,
        }
    }

    /// Sets the moment: checks within it are not repeated.
    pub(crate) fn set_moment(&mut self, moment: u64) {
        self.moment = moment;
    }

    /// The route of `key` if it is cached and still holds. One `stat` per moment as a rule; a
    /// directory whose index is not the first name in the list, or a path without a front
    /// controller, takes one more for each name that must still be absent.
    pub(crate) fn fresh(&mut self, key: &[u8]) -> Option<Target> {
        let at = *self.by_key.get(key)?;
        let slot = self.slots.get_mut(at)?;
        let just_seen = self.moment != 0 && slot.seen == self.moment;
        if just_seen || slot.watches.iter().all(FileWatch::holds) {
            slot.used = true;
            slot.is_recent = true;
            slot.seen = self.moment;
            return Some(slot.target.clone());
        }
        if !name_lookups::is_pending() {
            self.remove(at);
        }
        None
    }

    /// Caches `target` for as long as `watches` hold.
    pub(crate) fn insert(&mut self, key: &[u8], target: &Target, watches: Vec<FileWatch>) {
        let (memory, open_files) = target.holds();
        let is_too_large = memory > self.limits.memory || open_files > self.limits.open_files;
        if key.len() > LONGEST_KEY || is_too_large {
            return;
        }
        if let Some(at) = self.by_key.get(key) {
            self.remove(*at);
        }
        while self.memory + memory > self.limits.memory && self.evict(|held| held.0 > 0) {}
        while self.open_files + open_files > self.limits.open_files && self.evict(|held| held.1 > 0)
        {
        }
        while self.slots.len() >= self.limits.routes && self.evict(|_| true) {}
        if self.slots.len() >= self.limits.routes
            || self.open_files + open_files > self.limits.open_files
        {
            return;
        }
        self.memory += memory;
        self.open_files += open_files;
        let key: Arc<[u8]> = key.into();
        self.by_key.insert(Arc::clone(&key), self.slots.len());
        let target = target.clone();
        self.slots.push(Slot { key, target, watches, used: false, is_recent: true, seen: 0 });
    }

    /// Closes the files that are held open and were not used since the previous call: a file that
    /// is deleted takes space until then.
    pub(crate) fn close_idle(&mut self) {
        if self.open_files == 0 {
            return;
        }
        // From the end: the last slot takes the place of a removed one.
        for at in (0..self.slots.len()).rev() {
            let slot = &mut self.slots[at];
            if !std::mem::take(&mut slot.is_recent) && slot.target.holds().1 > 0 {
                self.remove(at);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = PathTable { moment: self.moment, ..PathTable::new(self.limits) };
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    #[cfg(test)]
    /// Bytes of file contents and descriptors held.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.memory, self.open_files)
    }

    /// Evicts the next slot that `wanted` accepts and that was not used since the hand last passed
    /// it. False if `wanted` accepts none.
    fn evict(&mut self, wanted: impl Fn((usize, usize)) -> bool) -> bool {
        for _ in 0..2 * self.slots.len() {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if !wanted(slot.target.holds()) {
                continue;
            }
            if !std::mem::take(&mut slot.used) {
                self.remove(self.hand);
                return true;
            }
        }
        false
    }

    fn remove(&mut self, at: usize) {
        let slot = self.slots.swap_remove(at);
        self.by_key.remove(&slot.key);
        if let Some(moved) = self.slots.get(at) {
            self.by_key.insert(Arc::clone(&moved.key), at);
        }
        let (memory, open_files) = slot.target.holds();
        self.memory -= memory;
        self.open_files -= open_files;
    }
}
