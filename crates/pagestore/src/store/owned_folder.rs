//! The directory of the disk tier while this process owns it: how it is taken and left, and the
//! purge journal in it. No serving thread waits for what is done here.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use maitred_pagecache::Millis;
use maitred_pagecache::purge::{Purge, PurgeMode};

use crate::dir_lock::FolderLock;
use crate::disk::Disk;
use crate::journal::{self, Journal, JournalState};
use crate::purge_queue::QueuedPurges;
use crate::site_marks::{self, SiteMarks};
use crate::store::{DiskConfig, Store};

/// Most writes of purges while a directory is left: clients can purge without end, and the next
/// process waits.
const MAX_LAST_WRITES: usize = 16;

/// A directory that this process owns until the lock is dropped.
#[derive(Debug)]
pub struct OwnedFolder {
    pub(super) journal: Journal,
    _lock: FolderLock,
}

impl Store {
    /// Waits until the directory is free, and takes it. Purges of the meantime apply to it, too.
    /// Blocks for as long as that takes.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn claim_folder(&self, clock: impl Fn() -> Millis) -> io::Result<JournalState> {
        let Some(wanted) = self.wanted.as_ref().filter(|_| self.awaits_folder()) else {
            return Ok(JournalState::New);
        };
        let lock = FolderLock::open(&wanted.limits.dir)?.lock()?;
        self.take(wanted, lock, clock())
    }

    pub(super) fn take(
        &self,
        wanted: &DiskConfig,
        lock: FolderLock,
        now: Millis,
    ) -> io::Result<JournalState> {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut folder = self.folder();
        if self.left.load(Ordering::Acquire) {
            return Ok(JournalState::InUse);
        }
        let DiskConfig { limits, boot } = wanted;
        // What the journal does not get with the table now, it gets from the queue.
        self.queue.open();
        // The purges in the journal are older than all pages in memory: pages may be stored and
        // looked up meanwhile.
        let opened = Journal::open(&limits.dir, boot, &self.purges, self.highest_before);
        let opened = opened.and_then(|(journal, opened)| {
            let disk = Disk::open(limits.clone(), journal.era, now)?;
            Ok((journal, opened, disk))
        });
        let (journal, opened, disk) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.queue.close();
                return Err(error);
            }
        };
        *folder = Some(OwnedFolder { journal, _lock: lock });
        self.disk.store(Some(Arc::new(disk)));
        self.awaits.store(false, Ordering::Release);
        // The next sweep is the first for these files.
        *swept = None;
        Ok(opened)
    }

    /// Hands the directory over to another process, which needs later purges: from now on pages
    /// are in memory alone. Blocks while a sweep is running, and until pages on their way to the
    /// disk are written.
    ///
    /// # Errors
    /// When the journal cannot be written; the directory is handed over all the same.
    pub fn leave_folder(&self) -> io::Result<()> {
        let _swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut folder = self.folder();
        self.left.store(true, Ordering::Release);
        self.awaits.store(false, Ordering::Release);
        self.disk.store(None);
        // Who has passed before may write yet.
        drop(self.gate.alone());
        let Some(OwnedFolder { journal, .. }) = &mut *folder else {
            return Ok(());
        };
        let recorded = self.record_last(journal);
        if recorded.is_err() {
            // Those in it are never recorded.
            self.queue.close();
        }
        *folder = None;
        recorded
    }

    /// Records the purges until none waits, and queues no more. A purge that comes during a write
    /// waits for the next: the other process does not record it before it has the directory.
    /// The journal is not marked as closed, which takes a sync: the machine is still up.
    fn record_last(&self, journal: &mut Journal) -> io::Result<()> {
        for _ in 1..MAX_LAST_WRITES {
            self.record_or_rewrite(journal, &self.queue.take())?;
            if self.queue.close_if_empty() {
                return Ok(());
            }
        }
        self.record_or_rewrite(journal, &self.queue.close())
    }

    fn record_or_rewrite(&self, journal: &mut Journal, queued: &QueuedPurges) -> io::Result<()> {
        let _ = self.record(journal, queued);
        if journal.lacks_some { self.compact(journal) } else { Ok(()) }
    }

    /// Marks the directory as cleanly closed. Nothing must be stored or purged afterwards.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn close(&self) -> io::Result<()> {
        let Some(OwnedFolder { journal, .. }) = &mut *self.folder() else {
            return Ok(());
        };
        let queued = self.queue.take();
        // If that fails, the journal is rewritten before it is closed.
        let _ = self.record(journal, &queued);
        journal.close(&self.purges)?;
        self.queue.note_recorded(queued.last);
        Ok(())
    }

    pub(super) fn folder(&self) -> MutexGuard<'_, Option<OwnedFolder>> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Purges pages of a site. When it returns, no new request gets one of them, and none that is
    /// being generated will be stored. One that the journal has no room for is one of all pages.
    /// Returns its number if it is to be recorded: when [`Store::recorded`] has reached it, it
    /// holds after a restart, too.
    pub fn purge(&self, site: &str, purge: &Purge, how: PurgeMode) -> Option<u64> {
        let purge = if journal::fits(site, purge) { purge } else { &Purge::All };
        let carry_out = || self.purges.add(site, purge, how);
        self.queue.push(carry_out, |number| journal::record(site, purge, how, number))
    }

    /// The sites of which the directory may have pages, as its last owner has noted them; none if
    /// this process does not own it. Blocks.
    pub fn noted_sites(&self) -> SiteMarks {
        match (&self.wanted, &*self.folder()) {
            (Some(wanted), Some(_)) => site_marks::read(&wanted.limits.dir),
            _ => SiteMarks::new(),
        }
    }

    /// Notes the sites of which the directory may have pages, if this process owns it. Blocks.
    ///
    /// # Errors
    /// When that cannot be written: then none is noted.
    pub fn note_sites(&self, sites: &SiteMarks) -> io::Result<()> {
        match (&self.wanted, &*self.folder()) {
            (Some(wanted), Some(_)) => site_marks::write(&wanted.limits.dir, sites),
            _ => Ok(()),
        }
    }

    /// Waits until purges are to be recorded.
    pub fn await_purges(&self) {
        self.queue.wait();
    }

    /// The number up to which all purges are recorded, or are not needed any more because the files
    /// are not used after a restart.
    pub fn recorded(&self) -> u64 {
        self.queue.recorded()
    }

    /// Records the purges so far. Blocks.
    ///
    /// # Errors
    /// When the journal cannot be written: after a restart the old files are not used. If
    /// [`Store::recorded`] has not advanced, the journal could not be removed either.
    pub fn write_purges(&self) -> io::Result<()> {
        match &mut *self.folder() {
            Some(OwnedFolder { journal, .. }) => self.record(journal, &self.queue.take()),
            // Its queue is closed.
            None => Ok(()),
        }
    }

    fn record(&self, journal: &mut Journal, queued: &QueuedPurges) -> io::Result<()> {
        if queued.last == 0 {
            return Ok(());
        }
        if queued.lacks_some {
            // It must not be trusted before it is rewritten.
            journal.discard()?;
        }
        let written = match journal.lacks_some {
            true => journal.compact(&self.purges),
            false => journal.append(&queued.records),
        };
        if written.is_err() {
            journal.discard()?;
        } else if journal.is_grown() && journal.compact(&self.purges).is_err() {
            // The larger one is as good.
            journal.compact_later();
        }
        self.queue.note_recorded(queued.last);
        written
    }

    /// Rewrites the journal from the purge table.
    pub(super) fn compact(&self, journal: &mut Journal) -> io::Result<()> {
        let last = self.purges.last();
        journal.compact(&self.purges)?;
        self.queue.note_recorded(last);
        Ok(())
    }

    /// Records the purges that the journal lacks, if it is writable again.
    pub(super) fn mend_journal(&self) -> io::Result<()> {
        match &mut *self.folder() {
            Some(OwnedFolder { journal, .. }) if journal.lacks_some => self.compact(journal),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "owned_folder_tests.rs"]
mod tests;
