//! What owners share, such as pools the bytes in files of `spool_dir`: each may have as much as
//! would still be free then, or a multiple of it (Choudhury and Hahne, Dynamic Queue Length
//! Thresholds, 1998). So one alone gets a large part, and always leaves some to the next. Pure.

mod budget_part;

use std::collections::BTreeMap;

pub use budget_part::{BudgetPart, GuardedBudget};

/// Units beyond their parts that owners may have together for each unit of the limit. One owner
/// that uses memory which it has already does not reach it; what several have stays bounded.
const MOST_BEYOND: u64 = 2;

/// A limit, and what each owner has of it.
#[derive(Debug, Default)]
pub struct SharedBudget {
    /// None: not known yet, so everything fits.
    limit: Option<u64>,
    /// The parts of all owners.
    parts: u64,
    /// What owners have beyond their parts.
    beyond: u64,
    /// Owners without any are not stored.
    by_owner: BTreeMap<String, OwnerAccount>,
}

/// What an owner has.
#[derive(Debug, Default, Clone, Copy)]
struct OwnerAccount {
    /// Its part, which leaves less to the other owners.
    part: u64,
    /// What it has in any case, beyond its part: it leaves less to this owner alone.
    beyond: u64,
}

impl OwnerAccount {
    fn all(self) -> u64 {
        self.part.saturating_add(self.beyond)
    }
}

impl SharedBudget {
    /// A budget whose limit is not known yet.
    pub const fn unlimited() -> SharedBudget {
        SharedBudget { limit: None, parts: 0, beyond: 0, by_owner: BTreeMap::new() }
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
        self.parts.saturating_add(self.beyond)
    }

    /// What this owner has.
    pub fn used_by(&self, owner: &str) -> u64 {
        self.account(owner).all()
    }

    /// Whether the owner may have this much more; `share`: how much it may have for each unit that
    /// is free.
    pub fn admits(&self, owner: &str, more: u64, share: u64) -> bool {
        let Some(limit) = self.limit else { return true };
        if self.beyond > limit.saturating_mul(MOST_BEYOND) {
            return false;
        }
        let own = self.used_by(owner).saturating_add(more);
        let free = limit.checked_sub(self.parts.saturating_add(more));
        free.is_some_and(|free| own <= free.saturating_mul(share))
    }

    /// Gives the owner this much more, if it may have it.
    #[must_use]
    pub fn take(&mut self, owner: &str, more: u64, share: u64) -> bool {
        let is_admitted = self.admits(owner, more, share);
        if is_admitted {
            self.add(owner, more, share);
        }
        is_admitted
    }

    /// Counts what the owner has in any case. What exceeds the part that it may have leaves nothing
    /// to this owner, and no less to others.
    pub fn add(&mut self, owner: &str, more: u64, share: u64) {
        let mut account = self.account(owner);
        let beyond = account.beyond.saturating_add(more);
        let part = beyond.min(self.largest_part(account.part, share));
        self.beyond = self.beyond.saturating_add(more).saturating_sub(part);
        self.parts = self.parts.saturating_add(part);
        account.part = account.part.saturating_add(part);
        account.beyond = beyond - part;
        self.set_account(owner, account);
    }

    /// Takes back what an owner has, first what is beyond its part.
    pub fn release(&mut self, owner: &str, size: u64) {
        let mut account = self.account(owner);
        let beyond = account.beyond.min(size);
        let part = account.part.min(size - beyond);
        self.beyond = self.beyond.saturating_sub(beyond);
        self.parts = self.parts.saturating_sub(part);
        account.beyond -= beyond;
        account.part -= part;
        self.set_account(owner, account);
    }

    /// The most that an owner with this part may have more of it.
    fn largest_part(&self, part: u64, share: u64) -> u64 {
        let Some(limit) = self.limit else { return u64::MAX };
        let free = limit.saturating_sub(self.parts);
        free.saturating_mul(share).saturating_sub(part) / share.saturating_add(1)
    }

    fn account(&self, owner: &str) -> OwnerAccount {
        self.by_owner.get(owner).copied().unwrap_or_default()
    }

    fn set_account(&mut self, owner: &str, account: OwnerAccount) {
        if account.all() == 0 {
            self.by_owner.remove(owner);
        } else if let Some(own) = self.by_owner.get_mut(owner) {
            *own = account;
        } else {
            self.by_owner.insert(owner.to_owned(), account);
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
    fn what_counts_in_any_case_leaves_nothing_to_its_owner_and_their_parts_to_others() {
        let mut budget = budget(1200);
        assert!(budget.take("a", 600, RESPONSE));
        budget.add("a", 1400, RESPONSE);
        assert_eq!((budget.used(), budget.used_by("a")), (2000, 2000));
        assert!(!budget.admits("a", 0, RESPONSE));
        assert!(budget.take("b", 300, RESPONSE) && budget.take("c", 150, RESPONSE));
        budget.release("a", 1400);
        assert!(budget.used_by("a") == 600 && !budget.admits("d", 76, RESPONSE));
        budget.release("a", 600);
        assert_eq!((budget.used(), budget.by_owner.len()), (450, 2));
    }

    #[test]
    fn what_was_beyond_a_part_belongs_to_it_once_there_is_room() {
        let mut budget = budget(1200);
        for owner in 0..20 {
            fill(&mut budget, &owner.to_string(), RESPONSE);
        }
        budget.add("a", 500, RESPONSE);
        for owner in 0..20 {
            let used = budget.used_by(&owner.to_string());
            budget.release(&owner.to_string(), used);
        }
        assert!(budget.admits("b", 600, RESPONSE), "nothing is in use but by a");
        budget.add("a", 1, RESPONSE);
        assert!(budget.used_by("a") == 501 && !budget.admits("b", 350, RESPONSE));
    }

    #[test]
    fn owners_together_are_bounded_also_beyond_their_parts() {
        let mut budget = budget(100);
        let names = (0..100).map(|number| number.to_string());
        let overrun = names.filter(|owner| {
            let has_room = budget.admits(owner, 0, RESPONSE);
            if has_room {
                budget.add(owner, 100, RESPONSE);
            }
            has_room
        });
        assert_eq!(overrun.count(), 3);
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
