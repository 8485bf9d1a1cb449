//! How much memory the heads of requests in hand may take. A few bytes of HTTP/2 can be a large head
//! (HPACK), and a request may wait for long: for its body, or for a worker.
//!
//! Each connection has a share of its own, so that a flood over some connections has no others refused.
//! What goes beyond that, all connections share, and who finds no room there is refused.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that each connection may hold for its requests in any case.
const OWN_BYTES: usize = 32 * 1024;
/// Why a request is refused for which there is no room.
pub const NO_ROOM: &str =
    "the requests in hand would hold more than `request_memory` with their heads";

/// What all requests in hand hold.
#[derive(Debug, Default)]
pub struct RequestMemory {
    common: AtomicUsize,
    /// Most of it (`request_memory`).
    most: AtomicUsize,
    refused: AtomicU64,
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    memory: &'a RequestMemory,
    bytes: usize,
}

impl RequestMemory {
    /// From now on, connections together may hold so many bytes beyond what each may in any case.
    pub fn limit(&self, bytes: u64) {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.most.store(most, Ordering::Relaxed);
    }

    /// A connection is to hold `after` bytes in place of `before`. False if there is no room.
    #[must_use]
    pub fn grow(&self, before: usize, after: usize) -> bool {
        let more = beyond(after).saturating_sub(beyond(before));
        if more == 0 {
            return true;
        }
        let used = self.common.fetch_add(more, Ordering::Relaxed);
        if used.saturating_add(more) <= self.most.load(Ordering::Relaxed) {
            return true;
        }
        self.common.fetch_sub(more, Ordering::Relaxed);
        false
    }

    /// A connection holds `after` bytes in place of `before`, which were more.
    pub fn shrink(&self, before: usize, after: usize) {
        let less = beyond(before).saturating_sub(beyond(after));
        if less > 0 {
            self.common.fetch_sub(less, Ordering::Relaxed);
        }
    }

    /// Counts `bytes` of the only request of a connection; nothing if there is no room.
    pub fn hold(&self, bytes: usize) -> Option<Held<'_>> {
        let memory = self;
        self.grow(0, bytes).then(|| Held { memory, bytes })
    }

    /// A request was refused because there is no room.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes that connections hold beyond what each may in any case.
    pub fn common_bytes(&self) -> usize {
        self.common.load(Ordering::Relaxed)
    }

    /// Requests that were refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.memory.shrink(self.bytes, 0);
    }
}

fn beyond(bytes: usize) -> usize {
    bytes.saturating_sub(OWN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON_BYTES: usize = 64 * 1024 * 1024;

    fn memory() -> RequestMemory {
        let memory = RequestMemory::default();
        memory.limit(COMMON_BYTES as u64);
        memory
    }

    #[test]
    fn what_each_connection_may_hold_in_any_case_is_not_counted() {
        let memory = memory();
        assert!(memory.grow(0, OWN_BYTES));
        assert_eq!(memory.common_bytes(), 0);
        assert!(memory.grow(OWN_BYTES, OWN_BYTES + 7));
        assert_eq!(memory.common_bytes(), 7);
        memory.shrink(OWN_BYTES + 7, OWN_BYTES - 1);
        assert_eq!(memory.common_bytes(), 0);
    }

    #[test]
    fn one_too_many_is_refused_and_the_others_go_on() {
        let memory = memory();
        let most = memory.hold(OWN_BYTES + COMMON_BYTES);
        assert!(most.is_some());
        assert!(memory.hold(OWN_BYTES + 1).is_none());
        assert!(memory.hold(OWN_BYTES).is_some());
        drop(most);
        assert_eq!(memory.common_bytes(), 0);
        assert!(memory.hold(OWN_BYTES + 1).is_some());
    }
}
