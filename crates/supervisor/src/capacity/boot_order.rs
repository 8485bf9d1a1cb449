//! Which pools start PHP first. A server of hundreds of pools would start all of them at once, and
//! the first request of each would wait for all. So few start at a time: those that have been
//! requested, then the others in their order.

use std::time::Duration;

use crate::limits::Moment;
use crate::processes::pools::{PoolId, Pools};

/// Zygotes that start at a time, for each core.
const STARTING_PER_CORE: usize = 2;

/// The same at least.
const STARTING_MIN: usize = 4;

/// A zygote that takes longer to start does not delay the others.
const STARTS_WITHIN: Duration = Duration::from_secs(1);

/// A generation whose zygote is to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// It has had no request. Those that were requested come first,
    is_unasked: bool,
    /// and of these the one that was requested first.
    asked_at: Option<Moment>,
    id: PoolId,
}

/// Holds the starts of all zygotes back but those whose turn it is. `cores`: of this machine.
pub fn hold_starts(pools: &mut Pools, cores: usize, now: Moment) {
    let starting = pools.iter().filter_map(|pool| pool.state.starts_since());
    let free = free_starts(starting, cores, now);
    let waiting: Vec<Candidate> = pools
        .iter()
        .filter(|pool| pool.state.waits_to_start(now))
        .map(|pool| {
            let asked_at = pool.state.asked_at();
            Candidate { is_unasked: asked_at.is_none(), asked_at, id: pool.id() }
        })
        .collect();
    let first = first(waiting.clone(), free);
    for pool in &mut *pools {
        pool.state.hold_start(false);
    }
    for Candidate { id, .. } in waiting {
        pools[id].state.hold_start(!first.contains(&id));
    }
}

/// Holds the starts of all zygotes back, also of those that end from now on.
pub fn hold_all(pools: &mut Pools) {
    for pool in pools {
        pool.state.hold_start(true);
    }
}

/// When a zygote that starts does not delay the others any more.
pub fn deadline(pools: &Pools, now: Moment) -> Option<Moment> {
    if !pools.iter().any(|pool| pool.state.is_held()) {
        return None;
    }
    let starting = pools.iter().filter_map(|pool| pool.state.starts_since());
    starting.map(|since| since + STARTS_WITHIN).filter(|until| *until > now).min()
}

/// How many zygotes may start beside those that have been `starting` since these moments.
fn free_starts(starting: impl Iterator<Item = Moment>, cores: usize, now: Moment) -> usize {
    let recent = starting.filter(|since| now < *since + STARTS_WITHIN);
    let most = (cores * STARTING_PER_CORE).max(STARTING_MIN);
    most.saturating_sub(recent.count())
}

/// The first `most` of these.
fn first(mut waiting: Vec<Candidate>, most: usize) -> Vec<PoolId> {
    waiting.sort();
    waiting.truncate(most);
    waiting.into_iter().map(|one| one.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_start_at_a_time_and_one_that_hangs_delays_no_other() {
        let free = |starting: &[u64], cores| {
            let starting = starting.iter().map(|since| Moment::from_millis(*since));
            free_starts(starting, cores, Moment::from_millis(2500))
        };
        assert_eq!((free(&[], 1), free(&[], 8)), (STARTING_MIN, 16));
        assert_eq!(free(&[2400, 2400, 2000, 2499], 1), 0);
        assert_eq!(free(&[2400, 1500, 1000, 0], 1), 3, "all but the first hang");
        assert_eq!(free(&[2400; 9], 1), 0);
    }

    #[test]
    fn those_that_were_requested_start_first() {
        let candidate = |number, asked_at: Option<u64>| Candidate {
            is_unasked: asked_at.is_none(),
            asked_at: asked_at.map(Moment::from_secs),
            id: PoolId::of(number),
        };
        let waiting = vec![
            candidate(1, None),
            candidate(2, None),
            candidate(3, Some(9)),
            candidate(4, Some(5)),
        ];
        assert!(first(waiting.clone(), 0).is_empty());
        assert_eq!(first(waiting.clone(), 3), [4, 3, 1].map(PoolId::of));
        assert_eq!(first(waiting, 9), [4, 3, 1, 2].map(PoolId::of));
    }
}
