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
/// Descriptors reserved for large files, where there are few.
const FEW_OF_FILES: u64 = 256;
/// Of the descriptors beyond [`FEW`], that many again are reserved: one in this many.
const PART_OF_FILES: u64 = 16;
/// Most descriptors reserved for large files, of all threads together.
const MOST_OF_FILES: u64 = 4096;
/// Of those, files that are only held open may have one in this many.
const PART_OF_HELD: u64 = 2;
/// With upstream servers, transfers may also have one in this many of what is left to connections.
const PART_OF_UPSTREAMS: u64 = 2;
/// Without, one in this many of what is left beyond [`FEW`]: few clients are sent large files at a
/// time, and several of them one file.
const PART_OF_DOWNLOADS: u64 = 4;
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
    /// A site has an upstream server.
    pub has_upstreams: bool,
}

/// The shares of a limit of descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorShares {
    /// Of cached pages.
    pub pages: u64,
    /// Of large files that are held open, as a part of the next.
    pub held: u64,
    /// Of connections to upstream servers, and of all large files that are open.
    pub transfers: u64,
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
        let left = limit.saturating_sub(reserved + files + pages);
        let most = left.saturating_sub(FEWEST_CONNECTIONS);
        let further = match users.has_upstreams {
            true => (left / PART_OF_UPSTREAMS).min(most),
            false => left.saturating_sub(FEW) / PART_OF_DOWNLOADS,
        };
        DescriptorShares {
            pages,
            held: files / PART_OF_HELD,
            transfers: files + further,
            spooled,
            connections: (left - further).max(FEWEST_CONNECTIONS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_POOL: DescriptorUsers =
        DescriptorUsers { threads: 2, pools: 1, workers: 8, has_cache: true, has_upstreams: false };

    #[test]
    fn cached_pages_and_large_files_have_more_descriptors_where_there_are_many() {
        let of = |limit| {
            let shares = DescriptorShares::of(limit, ONE_POOL);
            (shares.pages, shares.held)
        };
        assert_eq!([0, 1024, FEW].map(of), [(0, 128); 3]);
        assert_eq!((of(20_000), of(1 << 20)), ((1988, 625), (4096, 2048)));
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
        let left = 20_000 - 1988 - 1250 - 100 - 1250 - 3600;
        assert_eq!(of(20_000, many), (1250, left - (left - FEW) / 4));
        let endless = DescriptorUsers { workers: u64::MAX, ..many };
        let left = 20_000 - 1988 - 1250 - 100 - 1250 - 5000;
        assert_eq!(of(20_000, endless).1, left - (left - FEW) / 4);
    }

    #[test]
    fn upstream_servers_have_as_many_descriptors_as_connections_do() {
        let users = DescriptorUsers { has_upstreams: true, ..ONE_POOL };
        let of = |limit| {
            let shares = DescriptorShares::of(limit, users);
            (shares.transfers - 2 * shares.held, shares.connections)
        };
        let left = 4096 - 256 - 100 - 256 - 24;
        assert_eq!(of(4096), (left / 2, left / 2));
        assert_eq!((of(600), of(0)), ((24, 64), (0, 64)));
    }
}
