//! Workers that break the rules of the seat link. Each is ended, and its seat is initialised again
//! for the next one. Where that does not help, another process still writes to the pool's memory
//! (an orphan of a script has it mapped): then the pool is restarted, with new memory that no
//! process has mapped.

use std::collections::VecDeque;
use std::time::Duration;

use maitred_control::WorkerId;

use crate::limits::Moment;

/// Number of such workers within [`BREACHES_WITHIN`] after which the generation is replaced.
/// Restarts are throttled elsewhere.
pub const BREACHES_MAX: usize = 3;

/// How long such a worker counts.
pub const BREACHES_WITHIN: Duration = Duration::from_secs(60);

/// The workers of a generation that count.
#[derive(Debug, Default)]
pub struct ProtocolErrors(VecDeque<(Moment, WorkerId)>);

impl ProtocolErrors {
    /// A worker has broken the rules. True if the generation is to be replaced.
    pub fn note(&mut self, worker: WorkerId, now: Moment) -> bool {
        self.0.retain(|(at, _)| now < *at + BREACHES_WITHIN);
        // All of its requests may report it.
        if self.0.iter().any(|(_, known)| *known == worker) {
            return false;
        }
        self.0.push_back((now, worker));
        let are_too_many = self.0.len() >= BREACHES_MAX;
        if are_too_many {
            self.0.clear();
        }
        are_too_many
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_replaced_for_many_breaches_in_a_short_time_and_not_for_one_worker() {
        let worker = |seat, incarnation| WorkerId { seat, incarnation };
        let mut breaches = ProtocolErrors::default();
        let second = Duration::from_secs(1);
        for _ in 0..10 {
            assert!(!breaches.note(worker(0, 1), second));
        }
        assert!(!breaches.note(worker(1, 1), second));
        assert!(breaches.note(worker(0, 2), second));
        assert!(!breaches.note(worker(0, 3), second), "they are counted from nothing");
        let mut rare = ProtocolErrors::default();
        for number in 1..10 {
            assert!(!rare.note(worker(0, number), BREACHES_WITHIN * number));
        }
    }
}
