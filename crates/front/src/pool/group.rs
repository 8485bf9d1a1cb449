//! A pool through its generations: they come, take each other's place, and go, while its queue
//! stays the one it is.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use maitred_config::Mode;
use maitred_control::{FromFront, Generation as Number, Incarnation, Wear, WorkerId};

use super::exchange::{Exchange, Left};
use super::figures::Figures;
use super::generation::Generation;
use super::growth::Growth;
use super::queue::{Place, Queue, SeatId};
use super::turnover::Change;
use super::{NotTaken, Pool};
use crate::clock;

/// How often at most the supervisor is told that workers find OPcache full: to see whether it is takes a
/// process.
const FULL_SAID_EVERY: Duration = Duration::from_secs(10);

/// What a pool's lock guards.
#[derive(Debug)]
pub struct Inner {
    /// Who waits for whom.
    pub queue: Queue<Arc<Exchange>>,
    /// The generations, in the order they came.
    pub generations: Vec<Arc<Generation>>,
    /// What it has counted.
    pub figures: Figures,
    /// How the pool grows and shrinks.
    pub growth: Growth,
    /// Requests that get no worker before others have ended that ask for the same, since that hangs.
    pub held_back: VecDeque<Arc<Exchange>>,
    /// Reports that the supervisor has not taken, one for each seat at most.
    pub unsaid: Vec<FromFront>,
    /// Of which generations the supervisor was told that their OPcache is full.
    pub full_said: FullSaid,
}

/// Generations whose OPcache was said to be full not long ago, and when: one entry for each at most.
#[derive(Debug, Default)]
pub struct FullSaid(Vec<(Number, Instant)>);

impl FullSaid {
    /// Whether it is to be said now of this one: while one takes another's place, both may be full.
    fn is_due(&mut self, generation: Number, now: Instant) -> bool {
        self.0.retain(|(_, at)| now < *at + FULL_SAID_EVERY);
        let is_due = self.0.iter().all(|(said, _)| *said != generation);
        if is_due {
            self.0.push((generation, now));
        }
        is_due
    }
}

impl Inner {
    /// Nothing.
    pub fn new() -> Inner {
        Inner {
            queue: Queue::new(),
            generations: Vec::new(),
            figures: Figures::default(),
            growth: Growth::none(),
            held_back: VecDeque::new(),
            unsaid: Vec::new(),
            full_said: FullSaid::default(),
        }
    }

    /// The generation of this number.
    pub fn generation(&self, number: Number) -> Option<&Arc<Generation>> {
        let mut all = self.generations.iter().rev();
        all.find(|generation| generation.number == number)
    }

    /// The generation whose board holds the pool's figures: the one that gets the requests, or
    /// the last that did.
    pub fn newest(&self) -> Option<&Arc<Generation>> {
        let current = self.generation(self.queue.current());
        current.or_else(|| self.generations.last())
    }

    /// Writes what there is now to every generation's board: their scripts read their own.
    pub fn show_figures(&mut self) {
        let (queued, active) = (self.queued() as u32, self.queue.busy() as u32);
        self.figures.see(queued, active);
        for generation in &self.generations {
            self.figures.show(generation.link().board(), queued, active);
        }
    }

    /// A request has a worker; one that gets another later counts once.
    pub fn count_accepted(&mut self, exchange: &Exchange) {
        if !exchange.accepted.swap(true, Ordering::Relaxed) {
            self.figures.accepted = self.figures.accepted.wrapping_add(1);
        }
    }

    /// A worker has grown as large as it may.
    pub fn outgrown(&mut self, place: Place) {
        self.queue
            .wear_out(place.seat, place.incarnation, Wear::Memory);
    }
}

impl Generation {
    /// Whether a worker says that it has more memory of its own than `max_private_memory`.
    pub(super) fn outgrown(&self, seat: u32) -> bool {
        let limit = self.settings.max_private_memory;
        limit > 0 && {
            let board = self.link().seat_board(seat);
            board.private_bytes.load(Ordering::Relaxed) > limit
        }
    }
}

impl Pool {
    /// A generation comes. It gets no request before [`Pool::replace`].
    pub fn add(&self, generation: Generation) -> Arc<Generation> {
        let shared = (self.interest.clone(), self.news.clone());
        let mut generation = generation.counting_with(shared.0, shared.1);
        // One mapping is enough: every generation of the pool counts on the same page.
        let tally = self.tally.get_or_init(|| generation.tally.clone());
        generation.tally = tally.clone();
        let generation = Arc::new(generation);
        let mut inner = self.lock();
        let settings = &generation.settings;
        // A copy's successors wait already: none has to be made for it before it leaves.
        let is_copied = settings.mode == Mode::Snapshot;
        let max_requests = if is_copied { 0 } else { settings.max_requests };
        let (number, seats) = (generation.number, generation.link().seats());
        inner.queue.add(number, seats, max_requests);
        if is_copied {
            let each = u64::from(settings.requests_per_child);
            let each = each.saturating_mul(u64::from(settings.rewinds_per_child) + 1);
            inner.queue.serve_each(number, each);
        }
        inner.generations.push(generation.clone());
        generation
    }

    /// From now on the pool's requests go to generation `new`; those before it leave.
    pub fn replace(self: &Arc<Pool>, new: Number) {
        let mut inner = self.lock();
        let Some(generation) = inner.generation(new).cloned() else {
            return;
        };
        let settings = &generation.settings;
        let limit = settings.request_queue_length as usize;
        inner.queue.replace(new, generation.max_open(), limit);
        inner.queue.reserve(settings.reserved_workers as usize);
        let waiting = &mut inner.queue.waiting;
        waiting.limit_time(settings.request_queue_timeout);
        let grown = std::mem::replace(&mut inner.growth, Growth::none());
        inner.growth = Growth::of(settings, generation.max_open()).after(grown);
        let serving = inner.growth.serving();
        inner.queue.serve_at_most(serving);
        let now = clock::since_1970().as_secs();
        inner.figures.open(generation.link().board(), now);
        inner.figures.queue_limit = settings.request_queue_length;
        self.show_size(&inner);
        self.settings.store(settings.clone());
        self.settle_all(inner);
    }

    /// A generation leaves and nothing takes its place.
    pub fn leave(self: &Arc<Pool>, number: Number) {
        let mut inner = self.lock();
        inner.queue.leave(number);
        self.settle_all(inner);
    }

    /// Nothing is left of a generation. What it should still have had goes to others.
    pub fn forget(self: &Arc<Pool>, number: Number) {
        let mut inner = self.lock();
        let had = inner.queue.remove(number);
        self.recover(&mut inner, had);
        inner
            .generations
            .retain(|generation| generation.number != number);
        self.settle_all(inner);
    }

    /// From now on only `keep` workers stay that have nothing to do, and of all there may be only
    /// one in `share`.
    pub fn keep_only(self: &Arc<Pool>, keep: usize, share: usize) {
        let mut inner = self.lock();
        let most = inner.queue.max_open().div_ceil(share);
        inner.queue.keep_only(keep.min(most));
        self.settle_all(inner);
    }

    /// Whether the pool has no generation, and nobody waits for one.
    pub fn is_void(&self) -> bool {
        self.lock().queue.is_void()
    }

    /// A worker sits in a seat. What an earlier front left there is waited for and thrown away.
    pub fn seat_opened(self: &Arc<Pool>, seat: SeatId, incarnation: Incarnation) {
        let Some(generation) = self.lock().generation(seat.generation).cloned() else {
            return;
        };
        if seat.number >= generation.link().seats() {
            return;
        }
        // The news of a successor can be quicker than that of a death.
        let mut inner = self.lock();
        let had = inner.queue.vacate(seat);
        self.recover(&mut inner, had);
        self.settle_all(inner);
        let left = generation.link().adopt(seat.number, incarnation, 0);
        let left: Vec<_> = left
            .into_iter()
            .map(|lent| (lent.slot(), Exchange::orphan(self, &generation, lent)))
            .collect();
        for (_, exchange) in &left {
            self.take_interest(exchange);
            self.inboxes[0].put(exchange.clone());
            crate::source::watch_left(exchange.clone());
        }
        let mut inner = self.lock();
        inner.queue.arrive(seat, incarnation, left);
        self.settle(inner, seat);
        self.stirred.notify_one();
    }

    /// A worker that was to sit in a seat gets nothing: another is to come in its stead.
    pub fn give_back(&self, seat: SeatId, incarnation: Incarnation) {
        let mut inner = self.lock();
        self.retired(&mut inner, seat, incarnation);
        inner.forget_told(seat.generation);
        self.stirred.notify_one();
    }

    /// The worker with this pid sits nowhere any more, and is not in the figures either.
    pub fn forget_pid(&self, seat: SeatId, pid: i32) {
        let Some(generation) = self.lock().generation(seat.generation).cloned() else {
            return;
        };
        if let (true, Ok(pid)) = (seat.number < generation.link().seats(), u32::try_from(pid)) {
            let shown = &generation.link().seat_board(seat.number).pid;
            // A successor may have written its own by now.
            let _ = shown.compare_exchange(pid, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A seat's worker is dead: what it had not begun goes to others, the rest has failed.
    pub fn seat_died(self: &Arc<Pool>, seat: SeatId, incarnation: Incarnation) {
        let mut inner = self.lock();
        if !inner.queue.forget_pending(seat, incarnation) {
            let sat_there = inner.queue.incarnation(seat) == incarnation;
            let had = inner.queue.close(seat, incarnation);
            self.recover(&mut inner, had);
            if let (true, Some(generation)) = (sat_there, inner.generation(seat.generation)) {
                generation.link().vacate(seat.number);
            }
        }
        self.settle_all(inner);
    }

    /// What a worker had that is no more goes to others if it had not begun.
    fn recover(&self, inner: &mut Inner, had: Vec<(Place, Arc<Exchange>)>) {
        for (place, exchange) in had.into_iter().rev() {
            match exchange.worker_died() {
                Left::Unbegun => {
                    inner.count_lost(&exchange);
                    let lane = exchange.lane;
                    inner.queue.put_back(exchange, lane, Instant::now());
                    continue;
                }
                Left::Cut => self.report_death(inner, place),
                Left::Over => {}
            }
            inner.count_death(&exchange);
            self.lose_interest(&exchange);
        }
    }

    /// Tells the supervisor, which sees only a signal or an exit code, what the worker was at.
    fn report_death(&self, inner: &Inner, place: Place) {
        let SeatId { generation, number } = place.seat;
        let Some(script) = inner.generation(generation) else {
            return;
        };
        self.supervisor.report(&FromFront::ScriptDied {
            generation,
            worker: WorkerId {
                seat: number,
                incarnation: place.incarnation,
            },
            script: script.script_in(number),
        });
    }

    /// Lets seats change hands, and gives work to every seat that has none.
    fn settle_all<'p>(self: &'p Arc<Pool>, mut inner: MutexGuard<'p, Inner>) {
        inner.release();
        self.turn_over(&mut inner);
        for exchange in inner.queue.abandon() {
            exchange.turn_away(NotTaken::NoPool);
            self.lose_interest(&exchange);
        }
        self.show_figures(&mut inner);
        while let Some(idle) = inner.queue.idle_for_waiting() {
            self.settle(inner, idle);
            inner = self.lock();
        }
        drop(inner);
        self.stirred.notify_one();
    }

    /// Does what the queue says about seats that change hands.
    pub(super) fn turn_over(&self, inner: &mut Inner) {
        while let Some(change) = inner.queue.next_change() {
            match change {
                Change::Retire(seat, incarnation) => self.retired(inner, seat, incarnation),
                Change::Open(seat) => {
                    if self.fill(inner, seat)
                        && let Some(generation) = inner.generation(seat.generation)
                    {
                        generation.link().wake(seat.number);
                    }
                }
            }
        }
    }

    /// Tells the supervisor that a worker is to end.
    pub(super) fn retired(&self, inner: &mut Inner, seat: SeatId, incarnation: Incarnation) {
        let report = FromFront::SeatRetired {
            generation: seat.generation,
            worker: WorkerId {
                seat: seat.number,
                incarnation,
            },
        };
        self.say(inner, report);
    }

    /// A worker has grown, and another is to take its place, by the word of the supervisor.
    pub fn outgrown(&self, seat: SeatId, incarnation: Incarnation) {
        let mut inner = self.lock();
        inner.queue.wear_out(seat, incarnation, Wear::Grown);
        self.report_worn(&mut inner);
    }

    pub(super) fn report_worn(&self, inner: &mut Inner) {
        while let Some((seat, incarnation, why)) = inner.queue.next_worn() {
            let report = FromFront::SeatWorn {
                generation: seat.generation,
                worker: WorkerId {
                    seat: seat.number,
                    incarnation,
                },
                why,
            };
            self.say(inner, report);
        }
    }

    /// Tells the supervisor that workers of a generation find OPcache full, but not with each request.
    pub(super) fn report_full_cache(&self, inner: &mut Inner, generation: &Generation) {
        let generation = generation.number;
        if inner.full_said.is_due(generation, Instant::now()) {
            // What is not taken now is said again.
            self.supervisor
                .report(&FromFront::OpcacheFilled { generation });
        }
    }

    /// Says what must not be lost: what the supervisor does not take now is said later.
    fn say(&self, inner: &mut Inner, report: FromFront) {
        if !self.supervisor.report(&report) {
            inner.unsaid.push(report);
            self.stirred.notify_one();
        }
    }

    /// Says once more what the supervisor has not taken.
    pub(super) fn say_again(&self, inner: &mut Inner) {
        for report in std::mem::take(&mut inner.unsaid) {
            match (self.supervisor.report(&report), &report) {
                (false, _) => inner.unsaid.push(report),
                // More may have been asked for in the meantime.
                (true, FromFront::SeatRetired { generation, .. }) => inner.forget_told(*generation),
                (true, _) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_is_said_once_in_a_while_of_each_generation_however_they_take_turns() {
        let mut said = FullSaid::default();
        let start = Instant::now();
        for second in 0..10 {
            let now = start + Duration::from_secs(second);
            let due = [said.is_due(1, now), said.is_due(2, now)];
            assert_eq!(due, [second == 0; 2]);
            assert!(!said.is_due(1, now) && !said.is_due(2, now));
        }
        let later = start + FULL_SAID_EVERY;
        assert!(said.is_due(2, later) && !said.is_due(2, later));
        assert_eq!(said.0.len(), 1, "what is long ago is forgotten");
    }
}
