//! What came of a run.

use crate::plant::Plant;

/// What came of a run, but for its warm-up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    from: f64,
    until: f64,
    /// From a request's coming to its end, in seconds, of those that were served.
    pub responses: Vec<f64>,
    /// What each that got a worker had waited, in seconds.
    pub waits: Vec<f64>,
    /// Time in workers, in seconds.
    pub in_workers: f64,
    /// Processor time of the served, in seconds.
    pub worked: f64,
    /// Requests that have ended well.
    pub ended: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Workers that were started.
    pub forks: u64,
    /// Workers times seconds.
    pub worker_seconds: f64,
    /// Seconds in which more memory was taken than there is.
    pub swapped: f64,
    /// Workers there were at each tick: when, how many.
    pub sizes: Vec<(f64, usize)>,
}

impl Outcome {
    /// Nothing yet.
    pub fn new(plant: &Plant) -> Outcome {
        Outcome {
            from: plant.warm_up,
            until: plant.seconds,
            ..Outcome::default()
        }
    }

    /// Time goes on, with so many workers.
    pub fn pass(&mut self, from: f64, to: f64, workers: usize, swaps: bool) {
        let counted = (to - from.max(self.from)).max(0.0);
        self.worker_seconds += counted * workers as f64;
        if swaps {
            self.swapped += to - from;
        }
    }

    /// A request gets its worker.
    pub fn waited(&mut self, came: f64, now: f64) {
        if came >= self.from {
            self.waits.push(now - came);
        }
    }

    /// A request has ended that came then and has worked for so long.
    pub fn served(&mut self, (came, work): (f64, f64), began: f64, now: f64) {
        if came >= self.from {
            self.responses.push(now - came);
        }
        if now >= self.from {
            self.ended += 1;
            self.in_workers += now - began;
            self.worked += work;
        }
    }

    /// A request is refused.
    pub fn refused(&mut self, now: f64) {
        self.refused += u64::from(now >= self.from);
    }

    /// A worker is started.
    pub fn forked(&mut self, now: f64) {
        self.forks += u64::from(now >= self.from);
    }

    /// So many workers are there.
    pub fn size(&mut self, now: f64, workers: usize) {
        self.sizes.push((now, workers));
    }

    /// Seconds that were counted.
    pub fn seconds(&self) -> f64 {
        self.until - self.from
    }

    /// Served requests a second.
    pub fn goodput(&self) -> f64 {
        self.ended as f64 / self.seconds()
    }

    /// A percentile of the responses, in seconds; 0 when nothing was served.
    pub fn percentile(&self, percent: f64) -> f64 {
        percentile(&self.responses, percent)
    }

    /// A percentile of the waits, in seconds; 0 when nobody was served.
    pub fn wait(&self, percent: f64) -> f64 {
        percentile(&self.waits, percent)
    }

    /// Workers on average.
    pub fn workers(&self) -> f64 {
        self.worker_seconds / self.seconds()
    }
}

fn percentile(all: &[f64], percent: f64) -> f64 {
    let mut all = all.to_vec();
    if all.is_empty() {
        return 0.0;
    }
    let place = ((all.len() as f64 * percent / 100.0) as usize).min(all.len() - 1);
    *all.select_nth_unstable_by(place, f64::total_cmp).1
}
