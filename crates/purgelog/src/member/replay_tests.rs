//! A node that returns and has more to read than it applies at a time.

use super::*;
use crate::log_entry::Entry;

/// Entries of the stream.
const ENTRIES: u64 = 1000;

fn id(millis: u64) -> EntryId {
    EntryId { millis, number: 0 }
}

/// The reply to a round: the entries after the one it names.
fn reply(round: &Round) -> RoundReply {
    let after = round.read_after.map(|after| after.millis);
    let ids = after.into_iter().flat_map(|after| after + 1..=ENTRIES).take(MAX_READ);
    let entry =
        |at| Entry { id: id(at), token: format!("other:{at}"), payload: format!("purge {at}") };
    RoundReply {
        era: Some("era".to_owned()),
        era_age: 1_000_000,
        registered: None,
        added: round.add.iter().map(|_| id(ENTRIES)).collect(),
        ends: Some((id(1), id(ENTRIES))),
        entries: ids.map(entry).collect(),
        nodes: Vec::new(),
    }
}

/// What the fronts have to do and have done.
#[derive(Default)]
struct FrontWork {
    waiting: VecDeque<u64>,
    applied: u64,
}

impl FrontWork {
    /// Takes steps. A lease is for a node that has applied everything.
    fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Apply { mark, .. } => self.waiting.push_back(mark),
                Step::Lease(1..) => {
                    assert_eq!(self.applied, ENTRIES - 1, "a lease before all were applied");
                }
                _ => {}
            }
        }
    }

    /// Applies this many.
    fn apply(&mut self, count: usize, member: &mut Member) {
        for _ in 0..count.min(self.waiting.len()) {
            let Some(mark) = self.waiting.pop_front() else { return };
            self.applied += 1;
            let steps = member.applied(mark);
            self.take(steps);
        }
    }
}

#[test]
fn a_round_that_read_nothing_gives_no_lease_whatever_was_applied_meanwhile() {
    let settings = MemberSettings {
        node: "b".to_owned(),
        instance: "b1".to_owned(),
        lease: 90_000,
        timeout: 2_000,
        everything: "all".to_owned(),
    };
    let start = Start::At(Position { era: "era".to_owned(), id: id(1) });
    let (mut member, mut fronts) = (Member::new(settings, start), FrontWork::default());
    let mut full = 0;
    for turn in 1..=100 {
        let now = 1_000_000 + 10 * turn;
        let round = member.round(now);
        let is_full = round.read_after.is_none();
        full += u32::from(is_full);
        if is_full {
            // While the round is in flight.
            fronts.apply(10, &mut member);
        }
        let steps = member.replied(reply(&round), now + 1);
        fronts.take(steps);
        if is_full || member.last_read() == id(ENTRIES) {
            fronts.apply(MAX_APPLYING, &mut member);
        }
    }
    assert_eq!(fronts.applied, ENTRIES - 1);
    assert!(full > 0, "each round had room to read");
}
