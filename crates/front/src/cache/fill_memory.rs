//! The memory of pages on their way into the cache, whose bodies are collected until they are
//! complete. An upstream server that sends slowly, or never ends a response, would otherwise have
//! as much as its clients like.

use std::sync::{Mutex, MutexGuard, PoisonError};

use maitred_budget::SharedBudget;
use maitred_config::Config;

/// Pages of the largest size that may be on their way at a time, and read at a time, at least.
const LARGEST_AT_A_TIME: u64 = 4;

/// Bytes that a site may have for each byte that is free.
const SHARE: u64 = 1;

/// The bytes of all pages on their way, by their site.
#[derive(Debug, Default)]
pub struct FillMemory(Mutex<SharedBudget>);

/// Bytes that pages may have on their way into the cache, and as much again those that clients
/// read without a place in its memory: as much as `cache_memory`, or a few pages of the largest
/// `max_object_size`.
pub fn beside_tier(config: &Config) -> u64 {
    let caches = config.sites.iter().filter_map(|site| site.cache.as_ref());
    let largest = caches.map(|cache| cache.rules.max_object_size).max().unwrap_or(0);
    largest.saturating_mul(LARGEST_AT_A_TIME).max(config.cache_memory)
}

impl FillMemory {
    /// Sets the limit: [`beside_tier`].
    pub fn follow(&self, config: &Config) {
        self.lock().limit_to(beside_tier(config));
    }

    /// Gives the site this many bytes more, if it may have them.
    #[must_use]
    pub fn take(&self, site: &str, bytes: u64) -> bool {
        self.lock().take(site, bytes, SHARE)
    }

    /// Takes bytes back.
    pub fn release(&self, site: &str, bytes: u64) {
        self.lock().release(site, bytes);
    }

    fn lock(&self) -> MutexGuard<'_, SharedBudget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
