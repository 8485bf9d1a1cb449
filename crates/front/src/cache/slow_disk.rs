//! Use of a slow disk by other threads than the serving ones: by few at a time, and no request
//! waits long for one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Most threads that use it at a time. A disk that does not respond would hold all threads that
/// read bodies and check passwords.
const THREADS: usize = 16;

/// Longest wait of a request for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The turns of a slow disk.
#[derive(Debug)]
pub struct SlowDisk {
    turns: Arc<Semaphore>,
    running: Arc<Mutex<RunningUses>>,
}

/// The uses that run, the oldest first.
#[derive(Debug, Default)]
struct RunningUses {
    next: u64,
    begun: BTreeMap<u64, Instant>,
}

/// One of them, until it ends.
struct RunningUse {
    number: u64,
    all: Arc<Mutex<RunningUses>>,
}

impl RunningUse {
    fn begin(all: &Arc<Mutex<RunningUses>>) -> RunningUse {
        let mut running = all.lock().unwrap_or_else(PoisonError::into_inner);
        let number = running.next;
        running.next += 1;
        running.begun.insert(number, Instant::now());
        RunningUse { number, all: Arc::clone(all) }
    }
}

impl Drop for RunningUse {
    fn drop(&mut self) {
        let mut running = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        running.begun.remove(&self.number);
    }
}

impl Default for SlowDisk {
    fn default() -> SlowDisk {
        SlowDisk { turns: Arc::new(Semaphore::new(THREADS)), running: Arc::default() }
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
        let running = RunningUse::begin(&self.running);
        let working = tokio::task::spawn_blocking(move || {
            let done = work();
            drop((running, turn));
            done
        });
        timeout(PATIENCE, working).await.ok()?.ok()
    }

    /// Whether one of them does not end: the disk is slow, whatever was measured before.
    pub fn is_stuck(&self) -> bool {
        if self.turns.available_permits() == THREADS {
            return false;
        }
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.begun.values().next().is_some_and(|begun| begun.elapsed() >= PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

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
        assert!(!disk.is_stuck());
        assert_eq!(disk.run(|| 7).await, Some(7));
    }
}
