//! Limits TLS handshakes in progress to half of all connections, so that clients without a
//! completed handshake leave connections to others. Beyond it, a new handshake aborts the oldest.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// All handshakes of the front.
#[derive(Debug)]
pub struct Handshakes {
    under_way: AtomicUsize,
    most: usize,
    /// The oldest waiter is notified first.
    gives_way: Notify,
}

/// A handshake in progress, until it is dropped.
#[derive(Debug)]
pub struct UnderWay<'a>(&'a Handshakes);

impl Handshakes {
    /// A limit for this number of connections.
    pub fn of(connections: usize) -> Handshakes {
        Handshakes {
            under_way: AtomicUsize::new(0),
            most: (connections / 2).max(1),
            gives_way: Notify::new(),
        }
    }

    /// Starts a handshake. True if there are too many, so that the oldest is aborted.
    pub fn begin(&self) -> (UnderWay<'_>, bool) {
        let is_crowded = self.under_way.fetch_add(1, Ordering::Relaxed) >= self.most;
        if is_crowded {
            self.gives_way.notify_one();
        }
        (UnderWay(self), is_crowded)
    }
}

impl UnderWay<'_> {
    /// Returns when this handshake is to be aborted.
    pub async fn gives_way(&self) {
        self.0.gives_way.notified().await;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn the_oldest_gives_way_to_one_too_many() {
        let all = Arc::new(Handshakes::of(4));
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let all = all.clone();
            waiting.push(tokio::spawn(async move {
                let (handshake, is_crowded) = all.begin();
                assert!(!is_crowded);
                handshake.gives_way().await;
            }));
            tokio::task::yield_now().await;
        }
        let (third, is_crowded) = all.begin();
        assert!(is_crowded);
        waiting.remove(0).await.unwrap();
        assert!(!waiting[0].is_finished());
        drop(third);
        let (_, is_crowded) = all.begin();
        assert!(!is_crowded, "two have gone");
        waiting[0].abort();
    }
}
