//! Whether all nodes serve the proofs of an order. Pure: registrations and times in.
//!
//! A node registers in each of its rounds, with the number of the round and the id of the proofs
//! that it serves. Only changes count, so neither clocks are compared, nor is a dead node waited
//! for: its registration does not change.

use std::collections::BTreeMap;

use super::Millis;

/// How long a node that runs may take for a round, in milliseconds.
pub const ROUND_TIME: Millis = 2500;

/// Registrations of nodes, by their names.
pub type Registrations = BTreeMap<String, String>;

/// The registration of a node.
pub fn registration(round: u64, proofs: u64) -> String {
    format!("{round} {proofs:016x}")
}

/// Watches the registrations since an order's proofs were written.
#[derive(Debug)]
pub struct Witnesses {
    /// The id of the proofs.
    proofs: u64,
    /// This node.
    own: String,
    /// When they were written.
    since: Millis,
    /// Wait for nodes that have not registered yet.
    is_patient: bool,
    /// How long to wait at most.
    most: Millis,
    first: Option<Registrations>,
}

/// What the nodes have come to.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How many run and have not said that they serve the proofs.
    pub missing: usize,
    /// Those that do not run any more.
    pub gone: Vec<String>,
}

impl Witnesses {
    /// Proofs with this id were written at `since`, by the node `own`. A patient one waits for
    /// nodes that are being started. `most` is how long to wait at most.
    pub fn new(proofs: u64, own: &str, since: Millis) -> Witnesses {
        let own = own.to_owned();
        Witnesses { proofs, own, since, is_patient: false, most: Millis::MAX, first: None }
    }

    /// The same, with a limit, and patience for nodes that are being started.
    pub fn within(self, most: Millis, is_patient: bool) -> Witnesses {
        Witnesses { most, is_patient, ..self }
    }

    /// Looks at the registrations. Nothing, while there is something to wait for.
    pub fn look(&mut self, nodes: &Registrations, now: Millis) -> Option<Verdict> {
        let first = self.first.get_or_insert_with(|| nodes.clone());
        let waited = now.saturating_sub(self.since);
        let served = format!(" {:016x}", self.proofs);
        let others = nodes.iter().filter(|(name, _)| **name != self.own);
        let silent = others.filter(|(_, text)| !text.ends_with(&served));
        let (running, gone): (Vec<_>, Vec<_>) =
            silent.partition(|(name, text)| first.get(*name) != Some(*text));
        let is_settled = waited >= ROUND_TIME;
        let is_complete = running.is_empty() && gone.is_empty() && !self.is_patient;
        let is_done = is_complete || (is_settled && running.is_empty()) || waited >= self.most;
        let gone = gone.into_iter().map(|(name, _)| name.clone()).collect();
        is_done.then_some(Verdict { missing: running.len(), gone })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(texts: &[&str]) -> Registrations {
        let named = texts.iter().enumerate();
        named.map(|(number, text)| (format!("n{number}"), (*text).to_owned())).collect()
    }

    fn of(round: u64, proofs: u64) -> String {
        registration(round, proofs)
    }

    fn done(missing: usize, gone: &[&str]) -> Option<Verdict> {
        Some(Verdict { missing, gone: gone.iter().map(|name| (*name).to_owned()).collect() })
    }

    #[test]
    fn all_that_run_are_waited_for_and_this_node_is_not() {
        let mut one = Witnesses::new(7, "n0", 0).within(10_000, false);
        assert_eq!(one.look(&nodes(&[&of(1, 0), &of(1, 0), &of(1, 0)]), 0), None);
        assert_eq!(one.look(&nodes(&[&of(1, 0), &of(2, 7), &of(2, 0)]), 1000), None);
        assert_eq!(one.look(&nodes(&[&of(1, 0), &of(3, 7), &of(3, 0)]), 3000), None);
        assert_eq!(one.look(&nodes(&[&of(1, 0), &of(3, 7), &of(4, 7)]), 3500), done(0, &[]));
    }

    #[test]
    fn a_node_that_has_ended_is_not_waited_for_and_one_that_says_nothing_not_for_ever() {
        let mut one = Witnesses::new(7, "n0", 0).within(10_000, false);
        assert_eq!(one.look(&nodes(&["", &of(1, 0), &of(1, 0)]), 0), None);
        assert_eq!(one.look(&nodes(&["", &of(2, 7), &of(1, 0)]), 1000), None);
        assert_eq!(one.look(&nodes(&["", &of(2, 7), &of(1, 0)]), 2500), done(0, &["n2"]));
        let mut one = Witnesses::new(7, "n0", 0).within(10_000, false);
        assert_eq!(one.look(&nodes(&["", &of(1, 0)]), 0), None);
        assert_eq!(one.look(&nodes(&["", &of(9, 0)]), 9999), None);
        assert_eq!(one.look(&nodes(&["", &of(10, 0)]), 10_000), done(1, &[]));
    }

    #[test]
    fn a_node_alone_does_not_wait_unless_others_may_be_starting() {
        let mut one = Witnesses::new(7, "n0", 5).within(10_000, false);
        assert_eq!(one.look(&nodes(&[""]), 5), done(0, &[]));
        let mut one = Witnesses::new(7, "n0", 0).within(10_000, true);
        assert_eq!(one.look(&nodes(&[""]), 0), None);
        assert_eq!(one.look(&nodes(&["", &of(1, 0)]), 1000), None);
        assert_eq!(one.look(&nodes(&["", &of(2, 7)]), 2500), done(0, &[]));
    }
}
