//! How many background refreshes run at a time: those of scripts that hang leave some to others.

use std::sync::Arc;

use maitred_budget::{BudgetPart, GuardedBudget};

/// Most background refreshes at a time, of which one backend alone may have half. Pages beyond them
/// stay stale until the next request.
const MAX_REFRESHES: u64 = 1024;

/// Refreshes that a backend may have for each one that is free.
const SHARE: u64 = 1;

/// The background refreshes that run, by the backend of their scripts.
#[derive(Debug)]
pub struct RefreshBudget(Arc<GuardedBudget>);

impl Default for RefreshBudget {
    fn default() -> RefreshBudget {
        RefreshBudget(GuardedBudget::new(MAX_REFRESHES, SHARE))
    }
}

impl RefreshBudget {
    /// One more refresh by this backend; none if too many run.
    pub fn begin(&self, backend: &str) -> Option<BudgetPart> {
        self.0.take(backend, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_whose_refreshes_hang_leave_some_to_others() {
        let budget = RefreshBudget::default();
        let all = |backend: &str| -> Vec<_> {
            (0..2 * MAX_REFRESHES).map_while(|_| budget.begin(backend)).collect()
        };
        let hanging = ["pool a", "pool b"].map(all);
        assert_eq!(hanging.each_ref().map(Vec::len), [512, 256]);
        assert!(budget.begin("pool a").is_none());
        assert!(budget.begin("pool c").is_some());
        drop(hanging);
        assert_eq!(all("pool a").len(), 512);
    }
}
