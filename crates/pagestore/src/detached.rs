//! The memory of pages outside the memory tier: those that clients still read after an eviction or
//! a purge, and those from disk that have no place there. Each site has a part of it.

use std::sync::Arc;

use maitred_budget::{BudgetPart, GuardedBudget};
use maitred_pagecache::key::Key;

/// Bytes that a site may have for each byte that is free.
const SHARE: u64 = 1;

/// Bytes that a site may have for each free one while its pages get a place in the memory tier:
/// large pages outside of it, which have at most [`SHARE`], do not keep small ones from it.
const TIER_SHARE: u64 = 2;

/// The memory of all such pages, by their site.
#[derive(Debug)]
pub struct DetachedMemory(Arc<GuardedBudget>);

impl DetachedMemory {
    /// At most this many bytes.
    pub fn new(most: u64) -> DetachedMemory {
        DetachedMemory(GuardedBudget::new(most, SHARE))
    }

    /// Sets the limit in bytes.
    pub fn limit_to(&self, most: u64) {
        self.0.limit_to(most);
    }

    /// Whether pages of the key's site get a place in the memory tier.
    pub fn has_room(&self, key: &Key) -> bool {
        self.0.admits(&String::from_utf8_lossy(key.site()), 0, TIER_SHARE)
    }

    /// Takes this many bytes for a page, if its site may have them.
    pub fn take(&self, key: &Key, bytes: u64) -> Option<BudgetPart> {
        self.0.take(&String::from_utf8_lossy(key.site()), bytes)
    }

    /// Counts a page that clients read in any case. Beyond its part, the site alone has less.
    pub fn add(&self, key: &Key, bytes: u64) -> BudgetPart {
        self.0.add(&String::from_utf8_lossy(key.site()), bytes)
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.0.used()
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
        let memory = DetachedMemory::new(100);
        let held: Vec<_> = (0..100).map_while(|_| memory.take(&key_of("a"), 10)).collect();
        assert_eq!(held.len(), 5);
        assert!(memory.take(&key_of("b"), 20).is_some());
        let evicted = memory.add(&key_of("a"), 60);
        assert!(!memory.has_room(&key_of("a")) && memory.take(&key_of("a"), 1).is_none());
        assert!(memory.has_room(&key_of("b")) && memory.take(&key_of("b"), 20).is_some());
        drop((held, evicted));
        assert_eq!(memory.used(), 0);
    }
}
