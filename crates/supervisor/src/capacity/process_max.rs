//! php-fpm's `process.max`: how many workers each pool may have when there is a limit for all
//! together. Pure.
//!
//! php-fpm serves the first pool first, so that a static pool may take all and another never
//! respond. Here no pool has none while another has two: one is reserved for each pool that needs
//! workers, or is at rest and may need one, and the rest is shared one by one.
//!
//! While an older generation of a pool still has workers, the pool keeps as many as it had when the
//! new one took over, and may have one more, as it had while the new one was on trial: each new
//! worker replaces an old one, and the pool never serves with fewer than before. php-fpm, which
//! ends all before it starts any, has no such phase.

/// The demand of a pool.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PoolDemand {
    /// Workers it needs now.
    pub wants: u32,
    /// Its workers, including those that are starting or leaving.
    pub has: u32,
    /// While workers of an older generation are left: how many are reserved for the pool.
    pub moves: Option<u32>,
}

impl PoolDemand {
    /// One beyond its share, while it moves from one generation to the next.
    fn beside(self) -> u32 {
        u32::from(self.moves.is_some())
    }

    /// Workers that no other pool gets: those it has, and those it lacks only until another has
    /// started.
    fn keeps(self) -> u32 {
        let counts = self.has.saturating_sub(self.beside());
        counts.max(self.moves.unwrap_or(0))
    }
}

/// How many workers each pool may have, in the order of `needs`, when all together may have `most`.
/// A pool with more than its share keeps them, and the others get the rest until they have left.
/// One is reserved for idle pools if there are enough for every pool. A pool that moves to a new
/// generation may have one more.
pub fn share(needs: &[PoolDemand], most: u32) -> Vec<u32> {
    let shares = deal(needs, most);
    let kept: u32 = needs.iter().map(|need| need.keeps()).sum();
    let mut free = most.saturating_sub(kept);
    let pairs = needs.iter().zip(shares);
    pairs
        .map(|(need, share)| {
            let more = share.saturating_sub(need.keeps()).min(free);
            free -= more;
            need.keeps() + more + need.beside()
        })
        .collect()
}

/// Shares `most` workers out, one to each pool in turn.
fn deal(needs: &[PoolDemand], most: u32) -> Vec<u32> {
    let pools = u32::try_from(needs.len()).unwrap_or(u32::MAX);
    let keeps_for_all = most >= pools;
    let wants: Vec<u32> =
        needs.iter().map(|need| need.wants.max(u32::from(keeps_for_all))).collect();
    let mut shares = vec![0; needs.len()];
    let mut left = most;
    while left > 0 {
        let hungry = wants.iter().zip(&shares).filter(|(want, share)| want > share);
        let hungry = u32::try_from(hungry.count()).unwrap_or(u32::MAX);
        if hungry == 0 {
            break;
        }
        let round = (left / hungry).max(1);
        for (want, share) in wants.iter().zip(&mut shares) {
            let more = want.saturating_sub(*share).min(round).min(left);
            *share += more;
            left -= more;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn needs(pairs: &[(u32, u32)]) -> Vec<PoolDemand> {
        let need = |&(wants, has)| PoolDemand { wants, has, moves: None };
        pairs.iter().map(need).collect()
    }

    fn moving(wants: u32, has: u32, had: u32) -> PoolDemand {
        PoolDemand { wants, has, moves: Some(had) }
    }

    #[test]
    fn where_there_is_enough_for_all_each_has_what_it_wants() {
        assert_eq!(share(&needs(&[(3, 0), (4, 2)]), 10), [3, 4]);
    }

    #[test]
    fn two_greedy_pools_have_half_each() {
        assert_eq!(share(&needs(&[(10, 0), (10, 0)]), 10), [5, 5]);
    }

    #[test]
    fn a_pool_at_rest_has_one_kept_for_it() {
        assert_eq!(share(&needs(&[(10, 0), (0, 0)]), 4), [3, 1]);
        let greedy = [needs(&[(10, 0)]), needs(&[(0, 0); 9])].concat();
        assert_eq!(share(&greedy, 4)[0], 4, "there is not one for each");
    }

    #[test]
    fn nobody_is_sent_away_and_nobody_gets_what_another_still_has() {
        assert_eq!(share(&needs(&[(10, 10), (5, 0)]), 10), [10, 0]);
        assert_eq!(share(&needs(&[(10, 8), (5, 0)]), 10), [8, 2]);
    }

    #[test]
    fn a_pool_that_moves_has_one_beside_what_it_had_and_nobody_gets_that_meanwhile() {
        assert_eq!(share(&[moving(4, 4, 4)], 4), [5], "the first new one comes");
        assert_eq!(share(&[moving(4, 5, 4)], 4), [5], "no other before one goes");
        assert_eq!(share(&needs(&[(4, 4)]), 4), [4], "it has moved");
        let two = [moving(4, 2, 2), moving(4, 2, 2)];
        assert_eq!(share(&two, 4), [3, 3]);
        for has in 3..=4 {
            let hungry = [needs(&[(9, 1)]), vec![moving(9, has, 3)]].concat();
            assert_eq!(share(&hungry, 4), [1, 4]);
        }
    }

    proptest! {
        #[test]
        fn together_they_never_get_more_than_there_may_be(
            needs in prop::collection::vec(
                (0u32..50, 0u32..20, prop::option::of(0u32..20)), 1..12),
            most in 1u32..100)
        {
            let needs = needs.into_iter();
            let needs: Vec<PoolDemand> = needs
                .map(|(wants, has, moves)| PoolDemand { wants, has, moves })
                .collect();
            let shares = share(&needs, most);
            let keep: u32 = needs.iter().map(|need| need.keeps()).sum();
            let beside: u32 = needs.iter().map(|need| need.beside()).sum();
            prop_assert!(shares.iter().sum::<u32>() <= most.max(keep) + beside);
            for (need, share) in needs.iter().zip(shares) {
                prop_assert!(share >= need.has, "no worker is stopped");
                prop_assert!(share <= need.wants.max(need.keeps()).max(1) + need.beside());
            }
        }

        #[test]
        fn from_nothing_no_pool_goes_without_while_another_has_two(
            wants in prop::collection::vec(0u32..50, 1..12), most in 1u32..100)
        {
            let needs = needs(&wants.iter().map(|&wants| (wants, 0)).collect::<Vec<_>>());
            let shares = share(&needs, most);
            let lacks = needs
                .iter()
                .zip(&shares)
                .any(|(need, share)| need.wants > 0 && *share == 0);
            prop_assert!(!lacks || shares.iter().all(|&share| share <= 1));
        }
    }
}
