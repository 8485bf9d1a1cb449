//! Processors that everybody who is at work shares alike.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Processors. Work is told apart by `id`.
#[derive(Debug)]
pub struct Cores {
    cores: f64,
    /// What each at work has got of a processor, in seconds.
    served: f64,
    now: f64,
    at_work: BinaryHeap<Work>,
    /// How much slower everybody is with so many at work.
    drag: Drag,
    /// How much slower everybody is because memory is short: 1 is not at all.
    slowness: f64,
    busy: f64,
}

/// What more workers at work cost those that are, beside their share: lines of a cache, locks in the
/// kernel, switches.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Drag {
    /// For each that is at work beyond the processors: part of the time that switching takes.
    pub switching: f64,
    /// Gunther's kappa, for each pair at work.
    pub crosstalk: f64,
    /// Gunther's sigma, for each other at work.
    pub contention: f64,
}

#[derive(Debug, PartialEq)]
struct Work {
    until: f64,
    id: usize,
}

impl Eq for Work {}

impl Ord for Work {
    fn cmp(&self, other: &Work) -> Ordering {
        other
            .until
            .total_cmp(&self.until)
            .then(other.id.cmp(&self.id))
    }
}

impl PartialOrd for Work {
    fn partial_cmp(&self, other: &Work) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Cores {
    /// So many processors.
    pub fn new(cores: f64, drag: Drag) -> Cores {
        Cores {
            cores,
            served: 0.0,
            now: 0.0,
            at_work: BinaryHeap::new(),
            drag,
            slowness: 1.0,
            busy: 0.0,
        }
    }

    /// What each at work gets of a processor now.
    fn pace(&self) -> f64 {
        let working = self.at_work.len() as f64;
        if working == 0.0 {
            return 0.0;
        }
        let share = (self.cores / working).min(1.0);
        let beyond = (working - self.cores).max(0.0);
        let switching = 1.0 + self.drag.switching * beyond / self.cores;
        let others = working - 1.0;
        let scale = 1.0 + self.drag.contention * others + self.drag.crosstalk * working * others;
        share / (switching * scale * self.slowness)
    }

    /// Time goes on to `now`.
    pub fn advance(&mut self, now: f64) {
        let passed = now - self.now;
        self.served += self.pace() * passed;
        self.busy += passed * (self.at_work.len() as f64).min(self.cores);
        self.now = now;
    }

    /// Somebody wants `seconds` of a processor.
    pub fn begin(&mut self, id: usize, seconds: f64) {
        self.at_work.push(Work {
            until: self.served + seconds,
            id,
        });
    }

    /// When the next has got what it wants.
    pub fn next(&self) -> Option<f64> {
        let first = self.at_work.peek()?;
        Some(self.now + ((first.until - self.served) / self.pace()).max(0.0))
    }

    /// The next has got what it wants.
    pub fn end(&mut self) -> Option<usize> {
        let work = self.at_work.pop()?;
        self.served = self.served.max(work.until);
        Some(work.id)
    }

    /// There are more processors now, or fewer.
    pub fn resize(&mut self, cores: f64) {
        self.cores = cores;
    }

    /// Memory is short now, or is not.
    pub fn slow_down(&mut self, slowness: f64) {
        self.slowness = slowness;
    }

    /// Processors that there are.
    pub fn count(&self) -> f64 {
        self.cores
    }

    /// Time that processors were busy, in seconds.
    pub fn busy(&self) -> f64 {
        self.busy
    }

    /// How many are at work.
    pub fn working(&self) -> usize {
        self.at_work.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_on_two_processors_get_two_thirds_each() {
        let mut cores = Cores::new(2.0, Drag::default());
        (0..3).for_each(|id| cores.begin(id, 0.020));
        let done = cores.next().unwrap();
        assert!((done - 0.030).abs() < 1e-12);
        cores.advance(0.015);
        assert!((cores.next().unwrap() - 0.030).abs() < 1e-12);
        cores.resize(1.0);
        assert!((cores.next().unwrap() - 0.045).abs() < 1e-12);
        assert!((cores.busy() - 0.030).abs() < 1e-12);
    }

    #[test]
    fn who_wants_least_is_through_first() {
        let mut cores = Cores::new(1.0, Drag::default());
        cores.begin(1, 0.5);
        cores.begin(2, 0.1);
        cores.advance(cores.next().unwrap());
        assert_eq!(cores.end(), Some(2));
        assert!((cores.next().unwrap() - 0.6).abs() < 1e-12);
    }
}
