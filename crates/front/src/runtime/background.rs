//! Writes after the response of a request whose script continues: counters and log lines. The front
//! does not exit before they are complete.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tasks of this process with a write ahead. There are at most a few per worker.
static UNSAID: AtomicUsize = AtomicUsize::new(0);

struct Unsaid;

impl Unsaid {
    fn new() -> Unsaid {
        UNSAID.fetch_add(1, Ordering::Relaxed);
        Unsaid
    }
}

impl Drop for Unsaid {
    fn drop(&mut self) {
        UNSAID.fetch_sub(1, Ordering::Release);
    }
}

/// Starts a task on this thread that writes something when a script has ended.
pub fn write(task: impl Future<Output = ()> + Send + 'static) {
    let unsaid = Unsaid::new();
    tokio::spawn(async move {
        task.await;
        drop(unsaid);
    });
}

/// Whether no write is pending.
pub fn is_all_said() -> bool {
    UNSAID.load(Ordering::Acquire) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_to_be_written_is_counted_until_it_has_been() {
        let (ends, ended) = tokio::sync::oneshot::channel::<()>();
        write(async move { drop(ended.await) });
        assert!(!is_all_said());
        drop(ends);
        while !is_all_said() {
            tokio::task::yield_now().await;
        }
    }
}
