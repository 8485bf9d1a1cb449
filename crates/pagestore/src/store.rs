//! Both tiers, and the life of a page.

mod owned_folder;

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use maitred_pagecache::Millis;
use maitred_pagecache::admit::NotStored;
use maitred_pagecache::headers::Field;
use maitred_pagecache::key::Key;
use maitred_pagecache::vary::Vary;

use crate::dir_lock::FolderLock;
use crate::disk::{Disk, DiskLimits, Fetched, SweepResult, Unread, make_dir};
use crate::gate::Gate;
use crate::journal::{self, JournalState};
use crate::memory::Memory;
use crate::object::{Entry, Object};
use crate::purge_queue::PurgeQueue;
use crate::purges::{PurgeState, Purges};
use crate::shared_reads::SharedReads;
use crate::store::owned_folder::OwnedFolder;
use crate::uses::Uses;

/// The limits of the store.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes in memory.
    pub memory: u64,
    /// File descriptors that memory-backed bodies may use, for sendfile.
    pub files: usize,
    /// Limits of the disk tier, if there is one.
    pub disk: Option<DiskLimits>,
}

/// The result of a lookup.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// A page.
    Page {
        /// The page.
        page: Arc<Object>,
        /// Its key: the request's, or that of a variant.
        key: Key,
        /// A soft purge has made it stale.
        is_stale: bool,
    },
    /// A miss.
    Miss {
        /// The key under which it would be stored, as far as is known.
        key: Key,
        /// There are other variants for this URL.
        has_variants: bool,
    },
    /// A page that takes time to read, with [`Store::load_large`].
    Large {
        /// Its key.
        key: Key,
        /// There are other variants for this URL.
        has_variants: bool,
    },
    /// A page on disk for which there is no memory: clients read many others of its site.
    NoMemory {
        /// Its key.
        key: Key,
        /// There are other variants for this URL.
        has_variants: bool,
    },
}

/// The keys under which a page is stored.
#[derive(Debug, Clone)]
pub struct PageKeys {
    primary: Key,
    /// The headers that the URL varies on, and the variant's key.
    variant: Option<(Vary, Key)>,
}

impl PageKeys {
    /// For a response to a request with this key and these headers that varies on some of them.
    ///
    /// # Errors
    /// When their values are too long.
    pub fn of<'a>(
        primary: &Key,
        vary: &Vary,
        fields: impl Iterator<Item = Field<'a>> + Clone,
    ) -> Result<PageKeys, NotStored> {
        let variant = (!vary.is_empty()).then(|| primary.variant(vary, fields));
        let variant = variant.transpose().map_err(|_| NotStored::VaryTooLong)?;
        Ok(PageKeys { primary: primary.clone(), variant: variant.map(|key| (vary.clone(), key)) })
    }
}

/// Statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Number and bytes of the pages in memory.
    pub memory: (usize, u64),
    /// Number and bytes of the known files.
    pub disk: (usize, u64),
    /// Evicted pages: in memory and on disk.
    pub evicted: (u64, u64),
    /// Damaged files.
    pub damaged: u64,
    /// Failed writes to the disk, and evictions.
    pub failed: u64,
    /// Purges in the table.
    pub purges: usize,
}

/// Distance between the purge numbers of two processes when one waits for the other's directory:
/// pages that the other process has written are then older than all purges of this one.
const APART: u64 = 1 << 32;

/// The disk tier's configuration.
#[derive(Debug)]
struct DiskConfig {
    limits: DiskLimits,
    /// The machine's boot ID.
    boot: String,
}

/// The store.
#[derive(Debug)]
pub struct Store {
    memory: Memory,
    /// The disk tier, while this process owns its directory.
    disk: ArcSwapOption<Disk>,
    /// Pages from disk that are too large for the memory tier, as clients read them.
    reads: SharedReads,
    purges: Purges,
    folder: Mutex<Option<OwnedFolder>>,
    queue: PurgeQueue,
    wanted: Option<DiskConfig>,
    /// Another process owns the directory, and this one waits for it: until then no purge is
    /// forgotten, since files may be concerned.
    awaits: AtomicBool,
    /// The purges of this process have higher numbers than this; `u64::MAX`: it makes none before
    /// it owns the directory.
    highest_before: u64,
    /// The directory has been handed over to another process.
    left: AtomicBool,
    /// Counts requests for keys without an entry (`min_uses`).
    pub uses: Uses,
    /// Held shared while a page is stored, and exclusively while purges are forgotten: pages
    /// are checked against purges before they are stored.
    gate: Gate,
    /// The number of the last purge when the last sweep began; `None` before the first sweep.
    swept: Mutex<Option<u64>>,
}

impl Store {
    /// Opens a store. `boot` is the machine's boot ID (`/proc/sys/kernel/random/boot_id`).
    ///
    /// # Errors
    /// When the directory of the disk tier cannot be used.
    pub fn open(limits: Limits, boot: &str, now: Millis) -> io::Result<(Store, JournalState)> {
        let wanted = limits.disk.map(|limits| DiskConfig { limits, boot: boot.to_owned() });
        let mut store = Store {
            memory: Memory::new(limits.memory, limits.files),
            disk: ArcSwapOption::empty(),
            reads: SharedReads::default(),
            purges: Purges::default(),
            folder: Mutex::default(),
            queue: PurgeQueue::default(),
            wanted,
            awaits: AtomicBool::new(false),
            highest_before: u64::MAX,
            left: AtomicBool::new(false),
            uses: Uses::default(),
            gate: Gate::default(),
            swept: Mutex::new(None),
        };
        let Some(wanted) = &store.wanted else {
            return Ok((store, JournalState::New));
        };
        let dir = &wanted.limits.dir;
        make_dir(dir)?;
        let opened = match FolderLock::open(dir)?.try_lock()? {
            Some(lock) => store.take(wanted, lock, now)?,
            None => {
                let last = journal::last_number(dir)?;
                store.highest_before = last.saturating_add(APART);
                store.purges.restore_last(store.highest_before);
                store.awaits.store(true, Ordering::Release);
                JournalState::InUse
            }
        };
        Ok((store, opened))
    }

    /// Whether another process still owns the directory.
    pub fn awaits_folder(&self) -> bool {
        self.awaits.load(Ordering::Acquire)
    }

    /// The stamp for a request that is sent now.
    pub fn stamp(&self) -> u64 {
        self.purges.last()
    }

    /// Whether there is a disk tier.
    pub fn has_disk(&self) -> bool {
        self.disk.load().is_some()
    }

    /// Largest body that can be stored, in bytes, whatever the site's limit.
    pub fn largest_body(&self) -> u64 {
        if self.has_disk() { u64::MAX } else { self.memory.largest() }
    }

    /// Sets how many bytes of pages clients may read outside the memory tier.
    pub fn limit_detached(&self, most: u64) {
        self.memory.detached().limit_to(most);
    }

    /// Largest body that can be stored in memory, in bytes.
    pub fn largest_in_memory(&self) -> u64 {
        self.memory.largest()
    }

    /// The pages in memory that were sent most often, at most `most`. Looks at all pages.
    pub fn top(&self, most: usize) -> Vec<Arc<Object>> {
        // Purged pages stay in memory until they are looked up.
        let mut top = self.memory.top(most * 2);
        top.retain(|page| !matches!(self.purges.fate(page), PurgeState::Removed));
        top.truncate(most);
        top
    }

    /// Looks up the page for a request with this key and these headers, in memory.
    pub fn lookup<'a>(
        &self,
        primary: &Key,
        fields: impl Iterator<Item = Field<'a>> + Clone,
    ) -> Lookup {
        loop {
            let forgotten = self.purges.forgotten();
            let looked = self.find(primary, fields.clone(), |key| self.memory.get(key));
            if forgotten == self.purges.forgotten() {
                return looked;
            }
            // The purge that concerns the page may have been forgotten just before the lookup.
        }
    }

    /// As [`Store::lookup`], but also on disk; a page found there is in memory afterwards. Files
    /// larger than `most` bytes are not read. Blocks.
    pub fn load<'a>(
        &self,
        primary: &Key,
        fields: impl Iterator<Item = Field<'a>> + Clone,
        now: Millis,
        most: u64,
    ) -> Lookup {
        let _on_its_way = self.gate.pass();
        let unread = Cell::new(None);
        let looked = self.find(primary, fields, |key| match self.fetch(key, now, most) {
            Fetched::Entry(entry) => Some(entry),
            Fetched::Nothing => None,
            Fetched::Unread(why) => {
                unread.set(Some(why));
                None
            }
        });
        match looked {
            Lookup::Miss { key, has_variants } => missed(key, has_variants, unread.get()),
            looked => looked,
        }
    }

    /// Reads a page that [`Store::load`] has found to be large, or takes the copy that others have.
    /// Blocks for as long as that takes.
    pub fn load_large(&self, key: Key, has_variants: bool, now: Millis) -> Lookup {
        let _on_its_way = self.gate.pass();
        let place = self.reads.place(&key);
        let read = place.copy_or(|| match self.fetch(&key, now, u64::MAX) {
            Fetched::Entry(Entry::Page(page)) => Ok(page),
            Fetched::Entry(Entry::Varies(_)) | Fetched::Nothing => Err(None),
            Fetched::Unread(why) => Err(Some(why)),
        });
        match read {
            Ok(page) => self.alive(key, page, has_variants),
            Err(why) => missed(key, has_variants, why),
        }
    }

    fn fetch(&self, key: &Key, now: Millis, most: u64) -> Fetched {
        if let Some(entry) = self.memory.get(key) {
            return Fetched::Entry(entry);
        }
        let Some(disk) = &*self.disk.load() else {
            return Fetched::Nothing;
        };
        let mut charge = None;
        let mut read = disk.read(key, now, |bytes| {
            if bytes > most {
                return Err(Unread::Large);
            }
            let detached = self.memory.detached();
            // A page with a place in the tier needs other memory only while it is read.
            let has_place = || bytes <= self.memory.largest() && detached.has_room(key);
            let add = || has_place().then(|| detached.add(key, bytes));
            charge = detached.take(key, bytes).or_else(add);
            charge.as_ref().map(|_| ()).ok_or(Unread::NoMemory)
        });
        let Fetched::Entry(entry) = &mut read else {
            return read;
        };
        if let Entry::Page(page) = entry
            && let Some(page) = Arc::get_mut(page)
        {
            self.memory.move_to_memfd(key, page);
        }
        // A page stored in the meantime is newer.
        let is_stored = !self.memory.contains(key) && self.memory.put(key.clone(), entry.clone());
        if let Entry::Page(page) = entry
            && let Some(held) = page.body.held().filter(|_| !is_stored)
        {
            held.set_charge(charge);
        }
        read
    }

    fn find<'a>(
        &self,
        primary: &Key,
        fields: impl Iterator<Item = Field<'a>> + Clone,
        get: impl Fn(&Key) -> Option<Entry>,
    ) -> Lookup {
        let nothing = |key: Key, has_variants| Lookup::Miss { key, has_variants };
        match get(primary) {
            None => nothing(primary.clone(), false),
            Some(Entry::Page(page)) => self.alive(primary.clone(), page, false),
            Some(Entry::Varies(vary)) => {
                let Ok(key) = primary.variant(&vary, fields) else {
                    return nothing(primary.clone(), true);
                };
                match get(&key) {
                    Some(Entry::Page(page)) => self.alive(key, page, true),
                    _ => nothing(key, true),
                }
            }
        }
    }

    /// A page, unless it has been purged.
    fn alive(&self, key: Key, page: Arc<Object>, has_variants: bool) -> Lookup {
        let is_stale = match self.purges.fate(&page) {
            PurgeState::Valid => false,
            PurgeState::Stale => true,
            PurgeState::Removed => {
                self.memory.remove(&key, &page);
                return Lookup::Miss { key, has_variants };
            }
        };
        Lookup::Page { page, key, is_stale }
    }

    /// Stores a page for requests with this key and these values of headers. A disk tier blocks.
    ///
    /// # Errors
    /// The reason why it is not stored.
    pub fn insert<'a>(
        &self,
        primary: &Key,
        vary: &Vary,
        fields: impl Iterator<Item = Field<'a>> + Clone,
        page: Object,
        now: Millis,
    ) -> Result<Arc<Object>, NotStored> {
        let place = PageKeys::of(primary, vary, fields)?;
        self.insert_at(&place, page, now)
    }

    /// As [`Store::insert`], under keys that are already known.
    ///
    /// # Errors
    /// The reason why it is not stored.
    pub fn insert_at(
        &self,
        place: &PageKeys,
        mut page: Object,
        now: Millis,
    ) -> Result<Arc<Object>, NotStored> {
        let _on_its_way = self.gate.pass();
        if self.purges.refuses(&page) {
            return Err(NotStored::Purged);
        }
        let key = match &place.variant {
            None => &place.primary,
            Some((vary, key)) => {
                self.note_variance(&place.primary, vary, now)?;
                key
            }
        };
        self.memory.move_to_memfd(key, &mut page);
        let page = Arc::new(page);
        let stored = self.put(key, Entry::Page(page.clone()), now);
        self.reads.forget(key);
        stored?;
        if self.purges.refuses(&page) {
            // It was purged while it was being stored.
            self.memory.remove(key, &page);
            if let Some(disk) = &*self.disk.load() {
                disk.remove(key);
            }
            return Err(NotStored::Purged);
        }
        Ok(page)
    }

    /// Stores a derived page, such as a compressed copy, in memory alone.
    ///
    /// # Errors
    /// The page, if it has no place there.
    pub fn insert_derived(&self, key: Key, mut page: Object) -> Result<Arc<Object>, Arc<Object>> {
        let _on_its_way = self.gate.pass();
        if self.purges.refuses(&page) {
            return Err(page.into());
        }
        self.memory.move_to_memfd(&key, &mut page);
        let page = Arc::new(page);
        match self.memory.put(key, Entry::Page(page.clone())) {
            true => Ok(page),
            false => Err(page),
        }
    }

    /// Whether a page may have been purged after this stamp, which is of before its lookup.
    pub fn is_purged_since(&self, stamp: u64, page: &Object) -> bool {
        self.purges.forgotten() > stamp || self.purges.fate(page) == PurgeState::Removed
    }

    /// Removes an outdated page. A page that has replaced it meanwhile stays. Blocks if there is a
    /// disk tier.
    pub fn drop_page(&self, key: &Key, page: &Object) {
        self.drop_from_memory(key, page);
        if let Some(disk) = &*self.disk.load()
            && !self.memory.contains(key)
        {
            disk.remove(key);
            // Another thread may have read it just before.
            self.drop_from_memory(key, page);
            self.reads.forget(key);
        }
    }

    /// As [`Store::drop_page`], in memory alone.
    pub fn drop_from_memory(&self, key: &Key, page: &Object) {
        let (came, stamp) = (page.stored.came, page.stored.stamp);
        self.memory.remove_if(key, |entry| match entry {
            Entry::Page(found) => (found.stored.came, found.stored.stamp) == (came, stamp),
            Entry::Varies(_) => false,
        });
    }

    fn note_variance(&self, primary: &Key, vary: &Vary, now: Millis) -> Result<(), NotStored> {
        if let Some(Entry::Varies(known)) = self.memory.get(primary)
            && *known == *vary
        {
            return Ok(());
        }
        self.put(primary, Entry::Varies(Arc::new(vary.clone())), now)
    }

    fn put(&self, key: &Key, entry: Entry, now: Millis) -> Result<(), NotStored> {
        let in_memory = self.memory.put(key.clone(), entry.clone());
        let on_disk = match &*self.disk.load() {
            Some(disk) => disk.write(key, &entry, now),
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        match (in_memory, on_disk) {
            (true, _) | (_, Ok(())) => Ok(()),
            (false, Err(error)) => Err(match error.kind() {
                io::ErrorKind::Unsupported | io::ErrorKind::FileTooLarge => NotStored::TooLarge,
                _ => NotStored::Fault,
            }),
        }
    }

    /// Removes inactive and purged pages, and forgets the purges that no stored page needs any
    /// more. `inactive` and `max_size` apply from the first sweep after a start on. Blocks.
    ///
    /// # Errors
    /// When a page or a directory can be neither read nor removed, or the journal cannot be
    /// written. All other pages are swept, but no purge is forgotten: one may concern what is left.
    pub fn sweep(&self, now: Millis) -> io::Result<SweepResult> {
        let mut before = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        // Only up to the previous sweep: pages that a soft purge has made stale since then may be
        // served for a while.
        let is_first = before.is_none();
        let until = before.replace(self.purges.last()).unwrap_or(0);
        self.purges.begin_to_forget(until);
        let concerned = |entry: &Entry| match entry {
            Entry::Page(page) => {
                self.purges.concerned(page, until) || self.purges.fate(page) == PurgeState::Removed
            }
            Entry::Varies(_) => false,
        };
        self.memory.retain(|entry| !concerned(entry));
        let (mut swept, mut cleared) = (Ok(SweepResult::default()), Ok(()));
        if let Some(disk) = &*self.disk.load() {
            let mut keep = |key: &Key, entry: &Entry| {
                if self.memory.contains(key) {
                    disk.touch(key, now);
                }
                !concerned(entry)
            };
            // The first sweep reads all files: some may belong to another era.
            let looks = is_first || !self.purges.is_empty();
            swept = disk.sweep(now, if looks { Some(&mut keep) } else { None });
            cleared = disk.clear_begun(now);
        }
        if swept.is_ok() && until > self.purges.forgotten() && !self.awaits_folder() {
            // Otherwise the next sweep forgets them.
            if let Some(_alone) = self.gate.try_alone() {
                self.purges.forget_until(until);
            }
            if let Some(OwnedFolder { journal, .. }) = &mut *self.folder() {
                self.compact(journal)?;
            }
        }
        self.mend_journal()?;
        let swept = swept?;
        cleared.map(|()| swept)
    }

    /// Statistics.
    pub fn stats(&self) -> StoreStats {
        let disk = self.disk.load();
        let disk = disk.as_deref();
        let (bytes, files) = disk.map_or((0, 0), Disk::size);
        StoreStats {
            memory: (self.memory.len(), self.memory.bytes()),
            disk: (files, bytes),
            evicted: (self.memory.evicted(), disk.map_or(0, Disk::evicted)),
            damaged: disk.map_or(0, Disk::damaged),
            failed: disk.map_or(0, Disk::failed),
            purges: self.purges.len(),
        }
    }
}

/// A miss, or why the page on disk is not read.
fn missed(key: Key, has_variants: bool, why: Option<Unread>) -> Lookup {
    match why {
        None => Lookup::Miss { key, has_variants },
        Some(Unread::Large) => Lookup::Large { key, has_variants },
        Some(Unread::NoMemory) => Lookup::NoMemory { key, has_variants },
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
