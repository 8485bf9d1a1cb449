//! The queue.

use std::collections::VecDeque;

use super::World;
use crate::policies::Policy;

impl World<'_> {
    /// Rejects requests that have waited too long.
    pub(super) fn expire(&mut self) {
        let late = |queue: &VecDeque<usize>| {
            let is_late = |request: &&usize| {
                self.now - self.arrivals[**request].at > self.plant.queue_timeout
            };
            queue.iter().take_while(is_late).count()
        };
        let (waiting, held_back) = (late(&self.waiting), late(&self.held_back));
        self.waiting.drain(..waiting);
        self.held_back.drain(..held_back);
        (0..waiting + held_back).for_each(|_| self.refuse());
    }

    /// The next request that gets a worker.
    pub(super) fn next_waiting(&mut self, policy: &dyn Policy) -> Option<usize> {
        let holds_back = |request: usize| policy.holds_back(self.arrivals[request].kind);
        if self.held_back.front().is_some_and(|request| !holds_back(*request)) {
            return self.held_back.pop_front();
        }
        while let Some(request) = self.waiting.pop_front() {
            if !holds_back(request) {
                return Some(request);
            }
            self.held_back.push_back(request);
        }
        None
    }
}
