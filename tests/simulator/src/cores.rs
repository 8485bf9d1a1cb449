//! Processors shared equally by all running tasks.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Processors. Tasks are identified by `id`.
#[derive(Debug)]
pub struct Cores {
    cores: f64,
    /// Processor time that each running task has had, in seconds.
    served: f64,
    now: f64,
    at_work: BinaryHeap<Work>,
    /// The slowdown by the number of running tasks.
    drag: Drag,
    /// The slowdown because memory is short: 1 is none.
    slowness: f64,
    busy: f64,
}

/// The cost of further running tasks, in addition to their share: cache lines, locks in the kernel,
/// context switches.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Drag {
    /// For each running task beyond the processors: the share of the time spent on switching.
    pub switching: f64,
    /// Gunther's kappa, for each pair of running tasks.
    pub crosstalk: f64,
    /// Gunther's sigma, for each other running task.
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
        other.until.total_cmp(&self.until).then(other.id.cmp(&self.id))
    }
}

impl PartialOrd for Work {
    fn partial_cmp(&self, other: &Work) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Cores {
    /// This many processors.
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

    /// The share of a processor that each running task has now.
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

    /// Advances the time to `now`.
    pub fn advance(&mut self, now: f64) {
        let passed = now - self.now;
        self.served += self.pace() * passed;
        self.busy += passed * (self.at_work.len() as f64).min(self.cores);
        self.now = now;
    }

    /// A task needs `seconds` of a processor.
    pub fn begin(&mut self, id: usize, seconds: f64) {
        self.at_work.push(Work { until: self.served + seconds, id });
    }

    /// When the next task is done.
    pub fn next(&self) -> Option<f64> {
        let first = self.at_work.peek()?;
        Some(self.now + ((first.until - self.served) / self.pace()).max(0.0))
    }

    /// Ends the next task.
    pub fn end(&mut self) -> Option<usize> {
        let work = self.at_work.pop()?;
        self.served = self.served.max(work.until);
        Some(work.id)
    }

    /// The number of processors changes.
    pub fn resize(&mut self, cores: f64) {
        self.cores = cores;
    }

    /// Memory becomes short, or is enough again.
    pub fn slow_down(&mut self, slowness: f64) {
        self.slowness = slowness;
    }

    /// The number of processors.
    pub fn count(&self) -> f64 {
        self.cores
    }

    /// Time that processors were busy, in seconds.
    pub fn busy(&self) -> f64 {
        self.busy
    }

    /// The number of running tasks.
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
