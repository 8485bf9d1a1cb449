//! What was resolved before, and the looks that tell whether it still holds.
//!
//! A bounded table with second-chance eviction (the CLOCK algorithm): a flood of made-up paths
//! pushes out what nobody asked for again, and leaves the hot entries alone.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use rustix::fs::{self, FileType, Stat};
use rustix::io::Errno;

use crate::runtime::file_identity::Identity;
use crate::site::resolver::Target;

/// How much one front thread may keep between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Resolved paths.
    pub routes: usize,
    /// Bytes of file contents in memory.
    pub memory: usize,
    /// Open descriptors of files too large for memory.
    pub open_files: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            routes: 4096,
            memory: 32 << 20,
            open_files: 256,
        }
    }
}

/// Paths longer than this many bytes are resolved anew each time.
const LONGEST_KEY: usize = 1024;

/// One look at the file system, and what it must see for a route to hold.
pub(crate) struct Watch {
    pub path: CString,
    pub expect: Expect,
}

/// What a [`Watch`] must see.
pub(crate) enum Expect {
    /// The same file, unchanged.
    Unchanged(Identity),
    /// The same regular file, whatever it holds.
    SameFile { dev: u64, ino: u64 },
    /// Any directory.
    Directory,
    /// Nothing of that name.
    Absent,
}

impl Watch {
    /// One `stat`.
    fn holds(&self) -> bool {
        match (fs::stat(self.path.as_c_str()), &self.expect) {
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

/// The errors that mean: there is no such file.
pub(crate) fn is_absence(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

struct Slot {
    key: Arc<[u8]>,
    target: Target,
    watches: Vec<Watch>,
    used: bool,
    /// When the watches were last seen to hold.
    seen: u64,
}

/// The routes of one site in one front thread.
pub(crate) struct Table {
    limits: Limits,
    slots: Vec<Slot>,
    by_key: HashMap<Arc<[u8]>, usize>,
    hand: usize,
    memory: usize,
    open_files: usize,
    /// The present moment; 0: every look is a moment of its own.
    moment: u64,
}

impl Table {
    pub(crate) fn new(limits: Limits) -> Table {
        Table {
            limits,
            slots: Vec::new(),
            by_key: HashMap::new(),
            hand: 0,
            memory: 0,
            open_files: 0,
            moment: 0,
        }
    }

    /// From now on it is `moment`: what has been seen in it need not be looked at again.
    pub(crate) fn set_moment(&mut self, moment: u64) {
        self.moment = moment;
    }

    /// The route of `key` if it was resolved before and still holds. One `stat` a moment as a rule; a
    /// directory whose index is not the first name in the list, or a path that has no front
    /// controller, takes one more for each name that must still be absent.
    pub(crate) fn fresh(&mut self, key: &[u8]) -> Option<Target> {
        let at = *self.by_key.get(key)?;
        let slot = self.slots.get_mut(at)?;
        let just_seen = self.moment != 0 && slot.seen == self.moment;
        if just_seen || slot.watches.iter().all(Watch::holds) {
            slot.used = true;
            slot.seen = self.moment;
            return Some(slot.target.clone());
        }
        self.remove(at);
        None
    }

    /// Keeps `target` for as long as `watches` hold.
    pub(crate) fn insert(&mut self, key: &[u8], target: &Target, watches: Vec<Watch>) {
        let (memory, open_files) = target.holds();
        if key.len() > LONGEST_KEY || memory > self.limits.memory {
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
        self.slots.push(Slot {
            key,
            target: target.clone(),
            watches,
            used: false,
            seen: 0,
        });
    }

    pub(crate) fn clear(&mut self) {
        *self = Table::new(self.limits);
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

    /// Removes the next slot that `wanted` accepts and that was not used since the hand last passed
    /// it. False if there is none that `wanted` accepts.
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
