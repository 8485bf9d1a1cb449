//! The purges of this node on their way to the others.

use std::collections::BTreeSet;

use super::others::Others;
use crate::Millis;
use crate::log_entry::{Addition, EntryId};
use crate::payloads::merged;

/// Most purges that wait to be sent. More of them become one of all pages of their sites.
const MAX_QUEUED: usize = 1024;

/// Most purges that are remembered because not all nodes have applied them.
const MAX_SENT: usize = 4096;

/// Most entries that one round adds.
const MAX_ADDED: usize = 64;

/// What has become of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No node serves the purged pages any more.
    Everywhere,
    /// These nodes may still serve them.
    Missing(Vec<String>),
    /// The log is new, so other nodes may be unknown that still serve them.
    Uncertain,
    /// The log cannot be reached: the purge is sent later.
    Queued,
}

#[derive(Debug)]
enum Stage {
    Queued,
    Sent {
        era: u64,
        id: EntryId,
        /// The nodes that have not applied it.
        missing: BTreeSet<String>,
        /// From then on, all nodes with a lease are registered.
        sure_at: Millis,
    },
}

#[derive(Debug)]
struct Outgoing {
    number: u64,
    payload: String,
    until: Millis,
    is_reported: bool,
    stage: Stage,
}

/// The purges of this node that not all others have applied.
#[derive(Debug, Default)]
pub struct OutgoingPurges {
    purges: Vec<Outgoing>,
}

/// What a round has shown.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// The other nodes.
    pub others: &'a Others,
    /// Number and name of the era.
    pub era: (u64, &'a str),
    /// When all nodes with a lease are registered.
    pub sure_at: Millis,
    /// When the round was sent.
    pub sent: Millis,
    /// The longest time from a round to the end of its lease.
    pub wait: Millis,
}

impl OutgoingPurges {
    /// Takes a purge. Its outcome is to be reported by `until`.
    pub fn submit(&mut self, number: u64, payload: String, until: Millis) {
        let stage = Stage::Queued;
        self.purges.push(Outgoing { number, payload, until, is_reported: false, stage });
    }

    /// Makes one purge of those that wait for too long, and forgets the oldest that were sent.
    pub fn bound(&mut self) {
        let waits = |one: &Outgoing| one.is_reported && matches!(one.stage, Stage::Queued);
        let waiting = self.purges.iter().filter(|one| waits(one));
        if waiting.clone().count() > MAX_QUEUED {
            let one = merged(waiting.map(|one| one.payload.as_str()));
            let last = self.purges.iter().rposition(waits);
            let number = last.and_then(|at| self.purges.get(at)).map(|one| one.number);
            self.purges.retain(|one| !waits(one) || Some(one.number) == number);
            if let Some(last) = self.purges.iter_mut().find(|one| Some(one.number) == number) {
                last.payload = one;
            }
        }
        if self.purges.len() > MAX_SENT {
            let more = self.purges.len() - MAX_SENT;
            let mut left = more;
            self.purges.retain(|one| {
                let goes = left > 0 && one.is_reported && matches!(one.stage, Stage::Sent { .. });
                left -= usize::from(goes);
                !goes
            });
        }
    }

    /// How many are still to be sent.
    pub fn queued(&self) -> usize {
        self.purges.iter().filter(|one| matches!(one.stage, Stage::Queued)).count()
    }

    /// Whether there is something to send.
    pub fn is_queued(&self) -> bool {
        self.purges.iter().any(|one| matches!(one.stage, Stage::Queued))
    }

    /// When the newest purge that others have to apply, and that is waited for, times out.
    pub fn awaited_until(&self) -> Option<Millis> {
        let awaited = self.purges.iter().filter(|one| !one.is_reported);
        awaited.map(|one| one.until).max()
    }

    /// When the next outcome is to be reported.
    pub fn deadline(&self) -> Option<Millis> {
        let awaited = self.purges.iter().filter(|one| !one.is_reported);
        awaited.map(|one| one.until).min()
    }

    /// The next entries to add.
    pub fn additions(&self, instance: &str) -> Vec<(u64, Addition)> {
        let queued = self.purges.iter().filter(|one| matches!(one.stage, Stage::Queued));
        let addition = |one: &Outgoing| {
            let token = format!("{instance}:{}", one.number);
            (one.number, Addition { token, payload: one.payload.clone() })
        };
        queued.take(MAX_ADDED).map(addition).collect()
    }

    /// The log has these entries now.
    pub fn added(&mut self, added: &[(u64, EntryId)], sight: Sight<'_>) {
        for (number, id) in added {
            if let Some(one) = self.purges.iter_mut().find(|one| one.number == *number) {
                let live = sight.others.live(sight.sent, sight.wait);
                let missing = live.map(str::to_owned).collect();
                let (era, sure_at) = (sight.era.0, sight.sure_at);
                one.stage = Stage::Sent { era, id: *id, missing, sure_at };
            }
        }
    }

    /// In another era everything is sent again: its entries may be lost.
    pub fn send_again(&mut self) {
        self.purges.iter_mut().for_each(|one| one.stage = Stage::Queued);
    }

    /// Returns the purges that all others have applied and that were waited for.
    pub fn settle(&mut self, sight: Sight<'_>) -> Vec<(u64, Outcome)> {
        let mut done = Vec::new();
        self.purges.retain_mut(|one| {
            let Stage::Sent { era, id, missing, sure_at } = &mut one.stage else {
                return true;
            };
            if *era != sight.era.0 {
                return true;
            }
            let entry = (sight.era.1, *id);
            missing.retain(|name| sight.others.lacks(name, entry, sight.sent, sight.wait));
            let is_done =
                missing.is_empty() && sight.sent >= *sure_at && !sight.others.are_too_many();
            // Again, if it was queued before: it is not to be sent any more.
            if is_done {
                done.push((one.number, Outcome::Everywhere));
            }
            !is_done
        });
        done
    }

    /// Returns the purges whose outcome is due; `all`: of those to be sent, too, since the log
    /// cannot be reached.
    pub fn overdue(&mut self, now: Millis, is_down: bool) -> Vec<(u64, Outcome)> {
        let mut due = Vec::new();
        for one in self.purges.iter_mut().filter(|one| !one.is_reported) {
            let outcome = match &one.stage {
                Stage::Queued if is_down || one.until <= now => Outcome::Queued,
                Stage::Sent { missing, .. } if is_down || one.until <= now => {
                    match missing.is_empty() {
                        true => Outcome::Uncertain,
                        false => Outcome::Missing(missing.iter().cloned().collect()),
                    }
                }
                Stage::Queued | Stage::Sent { .. } => continue,
            };
            one.is_reported = true;
            due.push((one.number, outcome));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use maitred_control::purge::{DroppedPages, Purge, PurgeMode, PurgeOrder};

    use super::*;
    use crate::payloads::payload_of;

    /// Sends none of many purges. Returns the first one that would be sent then.
    fn first_of_many(payload: impl Fn(u64) -> String) -> String {
        let mut purges = OutgoingPurges::default();
        for number in 0..3000 {
            purges.submit(number, payload(number), 10);
            purges.overdue(0, true);
            purges.bound();
        }
        assert!(purges.purges.len() <= MAX_QUEUED + 1);
        purges.additions("i").swap_remove(0).1.payload
    }

    #[test]
    fn purges_that_cannot_be_sent_become_one_of_their_sites_or_of_everything() {
        let of_site = |site: &str, purge| {
            let (site, how) = (site.to_owned(), PurgeMode::Hard);
            PurgeOrder::Dropped(vec![DroppedPages { site, purge, how }])
        };
        let tag = |number: u64| payload_of(&of_site("a", Purge::Tag(number.to_string())));
        assert_eq!(first_of_many(tag), payload_of(&of_site("a", Purge::All)));
        let everything = payload_of(&PurgeOrder::everything());
        assert_eq!(first_of_many(|number| number.to_string()), everything);
    }
}
