//! Kinds of requests that hang, so that other kinds keep some workers.
//!
//! All requests to a service that no longer responds hang. Each occupies a worker while others are
//! started, up to the memory and `max_children`; beyond that a pool would serve no request at all.
//! So kinds of requests that mostly hang now are kept from a part of the possible workers. The
//! caller decides what a kind is: the server uses the first part of the path.

use std::collections::HashMap;

/// Most kinds that are tracked; requests of further ones get any worker.
const KINDS_MOST: usize = 64;

/// Results of a kind weigh half once this many newer ones are known.
const REMEMBERED: f64 = 64.0;

/// Fewer hanging requests are not significant.
const SEVERAL: f64 = 3.0;

/// A kind no longer hangs after this many seconds without a hanging request: those that hang
/// together end together, and the next ones are recognised all the same.
const FORGOTTEN_AFTER: u32 = 60;

/// Others count as getting responses for this many seconds after a request of a kind that does not
/// hang has ended well.
const ANSWERS_FOR: u32 = 10;

/// The kinds with a hanging request, or that mostly hung recently.
#[derive(Debug, Clone, Default)]
pub struct Kinds {
    records: HashMap<u64, Record>,
    /// The time that requests may take without doubt, in seconds, when no kind mostly hung yet.
    believed: f64,
    /// Seconds for which others still count as getting responses.
    answers_for: u32,
}

/// The record of a kind.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    /// Its requests with a worker, and those of them that hang.
    held: usize,
    hang: usize,
    /// Seconds without a hanging request.
    calm: u32,
    /// Recent requests that did not hang, and that did.
    well: f64,
    badly: f64,
}

impl Record {
    fn mostly_hangs(&self) -> bool {
        self.badly > self.well && self.badly >= SEVERAL
    }

    fn forget_some(&mut self) {
        if self.well + self.badly > REMEMBERED {
            (self.well, self.badly) = (self.well / 2.0, self.badly / 2.0);
        }
    }
}

impl Kinds {
    /// All requests with a worker: their kind, and whether they hang. Waits up to `believed`, in
    /// seconds, count as the normal time of requests, also if the kind hangs from now on.
    pub fn look(&mut self, believed: f64, in_hand: impl Iterator<Item = (u64, bool)>) {
        if !self.records.values().any(Record::mostly_hangs) {
            // Responses so far, also of kinds that hang from now on.
            (self.believed, self.answers_for) = (believed, 0);
        }
        let in_hand: Vec<(u64, bool)> = in_hand.collect();
        let before = self.records.clone();
        for record in self.records.values_mut() {
            (record.held, record.hang) = (0, 0);
        }
        for (kind, _) in in_hand.iter().filter(|(_, hangs)| *hangs) {
            if self.records.len() < KINDS_MOST || self.records.contains_key(kind) {
                self.records.entry(*kind).or_default().hang += 1;
            }
        }
        for (kind, _) in in_hand {
            if let Some(record) = self.records.get_mut(&kind) {
                record.held += 1;
            }
        }
        for (kind, record) in &mut self.records {
            let before = before.get(kind).map_or(0, |before| before.hang);
            record.badly += record.hang.saturating_sub(before) as f64;
            record.forget_some();
        }
        self.records.retain(|_, record| record.hang > 0 || record.mostly_hangs());
    }

    /// A second has passed.
    pub fn pass_second(&mut self) {
        self.answers_for = self.answers_for.saturating_sub(1);
        self.records.retain(|_, record| {
            record.calm = match record.hang {
                0 => record.calm + 1,
                _ => 0,
            };
            record.calm < FORGOTTEN_AFTER
        });
    }

    /// Whether no kind is recorded.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// A request of this kind has got a worker.
    pub fn began(&mut self, kind: u64) {
        if let Some(record) = self.records.get_mut(&kind) {
            record.held += 1;
        }
    }

    /// It has lost its worker, without a result.
    pub fn lost(&mut self, kind: u64) {
        if let Some(record) = self.records.get_mut(&kind) {
            record.held = record.held.saturating_sub(1);
        }
    }

    /// It has ended; `hung`: after it hung.
    pub fn ended(&mut self, kind: u64, hung: bool) {
        if !hung && !self.hangs(kind) {
            self.answers_for = ANSWERS_FOR;
        }
        let Some(record) = self.records.get_mut(&kind) else {
            return;
        };
        record.held = record.held.saturating_sub(1);
        if hung {
            record.hang = record.hang.saturating_sub(1)
        } else {
            record.well += 1.0
        }
        record.forget_some();
    }

    /// Whether most requests of this kind hang.
    pub fn hangs(&self, kind: u64) -> bool {
        self.records.get(&kind).is_some_and(Record::mostly_hangs)
    }

    /// Whether some kind mostly hangs while others get responses.
    pub fn others_answer(&self) -> bool {
        self.answers_for > 0 && self.records.values().any(Record::mostly_hangs)
    }

    /// The most seconds for which a hung request of this kind counts as having waited; `None`: its
    /// real time. If a kind hangs and others get responses, its waits are no part of the normal
    /// time of requests: hanging would look normal in the end. If all are slow, that is their time.
    pub fn counts_at_most(&self, kind: u64) -> Option<f64> {
        (self.answers_for > 0 && self.hangs(kind)).then_some(self.believed)
    }

    /// How many more workers requests of all hanging kinds may have together, if they may have
    /// `most`.
    pub fn left(&self, most: usize) -> usize {
        let hang = self.records.values().filter(|record| record.mostly_hangs());
        most.saturating_sub(hang.map(|record| record.held).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD: u64 = 1;
    const ALIVE: u64 = 2;
    const AFTER: f64 = 0.04;

    fn look(kinds: &mut Kinds, dead: usize, alive: usize) {
        let dead = std::iter::repeat_n((DEAD, true), dead);
        kinds.look(AFTER, dead.chain(std::iter::repeat_n((ALIVE, false), alive)));
    }

    fn refuses(kinds: &Kinds, kind: u64, most: usize) -> bool {
        kinds.hangs(kind) && kinds.left(most) == 0
    }

    #[test]
    fn who_hangs_gets_no_more_than_it_may_and_others_get_what_they_want() {
        let mut kinds = Kinds::default();
        look(&mut kinds, 3, 1);
        assert!(!refuses(&kinds, DEAD, 4));
        kinds.began(DEAD);
        assert!(refuses(&kinds, DEAD, 4), "three hang, and a fourth may");
        assert!(!refuses(&kinds, ALIVE, 0) && !refuses(&kinds, 7, 0));
        kinds.ended(DEAD, true);
        assert!(!refuses(&kinds, DEAD, 4));
        kinds.began(DEAD);
        kinds.lost(DEAD);
        assert!(!refuses(&kinds, DEAD, 4), "its worker is another's");
    }

    #[test]
    fn one_that_hangs_says_nothing_of_its_kind() {
        let mut kinds = Kinds::default();
        look(&mut kinds, 2, 0);
        assert!(!refuses(&kinds, DEAD, 0));
    }

    #[test]
    fn those_that_hang_and_end_together_are_remembered_until_others_answer_or_a_time_has_passed() {
        let mut kinds = Kinds::default();
        look(&mut kinds, 8, 0);
        (0..8).for_each(|_| kinds.ended(DEAD, true));
        look(&mut kinds, 0, 3);
        assert!(refuses(&kinds, DEAD, 0), "the next would hang as well");
        assert!(!refuses(&kinds, DEAD, 8), "but some of them may try");
        let mut later = kinds.clone();
        (0..8).for_each(|_| kinds.ended(DEAD, false));
        assert!(!refuses(&kinds, DEAD, 0), "it answers");
        (1..FORGOTTEN_AFTER).for_each(|_| later.pass_second());
        assert!(refuses(&later, DEAD, 0));
        later.pass_second();
        assert!(!refuses(&later, DEAD, 0) && later.is_empty());
    }

    #[test]
    fn who_is_killed_for_hanging_and_followed_by_others_that_do_is_no_reason_to_forget() {
        let mut kinds = Kinds::default();
        for _ in 0..3 * FORGOTTEN_AFTER {
            look(&mut kinds, 8, 0);
            kinds.pass_second();
            (0..8).for_each(|_| kinds.ended(DEAD, true));
        }
        look(&mut kinds, 0, 0);
        assert!(refuses(&kinds, DEAD, 0));
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
        (0..8).for_each(|_| kinds.ended(DEAD, false));
        assert!(!refuses(&kinds, DEAD, 0), "it answers again");
    }

    #[test]
    fn several_kinds_that_hang_have_together_what_one_may_have() {
        let mut kinds = Kinds::default();
        kinds.look(AFTER, (0..9).map(|number| (number % 3, true)));
        assert!((0..3).all(|kind| refuses(&kinds, kind, 9)));
        assert!(!refuses(&kinds, 1, 10));
    }

    #[test]
    fn of_very_many_kinds_only_some_are_remembered() {
        let mut kinds = Kinds::default();
        kinds.look(AFTER, (0..1000).map(|number| (number, true)));
        assert_eq!(kinds.records.len(), KINDS_MOST);
    }
}
