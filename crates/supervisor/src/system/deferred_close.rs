//! Descriptors whose close may wait for as long as a tenant likes. Any owner may drop one anywhere;
//! the process that reads pipes closes them (`processes/pipe_reader.rs`), those of one pool at a
//! time. If too many such processes wait for locks of a pool, the pool is blocked: its descriptors
//! wait, and no more are made for it.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static DEFERRED: Mutex<DeferredCloses> = Mutex::new(DeferredCloses::new());

/// Ends of pipes and sockets that the code of a pool can lock.
#[derive(Debug)]
pub struct PoolEnds {
    /// The pool.
    pub pool: String,
    /// The ends.
    pub ends: Vec<Arc<OwnedFd>>,
}

/// An end that is to be closed.
#[derive(Debug)]
struct DeferredClose {
    pool: String,
    end: Arc<OwnedFd>,
}

/// All of them, the oldest first.
#[derive(Debug)]
struct DeferredCloses {
    waiting: VecDeque<DeferredClose>,
    blocked: BTreeSet<String>,
}

impl DeferredCloses {
    const fn new() -> DeferredCloses {
        DeferredCloses { waiting: VecDeque::new(), blocked: BTreeSet::new() }
    }

    fn add(&mut self, PoolEnds { pool, ends }: PoolEnds) {
        let closes = ends.into_iter().map(|end| DeferredClose { pool: pool.clone(), end });
        self.waiting.extend(closes);
    }

    fn take(&mut self, most: usize) -> Option<PoolEnds> {
        // One that is still to be read is closed afterwards: ours would be the last descriptor.
        let is_free = |one: &DeferredClose| Arc::strong_count(&one.end) == 1;
        let blocked = &self.blocked;
        let mut free = self.waiting.iter().filter(|one| is_free(one));
        let pool = free.find(|one| !blocked.contains(&one.pool))?.pool.clone();
        let (mut ends, mut rest) = (Vec::new(), VecDeque::new());
        for one in std::mem::take(&mut self.waiting) {
            match one.pool == pool && ends.len() < most && is_free(&one) {
                true => ends.push(one.end),
                false => rest.push_back(one),
            }
        }
        self.waiting = rest;
        Some(PoolEnds { pool, ends })
    }

    fn are_waiting(&self) -> bool {
        self.waiting.iter().any(|one| !self.blocked.contains(&one.pool))
    }
}

fn deferred() -> MutexGuard<'static, DeferredCloses> {
    DEFERRED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// These are to be closed by that process.
pub fn close_later(ends: PoolEnds) {
    deferred().add(ends);
}

/// Takes ends that are to be closed, this many at most, all of one pool that is not blocked.
pub fn take(most: usize) -> Option<PoolEnds> {
    deferred().take(most)
}

/// Whether ends of pools that are not blocked are to be closed.
pub fn are_waiting() -> bool {
    deferred().are_waiting()
}

/// These pools are blocked from now on, and no other.
pub fn block(pools: BTreeSet<String>) {
    deferred().blocked = pools;
}

/// Whether this pool is blocked.
pub fn is_blocked(pool: &str) -> bool {
    deferred().blocked.contains(pool)
}

/// Checks that descriptors may be made for this pool.
///
/// # Errors
/// One sentence, if it is blocked.
pub fn check(pool: &str) -> Result<(), String> {
    match is_blocked(pool) {
        false => Ok(()),
        true => Err(format!(
            "programs of pool `{pool}` hold the locks of pipes that are to be closed; end them, \
             and deny the pool's user /dev/fuse and user namespaces"
        )),
    }
}

/// The pools and the descriptors of all that waits, for the next program.
pub fn left() -> Vec<(String, RawFd)> {
    let deferred = deferred();
    deferred.waiting.iter().map(|one| (one.pool.clone(), one.end.as_raw_fd())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/dev/null").unwrap().into())
    }

    fn add(closes: &mut DeferredCloses, pool: &str, ends: usize) {
        closes.add(PoolEnds {
            pool: pool.to_owned(),
            ends: std::iter::repeat_with(end).take(ends).collect(),
        });
    }

    fn taken(closes: &mut DeferredCloses, most: usize) -> Option<(String, usize)> {
        closes.take(most).map(|taken| (taken.pool, taken.ends.len()))
    }

    #[test]
    fn ends_are_taken_by_pool_the_oldest_first_and_those_of_a_blocked_pool_wait() {
        let mut closes = DeferredCloses::new();
        for (pool, ends) in [("bad", 3), ("good", 1), ("bad", 1), ("blocked", 2)] {
            add(&mut closes, pool, ends);
        }
        closes.blocked.insert("blocked".to_owned());
        assert_eq!(taken(&mut closes, 2), Some(("bad".to_owned(), 2)));
        closes.blocked.insert("bad".to_owned());
        assert_eq!(taken(&mut closes, 2), Some(("good".to_owned(), 1)));
        assert_eq!(taken(&mut closes, 2), None);
        assert!(!closes.are_waiting() && closes.waiting.len() == 4);
        closes.blocked.clear();
        assert!(closes.are_waiting());
        assert_eq!(taken(&mut closes, 9), Some(("bad".to_owned(), 2)));
    }

    #[test]
    fn an_end_that_is_still_to_be_read_is_closed_afterwards() {
        let mut closes = DeferredCloses::new();
        let end = end();
        closes.add(PoolEnds { pool: "www".to_owned(), ends: vec![Arc::clone(&end)] });
        assert!(closes.are_waiting() && taken(&mut closes, 1).is_none());
        drop(end);
        assert_eq!(taken(&mut closes, 1), Some(("www".to_owned(), 1)));
    }
}
