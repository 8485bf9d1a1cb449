//! Counts the requests for keys without an entry (`min_uses`).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use maitred_pagecache::key::Key;

/// Most keys in each of the two tables. When the newer is full, the older is dropped: a key that is
/// requested before that moves to the newer.
const MAX_KEYS: usize = 64 * 1024;

/// The counters.
#[derive(Debug, Default)]
pub struct Uses {
    hasher: RandomState,
    tables: Mutex<[HashMap<u64, u32>; 2]>,
}

impl Uses {
    /// Counts a request, and returns the new count.
    pub fn count(&self, key: &Key) -> u32 {
        let hash = self.hasher.hash_one(key);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let [newer, older] = &mut *tables;
        let before = newer.get(&hash).or_else(|| older.get(&hash)).copied();
        let count = before.unwrap_or(0).saturating_add(1);
        if newer.len() >= MAX_KEYS {
            *older = std::mem::take(newer);
        }
        newer.insert(hash, count);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::key;

    #[test]
    fn uses_are_counted_by_key_and_not_for_ever() {
        let uses = Uses::default();
        assert_eq!(uses.count(&key("a")), 1);
        assert_eq!(uses.count(&key("b")), 1);
        assert_eq!(uses.count(&key("a")), 2);
        for number in 0..3 * MAX_KEYS {
            uses.count(&key(&number.to_string()));
        }
        assert_eq!(uses.count(&key("a")), 1);
        assert!(uses.tables.lock().unwrap()[0].len() <= MAX_KEYS);
    }
}
