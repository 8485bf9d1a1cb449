//! A pool that finds its size (`pm = auto`): the controller of the crate `sizing`, told of each request
//! that comes and ends, and once a second of the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_scoreboard::Size;
use maitred_seat::Spent;
use maitred_sizing as sizing;
use maitred_sizing::{Controller, Kinds, Limits, Load, Machine, Sizing};

use crate::pool::Pool;
use crate::pool::exchange::Exchange;
use crate::pool::generation::Generation;
use crate::pool::generations::PoolState;
use crate::pool::growth::Growth;
use crate::pool::kind::assigned_requests;
use crate::pool::queue::{Queue, SeatId};
use crate::pool::stuck_workers;
use crate::pool::stuck_workers::{StuckWorkers, running, waited};

/// Thousandths of a processor in one.
const THOUSANDTHS: f64 = 1000.0;

/// What hangs is counted so often in the time after which a request does,
const COUNTS: u32 = 4;

/// and no sooner than this after the last count, which looks at every seat.
const COUNTS_AFTER: Duration = Duration::from_millis(5);

/// What such a pool has learned.
#[derive(Debug)]
pub struct Auto {
    controller: Controller,
    began: Instant,
    limits: Limits,
    /// Workers whose script hangs, and when they are counted again.
    parked: usize,
    stuck: StuckWorkers,
    kinds: Kinds,
    counts_at: Instant,
    /// Something has come since the last look.
    dirty: bool,
    /// What was said of its size last.
    said: Option<Sizing>,
}

/// What is in a queue's hands.
pub fn load(queue: &Queue<Arc<Exchange>>) -> Load {
    Load {
        ready: queue.open_seats(),
        busy: queue.busy(),
        waiting: queue.waiting(),
        parked: 0,
    }
}

impl Auto {
    /// A pool of at least `floor` and at most `cap` workers, nothing being known of it. Until the supervisor
    /// has said more, it may use what processors this process may use.
    pub fn new(floor: usize, cap: usize) -> Auto {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let limits = Limits { floor, cap };
        let machine = Machine {
            cores: cores as f64,
            memory: None,
        };
        let began = Instant::now();
        Auto {
            controller: Controller::new(limits, machine),
            began,
            limits,
            parked: 0,
            stuck: StuckWorkers::default(),
            kinds: Kinds::default(),
            counts_at: began,
            dirty: false,
            said: None,
        }
    }

    /// The same pool after a reload.
    pub fn after(self, before: Option<Auto>) -> Auto {
        let Some(mut before) = before else {
            return self;
        };
        before.controller.limit(self.limits);
        before.limits = self.limits;
        before
    }

    fn arrived(&mut self, load: Load) {
        self.dirty = true;
        let parked = self.parked;
        self.controller.arrived(Load { parked, ..load });
    }

    /// How many workers there are to be, when `more` requests wait behind others.
    pub fn needs(&mut self, load: Load, more: usize) -> usize {
        if more > 0 {
            let (waiting, parked) = (load.waiting + more, self.parked);
            self.controller.crowded(Load {
                waiting,
                parked,
                ..load
            });
        }
        self.controller.sizing().workers
    }

    /// How it stands, for others to see.
    fn shown(&self) -> Size {
        let Sizing {
            workers,
            binding,
            terms,
        } = self.controller.sizing();
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

    /// After how long a script hangs, as far as anybody can tell.
    fn parks_after(&self) -> Duration {
        Duration::try_from_secs_f64(self.controller.parks_after()).unwrap_or(Duration::MAX)
    }

    /// Counts whose scripts hang, unless that was done a moment ago.
    fn see_parked(&mut self, queue: &Queue<Arc<Exchange>>, generations: &[Arc<Generation>]) {
        if Instant::now() >= self.counts_at {
            self.count_parked(queue, generations);
        }
    }

    /// Of the seats' scripts those that have waited for so long that they hang.
    fn count_parked(&mut self, queue: &Queue<Arc<Exchange>>, generations: &[Arc<Generation>]) {
        let after = self.parks_after();
        let soon = Instant::now();
        let again = (after / COUNTS).max(COUNTS_AFTER);
        self.counts_at = soon.checked_add(again).unwrap_or(soon);
        let now = stuck_workers::now();
        let scripts = generations.iter().flat_map(|generation| {
            let (number, link) = (generation.number, generation.link());
            let seats = 0..link.seats();
            seats.filter_map(move |seat| running((number, seat), link.seat_board(seat), now))
        });
        self.parked = self.stuck.count(scripts, (after, now), waited);
        if self.parked == 0 && self.kinds.is_empty() {
            return;
        }
        let stuck = &self.stuck;
        let hangs = |seat: SeatId| stuck.has((seat.generation, seat.number));
        let believed = self.controller.believes_up_to();
        self.kinds.look(believed, assigned_requests(queue, hangs));
    }

    /// Whether most requests of this kind hang.
    pub fn hangs(&self, kind: u64) -> bool {
        self.kinds.hangs(kind)
    }

    /// How many workers such requests may have together, if not all.
    pub fn most_that_hang(&self) -> Option<usize> {
        self.controller.most_that_hang()
    }

    /// How many more workers such requests may have.
    pub fn left_to_who_hangs(&self) -> usize {
        let most = self.most_that_hang();
        most.map_or(usize::MAX, |most| self.kinds.left(most))
    }
}

impl Growth {
    /// Most workers that are to serve now, where more than those are ready.
    pub(crate) fn serving(&self) -> usize {
        let auto = self.auto.as_ref().filter(|_| self.has_more_ready);
        auto.map_or(usize::MAX, |auto| auto.controller.sizing().workers)
    }

    /// A worker has been let go, or was given back: the supervisor keeps no more than are left unless it is asked
    /// again.
    pub(crate) fn forget_told(&mut self, queue: &Queue<Arc<Exchange>>) {
        self.told = self.told.min(queue.open_current());
    }
}

impl PoolState {
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

    /// The worker of a request has died, which those do first that hang.
    pub(crate) fn count_death(&mut self, exchange: &Exchange) {
        if let Some(auto) = &mut self.growth.auto {
            auto.kinds.ended(exchange.kind, true);
        }
    }

    /// A request has come. It is placed or waits, or it is the one that is `refused`.
    pub(crate) fn count_arrival(&mut self, refused: usize) {
        let Some(auto) = &mut self.growth.auto else {
            return;
        };
        let mut load = load(&self.queue);
        load.waiting += refused;
        if load.busy >= load.ready {
            auto.see_parked(&self.queue, &self.generations);
        }
        auto.arrived(load);
    }
}

impl Pool {
    /// What its processes may use now, by the word of the supervisor: thousandths of a processor, and
    /// workers there is memory for.
    pub fn see_room(&self, cores: u32, workers: Option<u32>) {
        let mut state = self.lock();
        if let Some(auto) = &mut state.growth.auto {
            auto.controller.see(Machine {
                cores: (f64::from(cores) / THOUSANDTHS).max(1.0 / THOUSANDTHS),
                memory: workers.map(|workers| workers as usize),
            });
        }
        self.dirty.notify_one();
    }

    /// For how long requests may wait until it is looked which of the others hang.
    pub(crate) fn parks_after(&self) -> Duration {
        let state = self.lock();
        let auto = state.growth.auto.as_ref();
        auto.map_or(Duration::MAX, Auto::parks_after)
    }

    /// Requests have waited for so long. Nobody else need come for the pool to grow for them.
    pub(crate) fn help_stalled(&self) {
        let mut state = self.lock();
        let PoolState {
            queue,
            generations,
            growth,
            ..
        } = &mut *state;
        let (Some(auto), 1..) = (&mut growth.auto, queue.waiting()) else {
            return;
        };
        auto.see_parked(queue, generations);
        let parked = auto.parked;
        auto.controller.crowded(Load {
            parked,
            ..load(queue)
        });
        self.stalled.notify_one();
        self.ask_for_workers(&mut state, 0);
    }

    /// A request has ended: what it has cost, if its worker has told. Where there are more workers than
    /// there are to be and none is idle, the one that has just ended its request goes.
    pub(crate) fn count_cost(&self, state: &mut PoolState, kind: u64, spent: Option<Spent>) {
        let Some(auto) = &mut state.growth.auto else {
            return;
        };
        if spent.is_none() {
            auto.kinds.lost(kind);
        }
        if let Some(spent) = spent {
            // A child's work is work that its request waits for a processor with.
            let cpu = spent.cpu + spent.children;
            let ready = spent.core_wait;
            let known = cpu + ready.unwrap_or_default();
            let blocked = spent.held.saturating_sub(known);
            let spent = sizing::Spent {
                cpu,
                ready,
                blocked,
            };
            auto.controller.ended(&mut auto.kinds, kind, spent);
        }
        let workers = auto.controller.sizing().workers;
        if state.queue.open_seats() > workers
            && state.queue.waiting() > 0
            && let Some((seat, incarnation)) = state.queue.retire(0, 0)
        {
            // Those that are ready beyond are not to be taken for some that serve.
            if state.growth.told > workers {
                self.tell_wanted(state, workers);
            }
            self.report_retired(state, seat, incarnation);
            state.growth.forget_told(&state.queue);
        }
    }

    /// Shows how the number of workers was found, if it is.
    pub(crate) fn show_size(&self, state: &PoolState) {
        let size = state.growth.auto.as_ref().map(Auto::shown);
        self.tally
            .get()
            .inspect(|tally| tally.page().show_size(size));
    }

    /// The look once a second. False when the pool rests.
    pub(crate) fn tend_auto(&self, state: &mut PoolState) -> bool {
        let now = load(&state.queue);
        let generations = state.generations.clone();
        let Some(auto) = &mut state.growth.auto else {
            return false;
        };
        auto.count_parked(&state.queue, &generations);
        auto.kinds.pass_second();
        let parked = auto.parked;
        auto.controller.see_kinds(&auto.kinds);
        auto.controller
            .look(auto.began.elapsed(), Load { parked, ..now });
        let sizing = auto.controller.sizing();
        let dirty = std::mem::take(&mut auto.dirty);
        let floor = auto.limits.floor;
        self.say_size(auto, sizing);
        self.show_size(state);
        if state.growth.told > sizing.workers {
            self.tell_wanted(state, sizing.workers);
        }
        self.release(state);
        self.ask_for_workers(state, 0);
        // Where memory is short, those that only wait are the first to go.
        if let Some(room) = sizing.terms.memory {
            state.queue.limit_pending(room);
            self.apply_seat_changes(state);
        }
        let beyond = state.queue.open_seats().saturating_sub(sizing.workers);
        for _ in 0..beyond {
            let Some((seat, incarnation)) = state.queue.retire(0, 1) else {
                break;
            };
            self.report_retired(state, seat, incarnation);
            state.growth.forget_told(&state.queue);
        }
        dirty
            || !state.held_back.is_empty()
            || now.waiting > 0
            || now.busy > 0
            || state.queue.open_seats() > floor
    }

    fn say_size(&self, auto: &mut Auto, sizing: Sizing) {
        let before = auto.said.replace(sizing);
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
