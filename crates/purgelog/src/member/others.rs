//! What a node knows of the others: their registrations, and for how long each has not changed.

use std::collections::BTreeMap;
use std::fmt;

use crate::Millis;
use crate::log_entry::{EntryId, MAX_NAME_BYTES, Position};

/// Most nodes that are remembered.
const MAX_NODES: usize = 256;

/// After this time without a change, a registration is removed, in milliseconds.
const FORGET: Millis = 60 * 60 * 1000;

/// What a node writes about itself in each round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Which process of that node: random.
    pub instance: String,
    /// The number of the round.
    pub beat: u64,
    /// What it has applied; none: nothing yet.
    pub applied: Option<Position>,
    /// Its server has ended: it serves no page any more.
    pub has_left: bool,
}

impl fmt::Display for Registration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.has_left { "left" } else { "live" };
        write!(out, "{} {} {state}", self.instance, self.beat)?;
        match &self.applied {
            Some(position) => write!(out, " {position}"),
            None => Ok(()),
        }
    }
}

impl Registration {
    /// Reads a registration.
    pub fn read(text: &str) -> Option<Registration> {
        let mut words = text.splitn(4, ' ');
        let instance = words.next().filter(|word| word.len() <= MAX_NAME_BYTES)?;
        let beat = words.next()?.parse().ok()?;
        let has_left = match words.next()? {
            "left" => true,
            "live" => false,
            _ => return None,
        };
        let applied = words.next().map(str::parse).transpose().ok()?;
        Some(Registration { instance: instance.to_owned(), beat, applied, has_left })
    }
}

/// The registration of another node.
#[derive(Debug)]
struct Other {
    registration: Option<Registration>,
    /// When this round of it was first seen.
    since: Millis,
}

/// The other nodes.
#[derive(Debug, Default)]
pub struct Others {
    nodes: BTreeMap<String, Other>,
    /// There were more than are remembered.
    are_too_many: bool,
}

impl Others {
    /// Takes all registrations, read at `now`. A node that is missing there counts until its lease
    /// has ended: the registrations may have been lost.
    pub fn saw(&mut self, nodes: Vec<(String, String)>, me: &str, now: Millis) {
        for (name, text) in nodes {
            if name == me || name.len() > MAX_NAME_BYTES {
                continue;
            }
            if self.nodes.len() >= MAX_NODES && !self.nodes.contains_key(&name) {
                self.are_too_many = true;
                continue;
            }
            let registration = Registration::read(&text);
            let known = self.nodes.entry(name);
            let other = known.or_insert(Other { registration: None, since: now });
            let round = |one: &Option<Registration>| {
                one.as_ref().map(|one| (one.instance.clone(), one.beat))
            };
            if round(&other.registration) != round(&registration) {
                other.since = now;
            }
            other.registration = registration;
        }
    }

    /// The nodes that may serve pages at a time, when a lease of theirs ends `wait` after the round
    /// in which it was given.
    pub fn live(&self, at: Millis, wait: Millis) -> impl Iterator<Item = &str> {
        let live = self.nodes.iter().filter(move |(_, other)| other.is_live(at, wait));
        live.map(|(name, _)| name.as_str())
    }

    /// Whether a node may serve pages that an entry purges.
    pub fn lacks(&self, name: &str, entry: (&str, EntryId), at: Millis, wait: Millis) -> bool {
        let Some(other) = self.nodes.get(name).filter(|other| other.is_live(at, wait)) else {
            return false;
        };
        let applied = other.registration.as_ref().and_then(|one| one.applied.as_ref());
        !applied.is_some_and(|applied| applied.era == entry.0 && applied.id >= entry.1)
    }

    /// Whether there are more nodes than can be waited for.
    pub fn are_too_many(&self) -> bool {
        self.are_too_many
    }

    /// Forgets the nodes that are long gone, and returns them.
    pub fn forget(&mut self, now: Millis) -> Vec<String> {
        let is_gone = |other: &Other| other.since.saturating_add(FORGET) < now;
        let gone = self.nodes.iter().filter(|(_, other)| is_gone(other));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        gone.iter().for_each(|name| drop(self.nodes.remove(name)));
        gone
    }
}

impl Other {
    fn is_live(&self, at: Millis, wait: Millis) -> bool {
        let has_left = self.registration.as_ref().is_some_and(|one| one.has_left);
        !has_left && at < self.since.saturating_add(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_read_as_it_is_written() {
        let applied = Some("e-1 5-7".parse().unwrap());
        let one = Registration { instance: "i".to_owned(), beat: 9, applied, has_left: false };
        assert_eq!(one.to_string(), "i 9 live e-1 5-7");
        assert_eq!(Registration::read(&one.to_string()), Some(one.clone()));
        let none = Registration { applied: None, has_left: true, ..one };
        assert_eq!(Registration::read(&none.to_string()), Some(none));
        for wrong in ["", "i", "i x live", "i 1 dead", "i 1 live e", "i 1 live e 5"] {
            assert_eq!(Registration::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_node_counts_until_its_rounds_have_not_changed_for_long() {
        let mut others = Others::default();
        let saw = |others: &mut Others, text: &str, now| {
            others.saw(vec![("b".to_owned(), text.to_owned())], "a", now);
        };
        saw(&mut others, "i 1 live", 100);
        saw(&mut others, "i 1 live e 5-0", 150);
        let id = EntryId { millis: 5, number: 0 };
        assert!(!others.lacks("b", ("e", id), 150, 100));
        assert!(others.lacks("b", ("f", id), 150, 100));
        assert_eq!(others.live(199, 100).count(), 1);
        assert_eq!(others.live(200, 100).count(), 0);
        others.saw(Vec::new(), "a", 210);
        saw(&mut others, "i 2 live", 220);
        assert_eq!(others.live(300, 100).count(), 1);
        saw(&mut others, "i 3 left", 230);
        assert_eq!(others.live(230, 100).count(), 0);
        assert_eq!(others.forget(230 + FORGET + 1), ["b"]);
    }
}
