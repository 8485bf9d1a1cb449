//! A pool as the front sees it: one queue, and a seat link to its workers.

pub mod exchange;
pub mod growth;
pub mod local;
pub mod queue;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use maitred_control::{FromFront, Generation};
use maitred_seat::{FrontEnd, Lent, SLOTS_PER_SEAT, Snapshot};

use crate::clock;
use crate::supervisor::Supervisor;
use exchange::{Exchange, Left};
use growth::Growth;
use local::Inbox;
use queue::{Depth, Next, Place, Queue, Submitted};

/// Scripts that take less than this on average, in microseconds, let the next request wait in the
/// spare slots of a busy seat ("well under a millisecond").
const SHORT_SCRIPT_MICROS: u32 = 500;

/// What waking a sleeping worker is taken to cost, in microseconds, its own way back to work
/// included: waiting less than this for a busy one is cheaper for everybody. Chosen by trial on
/// whole requests (docs/decisions/0002-seat-link.md), not measured by itself.
const WAKING_MICROS: u32 = 150;

/// Share of a new measurement in the average script time: one eighth, as in TCP's smoothed round
/// trip time (RFC 6298 §2).
const AVERAGE_SHIFT: u32 = 3;

/// The queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

/// A pool.
#[derive(Debug)]
pub struct Pool {
    /// Which generation of the pool this is.
    pub generation: Generation,
    /// Its settings.
    pub settings: maitred_config::Pool,
    link: FrontEnd,
    queue: Mutex<Queue<Arc<Exchange>>>,
    inboxes: Arc<[Inbox]>,
    /// Exchanges of each front thread that wait or are lent.
    interest: Vec<AtomicU32>,
    average_micros: AtomicU32,
    supervisor: Arc<Supervisor>,
    events: Vec<OwnedFd>,
    /// How it grows and shrinks, if it does.
    growth: Option<Growth>,
}

impl Pool {
    /// A pool without workers, over its seat link.
    pub fn new(
        generation: Generation,
        settings: maitred_config::Pool,
        link: FrontEnd,
        events: Vec<OwnedFd>,
        inboxes: Arc<[Inbox]>,
        supervisor: Arc<Supervisor>,
    ) -> Pool {
        let limit = settings.request_queue_length;
        let board = link.board();
        board.queue_limit.store(limit, Ordering::Relaxed);
        board.queued.store(0, Ordering::Relaxed);
        board.active.store(0, Ordering::Relaxed);
        if board.opened_at.load(Ordering::Relaxed) == 0 {
            board
                .opened_at
                .store(clock::since_1970().as_secs(), Ordering::Relaxed);
        }
        let queue = Mutex::new(Queue::new(link.seats(), limit as usize));
        let interest = (0..link.threads()).map(|_| AtomicU32::new(0)).collect();
        let average_micros = AtomicU32::new(u32::MAX);
        let most = settings.max_children.unwrap_or_else(|| link.seats());
        let growth = Growth::of(&settings, most);
        Pool {
            generation,
            settings,
            link,
            queue,
            inboxes,
            interest,
            average_micros,
            supervisor,
            events,
            growth,
        }
    }

    /// The seat link.
    pub fn link(&self) -> &FrontEnd {
        &self.link
    }

    /// What wakes front thread number `thread` when a worker has news.
    pub fn event(&self, thread: u32) -> Option<&OwnedFd> {
        self.events.get(thread as usize)
    }

    /// Whether a front thread waits for anything from this pool.
    pub fn interests(&self, thread: u32) -> bool {
        self.interest[thread as usize].load(Ordering::Relaxed) > 0
    }

    /// Most workers there may be.
    fn most_workers(&self) -> usize {
        let most = self.settings.max_children;
        most.unwrap_or_else(|| self.link.seats()) as usize
    }

    fn queue(&self) -> MutexGuard<'_, Queue<Arc<Exchange>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Gives a request to an idle worker or lets it wait. Call it on the thread that waits for
    /// the answer.
    ///
    /// # Errors
    /// When as many wait as may.
    pub fn submit(
        self: &Arc<Pool>,
        thread: u32,
        request: Vec<u8>,
    ) -> Result<Arc<Exchange>, QueueFull> {
        let exchange = Exchange::new(self.clone(), thread, request);
        self.take_interest(&exchange);
        let mut queue = self.queue();
        let submitted = queue.submit(exchange.clone(), self.depth());
        match submitted {
            Submitted::Placed(place) => {
                exchange.lend(place);
                self.show_figures(&queue);
                drop(queue);
                self.link.wake(place.seat);
                local::follow(exchange.clone());
            }
            Submitted::Waiting => {
                self.show_figures(&queue);
                if queue.open_seats() >= self.most_workers() {
                    let reached = &self.link.board().max_children_reached;
                    reached.fetch_add(1, Ordering::Relaxed);
                }
            }
            Submitted::Full => {
                self.lose_interest(&exchange);
                return Err(QueueFull);
            }
        }
        Ok(exchange)
    }

    /// The pool as its status page shows it. A script may have spoilt any of it.
    pub fn snapshot(&self) -> Snapshot {
        let seats = 0..self.link.seats();
        let open: Vec<u32> = {
            let queue = self.queue();
            seats.filter(|seat| queue.incarnation(*seat) != 0).collect()
        };
        let boards = open.into_iter().map(|seat| self.link.seat_board(seat));
        Snapshot::take(self.link.board(), boards, clock::since_1970())
    }

    fn show_figures(&self, queue: &Queue<Arc<Exchange>>) {
        let board = self.link.board();
        let (queued, active) = (queue.waiting() as u32, queue.busy() as u32);
        board.queued.store(queued, Ordering::Relaxed);
        board.active.store(active, Ordering::Relaxed);
        raise(&board.max_queued, queued);
        raise(&board.max_active, active);
        self.ask_for_workers(queue, 0);
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
        let mut queue = self.queue();
        let cancelled = queue.cancel(exchange);
        if cancelled {
            self.show_figures(&queue);
            self.lose_interest(exchange);
        }
        cancelled
    }

    /// A worker is through with what it was lent: the next request gets its place.
    pub fn finished(self: &Arc<Pool>, lent: Lent, exchange: &Arc<Exchange>) {
        let board = self.link.board();
        board.accepted.fetch_add(1, Ordering::Relaxed);
        self.measure(&lent);
        let place = Place {
            seat: lent.seat(),
            slot: lent.slot(),
            incarnation: lent.incarnation(),
        };
        self.link.release(lent);
        self.lose_interest(exchange);
        let mut queue = self.queue();
        queue.free(place);
        self.settle(queue, place.seat);
    }

    /// A request was taken back from its slot because nobody waits for it any more.
    pub fn taken_back(self: &Arc<Pool>, lent: &Lent, exchange: &Arc<Exchange>) {
        let place = Place {
            seat: lent.seat(),
            slot: lent.slot(),
            incarnation: lent.incarnation(),
        };
        self.lose_interest(exchange);
        let mut queue = self.queue();
        queue.free(place);
        self.settle(queue, place.seat);
    }

    /// The worker's word on how long its script took, as an average; it decides nothing but how
    /// this pool's own requests wait.
    fn measure(&self, lent: &Lent) {
        let took = self
            .link
            .seat_board(lent.seat())
            .request_took
            .load(Ordering::Relaxed);
        let took = u32::try_from(took).unwrap_or(u32::MAX);
        let average = self.average_micros.load(Ordering::Relaxed);
        let next = match average {
            u32::MAX => took,
            _ => average - (average >> AVERAGE_SHIFT) + (took >> AVERAGE_SHIFT),
        };
        self.average_micros
            .store(next.min(u32::MAX - 1), Ordering::Relaxed);
    }

    /// Does what the queue says is next for a seat, and wakes the workers it concerns once the
    /// queue is free for others.
    fn settle(self: &Arc<Pool>, mut queue: MutexGuard<'_, Queue<Arc<Exchange>>>, seat: u32) {
        let mut placed = false;
        loop {
            match queue.next(seat, self.depth()) {
                Next::Run(exchange, place) => {
                    self.hand_over(exchange, place);
                    placed = true;
                }
                Next::TakeBack { from, to } => {
                    if !self.fetch(&mut queue, from, to) {
                        break;
                    }
                    placed = true;
                }
                Next::Rest => break,
            }
        }
        self.show_figures(&queue);
        drop(queue);
        if placed {
            self.link.wake(seat);
        }
    }

    fn hand_over(&self, exchange: Arc<Exchange>, place: Place) {
        exchange.lend(place);
        self.inboxes[exchange.thread as usize].put(exchange);
    }

    /// Fetches a request that waits behind another; which of them has begun, the slots say.
    fn fetch(
        &self,
        queue: &mut Queue<Arc<Exchange>>,
        candidates: Vec<(Arc<Exchange>, Place)>,
        to: Place,
    ) -> bool {
        for (exchange, from) in candidates {
            if exchange.take_back() {
                queue.moved(exchange.clone(), from, to);
                exchange.lend(to);
                return true;
            }
        }
        false
    }

    /// A request has waited behind another for longer than the pool's scripts take: moves it to
    /// an idle seat, if there is one.
    pub fn rescue(&self, exchange: &Arc<Exchange>) {
        let mut queue = self.queue();
        let Some(to) = queue.idle_place() else {
            return self.ask_for_workers(&queue, 1);
        };
        let Some(from) = exchange.place() else { return };
        if self.fetch(&mut queue, vec![(exchange.clone(), from)], to) {
            drop(queue);
            self.link.wake(to.seat);
        }
    }

    /// A worker sits in a seat. What an earlier front left there is waited for and thrown away.
    pub fn seat_opened(self: &Arc<Pool>, seat: u32, incarnation: u32) {
        if seat >= self.link.seats() {
            return;
        }
        // The news of a successor can be quicker than that of a death.
        let predecessor = self.queue().incarnation(seat);
        if predecessor != 0 {
            self.seat_died(seat, predecessor);
        }
        let left: Vec<_> = self
            .link
            .adopt(seat, incarnation, 0)
            .into_iter()
            .map(|lent| (lent.slot(), Exchange::orphan(self.clone(), 0, lent)))
            .collect();
        for (_, exchange) in &left {
            self.take_interest(exchange);
            self.inboxes[0].put(exchange.clone());
            crate::source::watch_left(exchange.clone());
        }
        let mut queue = self.queue();
        queue.open(seat, incarnation, left);
        self.settle(queue, seat);
        self.tend_soon();
    }

    /// The worker with this pid sits nowhere any more, and is not in the figures either.
    pub fn forget_pid(&self, seat: u32, pid: i32) {
        if let (true, Ok(pid)) = (seat < self.link.seats(), u32::try_from(pid)) {
            let shown = &self.link.seat_board(seat).pid;
            // A successor may have written its own by now.
            let _ = shown.compare_exchange(pid, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A seat's worker is dead: what it had not begun goes to others, the rest has failed.
    pub fn seat_died(self: &Arc<Pool>, seat: u32, incarnation: u32) {
        let mut queue = self.queue();
        let had = queue.close(seat, incarnation);
        for (_, exchange) in had.into_iter().rev() {
            match exchange.worker_died() {
                Left::Unbegun => {
                    queue.put_back(exchange);
                    continue;
                }
                Left::Cut => self.report_death(seat, incarnation),
                Left::Over => {}
            }
            self.lose_interest(&exchange);
        }
        self.show_figures(&queue);
        while let (Some(idle), 1..) = (queue.idle_seat(), queue.waiting()) {
            self.settle(queue, idle);
            queue = self.queue();
        }
    }

    /// Tells the supervisor, which sees only a signal or an exit code, what the worker was at.
    fn report_death(&self, seat: u32, incarnation: u32) {
        let script = self.script_in(seat);
        self.supervisor.report(&FromFront::ScriptDied {
            generation: self.generation,
            seat,
            incarnation,
            script,
        });
    }

    /// What there is to be said of a script that is slow, by the word of its worker.
    fn slow_script(&self, seat: u32, incarnation: u32, ran: Duration) -> FromFront {
        let board = self.link.seat_board(seat);
        let (method, uri) = (board.method.get(), board.uri.get());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(char::is_control, "?");
        FromFront::SlowScript {
            generation: self.generation,
            seat,
            incarnation,
            request: board.requests.load(Ordering::Relaxed),
            ran,
            script: self.script_in(seat),
            target: format!("{} {}", text(&method), text(&uri)),
        }
    }

    /// Counts a slow script and tells the supervisor of it.
    fn report_slow(&self, slow: &FromFront) {
        self.link.board().slow.fetch_add(1, Ordering::Relaxed);
        self.supervisor.report(slow);
    }

    /// The script that runs in a seat, by the word of its worker.
    fn script_in(&self, seat: u32) -> String {
        let script = self.link.seat_board(seat).script.get();
        String::from_utf8_lossy(&script).replace(char::is_control, "?")
    }

    /// Has a worker ended that keeps to no rules.
    pub fn broken(&self, lent: &Lent) {
        self.end_worker(
            lent.seat(),
            lent.incarnation(),
            "it broke the rules of the seat link",
        );
    }

    /// Whether nothing waits and nothing runs.
    pub fn is_quiet(&self) -> bool {
        self.interest
            .iter()
            .all(|interest| interest.load(Ordering::Relaxed) == 0)
    }

    /// Asks the supervisor to end a worker.
    pub fn end_worker(&self, seat: u32, incarnation: u32, why: &str) {
        self.supervisor.report(&FromFront::EndWorker {
            generation: self.generation,
            seat,
            incarnation,
            why: format!("{why} ({})", self.script_in(seat)),
        });
    }
}

fn raise(mark: &AtomicU32, to: u32) {
    if mark.load(Ordering::Relaxed) < to {
        mark.store(to, Ordering::Relaxed);
    }
}
