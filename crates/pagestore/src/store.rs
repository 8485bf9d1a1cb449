//! All that is kept, in both tiers, and what becomes of it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use maitred_pagecache::Millis;
use maitred_pagecache::admit::NotStored;
use maitred_pagecache::fields::Field;
use maitred_pagecache::key::Key;
use maitred_pagecache::purge::{Purge, Thoroughness};
use maitred_pagecache::vary::Vary;

use crate::disk::{Disk, DiskLimits, Swept, make_dir};
use crate::journal::{Journal, Opened};
use crate::memory::Memory;
use crate::object::{Entry, Object};
use crate::purges::{Fate, Purges};
use crate::uses::Uses;

/// How much may be kept.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes in memory.
    pub memory: u64,
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

/// All that is kept.
#[derive(Debug)]
pub struct Store {
    memory: Memory,
    disk: Option<Disk>,
    purges: Purges,
    journal: Option<Mutex<Journal>>,
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
        let purges = Purges::default();
        let (mut disk, mut journal, mut opened) = (None, None, Opened::New);
        if let Some(limits) = limits.disk {
            make_dir(&limits.dir)?;
            let (found, how) = Journal::open(&limits.dir, boot, &purges)?;
            disk = Some(Disk::open(limits, found.era, now)?);
            (journal, opened) = (Some(Mutex::new(found)), how);
        }
        let store = Store {
            memory: Memory::new(limits.memory),
            disk,
            purges,
            journal,
            uses: Uses::default(),
            gate: RwLock::default(),
            swept: Mutex::new(None),
        };
        Ok((store, opened))
    }

    /// The stamp of what is asked for now.
    pub fn stamp(&self) -> u64 {
        self.purges.last()
    }

    /// Whether there is a disk tier, which may hold what memory does not.
    pub fn has_disk(&self) -> bool {
        self.disk.is_some()
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

    /// As [`Store::look`], on disk as well; what is found there is in memory afterwards. Blocks.
    pub fn load<'a>(
        &self,
        primary: &Key,
        fields: impl Iterator<Item = Field<'a>> + Clone,
        now: Millis,
    ) -> Looked {
        let _on_its_way = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.find(primary, fields, |key| {
            let in_memory = self.memory.get(key);
            in_memory.or_else(|| {
                let entry = self.disk.as_ref()?.read(key, now)?;
                // What was kept in the meantime is newer.
                if !self.memory.holds(key) {
                    self.memory.put(key.clone(), entry.clone());
                }
                Some(entry)
            })
        })
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
        let _on_its_way = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if self.purges.refuses(&page) {
            return Err(NotStored::Purged);
        }
        let page = Arc::new(page);
        let key = match vary.is_empty() {
            true => primary.clone(),
            false => {
                let key = primary.variant(vary, fields);
                let key = key.map_err(|_| NotStored::VaryTooMuch)?;
                self.note_variance(primary, vary, now)?;
                key
            }
        };
        self.put(&key, Entry::Page(page.clone()), now)?;
        if self.purges.refuses(&page) {
            // It was purged while it was put there.
            self.memory.remove(&key, &page);
            if let Some(disk) = &self.disk {
                disk.remove(&key);
            }
            return Err(NotStored::Purged);
        }
        Ok(page)
    }

    /// Keeps beside a page what was made of it, in memory alone.
    pub fn keep_beside(&self, key: Key, page: Arc<Object>) {
        let _on_its_way = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if !self.purges.refuses(&page) {
            self.memory.put(key, Entry::Page(page));
        }
    }

    fn note_variance(&self, primary: &Key, vary: &Vary, now: Millis) -> Result<(), NotStored> {
        if let Some(Entry::Varies(known)) = self.memory.get(primary) {
            if *known == *vary {
                return Ok(());
            }
        }
        self.put(primary, Entry::Varies(Arc::new(vary.clone())), now)
    }

    fn put(&self, key: &Key, entry: Entry, now: Millis) -> Result<(), NotStored> {
        let in_memory = self.memory.put(key.clone(), entry.clone());
        let on_disk = match &self.disk {
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
        let Some(journal) = &self.journal else {
            self.purges.add(site, purge, how);
            return Ok(());
        };
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.purges.add(site, purge, how);
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
        if let Some(disk) = &self.disk {
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
        if until > self.purges.forgotten() {
            {
                let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
                self.purges.forget_until(until);
            }
            if let Some(journal) = &self.journal {
                let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
                journal.compact(&self.purges)?;
            }
        }
        self.mend_journal()?;
        Ok(swept)
    }

    /// Writes down what the journal lacks, if it can be written again.
    fn mend_journal(&self) -> io::Result<()> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        match journal.lacks_some {
            true => journal.compact(&self.purges),
            false => Ok(()),
        }
    }

    /// Says on disk that all is in order. Nothing must be kept or purged afterwards.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn close(&self) -> io::Result<()> {
        match &self.journal {
            Some(journal) => journal
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .close(&self.purges),
            None => Ok(()),
        }
    }

    /// Figures.
    pub fn figures(&self) -> Figures {
        let disk = self.disk.as_ref();
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
