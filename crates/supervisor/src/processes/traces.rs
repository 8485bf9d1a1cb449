//! Stacks that were requested from zygotes, and the purpose of each.

use std::collections::BTreeMap;

use maitred_control::Generation;

use crate::limits::{Moment, TRACE_ANSWER};

/// Most pending requests, and most of a generation. A zygote needs well under a millisecond for
/// one, so more means that zygotes are stuck, or that everything is slow at once.
pub const TRACES_MAX: usize = 1024;
const TRACES_OF_GENERATION: usize = 128;

/// Pending requests. `TraceTarget` is the purpose of the stack.
#[derive(Debug)]
pub struct Traces<TraceTarget> {
    last: u64,
    /// By their numbers, in the order of the requests: all have the same timeout.
    pending: BTreeMap<u64, PendingTrace<TraceTarget>>,
}

#[derive(Debug)]
struct PendingTrace<TraceTarget> {
    generation: Generation,
    about: TraceTarget,
    until: Moment,
}

impl<TraceTarget> Default for Traces<TraceTarget> {
    fn default() -> Traces<TraceTarget> {
        Traces { last: 0, pending: BTreeMap::new() }
    }
}

impl<TraceTarget> Traces<TraceTarget> {
    /// Adds a request to the zygote of a generation, and returns its number.
    ///
    /// # Errors
    /// The purpose, when too many are pending ([`TRACES_MAX`]).
    pub fn ask(
        &mut self,
        generation: Generation,
        about: TraceTarget,
        now: Moment,
    ) -> Result<u64, TraceTarget> {
        let is_full = self.pending.len() >= TRACES_MAX;
        if is_full || self.unanswered(generation, |_| true) >= TRACES_OF_GENERATION {
            return Err(about);
        }
        self.last += 1;
        let pending = PendingTrace { generation, about, until: now + TRACE_ANSWER };
        self.pending.insert(self.last, pending);
        Ok(self.last)
    }

    /// How many requests to the zygote of a generation are pending whose purpose is `what`.
    pub fn unanswered(&self, generation: Generation, what: impl Fn(&TraceTarget) -> bool) -> usize {
        let pending = self.pending.values();
        let ours = pending.filter(|one| one.generation == generation && what(&one.about));
        ours.count()
    }

    /// The zygote of a generation has replied. None when it was not requested, or too late.
    pub fn answered(&mut self, generation: Generation, trace: u64) -> Option<TraceTarget> {
        let asked = self.pending.get(&trace)?.generation == generation;
        let pending = asked.then(|| self.pending.remove(&trace)).flatten();
        pending.map(|pending| pending.about)
    }

    /// Removes requests without a reply in time.
    pub fn overdue(&mut self, now: Moment) -> Vec<(Generation, TraceTarget)> {
        let mut overdue = Vec::new();
        while let Some(first) = self.pending.first_entry() {
            if now < first.get().until {
                break;
            }
            let pending = first.remove();
            overdue.push((pending.generation, pending.about));
        }
        overdue
    }

    /// When the next request times out.
    pub fn deadline(&self) -> Option<Moment> {
        self.pending.values().next().map(|pending| pending.until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Moment = Duration::from_secs(1);

    #[test]
    fn an_answer_finds_what_was_asked_once_and_only_from_whom_was_asked() {
        let mut traces = Traces::default();
        let first = traces.ask(1, "one", NOW).unwrap();
        let second = traces.ask(2, "two", NOW).unwrap();
        assert_eq!(traces.unanswered(2, |about| *about == "two"), 1);
        assert_eq!(traces.unanswered(2, |about| *about == "one"), 0);
        assert_eq!(traces.answered(1, second), None);
        assert_eq!(traces.answered(2, second), Some("two"));
        assert_eq!(traces.answered(2, second), None);
        assert_eq!(traces.answered(1, first), Some("one"));
        assert_eq!(traces.deadline(), None);
    }

    #[test]
    fn what_is_not_answered_is_given_up_and_an_answer_after_that_is_not_heard() {
        let mut traces = Traces::default();
        let slow = traces.ask(1, "slow", NOW).unwrap();
        let later = NOW + TRACE_ANSWER / 2;
        traces.ask(1, "later", later).unwrap();
        assert!(traces.overdue(later).is_empty());
        let due = traces.deadline().unwrap();
        assert_eq!(traces.overdue(due), [(1, "slow")]);
        assert_eq!(traces.answered(1, slow), None);
        assert_eq!(traces.deadline(), Some(later + TRACE_ANSWER));
    }

    #[test]
    fn a_front_that_finds_everything_slow_fills_no_memory() {
        let mut traces = Traces::default();
        let most = u32::try_from(TRACES_MAX).unwrap();
        for number in 0..most {
            traces.ask(number, (), NOW).unwrap();
        }
        assert_eq!(traces.ask(0, (), NOW), Err(()));
    }

    #[test]
    fn a_zygote_that_is_stopped_leaves_requests_to_others() {
        let mut traces = Traces::default();
        for _ in 0..TRACES_OF_GENERATION {
            traces.ask(1, (), NOW).unwrap();
        }
        assert_eq!(traces.ask(1, (), NOW), Err(()));
        assert!(traces.ask(2, (), NOW).is_ok());
    }
}
