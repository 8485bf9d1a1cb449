//! What is still to be written of requests whose scripts go on after their answers: counts, and lines of
//! logs. A front does not end before it is.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many tasks of this process have something to write. There are no more than a few for each worker.
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

/// Has a task of this thread write something when a script has ended.
pub fn write(task: impl Future<Output = ()> + Send + 'static) {
    let unsaid = Unsaid::new();
    tokio::spawn(async move {
        task.await;
        drop(unsaid);
    });
}

/// Whether all of it has been written.
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
