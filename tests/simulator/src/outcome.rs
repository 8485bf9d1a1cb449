//! The results of a run.

use crate::plant::Plant;

/// The results of a run without its warm-up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    from: f64,
    until: f64,
    /// Response times of served requests, in seconds.
    pub responses: Vec<f64>,
    /// Queue times of requests that got a worker, in seconds.
    pub waits: Vec<f64>,
    /// Time in workers, in seconds.
    pub in_workers: f64,
    /// Processor time of served requests, in seconds.
    pub worked: f64,
    /// Served requests.
    pub ended: u64,
    /// Rejected requests.
    pub refused: u64,
    /// Started workers.
    pub forks: u64,
    /// Workers times seconds.
    pub worker_seconds: f64,
    /// Seconds in which memory was overcommitted.
    pub swapped: f64,
    /// The number of workers at each tick, with its time.
    pub sizes: Vec<(f64, usize)>,
}

/// A request that was served. Times are in seconds.
#[derive(Debug, Clone, Copy)]
pub struct ServedRequest {
    /// When it arrived.
    pub arrived: f64,
    /// When a worker started it.
    pub began: f64,
    /// Its processor time.
    pub cpu: f64,
}

impl Outcome {
    /// Without results.
    pub fn new(plant: &Plant) -> Outcome {
        Outcome { from: plant.warm_up, until: plant.seconds, ..Outcome::default() }
    }

    /// Time passes, with this many workers.
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

    /// A request was served.
    pub fn served(&mut self, request: &ServedRequest, now: f64) {
        if request.arrived >= self.from {
            self.responses.push(now - request.arrived);
        }
        if now >= self.from {
            self.ended += 1;
            self.in_workers += now - request.began;
            self.worked += request.cpu;
        }
    }

    /// A request is rejected.
    pub fn refused(&mut self, now: f64) {
        self.refused += u64::from(now >= self.from);
    }

    /// A worker is started.
    pub fn forked(&mut self, now: f64) {
        self.forks += u64::from(now >= self.from);
    }

    /// The number of workers at a tick.
    pub fn size(&mut self, now: f64, workers: usize) {
        self.sizes.push((now, workers));
    }

    /// The counted time, in seconds.
    pub fn seconds(&self) -> f64 {
        self.until - self.from
    }

    /// Served requests a second.
    pub fn goodput(&self) -> f64 {
        self.ended as f64 / self.seconds()
    }

    /// A percentile of response times, in seconds; 0 without served requests.
    pub fn percentile(&self, percent: f64) -> f64 {
        percentile(&self.responses, percent)
    }

    /// A percentile of queue times, in seconds; 0 without served requests.
    pub fn wait(&self, percent: f64) -> f64 {
        percentile(&self.waits, percent)
    }

    /// The average number of workers.
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
