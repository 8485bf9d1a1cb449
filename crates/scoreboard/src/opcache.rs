//! OPcache statistics of a pool.

use crate::word_record::record;

record! {
    /// OPcache statistics since the cache's memory was set up.
    pub struct OpcacheStats {
        /// Memory in use, in bytes.
        pub used_bytes: u64,
        /// Free memory, in bytes.
        pub free_bytes: u64,
        /// Memory of outdated scripts, in bytes.
        pub wasted_bytes: u64,
        /// Cached scripts.
        pub scripts: u64,
        /// Lookups that found their script.
        pub hits: u64,
        /// Lookups that did not.
        pub misses: u64,
        /// Restarts because memory ran out.
        pub oom_restarts: u64,
        /// Restarts because the keys ran out.
        pub hash_restarts: u64,
        /// Restarts that a script requested (`opcache_reset`).
        pub manual_restarts: u64,
    }
}
