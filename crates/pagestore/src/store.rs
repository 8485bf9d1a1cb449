//! All that is kept, in both tiers, and what becomes of it.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use arc_swap::ArcSwapOption;
use maitred_pagecache::Millis;
use maitred_pagecache::admit::NotStored;
use maitred_pagecache::fields::Field;
use maitred_pagecache::key::Key;
use maitred_pagecache::purge::{Purge, Thoroughness};
use maitred_pagecache::vary::Vary;

use crate::disk::{Disk, DiskLimits, Fetched, Swept, make_dir};
use crate::folder::FolderLock;
use crate::journal::{self, Journal, Opened};
use crate::memory::Memory;
use crate::object::{Entry, Object};
use crate::purges::{Fate, Purges};
use crate::uses::Uses;

/// How much may be kept.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes in memory.
    pub memory: u64,
    /// Descriptors that pages in memory may have, to be sent from.
    pub files: usize,
    /// What may be on disk, if anything.
    pub disk: Option<DiskLimits>,
}

/// What was found for a request.
#[derive(Debug, Clone)]
pub enum Looked {
    /// A page.
    Page {
        /// It.
        page: Arc<Object>,
        /// Its key, which is the request's or that of a variant.
        key: Key,
        /// Purges have made it stale.
        is_stale: bool,
    },
    /// Nothing.
    Nothing {
        /// The key under which it would be, as far as is known.
        key: Key,
        /// There are pages for other requests to this address.
        has_variants: bool,
    },
    /// A page that takes time to read: [`Store::load_large`] does.
    Large {
        /// Its key.
        key: Key,
        /// There are pages for other requests to this address.
        has_variants: bool,
    },
}

/// Where a page is kept.
#[derive(Debug, Clone)]
pub struct Place {
    primary: Key,
    /// What its address depends on, and the key of what these requests get.
    variant: Option<(Vary, Key)>,
}

impl Place {
    /// Of an answer to a request with this key and these fields, which depends on some of them.
    ///
    /// # Errors
    /// When their values are too long.
    pub fn of<'a>(
        primary: &Key,
        vary: &Vary,
        fields: impl Iterator<Item = Field<'a>> + Clone,
    ) -> Result<Place, NotStored> {
        let variant = (!vary.is_empty()).then(|| primary.variant(vary, fields));
        let variant = variant.transpose().map_err(|_| NotStored::VaryTooMuch)?;
        Ok(Place {
            primary: primary.clone(),
            variant: variant.map(|key| (vary.clone(), key)),
        })
    }
}

/// Figures, for whoever looks on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Pages in memory, and their bytes.
    pub memory: (usize, u64),
    /// Files that are known, and their bytes.
    pub disk: (usize, u64),
    /// Pages that had to make room for others: in memory and on disk.
    pub evicted: (u64, u64),
    /// Files that were damaged.
    pub damaged: u64,
    /// Pages that could not be written to the disk.
    pub failed: u64,
    /// Purges that are remembered.
    pub purges: usize,
}

/// How far the numbers of two processes' purges are apart, of which the one waits for the folder of
/// the other: pages that the other one has written are then older than all purges of this one.
const APART: u64 = 1 << 32;

/// A folder that is ours as long as this is there.
#[derive(Debug)]
struct Folder {
    journal: Journal,
    _lock: FolderLock,
}

/// Where files are to be.
#[derive(Debug)]
struct Wanted {
    limits: DiskLimits,
    /// The machine's boot.
    boot: String,
}

/// All that is kept.
#[derive(Debug)]
pub struct Store {
    memory: Memory,
    /// The disk tier, while its folder is ours.
    disk: ArcSwapOption<Disk>,
    purges: Purges,
    folder: Mutex<Option<Folder>>,
    wanted: Option<Wanted>,
    /// Another process has the folder, which will be ours: no purge is forgotten until then, since
    /// files may be concerned.
    awaits: AtomicBool,
    /// The folder is another's, for good.
    left: AtomicBool,
    /// How often something was asked for that is not kept.
    pub uses: Uses,
    /// Shared while a page is on its way into memory or to the disk, alone while purges are forgotten:
    /// it is held against them first.
    gate: RwLock<()>,
    /// The last purge there was when the last sweep began; none before the first.
    swept: Mutex<Option<u64>>,
}

impl Store {
    /// Opens a store. `boot` names the machine's boot (`/proc/sys/kernel/random/boot_id`).
    ///
    /// # Errors
    /// When the folder of the disk tier cannot be used.
    pub fn open(limits: Limits, boot: &str, now: Millis) -> io::Result<(Store, Opened)> {
        let wanted = limits.disk.map(|limits| Wanted {
            limits,
            boot: boot.to_owned(),
        });
        let store = Store {
            memory: Memory::new(limits.memory, limits.files),
            disk: ArcSwapOption::empty(),
            purges: Purges::default(),
            folder: Mutex::default(),
            wanted,
            awaits: AtomicBool::new(false),
            left: AtomicBool::new(false),
            uses: Uses::default(),
            gate: RwLock::default(),
            swept: Mutex::new(None),
        };
        let Some(wanted) = &store.wanted else {
            return Ok((store, Opened::New));
        };
        let dir = &wanted.limits.dir;
        make_dir(dir)?;
        let opened = match FolderLock::open(dir)?.try_lock()? {
            Some(lock) => store.take(wanted, lock, now)?,
            None => {
                let last = journal::last_number(dir)?;
                store.purges.restore_last(last.saturating_add(APART));
                store.awaits.store(true, Ordering::Release);
                Opened::Taken
            }
        };
        Ok((store, opened))
    }

    /// Whether there is a folder that another process has yet.
    pub fn awaits_folder(&self) -> bool {
        self.awaits.load(Ordering::Acquire)
    }

    /// Waits until nobody else has the folder, and takes it. What was purged meanwhile is purged in it,
    /// too. Blocks for as long as that takes.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn claim_folder(&self, clock: impl Fn() -> Millis) -> io::Result<Opened> {
        let Some(wanted) = self.wanted.as_ref().filter(|_| self.awaits_folder()) else {
            return Ok(Opened::New);
        };
        let lock = FolderLock::open(&wanted.limits.dir)?.lock()?;
        self.take(wanted, lock, clock())
    }

    fn take(&self, wanted: &Wanted, lock: FolderLock, now: Millis) -> io::Result<Opened> {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut folder = self.folder();
        if self.left.load(Ordering::Acquire) {
            return Ok(Opened::Taken);
        }
        let Wanted { limits, boot } = wanted;
        let (journal, opened) = Journal::open(&limits.dir, boot, &self.purges)?;
        let disk = Disk::open(limits.clone(), journal.era, now)?;
        *folder = Some(Folder {
            journal,
            _lock: lock,
        });
        self.disk.store(Some(Arc::new(disk)));
        self.awaits.store(false, Ordering::Release);
        // The next sweep is the first of these files.
        *swept = None;
        Ok(opened)
    }

    /// Leaves the folder to another process: from now on pages are in memory alone. What is purged
    /// afterwards the other one has to be told. Blocks while files are looked through.
    ///
    /// # Errors
    /// When it cannot be said on disk that all is in order; it is left all the same.
    pub fn leave_folder(&self) -> io::Result<()> {
        let _swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut folder = self.folder();
        self.left.store(true, Ordering::Release);
        self.awaits.store(false, Ordering::Release);
        self.disk.store(None);
        match folder.take() {
            Some(mut folder) => folder.journal.close(&self.purges),
            None => Ok(()),
        }
    }

    fn folder(&self) -> MutexGuard<'_, Option<Folder>> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stamp of what is asked for now.
    pub fn stamp(&self) -> u64 {
        self.purges.last()
    }

    /// Whether there is a disk tier, which may hold what memory does not.
    pub fn has_disk(&self) -> bool {
        self.disk.load().is_some()
    }

    /// Bytes of a body that is too large to be kept, whatever its site says.
    pub fn largest_body(&self) -> u64 {
        match self.has_disk() {
            true => u64::MAX,
            false => self.memory.largest(),
        }
    }

    /// Bytes that what is kept in memory may have.
    pub fn largest_in_memory(&self) -> u64 {
        self.memory.largest()
    }

    /// Looks in memory for what a request with this key and these fields gets.
    pub fn look<'a>(
        &self,
        primary: &Key,
        fields: impl Iterator<Item = Field<'a>> + Clone,
    ) -> Looked {
        loop {
            let forgotten = self.purges.forgotten();
            let looked = self.find(primary, fields.clone(), |key| self.memory.get(key));
            if forgotten == self.purges.forgotten() {
                return looked;
            }
            // The purge that was about it may have been forgotten just before it was looked for.
        }
    }

    /// As [`Store::look`], on disk as well; what is found there is in memory afterwards. Files of more
    /// than `most` bytes are not read. Blocks.
    pub fn load<'a>(
        &self,
        primary: &Key,
        fields: impl Iterator<Item = Field<'a>> + Clone,
        (now, most): (Millis, u64),
    ) -> Looked {
        let _on_its_way = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let is_large = Cell::new(false);
        let looked = self.find(primary, fields, |key| match self.fetch(key, now, most) {
            Fetched::Entry(entry) => Some(entry),
            Fetched::Nothing => None,
            Fetched::Large => {
                is_large.set(true);
                None
            }
        });
        match looked {
            Looked::Nothing { key, has_variants } if is_large.get() => {
                Looked::Large { key, has_variants }
            }
            looked => looked,
        }
    }

    /// Reads the page under a key that was said to be large. Blocks for as long as that takes.
    pub fn load_large(&self, key: Key, has_variants: bool, now: Millis) -> Looked {
        let _on_its_way = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        match self.fetch(&key, now, u64::MAX) {
            Fetched::Entry(Entry::Page(page)) => self.alive(key, page, has_variants),
            _ => Looked::Nothing { key, has_variants },
        }
    }

    fn fetch(&self, key: &Key, now: Millis, most: u64) -> Fetched {
        if let Some(entry) = self.memory.get(key) {
            return Fetched::Entry(entry);
        }
        let Some(disk) = &*self.disk.load() else {
            return Fetched::Nothing;
        };
        let mut read = disk.read(key, now, most);
        if let Fetched::Entry(entry) = &mut read
            // What was kept in the meantime is newer.
            && !self.memory.holds(key)
        {
            if let Entry::Page(page) = entry
                && let Some(page) = Arc::get_mut(page)
            {
                self.memory.take_in(key, page);
            }
            self.memory.put(key.clone(), entry.clone());
        }
        read
    }

    fn find<'a>(
        &self,
        primary: &Key,
        fields: impl Iterator<Item = Field<'a>> + Clone,
        get: impl Fn(&Key) -> Option<Entry>,
    ) -> Looked {
        let nothing = |key: Key, has_variants| Looked::Nothing { key, has_variants };
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

    /// A page, unless it was purged.
    fn alive(&self, key: Key, page: Arc<Object>, has_variants: bool) -> Looked {
        let is_stale = match self.purges.fate(&page) {
            Fate::Alive => false,
            Fate::Stale => true,
            Fate::Gone => {
                self.memory.remove(&key, &page);
                return Looked::Nothing { key, has_variants };
            }
        };
        Looked::Page {
            page,
            key,
            is_stale,
        }
    }

    /// Keeps a page for requests with this key that say the same in these fields. Blocks if there is
    /// a disk tier.
    ///
    /// # Errors
    /// Why it is not kept.
    pub fn keep<'a>(
        &self,
        primary: &Key,
        vary: &Vary,
        fields: impl Iterator<Item = Field<'a>> + Clone,
        page: Object,
        now: Millis,
    ) -> Result<Arc<Object>, NotStored> {
        let place = Place::of(primary, vary, fields)?;
        self.keep_at(&place, page, now)
    }

    /// As [`Store::keep`], in a place that was looked for before.
    ///
    /// # Errors
    /// Why it is not kept.
    pub fn keep_at(
        &self,
        place: &Place,
        mut page: Object,
        now: Millis,
    ) -> Result<Arc<Object>, NotStored> {
        let _on_its_way = self.gate.read().unwrap_or_else(PoisonError::into_inner);
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
        self.memory.take_in(key, &mut page);
        let page = Arc::new(page);
        self.put(key, Entry::Page(page.clone()), now)?;
        if self.purges.refuses(&page) {
            // It was purged while it was put there.
            self.memory.remove(key, &page);
            if let Some(disk) = &*self.disk.load() {
                disk.remove(key);
            }
            return Err(NotStored::Purged);
        }
        Ok(page)
    }

    /// Keeps beside a page what was made of it, in memory alone.
    pub fn keep_beside(&self, key: Key, mut page: Object) -> Arc<Object> {
        let _on_its_way = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let is_kept = !self.purges.refuses(&page);
        if is_kept {
            self.memory.take_in(&key, &mut page);
        }
        let page = Arc::new(page);
        if is_kept {
            self.memory.put(key, Entry::Page(page.clone()));
        }
        page
    }

    /// Takes a page away that is not what its address gives any more. One that has taken its place
    /// meanwhile stays. Blocks if there is a disk tier.
    pub fn drop_page(&self, key: &Key, page: &Object) {
        let (came, stamp) = (page.stored.came, page.stored.stamp);
        let is_it = |entry: &Entry| match entry {
            Entry::Page(found) => (found.stored.came, found.stored.stamp) == (came, stamp),
            Entry::Varies(_) => false,
        };
        self.memory.remove_if(key, is_it);
        if let Some(disk) = &*self.disk.load()
            && !self.memory.holds(key)
        {
            disk.remove(key);
            // Somebody may have read it just before.
            self.memory.remove_if(key, is_it);
        }
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

    /// Purges pages of a site. When it returns, no request that comes gets one of them, and none
    /// that was being made will be kept.
    ///
    /// # Errors
    /// When it could not be written down: it is done all the same, and after a restart nothing that
    /// was kept is trusted.
    pub fn purge(&self, site: &str, purge: &Purge, how: Thoroughness) -> io::Result<()> {
        let mut folder = self.folder();
        let number = self.purges.add(site, purge, how);
        let Some(Folder { journal, .. }) = &mut *folder else {
            return Ok(());
        };
        let written = journal.add(site, purge, how, number);
        if written.is_err() {
            journal.discard()?;
        } else if journal.lacks_some {
            // It can be written again: what it lacks is said before anybody relies on it.
            journal.compact(&self.purges)?;
        }
        written
    }

    /// Takes away what nobody asks for any more, and what was purged, and forgets the purges that
    /// nothing is left to be held against. `inactive` and `max_size` hold from the first sweep after a
    /// start on. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be read, or the journal cannot be written.
    pub fn sweep(&self, now: Millis) -> io::Result<Swept> {
        let mut before = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        // Not up to now: what was made stale since then will do for a while yet.
        let is_first = before.is_none();
        let until = before.replace(self.purges.last()).unwrap_or(0);
        let concerned = |entry: &Entry| match entry {
            Entry::Page(page) => {
                self.purges.concerned(page, until) || self.purges.fate(page) == Fate::Gone
            }
            Entry::Varies(_) => false,
        };
        self.memory.retain(|entry| !concerned(entry));
        let mut swept = Swept::default();
        if let Some(disk) = &*self.disk.load() {
            let mut keep = |key: &Key, entry: &Entry| {
                if self.memory.holds(key) {
                    disk.use_now(key, now);
                }
                !concerned(entry)
            };
            // The first looks into all files: some may be of another era.
            let looks = is_first || !self.purges.is_empty();
            swept = disk.sweep(now, if looks { Some(&mut keep) } else { None })?;
        }
        if until > self.purges.forgotten() && !self.awaits_folder() {
            {
                let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
                self.purges.forget_until(until);
            }
            if let Some(Folder { journal, .. }) = &mut *self.folder() {
                journal.compact(&self.purges)?;
            }
        }
        self.mend_journal()?;
        Ok(swept)
    }

    /// Writes down what the journal lacks, if it can be written again.
    fn mend_journal(&self) -> io::Result<()> {
        match &mut *self.folder() {
            Some(Folder { journal, .. }) if journal.lacks_some => journal.compact(&self.purges),
            _ => Ok(()),
        }
    }

    /// Says on disk that all is in order. Nothing must be kept or purged afterwards.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn close(&self) -> io::Result<()> {
        match &mut *self.folder() {
            Some(Folder { journal, .. }) => journal.close(&self.purges),
            None => Ok(()),
        }
    }

    /// Figures.
    pub fn figures(&self) -> Figures {
        let disk = self.disk.load();
        let disk = disk.as_deref();
        let (bytes, files) = disk.map_or((0, 0), Disk::size);
        Figures {
            memory: (self.memory.len(), self.memory.bytes()),
            disk: (files, bytes),
            evicted: (self.memory.evicted(), disk.map_or(0, Disk::evicted)),
            damaged: disk.map_or(0, Disk::damaged),
            failed: disk.map_or(0, Disk::failed),
            purges: self.purges.len(),
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
