//! The entries that were read last, to recognise them in a new era.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::log_entry::EntryId;

/// Most entries that are remembered.
const MAX_KNOWN: usize = 4096;

/// The entries that were read last.
#[derive(Debug, Default)]
pub struct KnownEntries {
    order: VecDeque<(EntryId, u64)>,
    all: HashSet<(EntryId, u64)>,
}

impl KnownEntries {
    /// Adds an entry. Returns whether it was unknown.
    pub fn add(&mut self, id: EntryId, token: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        token.hash(&mut hasher);
        let entry = (id, hasher.finish());
        if !self.all.insert(entry) {
            return false;
        }
        self.order.push_back(entry);
        if self.order.len() > MAX_KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
        true
    }
}
