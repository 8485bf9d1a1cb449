//! Use of a slow disk by other threads than the serving ones: by few at a time, and no request
//! waits long for one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::cache::running_uses::RunningUses;

/// Most threads that use it at a time. A disk that does not respond would hold all threads that
/// read bodies and check passwords.
const THREADS: usize = 16;

/// Longest wait of a request for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest wait of a request for a large page, which takes long on a fast disk, too.
const LARGE_PATIENCE: Duration = Duration::from_secs(30);

/// The turns of a slow disk.
#[derive(Debug)]
pub struct SlowDisk {
    turns: Arc<Semaphore>,
    running: RunningUses,
}

impl Default for SlowDisk {
    fn default() -> SlowDisk {
        SlowDisk { turns: Arc::new(Semaphore::new(THREADS)), running: RunningUses::default() }
    }
}

impl SlowDisk {
    /// Runs a function that uses the disk. None if all turns are taken, or if it takes too long:
    /// then it ends without the caller.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.turns.clone().try_acquire_owned().ok()?;
        let working = self.start(move || {
            let done = work();
            drop(turn);
            done
        });
        timeout(PATIENCE, working).await.ok()?.ok()
    }

    /// Runs a function that uses a disk for a large page, as long as the disk is not known to be
    /// slow. None if it takes too long: then it ends without the caller.
    pub async fn run_large<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        timeout(LARGE_PATIENCE, self.start(work)).await.ok()?.ok()
    }

    fn start<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let running = self.running.begin();
        spawn_blocking(move || {
            let done = work();
            drop(running);
            done
        })
    }

    /// Whether one of them does not end: the disk is slow, whatever was measured before.
    pub fn is_stuck(&self) -> bool {
        self.running.has_older(PATIENCE)
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
        while disk.turns.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(disk.run(|| 7).await, None, "all turns are taken");
        for one in waiting {
            assert!(one.await.expect("it ends").is_none(), "the disk does not respond");
        }
        assert!(disk.is_stuck());
        drop(release);
        while disk.turns.available_permits() < THREADS {
            tokio::task::yield_now().await;
        }
        while disk.is_stuck() {
            tokio::task::yield_now().await;
        }
        assert_eq!(disk.run(|| 7).await, Some(7));
    }
}
