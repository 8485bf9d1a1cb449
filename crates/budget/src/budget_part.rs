//! A budget of several threads, whose parts are given back when they are dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::SharedBudget;

/// The budget.
#[derive(Debug)]
pub struct GuardedBudget {
    budget: Mutex<SharedBudget>,
    share: u64,
}

/// A part of it, until it is dropped.
#[derive(Debug)]
pub struct BudgetPart {
    budget: Arc<GuardedBudget>,
    owner: Box<str>,
    size: u64,
}

impl GuardedBudget {
    /// A budget of which all owners together may have `most`, and each `share` for each unit that
    /// is free.
    pub fn new(most: u64, share: u64) -> Arc<GuardedBudget> {
        let mut budget = SharedBudget::default();
        budget.limit_to(most);
        Arc::new(GuardedBudget { budget: Mutex::new(budget), share })
    }

    /// Sets the most that all owners may have together. What is in use beyond it stays.
    pub fn limit_to(&self, most: u64) {
        self.lock().limit_to(most);
    }

    /// Whether the owner may have this much more, if it may have `share` for each unit that is
    /// free.
    pub fn admits(&self, owner: &str, more: u64, share: u64) -> bool {
        self.lock().admits(owner, more, share)
    }

    /// A part of this size, if the owner may have it.
    pub fn take(self: &Arc<GuardedBudget>, owner: &str, size: u64) -> Option<BudgetPart> {
        let is_taken = self.lock().take(owner, size, self.share);
        is_taken.then(|| BudgetPart { budget: self.clone(), owner: owner.into(), size })
    }

    /// What the owner has in any case: what exceeds its part leaves less to this owner alone.
    pub fn add(self: &Arc<GuardedBudget>, owner: &str, size: u64) -> BudgetPart {
        self.lock().add(owner, size, self.share);
        BudgetPart { budget: self.clone(), owner: owner.into(), size }
    }

    /// What all owners have.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    fn lock(&self) -> MutexGuard<'_, SharedBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BudgetPart {
    fn drop(&mut self) {
        self.budget.lock().release(&self.owner, self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_given_back_when_they_are_dropped_however_they_were_taken() {
        let budget = GuardedBudget::new(100, 1);
        let parts: Vec<_> = (0..100).map_while(|_| budget.take("a", 10)).collect();
        assert_eq!(parts.len(), 5);
        assert!(budget.take("b", 20).is_some() && budget.admits("b", 20, 1));
        let more = budget.add("a", 10);
        assert!(!budget.admits("a", 0, 1));
        drop((parts, more));
        assert_eq!(budget.used(), 0);
        budget.limit_to(10);
        assert!(budget.admits("a", 5, 1) && !budget.admits("a", 6, 1));
    }
}
