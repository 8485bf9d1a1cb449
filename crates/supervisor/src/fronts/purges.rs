//! Purges on their way to the fronts that keep pages. As a rule there is one, and it only has to
//! carry out what a command asks for. During an upgrade there are several, and each hears of what
//! another one has dropped before that counts as done.

use maitred_control::ToFront;
use maitred_control::admin::Answer;
use maitred_control::purge::{Asked, Dropped, Order};

use crate::limits::{Moment, PURGE_ANSWER};
use crate::run::Supervisor;

/// Most purges that are on their way at a time. What scripts and clients ask for is not among them
/// while there is one front.
const MAX_PENDING: usize = 4096;

/// Who waits for a purge to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PurgeRequester {
    /// A command, which looks for the outcome by the purge's number.
    Command,
    /// The front of this line, by the number of its report.
    Front(u32, u64),
    /// An upgrade, before there is a second front.
    Upgrade,
}

/// A purge that not all fronts have carried out.
#[derive(Debug)]
struct PendingPurge {
    mark: u64,
    order: Order,
    asker: PurgeRequester,
    /// The lines of the fronts that have not said that it is done.
    missing: Vec<u32>,
    /// What a front has said, if one has.
    outcome: Option<(u32, Result<Vec<String>, String>)>,
    until: Moment,
}

impl PendingPurge {
    /// The front of a line has carried it out. Of several that say what is gone, the newest knows
    /// the configuration in use.
    fn done_by(&mut self, line: u32, outcome: Result<Vec<String>, String>) {
        self.missing.retain(|missing| *missing != line);
        if self.outcome.as_ref().is_none_or(|(by, _)| *by < line) {
            self.outcome = Some((line, outcome));
        }
    }

    /// The front of a line is no more; `another_comes` for that line.
    fn lost(&mut self, line: u32, another_comes: bool) {
        let before = self.missing.len();
        self.missing.retain(|missing| *missing != line);
        if self.missing.len() == before {
            return;
        }
        if another_comes && self.asker != PurgeRequester::Upgrade {
            self.outcome = None;
        } else if self.asker != PurgeRequester::Command && self.missing.is_empty() {
            self.outcome.get_or_insert((0, Ok(Vec::new())));
        }
    }

    /// What the command is told that has asked for it.
    fn answer(self) -> Answer {
        match self.outcome.filter(|_| self.missing.is_empty()) {
            Some((_, Ok(what))) => Answer::Purged { what },
            Some((_, Err(why))) => Answer::Refused { why },
            None => Answer::Failed {
                why: format!(
                    "not every front has said within {} s that it is done; look at the log and try \
                     again",
                    PURGE_ANSWER.as_secs()
                ),
            },
        }
    }

    fn is_over(&self, now: Moment) -> bool {
        let is_done = self.missing.is_empty() && self.outcome.is_some();
        is_done || self.until <= now
    }
}

/// Purges that are on their way, and those that a command has not heard the outcome of.
#[derive(Debug, Default)]
pub struct PurgeCoordinator {
    last: u64,
    pending: Vec<PendingPurge>,
    /// What came of those that commands wait for, by number.
    outcomes: Vec<(u64, Answer)>,
}

impl PurgeCoordinator {
    fn begin(
        &mut self,
        order: Order,
        asker: PurgeRequester,
        missing: Vec<u32>,
        now: Moment,
    ) -> u64 {
        self.last += 1;
        // Who has nobody to wait for has nothing to say, but a command wants to hear of one.
        let outcome =
            (missing.is_empty() && asker != PurgeRequester::Command).then(|| (0, Ok(Vec::new())));
        self.pending.push(PendingPurge {
            mark: self.last,
            order,
            asker,
            missing,
            outcome,
            until: now + PURGE_ANSWER,
        });
        self.last
    }

    /// Whether nothing is on its way.
    pub fn are_done(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether the old front has not said yet that it will tell of its purges.
    pub fn prepares_upgrade(&self) -> bool {
        let mut askers = self.pending.iter().map(|pending| pending.asker);
        askers.any(|asker| asker == PurgeRequester::Upgrade)
    }

    /// What came of the purge that a command has asked for, once that is known.
    pub fn outcome(&mut self, mark: u64) -> Option<Answer> {
        let at = self.outcomes.iter().position(|(of, _)| *of == mark)?;
        Some(self.outcomes.swap_remove(at).1)
    }

    /// When a purge has waited for too long.
    pub fn deadline(&self) -> Option<Moment> {
        self.pending.iter().map(|pending| pending.until).min()
    }
}

impl Supervisor {
    /// Has all fronts drop what a command asks for. Returns the number by which the outcome is found.
    ///
    /// # Errors
    /// When too much is on its way already.
    pub fn purge(&mut self, asked: Asked) -> Result<u64, String> {
        if self.purges.pending.len() >= MAX_PENDING {
            return Err("too many purges are on their way; try again in a moment".to_owned());
        }
        Ok(self.order_purge(Order::Asked(asked), PurgeRequester::Command, |_| true))
    }

    /// A front has dropped pages: the others drop them, too.
    pub fn purging(&mut self, line: u32, dropped: Vec<Dropped>, mark: u64) {
        let order = Order::Dropped(dropped);
        self.order_purge(order, PurgeRequester::Front(line, mark), |other| {
            other != line
        });
        self.end_purges();
    }

    /// Before there is a second front, the one there is tells of what it drops.
    pub fn prepare_company(&mut self) {
        self.order_purge(Order::Company(true), PurgeRequester::Upgrade, |_| true);
        self.end_purges();
    }

    /// A front that is alone need tell nobody any more.
    pub fn see_whether_alone(&mut self) {
        if self.upgrade.is_some() || self.fronts().count() != 1 {
            return;
        }
        self.order_purge(Order::Company(false), PurgeRequester::Upgrade, |_| true);
    }

    fn order_purge(
        &mut self,
        order: Order,
        asker: PurgeRequester,
        meant: impl Fn(u32) -> bool,
    ) -> u64 {
        let lines = self.fronts().map(|(line, _)| line);
        let lines: Vec<u32> = lines.filter(|line| meant(*line)).collect();
        let now = self.now();
        let mark = self.purges.begin(order.clone(), asker, lines.clone(), now);
        for line in lines {
            let order = order.clone();
            if let Some(peer) = self.peer_of_line(line) {
                peer.say(ToFront::Purge { order, mark }, &[]);
            }
        }
        mark
    }

    /// What a front that is being started has to know: whether there are others, and what is on its
    /// way to them. It may have read what was purged before that was written.
    pub fn purges_for_new_front(&mut self) -> Vec<ToFront> {
        let line = self.front.line;
        let has_company = self.fronts().any(|(other, _)| other != line);
        let mut orders = Vec::new();
        if has_company {
            let order = Order::Company(true);
            // Number 0 is nobody's: the report is not waited for.
            orders.push(ToFront::Purge { order, mark: 0 });
        }
        for pending in &mut self.purges.pending {
            if pending.asker != PurgeRequester::Upgrade {
                pending.missing.push(line);
                let (order, mark) = (pending.order.clone(), pending.mark);
                orders.push(ToFront::Purge { order, mark });
            }
        }
        orders
    }

    /// A front has carried a purge out.
    pub fn purged(&mut self, line: u32, mark: u64, outcome: Result<Vec<String>, String>) {
        let mut pending = self.purges.pending.iter_mut();
        if let Some(pending) = pending.find(|pending| pending.mark == mark) {
            pending.done_by(line, outcome);
        }
        self.end_purges();
    }

    /// A front is no more, and what it kept in memory neither. What it kept in files the next one of
    /// its line will have, which is told of what this one may not have come to.
    pub fn front_purges_no_more(&mut self, line: u32) {
        let another_comes = line == self.front.line;
        for pending in &mut self.purges.pending {
            pending.lost(line, another_comes);
        }
        self.end_purges();
        self.see_whether_alone();
    }

    /// Tells whoever waits for purges that are over.
    pub fn end_purges(&mut self) {
        let now = self.now();
        let pending = std::mem::take(&mut self.purges.pending);
        let (over, pending) = pending.into_iter().partition(|one| one.is_over(now));
        self.purges.pending = pending;
        let over: Vec<PendingPurge> = over;
        for one in over {
            match one.asker {
                PurgeRequester::Upgrade => {}
                PurgeRequester::Front(line, mark) => {
                    if let Some(peer) = self.peer_of_line(line) {
                        peer.say(ToFront::ConfirmPurge { mark }, &[]);
                    }
                }
                PurgeRequester::Command => {
                    let mark = one.mark;
                    self.purges.outcomes.push((mark, one.answer()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_secs(1);

    fn done(text: &str) -> Result<Vec<String>, String> {
        Ok(vec![text.to_owned()])
    }

    fn begun(asker: PurgeRequester, lines: &[u32]) -> PurgeCoordinator {
        let mut purges = PurgeCoordinator::default();
        purges.begin(Order::Company(true), asker, lines.to_vec(), NOW);
        purges
    }

    #[test]
    fn a_purge_is_over_when_every_front_has_said_so_and_the_newest_has_the_word() {
        let mut purges = begun(PurgeRequester::Command, &[1, 2]);
        let one = &mut purges.pending[0];
        one.done_by(2, done("new"));
        assert!(!one.is_over(NOW));
        one.done_by(1, done("old"));
        assert!(one.is_over(NOW));
        assert_eq!(one.outcome, Some((2, done("new"))));
    }

    #[test]
    fn a_command_waits_for_a_front_that_is_being_started_and_not_for_ever() {
        let purges = begun(PurgeRequester::Command, &[]);
        assert!(!purges.pending[0].is_over(NOW));
        assert!(purges.pending[0].is_over(NOW + PURGE_ANSWER));
        assert_eq!(purges.deadline(), Some(NOW + PURGE_ANSWER));
    }

    #[test]
    fn what_a_dead_front_has_not_done_the_next_one_has_to() {
        let mut purges = begun(PurgeRequester::Command, &[1, 2]);
        let one = &mut purges.pending[0];
        one.done_by(1, done("old"));
        one.lost(2, true);
        assert!(!one.is_over(NOW));
        one.missing.push(2);
        one.done_by(2, done("new"));
        assert!(one.is_over(NOW));
        let mut purges = begun(PurgeRequester::Front(2, 7), &[1]);
        let one = &mut purges.pending[0];
        one.lost(1, false);
        assert!(one.is_over(NOW));
    }

    #[test]
    fn a_front_that_is_alone_waits_for_nobody() {
        let purges = begun(PurgeRequester::Front(1, 7), &[]);
        assert!(purges.pending[0].is_over(NOW));
    }
}
