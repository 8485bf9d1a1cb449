//! How many purges the scripts of a pool may request. Each is a record in the journal of all sites,
//! so purges beyond a pool's budget ([`PurgeBudget`]) are carried out as one of all pages of its
//! sites, for which those who request them wait. The supervisor limits what is passed on to other
//! nodes in the same way (`site_budgets.rs`). Pure.

use std::collections::HashMap;
use std::time::Instant;

use maitred_control::purge_budget::PurgeBudget;
pub use maitred_control::purge_budget::{MERGED_EVERY, PURGES_PER_SECOND};

use crate::pool::pool_key::PoolKey;

/// A pool that has purged nothing for long has this many at once.
pub const BURST: u32 = 2048;

/// Bytes of names that one purge is worth. One with more counts as several.
const BYTES_PER_PURGE: usize = 1024;

/// Pools from which on those with a full budget are forgotten: reloads may have removed them.
const FORGET_FROM: usize = 1024;

/// The cost of a purge with names of this many bytes, in purges.
pub fn cost_of(bytes: usize) -> u32 {
    u32::try_from(1 + bytes / BYTES_PER_PURGE).unwrap_or(u32::MAX)
}

/// When a request is carried out.
#[derive(Debug, PartialEq, Eq)]
pub enum Passage<W> {
    /// At once.
    Now(W),
    /// As part of a later purge.
    Merged {
        /// That is to be logged.
        is_news: bool,
    },
}

/// The budgets of all pools, and the requests that wait (`W`), which their senders limit.
#[derive(Debug)]
pub struct PoolBudgets<W>(HashMap<PoolKey, PurgeBudget<Instant, Vec<W>>>);

impl<W> Default for PoolBudgets<W> {
    fn default() -> PoolBudgets<W> {
        PoolBudgets(HashMap::new())
    }
}

impl<W> PoolBudgets<W> {
    /// Spends what a request of a pool costs, in purges, or has it wait if that is too much.
    pub fn pass(&mut self, pool: &PoolKey, cost: u32, request: W, now: Instant) -> Passage<W> {
        if self.0.len() >= FORGET_FROM && !self.0.contains_key(pool) {
            self.0.retain(|_, one| !one.is_full(now));
        }
        let one = self.0.entry(pool.clone()).or_insert_with(|| PurgeBudget::full(now));
        if let Some(waiting) = one.collected_mut() {
            waiting.push(request);
            return Passage::Merged { is_news: false };
        }
        match one.spend(cost, BURST, now) {
            true => Passage::Now(request),
            false => Passage::Merged { is_news: one.collect(vec![request], now) },
        }
    }

    /// Takes the pools of which all pages are to be purged now, with the requests that wait for it.
    pub fn take_due(&mut self, now: Instant) -> Vec<(PoolKey, Vec<W>)> {
        let due = self.0.iter_mut();
        due.filter_map(|(pool, one)| Some((pool.clone(), one.take_due(now)?))).collect()
    }

    /// When the next one is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.values().filter_map(PurgeBudget::due).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use maitred_config::PoolUser;

    use super::*;

    /// Time in which a pool earns a purge, and after which it is logged again.
    const COST: Duration = Duration::from_millis(1000 / PURGES_PER_SECOND as u64);
    const LOG_EVERY: Duration = Duration::from_secs(600);

    fn of_user(uid: u32) -> PoolKey {
        PoolKey { name: "shop".into(), user: PoolUser::Known { uid, gid: 1 } }
    }

    fn is_now(passage: &Passage<u32>) -> bool {
        matches!(passage, Passage::Now(_))
    }

    #[test]
    fn purges_beyond_the_budget_of_a_pool_wait_for_one_of_all_its_pages() {
        let now = Instant::now();
        let mut budgets = PoolBudgets::default();
        for number in 0..BURST {
            assert_eq!(budgets.pass(&of_user(1), 1, number, now), Passage::Now(number));
        }
        assert_eq!(budgets.deadline(), None);
        assert_eq!(budgets.pass(&of_user(1), 1, 7, now), Passage::Merged { is_news: true });
        assert_eq!(budgets.pass(&of_user(1), 1, 8, now), Passage::Merged { is_news: false });
        assert_eq!(
            budgets.pass(&of_user(2), 1, 9, now),
            Passage::Now(9),
            "another pool has its own"
        );
        let due = now + MERGED_EVERY;
        assert_eq!(budgets.deadline(), Some(due));
        assert!(budgets.take_due(due - Duration::from_millis(1)).is_empty());
        assert_eq!(budgets.take_due(due), [(of_user(1), vec![7, 8])]);
        assert!(budgets.take_due(due).is_empty());
        let passed =
            (0..1000).filter(|one| is_now(&budgets.pass(&of_user(1), 1, *one, due))).count();
        assert_eq!(passed, PURGES_PER_SECOND as usize);
        let later = now + LOG_EVERY;
        budgets.take_due(later);
        assert_eq!(
            budgets.pass(&of_user(1), BURST + 1, 0, later),
            Passage::Merged { is_news: true }
        );
    }

    #[test]
    fn long_names_and_many_count_as_several_purges() {
        assert_eq!((cost_of(0), cost_of(1023), cost_of(1024), cost_of(16 << 10)), (1, 1, 2, 17));
        let now = Instant::now();
        let mut budgets = PoolBudgets::default();
        let cost = cost_of(16 << 10);
        let passed =
            (0..1000).filter(|one| is_now(&budgets.pass(&of_user(1), cost, *one, now))).count();
        assert_eq!(passed, (BURST / cost) as usize);
    }

    #[test]
    fn pools_that_are_gone_are_forgotten() {
        let now = Instant::now();
        let mut budgets = PoolBudgets::default();
        for number in 0..10 * u32::try_from(FORGET_FROM).unwrap() {
            let now = now + COST * 2 * number;
            assert!(is_now(&budgets.pass(&of_user(number), 1, 0, now)));
        }
        assert!(budgets.0.len() <= FORGET_FROM);
    }
}
