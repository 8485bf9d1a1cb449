//! Requests of which kind hang, so that those of other kinds keep some workers.
//!
//! All who ask what does not answer any more hang. Who hangs leaves its place to another, for as long as there
//! are memory and `max_children` for that; beyond that a pool would serve nobody. So of what it may have
//! at most a part is kept from requests of kinds most of which hang now. What a kind is, whoever asks decides: the
//! server takes the first part of the path.

use std::collections::HashMap;

/// Kinds of those that hang which are told apart; more of them have as many workers as they get.
const KINDS_MOST: usize = 64;

/// What became of requests of a kind counts half when it is known of so many.
const REMEMBERED: f64 = 64.0;

/// The kinds of which some request hangs.
#[derive(Debug, Default)]
pub struct Kinds(HashMap<u64, Record>);

/// What is known of one.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    /// Its requests that have a worker, and those of them that hang.
    held: usize,
    hang: usize,
    /// How many did not hang lately, and how many did.
    well: f64,
    badly: f64,
}

impl Record {
    fn mostly_hangs(&self) -> bool {
        self.badly > self.well
    }

    fn forget_some(&mut self) {
        if self.well + self.badly > REMEMBERED {
            (self.well, self.badly) = (self.well / 2.0, self.badly / 2.0);
        }
    }
}

impl Kinds {
    /// Of all requests that have a worker their kind, and whether they hang.
    pub fn look(&mut self, in_hand: impl Iterator<Item = (u64, bool)>) {
        let before = std::mem::take(&mut self.0);
        let in_hand: Vec<(u64, bool)> = in_hand.collect();
        for (kind, _) in in_hand.iter().filter(|(_, hangs)| *hangs) {
            if self.0.len() < KINDS_MOST || self.0.contains_key(kind) {
                self.0.entry(*kind).or_default().hang += 1;
            }
        }
        for (kind, _) in in_hand {
            if let Some(record) = self.0.get_mut(&kind) {
                record.held += 1;
            }
        }
        for (kind, record) in &mut self.0 {
            let before = before.get(kind).copied().unwrap_or_default();
            let more = record.hang.saturating_sub(before.hang);
            (record.well, record.badly) = (before.well, before.badly + more as f64);
            record.forget_some();
        }
    }

    /// A request of this kind has got a worker.
    pub fn began(&mut self, kind: u64) {
        if let Some(record) = self.0.get_mut(&kind) {
            record.held += 1;
        }
    }

    /// And has ended; `hung`: after it hung.
    pub fn ended(&mut self, kind: u64, hung: bool) {
        let Some(record) = self.0.get_mut(&kind) else {
            return;
        };
        record.held = record.held.saturating_sub(1);
        match hung {
            true => record.hang = record.hang.saturating_sub(1),
            false => record.well += 1.0,
        }
        record.forget_some();
    }

    /// Whether most requests of this kind hang.
    pub fn hangs(&self, kind: u64) -> bool {
        self.0.get(&kind).is_some_and(Record::mostly_hangs)
    }

    /// How many more workers requests of all kinds may have together of which that is so, if they may have
    /// `most`.
    pub fn left(&self, most: usize) -> usize {
        let hang = self.0.values().filter(|record| record.mostly_hangs());
        most.saturating_sub(hang.map(|record| record.held).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD: u64 = 1;
    const ALIVE: u64 = 2;

    fn look(kinds: &mut Kinds, dead: usize, alive: usize) {
        let dead = std::iter::repeat_n((DEAD, true), dead);
        kinds.look(dead.chain(std::iter::repeat_n((ALIVE, false), alive)));
    }

    fn refuses(kinds: &Kinds, kind: u64, most: usize) -> bool {
        kinds.hangs(kind) && kinds.left(most) == 0
    }

    #[test]
    fn who_hangs_gets_no_more_than_it_may_and_others_get_what_they_want() {
        let mut kinds = Kinds::default();
        look(&mut kinds, 2, 1);
        assert!(!refuses(&kinds, DEAD, 3));
        kinds.began(DEAD);
        assert!(refuses(&kinds, DEAD, 3), "two hang, and a third may");
        assert!(!refuses(&kinds, ALIVE, 0) && !refuses(&kinds, 7, 0));
        kinds.ended(DEAD, true);
        assert!(!refuses(&kinds, DEAD, 3));
    }

    #[test]
    fn a_kind_of_which_now_and_then_one_hangs_is_not_held_back() {
        let mut kinds = Kinds::default();
        for hang in 1..=30 {
            look(&mut kinds, hang, 0);
            (0..49).for_each(|_| {
                kinds.began(DEAD);
                kinds.ended(DEAD, false);
            });
        }
        assert!(!refuses(&kinds, DEAD, 8));
    }

    #[test]
    fn when_what_it_asks_for_answers_again_it_is_held_back_no_longer() {
        let mut kinds = Kinds::default();
        look(&mut kinds, 8, 0);
        assert!(refuses(&kinds, DEAD, 8));
        (0..8).for_each(|_| kinds.ended(DEAD, true));
        assert!(!refuses(&kinds, DEAD, 8));
        look(&mut kinds, 0, 3);
        assert!(!refuses(&kinds, DEAD, 0), "none hangs any more");
    }

    #[test]
    fn several_kinds_that_hang_have_together_what_one_may_have() {
        let mut kinds = Kinds::default();
        kinds.look((0..6).map(|number| (number % 3, true)));
        assert!((0..3).all(|kind| refuses(&kinds, kind, 6)));
        assert!(!refuses(&kinds, 1, 7));
    }

    #[test]
    fn of_very_many_kinds_only_some_are_remembered() {
        let mut kinds = Kinds::default();
        kinds.look((0..1000).map(|number| (number, true)));
        assert_eq!(kinds.0.len(), KINDS_MOST);
    }
}
