//! Use of a slow disk by other threads than the serving ones: by few at a time, and no request
//! waits long for one.

use std::sync::Arc;
use std::time::Duration;

use maitred_budget::GuardedBudget;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::cache::running_uses::RunningUses;

/// Most threads that use it at a time. A disk that does not respond would hold all threads that
/// read bodies and check passwords.
const THREADS: usize = 16;

/// Longest wait of a request for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most threads that read and write large pages at a time, on a disk that is not known to be slow:
/// a quarter of all that block. One site alone may have half of them.
const LARGE_THREADS: usize = 128;

/// Threads for large pages that a site may have for each one that is free.
const LARGE_SHARE: u64 = 1;

/// Longest wait of a request for a large page, which takes long on a fast disk, too.
const LARGE_PATIENCE: Duration = Duration::from_secs(30);

/// The turns of a slow disk.
#[derive(Debug)]
pub struct SlowDisk {
    turns: DiskTurns,
    large: DiskTurns,
    large_by_site: Arc<GuardedBudget>,
}

/// A limited number of uses at a time.
#[derive(Debug)]
struct DiskTurns {
    free: Arc<Semaphore>,
    running: RunningUses,
    patience: Duration,
}

impl Default for SlowDisk {
    fn default() -> SlowDisk {
        SlowDisk {
            turns: DiskTurns::new(THREADS, PATIENCE),
            large: DiskTurns::new(LARGE_THREADS, LARGE_PATIENCE),
            large_by_site: GuardedBudget::new(LARGE_THREADS as u64, LARGE_SHARE),
        }
    }
}

impl SlowDisk {
    /// Runs a function that uses the disk. None if all turns are taken, or if it takes too long:
    /// then it ends without the caller.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.turns.run(work).await
    }

    /// The same for a large page of the site with this key, as long as the disk is not known to be
    /// slow.
    pub async fn run_large<T: Send + 'static>(
        &self,
        site_key: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.large_by_site.take(site_key, 1)?;
        let work = move || {
            let done = work();
            drop(turn);
            done
        };
        self.large.run(work).await
    }

    /// Starts a function that uses the disk. False if all turns are taken.
    pub fn try_start(&self, work: impl FnOnce() + Send + 'static) -> bool {
        self.turns.start(work).is_some()
    }

    /// Whether one of them does not end: the disk is slow, whatever was measured before.
    pub fn is_stuck(&self) -> bool {
        self.turns.is_stuck() || self.large.is_stuck()
    }
}

impl DiskTurns {
    fn new(threads: usize, patience: Duration) -> DiskTurns {
        let free = Arc::new(Semaphore::new(threads));
        DiskTurns { free, running: RunningUses::default(), patience }
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        timeout(self.patience, self.start(work)?).await.ok()?.ok()
    }

    fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<JoinHandle<T>> {
        let turn = self.free.clone().try_acquire_owned().ok()?;
        let running = self.running.begin();
        Some(spawn_blocking(move || {
            let done = work();
            drop((running, turn));
            done
        }))
    }

    fn is_stuck(&self) -> bool {
        self.running.has_older(self.patience)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    #[tokio::test]
    async fn few_threads_use_a_disk_that_does_not_respond_and_nothing_waits_long() {
        let disk = Arc::new(SlowDisk::default());
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        let waiting = (0..THREADS).map(|_| {
            let (disk, stuck) = (disk.clone(), stuck.clone());
            let work = move || stuck.lock().is_ok_and(|one| one.recv().is_ok());
            tokio::spawn(async move { disk.run(work).await })
        });
        let waiting: Vec<_> = waiting.collect();
        while disk.turns.free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(disk.run(|| 7).await, None, "all turns are taken");
        assert!(!disk.try_start(|| ()));
        for one in waiting {
            assert!(one.await.expect("it ends").is_none(), "the disk does not respond");
        }
        assert!(disk.is_stuck());
        drop(release);
        while disk.turns.free.available_permits() < THREADS {
            tokio::task::yield_now().await;
        }
        assert!(!disk.is_stuck());
        assert_eq!(disk.run(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn large_pages_of_a_site_leave_turns_to_those_of_other_sites() {
        let disk = Arc::new(SlowDisk::default());
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        let large = |site: &'static str| {
            let (disk, stuck) = (disk.clone(), stuck.clone());
            let work = move || stuck.lock().is_ok_and(|one| one.recv().is_ok());
            tokio::spawn(async move { disk.run_large(site, work).await })
        };
        let waiting: Vec<_> = (0..LARGE_THREADS).map(|_| large("a")).collect();
        while waiting.iter().filter(|one| one.is_finished()).count() < LARGE_THREADS / 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(disk.run_large("a", || 7).await, None, "it has half of all turns");
        assert_eq!(disk.run_large("b", || 7).await, Some(7));
        drop(release);
        let mut refused = 0;
        for one in waiting {
            refused += usize::from(one.await.expect("it ends").is_none());
        }
        assert_eq!(refused, LARGE_THREADS / 2);
        assert_eq!(disk.run_large("a", || 7).await, Some(7));
    }
}
