//! A pool as the front sees it: one queue, and the seat links of its generations to their workers.

pub(crate) mod auto;
pub(crate) mod exchange;
pub(crate) mod figures;
pub(crate) mod generation;
pub(crate) mod group;
pub(crate) mod growth;
pub(crate) mod hanging;
pub(crate) mod kind;
pub(crate) mod listen_backlog;
pub(crate) mod metrics;
pub(crate) mod overload;
pub(crate) mod overrun;
pub(crate) mod pools;
pub(crate) mod queue;
pub(crate) mod rings;
pub(crate) mod route_metrics;
pub(crate) mod seats;
pub(crate) mod slow;
pub(crate) mod status;
pub(crate) mod thread_local;
pub(crate) mod turned_away;
pub(crate) mod turnover;
pub(crate) mod waiting;
pub(crate) mod watch;
pub(crate) mod wear;
pub(crate) mod wishes;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use maitred_config::Pool as Settings;
use maitred_control::{FromFront, Overrun, PhpInfo};
use maitred_seat::{Lent, SLOTS_PER_SEAT, Snapshot};
use tokio::sync::Notify;

use crate::pool::exchange::{Claim, Exchange, SlotLease};
use crate::pool::generation::Generation;
use crate::pool::group::Inner;
use crate::pool::listen_backlog::Unaccepted;
use crate::pool::metrics::Tally;
use crate::pool::queue::{Depth, Next, Place, SeatId, Submitted};
use crate::pool::rings::News;
use crate::pool::thread_local::Inbox;
use crate::pool::watch::Watch;
use crate::pool::wishes::{PoolWishes, Wishes};
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
    pub name: Arc<str>,
    /// The settings of the generation that gets its requests.
    settings: ArcSwap<Settings>,
    inner: Mutex<Inner>,
    inboxes: Arc<[Inbox]>,
    /// Exchanges of each front thread that wait or are lent.
    interest: Arc<[AtomicU32]>,
    /// What its workers have told each front thread.
    news: Arc<[News]>,
    average_micros: AtomicU32,
    /// The request that came last was turned away.
    is_turning_away: AtomicBool,
    supervisor: Arc<Supervisor>,
    /// Somebody has to look whether it can shrink.
    stirred: Arc<Notify>,
    /// It finds its size, and a request waits.
    stalls: Arc<Notify>,
    /// What is said of its queue.
    pub watch: Watch,
    /// What has to be known of its PHP to answer in its stead.
    pub manner: ArcSwap<PhpInfo>,
    /// Where its requests are counted, since its first generation came.
    tally: OnceLock<Arc<Tally>>,
    /// What waits before its door, among others.
    unaccepted: Arc<Unaccepted>,
    /// Where the wishes of its scripts go.
    wishes: PoolWishes,
}

impl Pool {
    /// A pool without a generation. `is_fpm`: its log lines are php-fpm's.
    pub fn new(
        settings: Arc<Settings>,
        inboxes: Arc<[Inbox]>,
        supervisor: Arc<Supervisor>,
        (unaccepted, wishes): (Arc<Unaccepted>, &Wishes),
        is_fpm: bool,
    ) -> Pool {
        Pool {
            name: settings.name.as_str().into(),
            settings: ArcSwap::new(settings),
            inner: Mutex::new(Inner::new()),
            interest: inboxes.iter().map(|_| AtomicU32::new(0)).collect(),
            news: inboxes.iter().map(|_| News::default()).collect(),
            inboxes,
            average_micros: AtomicU32::new(u32::MAX),
            is_turning_away: AtomicBool::new(false),
            supervisor,
            stirred: Arc::default(),
            stalls: Arc::default(),
            watch: Watch::new(is_fpm),
            manner: ArcSwap::default(),
            tally: OnceLock::new(),
            unaccepted,
            wishes: wishes.of_a_pool(),
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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
        claim: Claim,
    ) -> Result<Arc<Exchange>, NotTaken> {
        let Claim { lane, within, .. } = claim;
        let exchange = Exchange::new(self.clone(), thread, request, claim);
        self.take_interest(&exchange);
        let mut inner = self.lock();
        let submitted = match inner.holds_back(&exchange) {
            true => None,
            false => Some(inner.queue.submit(exchange.clone(), lane, self.depth())),
        };
        let refused = match submitted {
            None if inner.hold_back(exchange.clone()) => {
                self.watch.waits(false);
                self.show_figures(&mut inner);
                return Ok(exchange);
            }
            None => NotTaken::QueueFull,
            Some(Submitted::Placed(place)) => {
                self.note_refusal(false);
                let generation = inner.generation(place.seat.generation).cloned();
                inner.count_begin(&exchange);
                inner.count_arrival(0);
                inner.count_accepted(&exchange);
                if let Some(generation) = &generation {
                    exchange.lend(generation.clone(), place);
                }
                let is_behind = inner.queue.is_shared(place.seat);
                self.show_figures(&mut inner);
                drop(inner);
                if let Some(generation) = generation {
                    generation.link().wake(place.seat.number);
                }
                thread_local::follow(exchange.clone(), is_behind);
                return Ok(exchange);
            }
            Some(Submitted::Busy) => match self.join(&mut inner, &exchange, within) {
                Ok(()) => return Ok(exchange),
                Err(refused) => refused,
            },
            Some(Submitted::Nobody) => NotTaken::NoPool,
        };
        drop(inner);
        self.lose_interest(&exchange);
        Err(refused)
    }

    /// The pool as its status page shows it, all generations together. A script may have spoilt
    /// any of it. Connections that wait before the pool's door are counted among what waits: each
    /// will be a request, and php-fpm knows no other queue.
    pub fn snapshot(&self) -> Snapshot {
        let (generations, newest, open) = {
            let inner = self.lock();
            let seats = inner.generations.iter().flat_map(|generation| {
                let seats = 0..generation.link().seats();
                seats.map(|number| (generation.number, number))
            });
            let seats = seats.map(|(generation, number)| SeatId { generation, number });
            let open = seats.filter(|seat| inner.queue.incarnation(*seat) != 0);
            let newest = inner.newest().cloned();
            (inner.generations.clone(), newest, open.collect::<Vec<_>>())
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
        let mut inner = self.lock();
        inner.figures.accepted = inner.figures.accepted.wrapping_add(1);
        inner.show_figures();
    }

    fn show_figures(&self, inner: &mut Inner) {
        inner.show_figures();
        if let Some(tally) = self.tally.get() {
            tally.show(inner.queued(), inner.queue.busy());
        }
        self.report_worn(inner);
        self.ask_for_workers(inner, 0);
    }

    fn take_interest(&self, exchange: &Exchange) {
        if !exchange.followed.swap(true, Ordering::Relaxed) {
            self.interest[exchange.thread as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// However many ways an exchange ends in at once, it counts once.
    fn lose_interest(&self, exchange: &Exchange) {
        if exchange.followed.swap(false, Ordering::Relaxed) {
            self.interest[exchange.thread as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes a request out of the queue that no worker has. False when one has it.
    pub fn cancel(&self, exchange: &Arc<Exchange>) -> bool {
        let mut inner = self.lock();
        let cancelled =
            inner.queue.cancel(exchange, Instant::now()) || inner.forget_held_back(exchange);
        if cancelled {
            self.show_figures(&mut inner);
            self.lose_interest(exchange);
        }
        cancelled
    }

    /// A worker is through with what it was lent: the next request gets its place.
    pub fn finished(self: &Arc<Pool>, loan: SlotLease, exchange: &Arc<Exchange>) {
        let SlotLease { generation, lent } = loan;
        self.measure(&generation, &lent);
        let grown = generation.outgrown(lent.seat());
        let place = place_of(&generation, &lent);
        let spent = generation.link().spent(&lent);
        let is_full = generation.link().finds_cache_full(&lent);
        generation.link().release(lent);
        self.lose_interest(exchange);
        let mut inner = self.lock();
        if grown {
            inner.outgrown(place);
        }
        if is_full {
            self.report_full_cache(&mut inner, &generation);
        }
        inner.queue.done(place);
        self.count_cost(&mut inner, exchange.kind, spent);
        self.settle(inner, place.seat);
    }

    /// A request was taken back from its slot because nobody waits for it any more.
    pub fn taken_back(self: &Arc<Pool>, loan: &SlotLease, exchange: &Arc<Exchange>) {
        let place = place_of(&loan.generation, &loan.lent);
        self.lose_interest(exchange);
        let mut inner = self.lock();
        inner.queue.free(place);
        inner.count_lost(exchange);
        self.settle(inner, place.seat);
    }

    /// The worker's word on how long its script took, as an average; it decides nothing but how
    /// this pool's own requests wait. While it waited for a processor, another worker would have had
    /// none either.
    fn measure(&self, generation: &Generation, lent: &Lent) {
        let link = generation.link();
        let Some(took) = link.took(lent) else { return };
        // It may also have waited for a processor before it began: the worker's own time has none of
        // that.
        let without_waits = link.spent(lent).and_then(|spent| {
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
    fn settle(self: &Arc<Pool>, mut inner: MutexGuard<'_, Inner>, seat: SeatId) {
        inner.release();
        self.turn_over(&mut inner);
        let placed = self.fill(&mut inner, seat);
        self.fill_idle(&mut inner);
        self.show_figures(&mut inner);
        let generation = inner
            .generation(seat.generation)
            .filter(|_| placed)
            .cloned();
        drop(inner);
        if let Some(generation) = generation {
            generation.link().wake(seat.number);
        }
    }

    /// Gives a seat what it does next. True when its worker is to be woken.
    fn fill(&self, inner: &mut Inner, seat: SeatId) -> bool {
        let mut placed = false;
        let now = (inner.queue.waiting() > 0).then(|| self.pass_time(inner));
        loop {
            inner.hold_back_first();
            match inner.queue.next(seat, self.depth()) {
                Next::Run(exchange, place) => self.hand_over(inner, exchange, place),
                Next::TakeBack { from, to } => {
                    if !self.fetch(inner, from, to) {
                        break;
                    }
                }
                Next::Rest => break,
            }
            placed = true;
        }
        if let Some(now) = now {
            self.turn_away_passed(inner, now);
        }
        placed
    }

    fn hand_over(&self, inner: &mut Inner, exchange: Arc<Exchange>, place: Place) {
        inner.count_begin(&exchange);
        inner.count_accepted(&exchange);
        if let Some(generation) = inner.generation(place.seat.generation) {
            exchange.lend(generation.clone(), place);
        }
        self.inboxes[exchange.thread as usize].put(exchange);
    }

    /// Fetches a request that waits behind another; which of them has begun, the slots say.
    fn fetch(&self, inner: &mut Inner, candidates: Vec<(Arc<Exchange>, Place)>, to: Place) -> bool {
        let Some(generation) = inner.generation(to.seat.generation).cloned() else {
            return false;
        };
        for (exchange, from) in candidates {
            if exchange.take_back() {
                let lane = exchange.lane;
                inner.queue.moved(exchange.clone(), lane, (from, to));
                exchange.lend(generation, to);
                return true;
            }
        }
        false
    }

    /// A request has waited behind another for longer than the pool's scripts take: moves it to
    /// an idle seat, or back into the queue if there is none. A request with nothing before it may just
    /// have woken its worker: it wants another only if that takes long.
    pub fn rescue(&self, exchange: &Arc<Exchange>, waited: Duration) {
        let mut inner = self.lock();
        // What waits in the queue is asked for already.
        let Some(from) = exchange.place() else { return };
        let is_late = waited > WAKES_WITHIN;
        let Some(to) = inner.queue.idle_place(exchange.lane) else {
            let is_behind = inner.queue.is_shared(from.seat);
            if is_behind || is_late {
                self.ask_for_workers(&mut inner, 1);
            }
            if is_behind {
                self.come_back(&mut inner, exchange, from);
            } else if let (true, Some(generation)) =
                (is_late, inner.generation(from.seat.generation))
            {
                generation.link().wake_whatever_was_said(from.seat.number);
            }
            return;
        };
        if self.fetch(&mut inner, vec![(exchange.clone(), from)], to) {
            // The seat it was taken from may have become one that can go.
            self.turn_over(&mut inner);
            self.show_figures(&mut inner);
            let generation = inner.generation(to.seat.generation).cloned();
            drop(inner);
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
    fn come_back(&self, inner: &mut Inner, exchange: &Arc<Exchange>, from: Place) {
        let is_behind_a_script = inner.queue.has(from.seat, |other| other.has_begun());
        if !is_behind_a_script || !exchange.take_back() {
            return;
        }
        let (item, lane) = (exchange.clone(), exchange.lane);
        inner.queue.come_back(item, lane, (from, Instant::now()));
        inner.count_lost(exchange);
        self.begins_to_wait(inner);
    }

    /// A worker keeps to no rules, in words: it is ended, and what all others of its generation
    /// depend on is written again.
    pub fn broken(&self, generation: &Generation, place: Place, how: &str) {
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
    pub fn broke_rules(&self, place: Place, how: &str) {
        let generation = self.lock().generation(place.seat.generation).cloned();
        if let Some(generation) = generation {
            self.broken(&generation, place, how);
        }
    }

    /// Whether nothing waits and nothing runs.
    pub fn is_quiet(&self) -> bool {
        self.interest
            .iter()
            .all(|interest| interest.load(Ordering::Relaxed) == 0)
    }

    /// Asks the supervisor to end a worker; `overrun`: for what it has run for too long.
    pub fn end_worker(&self, loan: &SlotLease, why: &str, overrun: Option<Overrun>) {
        let SlotLease { generation, lent } = loan;
        self.supervisor.report(&FromFront::EndWorker {
            generation: generation.number,
            seat: lent.seat(),
            incarnation: lent.incarnation(),
            why: format!("{why} ({})", generation.script_in(lent.seat())),
            overrun,
            broke_rules: false,
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Whoever looks after it is to notice that it is gone.
        self.stirred.notify_one();
        self.watch.pool_is_gone();
    }
}

/// Where a loan is.
pub(crate) fn place_of(generation: &Generation, lent: &Lent) -> Place {
    Place {
        seat: SeatId {
            generation: generation.number,
            number: lent.seat(),
        },
        slot: lent.slot(),
        incarnation: lent.incarnation(),
    }
}

#[cfg(test)]
mod tests;
