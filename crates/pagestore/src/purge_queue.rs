//! Purges on their way to the journal. A caller that purges does not wait for the disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most bytes of records that wait. Beyond it, the journal is rewritten from the purge table.
const MAX_QUEUED_BYTES: usize = if cfg!(test) { 4 << 10 } else { 4 << 20 };

/// The purges that are not recorded.
#[derive(Debug, Default)]
pub struct QueuedPurges {
    /// The journal's records of them, in the order of their numbers.
    pub records: Vec<u8>,
    /// The number of the last; 0: there is none.
    pub last: u64,
    /// There was no room for some.
    pub lacks_some: bool,
}

impl QueuedPurges {
    fn add(&mut self, number: u64, record: &[u8]) {
        self.last = number;
        self.lacks_some |= self.records.len() + record.len() > MAX_QUEUED_BYTES;
        if self.lacks_some {
            self.records = Vec::new();
        } else {
            self.records.extend_from_slice(record);
        }
    }
}

#[derive(Debug, Default)]
struct QueueState {
    /// There is a journal, or is about to be.
    is_open: bool,
    queued: QueuedPurges,
}

/// The queue before the journal.
#[derive(Debug, Default)]
pub struct PurgeQueue {
    state: Mutex<QueueState>,
    filled: Condvar,
    recorded: AtomicU64,
}

impl PurgeQueue {
    /// Queues the purges from now on.
    pub fn open(&self) {
        self.lock().is_open = true;
    }

    /// Queues no more. Returns those in the queue.
    pub fn close(&self) -> QueuedPurges {
        let mut state = self.lock();
        state.is_open = false;
        std::mem::take(&mut state.queued)
    }

    /// Queues no more if none is in the queue. Returns whether that is so.
    pub fn close_if_empty(&self) -> bool {
        let mut state = self.lock();
        state.is_open &= state.queued.last != 0;
        !state.is_open
    }

    /// Takes those in the queue.
    pub fn take(&self) -> QueuedPurges {
        std::mem::take(&mut self.lock().queued)
    }

    /// Waits until there are some.
    pub fn wait(&self) {
        let state = self.lock();
        let is_empty = |state: &mut QueueState| state.queued.last == 0;
        drop(self.filled.wait_while(state, is_empty));
    }

    /// Carries a purge out, which returns its number, and queues its record. Returns the number if
    /// it is to be recorded.
    pub fn push(
        &self,
        purge: impl FnOnce() -> u64,
        record: impl FnOnce(u64) -> Vec<u8>,
    ) -> Option<u64> {
        // Locked for both: all purges before the last one in the queue are in it, too.
        let mut state = self.lock();
        let number = purge();
        if !state.is_open {
            return None;
        }
        state.queued.add(number, &record(number));
        self.filled.notify_all();
        Some(number)
    }

    /// The number up to which all purges are recorded.
    pub fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Acquire)
    }

    /// Notes that all purges up to this number are recorded.
    pub fn note_recorded(&self, number: u64) {
        self.recorded.fetch_max(number, Ordering::AcqRel);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
