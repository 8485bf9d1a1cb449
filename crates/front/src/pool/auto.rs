//! A pool with `pm = auto`: feeds the controller of the crate `sizing` with the arrival and the end
//! of each request, and once a second with the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_control::FromFront;
use maitred_scoreboard::Size;
use maitred_seat::Spent;
use maitred_sizing as sizing;
use maitred_sizing::{Controller, Kinds, Limits, Load, Machine, Sizing};

use crate::pool::Pool;
use crate::pool::exchange::Exchange;
use crate::pool::generation::Generation;
use crate::pool::generations::PoolQueues;
use crate::pool::growth::Growth;
use crate::pool::idleness::Idleness;
use crate::pool::kind::assigned_kinds;
use crate::pool::queue::Queue;
use crate::pool::stuck_workers;
use crate::pool::stuck_workers::{StuckWorkers, running, waited};

/// Thousandths of a processor in one.
const THOUSANDTHS: f64 = 1000.0;

/// Counts of hanging scripts within the time after which a script hangs,
const COUNTS: u32 = 4;

/// and the shortest time between two counts, which visit every seat.
const COUNTS_AFTER: Duration = Duration::from_millis(5);

/// The state of a pool with `pm = auto`.
#[derive(Debug)]
pub struct AutoSize {
    controller: Controller,
    began: Instant,
    limits: Limits,
    /// Number of workers whose script hangs,
    parked: usize,
    stuck: StuckWorkers,
    kinds: Kinds,
    /// and when they are counted again.
    counts_at: Instant,
    /// A request has arrived since the last check.
    dirty: bool,
    idleness: Idleness,
    /// The last size in the log.
    logged: Option<Sizing>,
}

/// The cost of a request as its worker reports it.
fn cost_of(spent: Spent) -> sizing::Spent {
    // A request waits for the processor time of its child processes, too.
    let cpu = spent.cpu + spent.children;
    let ready = spent.core_wait;
    let known = cpu + ready.unwrap_or_default();
    sizing::Spent { cpu, ready, blocked: spent.held.saturating_sub(known) }
}

/// The load of a queue.
pub fn load(queue: &Queue<Arc<Exchange>>) -> Load {
    Load { ready: queue.open_seats(), busy: queue.busy(), waiting: queue.waiting(), parked: 0 }
}

impl AutoSize {
    /// A pool of at least `floor` and at most `cap` workers, without measurements yet. Until the
    /// supervisor sets its capacity, it may use the processors of this process.
    ///
    /// After `rests_after` without a request it has no worker.
    pub fn new(floor: usize, cap: usize, rests_after: Option<Duration>) -> AutoSize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let limits = Limits { floor, cap };
        let machine = Machine { cores: cores as f64, memory: None };
        let began = Instant::now();
        AutoSize {
            controller: Controller::new(limits, machine),
            began,
            limits,
            parked: 0,
            stuck: StuckWorkers::default(),
            kinds: Kinds::default(),
            counts_at: began,
            dirty: false,
            idleness: Idleness::new(rests_after, began),
            logged: None,
        }
    }

    /// The same pool after a reload.
    pub fn after(self, before: Option<AutoSize>) -> AutoSize {
        let Some(mut before) = before else {
            return self;
        };
        before.idleness = self.idleness;
        before.controller.limit(self.limits);
        before.limits = self.limits;
        before
    }

    fn arrived(&mut self, load: Load) {
        self.dirty = true;
        self.idleness.arrived();
        let parked = self.parked;
        self.controller.arrived(Load { parked, ..load });
    }

    /// The number of workers needed when `more` requests wait behind others. None while the pool is
    /// idle: the supervisor starts the first workers by itself.
    pub fn needs(&mut self, load: Load, more: usize) -> Option<usize> {
        if self.idleness.needs_none() && load.busy + load.waiting + more == 0 {
            return None;
        }
        if more > 0 {
            let (waiting, parked) = (load.waiting + more, self.parked);
            self.controller.crowded(Load { waiting, parked, ..load });
        }
        Some(self.controller.sizing().workers)
    }

    /// Its size and the reasons, for the scoreboard.
    fn shown(&self) -> Size {
        let Sizing { workers, binding, terms } = self.controller.sizing();
        let count = |workers: usize| workers as u64;
        let micros = |seconds: f64| (seconds * 1e6) as u64;
        let cost = self.controller.cost();
        Size {
            workers: count(workers),
            binding: binding as u64,
            demand: count(terms.demand),
            cpu: count(terms.cpu),
            memory: terms.memory.map(count),
            downstream: terms.downstream.map(count),
            user: count(terms.user),
            cores: (self.controller.machine().cores * THOUSANDTHS) as u64,
            cpu_micros: cost.is_known().then(|| micros(cost.cpu())),
            blocked_micros: micros(cost.blocked()),
            hanging: count(self.parked),
        }
    }

    /// The waiting time after which a script hangs, as an estimate.
    fn parks_after(&self) -> Duration {
        Duration::try_from_secs_f64(self.controller.parks_after()).unwrap_or(Duration::MAX)
    }

    /// Counts hanging scripts, unless the last count is recent.
    fn see_parked(&mut self, queue: &Queue<Arc<Exchange>>, generations: &[Arc<Generation>]) {
        if Instant::now() >= self.counts_at {
            self.count_parked(queue, generations);
        }
    }

    /// Counts hanging scripts.
    fn count_parked(&mut self, queue: &Queue<Arc<Exchange>>, generations: &[Arc<Generation>]) {
        let after = self.parks_after();
        let soon = Instant::now();
        let again = (after / COUNTS).max(COUNTS_AFTER);
        self.counts_at = soon.checked_add(again).unwrap_or(soon);
        let now = stuck_workers::now();
        // Only seats with a worker: each read of another board would take a page of memory.
        let scripts = queue.all_seats().filter_map(|(seat, _)| {
            let mut all = generations.iter();
            let generation = all.find(|generation| generation.number == seat.generation)?;
            running(seat, generation.link().seat_board(seat.number), now)
        });
        self.parked = self.stuck.count(scripts, after, now, waited);
        if self.parked == 0 && self.kinds.is_empty() {
            return;
        }
        let stuck = &self.stuck;
        let believed = self.controller.believes_up_to();
        let assigned = assigned_kinds(queue, |seat| stuck.has(seat));
        self.kinds.look(believed, assigned);
    }

    /// Whether most requests of this kind hang.
    pub fn hangs(&self, kind: u64) -> bool {
        self.kinds.hangs(kind)
    }

    /// The maximum number of workers for all hanging requests together; none: unlimited.
    pub fn most_that_hang(&self) -> Option<usize> {
        self.controller.most_that_hang()
    }

    /// Number of further workers that hanging requests may have.
    pub fn workers_left_for_stuck(&self) -> usize {
        let most = self.most_that_hang();
        most.map_or(usize::MAX, |most| self.kinds.left(most))
    }
}

impl Growth {
    /// Processors and memory of a pool with `pm = auto`.
    pub(crate) fn machine(&self) -> Option<Machine> {
        self.auto.as_ref().map(|auto| *auto.controller.machine())
    }

    /// Whether the pool rests: `pm = auto`, and no request for long.
    pub(crate) fn is_resting(&self) -> bool {
        self.auto.as_ref().is_some_and(|auto| auto.idleness.is_resting())
    }

    /// Limit of serving workers, where more than those are ready.
    pub(crate) fn serving(&self) -> usize {
        let auto = self.auto.as_ref().filter(|_| self.has_more_ready);
        auto.map_or(usize::MAX, |auto| auto.controller.sizing().workers)
    }

    /// A worker was retired or given back: the supervisor starts no other one without a new
    /// request.
    pub(crate) fn forget_requested(&mut self, queue: &Queue<Arc<Exchange>>) {
        self.requested = self.requested.min(queue.open_current());
    }
}

impl PoolQueues {
    /// A request has got a worker.
    pub(crate) fn count_begin(&mut self, exchange: &Exchange) {
        if let Some(auto) = &mut self.growth.auto {
            auto.kinds.began(exchange.kind);
        }
    }

    /// A request has lost its worker before that had begun it.
    pub(crate) fn count_lost(&mut self, exchange: &Exchange) {
        if let Some(auto) = &mut self.growth.auto {
            auto.kinds.lost(exchange.kind);
        }
    }

    /// The worker of a request has died: hanging ones are the first to be killed.
    pub(crate) fn count_death(&mut self, exchange: &Exchange) {
        if let Some(auto) = &mut self.growth.auto {
            auto.kinds.ended(exchange.kind, true);
        }
    }

    /// A request has arrived: it is in the queue or has a worker, or it is one of `rejected`.
    pub(crate) fn count_arrival(&mut self, rejected: usize) {
        let Some(auto) = &mut self.growth.auto else {
            return;
        };
        let mut load = load(&self.queue);
        load.waiting += rejected;
        if load.busy >= load.ready {
            auto.see_parked(&self.queue, &self.generations);
        }
        auto.arrived(load);
    }
}

impl Pool {
    /// Sets the capacity that the supervisor grants: processors in thousandths, and workers that
    /// fit into memory.
    pub fn set_capacity(&self, cores: u32, workers: Option<u32>) {
        let mut state = self.lock();
        if let Some(auto) = &mut state.growth.auto {
            auto.controller.see(Machine {
                cores: (f64::from(cores) / THOUSANDTHS).max(1.0 / THOUSANDTHS),
                memory: workers.map(|workers| workers as usize),
            });
        }
        self.dirty.notify_one();
    }

    /// The time for which requests may wait before hanging scripts are counted.
    pub(crate) fn parks_after(&self) -> Duration {
        let state = self.lock();
        let auto = state.growth.auto.as_ref();
        auto.map_or(Duration::MAX, AutoSize::parks_after)
    }

    /// Grows the pool for requests that have waited for that time, without further arrivals.
    pub(crate) fn help_stalled(&self) {
        let mut state = self.lock();
        let PoolQueues { queue, generations, growth, .. } = &mut *state;
        let (Some(auto), 1..) = (&mut growth.auto, queue.waiting()) else {
            return;
        };
        auto.see_parked(queue, generations);
        let parked = auto.parked;
        auto.controller.crowded(Load { parked, ..load(queue) });
        self.stalled.notify_one();
        self.ask_for_workers(&mut state, 0);
    }

    /// A request has ended, at this cost, if its worker reports it. If there are more workers than
    /// needed and none is idle, the worker of this request retires.
    pub(crate) fn count_cost(&self, state: &mut PoolQueues, kind: u64, spent: Option<Spent>) {
        let spent = spent.map(cost_of);
        if let Some(spent) = spent {
            state.meter.ended(maitred_scoreboard::now(), kind, spent);
        }
        let Some(auto) = &mut state.growth.auto else {
            return;
        };
        match spent {
            Some(spent) => auto.controller.ended(&mut auto.kinds, kind, spent),
            None => auto.kinds.lost(kind),
        }
        let workers = auto.controller.sizing().workers;
        if state.queue.open_seats() > workers
            && state.queue.waiting() > 0
            && let Some(worker) = state.queue.retire(0, 0)
        {
            // The supervisor must not count workers that are ready as serving ones.
            if state.growth.requested > workers {
                self.request_workers(state, workers);
            }
            self.report_retired(state, worker);
            state.growth.forget_requested(&state.queue);
        }
    }

    /// Shows the size and its reasons on the scoreboard.
    pub(crate) fn show_size(&self, state: &PoolQueues) {
        let size = state.growth.auto.as_ref().map(AutoSize::shown);
        self.metrics.get().inspect(|metrics| metrics.page().show_size(size));
    }

    /// The check once a second. False when the pool needs none.
    pub(crate) fn tend_auto(&self, state: &mut PoolQueues) -> bool {
        let now = load(&state.queue);
        let Some(auto) = &mut state.growth.auto else {
            return false;
        };
        auto.count_parked(&state.queue, &state.generations);
        auto.kinds.pass_second();
        let parked = auto.parked;
        auto.controller.see_kinds(&auto.kinds);
        auto.controller.look(auto.began.elapsed(), Load { parked, ..now });
        let sizing = auto.controller.sizing();
        let was_dirty = std::mem::take(&mut auto.dirty);
        let is_idle = now.busy == 0 && now.waiting == 0 && !was_dirty;
        let rests_now = auto.idleness.look(is_idle, Instant::now());
        let (workers, floor) = match auto.idleness.is_resting() {
            true => (0, 0),
            false => (sizing.workers, auto.limits.floor),
        };
        self.log_size(auto, sizing);
        self.show_size(state);
        if rests_now {
            self.report_idle(state);
        }
        if state.growth.requested > workers {
            self.request_workers(state, workers);
        }
        self.release(state);
        self.ask_for_workers(state, 0);
        // Where memory is short, pending workers retire first.
        if let Some(most) = sizing.terms.memory {
            state.queue.limit_pending(most);
            self.apply_seat_changes(state);
        }
        let beyond = state.queue.open_seats().saturating_sub(workers);
        for _ in 0..beyond {
            let Some(worker) = state.queue.retire(0, 1) else {
                break;
            };
            self.report_retired(state, worker);
            state.growth.forget_requested(&state.queue);
        }
        was_dirty
            || !state.held_back.is_empty()
            || now.waiting > 0
            || now.busy > 0
            || state.queue.open_seats() > floor
    }

    /// When the pool rests unless a request arrives; none: never, or it does already.
    pub(crate) fn rests_at(&self) -> Option<Instant> {
        self.lock().growth.auto.as_ref()?.idleness.rests_at()
    }

    fn report_idle(&self, state: &PoolQueues) {
        let generation = state.queue.current();
        if generation != 0 {
            self.supervisor.report(&FromFront::PoolIdle { generation });
        }
    }

    fn log_size(&self, auto: &mut AutoSize, sizing: Sizing) {
        let before = auto.logged.replace(sizing);
        let Some(before) = before.filter(|before| before.workers != sizing.workers) else {
            return;
        };
        tracing::debug!(
            "pool {}: workers {} to {} ({}), reason: {}",
            self.name,
            before.workers,
            sizing.workers,
            sizing.terms,
            sizing.binding.name()
        );
    }
}
