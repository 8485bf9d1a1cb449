//! The memory of pages outside the memory tier: those that clients still read after an eviction or
//! a purge, and those from disk that have no place there. Each site has a part of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use maitred_budget::SharedBudget;
use maitred_pagecache::key::Key;

/// Bytes that a site may have for each byte that is free.
const SHARE: u64 = 1;

/// The memory of all such pages, by their site.
#[derive(Debug)]
pub struct DetachedMemory(Mutex<SharedBudget>);

/// A part of it, until it is dropped.
#[derive(Debug)]
pub struct DetachedCharge {
    memory: Arc<DetachedMemory>,
    site: Box<str>,
    bytes: u64,
}

impl DetachedMemory {
    /// At most this many bytes.
    pub fn new(most: u64) -> DetachedMemory {
        let memory = DetachedMemory(Mutex::default());
        memory.limit_to(most);
        memory
    }

    /// Sets the limit in bytes.
    pub fn limit_to(&self, most: u64) {
        self.lock().limit_to(most);
    }

    /// Whether the key's site has any left.
    pub fn has_room(&self, key: &Key) -> bool {
        self.lock().admits(&String::from_utf8_lossy(key.site()), 0, SHARE)
    }

    /// Takes this many bytes for a page, if its site may have them.
    pub fn take(self: &Arc<DetachedMemory>, key: &Key, bytes: u64) -> Option<DetachedCharge> {
        let site = String::from_utf8_lossy(key.site());
        let is_taken = self.lock().take(&site, bytes, SHARE);
        is_taken.then(|| DetachedCharge { memory: self.clone(), site: site.into(), bytes })
    }

    /// Counts a page that clients read in any case.
    pub fn add(self: &Arc<DetachedMemory>, key: &Key, bytes: u64) -> DetachedCharge {
        let site = String::from_utf8_lossy(key.site());
        self.lock().add(&site, bytes);
        DetachedCharge { memory: self.clone(), site: site.into(), bytes }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    fn lock(&self) -> MutexGuard<'_, SharedBudget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DetachedCharge {
    fn drop(&mut self) {
        self.memory.lock().release(&self.site, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(site: &str) -> Key {
        let length = u32::try_from(site.len()).unwrap().to_be_bytes();
        Key::of([&length[..], site.as_bytes()].concat()).unwrap()
    }

    #[test]
    fn pages_of_a_site_that_clients_read_for_long_leave_memory_to_other_sites() {
        let memory = Arc::new(DetachedMemory::new(100));
        let held: Vec<_> = (0..100).map_while(|_| memory.take(&key_of("a"), 10)).collect();
        assert_eq!(held.len(), 5);
        assert!(memory.take(&key_of("b"), 20).is_some() && memory.has_room(&key_of("b")));
        let evicted = memory.add(&key_of("a"), 10);
        assert!(!memory.has_room(&key_of("a")));
        drop((held, evicted));
        assert_eq!(memory.used(), 0);
        assert!(memory.has_room(&key_of("a")));
    }
}
