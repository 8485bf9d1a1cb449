//! The thread that records purges in `cache_dir`, and how others wait for it: no serving thread
//! does, whatever the disk does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::cache::Cache;

/// Longest wait of a response until a purge is recorded.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Which purges are recorded.
#[derive(Debug, Default, Clone)]
pub struct PurgeJournal(Arc<JournalProgress>);

#[derive(Debug, Default)]
struct JournalProgress {
    /// The number up to which purges are recorded.
    recorded: watch::Sender<u64>,
    /// A purge was not recorded in time.
    is_late: AtomicBool,
    /// The worst [`UnrecordedPurges`] that is logged; 0: none since the journal was last complete.
    unrecorded: AtomicU8,
}

/// What purges that cannot be recorded leave behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum UnrecordedPurges {
    /// No journal, so that no file is used after a restart.
    NoJournal = 1,
    /// A journal without them.
    IncompleteJournal = 2,
}

/// The record of a purge, which another thread writes.
#[derive(Debug)]
pub struct PurgeRecord {
    number: u64,
    journal: PurgeJournal,
}

impl PurgeJournal {
    /// The record of the purge with this number, and of all before it.
    pub(super) fn record(&self, number: u64) -> PurgeRecord {
        PurgeRecord { number, journal: self.clone() }
    }

    /// Notes that purges up to this number are recorded.
    fn note(&self, number: u64) {
        let is_more = |recorded: &mut u64| {
            let is_more = *recorded < number;
            *recorded = number.max(*recorded);
            is_more
        };
        if self.0.recorded.send_if_modified(is_more) {
            self.0.is_late.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a failure is to be logged. Clients can purge without end: the next one is news only
    /// if it is worse, or once a sweep has found the journal complete, or has completed it.
    fn is_news(&self, failure: UnrecordedPurges) -> bool {
        self.0.unrecorded.fetch_max(failure as u8, Ordering::Relaxed) < failure as u8
    }

    /// Notes that the journal is complete.
    pub(super) fn note_complete(&self) {
        self.0.unrecorded.store(0, Ordering::Relaxed);
    }

    fn note_late(&self) {
        if !self.0.is_late.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "cache_dir does not respond: purges are done, but not recorded there; if the \
                 server is killed before it responds, empty cache_dir before the next start"
            );
        }
    }
}

impl PurgeRecord {
    /// The later one of two.
    pub(super) fn later(self, other: PurgeRecord) -> PurgeRecord {
        if self.number < other.number { other } else { self }
    }

    /// Waits until it is written. False if that takes too long.
    pub async fn written(self, patience: Duration) -> bool {
        let mut recorded = self.journal.0.recorded.subscribe();
        let is_written = recorded.wait_for(|recorded| *recorded >= self.number);
        let is_written = timeout(patience, is_written).await.is_ok_and(|written| written.is_ok());
        if !is_written {
            self.journal.note_late();
        }
        is_written
    }
}

impl Cache {
    /// Records purges from now on, with a thread of its own, which ends with the process: the wait
    /// for the disk has no bound.
    pub fn record_purges(self: &Arc<Cache>) {
        if self.dir.is_none() {
            return;
        }
        let cache = self.clone();
        let begun = thread::Builder::new().name("purges".to_owned()).spawn(move || {
            loop {
                cache.store.await_purges();
                cache.write_purges();
            }
        });
        if let Err(error) = begun {
            tracing::error!(
                "purges are not recorded in cache_dir until the server stops: there is no thread \
                 for that: {error}; restart it"
            );
        }
    }

    fn write_purges(&self) {
        let before = self.store.recorded();
        if let Err(error) = self.store.write_purges() {
            let failure = match self.store.recorded() > before {
                true => UnrecordedPurges::NoJournal,
                false => UnrecordedPurges::IncompleteJournal,
            };
            if self.purge_journal.is_news(failure) {
                log_unwritten(&error, failure);
            }
        }
        self.note_recorded();
    }

    /// Tells those that wait which purges are recorded.
    pub(super) fn note_recorded(&self) {
        self.purge_journal.note(self.store.recorded());
    }
}

fn log_unwritten(error: &io::Error, failure: UnrecordedPurges) {
    let outcome = match failure {
        UnrecordedPurges::NoJournal => "no page there is used after a restart",
        UnrecordedPurges::IncompleteJournal => "empty it before a restart",
    };
    tracing::error!("purges are done but could not be written to cache_dir: {error}; {outcome}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purges_that_cannot_be_recorded_are_logged_once_and_once_more_if_that_becomes_worse() {
        use UnrecordedPurges::{IncompleteJournal, NoJournal};
        let journal = PurgeJournal::default();
        let news = [NoJournal, NoJournal, IncompleteJournal, NoJournal, IncompleteJournal];
        let news = news.map(|failure| journal.is_news(failure));
        assert_eq!(news, [true, false, true, false, false]);
        journal.note(7);
        assert!(!journal.is_news(NoJournal));
        journal.note_complete();
        assert!(journal.is_news(NoJournal));
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_is_not_written_is_waited_for_and_not_for_long() {
        let journal = PurgeJournal::default();
        journal.note(7);
        assert!(journal.record(7).written(PATIENCE).await);
        assert!(!journal.record(8).written(PATIENCE).await);
        let waits = tokio::spawn(journal.record(8).later(journal.record(6)).written(PATIENCE));
        tokio::task::yield_now().await;
        journal.note(6);
        journal.note(9);
        assert!(waits.await.unwrap());
    }
}
