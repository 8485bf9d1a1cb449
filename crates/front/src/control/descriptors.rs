//! How the front's descriptors are shared out at its start. Pure.

/// Descriptors reserved for pools, temporary files and the front itself, at least.
const RESERVED: u64 = 256;
/// Descriptors of listeners, logs, channels and threads.
const OF_THE_FRONT: u64 = 100;
/// A pool may have two generations at a time: this many times the descriptors of one are reserved.
const GENERATIONS: u64 = 2;
/// All pools together have at most one descriptor in this many reserved: most pools have fewer
/// workers than they may have.
const PART_OF_POOLS: u64 = 4;
/// Temporary files may have one descriptor in this many.
const PART_OF_SPOOLED: u64 = 16;
/// Descriptors of temporary files where there are few.
const FEW_OF_SPOOLED: u64 = 128;
/// Descriptors reserved for large files that are sent, where there are few.
const FEW_OF_FILES: u64 = 256;
/// Of the descriptors beyond [`FEW`], large files may have one in this many.
const PART_OF_FILES: u64 = 16;
/// Most descriptors of large files, of all threads together.
const MOST_OF_FILES: u64 = 4096;
/// Up to this many descriptors, cached pages have none; of those beyond, they may have one in
/// [`PART_OF_PAGES`], and no more than [`MOST_OF_PAGES`].
const FEW: u64 = 4096;
/// See [`FEW`].
const PART_OF_PAGES: u64 = 8;
/// Most descriptors of cached pages: 200 MB of the smallest that have one.
const MOST_OF_PAGES: u64 = 4096;
/// Connections that are accepted however few descriptors there are.
const FEWEST_CONNECTIONS: u64 = 64;

/// What needs descriptors.
#[derive(Debug, Clone, Copy)]
pub struct DescriptorUsers {
    /// Threads of the front.
    pub threads: u64,
    /// Pools, each of which has two descriptors for each thread.
    pub pools: u64,
    /// Most workers of all pools together, each of which has one.
    pub workers: u64,
    /// A site has a cache.
    pub has_cache: bool,
}

/// The shares of a limit of descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorShares {
    /// Of cached pages.
    pub pages: u64,
    /// Of large files that are sent.
    pub files: u64,
    /// Of temporary files.
    pub spooled: u64,
    /// Of connections.
    pub connections: u64,
}

impl DescriptorShares {
    /// The shares of `limit` descriptors.
    pub fn of(limit: u64, users: DescriptorUsers) -> DescriptorShares {
        let beyond = limit.saturating_sub(FEW);
        let pages = if users.has_cache { (beyond / PART_OF_PAGES).min(MOST_OF_PAGES) } else { 0 };
        let files = (FEW_OF_FILES + beyond / PART_OF_FILES).min(MOST_OF_FILES);
        let spooled = (limit / PART_OF_SPOOLED).max(FEW_OF_SPOOLED);
        let generation =
            users.pools.saturating_mul(2 * users.threads).saturating_add(users.workers);
        let pools = generation.saturating_mul(GENERATIONS).min(limit / PART_OF_POOLS);
        let reserved = RESERVED.max(OF_THE_FRONT + spooled + pools);
        let connections = limit.saturating_sub(reserved + files + pages).max(FEWEST_CONNECTIONS);
        DescriptorShares { pages, files, spooled, connections }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_POOL: DescriptorUsers =
        DescriptorUsers { threads: 2, pools: 1, workers: 8, has_cache: true };

    #[test]
    fn cached_pages_and_large_files_have_more_descriptors_where_there_are_many() {
        let of = |limit| {
            let shares = DescriptorShares::of(limit, ONE_POOL);
            (shares.pages, shares.files)
        };
        assert_eq!([0, 1024, FEW].map(of), [(0, 256); 3]);
        assert_eq!((of(20_000), of(1 << 20)), ((1988, 1250), (4096, 4096)));
        let none = DescriptorUsers { has_cache: false, ..ONE_POOL };
        assert_eq!(DescriptorShares::of(1 << 20, none).pages, 0);
    }

    #[test]
    fn temporary_files_and_many_pools_leave_fewer_descriptors_to_connections() {
        let of = |limit, users| {
            let shares = DescriptorShares::of(limit, users);
            (shares.spooled, shares.connections)
        };
        assert_eq!(of(0, ONE_POOL), (128, 64));
        assert_eq!(of(600, ONE_POOL), (128, 88));
        assert_eq!(of(4096, ONE_POOL), (256, 4096 - 256 - 100 - 256 - 24));
        let many = DescriptorUsers { pools: 300, workers: 600, ..ONE_POOL };
        assert_eq!(of(20_000, many), (1250, 20_000 - 1988 - 1250 - 100 - 1250 - 3600));
        let endless = DescriptorUsers { workers: u64::MAX, ..many };
        assert_eq!(of(20_000, endless).1, 20_000 - 1988 - 1250 - 100 - 1250 - 5000);
    }
}
