//! A pool in the front: one queue, and the seat links of its generations to their workers.

pub(crate) mod auto;
pub(crate) mod crash_limit;
pub(crate) mod exchange;
pub(crate) mod generation;
pub(crate) mod generations;
pub(crate) mod growth;
pub(crate) mod health;
mod idleness;
pub(crate) mod kind;
pub(crate) mod listen_backlog;
pub(crate) mod load_shedding;
pub mod memory_return;
pub(crate) mod metrics;
pub(crate) mod overload;
pub(crate) mod overrun;
pub(crate) mod pool_key;
pub(crate) mod pool_load;
pub(crate) mod pool_registry;
pub(crate) mod queue;
mod rescue;
pub(crate) mod rolling_replace;
pub(crate) mod route_metrics;
pub(crate) mod saturation_log;
pub(crate) mod seats;
pub(crate) mod slow_scripts;
pub(crate) mod status;
pub(crate) mod status_counters;
pub(crate) mod stuck_workers;
pub(crate) mod thread_local;
pub(crate) mod wait_list;
pub(crate) mod wear;
pub(crate) mod worker_calls;
pub(crate) mod worker_events;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use maitred_config::{Pool as Settings, PoolUser};
use maitred_control::{FromFront, Overrun, PhpInfo, WorkerId};
use maitred_scoreboard::RequestOutcome;
use maitred_seat::{AssignedSlot, PoolState, SLOTS_PER_SEAT};
use tokio::sync::Notify;

use crate::pool::crash_limit::RouteAdmission;
use crate::pool::exchange::{Exchange, QueueRequest, SlotLease};
use crate::pool::generation::Generation;
use crate::pool::generations::PoolQueues;
use crate::pool::health::LastRejection;
use crate::pool::listen_backlog::ListenBacklog;
use crate::pool::metrics::PoolMetrics;
use crate::pool::pool_key::PoolKey;
use crate::pool::queue::{Depth, SeatAction, SeatId, SlotRef, Submission};
use crate::pool::rescue::note_unclaimed;
use crate::pool::saturation_log::SaturationLog;
use crate::pool::status_counters::machine_memory;
use crate::pool::thread_local::Inbox;
use crate::pool::worker_calls::{PoolCalls, WorkerCalls};
use crate::pool::worker_events::UsefulEvents;
use crate::runtime::clock;
use crate::runtime::supervisor_channel::Supervisor;

/// Average script time in microseconds below which requests wait in the spare slots of busy seats
/// ("well under a millisecond").
const SHORT_SCRIPT_MICROS: u32 = 500;

/// The cost of waking a sleeping worker, in microseconds, including its own way back to work:
/// waiting less than this for a busy one is cheaper for all. Chosen by trial on whole requests
/// (docs/decisions/0002-seat-link.md), not measured by itself.
const WAKING_MICROS: u32 = 150;

/// Weight of a new measurement in the average script time: one eighth, as in TCP's smoothed round
/// trip time (RFC 6298 §2).
const AVERAGE_SHIFT: u32 = 3;

/// A pool.
#[derive(Debug)]
pub struct Pool {
    /// Its name, which all its generations share.
    pub name: Arc<str>,
    /// Its user, which they share as well.
    pub user: PoolUser,
    /// The settings of the current generation.
    settings: ArcSwap<Settings>,
    state: Mutex<PoolQueues>,
    inboxes: Arc<[Inbox]>,
    /// Number of waiting or assigned exchanges of each front thread.
    in_flight: Arc<[AtomicU32]>,
    /// Number of useful events for each front thread.
    useful_events: Arc<[UsefulEvents]>,
    average_micros: AtomicU32,
    /// The last request was rejected.
    is_rejecting: AtomicBool,
    /// When a request was rejected for lack of workers.
    pub(crate) last_rejection: LastRejection,
    supervisor: Arc<Supervisor>,
    /// Wakes the maintenance task ([`growth::tend`]).
    dirty: Arc<Notify>,
    /// Wakes it earlier: `pm = auto`, and a request waits.
    stalled: Arc<Notify>,
    /// Log lines about a saturated queue.
    pub saturation: SaturationLog,
    /// The facts about its PHP that the front needs for its own responses and for paths.
    pub manner: ArcSwap<PhpInfo>,
    /// Its metrics, since its first generation opened.
    metrics: OnceLock<Arc<PoolMetrics>>,
    /// Connections that wait at its FastCGI listener, among others.
    listen_backlog: Arc<ListenBacklog>,
    /// Calls of its workers.
    worker_calls: PoolCalls,
}

impl Pool {
    /// What tells it from others.
    pub fn key(&self) -> PoolKey {
        PoolKey { name: self.name.clone(), user: self.user }
    }

    /// A pool without a generation. `is_fpm`: its log lines use php-fpm's words.
    pub fn new(
        settings: Arc<Settings>,
        inboxes: Arc<[Inbox]>,
        supervisor: Arc<Supervisor>,
        listen_backlog: Arc<ListenBacklog>,
        worker_calls: &WorkerCalls,
        is_fpm: bool,
    ) -> Pool {
        Pool {
            name: settings.name.as_str().into(),
            user: settings.runs_as,
            settings: ArcSwap::new(settings),
            state: Mutex::default(),
            in_flight: inboxes.iter().map(|_| AtomicU32::new(0)).collect(),
            useful_events: inboxes.iter().map(|_| UsefulEvents::default()).collect(),
            inboxes,
            average_micros: AtomicU32::new(u32::MAX),
            is_rejecting: AtomicBool::new(false),
            last_rejection: LastRejection::default(),
            supervisor,
            dirty: Arc::default(),
            stalled: Arc::default(),
            saturation: SaturationLog::new(is_fpm),
            manner: ArcSwap::default(),
            metrics: OnceLock::new(),
            listen_backlog,
            worker_calls: worker_calls.of_a_pool(),
        }
    }

    /// The settings of the current generation.
    pub fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Its metrics; none before its first generation.
    pub fn metrics(&self) -> Option<&Arc<PoolMetrics>> {
        self.metrics.get()
    }

    fn lock(&self) -> MutexGuard<'_, PoolQueues> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of requests that a seat may have, by the average script time.
    fn depth(&self) -> Depth {
        let average = self.average_micros.load(Ordering::Relaxed).max(1);
        let before_waking = (WAKING_MICROS / average) as usize;
        let when_busy = if average < SHORT_SCRIPT_MICROS { 2 } else { 1 };
        Depth {
            before_waking: before_waking.clamp(1, SLOTS_PER_SEAT),
            when_busy: before_waking.clamp(when_busy, SLOTS_PER_SEAT),
        }
    }

    /// Assigns a request to an idle worker or queues it. Call it on the thread that waits for the
    /// response.
    ///
    /// # Errors
    /// The request is rejected.
    pub fn submit(
        self: &Arc<Pool>,
        thread: u32,
        request: Vec<u8>,
        queue_request: QueueRequest,
    ) -> Result<Arc<Exchange>, RequestOutcome> {
        let exchange = Exchange::new(self.clone(), thread, request, queue_request);
        self.count_in_flight(&exchange);
        match self.place(&exchange) {
            Ok(()) => Ok(exchange),
            Err(why) => {
                self.uncount_in_flight(&exchange);
                if exchange.has_paid.load(Ordering::Relaxed) {
                    self.lock().refund(&exchange);
                }
                Err(why)
            }
        }
    }

    fn place(&self, exchange: &Arc<Exchange>) -> Result<(), RequestOutcome> {
        let mut state = self.lock();
        if state.crashes.knows(exchange.route) {
            match state.crashes.admit(exchange.route, clock::monotonic()) {
                RouteAdmission::Refused => return Err(RequestOutcome::CrashLimit),
                RouteAdmission::Free => {}
                RouteAdmission::Paid => exchange.has_paid.store(true, Ordering::Relaxed),
            }
        }
        state.meter.arrived(exchange.submitted);
        if state.holds_back(exchange) {
            if !state.hold_back(exchange.clone()) {
                return Err(RequestOutcome::QueueFull);
            }
            self.saturation.waits(false);
            self.show_counters(&mut state);
            return Ok(());
        }
        let (item, priority) = (exchange.clone(), exchange.priority);
        match state.queue.submit(item, priority, self.depth()) {
            Submission::Busy if state.is_suspended(Instant::now()) => Err(RequestOutcome::NoPool),
            Submission::Busy => self.enqueue(&mut state, exchange),
            Submission::NoWorkers => Err(RequestOutcome::NoPool),
            Submission::Placed(at) => {
                self.note_rejection(false);
                let generation = state.generation(at.seat.generation).cloned();
                state.count_begin(exchange);
                state.count_arrival(0);
                state.count_accepted(exchange);
                if let Some(generation) = &generation {
                    exchange.assign(generation.clone(), at);
                }
                let is_behind = state.queue.is_shared(at.seat) || state.queue.is_stalled(at.seat);
                self.show_counters(&mut state);
                drop(state);
                if let Some(generation) = generation {
                    generation.link().wake(at.seat.number);
                }
                thread_local::follow(exchange.clone(), is_behind);
                Ok(())
            }
        }
    }

    /// The state of the pool for its status page, over all generations. A hostile script may have
    /// changed any of it. Connections in the listen backlog of the pool's FastCGI listener count as
    /// waiting: each becomes a request, and php-fpm knows no other queue.
    pub fn snapshot(&self) -> PoolState {
        let (generations, newest, open) = {
            let state = self.lock();
            let open: Vec<SeatId> = state.queue.all_seats().map(|(seat, _)| seat).collect();
            (state.generations.clone(), state.newest().cloned(), open)
        };
        let Some(newest) = newest else {
            return PoolState::default();
        };
        let boards = open.iter().filter_map(|seat| {
            let mut all = generations.iter();
            let generation = all.find(|generation| generation.number == seat.generation)?;
            Some(generation.link().seat_board(seat.number))
        });
        let mut all = PoolState::take(newest.link().board(), boards, clock::since_1970());
        if let Some(listener) = &self.settings().listener {
            let before = self.listen_backlog.at(&listener.listen.to_string());
            all.queued = all.queued.saturating_add(before);
            all.max_queued = all.max_queued.max(all.queued);
        }
        all
    }

    /// The number of the generation that gets the requests.
    pub fn current_generation(&self) -> Option<u32> {
        self.lock().newest().map(|newest| newest.number)
    }

    /// Counts a request for the status page or ping at the pool's FastCGI listener.
    pub fn count_page(&self) {
        let mut state = self.lock();
        state.counters.accepted = state.counters.accepted.wrapping_add(1);
        state.show_counters();
    }

    fn show_counters(&self, state: &mut PoolQueues) {
        state.show_counters();
        if let Some(metrics) = self.metrics.get() {
            metrics.show(state.queued(), state.queue.busy());
        }
        self.report_worn(state);
        self.ask_for_workers(state, 0);
    }

    fn count_in_flight(&self, exchange: &Exchange) {
        if !exchange.is_counted.swap(true, Ordering::Relaxed) {
            self.in_flight[exchange.thread as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An exchange counts once, even if it ends in several ways at once.
    fn uncount_in_flight(&self, exchange: &Exchange) {
        if exchange.is_counted.swap(false, Ordering::Relaxed) {
            self.in_flight[exchange.thread as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes a request from the queue. False when a worker has it.
    pub fn cancel(&self, exchange: &Arc<Exchange>) -> bool {
        let mut state = self.lock();
        let cancelled =
            state.queue.cancel(exchange, Instant::now()) || state.forget_held_back(exchange);
        if cancelled {
            state.refund(exchange);
            self.show_counters(&mut state);
            self.uncount_in_flight(exchange);
        }
        cancelled
    }

    /// Handles the end of a request in a worker: the slot gets the next request.
    pub fn finished(self: &Arc<Pool>, lease: SlotLease, exchange: &Arc<Exchange>) {
        let at = lease.slot_ref();
        let SlotLease { generation, slot } = lease;
        self.measure(&generation, &slot);
        let is_outgrown = generation.is_outgrown(slot.seat());
        let spent = generation.link().spent(&slot);
        let is_full = generation.link().finds_cache_full(&slot);
        let board = generation.link().seat_board(slot.seat());
        let memory_peak = board.memory_peak.load(Ordering::Relaxed);
        generation.link().release(slot);
        self.uncount_in_flight(exchange);
        let mut state = self.lock();
        if is_outgrown {
            state.outgrown(at.worker());
        }
        if is_full {
            self.report_full_cache(&mut state, &generation);
        }
        state.refund(exchange);
        state.crashes.survived(exchange.route);
        state.counters.see_memory_peak(memory_peak, machine_memory());
        state.queue.done(at);
        self.count_cost(&mut state, exchange.kind, spent);
        self.settle(state, at.seat);
    }

    /// Handles a request that was withdrawn from its slot because its client has left.
    pub fn taken_back(self: &Arc<Pool>, lease: &SlotLease, exchange: &Arc<Exchange>) {
        let at = lease.slot_ref();
        self.uncount_in_flight(exchange);
        let mut state = self.lock();
        state.refund(exchange);
        note_unclaimed(&mut state, exchange, at);
        state.queue.free(at);
        state.count_lost(exchange);
        self.settle(state, at.seat);
    }

    /// Updates the average script time from the worker's own measurement, which only decides how
    /// this pool's own requests wait. Time without a processor does not count: another worker
    /// would have had none either.
    fn measure(&self, generation: &Generation, slot: &AssignedSlot) {
        let link = generation.link();
        let Some(took) = link.took(slot) else {
            return;
        };
        // The worker may also have waited for a processor before it began, which `spent` excludes.
        let without_waits = link.spent(slot).and_then(|spent| {
            let waited = spent.core_wait?;
            u32::try_from(spent.held.saturating_sub(waited).as_micros()).ok()
        });
        let took = without_waits.map_or(took, |time| time.min(took));
        let average = self.average_micros.load(Ordering::Relaxed);
        let next = match average {
            u32::MAX => took,
            _ => average - (average >> AVERAGE_SHIFT) + (took >> AVERAGE_SHIFT),
        };
        self.average_micros.store(next.min(u32::MAX - 1), Ordering::Relaxed);
    }

    /// Carries out the queue's decisions, first for seats whose worker changes and then for `seat`,
    /// and wakes its worker once the queue is unlocked.
    fn settle(self: &Arc<Pool>, mut state: MutexGuard<'_, PoolQueues>, seat: SeatId) {
        state.release();
        self.apply_seat_changes(&mut state);
        let is_filled = self.fill_seat(&mut state, seat);
        self.fill_idle(&mut state);
        self.show_counters(&mut state);
        let generation = state.generation(seat.generation).filter(|_| is_filled).cloned();
        drop(state);
        if let Some(generation) = generation {
            generation.link().wake(seat.number);
        }
    }

    /// Assigns requests to a seat with capacity. True when its worker is to be woken.
    fn fill_seat(&self, state: &mut PoolQueues, seat: SeatId) -> bool {
        let mut is_filled = false;
        let now = (state.queue.waiting() > 0).then(|| self.pass_time(state));
        loop {
            state.hold_back_first();
            match state.queue.next(seat, self.depth()) {
                SeatAction::Run(exchange, at) => self.assign_to(state, exchange, at),
                SeatAction::TakeBack { from, to } => {
                    if !self.take_back_to(state, from, to) {
                        break;
                    }
                }
                SeatAction::Rest => break,
            }
            is_filled = true;
        }
        if let Some(now) = now {
            self.shed_overtaken(state, now);
        }
        is_filled
    }

    fn assign_to(&self, state: &mut PoolQueues, exchange: Arc<Exchange>, at: SlotRef) {
        state.count_begin(&exchange);
        state.count_accepted(&exchange);
        if let Some(generation) = state.generation(at.seat.generation) {
            exchange.assign(generation.clone(), at);
        }
        self.inboxes[exchange.thread as usize].put(exchange);
    }

    /// Moves a request that waits behind another to `to`. Only the slots know which has begun.
    fn take_back_to(
        &self,
        state: &mut PoolQueues,
        candidates: Vec<(Arc<Exchange>, SlotRef)>,
        to: SlotRef,
    ) -> bool {
        let Some(generation) = state.generation(to.seat.generation).cloned() else {
            return false;
        };
        for (exchange, from) in candidates {
            if exchange.take_back() {
                let priority = exchange.priority;
                state.queue.moved(exchange.clone(), priority, from, to);
                exchange.assign(generation, to);
                return true;
            }
        }
        false
    }

    /// Handles a violation of the seat protocol: the worker is killed, and the shared state of its
    /// generation is written again.
    pub fn broken(&self, generation: &Generation, at: SlotRef, how: &str) {
        generation.link().restore();
        let why = format!("it broke the rules of the seat link: {how}");
        self.end_worker(generation, at, WorkerFault::BrokeRules { why });
    }

    /// [`Pool::broken`] for a worker of any generation in use.
    pub fn broke_rules(&self, at: SlotRef, how: &str) {
        let generation = self.lock().generation(at.seat.generation).cloned();
        if let Some(generation) = generation {
            self.broken(&generation, at, how);
        }
    }

    /// Whether no request waits or runs.
    pub fn is_quiet(&self) -> bool {
        self.in_flight.iter().all(|in_flight| in_flight.load(Ordering::Relaxed) == 0)
    }

    /// Requests that the supervisor kills a worker. False if the request is lost.
    pub fn end_worker(&self, generation: &Generation, at: SlotRef, fault: WorkerFault) -> bool {
        let broke_rules = matches!(fault, WorkerFault::BrokeRules { .. });
        let (why, overrun, is_logged) = match fault {
            WorkerFault::BrokeRules { why } => (why, None, false),
            WorkerFault::TakesNoRequest { waited } => {
                let why = format!("it has taken no request for {} s", waited.as_secs());
                (why, None, false)
            }
            WorkerFault::Overrun { overrun, is_logged } => {
                let why = "its script ran longer than request_terminate_timeout".to_owned();
                (why, Some(overrun), is_logged)
            }
        };
        self.supervisor.report(&FromFront::WorkerFailed {
            generation: generation.number,
            worker: WorkerId { seat: at.seat.number, incarnation: at.incarnation },
            why: format!("{why} ({})", generation.script_in(at.seat.number)),
            overrun,
            broke_rules,
            is_logged,
        })
    }
}

/// Why a worker has to be killed.
#[derive(Debug)]
pub enum WorkerFault {
    /// It violated the protocol of the seat link.
    BrokeRules {
        /// How, for the log.
        why: String,
    },
    /// It has left requests unclaimed for too long: its script hangs between two requests.
    TakesNoRequest {
        /// For how long.
        waited: Duration,
    },
    /// Its script exceeded `request_terminate_timeout`.
    Overrun {
        /// The script.
        overrun: Overrun,
        /// The front logs it, with the request.
        is_logged: bool,
    },
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Ends its maintenance and log tasks.
        self.dirty.notify_one();
        self.saturation.pool_is_gone();
    }
}

#[cfg(test)]
mod tests;
