//! How many bytes all pools and upstream servers together may have in files of `spool_dir`, and
//! each of them: at most as many as would still be free then (Choudhury and Hahne, Dynamic Queue
//! Length Thresholds, 1998). So a few slow clients of one pool get a large part, and always leave
//! space to the next pool. Pure.

use std::collections::BTreeMap;

/// Quarters of the free space of a file system that all spooled bytes may take by default.
const DEFAULT_QUARTERS: u64 = 3;

/// What bytes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoolPurpose {
    /// A response that its client has not read yet. Without space its script waits.
    Response,
    /// The body of a request, which is refused without space: bodies may take more, so that slow
    /// readers of a pool leave space to its uploads.
    Body,
}

impl SpoolPurpose {
    /// Bytes that an owner may have for each byte that is free.
    fn share(self) -> u64 {
        match self {
            SpoolPurpose::Response => 1,
            SpoolPurpose::Body => 4,
        }
    }
}

/// The bytes in files, by their owner: a pool, or an upstream server.
#[derive(Debug, Default)]
pub struct SpoolBudget {
    /// None: not known yet, so everything fits.
    limit: Option<u64>,
    used: u64,
    /// Owners without any are not stored.
    by_owner: BTreeMap<String, u64>,
}

impl SpoolBudget {
    /// Sets the most bytes of all owners together. What is in use beyond it stays.
    pub fn limit_to(&mut self, bytes: u64) {
        self.limit = Some(bytes);
    }

    /// Sets the default limit, by the bytes that the file system has free.
    pub fn limit_by_free(&mut self, free: u64) {
        self.limit_to(free.saturating_add(self.used) / 4 * DEFAULT_QUARTERS);
    }

    /// The limit in bytes, if it is known.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Bytes of all owners.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of this owner.
    pub fn used_by(&self, owner: &str) -> u64 {
        self.by_owner.get(owner).copied().unwrap_or(0)
    }

    /// Whether the owner may have this many bytes more.
    pub fn admits(&self, owner: &str, bytes: u64, purpose: SpoolPurpose) -> bool {
        let Some(limit) = self.limit else { return true };
        let own = self.used_by(owner).saturating_add(bytes);
        let free = limit.checked_sub(self.used.saturating_add(bytes));
        free.is_some_and(|free| own <= free.saturating_mul(purpose.share()))
    }

    /// Gives the owner this many bytes more, if it may have them.
    #[must_use]
    pub fn take(&mut self, owner: &str, bytes: u64, purpose: SpoolPurpose) -> bool {
        if !self.admits(owner, bytes, purpose) {
            return false;
        }
        self.used = self.used.saturating_add(bytes);
        match self.by_owner.get_mut(owner) {
            Some(own) => *own = own.saturating_add(bytes),
            None => {
                self.by_owner.insert(owner.to_owned(), bytes);
            }
        }
        true
    }

    /// Takes bytes back from their owner.
    pub fn release(&mut self, owner: &str, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        if let Some(own) = self.by_owner.get_mut(owner) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                self.by_owner.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SpoolPurpose::{Body, Response};
    use super::*;

    fn budget(limit: u64) -> SpoolBudget {
        let mut budget = SpoolBudget::default();
        budget.limit_to(limit);
        budget
    }

    /// Takes bytes one by one, as many as there are.
    fn fill(budget: &mut SpoolBudget, owner: &str, purpose: SpoolPurpose) -> u64 {
        (0..1_000_000).take_while(|_| budget.take(owner, 1, purpose)).count() as u64
    }

    #[test]
    fn a_pool_alone_has_half_and_leaves_space_to_the_next_ones() {
        let mut budget = budget(1200);
        assert_eq!(fill(&mut budget, "a", Response), 600);
        assert_eq!(fill(&mut budget, "b", Response), 300);
        assert_eq!(fill(&mut budget, "c", Response), 150);
        assert_eq!(fill(&mut budget, "a", Response), 0);
        assert_eq!((budget.used(), budget.used_by("b")), (1050, 300));
    }

    #[test]
    fn bodies_have_space_where_responses_have_none_left() {
        let mut budget = budget(1200);
        assert_eq!(fill(&mut budget, "a", Response), 600);
        assert_eq!(fill(&mut budget, "a", Body), 360);
        assert!(!budget.admits("a", 1, Response) && budget.admits("b", 120, Response));
    }

    #[test]
    fn many_owners_together_stay_within_the_limit() {
        let mut budget = budget(100_000);
        for owner in 0..1000 {
            fill(&mut budget, &owner.to_string(), Body);
        }
        assert!(budget.used() <= 100_000, "{}", budget.used());
        assert!(!budget.take("large", u64::MAX, Body));
    }

    #[test]
    fn what_is_released_can_be_had_again_and_by_others() {
        let mut budget = budget(1000);
        assert!(budget.take("a", 500, Response) && !budget.take("a", 1, Response));
        assert!(!budget.take("b", 251, Response));
        budget.release("a", 500);
        assert_eq!((budget.used(), budget.by_owner.len()), (0, 0));
        assert!(budget.take("b", 500, Response));
    }

    #[test]
    fn the_default_is_three_quarters_of_what_is_free_without_spooled_bytes() {
        let mut budget = SpoolBudget::default();
        assert!(budget.take("a", 400, Response), "nothing is known yet");
        budget.limit_by_free(600);
        assert_eq!(budget.limit(), Some(750));
        assert!(!budget.admits("a", 1, Response));
        assert!(budget.admits("b", 175, Response) && !budget.admits("b", 176, Response));
    }
}
