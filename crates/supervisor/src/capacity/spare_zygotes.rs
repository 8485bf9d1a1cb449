//! Zygotes kept ready without workers. They belong to pools with `pm = "ondemand"`, or with `pm =
//! "auto"` and `min_spare_servers = 0`. The pools that were requested most recently are preferred,
//! since they are the likeliest to be requested next. php-fpm always keeps one started PHP, which
//! serves all pools.

use std::cmp::Reverse;

use maitred_sizing::memory::Level;

use crate::limits::Moment;
use crate::processes::pools::{PoolId, Pools};

/// Decides which zygotes stay without workers, at most `configured` of them. Returns the pools for
/// which that has changed.
pub fn keep(pools: &mut Pools, configured: u32, level: Level) -> Vec<PoolId> {
    let resting = pools.current().filter(|pool| pool.state.may_rest());
    let resting: Vec<RestingZygote> = resting
        .map(|pool| RestingZygote {
            id: pool.id(),
            asked_at: pool.state.asked_at(),
            has_failed: pool.state.has_failed(),
        })
        .collect();
    let kept = kept(&resting, most_kept(configured as usize, level));
    let ids = resting.iter().map(|one| one.id);
    ids.filter(|id| pools[*id].state.keep_zygote(kept.contains(id))).collect()
}

/// A pool whose zygote may run without workers.
#[derive(Debug, Clone, Copy)]
struct RestingZygote {
    id: PoolId,
    asked_at: Option<Moment>,
    /// Its PHP does not start, so there is no zygote to keep.
    has_failed: bool,
}

/// How many of `configured` may be kept. When memory is so short that workers have to stop, none is
/// kept.
fn most_kept(configured: usize, level: Level) -> usize {
    match level {
        Level::Calm | Level::Careful => configured,
        Level::Short | Level::Out => 0,
    }
}

/// Which of these pools keep their zygotes: `most` of them. Of pools without any request, the first
/// in the configuration.
fn kept(resting: &[RestingZygote], most: usize) -> Vec<PoolId> {
    let mut all: Vec<&RestingZygote> = resting.iter().filter(|pool| !pool.has_failed).collect();
    all.sort_by_key(|pool| (Reverse(pool.asked_at), pool.id));
    all.truncate(most);
    all.into_iter().map(|pool| pool.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_are_kept_that_were_asked_last_and_before_anybody_asks_the_first() {
        let pool = |number, asked_at: Option<u64>| RestingZygote {
            id: PoolId::of(number),
            asked_at: asked_at.map(Moment::from_secs),
            has_failed: false,
        };
        let mut pools = [pool(0, None), pool(1, Some(5)), pool(3, None), pool(4, Some(9))];
        assert!(kept(&pools, 0).is_empty());
        assert_eq!(kept(&pools, 1), [4].map(PoolId::of));
        assert_eq!(kept(&pools, 3), [4, 1, 0].map(PoolId::of));
        assert_eq!(kept(&pools, 9), [4, 1, 0, 3].map(PoolId::of));
        // One whose PHP does not start takes no place of another.
        pools[3].has_failed = true;
        assert_eq!(kept(&pools, 2), [1, 0].map(PoolId::of));
    }

    #[test]
    fn where_memory_is_short_none_is_kept() {
        let levels = [Level::Calm, Level::Careful, Level::Short, Level::Out];
        assert_eq!(levels.map(|level| most_kept(2, level)), [2, 2, 0, 0]);
    }
}
