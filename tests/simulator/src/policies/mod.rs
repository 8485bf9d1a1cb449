//! Ways of sizing a pool: ours, and those of others.

pub mod auto;
pub mod fixed;
pub mod fpm;
pub mod frankenphp;

use maitred_sizing::Spent;
use maitred_sizing::ledger::WorkerMemory;
use maitred_sizing::sources::Memory;

/// What a policy can see of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct View {
    /// Seconds since the start of the run.
    pub now: f64,
    /// Workers that run a request.
    pub busy: usize,
    /// Idle workers.
    pub idle: usize,
    /// Workers that are starting.
    pub booting: usize,
    /// Queued requests.
    pub waiting: usize,
    /// The longest queue time, in seconds.
    pub waited: f64,
    /// The longest idle time of a worker, in seconds.
    pub rested: f64,
    /// Processors.
    pub cores: f64,
    /// The share of the processors used since the last tick.
    pub cpu_used: f64,
    /// Memory, if it is limited.
    pub memory: Option<Memory>,
}

impl View {
    /// Workers, including those that are starting.
    pub fn alive(&self) -> usize {
        self.busy + self.idle + self.booting
    }
}

/// A policy decides the number of workers.
pub trait Policy {
    /// A request has arrived; the view includes it.
    fn arrived(&mut self, _view: &View) {}

    /// Whether a request of this kind gets no worker now.
    fn holds_back(&self, _kind: u64) -> bool {
        false
    }

    /// A request of this kind has started.
    fn began(&mut self, _kind: u64) {}

    /// A request of this kind has ended.
    fn finished(&mut self, _view: &View, _kind: u64, _spent: Spent) {}

    /// The kind of each running request, and how long it has waited for anything but a processor,
    /// in seconds, if the policy needs that before a tick.
    fn running(&mut self, _waits: &mut dyn Iterator<Item = (u64, f64)>) {}

    /// The same before an arrival that finds no idle worker.
    fn all_busy(&mut self, _waits: &mut dyn Iterator<Item = (u64, f64)>) {}

    /// The memory of each worker by its number, and the number of ended requests, if the policy
    /// needs that before a tick.
    fn measures(&mut self, _workers: &mut dyn Iterator<Item = (i32, WorkerMemory)>, _ended: u64) {}

    /// This many of the wanted workers were started.
    fn forked(&mut self, _workers: usize) {}

    /// The interval of ticks, in seconds.
    fn every(&self) -> f64 {
        1.0
    }

    /// A tick.
    fn tick(&mut self, _view: &View) {}

    /// The wanted number of workers; missing ones are started now.
    fn wants(&self, view: &View) -> usize;

    /// How many idle workers exit now. Called after each tick.
    fn lets_go(&self, _view: &View) -> usize {
        0
    }

    /// The number of a worker that has to exit once it is idle. Called after each tick.
    fn outgrown(&self) -> Option<i32> {
        None
    }

    /// Whether a worker that has just ended a request exits.
    fn is_surplus(&self, _view: &View) -> bool {
        false
    }
}
