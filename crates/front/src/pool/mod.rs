//! A pool as the front sees it: one queue, and the seat links of its generations to their workers.

pub(crate) mod auto;
pub(crate) mod exchange;
pub(crate) mod generation;
pub(crate) mod generations;
pub(crate) mod growth;
pub(crate) mod kind;
pub(crate) mod listen_backlog;
pub(crate) mod load_shedding;
pub(crate) mod metrics;
pub(crate) mod overload;
pub(crate) mod pools;
pub(crate) mod queue;
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
use maitred_config::Pool as Settings;
use maitred_control::{FromFront, Overrun, PhpInfo};
use maitred_seat::{Lent, SLOTS_PER_SEAT, Snapshot};
use tokio::sync::Notify;

use crate::pool::exchange::{Exchange, QueueRequest, SlotLease};
use crate::pool::generation::Generation;
use crate::pool::generations::PoolState;
use crate::pool::listen_backlog::Unaccepted;
use crate::pool::metrics::Tally;
use crate::pool::queue::{Depth, SeatAction, SeatId, SlotRef, Submission};
use crate::pool::saturation_log::SaturationLog;
use crate::pool::thread_local::Inbox;
use crate::pool::worker_calls::{PoolCalls, WorkerCalls};
use crate::pool::worker_events::UsefulEvents;
use crate::runtime::clock;
use crate::runtime::supervisor_channel::Supervisor;

/// Scripts that take less than this on average, in microseconds, let the next request wait in the
/// spare slots of a busy seat ("well under a millisecond").
const SHORT_SCRIPT_MICROS: u32 = 500;

/// What waking a sleeping worker is taken to cost, in microseconds, its own way back to work
/// included: waiting less than this for a busy one is cheaper for everybody. Chosen by trial on
/// whole requests (docs/decisions/0002-seat-link.md), not measured by itself.
const WAKING_MICROS: u32 = 150;

/// A worker that was woken and has not begun after this time has no processor, or does not run.
const WAKES_WITHIN: Duration = Duration::from_millis(100);

/// Share of a new measurement in the average script time: one eighth, as in TCP's smoothed round
/// trip time (RFC 6298 §2).
const AVERAGE_SHIFT: u32 = 3;

/// Why a request is not taken, or not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    /// As many wait as may.
    QueueFull,
    /// Those who wait take longer than it may wait.
    Hopeless,
    /// Newer ones have passed it for too long.
    Passed,
    /// The pool has no workers and will not get any.
    NoPool,
}

/// A pool.
#[derive(Debug)]
pub struct Pool {
    /// Its name, which stays the same through all generations.
    pub name: String,
    /// The settings of the generation that gets its requests.
    settings: ArcSwap<Settings>,
    state: Mutex<PoolState>,
    inboxes: Arc<[Inbox]>,
    /// Exchanges of each front thread that wait or are assignment.
    in_flight: Arc<[AtomicU32]>,
    /// What its workers have told each front thread.
    useful_events: Arc<[UsefulEvents]>,
    average_micros: AtomicU32,
    /// The request that came last was turned away.
    is_rejecting: AtomicBool,
    supervisor: Arc<Supervisor>,
    /// Somebody has to look whether it can shrink.
    dirty: Arc<Notify>,
    /// It finds its size, and a request waits.
    stalled: Arc<Notify>,
    /// What is said of its queue.
    pub saturation: SaturationLog,
    /// What has to be known of its PHP to answer in its stead.
    pub manner: ArcSwap<PhpInfo>,
    /// Where its requests are counted, since its first generation came.
    tally: OnceLock<Arc<Tally>>,
    /// What waits before its door, among others.
    unaccepted: Arc<Unaccepted>,
    /// Where the worker_calls of its scripts go.
    worker_calls: PoolCalls,
}

impl Pool {
    /// A pool without a generation. `is_fpm`: its log lines are php-fpm's.
    pub fn new(
        settings: Arc<Settings>,
        inboxes: Arc<[Inbox]>,
        supervisor: Arc<Supervisor>,
        (unaccepted, worker_calls): (Arc<Unaccepted>, &WorkerCalls),
        is_fpm: bool,
    ) -> Pool {
        Pool {
            name: settings.name.clone(),
            settings: ArcSwap::new(settings),
            state: Mutex::new(PoolState::new()),
            in_flight: inboxes.iter().map(|_| AtomicU32::new(0)).collect(),
            useful_events: inboxes.iter().map(|_| UsefulEvents::default()).collect(),
            inboxes,
            average_micros: AtomicU32::new(u32::MAX),
            is_rejecting: AtomicBool::new(false),
            supervisor,
            dirty: Arc::default(),
            stalled: Arc::default(),
            saturation: SaturationLog::new(is_fpm),
            manner: ArcSwap::default(),
            tally: OnceLock::new(),
            unaccepted,
            worker_calls: worker_calls.of_a_pool(),
        }
    }

    /// The settings of the generation that gets its requests.
    pub fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Where its requests are counted; nothing before its first generation.
    pub fn tally(&self) -> Option<&Arc<Tally>> {
        self.tally.get()
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many requests a seat may hold, by how long the pool's scripts take.
    fn depth(&self) -> Depth {
        let average = self.average_micros.load(Ordering::Relaxed).max(1);
        let before_waking = (WAKING_MICROS / average) as usize;
        let when_busy = if average < SHORT_SCRIPT_MICROS { 2 } else { 1 };
        Depth {
            before_waking: before_waking.clamp(1, SLOTS_PER_SEAT),
            when_busy: before_waking.clamp(when_busy, SLOTS_PER_SEAT),
        }
    }

    /// Gives a request to an idle worker or lets it wait, as it claims. Call it on the thread that waits
    /// for the answer.
    ///
    /// # Errors
    /// When it would wait in vain, or nobody is there to wait for.
    pub fn submit(
        self: &Arc<Pool>,
        thread: u32,
        request: Vec<u8>,
        queue_request: QueueRequest,
    ) -> Result<Arc<Exchange>, NotTaken> {
        let QueueRequest {
            priority, max_wait, ..
        } = queue_request;
        let exchange = Exchange::new(self.clone(), thread, request, queue_request);
        self.count_in_flight(&exchange);
        let mut state = self.lock();
        let submitted = match state.holds_back(&exchange) {
            true => None,
            false => Some(state.queue.submit(exchange.clone(), priority, self.depth())),
        };
        let refused = match submitted {
            None if state.hold_back(exchange.clone()) => {
                self.saturation.waits(false);
                self.show_figures(&mut state);
                return Ok(exchange);
            }
            None => NotTaken::QueueFull,
            Some(Submission::Placed(place)) => {
                self.note_rejection(false);
                let generation = state.generation(place.seat.generation).cloned();
                state.count_begin(&exchange);
                state.count_arrival(0);
                state.count_accepted(&exchange);
                if let Some(generation) = &generation {
                    exchange.assign(generation.clone(), place);
                }
                let is_behind = state.queue.is_shared(place.seat);
                self.show_figures(&mut state);
                drop(state);
                if let Some(generation) = generation {
                    generation.link().wake(place.seat.number);
                }
                thread_local::follow(exchange.clone(), is_behind);
                return Ok(exchange);
            }
            Some(Submission::Busy) => match self.enqueue(&mut state, &exchange, max_wait) {
                Ok(()) => return Ok(exchange),
                Err(refused) => refused,
            },
            Some(Submission::NoWorkers) => NotTaken::NoPool,
        };
        drop(state);
        self.uncount_in_flight(&exchange);
        Err(refused)
    }

    /// The pool as its status page shows it, all generations together. A script may have spoilt
    /// any of it. Connections that wait before the pool's door are counted among what waits: each
    /// will be a request, and php-fpm knows no other queue.
    pub fn snapshot(&self) -> Snapshot {
        let (generations, newest, open) = {
            let state = self.lock();
            let seats = state.generations.iter().flat_map(|generation| {
                let seats = 0..generation.link().seats();
                seats.map(|number| (generation.number, number))
            });
            let seats = seats.map(|(generation, number)| SeatId { generation, number });
            let open = seats.filter(|seat| state.queue.incarnation(*seat) != 0);
            let newest = state.newest().cloned();
            (state.generations.clone(), newest, open.collect::<Vec<_>>())
        };
        let Some(newest) = newest else {
            return Snapshot::default();
        };
        let boards = open.iter().filter_map(|seat| {
            let mut all = generations.iter();
            let generation = all.find(|generation| generation.number == seat.generation)?;
            Some(generation.link().seat_board(seat.number))
        });
        let mut all = Snapshot::take(newest.link().board(), boards, clock::since_1970());
        if let Some(door) = &self.settings().door {
            let before = self.unaccepted.at(&door.listen.to_string());
            all.queued = all.queued.saturating_add(before);
            all.max_queued = all.max_queued.max(all.queued);
        }
        all
    }

    /// A page of the pool's own was asked for at its door, and counts as a request.
    pub fn count_page(&self) {
        let mut state = self.lock();
        state.figures.accepted = state.figures.accepted.wrapping_add(1);
        state.show_figures();
    }

    fn show_figures(&self, state: &mut PoolState) {
        state.show_figures();
        if let Some(tally) = self.tally.get() {
            tally.show(state.queued(), state.queue.busy());
        }
        self.report_worn(state);
        self.ask_for_workers(state, 0);
    }

    fn count_in_flight(&self, exchange: &Exchange) {
        if !exchange.is_counted.swap(true, Ordering::Relaxed) {
            self.in_flight[exchange.thread as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// However many ways an exchange ends in at once, it counts once.
    fn uncount_in_flight(&self, exchange: &Exchange) {
        if exchange.is_counted.swap(false, Ordering::Relaxed) {
            self.in_flight[exchange.thread as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes a request out of the queue that no worker has. False when one has it.
    pub fn cancel(&self, exchange: &Arc<Exchange>) -> bool {
        let mut state = self.lock();
        let cancelled =
            state.queue.cancel(exchange, Instant::now()) || state.forget_held_back(exchange);
        if cancelled {
            self.show_figures(&mut state);
            self.uncount_in_flight(exchange);
        }
        cancelled
    }

    /// A worker is through with what it was assignment: the next request gets its place.
    pub fn finished(self: &Arc<Pool>, lease: SlotLease, exchange: &Arc<Exchange>) {
        let SlotLease {
            generation,
            assignment,
        } = lease;
        self.measure(&generation, &assignment);
        let grown = generation.outgrown(assignment.seat());
        let place = slot_of(&generation, &assignment);
        let spent = generation.link().spent(&assignment);
        let is_full = generation.link().finds_cache_full(&assignment);
        generation.link().release(assignment);
        self.uncount_in_flight(exchange);
        let mut state = self.lock();
        if grown {
            state.outgrown(place);
        }
        if is_full {
            self.report_full_cache(&mut state, &generation);
        }
        state.queue.done(place);
        self.count_cost(&mut state, exchange.kind, spent);
        self.settle(state, place.seat);
    }

    /// A request was taken back from its slot because nobody waits for it any more.
    pub fn taken_back(self: &Arc<Pool>, lease: &SlotLease, exchange: &Arc<Exchange>) {
        let place = slot_of(&lease.generation, &lease.assignment);
        self.uncount_in_flight(exchange);
        let mut state = self.lock();
        state.queue.free(place);
        state.count_lost(exchange);
        self.settle(state, place.seat);
    }

    /// The worker's word on how long its script took, as an average; it decides nothing but how
    /// this pool's own requests wait. While it waited for a processor, another worker would have had
    /// none either.
    fn measure(&self, generation: &Generation, assignment: &Lent) {
        let link = generation.link();
        let Some(took) = link.took(assignment) else {
            return;
        };
        // It may also have waited for a processor before it began: the worker's own time has none of
        // that.
        let without_waits = link.spent(assignment).and_then(|spent| {
            let waited = spent.core_wait?;
            u32::try_from(spent.held.saturating_sub(waited).as_micros()).ok()
        });
        let took = without_waits.map_or(took, |time| time.min(took));
        let average = self.average_micros.load(Ordering::Relaxed);
        let next = match average {
            u32::MAX => took,
            _ => average - (average >> AVERAGE_SHIFT) + (took >> AVERAGE_SHIFT),
        };
        self.average_micros
            .store(next.min(u32::MAX - 1), Ordering::Relaxed);
    }

    /// Does what the queue says is next, first for seats that change hands and then for `seat`,
    /// and wakes the worker it concerns once the queue is free for others.
    fn settle(self: &Arc<Pool>, mut state: MutexGuard<'_, PoolState>, seat: SeatId) {
        state.release();
        self.apply_seat_changes(&mut state);
        let placed = self.fill_seat(&mut state, seat);
        self.fill_idle(&mut state);
        self.show_figures(&mut state);
        let generation = state
            .generation(seat.generation)
            .filter(|_| placed)
            .cloned();
        drop(state);
        if let Some(generation) = generation {
            generation.link().wake(seat.number);
        }
    }

    /// Gives a seat what it does next. True when its worker is to be woken.
    fn fill_seat(&self, state: &mut PoolState, seat: SeatId) -> bool {
        let mut placed = false;
        let now = (state.queue.waiting() > 0).then(|| self.pass_time(state));
        loop {
            state.hold_back_first();
            match state.queue.next(seat, self.depth()) {
                SeatAction::Run(exchange, place) => self.assign_to(state, exchange, place),
                SeatAction::TakeBack { from, to } => {
                    if !self.take_back_to(state, from, to) {
                        break;
                    }
                }
                SeatAction::Rest => break,
            }
            placed = true;
        }
        if let Some(now) = now {
            self.shed_passed(state, now);
        }
        placed
    }

    fn assign_to(&self, state: &mut PoolState, exchange: Arc<Exchange>, place: SlotRef) {
        state.count_begin(&exchange);
        state.count_accepted(&exchange);
        if let Some(generation) = state.generation(place.seat.generation) {
            exchange.assign(generation.clone(), place);
        }
        self.inboxes[exchange.thread as usize].put(exchange);
    }

    /// Fetches a request that waits behind another; which of them has begun, the slots say.
    fn take_back_to(
        &self,
        state: &mut PoolState,
        candidates: Vec<(Arc<Exchange>, SlotRef)>,
        to: SlotRef,
    ) -> bool {
        let Some(generation) = state.generation(to.seat.generation).cloned() else {
            return false;
        };
        for (exchange, from) in candidates {
            if exchange.take_back() {
                let priority = exchange.priority;
                state.queue.moved(exchange.clone(), priority, (from, to));
                exchange.assign(generation, to);
                return true;
            }
        }
        false
    }

    /// A request has waited behind another for longer than the pool's scripts take: moves it to
    /// an idle seat, or back into the queue if there is none. A request with nothing before it may just
    /// have woken its worker: it wants another only if that takes long.
    pub fn rescue(&self, exchange: &Arc<Exchange>, waited: Duration) {
        let mut state = self.lock();
        // What waits in the queue is asked for already.
        let Some(from) = exchange.place() else { return };
        let is_late = waited > WAKES_WITHIN;
        let Some(to) = state.queue.idle_place(exchange.priority) else {
            let is_behind = state.queue.is_shared(from.seat);
            if is_behind || is_late {
                self.ask_for_workers(&mut state, 1);
            }
            if is_behind {
                self.requeue(&mut state, exchange, from);
            } else if let (true, Some(generation)) =
                (is_late, state.generation(from.seat.generation))
            {
                generation.link().wake_whatever_was_said(from.seat.number);
            }
            return;
        };
        if self.take_back_to(&mut state, vec![(exchange.clone(), from)], to) {
            // The seat it was taken from may have become one that can go.
            self.apply_seat_changes(&mut state);
            self.show_figures(&mut state);
            let generation = state.generation(to.seat.generation).cloned();
            drop(state);
            match generation {
                Some(generation) if is_late => {
                    generation.link().wake_whatever_was_said(to.seat.number);
                }
                Some(generation) => generation.link().wake(to.seat.number),
                None => {}
            }
        }
    }

    /// Fetches a request that waits behind a long script while no seat is idle: those that come later
    /// would pass it there, at whichever seats get free. Where none of that seat's has begun, its worker
    /// only waits for a processor.
    fn requeue(&self, state: &mut PoolState, exchange: &Arc<Exchange>, from: SlotRef) {
        let is_behind_a_script = state.queue.has(from.seat, |other| other.has_begun());
        if !is_behind_a_script || !exchange.take_back() {
            return;
        }
        let (item, priority) = (exchange.clone(), exchange.priority);
        state.queue.requeue(item, priority, (from, Instant::now()));
        state.count_lost(exchange);
        self.note_waiting(state);
    }

    /// A worker keeps to no rules, in words: it is ended, and what all others of its generation
    /// depend on is written again.
    pub fn broken(&self, generation: &Generation, place: SlotRef, how: &str) {
        generation.link().restore();
        let script = generation.script_in(place.seat.number);
        self.supervisor.report(&FromFront::EndWorker {
            generation: generation.number,
            seat: place.seat.number,
            incarnation: place.incarnation,
            why: format!("it broke the rules of the seat link: {how} ({script})"),
            overrun: None,
            broke_rules: true,
        });
    }

    /// The same of a worker of any generation that is still there.
    pub fn broke_rules(&self, place: SlotRef, how: &str) {
        let generation = self.lock().generation(place.seat.generation).cloned();
        if let Some(generation) = generation {
            self.broken(&generation, place, how);
        }
    }

    /// Whether nothing waits and nothing runs.
    pub fn is_quiet(&self) -> bool {
        self.in_flight
            .iter()
            .all(|in_flight| in_flight.load(Ordering::Relaxed) == 0)
    }

    /// Asks the supervisor to end a worker; `overrun`: for what it has run for too long.
    pub fn end_worker(&self, lease: &SlotLease, why: &str, overrun: Option<Overrun>) {
        let SlotLease {
            generation,
            assignment,
        } = lease;
        self.supervisor.report(&FromFront::EndWorker {
            generation: generation.number,
            seat: assignment.seat(),
            incarnation: assignment.incarnation(),
            why: format!("{why} ({})", generation.script_in(assignment.seat())),
            overrun,
            broke_rules: false,
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Whoever looks after it is to notice that it is gone.
        self.dirty.notify_one();
        self.saturation.pool_is_gone();
    }
}

/// Where a lease is.
pub(crate) fn slot_of(generation: &Generation, assignment: &Lent) -> SlotRef {
    SlotRef {
        seat: SeatId {
            generation: generation.number,
            number: assignment.seat(),
        },
        slot: assignment.slot(),
        incarnation: assignment.incarnation(),
    }
}

#[cfg(test)]
mod tests;
