//! What owners share, such as pools the bytes in files of `spool_dir`: each may have as much as
//! would still be free then, or a multiple of it (Choudhury and Hahne, Dynamic Queue Length
//! Thresholds, 1998). So one alone gets a large part, and always leaves some to the next. Pure.

mod budget_part;

use std::collections::BTreeMap;

pub use budget_part::{BudgetPart, GuardedBudget};

/// A limit, and what each owner has of it.
#[derive(Debug, Default)]
pub struct SharedBudget {
    /// None: not known yet, so everything fits.
    limit: Option<u64>,
    used: u64,
    /// Owners without any are not stored.
    by_owner: BTreeMap<String, u64>,
}

impl SharedBudget {
    /// A budget whose limit is not known yet.
    pub const fn unlimited() -> SharedBudget {
        SharedBudget { limit: None, used: 0, by_owner: BTreeMap::new() }
    }

    /// Sets the most that all owners may have together. What is in use beyond it stays.
    pub fn limit_to(&mut self, most: u64) {
        self.limit = Some(most);
    }

    /// The limit, if it is known.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// What all owners have.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// What this owner has.
    pub fn used_by(&self, owner: &str) -> u64 {
        self.by_owner.get(owner).copied().unwrap_or(0)
    }

    /// Whether the owner may have this much more; `share`: how much it may have for each unit that
    /// is free.
    pub fn admits(&self, owner: &str, more: u64, share: u64) -> bool {
        let Some(limit) = self.limit else { return true };
        let own = self.used_by(owner).saturating_add(more);
        let free = limit.checked_sub(self.used.saturating_add(more));
        free.is_some_and(|free| own <= free.saturating_mul(share))
    }

    /// Gives the owner this much more, if it may have it.
    #[must_use]
    pub fn take(&mut self, owner: &str, more: u64, share: u64) -> bool {
        let is_admitted = self.admits(owner, more, share);
        if is_admitted {
            self.add(owner, more);
        }
        is_admitted
    }

    /// Counts what the owner has in any case, also beyond the limit.
    pub fn add(&mut self, owner: &str, more: u64) {
        self.used = self.used.saturating_add(more);
        match self.by_owner.get_mut(owner) {
            Some(own) => *own = own.saturating_add(more),
            None => {
                self.by_owner.insert(owner.to_owned(), more);
            }
        }
    }

    /// Takes a part back from its owner.
    pub fn release(&mut self, owner: &str, part: u64) {
        self.used = self.used.saturating_sub(part);
        if let Some(own) = self.by_owner.get_mut(owner) {
            *own = own.saturating_sub(part);
            if *own == 0 {
                self.by_owner.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares of responses and of bodies in `spool_dir`.
    const RESPONSE: u64 = 1;
    const BODY: u64 = 4;

    fn budget(limit: u64) -> SharedBudget {
        let mut budget = SharedBudget::default();
        budget.limit_to(limit);
        budget
    }

    /// Takes one after the other, as many as there are.
    fn fill(budget: &mut SharedBudget, owner: &str, share: u64) -> u64 {
        (0..1_000_000).take_while(|_| budget.take(owner, 1, share)).count() as u64
    }

    #[test]
    fn an_owner_alone_has_half_and_leaves_some_to_the_next_ones() {
        let mut budget = budget(1200);
        assert_eq!(fill(&mut budget, "a", RESPONSE), 600);
        assert_eq!(fill(&mut budget, "b", RESPONSE), 300);
        assert_eq!(fill(&mut budget, "c", RESPONSE), 150);
        assert_eq!(fill(&mut budget, "a", RESPONSE), 0);
        assert_eq!((budget.used(), budget.used_by("b")), (1050, 300));
    }

    #[test]
    fn a_larger_share_has_some_where_a_smaller_one_has_none_left() {
        let mut budget = budget(1200);
        assert_eq!(fill(&mut budget, "a", RESPONSE), 600);
        assert_eq!(fill(&mut budget, "a", BODY), 360);
        assert!(!budget.admits("a", 1, RESPONSE) && budget.admits("b", 120, RESPONSE));
    }

    #[test]
    fn many_owners_together_stay_within_the_limit() {
        let mut budget = budget(100_000);
        for owner in 0..1000 {
            fill(&mut budget, &owner.to_string(), BODY);
        }
        assert!(budget.used() <= 100_000, "{}", budget.used());
        assert!(!budget.take("large", u64::MAX, BODY));
    }

    #[test]
    fn what_counts_in_any_case_leaves_nothing_to_its_owner_and_a_part_to_others() {
        let mut budget = budget(1200);
        budget.add("a", 700);
        assert!(!budget.admits("a", 0, RESPONSE) && budget.take("b", 250, RESPONSE));
        budget.add("a", 700);
        assert!(!budget.admits("c", 0, RESPONSE));
        budget.release("a", 1400);
        assert_eq!(budget.used(), 250);
    }

    #[test]
    fn what_is_released_can_be_had_again_and_by_others() {
        let mut budget = SharedBudget::default();
        assert!(budget.take("a", 500, RESPONSE), "nothing is known yet");
        budget.limit_to(1000);
        assert!(!budget.take("a", 1, RESPONSE) && !budget.take("b", 251, RESPONSE));
        budget.release("a", 500);
        assert_eq!((budget.used(), budget.by_owner.len()), (0, 0));
        assert!(budget.take("b", 500, RESPONSE));
    }
}
