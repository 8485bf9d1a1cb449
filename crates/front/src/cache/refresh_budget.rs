//! How many background refreshes run at a time: those of scripts that hang leave some to others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use maitred_budget::SharedBudget;

/// Most background refreshes at a time, of which one backend alone may have half. Pages beyond them
/// stay stale until the next request.
const MAX_REFRESHES: u64 = 1024;

/// Refreshes that a backend may have for each one that is free.
const SHARE: u64 = 1;

/// The background refreshes that run, by the backend of their scripts.
#[derive(Debug)]
pub struct RefreshBudget(Mutex<SharedBudget>);

/// A running refresh.
#[derive(Debug)]
pub struct RunningRefresh {
    budget: Arc<RefreshBudget>,
    backend: String,
}

impl Default for RefreshBudget {
    fn default() -> RefreshBudget {
        let mut budget = SharedBudget::default();
        budget.limit_to(MAX_REFRESHES);
        RefreshBudget(Mutex::new(budget))
    }
}

impl RefreshBudget {
    /// One more refresh by this backend; none if too many run.
    pub fn begin(self: &Arc<RefreshBudget>, backend: String) -> Option<RunningRefresh> {
        let is_admitted = self.lock().take(&backend, 1, SHARE);
        is_admitted.then(|| RunningRefresh { budget: self.clone(), backend })
    }

    fn lock(&self) -> MutexGuard<'_, SharedBudget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningRefresh {
    fn drop(&mut self) {
        self.budget.lock().release(&self.backend, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_whose_refreshes_hang_leave_some_to_others() {
        let budget = Arc::<RefreshBudget>::default();
        let all = |backend: &str| -> Vec<_> {
            (0..2 * MAX_REFRESHES).map_while(|_| budget.begin(backend.to_owned())).collect()
        };
        let hanging = ["pool a", "pool b"].map(all);
        assert_eq!(hanging.each_ref().map(Vec::len), [512, 256]);
        assert!(budget.begin("pool a".to_owned()).is_none());
        assert!(budget.begin("pool c".to_owned()).is_some());
        drop(hanging);
        assert_eq!(all("pool a").len(), 512);
    }
}
