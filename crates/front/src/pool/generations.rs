//! The generations of a pool: they are opened, replaced and removed, while the queue stays.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use maitred_config::Mode;
use maitred_control::{FromFront, Generation as Number, Wear, WorkerId};
use maitred_scoreboard::RequestOutcome;
use maitred_sizing::saturation::Meter;

use crate::pool::crash_limit::CrashLimit;
use crate::pool::exchange::{AfterDeath, Exchange};
use crate::pool::generation::Generation;
use crate::pool::growth::Growth;
use crate::pool::queue::{Queue, SeatId, SlotRef, WorkerRef};
use crate::pool::rolling_replace::SeatChange;
use crate::pool::status_counters::{StatusCounters, machine_memory};
use crate::pool::{Pool, overrun};
use crate::runtime::clock;

/// Interval of reports that workers find OPcache full: the check for it takes a process.
const FULL_CACHE_EVERY: Duration = Duration::from_secs(10);

/// How long requests are rejected after PHP could not be started. The next one has it tried again.
const SUSPENDED: Duration = Duration::from_secs(5);

/// The state of a pool under its lock.
#[derive(Debug, Default)]
pub struct PoolQueues {
    /// The queue.
    pub queue: Queue<Arc<Exchange>>,
    /// The generations, in the order of their arrival.
    pub generations: Vec<Arc<Generation>>,
    /// The counters of the status page.
    pub counters: StatusCounters,
    /// The growth and shrinking of the pool.
    pub growth: Growth,
    /// Requests that are held back because their kind hangs, until others of that kind have ended.
    pub held_back: VecDeque<Arc<Exchange>>,
    /// Reports that the supervisor has not accepted, at most one for each seat.
    pub unsent_reports: Vec<FromFront>,
    /// Routes whose requests have ended their workers.
    pub crashes: CrashLimit,
    /// The latest reports of a full OPcache.
    pub full_cache_reports: FullCacheReports,
    /// Until when requests are rejected while there is no worker: PHP could not be started.
    pub suspended_until: Option<Instant>,
    /// The load, for autoscalers.
    pub meter: Meter,
}

/// The latest reports of generations with a full OPcache, and their times: at most one entry for
/// each.
#[derive(Debug, Default)]
pub struct FullCacheReports(Vec<(Number, Instant)>);

impl FullCacheReports {
    /// Whether to report this generation now. During a reload two may be full.
    fn is_due(&mut self, generation: Number, now: Instant) -> bool {
        self.0.retain(|(_, at)| now < *at + FULL_CACHE_EVERY);
        let is_due = self.0.iter().all(|(reported, _)| *reported != generation);
        if is_due {
            self.0.push((generation, now));
        }
        is_due
    }
}

impl PoolQueues {
    /// The generation with this number.
    pub fn generation(&self, number: Number) -> Option<&Arc<Generation>> {
        let mut all = self.generations.iter().rev();
        all.find(|generation| generation.number == number)
    }

    /// The generation with the pool's counters on its board: the current one, or else the last.
    pub fn newest(&self) -> Option<&Arc<Generation>> {
        let current = self.generation(self.queue.current());
        current.or_else(|| self.generations.last())
    }

    /// Writes the counters to every generation's board: its scripts read their own.
    pub fn show_counters(&mut self) {
        if self.queue.busy() != self.meter.busy_workers() {
            self.meter.busy(maitred_scoreboard::now(), self.queue.busy());
        }
        let (queued, active) = (self.queued() as u32, self.queue.busy() as u32);
        self.counters.see(queued, active);
        for generation in &self.generations {
            self.counters.show(generation.link().board(), queued, active);
        }
    }

    /// Counts a request with a worker; once, even if it gets another worker later.
    pub fn count_accepted(&mut self, exchange: &Exchange) {
        if !exchange.accepted.swap(true, Ordering::Relaxed) {
            self.counters.accepted = self.counters.accepted.wrapping_add(1);
            let now = maitred_scoreboard::now();
            self.meter.begun(now, now.saturating_sub(exchange.submitted));
        }
    }

    /// A request has ended no worker: its route gets back what it has paid.
    pub fn refund(&mut self, exchange: &Exchange) {
        if exchange.has_paid.swap(false, Ordering::Relaxed) {
            self.crashes.refund(exchange.route);
        }
    }

    /// Whether requests are rejected because PHP could not be started lately.
    pub fn is_suspended(&self, now: Instant) -> bool {
        self.suspended_until.is_some_and(|until| now < until) && !self.queue.has_open_workers()
    }

    /// Marks a worker that has reached `max_private_memory` for replacement.
    pub fn outgrown(&mut self, worker: WorkerRef) {
        self.queue.wear_out(worker, Wear::Memory);
    }
}

impl Generation {
    /// Whether a worker reports more private memory than `max_private_memory`.
    pub(crate) fn is_outgrown(&self, seat: u32) -> bool {
        let limit = self.settings.max_private_memory;
        limit > 0 && {
            let board = self.link().seat_board(seat);
            board.private_bytes.load(Ordering::Relaxed) > limit
        }
    }
}

impl Pool {
    /// PHP could not be started at `now`: without a worker, requests are rejected for a moment.
    pub fn suspend(&self, now: Instant) {
        let mut state = self.lock();
        state.suspended_until = Some(now + SUSPENDED);
        if !state.is_suspended(now) {
            return;
        }
        for exchange in state.queue.take_waiting() {
            self.reject(&mut state, &exchange, RequestOutcome::NoPool);
        }
        self.show_counters(&mut state);
    }

    /// Adds a generation. It gets no requests before [`Pool::replace`].
    pub fn add(&self, generation: Generation) -> Arc<Generation> {
        let (in_flight, useful_events) = (self.in_flight.clone(), self.useful_events.clone());
        let mut generation = generation.counting_with(in_flight, useful_events);
        // One mapping is enough: every generation of the pool counts on the same page.
        let metrics = self.metrics.get_or_init(|| generation.metrics.clone());
        // … but what the application counts is that of its user.
        if !Arc::ptr_eq(metrics, &generation.metrics) {
            metrics.application.store(generation.metrics.application.load_full());
        }
        generation.metrics = metrics.clone();
        let generation = Arc::new(generation);
        let mut state = self.lock();
        let settings = &generation.settings;
        // The replacement of a copied worker waits already: none need be started before it exits.
        let is_copied = settings.mode == Mode::Snapshot;
        let max_requests = if is_copied { 0 } else { settings.max_requests };
        let (number, seats) = (generation.number, generation.link().seats());
        state.queue.add(number, seats, max_requests);
        if is_copied {
            let each = u64::from(settings.requests_per_child);
            let each = each.saturating_mul(u64::from(settings.rewinds_per_child) + 1);
            state.queue.serve_each(number, each);
        }
        state.generations.push(generation.clone());
        generation
    }

    /// Sends the pool's requests to generation `new` from now on; the earlier ones retire.
    pub fn replace(self: &Arc<Pool>, new: Number) {
        let mut state = self.lock();
        let Some(generation) = state.generation(new).cloned() else {
            return;
        };
        let settings = &generation.settings;
        let limit = settings.request_queue_length as usize;
        state.queue.replace(new, generation.max_open(), limit);
        state.queue.reserve(settings.reserved_workers as usize);
        let waiting = &mut state.queue.waiting;
        waiting.set_timeout(settings.request_queue_timeout);
        let grown = std::mem::take(&mut state.growth);
        state.growth = Growth::of(settings, generation.max_open()).after(grown);
        let serving = state.growth.serving();
        state.queue.limit_serving(serving);
        // Its code may have changed.
        state.meter.relearn();
        let now = clock::since_1970().as_secs();
        state.counters.open(generation.link().board(), now, machine_memory());
        state.counters.queue_limit = settings.request_queue_length;
        self.show_size(&state);
        self.settings.store(settings.clone());
        self.settle_all(state);
    }

    /// Retires a generation without a replacement.
    pub fn leave(self: &Arc<Pool>, number: Number) {
        let mut state = self.lock();
        state.queue.leave(number);
        self.settle_all(state);
    }

    /// Removes a generation without workers. Its remaining requests go to other workers.
    pub fn forget(self: &Arc<Pool>, number: Number) {
        let mut state = self.lock();
        let had = state.queue.remove(number);
        self.recover(&mut state, had);
        state.generations.retain(|generation| generation.number != number);
        self.settle_all(state);
    }

    /// From now on, keeps at most `keep` idle workers, and at most one in `share` of all workers.
    pub fn keep_only(self: &Arc<Pool>, keep: usize, share: usize) {
        let mut state = self.lock();
        let most = state.queue.max_open().div_ceil(share);
        state.queue.keep_only(keep.min(most));
        self.settle_all(state);
    }

    /// Whether the pool has no generation, and no request waits for one.
    pub fn is_void(&self) -> bool {
        self.lock().queue.is_void()
    }

    /// Opens the seat of a worker. Its responses to requests of an earlier front are discarded.
    pub fn seat_opened(self: &Arc<Pool>, worker: WorkerRef) {
        let seat = worker.seat;
        let Some(generation) = self.lock().generation(seat.generation).cloned() else {
            return;
        };
        if seat.number >= generation.link().seats() {
            return;
        }
        // The report of a new worker can be quicker than that of its predecessor's death.
        let mut state = self.lock();
        let had = state.queue.vacate(seat);
        self.recover(&mut state, had);
        self.settle_all(state);
        let adopted = generation.link().adopt(seat.number, worker.incarnation, 0);
        let mut inherited = Vec::new();
        for slot in adopted {
            let number = slot.slot();
            let exchange = Exchange::inherited(self, &generation, slot);
            self.count_in_flight(&exchange);
            self.inboxes[0].put(exchange.clone());
            overrun::watch_left(exchange.clone());
            inherited.push((number, exchange));
        }
        let mut state = self.lock();
        state.queue.arrive(worker, inherited);
        self.settle(state, seat);
        self.dirty.notify_one();
    }

    /// Returns a worker that the front cannot use; the supervisor replaces it.
    pub fn give_back(&self, worker: WorkerRef) {
        let mut state = self.lock();
        self.report_retired(&mut state, worker);
        state.forget_requested(worker.seat.generation);
        self.dirty.notify_one();
    }

    /// Removes a dead worker's pid from the status page.
    pub fn forget_pid(&self, seat: SeatId, pid: i32) {
        let Some(generation) = self.lock().generation(seat.generation).cloned() else {
            return;
        };
        if seat.number < generation.link().seats()
            && let Ok(pid) = u32::try_from(pid)
        {
            let shown = &generation.link().seat_board(seat.number).pid;
            // A successor may have written its own by now.
            let _ = shown.compare_exchange(pid, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Handles the death of a worker: requests that it had not started go to others, the rest has
    /// failed.
    pub fn seat_died(self: &Arc<Pool>, worker: WorkerRef) {
        let mut state = self.lock();
        if !state.queue.forget_pending(worker) {
            let was_open = state.queue.incarnation(worker.seat) == worker.incarnation;
            let had = state.queue.close(worker);
            self.recover(&mut state, had);
            let generation = state.generation(worker.seat.generation);
            if let Some(generation) = generation.filter(|_| was_open) {
                generation.link().vacate(worker.seat.number);
            }
        }
        self.settle_all(state);
    }

    /// Requeues the requests of a dead worker that it had not begun.
    fn recover(&self, state: &mut PoolQueues, had: Vec<(SlotRef, Arc<Exchange>)>) {
        for (at, exchange) in had.into_iter().rev() {
            match exchange.worker_died() {
                AfterDeath::NotStarted => {
                    state.count_lost(&exchange);
                    let priority = exchange.priority;
                    state.queue.put_back(exchange, priority, Instant::now());
                    continue;
                }
                AfterDeath::Interrupted => {
                    state.crashes.crashed(exchange.route, clock::monotonic());
                    self.report_death(state, at, &exchange);
                }
                AfterDeath::Over => state.refund(&exchange),
            }
            state.count_death(&exchange);
            self.uncount_in_flight(&exchange);
        }
    }

    /// Reports the script of a dead worker to the supervisor, which only sees an exit status.
    fn report_death(&self, state: &PoolQueues, at: SlotRef, exchange: &Exchange) {
        let SeatId { generation, number } = at.seat;
        let Some(generation) = state.generation(generation) else {
            return;
        };
        self.supervisor.report(&FromFront::ScriptDied {
            generation: generation.number,
            worker: WorkerId { seat: number, incarnation: at.incarnation },
            script: exchange.script_of_dead(generation.script_in(number)),
        });
    }

    /// Carries out the queue's decisions for all seats.
    fn settle_all<'p>(self: &'p Arc<Pool>, mut state: MutexGuard<'p, PoolQueues>) {
        state.release();
        self.apply_seat_changes(&mut state);
        for exchange in state.queue.abandon() {
            self.reject(&mut state, &exchange, RequestOutcome::NoPool);
        }
        self.show_counters(&mut state);
        while let Some(idle) = state.queue.idle_for_waiting() {
            self.settle(state, idle);
            state = self.lock();
        }
        drop(state);
        self.dirty.notify_one();
    }

    /// Carries out the queue's seat changes.
    pub(crate) fn apply_seat_changes(&self, state: &mut PoolQueues) {
        while let Some(change) = state.queue.next_seat_change() {
            match change {
                SeatChange::Retire(worker) => self.report_retired(state, worker),
                SeatChange::Open(seat) => {
                    if self.fill_seat(state, seat)
                        && let Some(generation) = state.generation(seat.generation)
                    {
                        generation.link().wake(seat.number);
                    }
                }
            }
        }
    }

    /// Has the supervisor end a worker.
    pub(crate) fn report_retired(&self, state: &mut PoolQueues, worker: WorkerRef) {
        let report =
            FromFront::SeatRetired { generation: worker.seat.generation, worker: worker.into() };
        self.send_report(state, report);
    }

    /// Marks a worker for replacement, because the supervisor reports that it has grown.
    pub fn outgrown(&self, worker: WorkerRef) {
        let mut state = self.lock();
        state.queue.wear_out(worker, Wear::Grown);
        self.report_worn(&mut state);
    }

    pub(crate) fn report_worn(&self, state: &mut PoolQueues) {
        while let Some((worker, why)) = state.queue.next_worn() {
            let report = FromFront::SeatWorn {
                generation: worker.seat.generation,
                worker: worker.into(),
                why,
            };
            self.send_report(state, report);
        }
    }

    /// Reports that workers of a generation find OPcache full, but not with each request.
    pub(crate) fn report_full_cache(&self, state: &mut PoolQueues, generation: &Generation) {
        let generation = generation.number;
        if state.full_cache_reports.is_due(generation, Instant::now()) {
            // A lost report is repeated anyway.
            self.supervisor.report(&FromFront::OpcacheFilled { generation });
        }
    }

    /// Sends a report that must not be lost: if the supervisor does not accept it, it is sent
    /// again later.
    fn send_report(&self, state: &mut PoolQueues, report: FromFront) {
        if !self.supervisor.report(&report) {
            state.unsent_reports.push(report);
            self.dirty.notify_one();
        }
    }

    /// Sends the reports again that the supervisor has not accepted.
    pub(crate) fn resend_reports(&self, state: &mut PoolQueues) {
        for report in std::mem::take(&mut state.unsent_reports) {
            if !self.supervisor.report(&report) {
                state.unsent_reports.push(report);
            } else if let FromFront::SeatRetired { generation, .. } = report {
                // More workers may have been requested in the meantime.
                state.forget_requested(generation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_is_said_once_in_a_while_of_each_generation_however_they_take_turns() {
        let mut reports = FullCacheReports::default();
        let start = Instant::now();
        for second in 0..10 {
            let now = start + Duration::from_secs(second);
            let due = [reports.is_due(1, now), reports.is_due(2, now)];
            assert_eq!(due, [second == 0; 2]);
            assert!(!reports.is_due(1, now) && !reports.is_due(2, now));
        }
        let later = start + FULL_CACHE_EVERY;
        assert!(reports.is_due(2, later) && !reports.is_due(2, later));
        assert_eq!(reports.0.len(), 1, "what is long ago is forgotten");
    }
}
