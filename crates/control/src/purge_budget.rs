//! How many purges one pool requests, or one site passes on to other nodes: a burst, and then a
//! rate. Those beyond it are collected, and become one purge of all its pages after a while. Pure:
//! the caller provides the time, and what it collects.

use std::ops::Add;
use std::time::Duration;

/// Purges within the budget in a second, in the long run.
pub const PURGES_PER_SECOND: u32 = 50;

/// Time in which one is earned.
const COST: Duration = Duration::from_millis(1000 / PURGES_PER_SECOND as u64);

/// How long purges beyond the budget are collected.
pub const MERGED_EVERY: Duration = Duration::from_secs(1);

/// How often it is logged that a budget is exceeded.
const LOG_EVERY: Duration = Duration::from_secs(600);

/// A budget. `T` is a point in time, `M` what is collected of purges beyond the budget.
#[derive(Debug)]
pub struct PurgeBudget<T, M> {
    /// When all of it is earned again, if no more is spent.
    full_at: T,
    collected: Option<(T, M)>,
    logged: Option<T>,
}

impl<T: Copy + Ord + Add<Duration, Output = T>, M> PurgeBudget<T, M> {
    /// One of which nothing is spent.
    pub fn full(now: T) -> PurgeBudget<T, M> {
        PurgeBudget { full_at: now, collected: None, logged: None }
    }

    /// Spends the cost of `purges`, of which a full budget has `burst`. False: that is too much,
    /// and they are to be collected.
    pub fn spend(&mut self, purges: u32, burst: u32, now: T) -> bool {
        let full_at = self.full_at.max(now) + COST.saturating_mul(purges);
        let is_within = full_at <= now + COST * burst;
        if is_within {
            self.full_at = full_at;
        }
        is_within
    }

    /// What is being collected: further purges belong to it, whatever is earned meanwhile.
    pub fn collected(&self) -> Option<&M> {
        self.collected.as_ref().map(|(_, collected)| collected)
    }

    /// As [`PurgeBudget::collected`], to add to it.
    pub fn collected_mut(&mut self) -> Option<&mut M> {
        self.collected.as_mut().map(|(_, collected)| collected)
    }

    /// Starts to collect. Returns whether that is to be logged.
    pub fn collect(&mut self, first: M, now: T) -> bool {
        self.collected = Some((now + MERGED_EVERY, first));
        let is_news = self.logged.is_none_or(|logged| logged + LOG_EVERY <= now);
        if is_news {
            self.logged = Some(now);
        }
        is_news
    }

    /// Takes what was collected, if its time has come.
    pub fn take_due(&mut self, now: T) -> Option<M> {
        let due = self.collected.take_if(|(due, _)| *due <= now);
        due.map(|(_, collected)| collected)
    }

    /// When that is.
    pub fn due(&self) -> Option<T> {
        self.collected.as_ref().map(|(due, _)| *due)
    }

    /// Whether it is as a new one, except for what was logged.
    pub fn is_full(&self, now: T) -> bool {
        self.full_at <= now && self.collected.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_budget_is_collected_until_it_is_due() {
        let at = Duration::from_secs;
        let mut budget = PurgeBudget::full(at(1));
        assert!(budget.spend(3, 4, at(1)) && budget.spend(1, 4, at(1)));
        assert!(!budget.spend(1, 4, at(1)) && !budget.is_full(at(1)));
        assert!(budget.is_full(at(1) + 4 * COST));
        assert!(budget.collect(vec!["a"], at(1)), "it is logged at first");
        budget.collected_mut().unwrap().push("b");
        assert_eq!((budget.due(), budget.take_due(at(1))), (Some(at(1) + MERGED_EVERY), None));
        assert!(!budget.is_full(at(2)), "something is collected");
        assert_eq!(budget.take_due(at(2)), Some(vec!["a", "b"]));
        assert!(budget.collected().is_none() && budget.is_full(at(2)));
        assert!(!budget.spend(5, 4, at(9)) && !budget.spend(u32::MAX, 4, at(9)));
        assert!(!budget.collect(Vec::new(), at(9)), "and then seldom");
        budget.take_due(at(600));
        assert!(budget.collect(Vec::new(), at(601)));
    }
}
