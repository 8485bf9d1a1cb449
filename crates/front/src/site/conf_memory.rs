//! The memory for what `.htaccess` files say, in one front thread: each site has some of its own,
//! and more as long as not too many others need more. A site without room has its files read again
//! for each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What each site has, in bytes.
const OWN_BYTES: usize = 1 << 20;

/// Most that a site takes of the common memory, in bytes: a file with thousands of patterns.
const MOST_COMMON_BYTES: usize = 16 << 20;

/// The common memory of all sites, in bytes.
const COMMON_BYTES: usize = 64 << 20;

/// How much of the common memory is in use.
#[derive(Debug, Clone, Default)]
pub struct CommonMemory(Arc<AtomicUsize>);

/// The memory of one site.
#[derive(Debug)]
pub struct ConfMemory {
    bytes: usize,
    common: CommonMemory,
}

impl ConfMemory {
    /// A site that has nothing yet.
    pub fn new(common: &CommonMemory) -> ConfMemory {
        ConfMemory { bytes: 0, common: common.clone() }
    }

    /// Takes memory, if there is room.
    pub fn take(&mut self, bytes: usize) -> bool {
        let (before, after) = (common_part(self.bytes), common_part(self.bytes + bytes));
        let take = |used: usize| {
            let used = used + (after - before);
            (used <= COMMON_BYTES).then_some(used)
        };
        let (ordering, used) = (Ordering::Relaxed, &self.common.0);
        let has_room = after == before
            || (after <= MOST_COMMON_BYTES && used.fetch_update(ordering, ordering, take).is_ok());
        if has_room {
            self.bytes += bytes;
        }
        has_room
    }

    /// Gives memory back.
    pub fn give_back(&mut self, bytes: usize) {
        let before = common_part(self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.common.0.fetch_sub(before - common_part(self.bytes), Ordering::Relaxed);
    }

    /// Gives all of it back.
    pub fn clear(&mut self) {
        self.give_back(self.bytes);
    }
}

impl Drop for ConfMemory {
    fn drop(&mut self) {
        self.clear();
    }
}

fn common_part(bytes: usize) -> usize {
    bytes.saturating_sub(OWN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_that_take_all_common_memory_leave_each_other_site_its_own() {
        let common = CommonMemory::default();
        let mut large: Vec<_> =
            (0..COMMON_BYTES / MOST_COMMON_BYTES).map(|_| ConfMemory::new(&common)).collect();
        for site in &mut large {
            assert!(!site.take(OWN_BYTES + MOST_COMMON_BYTES + 1));
            assert!(site.take(OWN_BYTES + MOST_COMMON_BYTES) && !site.take(1));
        }
        let mut small = ConfMemory::new(&common);
        assert!(small.take(OWN_BYTES) && !small.take(1));
        large[0].give_back(1);
        assert!(small.take(1) && !small.take(1));
        small.give_back(2);
        assert!(large[0].take(1));
        drop(large);
        assert!(small.take(MOST_COMMON_BYTES));
        small.clear();
        assert_eq!(common.0.load(Ordering::Relaxed), 0);
    }
}
