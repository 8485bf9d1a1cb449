//! The memory tier: pages by key, limited by weight.
//!
//! The library was chosen by measurement: on a load with the skew of web pages its hit rate is
//! above that of a simulated LRU and of moka, and a hit costs a tenth of moka's (docs/decisions).

use std::cell::RefCell;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use maitred_pagecache::key::Key;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use crate::body::{Files, HeldBody, weight_in_file};
use crate::detached::DetachedMemory;
use crate::object::{Entry, Object};

/// Memory of a page beside its own bytes: its table slot, reference counters and charge.
const OVERHEAD_BYTES: usize = 320;
/// Expected weight of a page, for the size of the table.
const EXPECTED_BYTES: u64 = 16 * 1024;
/// Most shards. Each has its share of the capacity, and no page may be larger than that, so there
/// are no more shards than processors.
const MAX_SHARDS: usize = 16;
/// The share of a shard's capacity that one page may take, as a divisor.
const LARGEST_PART: u64 = 4;

#[derive(Debug, Clone)]
struct Weight;

impl Weighter<Key, Entry> for Weight {
    fn weight(&self, key: &Key, entry: &Entry) -> u64 {
        weight(key, entry.weight())
    }
}

/// The weight of an entry of this size under a key.
fn weight(key: &Key, bytes: usize) -> u64 {
    (key.as_bytes().len() + bytes + OVERHEAD_BYTES) as u64
}

/// Collects evicted entries, including a replaced one.
#[derive(Debug, Clone, Default)]
struct Evictions;

impl Lifecycle<Key, Entry> for Evictions {
    type RequestState = Vec<(Key, Entry)>;

    fn begin_request(&self) -> Vec<(Key, Entry)> {
        Vec::new()
    }

    fn on_evict(&self, gone: &mut Vec<(Key, Entry)>, key: Key, entry: Entry) {
        gone.push((key, entry));
    }
}

/// The memory tier.
#[derive(Debug)]
pub struct Memory {
    cache: Cache<Key, Entry, Weight, RandomState, Evictions>,
    files: Files,
    detached: DetachedMemory,
    evicted: AtomicU64,
}

impl Memory {
    /// With this capacity in bytes, and at most this many memfds. Pages outside of it have as much
    /// as the capacity until [`DetachedMemory::limit_to`].
    pub fn new(bytes: u64, files: usize) -> Memory {
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = shards.min(MAX_SHARDS);
        let expected = usize::try_from(bytes / EXPECTED_BYTES).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(expected.max(shards))
            .weight_capacity(bytes)
            .build();
        let cache = match options {
            Ok(options) => Cache::with_options(options, Weight, RandomState::new(), Evictions),
            Err(_) => {
                Cache::with(expected.max(shards), bytes, Weight, RandomState::new(), Evictions)
            }
        };
        let detached = DetachedMemory::new(bytes);
        Memory { cache, files: Files::new(files), detached, evicted: AtomicU64::new(0) }
    }

    /// The entry under a key.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        self.cache.get(key)
    }

    /// The memory of pages outside of the tier.
    pub fn detached(&self) -> &DetachedMemory {
        &self.detached
    }

    /// Moves the body of a page that no other thread shares yet into a memfd, if the page then fits
    /// under this key.
    pub fn move_to_memfd(&self, key: &Key, page: &mut Object) {
        let bytes = page.weight() - page.body.weight() + weight_in_file(page.body.len());
        let mut body = page.body.clone();
        if weight(key, bytes) <= self.largest() {
            body = self.files.into_memfd(body);
        }
        page.body = body.into_held();
    }

    /// Stores an entry, if it is not too large, and if clients do not read more pages of its site
    /// that have lost their place than they may.
    pub fn put(&self, key: Key, entry: Entry) -> bool {
        let fits = Weight.weight(&key, &entry) <= self.largest() && self.detached.has_room(&key);
        if !fits {
            self.detach(self.cache.remove(&key));
            return false;
        }
        if let Some(held) = held_by(&entry) {
            held.enter_tier();
        }
        let gone = self.cache.insert_with_lifecycle(key.clone(), entry);
        let others = gone.iter().filter(|(gone, _)| *gone != key).count();
        self.evicted.fetch_add(others as u64, Ordering::Relaxed);
        for gone in gone {
            self.detach(Some(gone));
        }
        true
    }

    /// Charges the site for an entry that has left the tier, if clients read it.
    fn detach(&self, gone: Option<(Key, Entry)>) {
        let Some((key, entry)) = gone else { return };
        let bytes = entry.weight() as u64;
        if let Some(held) = held_by(&entry) {
            drop(entry);
            held.leave_tier(|| self.detached.add(&key, bytes));
        }
    }

    /// Largest weight of a page in bytes.
    pub fn largest(&self) -> u64 {
        self.cache.shard_capacity() / LARGEST_PART
    }

    /// Removes a page.
    pub fn remove(&self, key: &Key, page: &Arc<Object>) {
        self.remove_if(key, |entry| match entry {
            Entry::Page(found) => Arc::ptr_eq(found, page),
            Entry::Varies(_) => false,
        });
    }

    /// Removes the entry of a key if `is_meant` returns true for it.
    pub fn remove_if(&self, key: &Key, is_meant: impl Fn(&Entry) -> bool) {
        self.detach(self.cache.remove_if(key, is_meant));
    }

    /// Removes all entries for which `keep` returns false.
    pub fn retain(&self, keep: impl Fn(&Entry) -> bool) {
        let gone = RefCell::new(Vec::new());
        self.cache.retain(|key, entry| {
            let is_kept = keep(entry);
            if !is_kept {
                gone.borrow_mut().push((key.clone(), entry.clone()));
            }
            is_kept
        });
        for gone in gone.into_inner() {
            self.detach(Some(gone));
        }
    }

    /// The pages that were sent most often, at most `most`, the first one first.
    pub fn top(&self, most: usize) -> Vec<Arc<Object>> {
        let mut top: Vec<Arc<Object>> = Vec::new();
        for (_, entry) in self.cache.iter() {
            let Entry::Page(page) = entry else { continue };
            let least = top.get(most.saturating_sub(1)).map_or(0, |least| least.hits());
            if page.hits() > least {
                let at = top.partition_point(|other| other.hits() >= page.hits());
                top.insert(at, page);
                top.truncate(most);
            }
        }
        top
    }

    /// Whether there is an entry, without counting a use.
    pub fn contains(&self, key: &Key) -> bool {
        self.cache.contains_key(key)
    }

    /// Used bytes.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of evictions.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

/// What the readers of a page's body have.
fn held_by(entry: &Entry) -> Option<Arc<HeldBody>> {
    match entry {
        Entry::Page(page) => page.body.held(),
        Entry::Varies(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::{key, page};

    fn put(memory: &Memory, name: &str, bytes: usize) -> bool {
        let page = page(name, &[], 0, &vec![0; bytes]);
        memory.put(key(name), Entry::Page(Arc::new(page)))
    }

    #[test]
    fn there_is_never_more_than_there_is_room_for() {
        let room = 4 << 20;
        let memory = Memory::new(room, 0);
        for number in 0..5000 {
            put(&memory, &number.to_string(), 1000 + number % 7000);
            assert!(memory.bytes() <= room);
        }
        assert!(memory.evicted() > 3000 && memory.len() > 100);
    }

    #[test]
    fn what_would_need_too_much_of_the_room_is_not_put_there() {
        let memory = Memory::new(1 << 20, 0);
        assert!(put(&memory, "a", 1000));
        let largest = usize::try_from(memory.largest()).unwrap();
        assert!(!put(&memory, "a", largest));
        // What was there before would be out of date.
        assert!(memory.get(&key("a")).is_none());
    }

    #[test]
    fn a_page_that_would_be_too_large_in_a_file_is_put_there_without_one() {
        let memory = Memory::new(16 << 20, 10);
        let largest = usize::try_from(memory.largest()).unwrap();
        let with_body = |bytes| page("a", &[], 0, &vec![0; bytes]);
        let beside = usize::try_from(weight(&key("a"), with_body(0).weight())).unwrap();
        let taken = |bytes| {
            let mut page = with_body(bytes);
            memory.move_to_memfd(&key("a"), &mut page);
            let has_file = page.body.file().is_some();
            (has_file, memory.put(key("a"), Entry::Page(Arc::new(page))))
        };
        let fits = |bytes: &usize| beside + weight_in_file(*bytes) <= largest;
        let most = (0..largest).rev().find(fits).unwrap();
        assert_eq!(taken(most), (true, true));
        assert_eq!(taken(most + 1), (false, true));
        assert_eq!(taken(largest - beside), (false, true));
        assert_eq!(taken(largest - beside + 1), (false, false));
    }

    #[test]
    fn only_the_page_that_is_meant_is_taken_away() {
        let memory = Memory::new(1 << 20, 0);
        put(&memory, "a", 10);
        let Some(Entry::Page(old)) = memory.get(&key("a")) else { panic!() };
        put(&memory, "a", 20);
        memory.remove(&key("a"), &old);
        assert!(memory.contains(&key("a")));
        assert_eq!(memory.evicted(), 0, "it was replaced");
    }
}
