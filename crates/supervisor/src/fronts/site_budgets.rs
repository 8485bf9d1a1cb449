//! How many purges of a site are passed on to other nodes. The log has a length: a node that was
//! away for more purges drops the pages of all sites, so one site must not fill it. Purges beyond
//! its budget ([`PurgeBudget`]) are passed on as one of all its pages. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use maitred_control::purge::{DroppedPages, PurgeOrder};
use maitred_control::purge_budget::PurgeBudget;
pub use maitred_control::purge_budget::{MERGED_EVERY, PURGES_PER_SECOND};

use crate::limits::Moment;

/// A site that has purged nothing for long has this part of the log at once.
const PART_OF_LOG: u32 = 8;

/// And at least this many purges.
const LEAST_BURST: u32 = 128;

/// Most sites that are counted. A front that reports more is not what it should be.
const MAX_SITES: usize = 16 * 1024;

/// How often those with a full budget are forgotten then, at most.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// When a purge is passed on.
#[derive(Debug, PartialEq, Eq)]
pub enum Passage {
    /// At once.
    Now,
    /// As part of a later one.
    Merged {
        /// The number of that one.
        number: u64,
        /// That is to be logged.
        is_news: bool,
    },
}

#[derive(Debug)]
struct Merged {
    number: u64,
    order: PurgeOrder,
}

/// The budgets of all sites.
#[derive(Debug, Default)]
pub struct SiteBudgets {
    /// Purges of a site that are passed on at once.
    burst: u32,
    sites: BTreeMap<String, PurgeBudget<Moment, Merged>>,
    forgotten: Moment,
}

impl SiteBudgets {
    /// Those for a log of about `length` purges.
    pub fn new(length: u32) -> SiteBudgets {
        let burst = (length / PART_OF_LOG).max(LEAST_BURST);
        SiteBudgets { burst, ..SiteBudgets::default() }
    }

    /// Counts a purge. One of a command has no budget: the operator is no tenant.
    pub fn pass(&mut self, number: u64, order: &PurgeOrder, now: Moment) -> Passage {
        let PurgeOrder::Dropped(dropped) = order else { return Passage::Now };
        let Some(DroppedPages { site, .. }) = dropped.first() else { return Passage::Now };
        if self.sites.len() >= MAX_SITES && self.forgotten + FORGET_EVERY <= now {
            self.forgotten = now;
            self.sites.retain(|_, one| !one.is_full(now));
        }
        if self.sites.len() >= MAX_SITES && !self.sites.contains_key(site) {
            return Passage::Now;
        }
        let one = self.sites.entry(site.clone()).or_insert_with(|| PurgeBudget::full(now));
        if let Some(merged) = one.collected_mut() {
            merged.order = PurgeOrder::merged([&merged.order, order]);
            return Passage::Merged { number: merged.number, is_news: false };
        }
        if one.spend(1, self.burst, now) {
            return Passage::Now;
        }
        let order = PurgeOrder::merged([order]);
        let is_news = one.collect(Merged { number, order }, now);
        Passage::Merged { number, is_news }
    }

    /// Takes the merged purges that are to be passed on now.
    pub fn take_due(&mut self, now: Moment) -> Vec<(u64, PurgeOrder)> {
        let merged = self.sites.values_mut().filter_map(|one| one.take_due(now));
        merged.map(|Merged { number, order }| (number, order)).collect()
    }

    /// When the next one is.
    pub fn deadline(&self) -> Option<Moment> {
        self.sites.values().filter_map(PurgeBudget::due).min()
    }

    /// The merged purges that are passed on later.
    pub fn waiting(&self) -> impl Iterator<Item = &PurgeOrder> {
        self.sites.values().filter_map(|one| Some(&one.collected()?.order))
    }
}

#[cfg(test)]
mod tests {
    use maitred_control::purge::{Purge, PurgeMode};

    use super::*;

    const NOW: Moment = Moment::from_secs(1);
    /// After which it is logged again.
    const LOG_EVERY: Duration = Duration::from_secs(600);

    fn of(site: &str, purge: Purge) -> PurgeOrder {
        let how = PurgeMode::Hard;
        PurgeOrder::Dropped(vec![DroppedPages { site: site.to_owned(), purge, how }])
    }

    fn tag(site: &str) -> PurgeOrder {
        of(site, Purge::Tag("t".to_owned()))
    }

    fn merged(number: u64, is_news: bool) -> Passage {
        Passage::Merged { number, is_news }
    }

    #[test]
    fn a_site_has_a_part_of_the_log_and_more_purges_become_one_each_second() {
        let mut budgets = SiteBudgets::new(16_384);
        for number in 1..=2048 {
            assert_eq!(budgets.pass(number, &tag("a"), NOW), Passage::Now);
        }
        assert_eq!(budgets.pass(2049, &tag("a"), NOW), merged(2049, true));
        let both = vec![tag("a"), tag("b")].into_iter().filter_map(|order| match order {
            PurgeOrder::Dropped(dropped) => Some(dropped),
            _ => None,
        });
        let both = PurgeOrder::Dropped(both.flatten().collect());
        assert_eq!(budgets.pass(2050, &both, NOW), merged(2049, false));
        for others in [tag("b"), PurgeOrder::everything(), PurgeOrder::Dropped(Vec::new())] {
            assert_eq!(budgets.pass(2051, &others, NOW), Passage::Now);
        }
        assert_eq!(budgets.waiting().count(), 1);
        assert_eq!(budgets.deadline(), Some(NOW + MERGED_EVERY));
        assert!(budgets.take_due(NOW + MERGED_EVERY / 2).is_empty());
        let all = PurgeOrder::merged([&tag("a"), &tag("b")]);
        assert_eq!(budgets.take_due(NOW + MERGED_EVERY), [(2049, all)]);
        assert_eq!((budgets.deadline(), budgets.waiting().count()), (None, 0));
        // It has earned some meanwhile.
        let later = NOW + MERGED_EVERY;
        for number in 0..u64::from(PURGES_PER_SECOND) {
            assert_eq!(budgets.pass(3000 + number, &tag("a"), later), Passage::Now);
        }
        assert_eq!(budgets.pass(3050, &tag("a"), later), merged(3050, false));
        budgets.take_due(later + MERGED_EVERY);
        let much_later = NOW + LOG_EVERY;
        for number in 0..2048 {
            assert_eq!(budgets.pass(4000 + number, &tag("a"), much_later), Passage::Now);
        }
        assert_eq!(budgets.pass(7000, &tag("a"), much_later), merged(7000, true));
    }

    #[test]
    fn a_short_log_and_any_number_of_sites_have_their_limits() {
        let mut budgets = SiteBudgets::new(100);
        let passed =
            (0..1000).filter(|number| budgets.pass(*number, &tag("a"), NOW) == Passage::Now);
        assert_eq!(passed.count(), LEAST_BURST as usize);
        for number in 0..2 * MAX_SITES {
            assert_eq!(budgets.pass(1, &tag(&number.to_string()), NOW), Passage::Now);
        }
        assert_eq!(budgets.sites.len(), MAX_SITES);
        budgets.pass(1, &tag("x"), NOW + FORGET_EVERY);
        assert_eq!(budgets.sites.len(), 2, "those with a full budget are forgotten");
    }
}
