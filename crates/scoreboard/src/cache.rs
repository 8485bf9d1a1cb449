//! What is shown of a pool's OPcache.

/// How many words the figures take.
pub const CACHE_WORDS: usize = 9;

/// How an OPcache is doing since its memory was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cache {
    /// Memory that holds something, in bytes.
    pub used_bytes: u64,
    /// Memory that is free, in bytes.
    pub free_bytes: u64,
    /// Memory that held what is outdated, in bytes.
    pub wasted_bytes: u64,
    /// Scripts it holds.
    pub scripts: u64,
    /// Scripts that were wanted and there.
    pub hits: u64,
    /// Scripts that were wanted and not there.
    pub misses: u64,
    /// Times it threw everything away because it was out of memory.
    pub oom_restarts: u64,
    /// Times it did because it was out of keys.
    pub hash_restarts: u64,
    /// Times it did because it was asked to.
    pub manual_restarts: u64,
}

impl Cache {
    pub(crate) fn words(self) -> [u64; CACHE_WORDS] {
        [
            self.used_bytes,
            self.free_bytes,
            self.wasted_bytes,
            self.scripts,
            self.hits,
            self.misses,
            self.oom_restarts,
            self.hash_restarts,
            self.manual_restarts,
        ]
    }

    pub(crate) fn from_words(words: [u64; CACHE_WORDS]) -> Cache {
        let [
            used_bytes,
            free_bytes,
            wasted_bytes,
            scripts,
            hits,
            misses,
            oom_restarts,
            hash_restarts,
            manual_restarts,
        ] = words;
        Cache {
            used_bytes,
            free_bytes,
            wasted_bytes,
            scripts,
            hits,
            misses,
            oom_restarts,
            hash_restarts,
            manual_restarts,
        }
    }
}
