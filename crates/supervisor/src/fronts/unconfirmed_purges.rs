//! The purges that the process of the purge log has to pass on: if it ends, the next one is sent
//! them again, also that of the next program. Pure.

use std::collections::VecDeque;

use maitred_control::purge::{DroppedPages, PurgeOrder, Target};
use maitred_control::purge_log::MAX_ORDER_BYTES;

/// Most of them. More become one of all pages of their sites.
const MAX_PURGES: usize = 1024;

/// Most bytes of them, about.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of a page or a tag beside its name, about.
const FRAME_BYTES: usize = 64;

#[derive(Debug)]
struct Unconfirmed {
    number: u64,
    order: PurgeOrder,
    /// It was reported that other nodes lack it.
    is_missed: bool,
}

/// The purges, in the order in which the process was sent them.
#[derive(Debug, Default)]
pub struct UnconfirmedPurges {
    purges: VecDeque<Unconfirmed>,
    bytes: usize,
}

impl UnconfirmedPurges {
    /// Those that a previous program has left. Their numbers are the greatest there are.
    pub fn left(orders: Vec<PurgeOrder>) -> UnconfirmedPurges {
        let first = u64::MAX - orders.len() as u64;
        let mut left = UnconfirmedPurges::default();
        for (order, number) in orders.into_iter().zip(first..) {
            // A program before this one has sent longer ones.
            left.add(number, &shortened(order));
        }
        left
    }

    /// The process is sent a purge. Returns whether it has not been sent that before.
    pub fn add(&mut self, number: u64, order: &PurgeOrder) -> bool {
        if self.purges.iter().any(|one| one.number == number) {
            return false;
        }
        self.bytes += bytes_of(order);
        self.purges.push_back(Unconfirmed { number, order: order.clone(), is_missed: false });
        if self.purges.len() > MAX_PURGES || self.bytes > MAX_BYTES {
            let is_missed = self.purges.iter().any(|one| one.is_missed);
            let order = merged(self.purges.iter().map(|one| &one.order));
            self.bytes = bytes_of(&order);
            self.purges = VecDeque::from([Unconfirmed { number, order, is_missed }]);
        }
        true
    }

    /// All other nodes have a purge, or the log does, and so they have those before it.
    pub fn confirmed(&mut self, number: u64) {
        let Some(at) = self.purges.iter().position(|one| one.number == number) else { return };
        for one in self.purges.drain(..=at) {
            self.bytes -= bytes_of(&one.order);
        }
    }

    /// It was reported that other nodes lack a purge.
    pub fn missed(&mut self, number: u64) {
        if let Some(one) = self.purges.iter_mut().find(|one| one.number == number) {
            one.is_missed = true;
        }
    }

    /// How many of them others are known to lack.
    pub fn missed_count(&self) -> usize {
        self.purges.iter().filter(|one| one.is_missed).count()
    }

    /// The purges and their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &PurgeOrder)> {
        self.purges.iter().map(|one| (one.number, &one.order))
    }
}

/// One purge in place of several, which the process of the purge log can be sent.
pub fn merged<'a>(orders: impl Iterator<Item = &'a PurgeOrder>) -> PurgeOrder {
    let order = PurgeOrder::merged(orders);
    if fits(&order) { order } else { PurgeOrder::everything() }
}

/// A purge that fronts and the process of the purge log can be sent: a longer one becomes one of
/// all pages of its sites, or of everything.
pub fn shortened(order: PurgeOrder) -> PurgeOrder {
    if fits(&order) { order } else { merged(std::iter::once(&order)) }
}

/// Whether the process of the purge log can be sent an order, and its log has room for it. One of
/// more than a thousand sites is longer.
fn fits(order: &PurgeOrder) -> bool {
    serde_json::to_vec(order).is_ok_and(|json| json.len() <= MAX_ORDER_BYTES)
}

/// Bytes of a purge, about.
pub fn bytes_of(order: &PurgeOrder) -> usize {
    let of_target = |target: &Target| match target {
        Target::Url(name) | Target::Prefix(name) | Target::Host(name) | Target::Tag(name) => {
            name.len() + FRAME_BYTES
        }
        Target::Everything => FRAME_BYTES,
    };
    let of_pages = |one: &DroppedPages| one.site.len() + one.purge.to_string().len() + FRAME_BYTES;
    match order {
        PurgeOrder::Asked(asked) | PurgeOrder::OfNode(asked) => {
            asked.targets.iter().map(of_target).sum()
        }
        PurgeOrder::Dropped(dropped) => dropped.iter().map(of_pages).sum(),
        PurgeOrder::Company(_) => FRAME_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use maitred_control::purge::{Purge, PurgeMode};

    use super::*;

    #[test]
    fn what_is_merged_of_too_many_sites_for_one_message_is_everything() {
        let mut purges = UnconfirmedPurges::default();
        for number in 0..3000 {
            let site = format!("www.customer-{number:05}.example");
            let dropped = DroppedPages { site, purge: Purge::All, how: PurgeMode::Soft };
            purges.add(number, &PurgeOrder::Dropped(vec![dropped]));
        }
        assert!(purges.iter().all(|(_, order)| fits(order)));
        assert!(purges.iter().any(|(_, order)| *order == PurgeOrder::everything()));
    }

    #[test]
    fn a_purge_that_is_too_long_for_a_message_is_one_of_its_sites_in_the_next_program() {
        let long = order(&"t".repeat(1000), 64);
        assert!(!fits(&long));
        let left = UnconfirmedPurges::left(vec![order("a", 1), long.clone()]);
        let orders: Vec<_> = left.iter().map(|(_, order)| order.clone()).collect();
        assert_eq!(orders, [order("a", 1), PurgeOrder::merged([&long])]);
    }

    fn order(tag: &str, count: usize) -> PurgeOrder {
        let (site, how) = ("a".to_owned(), PurgeMode::Soft);
        let dropped = DroppedPages { site, purge: Purge::Tag(tag.to_owned()), how };
        PurgeOrder::Dropped(vec![dropped; count])
    }

    fn numbers(purges: &UnconfirmedPurges) -> Vec<u64> {
        purges.iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_purge_that_is_confirmed_confirms_those_that_were_sent_before_it() {
        let mut purges = UnconfirmedPurges::left(vec![order("a", 1), order("b", 1)]);
        assert!(purges.add(1, &order("c", 1)) && purges.add(2, &order("d", 1)));
        assert!(!purges.add(1, &order("c", 1)), "it is there");
        assert_eq!(numbers(&purges), [u64::MAX - 2, u64::MAX - 1, 1, 2]);
        purges.missed(u64::MAX - 2);
        purges.missed(1);
        purges.confirmed(7);
        assert_eq!(purges.missed_count(), 2);
        purges.confirmed(u64::MAX - 1);
        assert_eq!((numbers(&purges), purges.missed_count()), (vec![1, 2], 1));
        purges.confirmed(2);
        assert_eq!((numbers(&purges), purges.bytes), (Vec::new(), 0));
    }

    #[test]
    fn too_many_become_one_of_their_sites() {
        let mut all = order("", 1);
        if let PurgeOrder::Dropped(dropped) = &mut all {
            (dropped[0].purge, dropped[0].how) = (Purge::All, PurgeMode::Hard);
        }
        let quarter = MAX_BYTES / 4 / bytes_of(&order("t", 1));
        for (count, of_each) in [(MAX_PURGES as u64, 1), (4, quarter)] {
            let mut purges = UnconfirmedPurges::default();
            for number in 0..count {
                assert!(purges.add(number, &order("t", of_each)));
            }
            assert_eq!(numbers(&purges).len() as u64, count);
            purges.missed(0);
            purges.add(count, &order("t", quarter));
            assert_eq!(purges.iter().collect::<Vec<_>>(), [(count, &all)]);
            assert_eq!((purges.bytes, purges.missed_count()), (bytes_of(&all), 1));
            purges.confirmed(count - 1);
            assert_eq!(numbers(&purges), [count]);
            purges.confirmed(count);
            assert_eq!((numbers(&purges), purges.bytes), (Vec::new(), 0));
        }
    }
}
