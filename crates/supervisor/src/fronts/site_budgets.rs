//! How many purges of a site are passed on to other nodes. The log has a length: a node that was
//! away for more purges drops the pages of all sites, so one site must not fill it. Purges beyond
//! its budget ([`PurgeBudget`]) are passed on as one of all its pages, for which its scripts are
//! responsible. What the methods of clients' requests drop has a budget of its own, and is never
//! one of all pages: any client may post to any URL. Pure.

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

/// What clients change has a half of that at once.
const PART_BY_METHOD: u32 = 2;

/// Most purges by the methods of requests that are passed on together. Further ones stay on this
/// node, which RFC 9111 §4.4 permits.
pub const MAX_COLLECTED: usize = 256;

/// Most bytes of JSON of these purges together: less than a message may have
/// ([`MAX_ORDER_BYTES`](maitred_control::purge_log::MAX_ORDER_BYTES)).
const MAX_COLLECTED_BYTES: usize = 32 * 1024;

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

/// Purges by the methods of requests, each once.
#[derive(Debug)]
struct Collected {
    number: u64,
    order: PurgeOrder,
    /// Bytes of JSON.
    bytes: usize,
}

impl Collected {
    fn of(number: u64, dropped: &[DroppedPages]) -> Collected {
        let mut collected = Collected { number, order: PurgeOrder::Dropped(Vec::new()), bytes: 0 };
        collected.add(dropped);
        collected
    }

    fn add(&mut self, dropped: &[DroppedPages]) {
        let PurgeOrder::Dropped(all) = &mut self.order else { return };
        for one in dropped {
            if all.len() >= MAX_COLLECTED || all.contains(one) {
                continue;
            }
            let bytes = serde_json::to_vec(one).map_or(MAX_COLLECTED_BYTES, |json| json.len());
            if self.bytes + bytes <= MAX_COLLECTED_BYTES {
                self.bytes += bytes;
                all.push(one.clone());
            }
        }
    }
}

/// The budgets of all sites.
#[derive(Debug, Default)]
pub struct SiteBudgets {
    /// Purges of a site that are passed on at once.
    burst: u32,
    sites: Sites<Merged>,
    /// The same for what the methods of requests drop.
    by_method: Sites<Collected>,
}

/// The budgets of sites by name. `M` is what is collected beyond one.
#[derive(Debug)]
struct Sites<M> {
    budgets: BTreeMap<String, PurgeBudget<Moment, M>>,
    forgotten: Moment,
}

impl<M> Default for Sites<M> {
    fn default() -> Sites<M> {
        Sites { budgets: BTreeMap::new(), forgotten: Moment::default() }
    }
}

impl<M> Sites<M> {
    /// The budget of a site. None if there are too many sites.
    fn of(&mut self, site: &str, now: Moment) -> Option<&mut PurgeBudget<Moment, M>> {
        let is_counted = self.budgets.contains_key(site);
        if self.budgets.len() >= MAX_SITES && self.forgotten + FORGET_EVERY <= now {
            self.forgotten = now;
            self.budgets.retain(|_, one| !one.is_full(now));
        }
        if self.budgets.len() >= MAX_SITES && !is_counted {
            return None;
        }
        Some(self.budgets.entry(site.to_owned()).or_insert_with(|| PurgeBudget::full(now)))
    }

    fn take_due(&mut self, now: Moment) -> impl Iterator<Item = M> {
        self.budgets.values_mut().filter_map(move |one| one.take_due(now))
    }

    fn deadline(&self) -> Option<Moment> {
        self.budgets.values().filter_map(PurgeBudget::due).min()
    }

    fn collected(&self) -> impl Iterator<Item = &M> {
        self.budgets.values().filter_map(PurgeBudget::collected)
    }
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
        let Some(one) = self.sites.of(site, now) else { return Passage::Now };
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

    /// Counts a purge that the method of a request causes. Those beyond the budget are passed on
    /// together, each once, as far as they fit.
    pub fn pass_by_method(&mut self, number: u64, order: &PurgeOrder, now: Moment) -> Passage {
        let PurgeOrder::Dropped(dropped) = order else { return Passage::Now };
        let Some(DroppedPages { site, .. }) = dropped.first() else { return Passage::Now };
        let burst = self.burst / PART_BY_METHOD;
        let Some(one) = self.by_method.of(site, now) else { return Passage::Now };
        if let Some(collected) = one.collected_mut() {
            collected.add(dropped);
            return Passage::Merged { number: collected.number, is_news: false };
        }
        if one.spend(1, burst, now) {
            return Passage::Now;
        }
        let is_news = one.collect(Collected::of(number, dropped), now);
        Passage::Merged { number, is_news }
    }

    /// Takes the merged purges that are to be passed on now.
    pub fn take_due(&mut self, now: Moment) -> Vec<(u64, PurgeOrder)> {
        let merged = self.sites.take_due(now).map(|Merged { number, order }| (number, order));
        let collected = self.by_method.take_due(now).map(|one| (one.number, one.order));
        merged.chain(collected).collect()
    }

    /// When the next one is.
    pub fn deadline(&self) -> Option<Moment> {
        [self.sites.deadline(), self.by_method.deadline()].into_iter().flatten().min()
    }

    /// The merged purges that are passed on later.
    pub fn waiting(&self) -> impl Iterator<Item = &PurgeOrder> {
        let merged = self.sites.collected().map(|one| &one.order);
        merged.chain(self.by_method.collected().map(|one| &one.order))
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
        assert_eq!(budgets.sites.budgets.len(), MAX_SITES);
        budgets.pass(1, &tag("x"), NOW + FORGET_EVERY);
        assert_eq!(budgets.sites.budgets.len(), 2, "those with a full budget are forgotten");
    }

    #[test]
    fn what_clients_change_is_never_all_pages_and_takes_nothing_of_the_scripts_budget() {
        let mut budgets = SiteBudgets::new(16_384);
        let url = |target: String| of("a", Purge::Url { host: "a.example".to_owned(), target });
        let page = url("/wp-login.php".to_owned());
        let passed = (0..10_000).filter(|number| {
            let passage = budgets.pass_by_method(*number, &page, NOW);
            assert!(passage == Passage::Now || passage == merged(1024, *number == 1024));
            passage == Passage::Now
        });
        assert_eq!(passed.count(), 1024);
        assert_eq!(budgets.pass(1, &tag("a"), NOW), Passage::Now, "a script's own");
        assert_eq!(budgets.waiting().collect::<Vec<_>>(), [&page]);
        assert_eq!(budgets.deadline(), Some(NOW + MERGED_EVERY));
        assert_eq!(budgets.take_due(NOW + MERGED_EVERY), [(1024, page.clone())]);
        assert_eq!((budgets.deadline(), budgets.waiting().count()), (None, 0));

        // Those of many or of long URLs have bounds.
        for (length, expected) in [(1, MAX_COLLECTED), (4096, 7)] {
            for number in 0..10_000 {
                let target = format!("/{number:0length$}");
                budgets.pass_by_method(number, &url(target), NOW + MERGED_EVERY);
            }
            let due = budgets.take_due(NOW + 2 * MERGED_EVERY);
            let [(_, PurgeOrder::Dropped(dropped))] = &due[..] else { panic!("{due:?}") };
            assert_eq!(dropped.len(), expected);
            assert!(dropped.iter().all(|one| matches!(one.purge, Purge::Url { .. })));
        }
    }
}
