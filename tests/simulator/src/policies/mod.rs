//! How a pool may be sized: what we do, and what others do.

pub mod auto;
pub mod fixed;
pub mod fpm;
pub mod frankenphp;

use maitred_sizing::Spent;
use maitred_sizing::ledger::WorkerMemory;
use maitred_sizing::sources::Memory;

/// What a policy may see of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct View {
    /// Seconds since the run began.
    pub now: f64,
    /// Workers that run a request.
    pub busy: usize,
    /// Workers with nothing to do.
    pub idle: usize,
    /// Workers that are coming.
    pub booting: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// How long the longest of them has waited, in seconds.
    pub waited: f64,
    /// How long the worker has been idle that was so for longest, in seconds.
    pub rested: f64,
    /// Processors.
    pub cores: f64,
    /// Part of the processors' time that was used since the last tick.
    pub cpu_used: f64,
    /// Memory, if it is counted.
    pub memory: Option<Memory>,
}

impl View {
    /// Workers there are, those that are coming included.
    pub fn alive(&self) -> usize {
        self.busy + self.idle + self.booting
    }
}

/// How many workers there are to be.
pub trait Policy {
    /// A request has come; it is counted in the view.
    fn arrived(&mut self, _view: &View) {}

    /// Whether a request of this kind is to get no worker now.
    fn holds_back(&self, _kind: u64) -> bool {
        false
    }

    /// A request of this kind has got a worker.
    fn began(&mut self, _kind: u64) {}

    /// A request of this kind has ended.
    fn finished(&mut self, _view: &View, _kind: u64, _spent: Spent) {}

    /// The kind of each request that runs, and how long it has waited for other things than a processor, in
    /// seconds, if the policy wants to know before a tick.
    fn running(&mut self, _waits: &mut dyn Iterator<Item = (u64, f64)>) {}

    /// The same before it is told of a request that finds nobody idle.
    fn all_busy(&mut self, _waits: &mut dyn Iterator<Item = (u64, f64)>) {}

    /// What each worker has, by its number, and how many requests have ended by now, if the policy wants to
    /// know before a tick.
    fn measures(&mut self, _workers: &mut dyn Iterator<Item = (i32, WorkerMemory)>, _ended: u64) {}

    /// So many workers were started, of those it wants.
    fn forked(&mut self, _workers: usize) {}

    /// To be called again every so many seconds.
    fn every(&self) -> f64 {
        1.0
    }

    /// That time is over.
    fn tick(&mut self, _view: &View) {}

    /// As many workers are to be there; those that lack are started now.
    fn wants(&self, view: &View) -> usize;

    /// As many idle workers are to go now. Asked after each tick.
    fn lets_go(&self, _view: &View) -> usize {
        0
    }

    /// The number of a worker that is to go, as soon as it has nothing to do. Asked after each tick.
    fn outgrown(&self) -> Option<i32> {
        None
    }

    /// Whether a worker that has just ended a request is to go.
    fn is_surplus(&self, _view: &View) -> bool {
        false
    }
}
