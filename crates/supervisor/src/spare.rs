//! Pools with `pm = "ondemand"` whose PHP stays started while they have no worker: those that were asked
//! last, since they are the likeliest to be asked next. php-fpm holds a PHP that has started in any case,
//! one for all pools.

use std::cmp::Reverse;

use crate::limits::Moment;
use crate::pool;
use crate::run::Supervisor;

impl Supervisor {
    /// Has zygotes kept, and others rest.
    pub(crate) fn keep_spare_zygotes(&mut self) {
        if self.phase.is_start() || !self.phase.wants_workers() {
            return;
        }
        let may_rest = |pool: &crate::run::RunningPool| pool.is_current() && pool.pool.may_rest();
        let resting = self.pools.iter().enumerate();
        let resting = resting.filter(|(_, pool)| may_rest(pool));
        let asked: Vec<(usize, Option<Moment>)> = resting
            .map(|(index, pool)| (index, pool.pool.asked_at()))
            .collect();
        let kept = kept(&asked, self.plan.config.spare_zygotes as usize);
        for (index, _) in asked {
            if self.pools[index].pool.keep_zygote(kept.contains(&index)) {
                self.pool_event(index, pool::Event::Tick);
            }
        }
    }
}

/// Which of the pools with these numbers, each asked last at that time, are kept ready: `most` of them. Of
/// those that nobody has asked, the first.
fn kept(asked: &[(usize, Option<Moment>)], most: usize) -> Vec<usize> {
    let mut all = asked.to_vec();
    all.sort_by_key(|(index, asked_at)| (Reverse(*asked_at), *index));
    all.truncate(most);
    all.into_iter().map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_are_kept_that_were_asked_last_and_before_anybody_asks_the_first() {
        let at = |seconds| Some(Moment::from_secs(seconds));
        let pools = [(0, None), (1, at(5)), (3, None), (4, at(9))];
        assert!(kept(&pools, 0).is_empty());
        assert_eq!(kept(&pools, 1), [4]);
        assert_eq!(kept(&pools, 3), [4, 1, 0]);
        assert_eq!(kept(&pools, 9), [4, 1, 0, 3]);
    }
}
